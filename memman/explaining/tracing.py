"""Following a text: the entries in which it stood, what replaced them, and where it still stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from memman.compression.ledger import without_ledger
from memman.compression.words import exact_values
from memman.entries import Entry
from memman.errors import InvalidInput
from memman.explaining.trail import EntryFate, Sent, Trail
from memman.records import ReplacementMethod


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An added entry in which the text stood.

    `method` says how it was replaced, None while it is active. `replaced_by` are the compressions that hide
    it, from the one that replaced the entry itself outwards; `undo` is what to undo, in this order, to have
    it in the window again. `start` is where the text begins in the entry's, `sent` how often the model had
    the entry.
    """

    entry: Entry
    fate: EntryFate
    start: int
    method: ReplacementMethod | None
    replaced_by: tuple[str, ...]
    undo: tuple[str, ...]
    sent: Sent


class Remnant(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the window that still has the text, or in its ledger (`values`) an exact value of it."""

    entry_id: str
    seq: int
    address: str
    type: str
    where: Literal["text", "ledger"]
    values: tuple[str, ...] = ()


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a text stood, and where it still stands. Both are empty where it never did."""

    text: str
    found: tuple[Found, ...]
    survives: tuple[Remnant, ...]


def trace(trail: Trail, text: str) -> Trace:
    """Follows a text through the trail. Case and the kind of white space make no difference.

    Raises `InvalidInput` for a text of nothing but white space.
    """
    words = text.split()
    if not words:
        raise InvalidInput("the text to look for must have at least one character that shows")
    pattern = re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE)
    return Trace(
        text=text,
        found=tuple(_found(trail, pattern)),
        survives=tuple(_remnants(trail, pattern, frozenset(exact_values(text)))),
    )


def _found(trail: Trail, pattern: re.Pattern[str]) -> Iterator[Found]:
    fates = trail.entry_fates()
    history = trail.history
    orders: dict[str, tuple[str, ...]] = {}
    for name, entry in trail.entries.items():
        match = pattern.search(entry.text)
        if match is None:
            continue
        hider = history.hider(name) or ""
        if hider and hider not in orders:
            orders[hider] = tuple(history.undo_order(hider))
        yield Found(
            entry=entry,
            fate=fates[name],
            start=match.start(),
            method=history.method_of(name),
            replaced_by=tuple(_chain(trail, name)),
            undo=orders.get(hider, ()),
            sent=trail.sent(entry),
        )


def _chain(trail: Trail, name: str | None) -> Iterator[str]:
    while name is not None and (hider := trail.history.hider(name)) is not None:
        yield hider
        name = trail.history.replaced_by(name)


def _remnants(trail: Trail, pattern: re.Pattern[str], values: frozenset[str]) -> Iterator[Remnant]:
    for slot in trail.history.slots:
        entry = slot.entry
        body, ledger = without_ledger(entry.text) if entry.type == "summary" else (entry.text, [])
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
