"""How much an archive may ask of who reads it."""

from __future__ import annotations

import msgspec

from memman.errors import InvalidInput
from memman.showing import shown


class ArchiveLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What reading an archive takes at most; an archive beyond a limit is refused with the line named.

    Args:
        file_bytes: the file, as it is on the disk.
        unpacked_bytes: what a packed one unpacks to.
        ratio: unpacked bytes to packed ones, once more than 16 MiB were unpacked.
        line_bytes: a line.
        entries: entries that were added, of all eras.
        string_bytes: one text of an entry, in UTF-8.
        depth: levels of arrays and objects in an entry's metadata or provider's block.

    Raises:
        InvalidInput: a limit is not a positive number.
    """

    file_bytes: int = 2**30
    unpacked_bytes: int = 4 * 2**30
    ratio: int = 250
    line_bytes: int = 8 * 2**20
    entries: int = 1_000_000
    string_bytes: int = 4 * 2**20
    depth: int = 64

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidInput(
                    f"{name}={shown(value)} is no limit; give a positive whole number"
                )


DEFAULT_LIMITS = ArchiveLimits()
