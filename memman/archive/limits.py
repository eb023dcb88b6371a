"""Limits of archives and documents."""

from __future__ import annotations

from typing import Final

import msgspec

from memman.display import safe_repr
from memman.errors import InvalidInput


class ArchiveLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of an archive. Reading beyond one raises an error that names the line.

    `document_bytes`, `records` and `entries` also apply to a session document.

    Args:
        file_bytes: size of the file.
        unpacked_bytes: size of a packed file's content.
        ratio: unpacked bytes to packed ones, checked once more than 16 MiB were unpacked.
        line_bytes: size of a line.
        records: number of records in the log.
        entries: number of added entries in all eras.
        document_bytes: size of a session document.
        string_bytes: size of one text of an entry, in UTF-8.
        depth: levels of arrays and objects in an entry's metadata or provider's block.

    Raises:
        InvalidInput: a limit is not a positive number.
    """

    file_bytes: int = 2**30
    unpacked_bytes: int = 4 * 2**30
    ratio: int = 250
    line_bytes: int = 8 * 2**20
    records: int = 5_000_000
    entries: int = 1_000_000
    document_bytes: int = 2**28
    string_bytes: int = 4 * 2**20
    depth: int = 64

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidInput(
                    f"{name}={safe_repr(value)} is not a limit: give a positive whole number"
                )


DEFAULT_LIMITS = ArchiveLimits()
MOST_FAULTS: Final = 100  # faults that an error reports


def too_much(what: str, name: str, limits: ArchiveLimits) -> str:
    """Return the fault of exceeding the limit with this name."""
    most = f"limits.{name} is {getattr(limits, name):,}"
    return f"{what}; {most} (if you trust its source, pass ArchiveLimits({name}=...))"
