"""The steps of each strategy that has a name, and what may be a strategy.

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
from memman.runtime import is_async_callable

Stage = Callable[[View, Goal, EntryFactory], View | None]
"""A step of a compression: a pure function that returns a smaller view, or None when it has nothing."""

Step = Stage | Literal["summarise"]
"""What a strategy is a tuple of: stages, and the one step that asks the summarizer."""

_KEEP_THE_LIMIT = (clip_large, clip_few, drop_over_limit, clip_rest, drop_summaries)

PRESETS: dict[str, tuple[Step, ...]] = {
    "default": (clear_tool_results, fold_repeats, SUMMARISE, *_KEEP_THE_LIMIT),
    "buffer": (),
    # What these keep is the newest that fits: they clip only what cannot be dropped.
    "window": (drop_oldest, clip_large, clip_rest),
    "token_buffer": (drop_oldest, clip_large, clip_rest),
    "summary": (SUMMARISE, *_KEEP_THE_LIMIT),
    "summary_buffer": (SUMMARISE, *_KEEP_THE_LIMIT),
}
TRIM: tuple[Stage, ...] = (clear_tool_results, fold_repeats, *_KEEP_THE_LIMIT)
"""The steps by which a context is cut to its budget."""
TRIM_ALL: tuple[Stage, ...] = (*TRIM, drop_oldest)
"""The same where nothing that may go can be kept: summaries go too, whether or not that is enough."""


def stages_of(strategy: Any) -> tuple[Step, ...]:
    """The steps of a preset's name, or of a sequence of stages and the word "summarise".

    Raises `ConfigError` for anything else.
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
