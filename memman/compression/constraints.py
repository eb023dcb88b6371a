"""Constraints: what must or must not be done, carried word for word from summary to summary.

A caller declares one with `metadata={"constraint": True}` on an added entry; a summarizer tells others in
its section. That none is lost does not rest on what a model was asked: what a new summary lacks is put
back here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from memman.compression.layout import Parts, one_item, parts_of, plain
from memman.entries import NO_JSON, Entry

_KEY: Final = "constraint"
_SHARE: Final = 0.5  # of the room that declared ones leave may be constraints that a model told
_HEADING: Final = 8  # tokens, at most
_BULLET: Final = 2

CountText = Callable[[str], int]


class Carried(msgspec.Struct, frozen=True):
    """What goes below a summary, and what there was no room for: declared constraints (`left_out`), and
    those that models told (`forgotten`).
    """

    constraints: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()


NOTHING_CARRIED: Final = Carried()


def is_declared(entry: Entry) -> bool:
    """Whether the caller declared an added entry to be a constraint."""
    return entry.metadata_json is not NO_JSON and entry.metadata.get(_KEY) is True


class Constraints(msgspec.Struct, frozen=True):
    """What entries declare, and what earlier summaries among them told; each once, in order."""

    declared: tuple[str, ...]
    told: tuple[str, ...]


def carried(before: Constraints, told: Sequence[str], tokens: int, count: CountText) -> Carried:
    """The constraints of what a summary replaces, and those `told` by the new one.

    Together at most `tokens` tokens, as `count` sees them: declared ones first, then the oldest.
    """
    declared = before.declared
    others = dict.fromkeys((*before.told, *told))
    if not (declared or others):
        return NOTHING_CARRIED
    kept, left = _fitting(declared, tokens, count)
    more = [item for item in others if item not in declared]
    below, _ = _fitting(more, int(left * _SHARE), count)
    while (kept or below) and count(Parts("", tuple(below), tuple(kept)).text) > tokens:
        (below or kept).pop()  # a counter may count the whole higher than its parts
    lost = tuple(item for item in declared if item not in kept)
    forgotten = tuple(item for item in more if item not in below)
    return Carried(tuple(below), tuple(kept), lost, forgotten)


def constraints_of(entries: Sequence[Entry]) -> Constraints:
    """The constraints that entries declare, and those that stand in earlier summaries."""
    declared: dict[str, None] = {}
    told: dict[str, None] = {}
    for entry in entries:
        if entry.type == "summary":
            parts = parts_of(entry.text)
            declared.update(dict.fromkeys(parts.declared))
            told.update(dict.fromkeys(parts.constraints))
        elif is_declared(entry) and (text := entry.text.strip()):
            declared[one_item(plain(text))] = None
    return Constraints(tuple(declared), tuple(told))


def _fitting(items: Sequence[str], tokens: int, count: CountText) -> tuple[list[str], int]:
    """The items that fit, each counted once, and the tokens that they leave."""
    kept: list[str] = []
    left = tokens - _HEADING
    for item in items:
        cost = count(item) + _BULLET
        if cost <= left:
            kept.append(item)
            left -= cost
    return kept, left if kept else tokens
