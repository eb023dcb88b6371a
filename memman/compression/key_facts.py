"""Key facts: the exact values of the summarized entries, on one line below a summary.

The next steps need exact values (paths, identifiers, numbers, dates, addresses), and summaries lose them.
Each has the number of the entry in which it last appeared. The line of an earlier summary is read back,
so its values keep their entries. A value that appears only in a summary's text has no entry and comes
last, after `#?`. No value contains a blank or a bracket, so none can end the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from memman.compression.words import exact_values, sure_values
from memman.entries import Entry

KEY_FACTS_HEAD: Final = "Exact values by entry: "
_SEEN_MOST: Final = 4  # a value's rank grows up to this number of entries; then recency decides
_WITH_DIGITS: Final = 2  # the higher rank of values with digits, which nothing else conveys
_LEAST_ROOM: Final = 16
# The text read for the line is bounded by its room: it must cost little in a window of any size.
_CHOICE: Final = 1.3  # times the room, of values to choose from
_READ: Final = 100  # times the room, of text
_READ_OF_ONE: Final = 600  # characters of one entry: its beginning and its end
_DIGIT: Final = re.compile(r"\d")
_UNPLACED: Final = "?"  # in place of an unknown entry number
_KEPT: Final = re.compile(r"#(\d{1,15}|\?): ([^;]*)")

Found = tuple[str, int | None]  # a value, and the number of its entry if that is known


def key_facts(entries: Sequence[Entry], characters: int, above: Sequence[str] = ()) -> str:
    """Return the line of exact values in at most so many characters; "" if there are none.

    The newest entries are read until there are enough values to choose from, and the lines of all earlier
    summaries. Values of the texts right `above` the line are left out.
    """
    if characters <= len(KEY_FACTS_HEAD) + _LEAST_ROOM:
        return ""
    return key_facts_line(ranked_values(entries, characters, above), characters)


def ranked_values(
    entries: Sequence[Entry], room: int | None = None, above: Sequence[str] = ()
) -> list[Found]:
    """Return the values with their entries, except those of the texts `above`.

    Frequent values come first, then recent ones. `room` in characters limits how much text is read.
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
    known = {value for text in above for value in exact_values(text)}
    return [found for found in ranking.ranked() if found[0] not in known]


class _Ranking:
    """Counts values, the newest entry's first: the number of entries with each, and the newest one."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}  # value -> number of entries, up to a maximum
        self._found: list[tuple[str, int, int | None]] = []  # value, order of its entry, its number
        self.chars = 0

    def see(self, values: Sequence[str], order: int, seq: int | None) -> None:
        """Add the distinct values of an entry."""
        for value in values:
            seen = self._seen.get(value, 0)
            if seen < _SEEN_MOST:
                self._seen[value] = seen + 1
            if not seen:
                self._found.append((value, order, seq))
                self.chars += len(value) + 1

    def see_summary(self, entry: Entry, order: int, sure: bool) -> dict[str, None]:
        """Add the key facts of an earlier summary; return its values without an entry number."""
        text, kept = without_key_facts(entry.text)
        for value, seq in reversed(kept):
            if seq is not None:
                self.see((value,), order, seq)
        placed = {value for value, seq in kept if seq is not None}
        values = sure_values(text, len(text)) if sure else exact_values(text)
        every = dict.fromkeys([*values, *(value for value, _ in kept)])
        return {value: None for value in every if value not in placed}

    def ranked(self) -> list[Found]:
        """Return the values with their entries, most valuable first."""
        ranks: list[list[Found]] = [[] for _ in range(_SEEN_MOST + _WITH_DIGITS + 1)]
        for value, _, seq in sorted(self._found, key=itemgetter(1)):
            digits = _WITH_DIGITS if _DIGIT.search(value) else 0
            ranks[self._seen[value] + digits].append((value, seq))
        return [found for rank in reversed(ranks) for found in rank]


def above_key_facts(text: str) -> str:
    """Return a summary's text without its last line, if that has key facts."""
    at = text.rfind("\n") + 1
    return text[:at].rstrip() if text.startswith(KEY_FACTS_HEAD, at) else text


def without_key_facts(text: str) -> tuple[str, list[Found]]:
    """Return a summary's text and the values of its key facts."""
    above = above_key_facts(text)
    if above is text:
        return text, []
    kept = _KEPT.findall(text, text.rfind("\n") + 1)
    return above, [
        (value, None if seq == _UNPLACED else int(seq))
        for seq, values in kept
        for value in values.split()
    ]


def key_facts_line(ranked: Sequence[Found], room: int) -> str:
    """Return a line with as many values as fit, grouped by entry."""
    left = room - len(KEY_FACTS_HEAD)
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
    return KEY_FACTS_HEAD + "; ".join(parts) if parts else ""


def _number(seq: int | None) -> str:
    return _UNPLACED if seq is None else str(seq)
