"""The types of imports and exports."""

from __future__ import annotations

import os
from typing import BinaryIO, Literal

import msgspec

Packing = Literal["none", "gzip", "zstd"]
"""How an archive is packed; zstd needs the extra `zstd`."""
Source = str | os.PathLike[str] | BinaryIO
"""An archive to read: a path, or a file open for bytes."""
Target = str | os.PathLike[str] | BinaryIO
"""An archive to write: a path, or a file open for bytes."""
OnConflict = Literal["fail", "skip", "new_session"]
"""The effect of an import if the session exists: an error, nothing, or a copy under a new id."""


class ArchiveInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of an archive: the number of `records`, of added `entries`, and of `bytes` when unpacked.

    `sha256` is the hash of all bytes before the last line, which contains it too.
    """

    session_id: str
    records: int
    entries: int
    bytes: int
    sha256: str
    packing: Packing
    version: int
    created_by: str
