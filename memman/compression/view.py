"""The window as stages see it: exchanges, each with a status, that are kept or removed whole.

A stage reads a `View` and returns a smaller one; the window itself does not change. `View.drop`,
`View.stub` and `View.replace` are what most stages need: none can lose an entry or split an exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from memman.config import Budget
from memman.display import safe_repr
from memman.entries import NO_JSON, Content, Entry, NewEntry, check_text, is_of_tool, note_of
from memman.errors import InvalidInput
from memman.records import ReplacementMethod
from memman.summary_metadata import summary_draft
from memman.window import Exchange, Window, WindowItem

GroupStatus = Literal["old", "recent", "newest", "protected"]
ItemIndex = tuple[int, int]
"""The index of a group in its view, and of an item in that group."""

EntryFactory = Callable[[NewEntry], Entry]
"""Gives a new entry its id, time and token count."""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """The size that a compression must reach.

    Args:
        tokens: the target.
        entries: the target in entries, if there is one.
        limit: the size in tokens that must not be exceeded, at any price.
        budget: the settings behind the other numbers.
        demanded: the caller passed `target_tokens`; the target then outweighs the entries dropped for it.
        thorough: everything old is compressed, even below the target.
        state_tokens: the planned room of the outline, which comes on top of `tokens` and `limit`.
        outline_tokens: the most tokens of the outline if no model's summary is beside it.
        recall: the name of the agent's tool that returns entries; "" if it has none.
    """

    tokens: int
    entries: int | None
    limit: int
    budget: Budget
    demanded: bool = False
    thorough: bool = False
    state_tokens: int = 0
    outline_tokens: int = 0
    recall: str = ""

    def met(self, view: View) -> bool:
        """Return True if the view is at the target and nothing else is to be compressed."""
        if self.thorough and view.old_entries:
            return False
        return self.holds(view.tokens, view.entries)

    def holds(self, tokens: int, entries: int) -> bool:
        """Return True if a window of this size is at the target in tokens and entries."""
        return tokens <= self.tokens and (self.entries is None or entries <= self.entries)

    def within_limit(self, view: View) -> bool:
        """Return True if the view is at most the limit."""
        return view.tokens <= self.limit

    def within_limits(self, view: View) -> bool:
        """Return True if neither its tokens nor its entries would trigger a compression."""
        most = self.budget.max_entries if self.entries is not None else None
        return self.within_limit(view) and (most is None or view.entries <= most)


class Item(msgspec.Struct, frozen=True, gc=False):
    """A run of the window, and the entry shown in its place.

    `method` is None for an entry shown as it was added, `entry` is None if nothing is shown. `into` is
    the id of the summary that covers this run too. `recall` is the name of the agent's tool that returns
    originals; "" if there is none.
    """

    run: tuple[WindowItem, ...]
    entry: Entry | None
    tokens: int
    method: ReplacementMethod | None = None
    into: str | None = None
    recall: str = ""

    @property
    def number(self) -> int:
        """The log position of the original; of an earlier summary its own."""
        first = self.run[0]
        return first.entry.seq if first.entry.type == "summary" else first.position

    @property
    def recalled(self) -> bool:
        """True for a call or a result of the agent's tool that returns originals."""
        return is_of_tool(self.run[0].entry, self.recall)

    @property
    def offered(self) -> str:
        """The name of the tool if it returns the original; it does not return its own results."""
        return "" if self.recalled else self.recall

    def origin(self, subject: str) -> str:
        """Return the clauses of a notice that name the original, its size and the tool that returns it."""
        first = self.run[0]
        # The tokens of an entry that is clipped already are not its original's.
        clipped = first.compression is not None and first.entry.type != "summary"
        size = "" if clipped else f", {self.tokens} tokens"
        return f"{subject} is entry #{self.number}{size}{offer(self.offered, self.number)}"

    @property
    def pinned(self) -> bool:
        """True if an entry of the run is pinned, or sealed so that nothing can take its place."""
        return any(each.pinned or each.is_sealed for each in self.run)

    def replaced(self, entry: Entry, method: ReplacementMethod) -> Item:
        """Return the run with another entry shown in its place."""
        return msgspec.structs.replace(
            self, entry=entry, tokens=entry.token_count.tokens, method=method, into=None
        )


def offer(recall: str, number: int) -> str:
    """Return the clause of a notice that names the agent's tool for the original; "" without one."""
    return f"; {recall} #{number} returns it" if recall else ""


def in_place_of(entry: Entry, content: Content) -> NewEntry:
    """Return a new entry that takes an entry's place in its exchange.

    A summary keeps its metadata, and so does a late result, whose call is noted there.
    """
    keeps = entry.type == "summary" or note_of(entry, "call")
    return NewEntry(
        type=entry.type,
        role=entry.role,
        content=content,
        call_id=entry.call_id,
        name=entry.name,
        message_id=entry.message_id,
        is_error=entry.is_error,
        metadata_json=entry.metadata_json if keeps else NO_JSON,
    )


class Group(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One exchange: `old` ones are removed first, `recent` ones last, the others never."""

    items: tuple[Item, ...]
    status: GroupStatus
    tokens: int
    entries: int

    @classmethod
    def of(cls, items: Iterable[Item], status: GroupStatus) -> Group:
        """Return a group of these items with their totals."""
        listed = tuple(items)
        tokens = sum(item.tokens for item in listed)
        return cls(listed, status, tokens, sum(item.entry is not None for item in listed))

    @property
    def window_items(self) -> list[WindowItem]:
        """The items of the window that the group covers."""
        return [window_item for item in self.items for window_item in item.run]

    @property
    def is_summary(self) -> bool:
        """True if the group shows a summary of earlier entries."""
        entry = self.items[0].entry
        return entry is not None and entry.type == "summary"

    def with_items(self, items: Iterable[Item]) -> Group:
        """Return the exchange with other items."""
        return Group.of(items, self.status)

    def removed(self, method: ReplacementMethod) -> Group:
        """Return the exchange with nothing shown in its place."""
        return self.with_items(Item(item.run, None, 0, method) for item in self.items)


class View(msgspec.Struct, frozen=True, gc=False):
    """The groups in order, with their totals."""

    groups: tuple[Group, ...]
    tokens: int
    entries: int

    @classmethod
    def of(cls, groups: Iterable[Group]) -> View:
        """Return a view of these groups with their totals."""
        listed = tuple(groups)
        tokens = sum(group.tokens for group in listed)
        return cls(listed, tokens, sum(group.entries for group in listed))

    @property
    def old_entries(self) -> int:
        """The number of old entries, without earlier summaries."""
        old = [group for group in self.groups if group.status == "old" and not group.is_summary]
        return sum(group.entries for group in old)

    @property
    def changed(self) -> bool:
        """True if any entry is not shown as it was added."""
        return any(item.method is not None for group in self.groups for item in group.items)

    def shown(self, *statuses: GroupStatus) -> list[Entry]:
        """Return the entries shown, in order; with `statuses`, only those in such exchanges."""
        return [
            item.entry
            for group in self.groups
            if not statuses or group.status in statuses
            for item in group.items
            if item.entry is not None
        ]

    def drop(self, ids: Iterable[str]) -> View:
        """Return the view without the exchanges of these entries.

        Raises:
            InvalidInput: an entry is not shown, or may not be removed.
        """
        return self.without(self._found(ids))

    def stub(self, ids: Iterable[str], make_entry: EntryFactory, text: str | None = None) -> View:
        """Return the view with each of these entries replaced by `text`, in its exchange.

        The default text names the original and its size.

        Raises:
            InvalidInput: as `drop`, and for a tool call, whose arguments must stay valid for a provider.
        """
        if text is not None:
            text = check_text(text, "text")
        wanted = _as_set(ids)
        changed = {
            (number, index): _stub(item, item.entry, text, make_entry)
            for number in self._found(wanted)
            for index, item in enumerate(self.groups[number].items)
            if item.entry is not None and item.entry.id in wanted
        }
        return self.with_items(changed)

    def replace(self, ids: Iterable[str], text: str, make_entry: EntryFactory) -> View:
        """Return the view with the exchanges of these entries replaced by one summary with this text.

        The summary takes the position of the first exchange.

        Raises:
            InvalidInput: as `drop`.
        """
        text = check_text(text, "text")
        numbers = self._found(ids)
        covered = [item for number in sorted(numbers) for item in self.groups[number].window_items]
        if not covered:
            return self
        recall = next((item.recall for number in numbers for item in self.groups[number].items), "")
        summary = make_entry(summary_draft(text, [item.entry for item in covered], recall))
        return self.with_summary(numbers, summary)

    def with_items(self, changed: Mapping[ItemIndex, Item]) -> View:
        """Return the view with other items at these indexes."""
        groups = list(self.groups)
        for number in {number for number, _ in changed}:
            items = enumerate(groups[number].items)
            groups[number] = groups[number].with_items(
                changed.get((number, index), item) for index, item in items
            )
        return View.of(groups)

    def without(self, numbers: Iterable[int], method: ReplacementMethod = "drop") -> View:
        """Return the view with these groups removed, and with them every piece of a summary in them."""
        removed = self._with_pieces(numbers)
        return View.of(
            group.removed(method) if number in removed else group
            for number, group in enumerate(self.groups)
        )

    def with_summary(self, numbers: Iterable[int], summary: Entry) -> View:
        """Return the view with a summary in place of these groups.

        Groups between them split the run: the first piece shows the summary, the others point to it.
        """
        covered = self._with_pieces(numbers)
        groups: list[Group] = []
        piece: list[WindowItem] = []
        into: str | None = None
        for number, group in enumerate((*self.groups, None)):
            if group is not None and number in covered:
                piece += group.window_items
                continue
            if piece:
                item = Item(tuple(piece), None, 0, "summary", into)
                if into is None:
                    item = item.replaced(summary, "summary")
                groups.append(Group.of((item,), "old"))
                into, piece = summary.id, []
            if group is not None:
                groups.append(group)
        return View.of(groups)

    def _with_pieces(self, numbers: Iterable[int]) -> set[int]:
        """Return these groups, and those that are covered by a summary shown in them."""
        chosen = set(numbers)
        shown = {item.entry.id for n in chosen for item in self.groups[n].items if item.entry}
        return chosen | {
            number
            for number, group in enumerate(self.groups)
            if any(item.into in shown for item in group.items)
        }

    def _found(self, ids: Iterable[str]) -> set[int]:
        """Return the numbers of the groups that show these entries, all of which may be removed."""
        wanted = _as_set(ids)
        found = {
            item.entry.id: number
            for number, group in enumerate(self.groups)
            for item in group.items
            if item.entry is not None and item.entry.id in wanted
        }
        if missing := wanted - found.keys():
            name = min(map(safe_repr, missing))
            raise InvalidInput(f"the entry {name} is not shown in this view")
        for entry_id, number in found.items():
            status = self.groups[number].status
            if status in ("protected", "newest"):
                raise InvalidInput(
                    f"the entry {entry_id!r} cannot be removed: its exchange is {status}"
                )
        return set(found.values())


def _as_set(ids: Iterable[str]) -> set[str]:
    """Return the ids; a single string is one id."""
    return {ids} if isinstance(ids, str) else set(ids)


def _stub(item: Item, entry: Entry, text: str | None, make_entry: EntryFactory) -> Item:
    if entry.type == "tool_call":
        raise InvalidInput(f"the entry {entry.id!r} is a tool call: drop or replace its exchange")
    if text is None:
        text = f"[memman: this was taken out to save space; {item.origin('it')}]"
    return item.replaced(make_entry(in_place_of(entry, text)), "stub")


def view_of(window: Window, goal: Goal) -> View:
    """Return the window as groups.

    Pinned entries and the newest user message protect their exchange, and so does a call without a result
    that was made after that message. The newest entries (`recent_window`) are recent if they fit the
    target less the room for a summary.
    """
    exchanges, budget = window.exchanges, goal.budget
    numbers = reversed(range(len(exchanges)))
    asked = (n for n in numbers if any(item.is_users for item in exchanges[n].items))
    question, last = next(asked, -1), len(exchanges) - 1
    statuses = [
        _status(exchange, number, question, last) for number, exchange in enumerate(exchanges)
    ]
    # These may be clipped: however large, they do not push out recent ones.
    staying = sum(
        min(exchange.tokens, budget.entry_tokens)
        for exchange, status in zip(exchanges, statuses, strict=True)
        if status != "old" and not exchange.pinned
    )
    room = goal.tokens - budget.summary_tokens - window.pinned_tokens - staying
    remaining = budget.recent_window
    for number in reversed(range(len(exchanges))):
        exchange = exchanges[number]
        if statuses[number] == "protected" and number != question:
            continue
        if statuses[number] == "old":
            if len(exchange.items) > remaining or exchange.tokens > room:
                break
            statuses[number] = "recent"
            room -= exchange.tokens
        remaining -= len(exchange.items)
    groups: list[Group] = []
    for exchange, status in zip(exchanges, statuses, strict=True):
        items = exchange.items
        shown = tuple(Item((each,), each.entry, each.tokens, recall=goal.recall) for each in items)
        groups.append(Group(shown, status, exchange.tokens, len(items)))
    return View.of(groups)


def _status(exchange: Exchange, number: int, question: int, last: int) -> GroupStatus:
    """Return the status of an exchange before the recent window is measured."""
    if exchange.pinned or (exchange.unanswered and number >= question):
        return "protected"
    if number == last:
        return "newest"
    return "protected" if number == question else "old"
