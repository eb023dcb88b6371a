"""The entry of a summary: its text, with constraints and key facts below it, within its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from memman.compression.digest import digest, longest
from memman.compression.key_facts import key_facts
from memman.compression.prompt import KEY_FACTS_SHARE
from memman.compression.summary_parts import (
    NOTHING_CARRIED,
    SOURCES_HEAD,
    Carried,
    Parts,
    carried,
    constraints_of,
    parts_of_reply,
)
from memman.compression.view import EntryFactory
from memman.entries import Entry
from memman.summary_metadata import stats_of, summary_draft

SMALLEST_SUMMARY: Final = 16  # tokens: a smaller summary conveys nothing
_CHARS_A_TOKEN: Final = 2  # of key facts, which are dense
_SOURCES_SHARE: Final = 0.2  # of a summary's tokens, at most
_CUT: Final = " [...]"


class Composer:
    """Makes summaries of some entries, each of at most a given number of tokens.

    `forgotten` are the constraints listed by models that the last summary had no room for; `replaced` are
    the tokens of the entries. A `bare` composer adds nothing to the text.
    """

    def __init__(
        self, originals: Sequence[Entry], make_entry: EntryFactory, bare: bool = False
    ) -> None:
        self._originals = originals
        self._constraints = None if bare else constraints_of(originals)
        self._listed: dict[str, None] = {}
        self._make_entry = make_entry
        self._draft = summary_draft("", originals)
        self._attached = () if bare else stats_of(originals).sources
        self.forgotten: tuple[str, ...] = ()
        self.replaced = sum(entry.token_count.tokens for entry in originals)

    def of_part(self, originals: Sequence[Entry]) -> Composer:
        """Return a bare composer for a part that goes into another summary."""
        return Composer(originals, self._make_entry, bare=True)

    def add_constraints_of(self, part: str) -> None:
        """Keep the constraints that the summary of a part lists."""
        self._listed.update(dict.fromkeys(parts_of_reply(part).constraints))

    def entry(self, text: str) -> Entry:
        """Return a summary with exactly this text."""
        return self._make_entry(msgspec.structs.replace(self._draft, content=text))

    def left_out(self, cap: int) -> tuple[str, ...]:
        """Return the declared constraints that do not fit a summary of `cap` tokens."""
        return self._below((), cap).left_out

    def fitted(self, text: str, cap: int) -> Entry | int:
        """Return the summary made of a reply, or the reply's tokens if they are too many.

        Constraints get their room first, key facts only the room that the reply leaves.
        """
        if self._constraints is None:
            made = self.entry(text)
            return made if made.token_count.tokens <= cap else made.token_count.tokens
        parts = self._parts(text, cap)
        full = self.entry(parts.text)
        if full.token_count.tokens <= cap:
            return full
        bare = msgspec.structs.replace(parts, key_facts="")
        plain = self.entry(bare.text) if parts.key_facts else full
        if plain.token_count.tokens <= cap:
            return self._with_fewer_facts(parts, plain, cap)
        if not (parts.constraints or parts.declared or parts.sources):
            return plain.token_count.tokens
        alone = self._count(text)
        return alone if alone > cap else self.clipped(text, cap)

    def clipped(self, text: str, cap: int) -> Entry:
        """Return the summary with as much of a reply's beginning as fits."""
        parts = Parts(text) if self._constraints is None else self._parts(text, cap)
        body, parts = parts.body, msgspec.structs.replace(parts, body="")
        if self._count(parts.text) > cap:
            parts = msgspec.structs.replace(parts, key_facts="")

        def cut(room: int) -> str:
            return msgspec.structs.replace(parts, body=_beginning(body, room)).text

        return self.entry(longest(cap, self._count, cut, parts.text))

    def digest(self, cap: int) -> Entry:
        """Return the summary that is written without a model."""
        below = self._below((), cap)
        self.forgotten = below.forgotten
        text = digest(self._originals, cap, self._count, below, self._sources(cap))
        return self.entry(text or f"[{len(self._originals)} earlier entries]")

    def _parts(self, text: str, cap: int) -> Parts:
        reply = parts_of_reply(text)
        below = self._below(reply.constraints, cap)
        self.forgotten = below.forgotten
        room = int(KEY_FACTS_SHARE * cap) * _CHARS_A_TOKEN
        sources = self._sources(cap)
        facts = key_facts(self._originals, room, (*below.declared, sources))
        return Parts(reply.body, below.constraints, below.declared, facts, sources)

    def _sources(self, cap: int) -> str:
        """Return the line with the attached contexts, only the newest if not all fit."""
        attached = list(self._attached)
        while attached:
            line = SOURCES_HEAD + "; ".join(f"#{number}: {name}" for number, name in attached)
            if self._count(line) <= _SOURCES_SHARE * cap:
                return line
            del attached[: -(-len(attached) // 4)]
        return ""

    def _with_fewer_facts(self, parts: Parts, plain: Entry, cap: int) -> Entry:
        room = (cap - plain.token_count.tokens) * _CHARS_A_TOKEN
        facts = key_facts(self._originals, room, (*parts.declared, parts.sources))
        if not facts:
            return plain
        made = self.entry(msgspec.structs.replace(parts, key_facts=facts).text)
        return made if made.token_count.tokens <= cap else plain

    def _below(self, listed: Sequence[str], cap: int) -> Carried:
        if self._constraints is None:
            return NOTHING_CARRIED
        every = (*self._listed, *listed)
        sources = self._sources(cap)
        room = cap - SMALLEST_SUMMARY - (self._count(sources) if sources else 0)
        return carried(self._constraints, every, room, self._count)

    def _count(self, text: str) -> int:
        return self.entry(text).token_count.tokens


def _beginning(text: str, room: int) -> str:
    """Return the beginning of a text with a mark of the cut, if possible after a line or a word."""
    if len(text) <= room:
        return text
    kept = text[: max(0, room - len(_CUT))]
    for end in ("\n", " "):
        at = kept.rfind(end, len(kept) * 3 // 4)
        if at > 0:
            kept = kept[:at]
            break
    return f"{kept.rstrip()}{_CUT}" if kept else ""
