"""Compression: pure decisions about what leaves the window, in which order, and what replaces it.

| module | contents |
| --- | --- |
| `view` | the window as stages see it |
| `stages`, `repeats`, `clips` | the stages that need no summary |
| `summarize` | the stage that replaces the old part by a summary |
| `strategies`, `plan` | the stages of each preset, run until the goal is met |
| `prompt`, `reply` | the request to a summarizer, and the validation of its reply |
| `continuation` | the request that continues the session's last one, for the provider's cache |
| `withdraw` | the second look, which puts back what still fits |
| `composer` | the entry of a model's summary, within its tokens |
| `state`, `words` | the texts that every compression carries forward, and the exact values of texts |
"""

from memman.compression.repeats import fold_repeats
from memman.compression.stages import (
    ClearToolResults,
    clear_tool_results,
    clip_few,
    clip_large,
    clip_rest,
    drop_oldest,
    drop_over_limit,
    drop_summaries,
)
from memman.compression.strategies import Step
from memman.compression.view import EntryFactory, Goal, Group, Item, View

__all__ = [
    "ClearToolResults",
    "EntryFactory",
    "Goal",
    "Group",
    "Item",
    "Step",
    "View",
    "clear_tool_results",
    "clip_few",
    "clip_large",
    "clip_rest",
    "drop_oldest",
    "drop_over_limit",
    "drop_summaries",
    "fold_repeats",
]
