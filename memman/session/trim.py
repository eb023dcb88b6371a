"""Trimming a copy of a window to the budget of a context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from memman.compression import EntryFactory, Goal, View
from memman.compression.plan import make_plan, replacements_of, view_of_plan
from memman.compression.strategies import TRIM, TRIM_ALL
from memman.compression.summarize import SummaryOptions
from memman.compression.view import view_of
from memman.errors import BudgetExceeded
from memman.formats import Rendering
from memman.records import Replacement
from memman.session.shared import ResolvedConfig
from memman.session.state import TrimmedState
from memman.window import ActiveState, Exchange, Window, WindowItem

_ROUNDS = 6
# Multiples of this part of the budget are cut, so that the next contexts begin as this one does.
_STEPS = 8
_FEW = 8  # entries that are listed one by one

Trimmed: TypeAlias = tuple[Window, Rendering, tuple[Replacement, ...]]
"""A copy of a window, rendered, and its replacements."""


def trim(
    window: Window,
    rendering: Rendering,
    limit: int,
    fixed: int,
    resolved: ResolvedConfig,
    make_entry: EntryFactory,
    states: TrimmedState,
) -> Trimmed:
    """Return a copy of the window that fits, rendered, with its replacements.

    With a strategy without stages (the preset `buffer`) every entry must stay.

    Args:
        window: the window.
        rendering: the window, rendered.
        limit: the tokens that the context may have.
        fixed: those of them that system prompt, tools and the reserve take.
        resolved: the session's settings.
        make_entry: makes the entries of stubs and clips.
        states: makes the outline of the copy.

    Raises:
        BudgetExceeded: protected entries alone do not fit.
    """

    total = _total(window, rendering, fixed)
    unstored = {one.position: one.entry.id for one in window.items if one.position > window.head}
    if not resolved.stages:
        raise _exceeded(total, limit, window, fixed, unstored)
    budget = msgspec.structs.replace(
        resolved.budget,
        max_tokens=limit,
        summary_tokens=0,
        entry_tokens=int(resolved.config.max_entry_ratio * limit),
    )

    def cut_to(room: int) -> Trimmed:
        """Cut a copy to `room` tokens if possible; without room only protected entries stay."""
        most = states.room_in(limit, room)
        left = room - most
        goal = Goal(tokens=left, entries=None, limit=left, budget=budget, recall=states.recall)
        stages = TRIM if room else TRIM_ALL
        view = view_of(window, goal)
        after = view_of_plan(make_plan(view, goal, make_entry, stages, SummaryOptions()))
        copy = _window_of(after, window, states.of(after, most))
        shown = rendering.empty()
        shown.update(copy)
        return copy, shown, replacements_of(after)

    over, step = total - limit, max(1, limit // _STEPS)
    cut = _without_framing(over, window, rendering)
    for left in reversed(range(_ROUNDS)):
        cut = min(window.tokens, -(-cut // step) * step) if left else window.tokens
        copy, shown, replaced = cut_to(window.tokens - cut)
        total = _total(copy, shown, fixed)
        if total <= limit:
            if shown.messages() or not rendering.messages():
                return copy, shown, replaced
            copy, total = window, over + limit  # an empty request cannot be sent
            break
        if cut == window.tokens:
            break
        cut += max(1, _without_framing(total - limit, copy, shown))
    raise _exceeded(total, limit, copy, fixed, unstored)


def _total(window: Window, rendering: Rendering, fixed: int) -> int:
    return window.tokens + rendering.added + rendering.edges + fixed


def _without_framing(tokens: int, window: Window, rendering: Rendering) -> int:
    """Return the part of so many tokens of a context that its entries have without framing."""
    return tokens * window.tokens // max(1, window.tokens + rendering.added)


def _window_of(view: View, window: Window, state: ActiveState | None) -> Window:
    """Return a window of a view and an outline, which is never stored."""
    items = [
        msgspec.structs.replace(item.run[0], tokens=item.tokens)
        if item.method is None
        else WindowItem(item.entry, item.run[0].position, item.tokens)
        for group in view.groups
        for item in group.items
        if item.entry is not None
    ]
    return Window(items, items[-1].entry.seq if items else 0, window.epoch, state)


def _exceeded(
    required: int, available: int, window: Window, fixed: int, unstored: Mapping[int, str]
) -> BudgetExceeded:
    """Return the error with the protected entries and long exchanges, largest first.

    `unstored` has the ids of entries without an address in the log, by their positions.
    """

    def name(item: WindowItem) -> str:
        if item.position in unstored:
            return f"entry {unstored[item.position]}"
        return item.entry.address or f"#{item.position}"

    found: list[tuple[str, int]] = []
    for exchange in window.exchanges:
        if len(exchange.items) > _FEW:
            newest = exchange is window.exchanges[-1]
            found.append((_crowd(exchange, newest, name), exchange.tokens))
        else:
            found += [(_described(item, name(item)), item.tokens) for item in exchange.items]
    if fixed > 0:
        found.append(("system prompt, tools and overhead", fixed))
    return BudgetExceeded(
        required,
        available,
        sorted(found, key=lambda pair: -pair[1]),
        pinned=any(item.pinned and item.position not in unstored for item in window.items),
    )


def _described(item: WindowItem, name: str) -> str:
    """Return an entry's name and kind, without its content."""
    entry = item.entry
    pin = "pinned" if item.pinned else ""
    kind = entry.type if entry.type != "message" else f"{entry.role} message"
    return " ".join(filter(None, (pin, name, kind, entry.name)))


def _crowd(exchange: Exchange, newest: bool, name: Callable[[WindowItem], str]) -> str:
    """Return the description of an exchange with too many entries to list."""
    calls = sum(item.entry.type == "tool_call" for item in exchange.items)
    which = "the newest exchange" if newest else "an exchange"
    first, last = name(exchange.items[0]), name(exchange.items[-1])
    return f"{which} has {calls:,} calls, {first} to {last}"
