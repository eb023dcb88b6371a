"""The ledger: exact values on one line below a summary, each with the entry that it last stood in.

Exact values (paths, identifiers, numbers, dates, addresses) are what the next steps need and what summaries
lose. A ledger among the entries is read back, so that its values keep the entries they came from from
summary to summary. What an earlier summary's text alone tells has no entry, and stands last, after `#?`. No
value has a blank or a bracket in it, so none can end the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

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
_UNPLACED: Final = "?"  # stands for the number of an entry that is not known
_KEPT: Final = re.compile(r"#(\d{1,15}|\?): ([^;]*)")  # a number that any reader can take

Found = tuple[str, int | None]  # a value, and the number of its entry where that is known


def ledger(entries: Sequence[Entry], characters: int, above: Sequence[str] = ()) -> str:
    """The exact values alone, at most so many characters of them; "" where there are none.

    Read are the newest entries, until there is enough to choose from, and the ledgers of all summaries.
    What stands in the texts right `above` it is not said again.
    """
    if characters <= len(LEDGER_HEAD) + _LEAST_ROOM:
        return ""
    return ledger_line(ranked_values(entries, characters, above), characters)


def ranked_values(
    entries: Sequence[Entry], room: int | None = None, above: Sequence[str] = ()
) -> list[Found]:
    """The values with their entries, except those of the texts `above`: what was seen often first, then
    what was seen lately.

    With a `room` in characters only as much is read as that is worth.
    """
    ranking = _Ranking()
    unplaced: dict[str, None] = {}
    read = 0
    for order, entry in enumerate(reversed(entries)):
        if entry.type == "summary":
            unplaced |= ranking.see_summary(entry, order, sure=room is not None)
        elif room is None:
            ranking.see(exact_values(entry.text), order, entry.seq)
        elif ranking.chars < _CHOICE * room and read < _READ * room:
            text = entry.text
            read += min(len(text), _READ_OF_ONE)
            ranking.see(sure_values(text, _READ_OF_ONE), order, entry.seq)
    ranking.see(tuple(unplaced), len(entries), None)
    said = {value for text in above for value in exact_values(text)}
    return [found for found in ranking.ranked() if found[0] not in said]


class _Ranking:
    """Values as they are seen, the newest entry's first: in how many entries, how late, and where last."""

    __slots__ = ("_found", "_seen", "chars")

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}  # in how many entries, as far as that counts
        # value, how late it stood, in which entry
        self._found: list[tuple[str, int, int | None]] = []
        self.chars = 0

    def see(self, values: Sequence[str], order: int, seq: int | None) -> None:
        """Takes in the values of an entry, each given once."""
        seen = self._seen
        fresh = [value for value in values if value not in seen]
        if len(fresh) < len(values):
            for value in seen.keys() & values:
                if seen[value] < _SEEN_MOST:
                    seen[value] += 1
        seen.update(dict.fromkeys(fresh, 1))
        self._found += [(value, order, seq) for value in fresh]
        self.chars += len("".join(fresh)) + len(fresh)

    def see_summary(self, entry: Entry, order: int, sure: bool) -> dict[str, None]:
        """Takes in what an earlier summary's ledger has by entry; returns its values without one."""
        text, kept = without_ledger(entry.text)
        for value, seq in reversed(kept):
            if seq is not None:
                self.see((value,), order, seq)
        placed = {value for value, seq in kept if seq is not None}
        values = sure_values(text, len(text)) if sure else exact_values(text)
        told = dict.fromkeys([*values, *(value for value, _ in kept)])
        return {value: None for value in told if value not in placed}

    def ranked(self) -> list[Found]:
        """The values with their entries, what is worth most first."""
        seen, has_digit = self._seen, _DIGIT.search
        worth: list[list[Found]] = [[] for _ in range(_SEEN_MOST + _WITH_DIGITS + 1)]
        for value, _, seq in sorted(self._found, key=itemgetter(1)):
            worth[seen[value] + (_WITH_DIGITS if has_digit(value) else 0)].append((value, seq))
        return [found for alike in reversed(worth) for found in alike]


def above_ledger(text: str) -> str:
    """A summary's text without the ledger that is its last line."""
    at = text.rfind("\n") + 1
    return text[:at].rstrip() if text.startswith(LEDGER_HEAD, at) else text


def without_ledger(text: str) -> tuple[str, list[Found]]:
    """A summary's text, and the values of the ledger that is its last line."""
    above = above_ledger(text)
    if above is text:
        return text, []
    kept = _KEPT.findall(text, text.rfind("\n") + 1)
    return above, [
        (value, None if seq == _UNPLACED else int(seq))
        for seq, values in kept
        for value in values.split()
    ]


def ledger_line(ranked: Sequence[Found], room: int) -> str:
    """As many values as there is room for, those of one entry together."""
    left = room - len(LEDGER_HEAD)
    kept: dict[int | None, list[str]] = {}
    for value, seq in ranked:
        cost = len(value) + 1 + (0 if seq in kept else len(_number(seq)) + 4)
        if cost <= left:
            kept.setdefault(seq, []).append(value)
            left -= cost
        elif left < _LEAST_ROOM:
            break
    unplaced = kept.pop(None, None)
    groups = [*sorted(kept.items()), *([(None, unplaced)] if unplaced else [])]
    parts = [f"#{_number(seq)}: {' '.join(values)}" for seq, values in groups]
    return LEDGER_HEAD + "; ".join(parts) if parts else ""


def _number(seq: int | None) -> str:
    return _UNPLACED if seq is None else str(seq)
