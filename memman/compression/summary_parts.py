"""The parts of a summary's text: sources, body, constraints, declared constraints, key facts.

Only the body is free text. The other parts are put around it and recognised by their headings, so a heading
inside free text is altered before the parts are put together.

A constraint is what must or must not be done; it is carried verbatim from summary to summary. The caller
declares one with `metadata={"constraint": True}` on an added entry; a summarizer lists others in its
section. If a new summary lacks one, it is put back here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from memman.compression.key_facts import KEY_FACTS_HEAD, above_key_facts
from memman.entries import NO_JSON, Entry

CONSTRAINTS: Final = "## Constraints"
SOURCES_HEAD: Final = "Attached contexts by entry: "
DECLARED: Final = "## Declared constraints"
_ITEM: Final = "\n- "
_NESTED: Final = "\n  - "
_HEADING: Final = re.compile(r"[#*\s]*(declared\s+)?constraints[:*\s]*\Z", re.IGNORECASE)
_ANY_HEADING: Final = re.compile(r"#{1,6}\s|\*\*[^*]+\*\*:?\s*\Z")
_KEY_FACTS: Final = re.compile(rf"^([^\S\n]*){re.escape(KEY_FACTS_HEAD.strip())}", re.MULTILINE)
_BULLET: Final = re.compile(r"\s*(?:[-*\u2022]\s+)?")
_METADATA_KEY: Final = "constraint"
_SHARE: Final = 0.5  # of the room left by declared constraints, for those listed by a model
_HEADING_TOKENS: Final = 8  # at most
_BULLET_TOKENS: Final = 2

CountText = Callable[[str], int]


class Parts(msgspec.Struct, frozen=True):
    """The parts of a summary's text; each constraint is one item, however many lines it has."""

    body: str
    constraints: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    key_facts: str = ""
    sources: str = ""  # the first line, with the names of attached contexts

    @property
    def text(self) -> str:
        """The parts as one text."""
        constraints = _section(CONSTRAINTS, self.constraints)
        declared = _section(DECLARED, self.declared)
        parts = (self.sources, self.body, constraints, declared, self.key_facts)
        return "\n".join(part for part in parts if part)


def _section(heading: str, items: Iterable[str]) -> str:
    listed = _ITEM.join(items)
    return f"{heading}{_ITEM}{listed}" if listed else ""


def parts_of(text: str) -> Parts:
    """Return the parts of a summary's text."""
    above = above_key_facts(text)
    facts = text[len(above) :].lstrip("\n")
    above, declared = _cut(above, DECLARED)
    body, constraints = _cut(above, CONSTRAINTS)
    sources = ""
    if body.startswith(SOURCES_HEAD):
        sources, _, body = body.partition("\n")
    return Parts(body, constraints, declared, facts, sources)


def _cut(text: str, heading: str) -> tuple[str, tuple[str, ...]]:
    """Return the text above its last section with this heading, and the section's items."""
    above, found, below = f"\n{text}".rpartition(f"\n{heading}{_ITEM}")
    return (above[1:], tuple(below.split(_ITEM))) if found else (text, ())


def parts_of_reply(text: str) -> Parts:
    """Return the body and the constraints, one a line, of a summarizer's reply.

    Key facts and declared constraints that it repeats are left out: they are not the summarizer's to write.
    """
    body: list[str] = []
    constraints: list[str] = []
    section: str | None = None
    for line in plain(text).split("\n"):
        heading = _HEADING.match(line)
        if heading and line.lstrip()[:1] in ("#", "*"):
            section = "declared" if heading[1] else "listed"
        elif section and _ANY_HEADING.match(line):
            section = None
            body.append(line)
        elif section is None:
            body.append(line)
        elif section == "listed" and line.strip():
            constraints.append(_BULLET.sub("", line, count=1).strip())
    return Parts("\n".join(body).strip(), tuple(filter(None, constraints)))


def plain(text: str) -> str:
    """Return the text without lines that look like key facts or sources."""
    if SOURCES_HEAD in text:
        text = text.replace(SOURCES_HEAD, "Attached contexts: ")
    return _KEY_FACTS.sub(r"\1(values)", text) if KEY_FACTS_HEAD.strip() in text else text


def without_headings(text: str) -> str:
    """Return the text without anything that looks like constraints, key facts or sources."""
    if CONSTRAINTS in text or DECLARED in text:
        text = text.replace(CONSTRAINTS, CONSTRAINTS[1:]).replace(DECLARED, DECLARED[1:])
    return plain(text)


# ---------------------------------------------------------------- constraints


class Constraints(msgspec.Struct, frozen=True):
    """Constraints declared by the caller, and those listed in summaries; each once, in order."""

    declared: tuple[str, ...]
    listed: tuple[str, ...]


class Carried(msgspec.Struct, frozen=True):
    """The constraints that go below a summary, and those that do not fit.

    `left_out` were declared, `forgotten` were listed by models.
    """

    constraints: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()


NOTHING_CARRIED: Final = Carried()


def constraints_of(entries: Sequence[Entry]) -> Constraints:
    """Return the constraints that entries declare, and those in earlier summaries."""
    declared: dict[str, None] = {}
    listed: dict[str, None] = {}
    for entry in entries:
        if entry.type == "summary":
            parts = parts_of(entry.text)
            declared.update(dict.fromkeys(parts.declared))
            listed.update(dict.fromkeys(parts.constraints))
        elif _is_declared(entry) and (text := entry.text.strip()):
            declared[plain(text).replace(_ITEM, _NESTED)] = None  # a list in it stays one item
    return Constraints(tuple(declared), tuple(listed))


def _is_declared(entry: Entry) -> bool:
    return entry.metadata_json is not NO_JSON and entry.metadata.get(_METADATA_KEY) is True


def carried(before: Constraints, listed: Sequence[str], tokens: int, count: CountText) -> Carried:
    """Return the constraints of the replaced entries and those `listed` by the new summary.

    At most `tokens` tokens of them, by `count`: declared ones first, then the oldest.
    """
    declared = before.declared
    others = dict.fromkeys((*before.listed, *listed))
    if not (declared or others):
        return NOTHING_CARRIED
    kept, left = _fitting(declared, tokens, count)
    more = [item for item in others if item not in declared]
    below, _ = _fitting(more, int(left * _SHARE), count)
    while (kept or below) and count(Parts("", tuple(below), tuple(kept)).text) > tokens:
        (below or kept).pop()  # a counter may count the whole higher than its parts
    return Carried(
        tuple(below),
        tuple(kept),
        tuple(item for item in declared if item not in kept),
        tuple(item for item in more if item not in below),
    )


def _fitting(items: Sequence[str], tokens: int, count: CountText) -> tuple[list[str], int]:
    """Return the items that fit, and the tokens that they leave."""
    kept: list[str] = []
    left = tokens - _HEADING_TOKENS
    for item in items:
        cost = count(item) + _BULLET_TOKENS
        if cost <= left:
            kept.append(item)
            left -= cost
    return kept, left if kept else tokens
