"""The items that the entries leaving the window add to an outline."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import Final

from memman.compression.outline import call_line, outcome_of, sentences_of
from memman.compression.state_items import (
    ENDING,
    LONG,
    PASTED,
    PIECE,
    RULE,
    RULE_PIECE,
    SAID,
    SHORT,
    WAITING,
    Found,
)
from memman.compression.user_messages import exact_label, is_firm, pieces_of
from memman.compression.working_set import decoded, open_tasks, other_values, paths_of, used_values
from memman.display import LINE, line_of
from memman.entries import Entry, attributed, speaker_of
from memman.state import ARROW, KEEP, MESSAGES, TOLD, TYPED, Keeps, State, is_constraint

logger = logging.getLogger("memman")
_SHORT: Final = 400  # characters of a short message of the user
_WHOLE: Final = 1_000  # characters of a message of the user that is not divided
_EDGE: Final = 2  # pieces at the beginning and at the end of a longer one
# The weights of a path's first and of each further use: in a message of the user, and in a tool's result.
NAMED: Final = (1.0, 1.0)
LISTED: Final = (0.05, 0.05)
# A time of day has no use without the words around it.
_TIME: Final = re.compile(r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?")
_MOST_TEXTS: Final = 1_000  # of one entry, for a section of the caller's


def is_time(text: str) -> bool:
    """Return whether a value is a time of day."""
    return _TIME.fullmatch(text) is not None


class Fold:
    """The things of the outline before, and those of the entries that leave.

    Args:
        before: the outline so far.
        leaving: the entries that leave, in log order.
        told: the place of the newest entry that a model's summary of this compression covers, 0 without
        one.
            What was said and done up to there is in that summary; the user's words and values stay here.
    """

    def __init__(self, before: State | None, leaving: Sequence[Entry], told: int) -> None:
        # Messages that call tools: they do not end a turn.
        calling = {entry.message_id for entry in leaving if entry.type == "tool_call"}
        self._calling = calling - {None}
        pairs = pairwise(leaving)
        self._before_calls = {first.id for first, second in pairs if second.type == "tool_call"}
        self._told = told
        self._steps: dict[str, Found] = {}  # the newest call of each `call_id`
        self.found: dict[tuple[str, str], Found] = {}
        self.values: list[str] = []
        if before is not None:
            self._load(before)
        for entry in leaving:
            self._add(entry)

    def _load(self, before: State) -> None:
        """Add the items of the outline so far, without what a model's summary has now."""
        for item in before.items:
            if item.section in TOLD and item.seq <= self._told:
                continue
            ids = tuple(before.sources[n] for n in item.sources if before.sources[n])
            found = Found(item.section, item.key, item.text, ids, item.seq, item.score, item.part)
            self._put(found)
            if item.section == "did":
                self._steps[item.key] = found

    def _add(self, entry: Entry) -> None:
        """Add the items of an entry."""
        if entry.type == "summary":
            return
        values = other_values(entry.text)
        self.values += values
        if entry.type in ("tool_call", "tool_result") and entry.seq > self._told:
            self._add_step(entry)
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
        # The text of a short message has its values.
        typed = entry.type == "message" and entry.role in TYPED and len(entry.text) <= _WHOLE
        for value in () if typed else values:
            if ("value", value) not in self.found and value.isprintable() and not is_time(value):
                self._see("other", value, entry, 1.0)

    def _add_step(self, entry: Entry) -> None:
        """Add a call or its outcome: a result may leave the window before its call, and ids may repeat."""
        key, is_call = entry.call_id or entry.id, entry.type == "tool_call"
        step = self._steps.get(key)
        if step is None or (step.score != WAITING if is_call else ARROW in step.text):
            step = Found("did", key, line_of(entry.name or "tool"), (), entry.seq, WAITING)
        call, _, outcome = step.text.partition(ARROW)
        self.found.pop(_identity(step), None)
        if is_call:
            call, seq, score = call_line(entry).replace(ARROW, " "), entry.seq, 1.0
        else:
            outcome, seq, score = outcome_of(entry), step.seq, step.score
        step.step(f"{call}{ARROW}{outcome}" if outcome else call, seq, score, entry)
        self._steps[key] = step
        self._put(step)

    def _add_call(self, entry: Entry) -> None:
        arguments = decoded(entry)
        tasks = open_tasks(arguments)
        # A todo tool's texts too: the next call repeats them word for word.
        for value, weights in used_values(arguments).items():
            self._see("value", value, entry, *weights)
        if tasks is not None:
            key = line_of(entry.name or "")
            old = [at for at, item in self.found.items() if at[0] == "task" and item.key == key]
            for at in old:
                del self.found[at]
            for number, task in enumerate(tasks):
                self._put(Found("task", key, task, (entry.id,), entry.seq, 1.0, number))

    def _add_message(self, entry: Entry) -> None:
        text = entry.text.strip()
        if not text:
            return
        if is_constraint(entry):
            self._see("constraint", text, entry, 1.0)
        elif entry.role in TYPED:
            self._add_typed(entry, text)
        elif entry.seq > self._told:
            calls = entry.id in self._before_calls or entry.message_id in self._calling
            for part, sentence in sentences_of(text):
                self._put(_found("said", entry, sentence, SAID if calls else ENDING, part))

    def _add_typed(self, entry: Entry, text: str) -> None:
        """Add a message, whole or in pieces. `KEY: value` replaces an older one of its key."""
        pieces = pieces_of(text)
        labels = {label for piece in pieces if (label := exact_label(piece))}
        if labels:
            kind = entry.role, speaker_of(entry)
            said = [at for at, item in self.found.items() if (item.section, item.key) == kind]
            old = [at for at in said if exact_label(self.found[at].text) in labels]
            for at in old:
                del self.found[at]
        if text[0] == "<" and text[-1] == ">":  # a program's text in the user's place
            scores = [PASTED for _ in pieces]
        elif len(text) > _WHOLE:
            # Requests and rules mostly stand before or behind what was pasted.
            edges = (*pieces[:_EDGE], *pieces[len(pieces) - _EDGE :])
            scores = [RULE_PIECE if piece in edges or is_firm(piece) else PIECE for piece in pieces]
        else:
            rule = any(map(is_firm, pieces))
            score = RULE if rule else SHORT if len(text) <= _SHORT else LONG
            scores = [score for _ in pieces]
            if not labels:
                pieces = [text]
        parts = range(1, 1 + len(pieces)) if len(pieces) > 1 else (0,)
        for part, piece, score in zip(parts, pieces, scores, strict=False):
            self._put(_found(entry.role or "user", entry, piece, score, part))

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
        """Add a thing, at its newest place if it is there already."""
        at = _identity(found)
        if (old := self.found.pop(at, None)) is not None:
            found.merge(old)
        self.found[at] = found


def _found(section: str, entry: Entry, text: str, score: float, part: int) -> Found:
    return Found(section, speaker_of(entry), text, (entry.id,), entry.seq, score, part)


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
    return [line_of(text, 4 * LINE) for text in texts]


def _identity(found: Found) -> tuple[str, str]:
    match found.section:
        case "task":
            return "task", f"{found.part} {found.key}"
        case "user" | "system":
            return "user", f"{found.seq}.{found.part}"
        case "did":
            return "did", f"{found.seq} {found.key}"
        case section:
            return section, found.said if section in MESSAGES else found.key or found.text
