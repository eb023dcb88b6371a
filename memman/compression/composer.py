"""The entry of a summary, made of a model's reply, within its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from memman.compression.view import EntryFactory
from memman.entries import Entry
from memman.summary_metadata import summary_draft

SMALLEST_SUMMARY: Final = 16  # tokens: a smaller summary conveys nothing
_CUT: Final = " [...]"
_NEAR: Final = 0.97  # share of the allowed tokens to aim at


class Composer:
    """Makes summaries of some entries.

    `replaced` are the tokens of the entries. `recall` is the name of the agent's tool that returns them.
    `keep` are texts that stand in the summary: behind the reply if that lacks them.
    """

    def __init__(
        self,
        originals: Sequence[Entry],
        make_entry: EntryFactory,
        recall: str = "",
        keep: Sequence[str] = (),
    ) -> None:
        self._keep = keep
        self._make_entry = make_entry
        self._draft = summary_draft("", originals, recall)
        self.replaced = sum(entry.token_count.tokens for entry in originals)

    def of_part(self, originals: Sequence[Entry]) -> Composer:
        """Return a composer for a part that goes into another summary."""
        return Composer(originals, self._make_entry)

    def entry(self, text: str) -> Entry:
        """Return a summary with this text, and the texts to keep that it lacks."""
        content = "\n".join((text, *(each for each in self._keep if each not in text)))
        return self._make_entry(msgspec.structs.replace(self._draft, content=content))

    def clipped(self, text: str, cap: int) -> Entry:
        """Return the summary with the beginning of a reply that fits."""
        room, made = len(text), self.entry(text)
        while made.token_count.tokens > cap and room:
            room = min(room - 1, int(room * _NEAR * cap / made.token_count.tokens))
            made = self.entry(_beginning(text, room))
        return made


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
