"""Records to hand to a store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from memman.entries import Entry, TokenCount, encode_json
from memman.records import (
    Added,
    Cleared,
    Compressed,
    Configured,
    Deleted,
    Described,
    Opened,
    Pinned,
    Record,
    Replacement,
    SettingsInEffect,
    Undone,
    UsageReported,
)
from memman.state import State, StateItem, state_text

AT = datetime(2026, 1, 1, tzinfo=UTC)


def added(entry_id: str, text: str = "text", tokens: int = 1, **fields: Any) -> Added:
    """A record of a user message."""
    settings: dict[str, Any] = {"type": "message", "role": "user", "timestamp": AT, **fields}
    count = TokenCount(tokens, counter="test")
    return Added(Entry(id=entry_id, content=text, token_count=count, **settings))


def state_of(*ids: str, text: str = "kept") -> State:
    """An outline with an exact value of each of these entries, and one of them all."""
    values = {f"{text}-{name}": (number,) for number, name in enumerate(ids)}
    shared = {f"{text}-of-all": tuple(range(len(ids)))}
    made = tuple(
        StateItem("value", "", value, sources, 1, 1.0, True)
        for value, sources in (values | shared).items()
    )
    return State(state_text(made, None), TokenCount(len(ids) + 1, counter="test"), made, ids)


def summary_of(
    compression_id: str, *runs: Sequence[str], text: str = "short", state: State | None = None
) -> Compressed:
    """A record that replaces each run by an entry called `<compression_id>/<number>`."""
    summary = partial(added, text=text, type="summary", role="system")
    replacements = tuple(
        Replacement(tuple(run), summary(f"{compression_id}/{number}").entry, "summary")
        for number, run in enumerate(runs)
    )
    return _compressed(compression_id, replacements, state=state)


def retraction(compression_id: str, *ids: str, lost_tokens: int = 0) -> Compressed:
    """A record that retracts active entries."""
    replacements = tuple(Replacement((name,), None, "retract") for name in ids)
    return _compressed(compression_id, replacements, lost_tokens=lost_tokens)


def _compressed(
    compression_id: str, replacements: tuple[Replacement, ...], **fields: Any
) -> Compressed:
    told: dict[str, Any] = {"reason": "test", "tokens_before": 0, "tokens_after": 0}
    return Compressed(id=compression_id, at=AT, replacements=replacements, **told, **fields)


def opening(record_id: str) -> Opened:
    settings = SettingsInEffect("m", 8_000, None, 5_600, "test")
    metadata = {"user": {"name": "\u00e9"}}
    return Opened(id=record_id, at=AT, nonce="0a1b2c3d", metadata=metadata, settings=settings)


def pinning(record_id: str, entry_id: str) -> Pinned:
    return Pinned(id=record_id, at=AT, entry_id=entry_id, on=True)


def clearing(record_id: str) -> Cleared:
    return Cleared(id=record_id, at=AT)


def configuring(record_id: str, **changes: Any) -> Configured:
    return Configured(id=record_id, at=AT, changes=changes or {"max_tokens": 500})


def describing(record_id: str, at: datetime = AT, **metadata: Any) -> Described:
    return Described(id=record_id, at=at, metadata=metadata)


def reporting(record_id: str) -> UsageReported:
    return UsageReported(id=record_id, at=AT, model="m", input_tokens=5, estimated=4)


def one_of_each_plain() -> list[Record]:
    """One record of each kind that leaves the window's shape as it is."""
    awkward = 'nul \x00, quotes " and \\, \u00e9\u4e2d\U0001f600, \u2028 and a tab\t'
    metadata = encode_json({"n": [1, 2.5, None, {"deep": awkward}]}, "metadata")
    entry = added("a", awkward, tokens=3, metadata_json=metadata, raw_json=metadata)
    configured = configuring("g", strategy=None, max_entries=7)
    return [opening("o"), entry, configured, reporting("u"), describing("m", deep={"n": [awkward]})]


def one_of_each() -> list[Record]:
    return [
        *one_of_each_plain(),
        summary_of("k", ["a"], state=state_of("a", text="nul \x00 \u2028 \u4e2d")),
        Undone(id="n", at=AT + timedelta(microseconds=1), compression_id="k", state=state_of("a")),
        pinning("p", "a"),
        Deleted(id="d", at=AT, ids=("a",), entries=1, tokens=3, state=state_of("b")),
        added("b"),
        retraction("r", "b", lost_tokens=1),
        Undone(id="s", at=AT, compression_id="r", restored=("b",), restored_tokens=1),
        clearing("x"),
    ]


class BrokenOffError(Exception):
    """Raised by a record that cannot be created."""


class Coming(Sequence[Record]):
    """Records that are created on access and never kept."""

    def __init__(self, size: int, text: str = "text", fails_at: int = -1) -> None:
        self._size = size
        self._text = text
        self._fails_at = fails_at

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(self._size))]
        if place >= self._size:
            raise IndexError(place)
        if place == self._fails_at:
            raise BrokenOffError
        return added(f"e{place}", f"{place} {self._text}")
