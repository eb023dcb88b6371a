"""Export and import of sessions: as one JSON document, or as an archive of JSON lines."""

from typing import TYPE_CHECKING

from memman.archive.document import FORMAT, SessionState, document_bytes, records_of, state_of
from memman.archive.info import ArchiveInfo, Packing, Source, Target
from memman.archive.limits import ArchiveLimits
from memman.archive.redaction import Redactor
from memman.lazy_imports import on_first_use

if TYPE_CHECKING:
    from memman.archive.importer import ArchiveImport, session_of, verify
    from memman.archive.lines import Header
    from memman.archive.temp_file import RecordFile
    from memman.archive.writer import ArchiveWriter
else:
    __getattr__ = on_first_use(
        "memman.archive",
        {
            "importer": "ArchiveImport session_of verify",
            "lines": "Header",
            "temp_file": "RecordFile",
            "writer": "ArchiveWriter",
        },
    )

__all__ = [
    "FORMAT",
    "ArchiveInfo",
    "ArchiveLimits",
    "ArchiveWriter",
    "Header",
    "ArchiveImport",
    "Packing",
    "SessionState",
    "Source",
    "RecordFile",
    "Target",
    "document_bytes",
    "records_of",
    "session_of",
    "state_of",
    "verify",
    "Redactor",
]
