"""What a long piece of work shows of itself: on stderr, and only on a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import BinaryIO, Self, cast

from memman.cli.display import console, has_colours

_TOLD_EVERY = 2**18  # bytes
_RECORDS = 1_000  # fewer are done before anybody sees it

Watch = Callable[[BinaryIO], BinaryIO]
"""Gives a file that is to be read in the place of another, so that it is seen how far that has come."""


_shown: ContextVar[Callable[[int, int], None] | None] = ContextVar("memman.cli.shown", default=None)


def told(done: int, in_all: int) -> None:
    """Shows how many records of a known number are done, where something is shown at all."""
    show = _shown.get()
    if show is not None and (done % _RECORDS == 0 or done == in_all) and in_all > _RECORDS:
        show(done, in_all)


@contextmanager
def working(on: str) -> Iterator[Watch]:
    """Shows on a terminal that something is being done, and how much is, of a watched file or database.

    A file is read before its records are written; each is shown from its beginning.
    """
    shown_on = console("stderr")
    if not shown_on.is_terminal or not has_colours(shown_on):  # it moves the cursor
        yield lambda file: file
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    with Progress(*columns, console=shown_on, transient=True) as shown:
        task = shown.add_task(on, total=None)

        def watch(file: BinaryIO) -> BinaryIO:
            shown.update(task, total=os.fstat(file.fileno()).st_size, completed=0)
            told = partial(shown.update, task)
            return cast("BinaryIO", _Watched(file, lambda read: told(completed=read)))

        def show(done: int, in_all: int) -> None:
            shown.update(task, total=in_all, completed=done)

        token = _shown.set(show)
        try:
            yield watch
        finally:
            _shown.reset(token)


class _Watched:
    """A file that tells now and then how many bytes of it were read."""

    def __init__(self, file: BinaryIO, tell: Callable[[int], None]) -> None:
        self._file = file
        self._tell = tell
        self._read = self._told = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._count(len(data))
        return data

    def __iter__(self) -> Iterator[bytes]:
        for line in self._file:
            self._count(len(line))
            yield line
        self._count(0)

    def _count(self, size: int) -> None:
        self._read += size
        if not size or self._read - self._told >= _TOLD_EVERY:  # no more is the end
            self._told = self._read
            self._tell(self._read)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()
