"""What a summary covers, as its metadata says: written with it, trusted by the summaries after it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from memman.entries import Entry, NewEntry

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # exact in what other programs make of JSON
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class SummaryStats(msgspec.Struct, frozen=True):
    """How a run began, and how much is in it: kept beside a summary's text, as no model is trusted with it.

    `whole` says that it is of all that is covered: an earlier summary may be of a memman that did not keep
    it, or of a step of one's own. Else the numbers are the least that there were.
    """

    user_messages: _Number = 0
    errors: _Number = 0
    first_message: str | None = None  # the beginning of it, on one line
    whole: bool = False
    tools: tuple[str, ...] = ()  # that were called, the first so many of them
    # Of attached contexts, the newest so many: the entry that each was last attached by, and its name.
    sources: tuple[tuple[_Number, str], ...] = ()


class SummaryMetadata(msgspec.Struct, frozen=True):
    """What a summary covers: places in the log, times, and what is seen of it at a glance. A summary's
    metadata, for its heading and for the summaries after it.
    """

    first: _Number
    last: _Number
    start: _Time
    end: _Time
    glance: SummaryStats = SummaryStats()


def covered_by(summary: NewEntry | Entry) -> SummaryMetadata | None:
    """What a summary covers, as far as it says. Raises `msgspec.ValidationError` for metadata of another
    kind, which nobody can have stored.
    """
    if len(memoryview(summary.metadata_json)) <= len(b"{}"):
        return None
    return msgspec.json.decode(summary.metadata_json, type=SummaryMetadata)
