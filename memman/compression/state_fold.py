"""The items that the entries leaving the window add to the state block."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from memman.compression.state_items import Found
from memman.compression.state_messages import TYPED
from memman.compression.user_messages import is_generic, is_rule, label_of, pieces_of, rule_key
from memman.compression.working_set import (
    LISTED,
    MOST,
    NAMED,
    decoded,
    is_noise,
    line_of,
    open_tasks,
    other_values,
    paths_of,
    used_values,
)
from memman.entries import Entry, attributed, speaker_of
from memman.state import KEEP, MESSAGES, Keeps, State, is_constraint

logger = logging.getLogger("memman")
_LABELLED: Final = 160  # characters of a labelled line of the assistant
_MOST_TEXTS: Final = 1_000  # of one entry, for a section of the caller's


class Fold:
    """The things of the block before, and those of the entries that leave."""

    def __init__(self, before: State | None) -> None:
        self.found: dict[tuple[str, str], Found] = {}
        self.values: list[str] = []
        if before is None:
            return
        whole = {item.seq for item in before.items if item.section == "user" and not item.part}
        for item in before.items:
            if item.part and item.section == "user" and item.seq in whole:
                continue
            ids = tuple(before.sources[n] for n in item.sources if before.sources[n])
            found = Found(item.section, item.key, item.text, ids, item.seq, item.score, item.part)
            self.found[_identity(found)] = found

    def add(self, entry: Entry) -> None:
        """Add the items of an entry to the block."""
        if entry.type == "summary":
            return
        values = other_values(entry.text)
        self.values += values
        if entry.type == "tool_call":
            self._add_call(entry)
        elif entry.type == "context":
            self._see("context", line_of(entry.name or ""), entry, 1.0)
        elif entry.type == "message":
            self._add_message(entry)
        if entry.type == "tool_result" or entry.role == "user":
            weights = NAMED if entry.role == "user" else LISTED
            for path in paths_of(entry.text):
                self._see("value", path, entry, *weights)
        # The pieces of a typed message have its values, unless newer ones replaced them.
        typed = entry.role == "user" and len(entry.text) <= TYPED
        for value in () if typed else values:
            if ("value", value) not in self.found and value.isprintable():
                self._see("other", value, entry, 0.05 if is_noise(value) else 1.0)

    def _add_call(self, entry: Entry) -> None:
        arguments = decoded(entry)
        # A todo tool's texts too: the next call repeats them word for word.
        for value, weights in used_values(arguments).items():
            self._see("value", value, entry, *weights)
        tasks = open_tasks(arguments)
        if tasks is not None:
            key = line_of(entry.name or "")
            self._drop(
                [at for at, item in self.found.items() if at[0] == "task" and item.key == key]
            )
            for number, task in enumerate(tasks):
                self._put(Found("task", key, task, (entry.id,), entry.seq, 1.0, number))

    def _add_message(self, entry: Entry) -> None:
        text = entry.text.strip()
        if not text:
            return
        if is_constraint(entry):
            self._see("constraint", text, entry, 1.0)
        elif entry.role == "user":
            self._see("user", text, entry, 1.0)
        else:
            self._add_lines(entry, text)

    def _add_lines(self, entry: Entry, text: str) -> None:
        """Add the rules of a system message, or the labelled lines of the assistant."""
        system = entry.role == "system"
        for piece in pieces_of(text):
            if is_rule(piece) or label_of(piece) if system else is_generic(piece):
                line = line_of(piece, _LABELLED)
                key = rule_key(line)
                section = "rule" if system else "note"
                self._drop([(section, key)] if (section, key) in self.found else [])
                self._put(Found(section, key, line, (entry.id,), entry.seq, 1.0))

    def add_kept(self, leaving: Sequence[Entry], keeps: Keeps) -> None:
        """Add the texts of the caller's own sections."""
        for title, texts_of in keeps.items():
            failed = False
            for entry in leaving:
                try:
                    texts = _texts(texts_of(entry))
                except Exception:
                    if not failed:
                        logger.exception("keeps[%r] failed for entry %s", title, entry.id)
                    failed = True
                    continue
                for text in filter(None, texts):
                    self._see(KEEP + line_of(title), text, entry, 1.0)

    def _see(
        self, section: str, text: str, entry: Entry, weight: float, again: float | None = None
    ) -> None:
        """Add a text, or count it again."""
        if not text:
            return
        speaker = speaker_of(entry) if section in MESSAGES else ""
        found = self.found.get((section, attributed(speaker, text)))
        if found is not None:
            found.see(entry, weight if again is None else again)
            return
        found = Found(section, speaker, text, (entry.id,), entry.seq, weight)
        other = self.found.pop(("other", text), None) if section == "value" else None
        if other is not None:
            other.see(entry, weight)
            found = Found(section, "", text, other.ids, other.seq, other.score)
        self._put(found)

    def _put(self, found: Found) -> None:
        self.found[_identity(found)] = found

    def _drop(self, identities: Iterable[tuple[str, str]]) -> None:
        for identity in identities:
            del self.found[identity]


def _texts(answer: object) -> list[str]:
    """Return the texts that a function of `keeps` returned: a text, several, or None for none."""
    if answer is None:
        return []
    if isinstance(answer, str):
        answer = (answer,)
    if not isinstance(answer, Iterable):
        raise TypeError(f"it returned {type(answer).__name__}, not texts")
    texts = list(islice(answer, _MOST_TEXTS))
    if wrong := next((text for text in texts if not isinstance(text, str)), None):
        raise TypeError(f"it returned {type(wrong).__name__}, not a text")
    return [line_of(text, 4 * MOST) for text in texts]


def _identity(found: Found) -> tuple[str, str]:
    if found.section == "task":
        return found.section, f"{found.part} {found.key}"
    if found.part:
        return found.section, f"\0{found.seq}.{found.part}"
    return found.section, found.said if found.section in MESSAGES else found.key or found.text
