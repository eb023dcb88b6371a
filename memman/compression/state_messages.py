"""The user's messages in the state block when not all of them fit: their pieces, by rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from memman.compression.state_items import Found, cost_of
from memman.compression.user_messages import ASKED, is_rule, label_of, pieces_of, superseded

_FIRST_SHARE: Final = 0.3  # of the room of the user's messages, for the first one
TYPED: Final = 2_000  # characters: a longer message is pasted, or a tool's output


def split_messages(users: Iterable[Found]) -> list[Found]:
    """Divide messages into pieces."""
    found: list[Found] = []
    for item in users:
        if item.part:
            found.append(item)
            continue
        pieces = pieces_of(item.text)
        # Many lines of a pasted text look like rules, so they come after those of typed messages.
        weight = 1.0 if len(item.text) <= TYPED else 0.3
        for part, piece in enumerate(pieces, 1):
            number = part if len(pieces) > 1 else 0
            found.append(
                Found("user", item.key, piece, item.ids, item.seq, weight * _rank(piece), number)
            )
    return found


def _rank(piece: str) -> float:
    if is_rule(piece):
        return 3.0
    if label_of(piece):
        return 2.0
    return 0.0 if piece.rstrip().endswith(ASKED) else 1.0


def ranked_messages(items: Iterable[Found], room: float) -> list[Found]:
    """Return pieces of messages, the most valuable first.

    The first message comes before the others, as far as it fits its share; then rules, labelled lines,
    other statements and questions, of each the newest first. Of equal pieces, and of values of one label,
    only the newest is left.
    """
    in_time = sorted(items, key=lambda item: (item.seq, item.part))
    newest = {item.said.strip(): item for item in in_time}
    in_time = sorted(newest.values(), key=lambda item: (item.seq, item.part))
    old = superseded([(item.key, item.text.strip()) for item in in_time])
    left = [item for number, item in enumerate(in_time) if number not in old]
    left.sort(key=lambda item: (-item.score, -item.seq, item.part))
    oldest = min((item.seq for item in left), default=0)
    first: list[Found] = []
    room *= _FIRST_SHARE
    for item in left:
        if item.seq == oldest and cost_of(item) <= room:
            room -= cost_of(item)
            first.append(item)
    known = set(map(id, first))
    return first + [item for item in left if id(item) not in known]
