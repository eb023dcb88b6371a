"""The outline of a session at a compression, and in a context that is trimmed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from memman.archive.redaction import redacted_state
from memman.compression import Goal, View
from memman.compression.state import carry
from memman.config import Budget
from memman.counting.counter import TokenCounter
from memman.entries import Entry, is_of_tool
from memman.session.shared import Shared
from memman.state import TOLD, Covered, Keeps, State, is_constraint, state_text
from memman.window import ActiveState, Window

_SHARE_OF_TRIMMED = 6  # of a smaller budget, for the block of a context that is trimmed; above 15 %


class NextState:
    """Makes the outline of one compression, on the window as it is at the commit.

    Args:
        after: the view that the compression came to.
        goal: its goal.
        redact: redacts an entry once more.
        counter: counts the text.
        shared: has the caller's own sections.
        memory: the room of the outline in the session's budget, which a smaller target leaves to its items.
    """

    def __init__(
        self,
        after: View,
        goal: Goal,
        redact: Callable[[Entry], Entry],
        counter: TokenCounter,
        shared: Shared,
        memory: int,
    ) -> None:
        self._memory = memory
        self._after = after
        self._goal = goal
        self._redact = redact
        self._told = _told_in(after)
        leaving = _leaving(after, goal.recall)
        self._ids = [entry.id for entry in leaving]
        self._leaving = [redact(entry) for entry in leaving]
        self._counter = counter
        self._shared = shared
        # The outline before, its counts if they were lost, and the outline after.
        self._made: tuple[State | None, Covered | None, State | None] | None = None

    def is_for(self, after: View, goal: Goal) -> bool:
        """Return whether the same entries leave for a view, to the same summary or none."""
        ids = [entry.id for entry in _leaving(after, goal.recall)]
        return self._ids == ids and _told_in(after) == self._told

    def of(self, window: Window, covered: Covered | None = None) -> State | None:
        """Return the outline after the compression of a window; None if the settings turn it off.

        `covered` are the counts of the entries that left before, if the window's outline has lost them.
        """
        goal, after = self._goal, self._after
        if not self._memory and not goal.outline_tokens:
            return None
        stored = None if window.state is None else window.state.state
        made = self._made
        if made is None or made[0] is not stored or made[1] != covered:
            before = self._before(window)
            if before is not None and covered is not None:
                before = msgspec.structs.replace(before, covered=covered)
            after_it = carry(
                before,
                self._leaving,
                after.shown(),
                _room_beside(after, goal, self._told),
                self._counter.count_text,
                self._shared.keeps,
                self._memory,
                goal.recall,
                self._told,
            )
            self._made = made = stored, covered, after_it
        return made[2]

    def _before(self, window: Window) -> State | None:
        """Return the window's block, redacted once more if another manager may have made it."""
        active = window.state
        if active is None or self._shared.redact is None or self._shared.has_made(active.state):
            return None if active is None else active.state
        return redacted_state(active.item.entry, active.state, self._redact)

    def hidden_constraints(self, state: State | None) -> int:
        """Return how many declared constraints neither a block nor the window after it shows."""
        if state is None:
            return 0
        items = [item for item in state.items if item.section == "constraint"]
        declared = {entry.text.strip() for entry in self._leaving if is_constraint(entry)}
        declared.update(item.text for item in items)
        declared.difference_update(item.text for item in items if item.shown)
        return len(declared.difference(entry.text.strip() for entry in self._after.shown()))


def turns_so_far(window: Window, counter: TokenCounter) -> Entry | None:
    """Return what the outline of a window tells of its turns, as a summary to be carried on; None for
    nothing.

    The user's words are not in it: they stay in the outline.
    """
    active = window.state
    if active is None:
        return None
    told = [item for item in active.state.items if item.section in TOLD]
    text = state_text(told, None)
    if not text:
        return None
    entry = msgspec.structs.replace(active.item.entry, content=text)
    return msgspec.structs.replace(entry, token_count=counter.count_entry(entry))


def _room_beside(after: View, goal: Goal, told: int) -> int:
    """Return the tokens of the outline: those planned, and more if the target leaves room.

    If none are planned, it takes the room that the removed exchanges leave below the target.
    """
    planned = goal.state_tokens
    most = goal.budget.state_tokens if told else goal.outline_tokens or goal.budget.state_tokens
    room = max(planned, min(most, goal.tokens + planned - after.tokens))
    return max(0, min(room, goal.limit + planned - after.tokens))


def _told_in(after: View) -> int:
    """Return the place of the newest entry that a view's new summaries cover; 0 without one."""
    runs = (item.run for group in after.groups for item in group.items if item.method == "summary")
    return max((each.position for run in runs for each in run), default=0)


def _leaving(after: View, recall: str) -> list[Entry]:
    """Return the entries that a view replaces, without replacements, whose originals left before.

    Neither calls of the agent's recall tool nor its results, which are known from their originals.
    """
    return [
        each.entry
        for group in after.groups
        for item in group.items
        if item.method is not None
        for each in item.run
        if each.compression is None and not is_of_tool(each.entry, recall)
    ]


class TrimmedState:
    """The outline of a copy of a window that is trimmed: it includes the entries that leave the copy.

    Args:
        window: the window.
        budget: the session's budget.
        counter: counts the text.
        keeps: the caller's own sections.
        recall: the name of the agent's tool that returns entries; "" if it has none.
    """

    def __init__(
        self, window: Window, budget: Budget, counter: TokenCounter, keeps: Keeps, recall: str
    ) -> None:
        self.recall = recall
        self._window = window
        self._counter = counter
        self._keeps = keeps
        tokens = 0 if window.state is None else window.state.item.tokens
        self._most = max(tokens, budget.state_tokens)

    def room_in(self, limit: int, tokens: int) -> int:
        """Return the room of the block in a copy of `tokens` tokens, in a context of at most `limit`.

        It is the same in a larger window, so that the same entries are cut and contexts begin alike.
        """
        return min(self._most, limit // _SHARE_OF_TRIMMED, tokens // 2)

    def of(self, after: View, tokens: int) -> ActiveState | None:
        """Return the block of a copy in at most so many tokens."""
        active, window = self._window.state, self._window
        leaving, shown = _leaving(after, self.recall), after.shown()
        if not leaving and (active is None or active.item.tokens <= tokens):
            return active
        before = None if active is None else active.state
        count = self._counter.count_text
        state = carry(before, leaving, shown, tokens, count, self._keeps, recall=self.recall)
        if state is None:
            return None
        if active is not None:
            return ActiveState.unstored(state, active.item.position, active.item.entry.timestamp)
        position, at = window.state_position(state), window.items[-1].entry.timestamp
        return ActiveState.unstored(state, position, at)
