"""Sessions out and in: as one JSON document, and as an archive of lines for long ones."""

from memman.archive.document import (
    FORMAT,
    VERSION,
    SessionState,
    Shown,
    Totals,
    checked,
    records_of,
    state_of,
)
from memman.archive.soundness import with_entries

__all__ = [
    "FORMAT",
    "VERSION",
    "SessionState",
    "Shown",
    "Totals",
    "checked",
    "records_of",
    "state_of",
    "with_entries",
]
