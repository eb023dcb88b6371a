"""Compression: pure decisions about what leaves the window, in which order, and what replaces it.

| module | contents |
| --- | --- |
| `view` | the window as stages see it |
| `stages`, `repeats`, `clips` | the stages that need no summary |
| `summarize` | the stage that replaces the old part by a summary |
| `strategies`, `plan` | the stages of each preset, run until the goal is met |
| `prompt`, `reply` | the request to a summarizer, and the validation of its reply |
| `continuation` | the request that continues the session's last one, for the provider's cache |
| `digest`, `updates` | the summary that is written without a model |
| `composer` | the entry of a summary, within its tokens |
| `state`, `words` | the texts that every compression carries forward, and the exact values of texts |
"""

from memman.compression.continuation import LivePrefix
from memman.compression.digest import digest
from memman.compression.plan import (
    CompressionPlan,
    PlannedEntry,
    describe,
    make_plan,
    replacements_of,
    view_of_plan,
)
from memman.compression.prompt import summary_request
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
from memman.compression.state import carry
from memman.compression.strategies import PRESETS, TRIM, TRIM_ALL, Stage, Step, stages_of
from memman.compression.summarize import (
    UNKNOWN_WINDOW,
    FinishedParts,
    OriginalsWanted,
    SummaryFailed,
    SummaryFailure,
    SummaryOptions,
    SummaryProblem,
)
from memman.compression.view import EntryFactory, Goal, Group, Item, View, view_of

__all__ = [
    "PRESETS",
    "TRIM",
    "TRIM_ALL",
    "ClearToolResults",
    "UNKNOWN_WINDOW",
    "CompressionPlan",
    "EntryFactory",
    "FinishedParts",
    "Goal",
    "Group",
    "Item",
    "LivePrefix",
    "OriginalsWanted",
    "PlannedEntry",
    "Stage",
    "Step",
    "SummaryFailed",
    "SummaryFailure",
    "SummaryOptions",
    "SummaryProblem",
    "View",
    "carry",
    "clear_tool_results",
    "clip_few",
    "clip_large",
    "clip_rest",
    "describe",
    "digest",
    "drop_oldest",
    "drop_over_limit",
    "drop_summaries",
    "fold_repeats",
    "make_plan",
    "replacements_of",
    "stages_of",
    "summary_request",
    "view_of",
    "view_of_plan",
]
