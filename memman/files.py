"""Writing files: readable by their owner only, and complete or absent."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

_PRIVATE = 0o600


class NewFile:
    """A file that is written under a temporary name and renamed when it is complete.

    The temporary name is random and created exclusively, so no planted link is followed. A symbolic link at
    the path is replaced, not followed. Only the owner may read the file; the permissions of an existing
    file stay.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        self._file: BinaryIO | None = None

    def open(self) -> BinaryIO:
        """Create the temporary file. Raises `OSError`."""
        before = self._mode_before()
        try:
            self._file = open(self._part, "xb", opener=partial(os.open, mode=_PRIVATE))  # noqa: SIM115 - closed by `commit` and `abandon`
        except FileNotFoundError as error:
            # The folder is missing: the error names it, not the temporary file.
            raise FileNotFoundError(
                error.errno, "there is no such folder", str(self._path.parent)
            ) from None
        if before is not None:
            os.fchmod(self._file.fileno(), before)
        return self._file

    def commit(self) -> None:
        """Sync the file to the disk and rename it to its path."""
        file = self._file
        assert file is not None  # noqa: S101 - `open` comes first
        file.flush()
        os.fsync(file.fileno())
        file.close()
        self._part.replace(self._path)

    def abandon(self) -> None:
        """Remove the temporary file."""
        if self._file is not None:
            with suppress(OSError):  # a full disk: the buffer cannot be written now either
                self._file.close()
        with suppress(OSError):
            self._part.unlink()

    def _mode_before(self) -> int | None:
        """Return the permissions of the existing file; None if it is missing or a link."""
        try:
            mode = self._path.lstat().st_mode
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(mode):
            return None
        if not stat.S_ISREG(mode):
            raise OSError(None, "it is not a regular file", str(self._path))
        return stat.S_IMODE(mode)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a `NewFile`, commit it at the end of the block, and abandon it if the block raises."""
    new = NewFile(path)
    try:
        yield new.open()
        new.commit()
    except BaseException:
        new.abandon()
        raise


def make_private(path: str) -> None:
    """Create an empty file for its owner only, unless it exists. Raises `OSError`."""
    with suppress(FileExistsError):
        # A dangling link is resolved, or a database would be created with other permissions.
        os.close(os.open(Path(path).resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE))
