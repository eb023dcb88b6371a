"""The metadata of a summary: which entries it covers, and statistics of them.

Written with the summary and trusted by later summaries. A model's text is not trusted with these numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final

import msgspec

from memman.entries import NO_JSON, Entry, NewEntry
from memman.errors import StoreError

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # exact in the JSON of other programs
_Time = Annotated[datetime, msgspec.Meta(tz=True)]

QUOTE_CHARS: Final = 160  # of a user's message, at most
_MOST_SOURCES: Final = 100
_MOST_TOOLS: Final = 2 * QUOTE_CHARS  # more names than a digest has characters for


class SummaryStats(msgspec.Struct, frozen=True):
    """Statistics of the covered entries.

    Args:
        user_messages: their number.
        errors: the number of failed tool calls.
        first_message: the beginning of the first user message, on one line.
        whole: the statistics include everything covered. An earlier summary may have none, if it was
            written by an older memman or a third-party stage; then the numbers are lower bounds.
        tools: the first tools that were called. sources: the newest attached contexts: the number of the
        entry that attached each last, and its name.
    """

    user_messages: _Number = 0
    errors: _Number = 0
    first_message: str | None = None
    whole: bool = False
    tools: tuple[str, ...] = ()
    sources: tuple[tuple[_Number, str], ...] = ()


class SummaryMetadata(msgspec.Struct, frozen=True):
    """The range of log positions and times that a summary covers, and its statistics."""

    first: _Number
    last: _Number
    start: _Time
    end: _Time
    glance: SummaryStats = SummaryStats()


def covered_by(summary: NewEntry | Entry) -> SummaryMetadata | None:
    """Return the metadata of a summary, if it has any.

    Raises:
        msgspec.ValidationError: metadata of another kind, which cannot have been stored.
    """
    if len(memoryview(summary.metadata_json)) <= len(b"{}"):
        return None
    return msgspec.json.decode(summary.metadata_json, type=SummaryMetadata)


def summary_draft(text: str, originals: Sequence[Entry]) -> NewEntry:
    """Return a summary with this text and the metadata of the entries that it covers."""
    metadata = _metadata_of(originals)
    return NewEntry(type="summary", role="system", content=text, metadata_json=metadata)


def stats_of(entries: Sequence[Entry]) -> SummaryStats:
    """Return the statistics of a run, including those of earlier summaries in it."""
    user_messages = errors = 0
    first: tuple[int, str] | None = None
    tools: dict[str, None] = {}
    sources: dict[str, int] = {}
    whole = True
    for entry in entries:
        at, message = entry.seq, None
        if entry.type == "summary":
            metadata = _stored_metadata(entry)
            stats = metadata.glance if metadata is not None else SummaryStats()
            at, message = metadata.first if metadata is not None else at, stats.first_message
            user_messages += stats.user_messages
            errors += stats.errors
            tools |= dict.fromkeys(stats.tools)
            for number, name in stats.sources:
                sources[name] = max(number, sources.get(name, 0))
            whole = whole and stats.whole
        else:
            errors += entry.is_error
            if entry.type == "tool_call" and entry.name:
                tools[entry.name] = None
            elif entry.type == "context" and entry.name:
                sources[quotable(entry.name)] = entry.seq
            elif entry.type == "message" and entry.role == "user":
                user_messages += 1
                message = quotable(entry.text) if first is None or at < first[0] else None
        if message is not None and (first is None or at < first[0]):
            first = (at, message)
    return SummaryStats(
        user_messages,
        errors,
        first[1] if first and whole else None,
        whole,
        tuple(tools)[:_MOST_TOOLS],
        tuple(sorted((number, name) for name, number in sources.items())[-_MOST_SOURCES:]),
    )


def quotable(text: str) -> str:
    """Return the text on one line; one character too many shows that it is longer than a quotation."""
    return " ".join(text.split())[: QUOTE_CHARS + 1]


def _metadata_of(originals: Sequence[Entry]) -> msgspec.Raw:
    plain = [entry for entry in originals if entry.type != "summary"]
    times = [entry.timestamp for entry in plain]
    seqs = [plain[0].seq, plain[-1].seq] if plain else []  # in log order
    for entry in originals:
        if entry.type == "summary" and (metadata := _stored_metadata(entry)) is not None:
            times += metadata.start, metadata.end
            seqs += metadata.first, metadata.last
    if not seqs:
        return NO_JSON
    fields = {
        "first": min(seqs),
        "last": max(seqs),
        "start": min(times).isoformat(),
        "end": max(times).isoformat(),
        "glance": stats_of(originals),
    }
    return msgspec.Raw(msgspec.json.encode(fields))


def _stored_metadata(summary: Entry) -> SummaryMetadata | None:
    """Return the metadata of a stored summary. Raise `StoreError` if it is damaged."""
    try:
        return covered_by(summary)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Without the cause, which may quote the damaged text.
        raise StoreError(
            f"the summary {summary.id!r} is damaged: its metadata cannot be read; nothing was changed. "
            "Undo its compression, or restore the store from a backup"
        ) from None
