"""Compression: pure decisions about what leaves the window, in which order, and what replaces it.

| module | contents |
| --- | --- |
| `view` | the window as stages see it |
| `stages`, `repeats`, `clips` | the stages that need no summary |
| `summarize` | the stage that replaces the old part by a summary |
| `strategies`, `plan` | the stages of each preset, run until the goal is met |
| `prompt`, `reply` | the request to a summarizer, and the validation of its reply |
| `digest` | the summary that is written without a model |
| `composer`, `summary_parts`, `key_facts`, `words` | the parts of a summary, and its exact values |
"""

from memman.compression.digest import digest, heuristic_summary
from memman.compression.key_facts import key_facts
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
    "OriginalsWanted",
    "PlannedEntry",
    "Stage",
    "Step",
    "SummaryFailed",
    "SummaryFailure",
    "SummaryOptions",
    "SummaryProblem",
    "View",
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
    "heuristic_summary",
    "key_facts",
    "make_plan",
    "replacements_of",
    "stages_of",
    "summary_request",
    "view_of",
    "view_of_plan",
]
