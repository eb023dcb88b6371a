"""The outline of a session: one text of everything that left the window.

A compression folds the entries that leave into the items of the outline before it
(`memman.compression.carry`) and records both (`Compressed.state`). The text tells turn by turn what the
user said, what was done and what the assistant concluded, then open tasks, attached contexts and the
exact values in use. Each item has the ids of the entries that it comes from.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec

from memman.display import line_of
from memman.entries import Entry, TokenCount, attributed
from memman.summary_metadata import Number, Time, ToolName

Keeps = Mapping[str, Callable[[Entry], Iterable[str]]]
"""A caller's own sections: a title, and a function that returns the texts of an entry to keep there."""
KEEP: Final = "keep:"  # begins the section of a caller's title
_TITLES: Final = {
    "constraint": "Constraints",
    "turns": "What was said and done, oldest first",
    "task": "Open tasks",
    "context": "Attached contexts",
    "value": "Values in use",
    "other": "Other exact values",
}
_SPEAKERS: Final = {"user": "user", "system": "system", "said": "assistant", "did": "did"}
TURNS: Final = tuple(_SPEAKERS)  # sections that are shown together, turn by turn
TOLD: Final = ("said", "did")  # those that a model's summary replaces
MESSAGES: Final = ("constraint", "user", "system", "said")  # sections that quote messages
TYPED: Final = ("user", "system")  # those with whole messages or pieces of them
LISTED_SECTIONS: Final = ("value", "other")  # of short texts that share one line
GAP: Final = " ... "
ARROW: Final = " -> "  # between a call and its outcome
_MOST_TOOLS: Final = 6  # that the line of counts names
_WORTH_COUNTS: Final = 10  # times the line of counts: a shorter text does without it
_MOST_NAME: Final = 40  # characters of a tool's name there
_PLAIN_PATH: Final = re.compile(r"[\w.~@+/:-]+")  # without a comma or a brace
_BACKTICKS: Final = re.compile("`+")


def is_constraint(entry: Entry) -> bool:
    """Return whether a message was declared a constraint, with `metadata={"constraint": True}`."""
    declared = entry.type == "message" and entry.role in ("user", "system")
    return declared and entry.metadata.get("constraint") is True


class StateItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing to carry forward.

    `section` and `key` identify it: a newer item takes the place of an older one of the same key; the key
    of a message is the name of its speaker, that of a call (section "did") its `call_id`. `sources` are the
    entries that it was found in, as indexes into `State.sources`, the newest last. `seq` is the
    number of the newest, and `score` the rank at that moment. `part` is 0 for a whole text, otherwise the
    number of a piece of a message. The outline has the item if it is `shown`.
    """

    section: str
    key: str
    text: str
    sources: tuple[int, ...]
    seq: int
    score: float = 0.0
    shown: bool = False
    part: int = 0

    def goes_with(self, gone: set[int]) -> bool:
        """Return whether nothing of this is left without these sources; a step has one text of all."""
        if self.section == "did":
            return not gone.isdisjoint(self.sources)
        return gone.issuperset(self.sources)


class Covered(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many entries an outline covers, and their range.

    `tools` counts the calls by the tool's name, `errors` are failed results. `first` and `last` are
    places in the log, `start` and `end` the times of the first and the last entry.
    """

    entries: Number = 0
    user: Number = 0
    tools: dict[str, Number] = {}
    errors: Number = 0
    first: Number = 0
    last: Number = 0
    start: Time | None = None
    end: Time | None = None

    def plus(self, entries: Sequence[Entry]) -> Covered:
        """Return the counts with these entries, which are in log order."""
        if not entries:
            return self
        tools = Counter(self.tools)
        tools.update(entry.name or "tool" for entry in entries if entry.type == "tool_call")
        times = [entry.timestamp for entry in entries]
        return Covered(
            entries=self.entries + len(entries),
            user=self.user + sum(is_users_message(entry) for entry in entries),
            tools=dict(tools),
            errors=self.errors + sum(entry.is_error for entry in entries),
            first=min(entries[0].seq, self.first or entries[0].seq),
            last=max(entries[-1].seq, self.last),
            start=min(times) if self.start is None else min(self.start, *times),
            end=max(times) if self.end is None else max(self.end, *times),
        )

    def __str__(self) -> str:
        """The first line of an outline."""
        if not self.entries or self.start is None or self.end is None:
            return ""
        end = f"{self.end:%H:%M}" if self.start.date() == self.end.date() else _minute(self.end)
        words = [
            f"{_counted(self.entries, 'entry', 'entries')}, #{self.first} to #{self.last}, "
            f"{_minute(self.start)} to {end}: {_counted(self.user, 'message', 'messages')} of the user"
        ]
        if self.tools:
            ranked = sorted(self.tools.items(), key=lambda tool: (-tool[1], tool[0]))
            named = [
                f"{line_of(name, _MOST_NAME)} {times:,}" for name, times in ranked[:_MOST_TOOLS]
            ]
            if others := sum(times for _, times in ranked[_MOST_TOOLS:]):
                named.append(f"others {others:,}")
            calls = _counted(sum(self.tools.values()), "tool call", "tool calls")
            words.append(f"{calls} ({', '.join(named)})")
        if self.errors:
            words.append(_counted(self.errors, "error", "errors"))
        return f"{', '.join(words)}."


NOTHING_COVERED: Final = Covered()


def is_users_message(entry: Entry) -> bool:
    """Return whether an entry is a message of the user."""
    return entry.type == "message" and entry.role == "user"


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


def _counted(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


class State(msgspec.Struct, frozen=True, omit_defaults=True, weakref=True):
    """The outline after a compression: its text, and the items that the next one is built from.

    `text` is "" if there was no room for it. `sources` has the ids of the entries that the items come
    from. `values` is the number of exact values in the entries that the compression replaced, and `kept`
    the number of those that the window still shows. `recall` is the name of the agent's tool that returns
    the entries, "" if it has none. `compression_id` is the compression that wrote it. `covered` counts
    the entries of which the outline has something; None after a deletion, until the next compression
    counts again.
    """

    text: str
    token_count: TokenCount
    items: tuple[StateItem, ...]
    sources: tuple[str, ...] = ()
    values: int = 0
    kept: int = 0
    recall: ToolName = ""
    covered: Covered | None = NOTHING_COVERED
    compression_id: str = ""

    def is_of(self, ids: Collection[str]) -> bool:
        """Return whether an item was found in one of these entries."""
        return any(name in ids for name in self.sources if name)

    def without(self, ids: Collection[str]) -> State | None:
        """Return the outline without the items of these entries; None if nothing is left.

        An item that was found in other entries too stays, unless it is a step: its text has both a call and
        its outcome. The count of the text stays as an upper bound.
        """
        if not ids:
            return self
        gone = {number for number, name in enumerate(self.sources) if name in ids}
        # An emptied id keeps the indexes of the others.
        sources = tuple("" if number in gone else name for number, name in enumerate(self.sources))
        items = tuple(_less(item, gone) for item in self.items if not item.goes_with(gone))
        if not items:
            return None
        return msgspec.structs.replace(
            self, text=state_text(items, None), items=items, sources=sources, covered=None
        )


def _less(item: StateItem, gone: set[int]) -> StateItem:
    """Return the item without these sources."""
    if gone.isdisjoint(item.sources):
        return item
    left = tuple(number for number in item.sources if number not in gone)
    return msgspec.structs.replace(item, sources=left)


def state_text(items: Iterable[StateItem], covered: Covered | None) -> str:
    """Return the text of the items that are shown, by section, with a line of counts if that pays."""
    sections: dict[str, list[StateItem]] = {}
    for item in items:
        if item.shown:
            sections.setdefault("turns" if item.section in TURNS else item.section, []).append(item)
    text = "\n".join(f"{title_of(name)}:\n{_body(name, sections[name])}" for name in sections)
    counts = str(covered or "")
    return f"{counts}\n{text}" if counts and len(text) >= _WORTH_COUNTS * len(counts) else text


def is_section(name: str) -> bool:
    """Return whether a section has this name."""
    return (name in _TITLES and name != "turns") or name in TURNS or name.startswith(KEEP)


def is_title(text: str) -> bool:
    """Return whether a section of memman's own has this heading."""
    return text in _TITLES.values()


def title_of(section: str) -> str:
    """Return the heading of a section."""
    if section.startswith(KEEP):
        return section[len(KEEP) :]
    return _TITLES["turns" if section in TURNS else section]


def _body(section: str, items: list[StateItem]) -> str:
    """Return the lines of a section. Only its own lines begin at the margin, each with `#` or `-`."""
    if section == "turns":
        return "\n".join(_turns(items))
    if section == "constraint":
        said = [f"#{item.seq}: {attributed(item.key, item.text)}" for item in items]
        return "\n".join(map(indented, said))
    if section == "context":
        return "\n".join(f"#{item.seq}: {indented(item.text)}" for item in items)
    if section not in LISTED_SECTIONS:
        return "\n".join(f"- {indented(item.text)}" for item in items)
    single = " ".join(_together([item.text for item in items if " " not in item.text]))
    spaced = [quoted(item.text) for item in items if " " in item.text]
    return "\n".join(f"- {indented(line)}" for line in (single, *spaced) if line)


@lru_cache(4_096)
def directory_of(value: str) -> str:
    """Return the directory of a path, with its slash; "" if a list cannot name it once for several."""
    directory, slash, name = value.rpartition("/")
    return directory + slash if directory and name and _PLAIN_PATH.fullmatch(value) else ""


def _together(values: Sequence[str]) -> Iterator[str]:
    """Yield values; paths of one directory as `directory/{a.py,b.py}`, at the place of the first."""
    names: dict[str, list[str]] = {}
    for value in values:
        names.setdefault(directory_of(value), []).append(value)
    for value in values:
        directory = directory_of(value)
        paths = names[directory]
        if not directory or len(paths) < 2:
            yield value
        elif value == paths[0]:
            yield f"{directory}{{{','.join(path[len(directory) :] for path in paths)}}}"


def quoted(text: str) -> str:
    """Return a text in backticks: more of them, and blanks, if it has some itself."""
    if "`" not in text:
        return f"`{text}`"
    fence = "`" * (1 + max(map(len, _BACKTICKS.findall(text))))
    return f"{fence} {text} {fence}"


def _speaker(item: StateItem) -> str:
    """Return who said or did something, with a name if the speaker has one."""
    who = _SPEAKERS.get(item.section, "user")
    return f"{who} {item.key}" if item.key and item.section in MESSAGES else who


def _turns(items: Iterable[StateItem]) -> Iterator[str]:
    """Yield what was said and done in order: a line for each speaker's words, and for a run of calls.

    A mark stands where sentences are missing. The further lines of a text are indented.
    """
    line, last = "", None
    for item in sorted(items, key=lambda item: (item.seq, item.part)):
        if last is not None and _continues(item, last):
            line = _joined(line, last, item)
        else:
            if last is not None:
                yield indented(line.strip())
            gap = GAP.lstrip() if item.part > 1 else ""
            line = f"#{item.seq} {_speaker(item)}: {gap}{item.text.lstrip()}"
        last = item
    if last is not None:
        yield indented(line.strip())


def _continues(item: StateItem, last: StateItem) -> bool:
    """Return whether an item stands on the line of the one before it."""
    if item.section != last.section or (item.section != "did" and item.key != last.key):
        return False
    return item.section not in TYPED or item.seq == last.seq


def _joined(line: str, last: StateItem, item: StateItem) -> str:
    """Return a line with one more item."""
    if item.section == "did":
        call, _, outcome = item.text.partition(ARROW)
        repeated = bool(outcome) and call == last.text.partition(ARROW)[0]
        return f"{line}, {outcome}" if repeated else f"{line}; {item.text}"
    if item.seq != last.seq:
        return f"{line.rstrip()}{GAP}#{item.seq}: {item.text}"
    if item.part != last.part + 1:
        return f"{line.rstrip()}{GAP}{item.text}"
    # The pieces of a message have their blanks, so that all of them are the message.
    return f"{line}{item.text}" if item.section in TYPED else f"{line} {item.text}"


def indented(text: str) -> str:
    """Return a text whose lines after the first are indented, so that none looks like a line of ours."""
    lines = text.splitlines()
    return text if len(lines) < 2 else "\n  ".join(lines)
