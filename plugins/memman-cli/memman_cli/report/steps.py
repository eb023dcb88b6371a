"""The log as the page shows it: entries by number, and the change of the window in each step.

The page does not know the rules of the fold. It shows the window of any moment by splices, which are
computed here from the fold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter

import msgspec

from memman.explain.history import LogHistory
from memman.log import History
from memman.records import SHAPES, Added, Compressed, Record
from memman.window import ActiveState, Window
from memman_cli.explain import Survival, SurvivalFold

Splice = tuple[int, int, list[int]]  # a place, the number of removed items, and the inserted ones
Span = tuple[int, int]  # the first and the last number


class Numbers:
    """The numbers of the entries of a log, both added ones and replacements, in log order.

    An id means the newest entry with it so far: one may come again after a clear or a retraction.
    """

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self._next = 0
        self._behind: dict[str, list[Span]] = {}  # replacement -> its originals

    def take(self, record: Record) -> None:
        """Number the entries of the next record."""
        for name in _entries_in(record):
            self._of[name] = self._next
            self._next += 1

    def __getitem__(self, entry_id: str) -> int:
        return self._of[entry_id]

    def spans(self, ids: Sequence[str]) -> list[Span]:
        """Return entries as spans of neighbouring numbers."""
        return _joined([(self._of[name], self._of[name]) for name in ids])

    def originals(self, made: str | None, ids: Sequence[str]) -> list[Span]:
        """Return the added entries among and behind these ids, the originals of the entry `made`."""
        own: list[Span] = []
        for name in ids:
            own += self._behind.get(name) or [(self._of[name], self._of[name])]
        found = _joined(own)
        if made is not None:
            self._behind[made] = found
        return found


class Change(msgspec.Struct, frozen=True):
    """A record that added no entry: its effect on the window, and the figures after it.

    `block` is the outline then, and `block_at` the number of entries before it.
    """

    seq: int
    record: Record
    splices: list[Splice]
    active_tokens: int
    active_entries: int
    total_tokens: int
    survival: Survival | None  # of a compression
    block: ActiveState | None
    block_at: int


def changes(log: LogHistory, numbers: Numbers) -> Iterator[Change]:
    """Return the change of every record that added no entry, in log order; numbers all entries."""
    fold = SurvivalFold(log)
    history = fold.history
    for seq, record in log.records:
        if isinstance(record, Added):
            numbers.take(record)
            fold.apply(seq, record)
            continue
        reshaped = isinstance(record, SHAPES)
        before = _shown(history, numbers) if reshaped else []
        numbers.take(record)
        survival = fold.apply(seq, record)
        yield Change(
            seq=seq,
            record=record,
            splices=splices(before, _shown(history, numbers)) if reshaped else [],
            active_tokens=history.state.window.tokens,
            active_entries=len(history.items),
            total_tokens=history.totals.tokens,
            survival=survival,
            block=history.state.window.state,
            block_at=_block_at(history.state.window),
        )


def _block_at(window: Window) -> int:
    """Return the number of entries before the outline."""
    if window.state is None:
        return 0
    return bisect_right(window.items, window.state.item.position, key=attrgetter("position"))


def _joined(spans: list[Span]) -> list[Span]:
    """Return spans in order, with neighbours joined."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and found[-1][1] >= first - 1:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def splices(before: Sequence[int], after: Sequence[int]) -> list[Splice]:
    """Return the splices that turn `before` into `after`. Common numbers must be in the same order in both.

    Places are indexes of `before`, in ascending order.
    """
    both = set(before) & set(after)
    found: list[Splice] = []
    at = new = 0
    while at < len(before) or new < len(after):
        gone = _run(before, at, both)
        come = _run(after, new, both)
        if gone or come:
            found.append((at, len(gone), come))
        at += len(gone) + 1
        new += len(come) + 1
    return found


def _run(numbers: Sequence[int], start: int, both: set[int]) -> list[int]:
    """Return the numbers from `start` on, up to the first that both lists have."""
    end = start
    while end < len(numbers) and numbers[end] not in both:
        end += 1
    return list(numbers[start:end])


def _shown(history: History, numbers: Numbers) -> list[int]:
    return [numbers[item.entry.id] for item in history.items]


def _entries_in(record: Record) -> list[str]:
    if isinstance(record, Added):
        return [record.id]
    if isinstance(record, Compressed):
        return [item.entry.id for item in record.replacements if item.entry is not None]
    return []
