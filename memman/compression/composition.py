"""Making the entry of a summary: what was written, and below it what no model is trusted to keep.

Constraints stand there word for word and exact values in a ledger, within the tokens that the summary may
have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from memman.compression.constraints import NOTHING_CARRIED, Carried, carried, constraints_of
from memman.compression.coverage import glance_of, summary_draft
from memman.compression.digest import digest, longest
from memman.compression.layout import SOURCES_HEAD, Parts, parts_of_reply
from memman.compression.ledger import ledger
from memman.compression.prompts import LEDGER_SHARE
from memman.compression.view import EntryFactory
from memman.entries import Entry

SMALLEST_SUMMARY: Final = 16  # tokens: with less room than this a summary says nothing
_CHARS_A_TOKEN: Final = 2  # of exact values, which are dense
_SOURCES_SHARE: Final = 0.2  # of a summary's tokens, at most
_CUT: Final = " [...]"


class Composer:
    """Makes summaries of some entries, each of at most so many tokens."""

    def __init__(
        self, originals: Sequence[Entry], make_entry: EntryFactory, bare: bool = False
    ) -> None:
        self._originals = originals
        self._constraints = None if bare else constraints_of(originals)
        self._told: dict[str, None] = {}
        self._craft = make_entry
        self._draft = summary_draft("", originals)
        self._attached = () if bare else glance_of(originals).sources
        self.forgotten: tuple[
            str, ...
        ] = ()  # constraints told by models that the summary had no room for
        self.replaced = sum(entry.token_count.tokens for entry in originals)

    def of_part(self, originals: Sequence[Entry]) -> Composer:
        """One for a part that goes into another summary: nothing is put below it."""
        return Composer(originals, self._craft, bare=True)

    def hear(self, part: str) -> None:
        """Takes note of the constraints that the summary of a part tells."""
        self._told.update(dict.fromkeys(parts_of_reply(part).constraints))

    def entry(self, text: str) -> Entry:
        """The summary of this text."""
        return self._craft(msgspec.structs.replace(self._draft, content=text))

    def left_out(self, cap: int) -> tuple[str, ...]:
        """The declared constraints that a summary of `cap` tokens has no room for."""
        return self._below((), cap).left_out

    def fitted(self, text: str, cap: int) -> Entry | int:
        """The summary that a reply makes, or the reply's tokens where they are too many.

        Exact values only take what room the reply leaves; constraints have their room first.
        """
        if self._constraints is None:
            made = self.entry(text)
            return made if made.token_count.tokens <= cap else made.token_count.tokens
        parts = self._parts(text, cap)
        full = self.entry(parts.text)
        if full.token_count.tokens <= cap:
            return full
        plain = self.entry(msgspec.structs.replace(parts, ledger="").text) if parts.ledger else full
        if plain.token_count.tokens <= cap:
            return self._with_fewer_values(parts, plain, cap)
        if not (parts.constraints or parts.declared or parts.sources):
            return plain.token_count.tokens
        alone = self._count(text)
        return alone if alone > cap else self.clipped(text, cap)

    def clipped(self, text: str, cap: int) -> Entry:
        """The summary with so much of a reply's beginning as there is room for."""
        parts = Parts(text) if self._constraints is None else self._parts(text, cap)
        body, parts = parts.body, msgspec.structs.replace(parts, body="")
        if self._count(parts.text) > cap:
            parts = msgspec.structs.replace(parts, ledger="")

        def cut(room: int) -> str:
            return msgspec.structs.replace(parts, body=_beginning(body, room)).text

        return self.entry(longest(cap, self._count, cut, parts.text))

    def digest(self, cap: int) -> Entry:
        """What can be said without a model."""
        below = self._below((), cap)
        self.forgotten = below.forgotten
        text = digest(self._originals, cap, self._count, below, self._sources(cap))
        return self.entry(text or f"[{len(self._originals)} earlier entries]")

    def _parts(self, text: str, cap: int) -> Parts:
        told = parts_of_reply(text)
        below = self._below(told.constraints, cap)
        self.forgotten = below.forgotten
        room = int(LEDGER_SHARE * cap) * _CHARS_A_TOKEN
        sources = self._sources(cap)
        values = ledger(self._originals, room, (*below.declared, sources))
        return Parts(told.body, below.constraints, below.declared, values, sources)

    def _sources(self, cap: int) -> str:
        """The line that names the attached contexts, the newest of them if not all have room."""
        attached = list(self._attached)
        while attached:
            line = SOURCES_HEAD + "; ".join([f"#{number}: {name}" for number, name in attached])
            if self._count(line) <= _SOURCES_SHARE * cap:
                return line
            del attached[: -(-len(attached) // 4)]
        return ""

    def _with_fewer_values(self, parts: Parts, plain: Entry, cap: int) -> Entry:
        room = (cap - plain.token_count.tokens) * _CHARS_A_TOKEN
        values = ledger(self._originals, room, (*parts.declared, parts.sources))
        if not values:
            return plain
        made = self.entry(msgspec.structs.replace(parts, ledger=values).text)
        return made if made.token_count.tokens <= cap else plain

    def _below(self, told: Sequence[str], cap: int) -> Carried:
        if self._constraints is None:
            return NOTHING_CARRIED
        every = (*self._told, *told)
        sources = self._sources(cap)
        room = cap - SMALLEST_SUMMARY - (self._count(sources) if sources else 0)
        return carried(self._constraints, every, room, self._count)

    def _count(self, text: str) -> int:
        return self.entry(text).token_count.tokens


def _beginning(text: str, room: int) -> str:
    """The beginning of a text that says that it was cut, after a line or a word where there is one."""
    if len(text) <= room:
        return text
    kept = text[: max(0, room - len(_CUT))]
    for end in ("\n", " "):
        at = kept.rfind(end, len(kept) * 3 // 4)
        if at > 0:
            kept = kept[:at]
            break
    return f"{kept.rstrip()}{_CUT}" if kept else ""
