"""The state block of a session: texts that every compression carries forward, word for word.

It has the user's own messages, rules, the values in use and the like, each with the ids of the entries
that it comes from. A compression rebuilds it (`memman.compression.carry`) and records it
(`Compressed.state`); a context shows its text below the summary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

from memman.entries import Entry, TokenCount, attributed
from memman.summary_metadata import ToolName

Keeps = Mapping[str, Callable[[Entry], Iterable[str]]]
"""A caller's own sections: a title, and a function that returns the texts of an entry to keep there."""
KEEP: Final = "keep:"  # begins the section of a caller's title
_TITLES: Final = {
    "constraint": "Constraints",
    "user": "The user's messages",
    "rule": "Rules from earlier messages",
    "note": "Noted by the assistant",
    "value": "Values in use",
    "context": "Attached contexts",
    "task": "Open tasks",
    "other": "Other exact values",
}
MESSAGES: Final = ("constraint", "user")  # sections that quote messages; other texts are one line
_NUMBERED: Final = ("rule", "context")  # other sections that name the entry
LISTED_SECTIONS: Final = ("value", "other")  # of short texts that share one line
_GAP: Final = " ... "
_BACKTICKS: Final = re.compile("`+")


def is_constraint(entry: Entry) -> bool:
    """Return whether a message was declared a constraint, with `metadata={"constraint": True}`."""
    declared = entry.type == "message" and entry.role in ("user", "system")
    return declared and entry.metadata.get("constraint") is True


class StateItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing to carry forward.

    `section` and `key` identify it: a newer item takes the place of an older one of the same key; the key
    of a message is the name of its speaker, and identifies it with the text. `sources`
    are the entries that it was found in, as indexes into `State.sources`, the newest last. `seq` is the
    number of the newest, and `score` the rank at that moment. `part` is 0 for a whole text, otherwise the
    number of a piece of a message. The text of the block has the item if it is `shown`.
    """

    section: str
    key: str
    text: str
    sources: tuple[int, ...]
    seq: int
    score: float = 0.0
    shown: bool = False
    part: int = 0


class State(msgspec.Struct, frozen=True, omit_defaults=True, weakref=True):
    """The state block after a compression: its text, and the items that the next one is built from.

    `text` is "" if there was no room for it. `sources` has the ids of the entries that the items come
    from. `values` is the number of exact values in the entries that the compression replaced, and `kept`
    the number of those that the window still shows. `recall` is the name of the agent's tool that returns
    the entries, "" if it has none.
    """

    text: str
    token_count: TokenCount
    items: tuple[StateItem, ...]
    sources: tuple[str, ...] = ()
    values: int = 0
    kept: int = 0
    recall: ToolName = ""

    def is_of(self, ids: Collection[str]) -> bool:
        """Return whether an item was found in one of these entries."""
        return any(name in ids for name in self.sources if name)

    def without(self, ids: Collection[str]) -> State | None:
        """Return the block without the items of these entries; None if nothing is left.

        An item that was found in other entries too stays. The count of the text stays as an upper bound.
        """
        gone = {number for number, name in enumerate(self.sources) if name in ids}
        if not gone:
            return self
        # An emptied id keeps the indexes of the others.
        sources = tuple("" if number in gone else name for number, name in enumerate(self.sources))
        items = tuple(_less(item, gone) for item in self.items if not gone.issuperset(item.sources))
        if not items:
            return None
        return msgspec.structs.replace(self, text=state_text(items), items=items, sources=sources)


def _less(item: StateItem, gone: set[int]) -> StateItem:
    """Return the item without these sources."""
    if gone.isdisjoint(item.sources):
        return item
    left = tuple(number for number in item.sources if number not in gone)
    return msgspec.structs.replace(item, sources=left)


def state_text(items: Iterable[StateItem]) -> str:
    """Return the text of the items that are shown, section by section."""
    sections: dict[str, list[StateItem]] = {}
    for item in items:
        if item.shown:
            sections.setdefault(item.section, []).append(item)
    return "\n".join(f"{title_of(name)}:\n{_body(name, sections[name])}" for name in sections)


def is_section(name: str) -> bool:
    """Return whether a section has this name."""
    return name in _TITLES or name.startswith(KEEP)


def is_title(text: str) -> bool:
    """Return whether a section of memman's own has this heading."""
    return text in _TITLES.values()


def title_of(section: str) -> str:
    """Return the heading of a section."""
    return section[len(KEEP) :] if section.startswith(KEEP) else _TITLES[section]


def _body(section: str, items: list[StateItem]) -> str:
    """Return the lines of a section. Only its own lines begin at the margin, each with `#` or `-`."""
    if section in MESSAGES:
        return _messages(items)
    if section in _NUMBERED:
        return "\n".join(f"#{item.seq}: {indented(item.text)}" for item in items)
    if section not in LISTED_SECTIONS:
        return "\n".join(f"- {indented(item.text)}" for item in items)
    single = " ".join(item.text for item in items if " " not in item.text)
    spaced = [quoted(item.text) for item in items if " " in item.text]
    return "\n".join(f"- {indented(line)}" for line in (single, *spaced) if line)


def quoted(text: str) -> str:
    """Return a text in backticks: more of them, and blanks, if it has some itself."""
    if "`" not in text:
        return f"`{text}`"
    fence = "`" * (1 + max(map(len, _BACKTICKS.findall(text))))
    return f"{fence} {text} {fence}"


def _messages(items: list[StateItem]) -> str:
    """Return messages with their numbers; pieces of one are joined, with a mark where some are missing."""
    texts: list[str] = []
    last: StateItem | None = None
    for item in items:
        if last is None or not item.part or not last.part or item.seq != last.seq:
            text = f"{'' if item.part < 2 else _GAP.lstrip()}{item.text}"
            texts.append(f"#{item.seq}: {attributed(item.key, text)}")
        elif item.part == last.part + 1:
            texts[-1] += item.text
        else:
            texts[-1] = f"{texts[-1].rstrip()}{_GAP}{item.text}"
        last = item
    return "\n".join(indented(text.strip()) for text in texts)


def indented(text: str) -> str:
    """Return a text whose lines after the first are indented, so that none looks like a line of ours."""
    lines = text.splitlines()
    return text if len(lines) < 2 else "\n  ".join(lines)
