"""A summary's draft: its text, and what it covers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from memman.entries import NO_JSON, Draft, Entry


class Covered(msgspec.Struct, frozen=True):
    """What a summary covers: places in the log, and times. A summary's metadata, for its heading."""

    first: int
    last: int
    start: datetime
    end: datetime


def summary_draft(text: str, originals: Sequence[Entry]) -> Draft:
    """A summary with this text, which says what it covers."""
    covered = _range_of(originals)
    return Draft(type="summary", role="system", content=text, metadata_json=covered)


def _range_of(originals: Sequence[Entry]) -> msgspec.Raw:
    plain = [entry for entry in originals if entry.type != "summary"]
    times = [entry.timestamp for entry in plain]
    seqs = [plain[0].seq, plain[-1].seq] if plain else []  # they are in the order of the log
    for entry in originals:
        if entry.type == "summary" and len(memoryview(entry.metadata_json)) > len(b"{}"):
            known = msgspec.json.decode(entry.metadata_json, type=Covered)
            times += known.start, known.end
            seqs += known.first, known.last
    if not seqs:
        return NO_JSON
    covered = {
        "first": min(seqs),
        "last": max(seqs),
        "start": min(times).isoformat(),
        "end": max(times).isoformat(),
    }
    return msgspec.Raw(msgspec.json.encode(covered))
