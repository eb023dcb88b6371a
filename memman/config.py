"""The settings with their defaults, the presets of strategies, and the budget of a session.

`docs/reference/settings.md` is this table in prose; a test keeps the two equal.
Precedence: call > session > manager > environment (`from_env`, if called) > preset > model > default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from string import Formatter
from typing import Any, Final, Literal, Self

import msgspec
from msgspec import UNSET, UnsetType

from memman.display import known_names, safe_repr, warn_once
from memman.entries import ENTRY_TYPES, is_blank, is_encodable, names_nothing
from memman.errors import ConfigError

CountPolicy = Literal["local", "confirm", "estimate"]
OnFailure = Literal["fallback", "keep", "raise"]

PROMPT_FIELDS = ("content", "words", "tokens", "focus")  # of a template; it must have the first
UNKNOWN_MODEL_TOKENS = 50_000
# Upper bounds of the shares of a window, in tokens. docs/reference/settings.md has the reasons.
_MOST_TRIGGER = 200_000  # the trigger, unless max_tokens is given
_MOST_SUMMARY = 8_000
_MOST_STATE = 12_000
_MOST_ENTRY = 25_000
# The default target by the trigger, with straight lines between.
_TARGETS = ((16_000, 0.5), (64_000, 0.35), (128_000, 0.25))
_SMALL_BUDGET = 8_000
# The default share of recalled texts, and the budget from which on there are any.
_RECALL_SHARE, _LEAST_RECALLING = 0.05, 16_000
LEAST_STATE = 64  # tokens: a smaller outline is of little use
UNKNOWN_MODEL_ENTRIES = 100
# Fraction of the range from target to trigger that must be filled before the summarizer is called again,
# and at which a compression starts in the background.
ROOM_SHARE = 0.8
# Of no single session.
MANAGER_SETTINGS = frozenset({"max_sessions", "max_live_bytes", "session_ttl"})


PresetName = Literal[
    "default", "buffer", "window", "token_buffer", "summary", "summary_buffer"
]  # for type checkers; `window(n)` is a name, too
SUMMARISE: Final = "summarise"  # in a strategy: the step that calls a summarizer
_LONGEST = 60  # characters of a name
_WINDOW = 5  # entries that "window" keeps, as in LangChain's memory of that name


class Preset(msgspec.Struct, frozen=True):
    """A named strategy, its own defaults of settings, and the n of `window(n)`."""

    name: str
    defaults: Mapping[str, Any]
    summarises: bool = True
    size: int | None = None


# A strategy that keeps as much as fits compresses to the limit itself, and protects no recent entries. It
# compresses at each add, so an outline would change each time.
_AS_MUCH_AS_FITS = {
    "target_ratio": 1.0,
    "recent_window": 0,
    "state_ratio": 0.0,
    "recall_ratio": 0.0,
}
_SMALL = {"max_tokens": 2_000, "max_entries": None}
_PRESETS = {
    preset.name: preset
    for preset in (
        Preset("default", {}),
        Preset("buffer", {"max_entries": None}, summarises=False),
        Preset("window", _AS_MUCH_AS_FITS, summarises=False, size=_WINDOW),
        Preset("token_buffer", _SMALL | _AS_MUCH_AS_FITS, summarises=False),
        Preset("summary", {"max_entries": 20, "recent_window": 9, "min_entries_to_compress": 1}),
        Preset("summary_buffer", _SMALL | {"min_entries_to_compress": 1}),
    )
}


def preset_named(strategy: str) -> Preset:
    """Return the preset of a name such as "default" or "window(5)". Raises `ConfigError`."""
    found = re.fullmatch(r"(\w+)\s*(?:\(([^()]*)\))?", strategy[: _LONGEST + 1].strip())
    name, number = found.groups() if found and len(strategy) <= _LONGEST else (strategy, None)
    preset = _PRESETS.get(name)
    if preset is None:
        known = ["window(n)" if preset.size else name for name, preset in _PRESETS.items()]
        raise ConfigError(
            f"strategy={safe_repr(strategy, _LONGEST)} is not a preset{known_names(name, known)}"
        )
    if preset.size is None:
        if number is not None:
            raise ConfigError(
                f"strategy={strategy!r}: only window takes a number, as in 'window(5)'"
            )
        return preset
    size = preset.size
    if number is not None:
        size = int(number) if re.fullmatch(r"[0-9]{1,15}", number.strip()) else 0
    if size < 1:
        raise ConfigError(
            f"strategy={strategy!r}: the n of window(n) is the number of entries that stay, at least 1"
        )
    defaults = {"max_entries": size, **preset.defaults}
    return msgspec.structs.replace(preset, size=size, defaults=defaults)


class _ByPreset:
    """A field of `MemoryConfig` whose default is that of the strategy's preset, else its own."""

    def __init__(self, default: Any) -> None:
        self._default = default

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, config: MemoryConfig | None, _owner: type) -> Any:
        if config is None:
            return UNSET  # the dataclass reads the field's default here
        value = vars(config)[self._name]
        if value is not UNSET:
            return value
        preset = config.preset
        return self._default if preset is None else preset.defaults.get(self._name, self._default)

    def __set__(self, config: MemoryConfig, value: Any) -> None:
        vars(config)[self._name] = value


def _by_preset(default: Any = UNSET) -> Any:
    return _ByPreset(default)


@dataclass(frozen=True, kw_only=True, repr=False)
class MemoryConfig:
    """The settings of sessions. The reference has a table of them.

    Some defaults depend on the preset: with `strategy="summary_buffer"`, `max_tokens` is 2,000 by default.

    Raises `ConfigError` naming the setting when it is unknown, when a value has the wrong type or range,
    or when two settings contradict each other.
    """

    max_tokens: int | None = _by_preset(None)
    max_entries: int | UnsetType | None = _by_preset()  # noqa: RUF009 - a descriptor
    trigger_ratio: float = 0.8
    target_ratio: float = _by_preset(0.5)
    recent_window: int = _by_preset(10)
    min_entries_to_compress: int = _by_preset(5)
    compression_ratio: float = 0.3
    max_summary_ratio: float = 0.2
    max_entry_ratio: float = 0.25
    state_ratio: float = _by_preset(0.1)
    recall_ratio: float | None = _by_preset(None)
    recall_types: tuple[str, ...] = ("message",)
    overhead_tokens: int = 0
    reserve_output: int | None = None
    auto_compress: bool = True
    background: bool = False
    cache_ttl: float | None = 300.0
    compress_when_cold: bool = True
    strategy: PresetName | str | tuple[str | Callable[..., Any], ...] = "default"
    count_policy: CountPolicy = "local"
    summarize_timeout: float | None = 60.0
    on_failure: OnFailure = "fallback"
    model: str | None = None
    summarizer: str | None = None
    summarizer_window: int | None = None
    summary_prompt: str | Callable[..., str] | None = None
    summarize_on_prefix: bool = True
    max_sessions: int | None = 1_000
    max_live_bytes: int | None = 256 * 2**20
    session_ttl: float | None = None

    def __new__(cls, **settings: Any) -> Self:
        """Raise `ConfigError` for unknown settings, for which the generated `__init__` raises TypeError."""
        _check_names(settings)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if not isinstance(self.strategy, str | tuple):
            object_type = type(self.strategy).__name__
            raise ConfigError(
                f"strategy must be a preset's name or a tuple of stages, not {object_type}"
            )
        for name, (low, high, kinds) in _RANGES.items():
            _check_range(name, getattr(self, name), low, high, kinds)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"{name}={safe_repr(getattr(self, name))} is not one of {', '.join(map(repr, choices))}"
                )
        for name in _NAMES:
            value = getattr(self, name)
            if not isinstance(value, str | None):
                raise ConfigError(f"{name} must be a name or None, not {safe_repr(value, 60)}")
            if value is not None and is_blank(value):
                raise ConfigError(names_nothing(name, value))
            if value is not None and not is_encodable(value):
                raise ConfigError(f"{name} has a lone surrogate: {safe_repr(value, 60)}")
        _check_types(self.recall_types)
        _check_prompt(self.summary_prompt)
        summarises = self.preset.summarises if self.preset else SUMMARISE in self.strategy
        if summarises and self.target_ratio * (1 + self.max_summary_ratio) > 1:
            raise ConfigError(
                f"target_ratio={self.target_ratio} with max_summary_ratio={self.max_summary_ratio} "
                "leaves a compression no room below the trigger: lower one of them"
            )

    def __repr__(self) -> str:
        """Return the settings that differ from their defaults, as Python code."""
        given = [field for field in fields(self) if field.name in self.given]
        values = [(field.name, getattr(self, field.name), field.default) for field in given]
        changed = [f"{name}={value!r}" for name, value, default in values if value != default]
        return f"MemoryConfig({', '.join(changed)})"

    @property
    def given(self) -> frozenset[str]:
        """Settings whose value does not come from the preset."""
        return frozenset(name for name, value in vars(self).items() if value is not UNSET)

    @property
    def preset(self) -> Preset | None:
        """The preset that `strategy` names; None for a tuple of stages."""
        return preset_named(self.strategy) if isinstance(self.strategy, str) else None

    def updated(self, changes: Mapping[str, Any]) -> MemoryConfig:
        """Return a copy with `changes`. Raises `ConfigError` for an unknown name."""
        if not changes:
            return self
        _check_names(changes)
        values = {
            name: tuple(value) if name in _TUPLES and isinstance(value, list) else value
            for name, value in changes.items()
        }
        return MemoryConfig(**({name: getattr(self, name) for name in self.given} | values))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> MemoryConfig:
        """Return the settings of the variables `MEMMAN_MAX_TOKENS`, `MEMMAN_MODEL` and so on.

        A blank variable counts as not set; `none` means None. Other `MEMMAN_*` variables are ignored.
        """
        given = os.environ if environ is None else environ
        changes = {}
        for name in SETTINGS:
            variable = f"MEMMAN_{name.upper()}"
            if given.get(variable, "").strip():
                changes[name] = _parsed(name, variable, given[variable])
        return cls().updated(changes)


SETTINGS: Final = tuple(field.name for field in fields(MemoryConfig))


# Untrusted settings that may take effect, unless they lift a limit: none of them names a model, a program,
# a prompt or a time.
HARMLESS = (
    "max_tokens", "max_entries", "trigger_ratio", "target_ratio", "recent_window",
    "min_entries_to_compress", "compression_ratio", "max_summary_ratio", "max_entry_ratio",
    "state_ratio", "recall_ratio", "recall_types", "overhead_tokens", "strategy",
)  # fmt: skip


def readable(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings with None in place of blank names."""
    return {
        name: None if name in _NAMES and isinstance(value, str) and is_blank(value) else value
        for name, value in stored.items()
    }


def _check_names(settings: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for an unknown setting, with a suggestion."""
    if unknown := settings.keys() - set(SETTINGS):
        name = min(unknown, key=safe_repr)
        raise ConfigError(f"unknown setting {safe_repr(name)}{known_names(name, SETTINGS)}")


class Budget(msgspec.Struct, frozen=True):
    """The settings of one session resolved to numbers of tokens and entries.

    `usable` is the model's largest input, None if it is unknown; no budget is above it. Of `max_tokens`
    the texts that a context recalls have `recall_tokens`, so a compression is due at `trigger_tokens`.
    """

    max_tokens: int
    usable: int | None
    max_entries: int | None
    target_tokens: int
    target_entries: int | None
    recent_window: int
    min_entries: int
    compression_ratio: float
    summary_tokens: int
    entry_tokens: int
    state_tokens: int = 0
    recall_tokens: int = 0

    @property
    def trigger_tokens(self) -> int:
        """The tokens above which a compression is due."""
        return self.max_tokens - self.recall_tokens

    def over(self, tokens: int, entries: int) -> bool:
        """Return whether a window of this size is over the limits."""
        return tokens > self.trigger_tokens or (
            self.max_entries is not None and entries > self.max_entries
        )

    def fills_room(self, tokens: int, entries: int, share: float = ROOM_SHARE) -> bool:
        """Return whether so much fills this share of the range from target to limit."""
        if tokens >= share * (self.trigger_tokens - self.target_tokens):
            return True
        if self.max_entries is None or self.target_entries is None:
            return False
        return entries >= share * (self.max_entries - self.target_entries)

    def prepared(self, share: float = ROOM_SHARE) -> Budget:
        """Return the budget at which a compression starts early: with this share of the range filled."""
        return msgspec.structs.replace(
            self,
            max_tokens=_between(self.target_tokens, self.trigger_tokens, share),
            recall_tokens=0,
            max_entries=None
            if self.max_entries is None or self.target_entries is None
            else _between(self.target_entries, self.max_entries, share),
        )


def _between(low: int, high: int, share: float) -> int:
    return low + int(share * (high - low))


def resolve_budget(
    config: MemoryConfig,
    limits: tuple[int, int, int] | None,
    *,
    step: int | None = None,
    target_tokens: int | None = None,
) -> Budget:
    """Return the budget for a model of `limits` (context, max_input, max_output tokens).

    Requests of more tokens than `step` have a higher price.
    """
    usable = None if limits is None else _usable(config, limits)
    if config.max_tokens is not None:
        max_tokens = config.max_tokens if usable is None else min(config.max_tokens, usable)
    elif usable is not None:
        max_tokens = min(max(1, int(config.trigger_ratio * usable)), step or usable, _MOST_TRIGGER)
    else:
        max_tokens = UNKNOWN_MODEL_TOKENS
    max_entries = config.max_entries
    if isinstance(max_entries, UnsetType):
        tokens_known = limits is not None or config.max_tokens is not None
        max_entries = None if tokens_known else UNKNOWN_MODEL_ENTRIES
    ratio = config.target_ratio
    if ratio < 1 and "target_ratio" not in config.given:
        ratio = default_target(max_tokens)
    recall = config.recall_ratio
    if recall is None:
        recall = _RECALL_SHARE if max_tokens >= _LEAST_RECALLING else 0.0
    recall_tokens = int(recall * max_tokens)
    target = min(int(ratio * max_tokens), max_tokens - recall_tokens)
    if target_tokens is not None:
        target = target_tokens
    # The outline: half as many again in a small budget, none in a tiny one, at most a third of the target.
    # A target given by hand is the budget, if it is smaller.
    given = min(max_tokens, target_tokens or max_tokens)
    share = config.state_ratio * max(given, min(1.5 * given, 1.5 * _SMALL_BUDGET))
    state_tokens = min(int(share), target // 3, _MOST_STATE)
    return Budget(
        max_tokens=max_tokens,
        usable=usable,
        max_entries=max_entries,
        target_tokens=target,
        target_entries=_target_entries(config, max_entries),
        recent_window=config.recent_window,
        min_entries=config.min_entries_to_compress,
        compression_ratio=config.compression_ratio,
        summary_tokens=min(int(config.max_summary_ratio * target), _MOST_SUMMARY),
        entry_tokens=min(int(config.max_entry_ratio * max_tokens), _MOST_ENTRY),
        state_tokens=state_tokens if state_tokens >= LEAST_STATE else 0,
        recall_tokens=recall_tokens,
    )


def default_target(max_tokens: int) -> float:
    """Return the default target of a window, as a share of its trigger."""
    for (low, share), (high, less) in pairwise(_TARGETS):
        if max_tokens < high:
            return share - (share - less) * max(0, max_tokens - low) / (high - low)
    return _TARGETS[-1][1]


def room_of(config: MemoryConfig, limits: tuple[int, int, int] | None) -> int:
    """Return the tokens of the budget without `overhead_tokens`."""
    return resolve_budget(config, limits).max_tokens - config.overhead_tokens


def no_room(config: MemoryConfig, limits: tuple[int, int, int] | None) -> ConfigError:
    """Return the error for too much overhead; it names the source of the budget."""
    tokens = resolve_budget(config, limits).max_tokens
    if config.max_tokens is not None and "max_tokens" in config.given:
        found = f"max_tokens={tokens}: lower it, or raise max_tokens"
    elif config.max_tokens is not None:
        found = f"max_tokens={tokens}, as strategy={config.strategy!r} has it: lower it, or set max_tokens"
    elif limits is None:
        unknown = (
            f"the limits of {config.model!r} are not known" if config.model else "no model is set"
        )
        found = f"the default of {tokens} tokens ({unknown}): lower it, or set max_tokens"
    else:
        found = (
            f"the {tokens} tokens that trigger_ratio={config.trigger_ratio} and the limits of "
            f"{config.model!r} make: lower it, or set max_tokens"
        )
    return ConfigError(f"overhead_tokens={config.overhead_tokens} leaves no room in {found}")


def _target_entries(config: MemoryConfig, max_entries: int | None) -> int | None:
    if max_entries is None:
        return None
    if config.preset is not None and config.preset.size is not None:
        return min(config.preset.size, max_entries)
    return max(1, int(config.target_ratio * max_entries))


def usable_input(limits: tuple[int, int, int], reserve: int | None = None) -> int:
    """Return the largest input of a model of `limits` with `reserve` tokens left for its reply.

    Without a reserve, its largest reply is left, at most 35 % of its context.
    """
    context, max_input, max_output = limits
    kept = min(max_output, int(0.35 * context)) if reserve is None else reserve
    return min(max_input, context - kept)


def _usable(config: MemoryConfig, limits: tuple[int, int, int]) -> int:
    """Return the input tokens that the model takes. Raises `ConfigError` if the reserve leaves none."""
    usable = usable_input(limits, config.reserve_output)
    if usable < 1:
        raise ConfigError(
            f"reserve_output={config.reserve_output} leaves nothing of a context of {limits[0]} tokens"
        )
    return usable


def lowered(name: str, tokens: int, usable: int | None, model: str | None) -> int:
    """Return the tokens of a budget, or the model's largest input if that is less, with one warning."""
    if usable is None or tokens <= usable:
        return tokens
    warn_once(
        "memman",
        f"{name}={tokens} is more than the {usable} input tokens that {model!r} takes: using {usable}. "
        "If the model takes more, give reserve_output= or model_info=",
    )
    return usable


# name: (lowest, highest, types). None and UNSET are valid if they are among the types.
_RANGES: dict[str, tuple[float, float, tuple[type, ...]]] = {
    "max_tokens": (1, 2**53, (int, type(None))),
    "max_entries": (1, 2**53, (int, type(None), UnsetType)),
    "trigger_ratio": (0.01, 1, (int, float)),
    "target_ratio": (0.01, 1, (int, float)),
    "recent_window": (0, 2**53, (int,)),
    "min_entries_to_compress": (1, 2**53, (int,)),
    "compression_ratio": (0.01, 1, (int, float)),
    "max_summary_ratio": (0.01, 1, (int, float)),
    "max_entry_ratio": (0.01, 1, (int, float)),
    "state_ratio": (0, 0.5, (int, float)),
    "recall_ratio": (0, 0.5, (int, float, type(None))),
    "overhead_tokens": (0, 2**53, (int,)),
    "reserve_output": (0, 2**53, (int, type(None))),
    "auto_compress": (0, 1, (bool,)),
    "background": (0, 1, (bool,)),
    "cache_ttl": (0.001, 2**31, (int, float, type(None))),
    "compress_when_cold": (0, 1, (bool,)),
    "summarize_timeout": (0.001, 86_400, (int, float, type(None))),
    "summarizer_window": (1_000, 2**53, (int, type(None))),
    "summarize_on_prefix": (0, 1, (bool,)),
    "max_sessions": (1, 2**53, (int, type(None))),
    "max_live_bytes": (1, 2**53, (int, type(None))),
    "session_ttl": (0.001, 2**31, (int, float, type(None))),
}
_CHOICES: dict[str, Sequence[str]] = {
    "count_policy": ("local", "confirm", "estimate"),
    "on_failure": ("fallback", "keep", "raise"),
}
_NAMES = ("model", "summarizer")
_TUPLES = ("strategy", "recall_types")
_MAY_BE_NONE = (*_NAMES, "summary_prompt")


def _check_range(name: str, value: Any, low: float, high: float, kinds: tuple[type, ...]) -> None:
    boolean_expected = kinds == (bool,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and not boolean_expected):
        allowed = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ConfigError(f"{name} must be {allowed}, not {safe_repr(value)}")
    if isinstance(value, int | float) and not low <= value <= high:
        raise ConfigError(
            f"{name}={safe_repr(value)} is out of range: it must be from {low:,} to {high:,}"
        )


def _check_types(types: Any) -> None:
    """Raise `ConfigError` unless it is a tuple of entry types."""
    if not isinstance(types, tuple) or not types or any(each not in ENTRY_TYPES for each in types):
        raise ConfigError(
            f"recall_types={safe_repr(types, 60)} is not a tuple of entry types: {', '.join(ENTRY_TYPES)}"
        )


def _check_prompt(prompt: Any) -> None:
    """Raise `ConfigError` unless it is None, a function, or a template with valid placeholders."""
    if prompt is None or callable(prompt):
        return
    if not isinstance(prompt, str):
        kind = type(prompt).__name__
        raise ConfigError(f"summary_prompt must be a template, a function or None, not {kind}")
    if not is_encodable(prompt):
        raise ConfigError("summary_prompt has a lone surrogate")
    try:
        fields = [field for field in Formatter().parse(prompt) if field[1] is not None]
    except ValueError as error:
        raise ConfigError(
            f"summary_prompt is not a template: {error}; double a brace that is text"
        ) from None
    found = [
        f"{name}{f'!{how}' if how else ''}{f':{spec}' if spec else ''}"  # as written
        for _, name, spec, how in fields
    ]
    if unknown := [name for name in found if name not in PROMPT_FIELDS]:
        known = ", ".join([f"{{{name}}}" for name in PROMPT_FIELDS])
        raise ConfigError(
            f"summary_prompt has the unknown placeholder {{{unknown[0]}}}; known are {known}. "
            "Double a brace that is text"
        )
    if "content" not in found:
        raise ConfigError("summary_prompt lacks the placeholder {content} for the material")


def _parsed(name: str, variable: str, text: str) -> Any:
    """Return the value of a setting from the text of an environment variable."""
    lowered = text.strip().lower()
    kinds = _RANGES[name][2] if name in _RANGES else ()
    if lowered == "none" and (type(None) in kinds or name in _MAY_BE_NONE):
        return None
    if name in _RANGES:
        if kinds == (bool,) and lowered in ("1", "true", "yes", "on", "0", "false", "no", "off"):
            return lowered in ("1", "true", "yes", "on")
        try:
            return float(text) if float in kinds else int(text)
        except ValueError:
            raise ConfigError(f"{variable}={text!r} is not a value for {name}") from None
    return tuple(text.replace(",", " ").split()) if name == "recall_types" else text
