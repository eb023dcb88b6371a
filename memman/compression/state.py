"""Carrying the state block of a session forward through a compression.

The block is a fold of its earlier items and the items of the entries that leave the window. The sections
share the room; the others use the part that one leaves. Items without room stay in the fold, up to about
twice the size of the text, and may return when others leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from memman.compression.state_choice import WHOLE_SHARE, Choice, Shown
from memman.compression.state_fold import Fold
from memman.compression.state_items import Found, item_of
from memman.compression.working_set import other_values
from memman.entries import NOT_COUNTED, Entry, TokenCount
from memman.state import Keeps, State, StateItem

NO_KEEPS: Final[Keeps] = {}
LEAST_TOKENS: Final = 32  # of a text
_LEAST_ROOM: Final = 1_000  # characters: the items are kept for this room even if there is none now
_CHARS: Final = 3.4  # in a token, before anything is counted
_MOST_CHARS: Final = 12  # in a token, on average
_COUNTS: Final = 3  # of the whole text, at most while it is not yet full
_FULL: Final = 0.94  # of the room is near enough


def carry(
    before: State | None,
    leaving: Sequence[Entry],
    shown: Sequence[Entry],
    tokens: int,
    count: Callable[[str], TokenCount],
    keeps: Keeps = NO_KEEPS,
    memory: int = 0,
    recall: str = "",
) -> State | None:
    """Return the state block after a compression; None if there is nothing to carry forward.

    Args:
        before: the block so far.
        leaving: the entries that the compression takes out of the window or shortens, in full.
        shown: the entries of the window after it, with stubs and summaries.
        tokens: the most tokens of its text.
        count: counts the tokens of a text.
        keeps: sections of the caller's own.
        memory: the tokens of a text for which items are kept, if that is more than `tokens`.
        recall: the name of the agent's tool that returns the entries; "" if it has none.
    """
    fold = Fold(before)
    for entry in leaving:
        fold.add(entry)
    fold.add_kept(leaving, keeps)
    if not fold.found:
        return None
    view = Shown(shown)
    now = max((found.seq for found in fold.found.values()), default=0)
    room = _room(before, tokens)
    most = int(WHOLE_SHARE * max(tokens, LEAST_TOKENS * 8))

    def fits(text: str) -> bool:
        return _fits(text, most, count)

    choice = Choice(fold.found.values(), view, max(now, view.seq), room, fits)
    text, counted = _fitted(choice, tokens, count) if tokens >= LEAST_TOKENS else ("", NOT_COUNTED)
    items, sources = _packed(choice.kept(max(_LEAST_ROOM, int(max(tokens, memory) * _CHARS))))
    values = dict.fromkeys(fold.values)
    there = view.values.union(other_values(text))
    kept = sum(value in there for value in values)
    return State(text, counted, items, sources, len(values), kept, recall)


def _room(before: State | None, tokens: int) -> int:
    """Return about how many characters so many tokens have."""
    if before is not None and before.token_count.tokens > LEAST_TOKENS:
        return int(tokens * len(before.text) / before.token_count.tokens)
    return int(tokens * _CHARS)


def _fits(text: str, tokens: int, count: Callable[[str], TokenCount]) -> bool:
    """Return True if a text has at most so many tokens; it is counted only if that is in question."""
    if len(text) * 4 <= tokens:  # a token has at least a byte
        return True
    return len(text) <= tokens * _MOST_CHARS and count(text).tokens <= tokens


def _fitted(
    choice: Choice, tokens: int, count: Callable[[str], TokenCount]
) -> tuple[str, TokenCount]:
    """Choose things for so many tokens; return the text and its count."""
    room, least, most = choice.room, 0, 1 << 60
    best: tuple[str, TokenCount] = "", NOT_COUNTED
    chosen: dict[int, Found] = {}
    for turn in range(12):
        text = choice.choose(room)
        if not text:
            break
        counted = count(text)
        guess = int(min(room, len(text)) * tokens * 0.97 / max(1, counted.tokens))
        if counted.tokens <= tokens:
            best, chosen, least = (text, counted), choice.chosen, room
            if counted.tokens >= _FULL * tokens or len(text) < 0.9 * room:
                break
        else:
            most, guess = room, guess - 8
        room = min(most - 1, guess)
        if chosen and (turn >= _COUNTS or room <= least):
            break
    choice.settle(chosen)
    return best


def _packed(kept: Sequence[tuple[Found, bool]]) -> tuple[tuple[StateItem, ...], tuple[str, ...]]:
    """Return the items, and the table of ids that they refer to."""
    numbers: dict[str, int] = {}
    items = tuple(
        item_of(found, [numbers.setdefault(name, len(numbers)) for name in found.ids], shown)
        for found, shown in kept
    )
    return items, tuple(numbers)
