"""Dividing what is to be summarised into pieces that a summarizer can take in one call.

Exchanges stay whole where they fit; one that does not is divided between its entries, and an entry that
does not fit is split, after a line where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from memman.compression.material import shown
from memman.entries import Entry

_AROUND: Final = 12  # tokens: the number of an entry, who said it, indents, delimiters
_FULL: Final = 0.9  # of a window is filled: the session's counter need not be the summarizer's
_LATEST_BREAK: Final = 0.5  # of a piece: a line's end before that is not looked for


def chunked(exchanges: Sequence[Sequence[Entry]], tokens: int) -> list[list[Entry]]:
    """The entries in pieces that cost at most `tokens` tokens each, in order."""
    room = max(1, int(_FULL * tokens))
    every = [entry for exchange in exchanges for entry in exchange]
    # Nothing is shown at more than its count, so nearly every run is one piece without a closer look.
    if sum(entry.token_count.tokens + _AROUND for entry in every) <= room:
        return [every]
    chunks: list[list[Entry]] = []
    used = room + 1
    for unit in _units(exchanges, room):
        cost = sum(_cost(entry) for entry in unit)
        if used + cost > room:
            chunks.append([])
            used = 0
        chunks[-1] += unit
        used += cost
    return chunks


def _units(exchanges: Sequence[Sequence[Entry]], room: int) -> Iterator[Sequence[Entry]]:
    """What is not divided further: exchanges, entries, or pieces of entries."""
    for exchange in exchanges:
        if sum(_cost(entry) for entry in exchange) <= room:
            yield exchange
            continue
        for entry in exchange:
            if _cost(entry) <= room:
                yield (entry,)
            else:
                yield from ((piece,) for piece in _split(entry, room))


def _cost(entry: Entry) -> int:
    """The tokens of an entry as it is shown, by the count that it has."""
    tokens = entry.token_count.tokens
    if entry.type in ("tool_result", "context") and tokens:
        whole = len(entry.text)
        tokens = tokens * min(len(shown(entry)), whole) // max(whole, 1)
    return tokens + _AROUND


def _split(entry: Entry, room: int) -> Iterator[Entry]:
    """An entry as several, each with a piece of its text and of its count."""
    text = shown(entry)
    cost = _cost(entry)
    size = max(1, len(text) * max(1, room - _AROUND) // cost)
    while text:
        end = min(len(text), size)
        if end < len(text):
            line = text.rfind("\n", int(_LATEST_BREAK * size), size)
            end = line + 1 if line >= 0 else end
        tokens = max(1, cost * end // max(1, len(shown(entry))))
        count = msgspec.structs.replace(entry.token_count, tokens=tokens)
        yield msgspec.structs.replace(entry, content=text[:end], token_count=count)
        text = text[end:]
