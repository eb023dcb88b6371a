"""A summary's draft: its text, and what it covers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from memman.entries import NO_JSON, Entry, NewEntry
from memman.errors import StoreError
from memman.summary_metadata import SummaryMetadata, SummaryStats, covered_by

QUOTE_CHARS: Final = 160  # of a user's message, at most
_MOST_SOURCES: Final = 100
_MOST_TOOLS: Final = 2 * QUOTE_CHARS  # more names than a digest has characters for


def glance_of(entries: Sequence[Entry]) -> SummaryStats:
    """What is seen at a glance of a run, and of what the summaries in it cover."""
    user_messages = errors = 0
    first: tuple[int, str] | None = None
    tools: dict[str, None] = {}
    sources: dict[str, int] = {}
    whole = True
    for entry in entries:
        at, began = entry.seq, None
        if entry.type == "summary":
            covered = _covered_by(entry)
            told = covered.glance if covered is not None else SummaryStats()
            at, began = covered.first if covered is not None else at, told.first_message
            user_messages += told.user_messages
            errors += told.errors
            tools |= dict.fromkeys(told.tools)
            for number, name in told.sources:
                sources[name] = max(number, sources.get(name, 0))
            whole = whole and told.whole
        else:
            errors += entry.is_error
            if entry.type == "tool_call" and entry.name:
                tools[entry.name] = None
            elif entry.type == "context" and entry.name:
                sources[quotable(entry.name)] = entry.seq
            elif entry.type == "message" and entry.role == "user":
                user_messages += 1
                began = quotable(entry.text) if first is None or at < first[0] else None
        if began is not None and (first is None or at < first[0]):
            first = (at, began)
    began = first[1] if first and whole else None
    attached = sorted((number, name) for name, number in sources.items())[-_MOST_SOURCES:]
    named = tuple(tools)[:_MOST_TOOLS]
    return SummaryStats(user_messages, errors, began, whole, named, tuple(attached))


def quotable(text: str) -> str:
    """The text on one line, with one character more than is quoted where it is longer."""
    return " ".join(text.split())[: QUOTE_CHARS + 1]


def summary_draft(text: str, originals: Sequence[Entry]) -> NewEntry:
    """A summary with this text, which says what it covers."""
    covered = _range_of(originals)
    return NewEntry(type="summary", role="system", content=text, metadata_json=covered)


def _range_of(originals: Sequence[Entry]) -> msgspec.Raw:
    plain = [entry for entry in originals if entry.type != "summary"]
    times = [entry.timestamp for entry in plain]
    seqs = [plain[0].seq, plain[-1].seq] if plain else []  # they are in the order of the log
    for entry in originals:
        if entry.type == "summary" and (known := _covered_by(entry)) is not None:
            times += known.start, known.end
            seqs += known.first, known.last
    if not seqs:
        return NO_JSON
    covered = {
        "first": min(seqs),
        "last": max(seqs),
        "start": min(times).isoformat(),
        "end": max(times).isoformat(),
        "glance": glance_of(originals),
    }
    return msgspec.Raw(msgspec.json.encode(covered))


def _covered_by(summary: Entry) -> SummaryMetadata | None:
    """Return what a stored summary covers. Raise `StoreError` if its metadata is damaged."""
    try:
        return covered_by(summary)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Without the cause: it may quote what it could not read.
        raise StoreError(
            f"the summary {summary.id!r} is damaged: its metadata cannot be read; nothing was changed. "
            "Undo its compression, or restore the store from a backup"
        ) from None
