"""Export and import of sessions: as one JSON document, or as an archive of JSON lines."""

from memman.archive.document import (
    FORMAT,
    VERSION,
    SessionState,
    Shown,
    Totals,
    checked,
    document_bytes,
    records_of,
    state_of,
)
from memman.archive.encoding import Packing
from memman.archive.importer import ArchiveImport, Source, session_of, verify
from memman.archive.limits import ArchiveLimits
from memman.archive.lines import Header
from memman.archive.reader import ArchiveInfo
from memman.archive.temp_file import RecordFile
from memman.archive.validation import with_entries
from memman.archive.writer import ArchiveWriter, Target

__all__ = [
    "FORMAT",
    "VERSION",
    "ArchiveInfo",
    "ArchiveLimits",
    "ArchiveWriter",
    "Header",
    "ArchiveImport",
    "Packing",
    "SessionState",
    "Shown",
    "Source",
    "RecordFile",
    "Target",
    "Totals",
    "checked",
    "document_bytes",
    "records_of",
    "session_of",
    "state_of",
    "verify",
    "with_entries",
]
