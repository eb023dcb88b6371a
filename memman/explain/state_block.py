"""The outline of a window, for people."""

from __future__ import annotations

import msgspec

from memman.state import State, title_of
from memman.window import Window


class StateBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The outline in a window.

    `seq` is the record that it was last rebuilt by. `sections` counts the items in `text` by the heading of
    their section. `waiting` items have no room in it now, and may return at a later compression.
    """

    seq: int
    tokens: int
    sections: dict[str, int]
    waiting: int
    text: str

    def __str__(self) -> str:
        found = ", ".join(f"{title} {count:,}" for title, count in self.sections.items())
        return f"#{self.seq}, {self.tokens:,} tokens: {found or 'nothing fits it'}"


def state_block_of(window: Window) -> StateBlock | None:
    """Return the outline of a window; None if it has none."""
    active = window.state
    if active is None:
        return None
    shown = sum(item.shown for item in active.state.items)
    return StateBlock(
        seq=active.item.entry.seq,
        tokens=active.item.tokens,
        sections=sections_of(active.state),
        waiting=len(active.state.items) - shown,
        text=active.state.text,
    )


def sections_of(state: State) -> dict[str, int]:
    """Return the number of items in the text by heading; the pieces of one message are one item."""
    found: dict[str, set[tuple[int, str]]] = {}
    for item in state.items:
        if item.shown:
            same = "" if item.section == "user" else item.text
            found.setdefault(title_of(item.section), set()).add((item.seq, same))
    return {title: len(items) for title, items in found.items()}
