"""How much an archive or a document may contain."""

from __future__ import annotations

from typing import Final

import msgspec

from memman.display import safe_repr
from memman.errors import InvalidInput


class ArchiveLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What reading takes at most; an archive beyond a limit is refused with the line named.

    `records` and `entries` hold for a session document too.

    Args:
        file_bytes: the file, as it is on the disk.
        unpacked_bytes: what a packed one unpacks to.
        ratio: unpacked bytes to packed ones, once more than 16 MiB were unpacked.
        line_bytes: a line.
        records: records of the log.
        entries: entries that were added, of all eras.
        document_bytes: the text of a session document.
        string_bytes: one text of an entry, in UTF-8.
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
                    f"{name}={safe_repr(value)} is no limit; give a positive whole number"
                )


DEFAULT_LIMITS = ArchiveLimits()
MOST_FAULTS: Final = 100  # faults that are reported; further ones would only repeat them


def too_much(what: str, name: str, most: int) -> str:
    """The fault of something beyond a limit."""
    return f"{what}; limits.{name} is {most:,} (from somebody you trust: pass ArchiveLimits({name}=...))"
