"""What settings do to the bill under a provider's prompt cache, as it was measured.

The figures are those of docs/explanation/cost.md at 64,000 tokens and Anthropic's prices.
"""

from __future__ import annotations

from memman.config import MemoryConfig, default_target

_SLIDING = 2.6  # times the bill of the default
_TARGETS = {0.2: -6, 0.3: -2, 0.35: 0, 0.4: 1, 0.5: 5, 0.7: 14}  # percent of the default, 0.35
_WINDOWS = (0, 30)  # recent_window: the bill changes by less than 1 percent
_DEFAULT = MemoryConfig()
_SOURCE = "(docs/explanation/cost.md)"


def price_of_settings(config: MemoryConfig) -> str:
    """Return a sentence on the bill with these settings; "" if it is the default's or was not measured."""
    preset = config.preset
    if preset is None or preset.name == "buffer":
        return ""
    if preset.size is not None or config.target_ratio >= 1:
        return (
            f"{config.strategy!r} breaks the provider's prompt cache at most messages: at 64,000 tokens a "
            f"sliding window cost {_SLIDING} times as much as 'default' {_SOURCE}"
        )
    nearest = min(_TARGETS, key=lambda target: abs(target - config.target_ratio))
    usual = default_target(config.max_tokens or 64_000)
    is_own = "target_ratio" in config.given and abs(config.target_ratio - usual) > 0.01
    if is_own and preset.summarises and (percent := _TARGETS[nearest]):
        change = f"{abs(percent)} % {'more' if percent > 0 else 'less'}"
        return f"at 64,000 tokens target_ratio={nearest} cost {change} than the default, 0.35 {_SOURCE}"
    low, high = _WINDOWS
    is_usual = config.recent_window == _DEFAULT.recent_window or preset.name != _DEFAULT.strategy
    if is_usual or not low <= config.recent_window <= high:
        return ""
    return (
        f"recent_window hardly changes the bill: at 64,000 tokens {low} and {high} cost the same as the "
        f"default, {_DEFAULT.recent_window}, within 1 % {_SOURCE}"
    )
