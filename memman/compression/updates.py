"""Statements that a later one replaces: "We ship in May." after "The release is planned for April."

A later statement replaces an earlier one if it announces a change (it has a word such as "now", "moved",
"instead", "no longer", in one of the languages listed) and shares a subject with it, or if both have the
same label or the same words around one number. No grammar is used. Statements that only look alike both
stay.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from math import log
from pathlib import Path
from typing import Final

from memman.compression.user_messages import is_generic, is_rule, rule_key
from memman.compression.words import words_of

_LEAST_ALIKE: Final = 0.05  # the common share of two statements with one subject, by weight
_LEAST_ALIKE_UNLABELLED: Final = 0.25  # if the earlier one has no label such as `RULE:`
_MOST_WORDS: Final = 24  # of a statement: a longer text is no update
_MOST_HAVING: Final = 25  # statements with a word: more have no subject in common
_PRECISION: Final = 2**20
_STEM: Final = 6  # characters of a word that count
_LABEL_END: Final = re.compile("[:\uff1a]")
_TOKEN: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)?")


@cache
def _update_words() -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """Return words of updates, and parts of texts: of two words, and the others, which are not ASCII."""
    path = Path(__file__).parent / "update_words.txt"
    every = path.read_bytes().decode().splitlines()
    apart = [word for word in every if " " in word or word[0] >= "\u0e00"]
    plain = tuple(filter(str.isascii, apart))
    return frozenset(every) - frozenset(apart), plain, tuple(set(apart).difference(plain))


def is_update(text: str) -> bool:
    """Return True if a statement announces a change."""
    words, plain, others = _update_words()
    lower = text.lower()
    if not words.isdisjoint(_TOKEN.findall(lower)) or any(part in lower for part in plain):
        return True
    return not lower.isascii() and any(part in lower for part in others)


def superseded(statements: Sequence[str], words: Sequence[frozenset[str]]) -> set[int]:
    """Return the indexes of statements that later ones replace; `words` has the words of each."""
    newest: dict[str, int] = {}
    replaced: set[int] = set()
    for number, statement in enumerate(statements):
        key = rule_key(statement)
        if key in newest:
            replaced.add(newest[key])
        newest[key] = number
    return replaced | _updated(statements, words, replaced)


def _updated(
    statements: Sequence[str], words: Sequence[frozenset[str]], gone: set[int]
) -> set[int]:
    """Return the statements that others update, each update at most one: the likeliest pairs first."""
    updates = [
        number for number, text in enumerate(statements) if number not in gone and is_update(text)
    ]
    if not updates:
        return set()
    words = list(map(_subject_words, statements, words))
    having: defaultdict[str, list[int]] = defaultdict(list)
    for number, each in enumerate(words):
        if number not in gone:
            for word in each:
                having[word].append(number)
    weight = {word: _weight(len(statements) / len(found)) for word, found in having.items()}
    total = [sum(weight.get(word, 0) for word in each) for each in words]
    pairs: list[tuple[float, int, int]] = []
    for number in updates:
        both: Counter[int] = Counter()
        for word in words[number] if len(words[number]) <= _MOST_WORDS else ():
            if len(having[word]) <= _MOST_HAVING:
                both.update(dict.fromkeys(having[word], weight[word]))
        for other, common in both.items():
            alike = common / (total[number] + total[other] - common)
            if other < number and alike >= _least_alike(statements[other], statements[number]):
                pairs.append((alike, number, other))
    return _best(pairs)


def _weight(rarity: float) -> int:
    """Return the weight of a word: a whole number, so that sums do not depend on their order."""
    return round(_PRECISION * log(1 + rarity))


def _least_alike(earlier: str, later: str) -> float:
    if is_generic(earlier):
        return _LEAST_ALIKE
    # A request such as "show me the orders now" does not replace a rule about orders.
    return 2.0 if is_rule(earlier) and not is_rule(later) else _LEAST_ALIKE_UNLABELLED


def _best(pairs: Iterable[tuple[float, int, int]]) -> set[int]:
    """Return the second of each pair, the best pairs first, and each number in one pair at most."""
    paired: set[int] = set()
    found: set[int] = set()
    for _, number, other in sorted(pairs, reverse=True):
        if number not in found and other not in paired:
            found.add(number)
            paired.add(other)
    return paired


def _subject_words(statement: str, words: frozenset[str]) -> frozenset[str]:
    """Return the beginnings of the content words of a statement, without a label such as `FACT:`."""
    if is_generic(statement):
        words = words_of(_LABEL_END.split(statement, maxsplit=1)[-1])
    return frozenset([word[:_STEM] for word in words - _update_words()[0]])
