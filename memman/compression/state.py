"""Carrying the outline of a session forward through a compression.

The outline is a fold of its earlier items and the items of the entries that leave the window. Items without
room stay in the fold, up to about twice the size of the text, and may return when others leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from memman.compression.state_choice import Choice, Shown
from memman.compression.state_fold import Fold
from memman.compression.state_items import Found, item_of
from memman.compression.working_set import other_values
from memman.entries import NOT_COUNTED, Entry, TokenCount
from memman.state import NOTHING_COVERED, Keeps, State, StateItem, state_text

NO_KEEPS: Final[Keeps] = {}
LEAST_TOKENS: Final = 32  # of a text
_LEAST_ROOM: Final = 1_000  # characters: the items are kept for this room even if there is none now
_CHARS: Final = 3.4  # in a token, before anything is counted
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
    told: int = 0,
) -> State | None:
    """Return the outline after a compression; None if there is nothing to carry forward.

    Args:
        before: the outline so far.
        leaving: the entries that the compression takes out of the window or shortens, in full and in order.
        shown: the entries of the window after it, with stubs and summaries.
        tokens: the most tokens of its text.
        count: counts the tokens of a text.
        keeps: sections of the caller's own.
        memory: the tokens of a text for which items are kept, if that is more than `tokens`.
        recall: the name of the agent's tool that returns the entries; "" if it has none.
        told: the place of the newest entry that a model's summary of this compression covers; 0 without
        one.
    """
    fold = Fold(before, leaving, told)
    fold.add_kept(leaving, keeps)
    if not fold.found:
        return None
    covered = NOTHING_COVERED if before is None else before.covered
    covered = covered and covered.plus(leaving)
    state = State("", NOT_COUNTED, (), recall=recall, covered=covered)
    view = Shown(shown)
    room = _room(before, tokens)
    choice = Choice(fold.found.values(), view)
    chosen: list[Found] = []
    if tokens >= LEAST_TOKENS:
        state, chosen = _fitted(state, choice, room, tokens, count)
    kept = choice.kept(max(_LEAST_ROOM, int(max(tokens, memory) * _CHARS)), chosen)
    in_text = set(map(id, chosen))
    numbers: dict[str, int] = {}  # the table of ids that the items refer to
    items: list[StateItem] = []
    for found in kept:
        sources = [numbers.setdefault(name, len(numbers)) for name in found.ids]
        items.append(item_of(found, sources, id(found) in in_text))
    values = dict.fromkeys(fold.values)
    there = view.values.union(other_values(state.text), (found.text for found in chosen))
    return msgspec.structs.replace(
        state,
        items=tuple(items),
        sources=tuple(numbers),
        values=len(values),
        kept=sum(value in there for value in values),
    )


def _room(before: State | None, tokens: int) -> int:
    """Return about how many characters so many tokens have."""
    if before is not None and before.token_count.tokens > LEAST_TOKENS:
        return int(tokens * len(before.text) / before.token_count.tokens)
    return int(tokens * _CHARS)


def _fitted(
    state: State, choice: Choice, room: int, tokens: int, count: Callable[[str], TokenCount]
) -> tuple[State, list[Found]]:
    """Choose things for so many tokens; return the outline with its text and count, and these things."""
    least, most = 0, 1 << 60
    best: list[Found] = []
    for turn in range(12):
        chosen = choice.choose(room)
        text = state_text((item_of(item, (), True) for item in chosen), state.covered)
        if not text:
            break
        counted = count(text)
        guess = int(min(room, len(text)) * tokens * 0.97 / max(1, counted.tokens))
        if counted.tokens <= tokens:
            state = msgspec.structs.replace(state, text=text, token_count=counted)
            best, least = chosen, room
            if counted.tokens >= _FULL * tokens or len(text) < 0.9 * room:
                break
        else:
            most, guess = room, guess - 8
        room = min(most - 1, guess)
        if best and (turn >= _COUNTS or room <= least):
            break
    return state, best
