"""The one way in which memman writes a file: for its owner alone, and whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_PRIVATE = 0o600


class NewFile:
    """A file that is written beside its place and takes it when it is complete.

    Its temporary name is random and created exclusively, so no planted link is followed. A symbolic link in
    its place is replaced, not followed. Only its owner may read it; if a file was there before, that
    file's permissions stay.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        self._file: BinaryIO | None = None

    def open(self) -> BinaryIO:
        """Create the temporary file. Raises `OSError`."""
        before = self._mode_before()
        try:
            self._file = open(self._part, "xb", opener=_opened_privately)  # noqa: SIM115 - closed by `commit` and `abandon`
        except FileNotFoundError as error:
            # The folder is missing: the error names it, not the temporary file.
            raise FileNotFoundError(
                error.errno, "there is no such folder", str(self._path.parent)
            ) from None
        if before is not None:
            os.fchmod(self._file.fileno(), before)
        return self._file

    def commit(self) -> None:
        """Write everything to the disk and put the file in its place."""
        file = self._file
        assert file is not None  # noqa: S101 - `open` comes first
        file.flush()
        os.fsync(file.fileno())
        file.close()
        self._part.replace(self._path)

    def abandon(self) -> None:
        """Remove the temporary file."""
        if self._file is not None:
            with suppress(OSError):  # a full disk: what was buffered cannot be written now either
                self._file.close()
        with suppress(OSError):
            self._part.unlink()

    def _mode_before(self) -> int | None:
        """The permissions of the file in its place; None if there is none, or a link."""
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
    """Create an empty file for its owner alone where there is none. Raises `OSError`."""
    with suppress(FileExistsError):
        # A link to nothing is followed here, or a database would be created with other permissions.
        os.close(os.open(Path(path).resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE))


def _opened_privately(path: str, flags: int) -> int:
    return os.open(path, flags, _PRIVATE)
