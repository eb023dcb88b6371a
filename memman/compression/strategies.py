"""The stages of each named strategy, and the validation of a strategy.

`memman.config` has the names and the defaults that come with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from memman.compression.repeats import fold_repeats
from memman.compression.stages import (
    clear_tool_results,
    clip_few,
    clip_large,
    clip_rest,
    drop_oldest,
    drop_over_limit,
    drop_summaries,
)
from memman.compression.view import EntryFactory, Goal, View
from memman.config import SUMMARISE, preset_named
from memman.display import safe_repr
from memman.errors import ConfigError
from memman.runtime.base import is_async_callable

Stage = Callable[[View, Goal, EntryFactory], View | None]
"""A stage of a compression: a pure function that returns a smaller view, or None if it has nothing to do.
"""

Step = Stage | Literal["summarise"]
"""An element of a strategy: a stage, or the name of the one that calls the summarizer."""

_KEEP_THE_LIMIT = (clip_large, clip_few, drop_over_limit, clip_rest, drop_summaries)

PRESETS: dict[str, tuple[Step, ...]] = {
    "default": (clear_tool_results, fold_repeats, SUMMARISE, *_KEEP_THE_LIMIT),
    "buffer": (),
    # These keep the newest entries that fit; they clip only those that cannot be dropped.
    "window": (drop_oldest, clip_large, clip_rest),
    "token_buffer": (drop_oldest, clip_large, clip_rest),
    "summary": (SUMMARISE, *_KEEP_THE_LIMIT),
    "summary_buffer": (SUMMARISE, *_KEEP_THE_LIMIT),
}
TRIM: tuple[Stage, ...] = (clear_tool_results, fold_repeats, *_KEEP_THE_LIMIT)
"""The stages that trim a context to its budget."""
TRIM_ALL: tuple[Stage, ...] = (*TRIM, drop_oldest)
"""The same if nothing removable can be kept: summaries are dropped too, even if that is not enough."""


def stages_of(strategy: Any) -> tuple[Step, ...]:
    """Return the stages of a preset's name, or of a sequence of stages and the word "summarise".

    Raises:
        ConfigError: anything else.
    """
    if isinstance(strategy, str):
        return PRESETS[preset_named(strategy).name]
    for stage in strategy:
        if stage != SUMMARISE and (not callable(stage) or isinstance(stage, type)):
            raise ConfigError(
                f"strategy has {safe_repr(stage)}, which is neither a stage nor 'summarise'"
            )
        if is_async_callable(stage):
            raise ConfigError(
                f"strategy has {safe_repr(stage)}, which is async: a stage is a plain function"
            )
    return tuple(strategy)
