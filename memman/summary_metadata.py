"""The metadata of a summary: which entries it covers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from memman.entries import NO_JSON, Entry, NewEntry
from memman.errors import StoreError

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # exact in the JSON of other programs
Time = Annotated[datetime, msgspec.Meta(tz=True)]
ToolName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-]{0,64}\Z")]
"""The name of a tool that every provider accepts, or ""."""


class SummaryMetadata(msgspec.Struct, frozen=True):
    """The range of log positions and times that a summary covers.

    `recall` is the name of the agent's tool that returns these entries; "" if there was none.
    """

    first: Number
    last: Number
    start: Time
    end: Time
    recall: ToolName = ""


def covered_by(summary: NewEntry | Entry) -> SummaryMetadata | None:
    """Return the metadata of a summary, if it has any; that of a provider's compaction is the caller's.

    Raises:
        msgspec.ValidationError: metadata of another kind, which cannot have been stored.
    """
    if summary.role == "assistant" or len(memoryview(summary.metadata_json)) <= len(b"{}"):
        return None
    return msgspec.json.decode(summary.metadata_json, type=SummaryMetadata)


def summary_draft(text: str, originals: Sequence[Entry], recall: str = "") -> NewEntry:
    """Return a summary with this text and the metadata of the entries that it covers.

    `recall` is the name of the agent's tool that returns them.
    """
    metadata = _metadata_of(originals, recall)
    return NewEntry(type="summary", role="system", content=text, metadata_json=metadata)


def _metadata_of(originals: Sequence[Entry], recall: str) -> msgspec.Raw:
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
        **({"recall": recall} if recall else {}),
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
