"""The parts of a summary's text: what was written, the constraints, the declared ones, and the ledger.

Only the first part is anybody's free text. The others are put below it and told apart again by their
headings, so a heading that stands in free text is altered before it is put together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from memman.compression.ledger import LEDGER_HEAD, above_ledger

CONSTRAINTS: Final = "## Constraints"
SOURCES_HEAD: Final = "Attached contexts by entry: "
DECLARED: Final = "## Declared constraints"
_ITEM: Final = "\n- "
_NESTED: Final = "\n  - "
_HEADING: Final = re.compile(r"[#*\s]*(declared\s+)?constraints[:*\s]*\Z", re.IGNORECASE)
_ANY_HEADING: Final = re.compile(r"#{1,6}\s|\*\*[^*]+\*\*:?\s*\Z")
_LEDGER: Final = re.compile(rf"^([^\S\n]*){re.escape(LEDGER_HEAD.strip())}", re.MULTILINE)
_BULLET: Final = re.compile(r"\s*(?:[-*\u2022]\s+)?")


class Parts(msgspec.Struct, frozen=True):
    """The parts of a summary's text; each constraint is one item, however many lines it has.

    `sources` is the first line, which names the contexts that were attached.
    """

    body: str
    constraints: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    ledger: str = ""
    sources: str = ""

    @property
    def text(self) -> str:
        """The parts as one text."""
        listed = (_section(CONSTRAINTS, self.constraints), _section(DECLARED, self.declared))
        return "\n".join([part for part in (self.sources, self.body, *listed, self.ledger) if part])


def one_item(text: str) -> str:
    """A text as one item: a list in it is indented, so that it is not taken for further items."""
    return text.replace(_ITEM, _NESTED)


def _section(heading: str, items: Iterable[str]) -> str:
    listed = _ITEM.join(items)
    return f"{heading}{_ITEM}{listed}" if listed else ""


def parts_of(text: str) -> Parts:
    """The parts of a summary that was put together here."""
    above = above_ledger(text)
    ledger = text[len(above) :].lstrip("\n")
    above, declared = _cut(above, DECLARED)
    body, constraints = _cut(above, CONSTRAINTS)
    sources = ""
    if body.startswith(SOURCES_HEAD):
        sources, _, body = body.partition("\n")
    return Parts(body, constraints, declared, ledger, sources)


def _cut(text: str, heading: str) -> tuple[str, tuple[str, ...]]:
    """What stands above a section that ends a text, and its items."""
    above, found, below = f"\n{text}".rpartition(f"\n{heading}{_ITEM}")
    return (above[1:], tuple(below.split(_ITEM))) if found else (text, ())


def parts_of_reply(text: str) -> Parts:
    """The parts of what a summarizer wrote: its constraints, one a line, wherever it put them.

    A ledger or declared constraints are not its business: what it repeats of them is left out.
    """
    body: list[str] = []
    constraints: list[str] = []
    section: str | None = None
    for line in plain(text).split("\n"):
        heading = _HEADING.match(line)
        if heading and line.lstrip()[:1] in ("#", "*"):
            section = "declared" if heading[1] else "told"
        elif section and _ANY_HEADING.match(line):
            section = None
            body.append(line)
        elif section is None:
            body.append(line)
        elif section == "told" and line.strip():
            constraints.append(line[_bullet(line) :].strip())
    return Parts("\n".join(body).strip(), tuple(filter(None, constraints)))


def _bullet(line: str) -> int:
    found = _BULLET.match(line)
    return found.end() if found else 0


def plain(text: str) -> str:
    """A text in which nothing is taken for a ledger or for the names of contexts."""
    if SOURCES_HEAD in text:
        text = text.replace(SOURCES_HEAD, "Attached contexts: ")
    return _LEDGER.sub(r"\1(values)", text) if LEDGER_HEAD.strip() in text else text


def without_headings(text: str) -> str:
    """A text in which nothing is taken for constraints or a ledger either."""
    if CONSTRAINTS in text or DECLARED in text:
        text = text.replace(CONSTRAINTS, CONSTRAINTS[1:]).replace(DECLARED, DECLARED[1:])
    return plain(text)
