"""Compression: pure decisions about what may leave the window, in which order, for what.

`view` is the window as stages see it, `stages` are the steps, `planning` runs them until the goal is met.

Of a summary: `summaries` says what it replaces, `asking` drives the summarizer, `prompts` and `material`
are what it is asked and shown, `chunks` divides that, `checks` refuses replies, `composing` puts
`constraints` and the `ledger` below what was written, `layout` tells the parts apart. `digest` writes
without a model.
"""

from memman.compression.asking import (
    UNKNOWN_WINDOW,
    OriginalsWanted,
    SummaryFailed,
    SummaryFailure,
    SummaryOptions,
    SummaryProblem,
)
from memman.compression.digest import digest, heuristic_summary
from memman.compression.ledger import ledger
from memman.compression.planning import (
    PRESETS,
    TRIM,
    CompressionPlan,
    PlannedEntry,
    Stage,
    describe,
    make_plan,
    replacements_of,
    stages_of,
)
from memman.compression.prompts import summary_request
from memman.compression.view import Craft, Goal, Group, Item, View, view_of

__all__ = [
    "PRESETS",
    "TRIM",
    "UNKNOWN_WINDOW",
    "CompressionPlan",
    "Craft",
    "Goal",
    "Group",
    "Item",
    "OriginalsWanted",
    "PlannedEntry",
    "Stage",
    "SummaryFailed",
    "SummaryFailure",
    "SummaryOptions",
    "SummaryProblem",
    "View",
    "describe",
    "digest",
    "heuristic_summary",
    "ledger",
    "make_plan",
    "replacements_of",
    "stages_of",
    "summary_request",
    "view_of",
]
