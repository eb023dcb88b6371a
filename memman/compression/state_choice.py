"""The choice of items for the text of the state block, and of further ones for the next compression."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

from memman.compression.state_items import Found, cost_of, item_of, size_of
from memman.compression.state_messages import ranked_messages, split_messages
from memman.compression.words import sure_values
from memman.compression.working_set import decoded, line_of, open_tasks
from memman.entries import Entry, attributed, speaker_of
from memman.state import LISTED_SECTIONS, state_text, title_of

_ITEMS: Final = 2.0  # times the room, of items
# From this age in entries on a value's rank falls with its age: longer in a larger window.
_LEAST_AGE: Final = 15.0
_AGE: Final = 110.0  # characters of room for each entry of it
_LENGTH: Final = 20.0  # characters, besides the value's
_LEAST_LEFT: Final = 12  # characters: less room is none
_MOST_SHOWN: Final = 200_000  # characters of the window whose values are known
_MOST_SEARCHED: Final = 30_000  # characters, the newest, in which a value is searched for
WHOLE_SHARE: Final = 0.8  # of the room: user messages that together fit it are all whole
# The order of the sections, and the share of the room that each may take before the others had theirs.
_SHARES: Final = {
    "constraint": 1.0,
    "user": 0.3,
    "rule": 0.15,
    "note": 0.04,
    "value": 0.6,
    "context": 0.05,
    "task": 0.08,
    "other": 0.05,
}
_KEEP_SHARE: Final = 0.15
# The items of each section that stay in the fold without room in the text, in parts of the room.
_HIDDEN: Final = {
    "constraint": 1.0,
    "user": 0.3,
    "rule": 0.2,
    "note": 0.1,
    "value": 1.5,
    "context": 0.1,
    "task": 0.1,
    "other": 0.3,
}
_HIDDEN_KEEP: Final = 0.2
_MOST_PLACES: Final = 50  # at which a value is looked at: in more it counts as not contained
# Characters that continue a value before or after it; scripts without blanks may adjoin one.
_JOINED: Final = r"[^\W\u0e00-\u0eff\u3040-\ud7ff]"
# Compiled on first use: they take a thirtieth of an import.
_BEFORE: Final = rf"{_JOINED}|[.-]"
_AFTER: Final = rf"{_JOINED}|-|\.{_JOINED}"
_IN_ORDER: Final = (
    "constraint",
    "user",
    "rule",
    "context",
    "task",
)  # shown as they came; others by rank


class Shown:
    """The texts that the window shows besides the block."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.seq = max((entry.seq for entry in entries), default=0)
        text = "\n".join(_newest_texts(entries))
        self.values = frozenset(sure_values(text, _MOST_SHOWN))
        self._text = text[:_MOST_SEARCHED]
        self._ids = {entry.id for entry in entries}
        users = [entry for entry in entries if entry.role == "user"]
        self._texts = {attributed(speaker_of(entry), entry.text.strip()) for entry in users}
        self._summaries = [entry for entry in entries if entry.type == "summary"]
        self._calls = [entry for entry in entries if entry.type == "tool_call"]

    @cached_property
    def _todo_tools(self) -> set[str]:
        """The tools whose calls in the window write a list of tasks."""
        found = [call for call in self._calls if open_tasks(decoded(call)) is not None]
        return {line_of(call.name or "") for call in found}

    @cached_property
    def lines(self) -> set[str]:
        """The lines of summaries; a digest has sentences of the user's messages."""
        texts = [entry.text for entry in self._summaries]
        return {line.removeprefix("(user) ") for text in texts for line in text.split("\n")}

    def has(self, found: Found) -> bool:
        """Return True if the window shows the thing, so that the block need not."""
        if found.section in LISTED_SECTIONS:
            return found.text in self.values or _is_in(found.text, self._text)
        if found.section == "task":
            return found.key in self._todo_tools
        return found.said in self._texts or not self._ids.isdisjoint(found.ids)


def _newest_texts(entries: Sequence[Entry]) -> Iterator[str]:
    """Return the texts of the newest entries, as many as are searched for values."""
    left = _MOST_SHOWN
    for entry in reversed(entries):
        left -= len(entry.text)
        if left < 0:
            break
        yield entry.text


def _is_in(value: str, text: str, times: int = 1) -> bool:
    """Return True if a text has a value as often as this, not only as a part of longer ones.

    A path is in the text if a path below it is, and a name if a path that ends with it is.
    """
    at, is_path = text.find(value), "/" in value
    for _ in range(_MOST_PLACES):
        if at < 0:
            break
        end = at + len(value)
        before, after = text[at - 1 : at], text[end : end + 2]
        joined = (before == "/" and is_path) or (after[:1] == "/" and not is_path)
        if not joined and not re.match(_BEFORE, before) and not re.match(_AFTER, after):
            times -= 1
            if not times:
                return True
        at = text.find(value, end)
    return False


class Choice:
    """The things in order of their rank, and those that fit a room in characters."""

    def __init__(
        self,
        found: Iterable[Found],
        view: Shown,
        now: int,
        room: int,
        fits: Callable[[str], bool],
    ) -> None:
        self.room = room
        self.chosen: dict[int, Found] = {}  # by id() of the thing
        self._view = view
        self._seen: dict[int, bool] = {}  # whether the window shows a thing
        self._now = now
        self._age = max(_LEAST_AGE, room / _AGE)
        sections: dict[str, list[Found]] = {name: [] for name in _SHARES}
        for item in found:
            sections.setdefault(item.section, []).append(item)
        users = [item for item in sections["user"] if not view.has(item)]
        cut = any(item.part for item in sections["user"])
        self._whole = not cut and fits(state_text(item_of(item, (), True) for item in users))
        # Whole messages that have no room now may have it in the next block.
        self._messages = [] if self._whole else [m for m in sections["user"] if not m.part]
        if not self._whole:
            sections["user"] = split_messages(sections["user"])
        self._sections = {name: self._ranked(name, items) for name, items in sections.items()}

    def _ranked(self, section: str, items: list[Found]) -> list[Found]:
        """Return the things of a section, the most valuable first."""
        if section == "user":
            return items if self._whole else ranked_messages(items, self.room * _SHARES["user"])
        return sorted(items, key=lambda item: (-self._rank(item), -item.seq, item.text))

    def _rank(self, item: Found) -> float:
        """Return the score of a thing now, for its length if the section is a list."""
        if item.section not in LISTED_SECTIONS:
            return item.score
        age = max(0, self._now - item.seq)
        return item.score / (age + self._age) / (len(item.text) + _LENGTH)

    def choose(self, room: int) -> str:
        """Choose things for a room in characters, and return their text."""
        self.room = room
        self.chosen = {}
        left = room
        # Messages that all fit come before everything else, even before constraints.
        for name in sorted(self._sections, key=lambda name: not (self._whole and name == "user")):
            share = room * _SHARES.get(name, _KEEP_SHARE)
            if name == "user" and self._whole:
                share = room
            left -= self._take(name, int(min(left, share)))
        for name in self._sections:
            left -= self._take(name, left)
        return state_text(item_of(item, (), True) for item in self._in_order())

    def _take(self, section: str, room: int) -> int:
        """Choose things of a section while they fit; return the characters used."""
        used = self._fill(section, room)
        if used and section in LISTED_SECTIONS:
            used -= self._drop_repeated(section)
            used += self._fill(section, room - used)
        return used

    def _fill(self, section: str, room: int) -> int:
        """Choose things of a section in their order; return the characters used."""
        if room < _LEAST_LEFT:
            return 0
        chosen = self.chosen
        items = [item for item in self._sections[section] if id(item) not in chosen]
        if not items:
            return 0
        head = 0 if len(items) < len(self._sections[section]) else len(title_of(section)) + 2
        known = self._known() if section in LISTED_SECTIONS else ""
        used = head
        for item in items:
            cost = cost_of(item)
            if used + cost <= room:
                repeated = item.text in known and _is_in(item.text, known)
                if not repeated and not self._is_shown(item):
                    used += cost
                    chosen[id(item)] = item
            elif room - used < _LEAST_LEFT:
                break
        return used if used > head else 0

    def _is_shown(self, item: Found) -> bool:
        """Return True if the window shows a thing."""
        seen = self._seen.get(id(item))
        if seen is None:
            seen = self._view.has(item)
            if item.section == "user" and not self._whole:
                seen = seen or item.said.strip() in self._view.lines
            self._seen[id(item)] = seen
        return seen

    def _drop_repeated(self, section: str) -> int:
        """Drop values that are part of another one; return the characters that they had."""
        known, freed = self._known(), 0
        for item in [item for item in self.chosen.values() if item.section == section]:
            if known.count(item.text) > 1 and _is_in(item.text, known, 2):
                del self.chosen[id(item)]
                freed += cost_of(item)
        return freed

    def _known(self) -> str:
        """Return the texts of all chosen things."""
        return "\n".join([item.text for item in self.chosen.values()])[-_MOST_SEARCHED:]

    def _in_order(self) -> list[Found]:
        """Return the chosen things in the order of the text."""
        listed: list[Found] = []
        for name, items in self._sections.items():
            chosen = [item for item in items if id(item) in self.chosen]
            if name in _IN_ORDER:
                chosen.sort(key=lambda item: (item.seq, item.part))
            listed += chosen
        return listed

    def settle(self, chosen: dict[int, Found]) -> None:
        """Return to an earlier choice."""
        self.chosen = chosen

    def kept(self, room: int) -> list[tuple[Found, bool]]:
        """Return the things for the next compression, the chosen ones first, each with whether it is."""
        listed = [(item, True) for item in self._in_order()]
        messages = sum(map(size_of, self._messages))
        if messages <= WHOLE_SHARE * room:
            listed += [(item, False) for item in self._messages]
        # Many short values in the text leave at least a third to items that it does not show.
        total = int(_ITEMS * room) - sum(size_of(item) for item, _ in listed)
        total = max(total, int(_ITEMS * room / 3))
        for name, items in self._sections.items():
            left = min(total, int(_HIDDEN.get(name, _HIDDEN_KEEP) * room))
            if not listed:  # without a text the messages come first
                left = total
            for item in items:
                size = size_of(item)
                if id(item) not in self.chosen and size <= left:
                    left -= size
                    total -= size
                    listed.append((item, False))
        return listed
