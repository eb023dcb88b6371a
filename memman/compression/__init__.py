"""Compression: pure decisions about what may leave the window, in which order, for what.

`view` is the window as stages see it, `stages` are the steps, `summaries` asks for and checks summaries,
`planning` runs the steps until the goal is met.
"""

from memman.compression.digest import digest, heuristic_summary, ledger
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
from memman.compression.summaries import (
    OriginalsWanted,
    SummaryFailed,
    SummaryOptions,
    SummaryProblem,
    summary_request,
)
from memman.compression.view import Craft, Goal, Group, Item, View, view_of

__all__ = [
    "PRESETS",
    "TRIM",
    "CompressionPlan",
    "Craft",
    "Goal",
    "Group",
    "Item",
    "OriginalsWanted",
    "PlannedEntry",
    "Stage",
    "SummaryFailed",
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
