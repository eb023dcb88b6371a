"""The largest parts of a window: tokens by tool and by source, and the largest entries."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Literal

import msgspec

from memman.entries import Entry, EntryType, excerpt
from memman.window import Window, WindowItem

_LISTED = 10  # of the largest entries
# Of the window's tokens: for a tool or a source, and for one entry.
_MUCH, _MUCH_FOR_ONE = 0.4, 0.25
_WORDS = 60  # characters of an entry
_UNNAMED = "unnamed"


class Share(msgspec.Struct, frozen=True):
    """The tokens of a tool's calls and results, or of a source's contexts, in the window."""

    name: str
    entries: int
    tokens: int


class LargeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One of the largest entries; `name` is its tool or source, `text` the beginning of its text."""

    entry_id: str
    address: str
    type: str
    role: str
    name: str | None
    tokens: int
    text: str


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a window of `tokens`, the largest first.

    `types` has the tokens by type of entry, and those of the outline as "state". `advice` is one
    sentence about the largest part; "" if the window is empty.
    """

    tokens: int
    types: dict[EntryType | Literal["state"], int]
    tools: tuple[Share, ...]
    sources: tuple[Share, ...]
    largest: tuple[LargeEntry, ...]
    advice: str


def shares_of(window: Window) -> Shares:
    """Return the shares of a window's items."""
    paired = [item for exchange in window.exchanges for item in exchange.items]
    named = {item.result.entry.id: item.entry.name for item in paired if item.result is not None}
    tools: dict[str, Share] = {}
    sources: dict[str, Share] = {}
    types: dict[EntryType | Literal["state"], int] = {}
    for item in window.items:
        entry = item.entry
        types[entry.type] = types.get(entry.type, 0) + item.tokens
        if entry.type in ("tool_call", "tool_result"):
            _count(tools, entry.name or named.get(entry.id) or _UNNAMED, item.tokens)
        elif entry.type == "context":
            _count(sources, entry.name or _UNNAMED, item.tokens)
    if window.state is not None and window.state.item.tokens:
        types["state"] = window.state.item.tokens
    ordered = sorted(window.items, key=attrgetter("tokens"), reverse=True)
    by_tool, by_source = _sorted(tools), _sorted(sources)
    return Shares(
        tokens=window.tokens,
        types=types,
        tools=by_tool,
        sources=by_source,
        largest=tuple(_large(item, named) for item in ordered[:_LISTED]),
        advice=_advice(window, by_tool, by_source, ordered),
    )


def _count(found: dict[str, Share], name: str, tokens: int) -> None:
    before = found.get(name, Share(name, 0, 0))
    found[name] = Share(name, before.entries + 1, before.tokens + tokens)


def _sorted(found: dict[str, Share]) -> tuple[Share, ...]:
    return tuple(sorted(found.values(), key=attrgetter("tokens"), reverse=True))


def _large(item: WindowItem, named: dict[str, str | None]) -> LargeEntry:
    entry: Entry = item.entry
    return LargeEntry(
        entry_id=entry.id,
        address=entry.address,
        type=entry.type,
        role=entry.role,
        name=entry.name or named.get(entry.id),
        tokens=item.tokens,
        text=excerpt(" ".join(entry.text[: 4 * _WORDS].split()), _WORDS),
    )


def _advice(
    window: Window, tools: Sequence[Share], sources: Sequence[Share], ordered: Sequence[WindowItem]
) -> str:
    """Return a sentence about the largest part of the window and how to reduce it."""
    whole = window.tokens
    if not whole:
        return ""
    if window.pinned_tokens >= _MUCH * whole:
        share = _percent(window.pinned_tokens, whole)
        return f"Pinned entries hold {share}, and no compression takes them: unpin what can go."
    if ordered[0].tokens >= _MUCH_FOR_ONE * whole and ordered[0].entry.type != "summary":
        share = _percent(ordered[0].tokens, whole)
        return (
            f"{ordered[0].entry.address} alone holds {share}: a lower max_entry_ratio clips such an "
            "entry at the next compression."
        )
    if tools and tools[0].tokens >= _MUCH * whole:
        share = _percent(tools[0].tokens, whole)
        return (
            f"`{tools[0].name}` holds {share}: let it return less (a range, a filter), or lower "
            "target_ratio, so that a compression clears more of its old results."
        )
    if sources and sources[0].tokens >= _MUCH * whole:
        share = _percent(sources[0].tokens, whole)
        return f"The source `{sources[0].name}` holds {share}: attach less of it."
    return "No tool, source or single entry holds a large part of the window."


def _percent(part: int, whole: int) -> str:
    return f"{round(100 * part / whole)} %"
