"""Search for a text: the entries that contain it, their replacements, and the remains in the window."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from memman.compression.words import exact_values, stands_alone
from memman.entries import Entry, parse_address
from memman.errors import InvalidInput
from memman.explain.history import EntryStatus, LogHistory, Sent
from memman.log import speaker_of
from memman.records import Cleared, ReplacementMethod, StateSetter


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An added entry that contains the text.

    `method` is how it was replaced; None while it is active. `replaced_by` are the compressions that hide
    it, starting with the one that replaced the entry itself. Undoing `undo` in order makes it active
    again.
    `start` is the index of the text in the entry's, and `sent` how often the model received the entry.
    """

    entry: Entry
    status: EntryStatus
    start: int
    method: ReplacementMethod | None
    replaced_by: tuple[str, ...]
    undo: tuple[str, ...]
    sent: Sent


class Remnant(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the window with the text, or the outline with it, or with some of it (`values`).

    `since` is the record from which on the outline always had the text.
    """

    entry_id: str
    seq: int
    address: str
    type: str
    where: Literal["text", "state"]
    values: tuple[str, ...] = ()
    since: int | None = None


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The entries that contain a text, and the remains of it in the window."""

    text: str
    found: tuple[Found, ...]
    survives: tuple[Remnant, ...]


def trace(log: LogHistory, text: str) -> Trace:
    """Follow a text through the log. Case and the kind of white space make no difference.

    The address of an entry, such as `#12` or `#556.2`, means that entry: of a replacement, the entries that
    it replaced. Raises `InvalidInput` for a text of nothing but white space.
    """
    words = text.split()
    if not words:
        raise InvalidInput("the text to look for must have at least one character that shows")
    place = parse_address(text.strip())
    if place is not None and (names := _named(log, text.strip(), *place)):
        items = log.history.items
        return Trace(
            text=text,
            found=tuple(_found(log, dict.fromkeys(names, 0))),
            survives=(
                *(_remnant(item.entry) for item in items if item.entry.address == text.strip()),
                *_kept_of(log, names),
            ),
        )
    pattern = re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE)
    matches = ((name, pattern.search(entry.text)) for name, entry in log.entries.items())
    return Trace(
        text=text,
        found=tuple(_found(log, {name: match.start() for name, match in matches if match})),
        survives=tuple(_remnants(log, pattern, exact_values(text))),
    )


def _named(log: LogHistory, address: str, seq: int, replacement: int) -> list[str]:
    """Return the ids of the added entries at an address, or behind the replacement or outline there."""
    made = {
        (name, speaker_of(item))
        for name, (place, record) in log.compressions.items()
        if place == seq
        for number, item in enumerate(record.replacements, 1)
        if (number == replacement and item.entry) or (item.method, replacement) == ("outline", 0)
    }
    return [
        name
        for name, status in log.entry_statuses().items()
        if address in (f"#{status.seq}", status.shown_address)
        or (status.state != "dropped" and made.intersection(_steps(log, name)))
    ]


def _found(log: LogHistory, starts: Mapping[str, int]) -> Iterator[Found]:
    statuses = log.entry_statuses()
    history = log.history
    orders: dict[str, tuple[str, ...]] = {}
    for name, start in starts.items():
        hider = history.hider(name) or ""
        if hider and hider not in orders:
            orders[hider] = tuple(history.undo_order(hider))
        yield Found(
            entry=log.entries[name],
            status=statuses[name],
            start=start,
            method=history.method_of(name),
            replaced_by=tuple(hider for hider, _ in _steps(log, name)),
            undo=orders.get(hider, ()),
            sent=log.sent(log.entries[name]),
        )


def _steps(log: LogHistory, name: str) -> Iterator[tuple[str, str | None]]:
    """Yield each compression that replaced an entry or its replacement, and what took the place."""
    speaker: str | None = name
    while speaker is not None and (hider := log.history.hider(speaker)) is not None:
        speaker = log.history.replaced_by(speaker)
        yield hider, speaker


def _remnants(
    log: LogHistory, pattern: re.Pattern[str], values: Sequence[str]
) -> Iterator[Remnant]:
    for item in log.history.items:
        entry = item.entry
        if pattern.search(entry.text):
            yield _remnant(entry)
    block = log.history.state.window.state
    if block is None:
        return
    if pattern.search(block.state.text):
        yield _in_block(block.item.entry, (), _since(log, pattern))
    elif kept := tuple(value for value in values if stands_alone(value, block.state.text)):
        yield _in_block(block.item.entry, kept, None)


def _kept_of(log: LogHistory, names: Collection[str]) -> Iterator[Remnant]:
    """Yield the outline if it shows something of these entries."""
    block = log.history.state.window.state
    if block is None:
        return
    sources = {number for number, name in enumerate(block.state.sources) if name in names}
    items = (item for item in block.state.items if item.shown)
    kept = tuple(item.text for item in items if not sources.isdisjoint(item.sources))
    if kept:
        yield _in_block(block.item.entry, kept, None)


def _since(log: LogHistory, pattern: re.Pattern[str]) -> int | None:
    """Return the record from which on the outline always had the text."""
    since = None
    for seq, record in reversed(log.records):
        if isinstance(record, Cleared):
            break
        if isinstance(record, StateSetter):
            if record.state is None or not pattern.search(record.state.text):
                break
            since = seq
    return since


def _remnant(entry: Entry) -> Remnant:
    return Remnant(
        entry_id=entry.id, seq=entry.seq, address=entry.address, type=entry.type, where="text"
    )


def _in_block(shown: Entry, values: tuple[str, ...], since: int | None) -> Remnant:
    return msgspec.structs.replace(
        _remnant(shown), type="state", where="state", values=values, since=since
    )
