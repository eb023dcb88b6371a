"""Search for a text: the entries that contain it, their replacements, and the remains in the window."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from memman.compression.key_facts import without_key_facts
from memman.compression.words import exact_values
from memman.entries import Entry, parse_address
from memman.errors import InvalidInput
from memman.explain.history import EntryStatus, LogHistory, Sent
from memman.records import ReplacementMethod


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
    """An entry of the window with the text, or with exact values of it (`values`) in its key facts."""

    entry_id: str
    seq: int
    address: str
    type: str
    where: Literal["text", "ledger"]
    values: tuple[str, ...] = ()


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
    if place is not None and (names := _named(log, *place)):
        items = log.history.items
        return Trace(
            text=text,
            found=tuple(_found(log, dict.fromkeys(names, 0))),
            survives=tuple(
                _remnant(item.entry, "text") for item in items if item.entry.address == text.strip()
            ),
        )
    pattern = re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE)
    matches = ((name, pattern.search(entry.text)) for name, entry in log.entries.items())
    return Trace(
        text=text,
        found=tuple(_found(log, {name: match.start() for name, match in matches if match})),
        survives=tuple(_remnants(log, pattern, frozenset(exact_values(text)))),
    )


def _named(log: LogHistory, seq: int, replacement: int) -> list[str]:
    """Return the ids of the added entries at an address, or behind the replacement there."""
    if not replacement:
        return [name for name, entry in log.entries.items() if entry.seq == seq]
    made = {
        item.entry.id
        for place, record in log.compressions.values()
        if place == seq
        for item in record.replacements[replacement - 1 : replacement]
        if item.entry is not None
    }
    return [
        name for name in log.entries if any(speaker in made for _, speaker in _steps(log, name))
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
    log: LogHistory, pattern: re.Pattern[str], values: frozenset[str]
) -> Iterator[Remnant]:
    for item in log.history.items:
        entry = item.entry
        body, ledger = (
            without_key_facts(entry.text) if entry.type == "summary" else (entry.text, [])
        )
        kept = tuple(value for value, _ in ledger if value in values or pattern.search(value))
        if pattern.search(body):
            yield _remnant(entry, "text")
        elif kept:
            yield _remnant(entry, "ledger", kept)


def _remnant(entry: Entry, where: Literal["text", "ledger"], kept: tuple[str, ...] = ()) -> Remnant:
    return Remnant(
        entry_id=entry.id,
        seq=entry.seq,
        address=entry.address,
        type=entry.type,
        where=where,
        values=kept,
    )
