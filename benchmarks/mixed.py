"""The outline through compressions of different kinds, for `benchmarks.needed`.

A conversation is played with the defaults, and after every few messages one of these steps is made in
turn: a compression by hand to nine tenths (which stubs tool results), one to the target with an outline,
its undo, a summary that omits everything, and a drop of the oldest entries. Counted: values of the outline
after one compression that a call uses after ten more, and messages of the user in it; and how many of
them the context after these ten still has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from typing import Self

import msgspec

from benchmarks.reader import with_paths
from benchmarks.trajectories import Message, Trajectory
from memman import MemoryConfig, MemoryManager
from memman.compression import drop_oldest
from memman.state import GAP

LATER = 10  # compressions
HEADERS = (
    "",
    "sessions",
    "compressions",
    "values used later",
    "kept",
    "the user's messages",
    "kept",
)
_BETWEEN = 6  # messages between two steps
_NOTHING = "The work goes on as planned."  # a summary that omits everything
_DELIMITER = "[memman outline"
_OWN = re.compile(r"#\d+ user(?: [^:]+)?: (.+)")  # a message of the user in the outline
_VALUE = re.compile(r"[\d/_.@-]|[A-Z]{2}")


class Held(msgspec.Struct, frozen=True):
    """Sums over outlines: their values and messages of the user, and those still there after ten more."""

    compressions: int = 0
    values: int = 0
    values_kept: int = 0
    own: int = 0
    own_kept: int = 0

    def __add__(self, other: Held) -> Held:
        return Held(*map(sum, zip(*map(msgspec.structs.astuple, (self, other)), strict=True)))


class Snapshot(msgspec.Struct, frozen=True):
    """After a compression: the number of messages, the outline, and the text of the whole context."""

    at: int
    outline: str
    text: str


def parts_of(outline: str) -> tuple[set[str], set[str]]:
    """Return the listed values of an outline, and the first lines of the user's messages in it."""
    values, own = set(), set()
    for line in outline.splitlines():
        if found := _OWN.fullmatch(line):
            own |= {piece.strip() for piece in found[1].split(GAP)}
        elif line.startswith("- "):
            words = (word.strip("`,;") for word in with_paths(line).split() if "{" not in word)
            values |= {word for word in words if len(word) >= 4 and _VALUE.search(word)}
    return values, own


def held(snapshots: Sequence[Snapshot], messages: Sequence[Message]) -> Held:
    """Return the rest of each outline after ten more compressions.

    Of its values, those count that a call uses after that.
    """
    total = Held(compressions=len(snapshots))
    for before, after in zip(snapshots, snapshots[LATER:], strict=False):
        values, own = parts_of(before.outline)
        used = _calls_of(messages[after.at :])
        values = {value for value in values if value in used}
        total += Held(
            values=len(values),
            values_kept=sum(value in after.text for value in values),
            own=len(own),
            own_kept=sum(text in after.text for text in own),
        )
    return total


class Session:
    """A session with a summarizer that omits everything, and a step after every few messages."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._added = 0
        self._done: list[str] = []
        config = MemoryConfig(max_tokens=budget)
        self.memory = MemoryManager(
            model="gpt-4o", config=config, summarizer=lambda _prompt: _NOTHING
        )
        self.memory.on("compressed", lambda event: self._done.append(event.compression_id or ""))

    def add(self, message: Message) -> bool:
        """Add a message, make the step if one is due, and return whether there was a compression."""
        before = len(self._done)
        self.memory.add_messages("s", [message], format="openai-chat")
        self._added += 1
        # Between a call and its result a step would leave the call alone.
        if self._added % _BETWEEN == 0 and message["role"] != "assistant":
            STEPS[self._added // _BETWEEN % len(STEPS)](self.memory, self._budget, self._done)
        return len(self._done) > before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.memory.close()


def snapshots(messages: Sequence[Message], budget: int) -> list[Snapshot]:
    """Play a conversation with the steps, and return the contexts after its compressions."""
    taken = []
    with Session(budget) as session:
        for number, message in enumerate(messages, 1):
            if session.add(message):
                taken.append(_snapshot(number, session.memory.build_context("s").messages))
    return taken


def _snapshot(at: int, messages: Sequence[Message]) -> Snapshot:
    texts = [str(message.get("content") or "") for message in messages]
    outline = next((text for text in texts if text.startswith(_DELIMITER)), "")
    lines = [line for line in outline.splitlines() if not line.startswith(("[memman ", "[end of "))]
    text = with_paths("\n".join([*texts, _calls_of(messages)]))
    return Snapshot(at, "\n".join(lines), text)


def _calls_of(messages: Iterable[Message]) -> str:
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    return "\n".join(call["function"]["arguments"] for call in calls)


def _stubs(memory: MemoryManager, budget: int, _done: list[str]) -> None:
    active = memory.get_stats("s").active_tokens
    memory.compress("s", target_tokens=min(budget, active * 9 // 10), summarize=False)


def _outline(memory: MemoryManager, budget: int, _done: list[str]) -> None:
    memory.compress("s", target_tokens=budget // 3, summarize=False)


def _undo(memory: MemoryManager, _budget: int, done: list[str]) -> None:
    if done and done[-1]:
        memory.undo_compression("s", done[-1])
        done[-1] = ""


def _summary(memory: MemoryManager, _budget: int, _done: list[str]) -> None:
    memory.compress("s", summarize=True)


def _drop(memory: MemoryManager, budget: int, _done: list[str]) -> None:
    memory.update_config(strategy=(drop_oldest,))
    memory.compress("s", target_tokens=budget // 3)
    memory.update_config(strategy="default")


STEPS: tuple[Callable[[MemoryManager, int, list[str]], None], ...] = (
    _stubs, _outline, _undo, _summary, _drop,
)  # fmt: skip


def play(trajectory: Trajectory, budget: int) -> Held:
    """Return the rest of the outlines of a conversation."""
    return held(snapshots(trajectory.messages, budget), trajectory.messages)


def run(
    trajectories: Sequence[Trajectory], budgets: Sequence[int], jobs: int
) -> list[list[object]]:
    """Return a row for each budget."""
    rows = []
    for budget in budgets:
        number = len(trajectories)
        if jobs == 1:
            found = [play(one, budget) for one in trajectories]
        else:
            with ProcessPoolExecutor(jobs) as pool:
                found = list(pool.map(play, trajectories, [budget] * number))
        total = reduce(Held.__add__, found, Held())
        rows.append(
            [
                f"mixed, {budget:,}",
                number,
                total.compressions,
                total.values,
                total.values_kept / max(1, total.values),
                total.own,
                total.own_kept / max(1, total.own),
            ]
        )
    return rows
