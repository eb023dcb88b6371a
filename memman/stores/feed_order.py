"""The order of a feed over logs in memory, laid when somebody asks for it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import msgspec

from memman.records import Record


class _Run(msgspec.Struct, frozen=True):
    """Records `first` to `last` of a session, behind `before` others; its log is known by its list."""

    before: int
    name: str
    records: list[Record]
    first: int
    last: int


class Order:
    """Gives each record of some logs a place, once: 1, 2, 3 ..., a log's in its own order.

    What came to several logs between two layings stands log by log. An interruption may strike between
    any two steps, so a run is laid in one step, and what is noted beside it can be noted again.
    """

    __slots__ = ("_laid", "_runs")

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._laid: dict[str, tuple[list[Record], int]] = {}  # of each log, how many have a place

    @property
    def end(self) -> int:
        """The last place."""
        return self._runs[-1].before + _length(self._runs[-1]) if self._runs else 0

    def lay(self, logs: Iterable[tuple[str, list[Record]]]) -> None:
        """Gives places to what the logs have more than before."""
        self._note()
        for name, records in logs:
            known, laid = self._laid.get(name, (records, 0))
            laid = laid if known is records else 0
            if laid < len(records):
                self._append(_Run(self.end, name, records, laid + 1, len(records)))
                self._note()

    def after(
        self, place: int, limit: int, alive: Callable[[str, list[Record]], bool]
    ) -> Iterator[tuple[int, str, int, Record]]:
        """The records behind a place, of the logs that are alive: place, name, seq, record."""
        return islice(self._behind(place, alive), limit)

    def forget(self, name: str) -> None:
        """Frees what is noted of a log that is gone; its places stay empty."""
        self._laid.pop(name, None)

    def _behind(
        self, place: int, alive: Callable[[str, list[Record]], bool]
    ) -> Iterator[tuple[int, str, int, Record]]:
        begin = max(0, bisect_right(self._runs, place, key=lambda run: run.before) - 1)
        for run in islice(self._runs, begin, None):
            if alive(run.name, run.records):
                for seq in range(run.first + max(0, place - run.before), run.last + 1):
                    at = run.before + 1 + seq - run.first
                    yield at, run.name, seq, run.records[seq - 1]

    def _append(self, run: _Run) -> None:
        before = self._runs[-1] if self._runs else None
        if before is not None and before.records is run.records:
            self._runs[-1] = msgspec.structs.replace(before, last=run.last)
        else:
            self._runs.append(run)

    def _note(self) -> None:
        if self._runs:
            run = self._runs[-1]
            self._laid[run.name] = (run.records, run.last)


def _length(run: _Run) -> int:
    return run.last - run.first + 1
