"""The window as a stage sees it: groups that may only be taken whole, each with its standing.

A stage reads a `View` and returns another; nothing here changes the window. Whoever writes a stage finds
in `View.drop`, `View.stub` and `View.replace` what most of them need.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from memman.compression.coverage import summary_draft
from memman.config import Budget
from memman.display import safe_repr
from memman.entries import NO_JSON, Content, Entry, NewEntry, check_text
from memman.errors import InvalidInput
from memman.records import ReplacementMethod
from memman.window import Exchange, Window, WindowItem

Standing = Literal["old", "recent", "newest", "fixed"]
GroupIndex = tuple[int, int]
"""The number of a group in its view, and of an item in that group."""


class EntryFactory(Protocol):
    """Gives a draft an id, a time and a count."""

    def __call__(self, new_entry: NewEntry, *, like: str | None = None) -> Entry:
        """The entry; with `like`, counted as that text, which costs as much and comes up again."""

    def price(self, like: str) -> int | None:
        """What an entry costs that is counted as this text; None where only making it can tell."""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """Where a compression must get to.

    `tokens` and `entries` are low water; `limit` is the size that must not be exceeded whatever it
    costs. `budget` has the settings behind them. `demanded` says that low water was asked for by hand, with
    a `target_tokens`: then it is worth more than what would have to be dropped for it. `thorough` says that
    everything old is to be compressed, also below the target.
    """

    tokens: int
    entries: int | None
    limit: int
    budget: Budget
    demanded: bool = False
    thorough: bool = False

    def met(self, view: View) -> bool:
        """Whether the view is at the target in both dimensions, and nothing else is to be compressed."""
        if self.thorough and view.old_entries:
            return False
        return self.holds(view.tokens, view.entries)

    def holds(self, tokens: int, entries: int) -> bool:
        """Whether a window of this size is at the target in both dimensions."""
        return tokens <= self.tokens and (self.entries is None or entries <= self.entries)

    def within_limit(self, view: View) -> bool:
        """Whether the view is at most the limit."""
        return view.tokens <= self.limit

    def within_limits(self, view: View) -> bool:
        """Whether it is that, and has no more entries than would start a compression."""
        most = self.budget.max_entries if self.entries is not None else None
        return self.within_limit(view) and (most is None or view.entries <= most)


class Later(msgspec.Struct, frozen=True, gc=False):
    """A text of ours in an entry's place, made when it is looked at: many a plan is not carried out, and a
    later step may take away what an earlier one put there.
    """

    original: Entry
    template: str
    numbers: tuple[int, ...]
    like: str
    make_entry: EntryFactory

    def made(self) -> Entry:
        """The entry."""
        text = self.template.format(*self.numbers)
        return self.make_entry(in_place_of(self.original, text), like=self.like)


class Item(msgspec.Struct, frozen=True, gc=False):
    """What stands in one place: the slots of the window it stands for, and the entry shown.

    `method` is None for an entry as it is. `entry` is None where nothing is shown any more.
    """

    run: tuple[WindowItem, ...]
    stands: Entry | Later | None
    tokens: int
    method: ReplacementMethod | None = None
    into: str | None = None

    @property
    def entry(self) -> Entry | None:
        """The entry shown."""
        stands = self.stands
        if isinstance(stands, Later):
            stands = stands.made()
            msgspec.structs.force_setattr(self, "stands", stands)
        return stands

    @property
    def number(self) -> int:
        """The place in the log of what was added here; of an earlier summary its own."""
        slot = self.run[0]
        return slot.entry.seq if slot.entry.type == "summary" else slot.position

    def replaced(self, entry: Entry, method: ReplacementMethod) -> Item:
        """This place with another entry shown."""
        return Item(self.run, entry, entry.token_count.tokens, method)

    def shows(self, ids: Container[str]) -> bool:
        """Whether the entry shown is one of these."""
        return self.entry is not None and self.entry.id in ids


def in_place_of(entry: Entry, content: Content) -> NewEntry:
    """A draft that takes an entry's place in its exchange; of a summary it says what that covers."""
    return NewEntry(
        type=entry.type,
        role=entry.role,
        content=content,
        call_id=entry.call_id,
        name=entry.name,
        message_id=entry.message_id,
        is_error=entry.is_error,
        metadata_json=entry.metadata_json if entry.type == "summary" else NO_JSON,
    )


class Group(msgspec.Struct, eq=False, gc=False):
    """One exchange, and whether it may go: `fixed` never, `newest` last, `recent` late, `old` first.

    `slots` are what it was in the window, `results` how many of them were tool results. `made` are its
    items, once somebody has looked at them: most groups of most windows stay as they are.
    """

    window_items: Sequence[WindowItem]
    standing: Standing
    tokens: int
    entries: int
    results: int
    made: tuple[Item, ...] | None = None

    @property
    def items(self) -> tuple[Item, ...]:
        """What stands in each place."""
        if self.made is None:
            self.made = tuple(Item((slot,), slot.entry, slot.tokens) for slot in self.window_items)
        return self.made

    def is_added(self, index: int) -> bool:
        """Whether the slot of this number is shown as it was added."""
        made = self.made
        return made is None or (len(made) == len(self.window_items) and made[index].method is None)

    @property
    def is_summary(self) -> bool:
        """Whether it is a summary of earlier entries."""
        entry = self.window_items[0].entry if self.made is None else self.made[0].entry
        return entry is not None and entry.type == "summary"

    @property
    def untouched(self) -> bool:
        """Whether every entry is shown as it was added."""
        return all(item.method is None for item in self.made or ())

    def with_items(self, items: Iterable[Item]) -> Group:
        """The exchange with other things standing in its places."""
        listed = tuple(items)
        tokens = entries = 0
        for item in listed:
            tokens += item.tokens
            entries += item.stands is not None
        return Group(self.window_items, self.standing, tokens, entries, self.results, listed)

    def gone(self) -> Group:
        """The exchange with nothing shown of it any more."""
        return self.with_items([Item(item.run, None, 0, "drop") for item in self.items])


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
            sum(group.tokens for group in listed),
            sum(group.entries for group in listed),
        )

    def with_replaced(self, changed: Mapping[GroupIndex, Item]) -> View:
        """The view with other things standing in these places."""
        within: dict[int, list[Item]] = {}
        for (number, index), item in changed.items():
            if number not in within:
                within[number] = list(self.groups[number].items)
            within[number][index] = item
        groups = self.groups
        return self.with_changed(
            {number: groups[number].with_items(items) for number, items in within.items()}
        )

    def with_changed(self, changed: Mapping[int, Group]) -> View:
        """The view with other groups at these numbers, each of the same slots."""
        groups = list(self.groups)
        tokens, entries = self.tokens, self.entries
        for number, group in changed.items():
            before, groups[number] = groups[number], group
            tokens += group.tokens - before.tokens
            entries += group.entries - before.entries
        return View(tuple(groups), tokens, entries)

    @property
    def old_entries(self) -> int:
        """How many entries are old, summaries of earlier ones left out."""
        return sum(
            group.entries
            for group in self.groups
            if group.standing == "old" and not group.is_summary
        )

    @property
    def touched(self) -> list[tuple[int, Group]]:
        """The groups in which anything is shown otherwise than it was added, with their numbers."""
        return [
            (number, group)
            for number, group in enumerate(self.groups)
            if group.made is not None and not group.untouched
        ]

    @property
    def changed(self) -> bool:
        """Whether anything is shown otherwise than it was added."""
        return bool(self.touched)

    def shown(self, *standings: Standing) -> list[Entry]:
        """The entries that are shown, in order; only of exchanges with one of `standings`, if any."""
        return [
            item.entry
            for group in self.groups
            if not standings or group.standing in standings
            for item in group.items
            if item.entry is not None
        ]

    def drop(self, ids: Iterable[str]) -> View:
        """The view without the exchanges of these entries: a call never goes without its result.

        Raises `InvalidInput` for an entry that is not shown, or that may not go.
        """
        return self.without(self._numbers(ids))

    def without(self, numbers: Iterable[int]) -> View:
        """The view with nothing shown of these groups, nor of those that a summary of them speaks for."""
        gone = self._and_pieces(numbers)
        return self.with_changed({number: self.groups[number].gone() for number in gone})

    def _and_pieces(self, numbers: Iterable[int]) -> set[int]:
        """These groups and those that an entry shown in them stands for too."""
        taken = set(numbers)
        pieces = [
            (number, item.into)
            for number, group in enumerate(self.groups)
            for item in group.made or ()
            if item.into is not None
        ]
        if not pieces:
            return taken
        shown = {item.entry.id for n in taken for item in self.groups[n].items if item.entry}
        return taken | {number for number, into in pieces if into in shown}

    def stub(self, ids: Iterable[str], make_entry: EntryFactory, text: str | None = None) -> View:
        """The view with each of these entries replaced by `text`, in its place in its exchange.

        Without `text`, one that names the original and its size. Raises `InvalidInput` as `drop` does,
        and for a tool call, whose arguments must stay what a provider takes.
        """
        if text is not None:
            text = check_text(text, "text")
        wanted = _set_of(ids)
        touched = self._numbers(wanted)
        return self.with_groups(
            group.with_items(
                [
                    _stub(item, text, make_entry) if item.shows(wanted) else item
                    for item in group.items
                ]
            )
            if number in touched
            else group
            for number, group in enumerate(self.groups)
        )

    def replace(self, ids: Iterable[str], text: str, make_entry: EntryFactory) -> View:
        """The view with the exchanges of these entries replaced by one summary with this text.

        It stands where the first of them stood. Raises `InvalidInput` as `drop` does.
        """
        text = check_text(text, "text")
        numbers = sorted(self._numbers(ids))
        originals = [slot.entry for number in numbers for slot in self.groups[number].window_items]
        if not originals:
            return self
        return self.with_summary(numbers, make_entry(summary_draft(text, originals)), "digest")

    def with_summary(
        self, numbers: Iterable[int], summary: Entry, method: ReplacementMethod
    ) -> View:
        """The view with a summary at the first of these groups and nothing at the others."""
        taken = self._and_pieces(numbers)
        groups: list[Group] = []
        piece: list[WindowItem] = []
        into: str | None = None
        tokens = self.tokens + (summary.token_count.tokens if taken else 0)
        entries = self.entries + (1 if taken else 0)
        for number, group in enumerate(self.groups):
            if number in taken:
                piece += group.window_items
                tokens -= group.tokens
                entries -= group.entries
                continue
            if piece:
                groups.append(_replaced(piece, summary, method, into))
                into, piece = summary.id, []
            groups.append(group)
        if piece:
            groups.append(_replaced(piece, summary, method, into))
        return View(tuple(groups), tokens, entries)

    def _numbers(self, ids: Iterable[str]) -> set[int]:
        """The numbers of the groups that show these entries, all of which may go."""
        wanted = _set_of(ids)
        found = {
            item.entry.id: number
            for number, group in enumerate(self.groups)
            for item in group.items
            if item.entry is not None and item.entry.id in wanted
        }
        if missing := wanted - found.keys():
            raise InvalidInput(
                f"the entry {min(map(safe_repr, missing))} is not shown in this view"
            )
        for entry_id, number in found.items():
            standing = self.groups[number].standing
            if standing in ("fixed", "newest"):
                raise InvalidInput(f"the entry {entry_id!r} may not go: its exchange is {standing}")
        return set(found.values())


def _set_of(ids: Iterable[str]) -> set[str]:
    """The ids, or the one id that was given."""
    return {ids} if isinstance(ids, str) else set(ids)


def _stub(item: Item, text: str | None, make_entry: EntryFactory) -> Item:
    entry = item.entry
    if entry is None:
        return item
    if entry.type == "tool_call":
        raise InvalidInput(f"the entry {entry.id!r} is a tool call: drop or replace its exchange")
    if text is None:
        size = f"it is entry #{item.number}, {item.tokens} tokens"
        text = f"[memman: this was taken out to save space; {size}]"
    return item.replaced(make_entry(in_place_of(entry, text)), "stub")


def _replaced(
    piece: Sequence[WindowItem], by: Entry, method: ReplacementMethod, into: str | None
) -> Group:
    """A piece of the old part with a summary in its place, or nothing where it stands already."""
    run = tuple(piece)
    if into is not None:
        return Group(piece, "old", 0, 0, 0, (Item(run, None, 0, method, into),))
    tokens = by.token_count.tokens
    return Group(piece, "old", tokens, 1, 0, (Item(run, by, tokens, method),))


def view_of(window: Window, goal: Goal) -> View:
    """The window as groups.

    Pinned entries and the newest user message fix their exchange, and so does a call without a result
    that was made after that message. The newest entries (`recent_window`) are recent if they fit the
    target less the room for a summary.
    """
    exchanges, budget = window.exchanges, goal.budget
    question, last = _question_in(exchanges), len(exchanges) - 1
    groups = [
        Group(
            exchange.items,
            _standing(exchange, number, question, last),
            exchange.tokens,
            len(exchange.items),
            exchange.results,
        )
        for number, exchange in enumerate(exchanges)
    ]
    # These may be clipped: however large, they do not push out recent ones.
    staying = [
        min(group.tokens, budget.entry_tokens)
        for group, exchange in zip(groups, exchanges, strict=True)
        if group.standing != "old" and not exchange.pinned
    ]
    room = goal.tokens - budget.summary_tokens - window.pinned_tokens - sum(staying)
    remaining = budget.recent_window
    for number in reversed(range(len(groups))):
        group = groups[number]
        if group.standing == "fixed" and number != question:
            continue
        if group.standing == "old":
            if group.entries > remaining or group.tokens > room:
                break
            group.standing = "recent"
            room -= group.tokens
        remaining -= group.entries
    return View(tuple(groups), window.tokens, len(window.items))


def _standing(exchange: Exchange, number: int, question: int, last: int) -> Standing:
    """The standing of an exchange before the recent window is measured."""
    if exchange.pinned or (exchange.unanswered and number >= question):
        return "fixed"
    if number == last:
        return "newest"
    return "fixed" if number == question else "old"


def _question_in(exchanges: Sequence[Exchange]) -> int:
    """The number of the exchange with the newest user message; -1 if there is none."""
    for number in reversed(range(len(exchanges))):
        if any(_is_question(slot) for slot in exchanges[number].items):
            return number
    return -1


def _is_question(slot: WindowItem) -> bool:
    return slot.entry.role == "user" and slot.entry.type == "message"


def question_of(view: View) -> GroupIndex | None:
    """The place of the newest user message."""
    for number in reversed(range(len(view.groups))):
        slots = view.groups[number].window_items
        for index in reversed(range(len(slots))):
            if _is_question(slots[index]):
                return number, index
    return None
