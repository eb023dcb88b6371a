"""Compression: pure decisions about what may leave the window, in which order, for what.

`view` is the window as stages see it, `stages` and `folding` are the steps, `strategies` puts them in
order, `planning` runs the steps until the goal is met, `checking` looks at what a stage of one's own
returns.

Of a summary: `summaries` says what it replaces, `asking` drives the summarizer, `prompts` and `material`
are what it is asked and shown, `chunks` divides that, `checks` refuses replies, `composing` puts
`constraints` and the `ledger` below what was written, `layout` tells the parts apart. `digest` writes
without a model.
"""

from memman.compression.digest import digest, heuristic_summary
from memman.compression.ledger import ledger
from memman.compression.plan import (
    CompressionPlan,
    PlannedEntry,
    describe,
    make_plan,
    replacements_of,
)
from memman.compression.prompts import summary_request
from memman.compression.repeats import fold_repeats
from memman.compression.requests import (
    UNKNOWN_WINDOW,
    FinishedParts,
    OriginalsWanted,
    SummaryFailed,
    SummaryFailure,
    SummaryOptions,
    SummaryProblem,
)
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
    "ledger",
    "make_plan",
    "replacements_of",
    "stages_of",
    "summary_request",
    "view_of",
]
