"""The window as a stage sees it: groups that may only be taken whole, each with its standing.

A stage reads a `View` and returns another; nothing here changes the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from memman.config import Budget
from memman.entries import Draft, Entry
from memman.records import ReplacementMethod
from memman.window import Exchange, Slot

Standing = Literal["old", "recent", "newest", "fixed"]


class Craft(Protocol):
    """Gives a draft an id, a time and a count."""

    def __call__(self, draft: Draft, *, like: str | None = None) -> Entry:
        """The entry; with `like`, counted as that text, which costs as much and comes up again."""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """Where a compression must get to.

    `tokens` and `entries` are low water; `limit` is the size that must not be exceeded whatever it
    costs. `budget` has the settings behind them.
    """

    tokens: int
    entries: int | None
    limit: int
    budget: Budget

    def met(self, view: View) -> bool:
        """Whether the view is at low water in both dimensions."""
        return view.tokens <= self.tokens and (self.entries is None or view.entries <= self.entries)

    def within_limit(self, view: View) -> bool:
        """Whether the view is at most the limit."""
        return view.tokens <= self.limit


class Item(msgspec.Struct, frozen=True, gc=False):
    """What stands in one place: the slots of the window it stands for, and the entry shown.

    `method` is None for an entry as it is. `entry` is None where nothing is shown any more.
    """

    run: tuple[Slot, ...]
    entry: Entry | None
    tokens: int
    method: ReplacementMethod | None = None
    into: str | None = None

    def replaced(self, entry: Entry, method: ReplacementMethod) -> Item:
        """This place with another entry shown."""
        return Item(self.run, entry, entry.token_count.tokens, method)


class Group(msgspec.Struct, eq=False, gc=False):
    """One exchange, and whether it may go: `fixed` never, `newest` last, `recent` late, `old` first.

    `slots` are what it was in the window, `results` how many of them were tool results. Its items
    are made when somebody looks at them: most groups of most windows stay as they are.
    """

    slots: Sequence[Slot]
    standing: Standing
    tokens: int
    entries: int
    results: int
    _items: tuple[Item, ...] | None = None

    @property
    def items(self) -> tuple[Item, ...]:
        """What stands in each place."""
        if self._items is None:
            self._items = tuple([Item((slot,), slot.entry, slot.tokens) for slot in self.slots])
        return self._items

    @property
    def is_summary(self) -> bool:
        """Whether it is a summary of earlier entries."""
        entry = self.slots[0].entry if self._items is None else self._items[0].entry
        return entry is not None and entry.type == "summary"

    @property
    def untouched(self) -> bool:
        """Whether every entry is shown as it was added."""
        return self._items is None or all(item.method is None for item in self._items)

    def with_items(self, items: Iterable[Item]) -> Group:
        """The exchange with other things standing in its places."""
        listed = tuple(items)
        return Group(
            self.slots,
            self.standing,
            sum([item.tokens for item in listed]),
            sum([item.entry is not None for item in listed]),
            self.results,
            listed,
        )


class View(msgspec.Struct, frozen=True, gc=False):
    """The groups in order, with their totals."""

    groups: tuple[Group, ...]
    tokens: int
    entries: int

    def with_groups(self, groups: Iterable[Group]) -> View:
        """Another view of the same window."""
        listed = tuple(groups)
        return View(
            listed,
            sum([group.tokens for group in listed]),
            sum([group.entries for group in listed]),
        )

    @property
    def changed(self) -> bool:
        """Whether anything is shown otherwise than it was added."""
        return not all(group.untouched for group in self.groups)


def view_of(exchanges: Sequence[Exchange], goal: Goal) -> View:
    """The window as groups.

    Pinned entries and unanswered calls fix their exchange. The newest entries (`recent_window`) are
    recent as far as they fit the low water less the room for a summary.
    """
    budget = goal.budget
    room = goal.tokens - budget.summary_tokens
    for exchange in exchanges:
        if exchange.pinned:
            room -= sum([slot.tokens for slot in exchange.slots if slot.pinned])
    remaining = budget.recent_window
    groups: list[Group] = []
    recent = True
    total = entries = 0
    for exchange in reversed(exchanges):
        slots = exchange.slots
        tokens = exchange.tokens
        count = len(slots)
        total += tokens
        entries += count
        if exchange.pinned or exchange.unanswered:
            groups.append(Group(slots, "fixed", tokens, count, exchange.results))
            continue
        if recent and groups:
            recent = count <= remaining and tokens <= room
        standing: Standing = ("recent" if recent else "old") if groups else "newest"
        groups.append(Group(slots, standing, tokens, count, exchange.results))
        if recent:
            remaining -= count
            # The newest exchange may be clipped: however large, it does not push out recent ones.
            room -= tokens if standing != "newest" else min(tokens, budget.entry_tokens)
    groups.reverse()
    return View(tuple(groups), total, entries)
