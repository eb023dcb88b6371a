"""The strategies that have a name: how the name is written, and which defaults come with it.

Their steps are in `memman.compression.strategies`; docs/how-to/come-from.md says which systems they are
like.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from memman.display import known_names, safe_repr
from memman.errors import ConfigError

PresetName = Literal[
    "default", "buffer", "window", "token_buffer", "summary", "summary_buffer"
]  # for type checkers, beside `window(n)`
SUMMARISE: Final = "summarise"  # in a strategy: the one step that asks somebody
_LONGEST = 60  # characters of a name, far more than any has
_WINDOW = 5  # entries that "window" keeps: what systems with a memory of that name do


class Preset(msgspec.Struct, frozen=True):
    """A strategy that has a name, the settings it has other defaults for, and the n of `window(n)`."""

    name: str
    defaults: Mapping[str, Any]
    summarises: bool = True
    size: int | None = None


# What keeps as much as fits goes down to the limit itself, and protects nothing that is only recent.
_AS_MUCH_AS_FITS = {"target_ratio": 1.0, "recent_window": 0}
_PRESETS = {
    preset.name: preset
    for preset in (
        Preset("default", {}),
        Preset("buffer", {"max_entries": None}, summarises=False),
        Preset("window", _AS_MUCH_AS_FITS, summarises=False, size=_WINDOW),
        Preset(
            "token_buffer",
            {"max_tokens": 2_000, "max_entries": None} | _AS_MUCH_AS_FITS,
            summarises=False,
        ),
        Preset("summary", {"max_entries": 20, "recent_window": 9, "min_entries_to_compress": 1}),
        Preset(
            "summary_buffer",
            {"max_tokens": 2_000, "max_entries": None, "min_entries_to_compress": 1},
        ),
    )
}


def preset_named(strategy: str) -> Preset:
    """The preset of a name such as "default" or "window(5)". Raises `ConfigError` for anything else."""
    found = re.fullmatch(r"(\w+)\s*(?:\(([^()]*)\))?", strategy[: _LONGEST + 1].strip())
    name, number = found.groups() if found and len(strategy) <= _LONGEST else (strategy, None)
    preset = _PRESETS.get(name)
    if preset is None:
        known = ["window(n)" if preset.size else name for name, preset in _PRESETS.items()]
        raise ConfigError(
            f"strategy={safe_repr(strategy, _LONGEST)} is no preset{known_names(name, known)}"
        )
    if preset.size is None:
        if number is not None:
            raise ConfigError(
                f"strategy={strategy!r}: only window takes a number, as in 'window(5)'"
            )
        return preset
    size = preset.size if number is None else _size(strategy, number)
    defaults = {"max_entries": size, **preset.defaults}
    return msgspec.structs.replace(preset, size=size, defaults=defaults)


def _size(strategy: str, number: str) -> int:
    size = int(number) if re.fullmatch(r"[0-9]{1,15}", number.strip()) else 0
    if size < 1:
        raise ConfigError(
            f"strategy={strategy!r}: the n of window(n) is how many entries stay, a whole number "
            "from 1"
        )
    return size
