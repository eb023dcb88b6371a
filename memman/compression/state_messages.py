"""The user's messages in the state block when not all of them fit: their pieces, by rank."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Final

from memman.compression.state_items import Found, cost_of
from memman.compression.updates import superseded
from memman.compression.user_messages import (
    frequent_labels,
    is_rule,
    label_of,
    pieces_of,
    worths,
)
from memman.compression.words import words_of
from memman.compression.working_set import other_values

_NUMBERS: Final = re.compile(r"\d+")
_CANDIDATES: Final = 6.0  # times the share of the user's messages, of pieces to choose from
_FIRST_SHARE: Final = 0.3  # of the room of the user's messages, for the first one
_NEWEST_SHARE: Final = 0.35


def split_messages(users: Iterable[Found]) -> list[Found]:
    """Divide messages into pieces."""
    parted: list[Found] = []
    fresh: list[Found] = []
    for item in users:
        if item.part:
            parted.append(item)
            continue
        pieces = pieces_of(item.text)
        damped = 1 / sqrt(1 + len(pieces) / 20)  # a pasted text has many lines that look like rules
        for part, piece in enumerate(pieces, 1):
            fresh.append(
                Found("user", "", piece, item.ids, item.seq, damped, part if len(pieces) > 1 else 0)
            )
    scores = worths(
        [item.text for item in fresh],
        [words_of(item.text) for item in fresh],
        [words_of(item.text) for item in parted],
    )
    for item, score in zip(fresh, scores, strict=True):
        item.scale(score)
    return parted + fresh


def ranked_messages(items: Iterable[Found], room: float) -> list[Found]:
    """Return pieces of messages, the most valuable first.

    The first message and the newest ones come before the others, as far as they fit their shares. Of
    equal pieces only one is left, of rules about the same thing the newest. Pieces that differ in numbers
    alone, as "What is on day 4?", are worth less each time.
    """
    messages: dict[int, list[Found]] = {}
    for item in sorted(items, key=lambda item: (item.seq, item.part)):
        messages.setdefault(item.seq, []).append(item)
    ranked = _within(next(iter(messages.values()), []), room * _FIRST_SHARE)
    known = set(map(id, ranked))
    left = room * _NEWEST_SHARE
    times: Counter[str] = Counter()
    repeated: dict[int, int] = {}  # by id() of a piece: how many newer ones differ in numbers alone
    for pieces in reversed(messages.values()):
        for item in pieces:
            template = _NUMBERS.sub("#", item.text.strip())
            repeated[id(item)] = times[template]
            times[template] += 1
        if left < 0 or all(repeated[id(item)] for item in pieces):
            continue
        left -= sum(map(cost_of, pieces))
        if left >= 0:
            ranked += [item for item in pieces if id(item) not in known]
    known = set(map(id, ranked))
    others = [item for pieces in messages.values() for item in pieces if id(item) not in known]
    others.sort(key=lambda item: (-item.score / (1 + repeated[id(item)]), -item.seq, item.part))
    return _distinct(ranked, _most(others, _CANDIDATES * room))


def _most(pieces: list[Found], room: float) -> list[Found]:
    """Return the first pieces, as many as a room may have."""
    for number, item in enumerate(pieces):
        room -= cost_of(item)
        if room < 0:
            return pieces[:number]
    return pieces


def _within(pieces: list[Found], room: float) -> list[Found]:
    """Return the best pieces that fit a room; all if they do."""
    best: list[Found] = []
    for item in sorted(pieces, key=lambda item: (-item.score, item.part)):
        room -= cost_of(item)
        if room >= 0:
            best.append(item)
    return best


def _distinct(first: list[Found], others: Sequence[Found]) -> list[Found]:
    """Return the pieces without repeated ones, and without statements that newer ones replace.

    The messages that come first stay whole; one that is a single statement may be replaced.
    """
    seen = {item.text.strip() for item in first}
    left: list[Found] = []
    for item in others:
        text = item.text.strip()
        if text not in seen:
            seen.add(text)
            left.append(item)
    in_time = sorted((*first, *left), key=lambda item: (item.seq, item.part))
    texts = [item.text.strip() for item in in_time]
    old = superseded(texts, [words_of(text) for text in texts])
    speakers = frequent_labels(texts)
    gone = {id(in_time[number]) for number in old if _states(texts[number], speakers)}
    first = [item for item in first if item.part or id(item) not in gone]
    return first + [item for item in left if id(item) not in gone]


def _states(text: str, speakers: frozenset[str]) -> bool:
    """Return True if a piece states something that can change: it has a label, a value or a rule."""
    label = label_of(text)
    if label in speakers:
        return False
    return bool(label) or is_rule(text) or bool(other_values(text))
