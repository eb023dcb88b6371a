"""Export and import of sessions: as one JSON document, or as an archive of JSON lines."""

from typing import TYPE_CHECKING

from memman.archive.info import Packing, Source, Target
from memman.lazy_imports import on_first_use

if TYPE_CHECKING:
    from memman.archive.importer import verify
else:
    __getattr__ = on_first_use("memman.archive", {"importer": "verify"})

__all__ = ["Packing", "Source", "Target", "verify"]
