"""The ledger: exact values on one line below a summary, each with the entry that it last stood in.

Exact values (paths, identifiers, numbers, dates, addresses) are what the next steps need and what summaries
lose. A ledger among the entries is read back, so that its values keep the entries they came from from
summary to summary. No value has a blank or a bracket in it, so none can end the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from memman.compression.words import exact_values, sure_values
from memman.entries import Entry

LEDGER_HEAD: Final = "Exact values by entry: "
_SEEN_MOST: Final = 4  # in how many entries a value stood counts up to this; then how lately
_WITH_DIGITS: Final = 2  # more than that is worth what has digits: it is told by nothing else
_LEAST_ROOM: Final = 16
# What is read for the ledger below a summary, newest first, is bounded by its room: it must cost little
# beside a window of any size. A long output is told by its beginning and its end.
_CHOICE: Final = 1.3  # times the room, of values to choose from
_READ: Final = 100  # times the room, of text
_READ_OF_ONE: Final = 600  # characters
_DIGIT: Final = re.compile(r"\d")
_KEPT: Final = re.compile(r"#(\d+): ([^;]*)")

Found = tuple[str, int]  # a value, and the number of its entry


class _Value(msgspec.Struct, gc=False):
    """An exact value: in how many entries it stood, how late, and the last of them."""

    seen: int
    order: int
    seq: int


def ledger(entries: Sequence[Entry], characters: int) -> str:
    """The exact values alone, at most so many characters of them; "" where there are none.

    Read are the newest entries, until there is enough to choose from, and the ledgers of all summaries.
    """
    if characters <= len(LEDGER_HEAD) + _LEAST_ROOM:
        return ""
    return ledger_line(ranked_values(entries, characters), characters)


def ranked_values(entries: Sequence[Entry], room: int | None = None) -> list[Found]:
    """The values with their entries: what was seen often first, then what was seen lately.

    With a `room` in characters only as much is read as that is worth.
    """
    found: dict[str, _Value] = {}
    chars = read = 0
    for order, entry in enumerate(reversed(entries)):
        if room is not None and entry.type != "summary":
            if chars >= _CHOICE * room or read >= _READ * room:
                continue
            read += min(len(entry.text), _READ_OF_ONE)
        for place, (value, seq) in enumerate(_values_in(entry, room is None)):
            known = found.get(value)
            if known is not None:
                known.seen += 1
            else:
                found[value] = _Value(1, order if seq == entry.seq else order + place, seq)
                chars += len(value) + 1
    return [(value, known.seq) for value, known in sorted(found.items(), key=_rank)]


def _values_in(entry: Entry, closely: bool) -> Iterator[Found]:
    """The values of an entry, each once; those of an earlier ledger the newest first."""
    if entry.type != "summary":
        text = entry.text
        for value in exact_values(text) if closely else sure_values(text, _READ_OF_ONE):
            yield value, entry.seq
        return
    text, kept = without_ledger(entry.text)
    known = {value for value, _ in kept}
    for value in exact_values(text):
        if value not in known:
            yield value, entry.seq
    yield from reversed(kept)


def without_ledger(text: str) -> tuple[str, list[Found]]:
    """A summary's text, and the values of the ledger that is its last line."""
    before, newline, line = text.rpartition("\n")
    if not line.startswith(LEDGER_HEAD):
        return text, []
    kept = [(v, int(seq)) for seq, values in _KEPT.findall(line) for v in values.split()]
    return before.rstrip() if newline else "", kept


def _rank(found: tuple[str, _Value]) -> tuple[int, int]:
    value, known = found
    digits = _WITH_DIGITS if _DIGIT.search(value) else 0
    return -min(known.seen, _SEEN_MOST) - digits, known.order


def ledger_line(ranked: Sequence[Found], room: int) -> str:
    """As many values as there is room for, those of one entry together."""
    left = room - len(LEDGER_HEAD)
    kept: dict[int, list[str]] = {}
    for value, seq in ranked:
        cost = len(value) + 1 + (0 if seq in kept else len(str(seq)) + 4)
        if cost <= left:
            kept.setdefault(seq, []).append(value)
            left -= cost
        elif left < _LEAST_ROOM:
            break
    parts = [f"#{seq}: {' '.join(values)}" for seq, values in sorted(kept.items())]
    return LEDGER_HEAD + "; ".join(parts) if kept else ""
