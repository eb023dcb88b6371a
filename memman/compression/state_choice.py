"""The choice of items for the text of an outline, and of further ones for the next compression."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import compress, filterfalse
from math import inf
from typing import Final

from memman.compression.outline import LEAST_WORDS, Cover
from memman.compression.state_items import LONG, PIECE, RULE, RULE_PIECE, SHORT, WAITING, Found
from memman.compression.user_messages import ASKED, label_of
from memman.compression.words import JOINTS, stands_alone, sure_values, words_of
from memman.compression.working_set import decoded, open_tasks
from memman.display import line_of
from memman.entries import Entry, attributed, speaker_of
from memman.state import GAP, KEEP, LISTED_SECTIONS, TURNS, TYPED, directory_of, quoted, title_of

_MISSES: Final = 12  # things that are too large for what is left, before a search for others ends
# Characters of the record for each one of room: about twice the things that the text shows.
_MEMORY: Final = 3.0
_ITEM: Final = 34  # characters of an item's encoding besides its text
_SPEAKER: Final = 14  # characters of "#123 user: " and the line end
_LENGTH: Final = 20.0  # characters, besides the value's
_LEAST_LEFT: Final = 12  # characters: less room is none
_MOST_SHOWN: Final = 200_000  # characters of the window whose values are known
_MOST_SEARCHED: Final = 30_000  # characters, the newest, in which a value is searched for
# The shares of the room, in the order of choice; what one leaves is the others'.
_CONSTRAINTS: Final = 1.0
_RULES: Final = 0.85  # messages of the user with a rule, the newest first
_RULE_PIECES: Final = 0.25
_LONG_MESSAGES: Final = 0.2
_SHORT_MESSAGES: Final = 0.45  # the short ones, by their new words
_TASKS: Final = 0.06
_CONTEXTS: Final = 0.04
_KEPT: Final = 0.15  # each section of the caller's own
_VALUES: Final = 0.32
_MOST_VALUES: Final = 300  # characters, and half of the share
_ENDINGS: Final = 0.3
_STEPS: Final = 0.06  # the newest calls
# A message with a number, a path or a name of a program.
_VALUED: Final = re.compile(r"\d{3}|\w[/_@]\w")
_SECTIONS: Final = ("constraint", *TURNS, "task", "context", "value", "other")  # of a text


class Shown:
    """The texts that the window shows beside the outline."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        text = "\n".join(_newest_texts(entries))
        self.values = frozenset(sure_values(text, _MOST_SHOWN))
        self._text = text[:_MOST_SEARCHED]
        self._ids = {entry.id for entry in entries}
        users = [entry for entry in entries if entry.role in TYPED]
        self._texts = {attributed(speaker_of(entry), entry.text.strip()) for entry in users}
        self._calls = [entry for entry in entries if entry.type == "tool_call"]

    @cached_property
    def _todo_tools(self) -> set[str]:
        """The tools whose calls in the window write a list of tasks."""
        found = [call for call in self._calls if open_tasks(decoded(call)) is not None]
        return {line_of(call.name or "") for call in found}

    def has_call(self, call_id: str) -> bool:
        """Return True if the window shows the call with this id."""
        return any(call.call_id == call_id for call in self._calls)

    def has(self, found: Found) -> bool:
        """Return True if the window shows the thing, so that the outline need not."""
        if found.section in LISTED_SECTIONS:
            return found.text in self.values or stands_alone(found.text, self._text, JOINTS)
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


class Choice:
    """The things in order of their worth, and those that fit a room in characters.

    Args:
        found: the things.
        view: the window beside the outline.
    """

    def __init__(self, found: Iterable[Found], view: Shown) -> None:
        self._view = view
        self._is_shown = cache(view.has)
        self._sections: dict[str, list[Found]] = {name: [] for name in _SECTIONS}
        for item in found:
            self._sections.setdefault(item.section, []).append(item)
        for name, items in self._sections.items():
            if name not in TURNS:
                items.sort(key=lambda item: (-self._rank(item), -item.seq, item.text))
        turns = [item for name in TURNS for item in self._sections[name] if _tells(item)]
        turns.sort(key=lambda item: (item.seq, item.part))
        # The outcome of a call that the window still shows waits for it.
        self._waiting = [i for i in turns if i.score == WAITING and view.has_call(i.key)]
        waiting = set(map(id, self._waiting))
        self._turns = [i for i in turns if id(i) not in waiting and not self._is_shown(i)]
        self._newest = {i.said: id(i) for i in self._turns if i.section in TYPED}
        words = [words_of(item.text) for item in self._turns]
        self._cover = Cover(self._turns, words)
        self._covering: list[Found] | None = None
        self._short = self._ranked_short(words)
        self._worth = list(self._by_worth())

    def _ranked_short(self, words: Sequence[frozenset[str]]) -> list[Found]:
        """Return the user's short messages by what they add.

        Statements with a label or a value come before others, questions and repeated texts last.
        """
        is_short = [item.section in TYPED and item.score == SHORT for item in self._turns]
        short = list(compress(self._turns, is_short))
        ranked = list(Cover(short, list(compress(words, is_short))).order(()))
        known = set(map(id, ranked))
        ranked += [item for item in short if id(item) not in known]  # their words are there
        return sorted(
            ranked,
            key=lambda item: (
                self._is_repeated(item),
                item.text.endswith(ASKED),
                not (label_of(item.text) or _VALUED.search(item.text)),
            ),
        )

    def _is_repeated(self, item: Found) -> bool:
        """Return True if the same speaker repeats the message later, word for word."""
        return self._newest[item.said] != id(item)

    def _rank(self, item: Found) -> float:
        """Return the score of a thing, for its length if the section is a list."""
        is_listed = item.section in LISTED_SECTIONS
        return item.score / (len(item.text) + _LENGTH) if is_listed else item.score

    def choose(self, room: int) -> list[Found]:
        """Return the things for a text of about `room` characters, in the order of the text."""
        chosen = _Chosen(room)
        for items, share, most in self._worth:
            size = min(share * room, most + share * room / 2)
            chosen.add(filterfalse(self._is_shown, items), size)
        if self._covering is None:
            self._covering = list(self._cover.order(chosen.items.values()))
        chosen.add(self._covering, room)
        for items in (self._cover.endings(), self._short):  # those without a new word
            chosen.add(items, room)
        found = self._in_order(chosen.items)
        told = "\n".join(item.text for item in found if item.section not in LISTED_SECTIONS)
        return [
            item
            for item in found
            if item.section not in LISTED_SECTIONS or not stands_alone(item.text, told, JOINTS)
        ]

    def kept(self, room: int, chosen: Iterable[Found]) -> list[Found]:
        """Return the things for the next compression: the chosen ones, and about as many again.

        The record of the compression has them, so they are measured by their size in it.
        """
        room = int(_MEMORY * room)
        kept = {id(item): item for item in chosen}
        left: float = room - sum(map(_size_of, kept.values()))
        further: list[tuple[Iterable[Found], float]] = [
            (self._waiting, 1.0),
            (self._sections["value"], _VALUES),
            *((items, share) for items, share, _ in self._worth),
            (self._covering or self._cover.order(kept.values()), 1.0),
            *((items, 1.0) for name, items in self._sections.items() if name not in TURNS),
        ]
        for items, share in further:
            most = min(left, share * room)
            for item in items if most > _LEAST_LEFT else ():
                size = _size_of(item)
                if size <= most and id(item) not in kept:
                    kept[id(item)] = item
                    most -= size
                    left -= size
        return self._in_order(kept)

    def _by_worth(self) -> Iterator[tuple[Sequence[Found], float, float]]:
        """Yield things in the order of choice, with their share of the room.

        If a number of characters follows, they and half of the share are the most.
        """
        typed = [item for item in reversed(self._turns) if item.section in TYPED]
        typed.sort(key=self._is_repeated)
        yield self._sections["constraint"], _CONSTRAINTS, inf
        for score, share in ((RULE, _RULES), (RULE_PIECE, _RULE_PIECES), (LONG, _LONG_MESSAGES)):
            yield [item for item in typed if item.score == score], share, inf
        yield self._short, _SHORT_MESSAGES, inf
        yield self._sections["task"], _TASKS, inf
        yield self._sections["context"], _CONTEXTS, inf
        for name, items in self._sections.items():
            if name.startswith(KEEP):
                yield items, _KEPT, inf
        yield self._sections["value"] + self._sections["other"], _VALUES, _MOST_VALUES
        yield self._cover.endings(), _ENDINGS, inf
        yield [item for item in reversed(self._turns) if item.section == "did"], _STEPS, inf

    def _in_order(self, chosen: Mapping[int, Found]) -> list[Found]:
        """Return the chosen things, which are given by their id(), in the order of the text."""
        listed: list[Found] = []
        for name, items in self._sections.items():
            found = [item for item in items if id(item) in chosen]
            if name not in LISTED_SECTIONS and not name.startswith(KEEP):
                found.sort(key=lambda item: (item.seq, item.part))
            listed += found
        return listed


class _Chosen:
    """The things that were chosen for a room, and the room that is left."""

    def __init__(self, room: int) -> None:
        self.items: dict[int, Found] = {}  # by id()
        self._left: float = room
        self._sections: set[str] = set()
        self._directories: set[str] = set()
        self._values = ""  # that were chosen

    def add(self, items: Iterable[Found], most: float) -> None:
        """Choose things in their order, as long as they fit `most` characters and what is left."""
        left = min(most, self._left)
        misses = 0
        for item in items:
            if left < _LEAST_LEFT or misses > _MISSES:
                break
            if id(item) in self.items:
                continue
            cost = self._cost(item)
            is_listed = item.section in LISTED_SECTIONS
            if cost > left or (is_listed and stands_alone(item.text, self._values, JOINTS)):
                misses += cost > left
                continue
            left -= cost
            self._left -= cost
            self.items[id(item)] = item
            self._sections.add(item.section)
            if is_listed:
                self._directories.add(directory_of(item.text))
                self._values += f"\n{item.text}"

    def _cost(self, item: Found) -> int:
        """Return the characters that a thing adds to the text; a directory is named once."""
        cost = cost_of(item)
        if item.section not in self._sections and not (
            item.section in TURNS and self._sections.intersection(TURNS)
        ):
            cost += len(title_of(item.section)) + 2
        if item.section in LISTED_SECTIONS:
            directory = directory_of(item.text)
            cost -= len(directory) if directory in self._directories else 0
        return cost


def cost_of(item: Found) -> int:
    """Return the characters that an item takes in the text."""
    if item.section in LISTED_SECTIONS:
        return len(quoted(item.text)) + 3 if " " in item.text else len(item.text) + 1
    if item.section == "did":
        return len(item.text) + 4
    if item.part > 1:
        return len(item.text) + len(GAP)
    return len(item.said) + _SPEAKER


def _size_of(item: Found) -> int:
    """Return about how many characters an item takes in a record."""
    return len(item.text) + len(item.key) + _ITEM


def _tells(item: Found) -> bool:
    """Return False for a line of a long message that has hardly a word, such as pasted code."""
    is_piece = item.section in TYPED and item.score in (PIECE, RULE_PIECE)
    return not is_piece or len(words_of(item.text)) >= LEAST_WORDS
