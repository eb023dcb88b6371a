"""The law of provider caches: only a change of what was sent breaks the prefix of a request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.trajectories import Trajectory, read_trajectories
from memman import Context, EntryNotFound, MemoryConfig, MemoryManager, Refused, events
from tests.conftest import SHARED
from tests.examples import examples

S = "s"
_OUTLINE = "[memman outline,"
_EDITS = ("delete", "undo", "retract", "clear")
_EDIT_EVERY = 8  # messages
STRATEGIES = ("default", "buffer", "summary", "summary_buffer")  # those that do not slide


class Watched:
    """A session that compares each context with the one before it.

    A prefix may break after a compression or an edit by the caller, or if one of the two is trimmed. It
    breaks if entries that were sent are hidden, or if the outline is another one.
    """

    def __init__(self, strategy: str, max_tokens: int) -> None:
        config = MemoryConfig(strategy=strategy, max_tokens=max_tokens, on_failure="raise")
        self.memory = MemoryManager(config=config, counter="chars4")
        self.memory.on("compressed", self._compressed)
        self.breaks = self.changes = 0
        self._edited = self._trimmed = False
        self._hidden: set[str] = set()
        self._sent: set[str] = set()
        self._before: Context | None = None

    def _compressed(self, event: events.CompressionResult) -> None:
        self._hidden |= {entry for each in event.replacements for entry in each.ids}

    def edit(self, change: Callable[[], object]) -> None:
        """Undo, clear, delete or retract; a refused change changes nothing."""
        active = {entry.id for entry in self.memory.get_active_entries(S)}
        with suppress(Refused, EntryNotFound):
            change()
            self._edited = True
        self._hidden |= active - {entry.id for entry in self.memory.get_active_entries(S)}

    def build(self) -> None:
        """Build a context, and check the law."""
        context, before = self.memory.build_context(S, missing_ok=True), self._before
        if context is before:
            return  # nothing was added
        if before and not (self._trimmed or context.trimmed):
            allowed, broken = (
                bool(self._hidden) or self._edited,
                context.unchanged_prefix < len(before),
            )
            changed = bool(self._hidden & self._sent) or (
                _outline(context, len(before)) != _outline(before, len(before))
            )
            assert changed <= broken <= allowed, f"{context.unchanged_prefix} of {len(before)}"
            self.breaks += broken
            self.changes += changed
        self._before, self._sent = context, {entry.id for entry in context.entries}
        self._hidden, self._edited, self._trimmed = set(), False, bool(context.trimmed)


def _outline(context: Context, length: int) -> str | None:
    """Return the outline if it is one of the first messages.

    A compression may write it of new entries alone: as a message behind all that were sent, it breaks no
    prefix.
    """
    texts = (str(message.get("content")) for message in context.messages[:length])
    return next((text for text in texts if text.startswith(_OUTLINE)), None)


def replayed(recorded: Trajectory, strategy: str, max_tokens: int, edits: bool) -> Watched:
    """Replay a conversation with a request before each answer of the model, and maybe edits between."""
    watched = Watched(strategy, max_tokens)
    with watched.memory as memory:
        for number, message in enumerate(recorded.messages):
            if number and message["role"] == "assistant":
                watched.build()
                if edits and number % _EDIT_EVERY < 2:
                    edit(watched, _EDITS[number // _EDIT_EVERY % len(_EDITS)], number)
                    watched.build()
            memory.add_messages(S, [message], "openai-chat")
    return watched


@pytest.mark.shared
@pytest.mark.parametrize("edits", [False, True], ids=["plain", "edited"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("name", "every"),
    [
        ("fixture_trajectories.jsonl.gz", 4),
        pytest.param("fixture_trajectories.jsonl.gz", 1, marks=pytest.mark.long),
        pytest.param("trajectories.jsonl.gz", 1, marks=pytest.mark.long),
    ],
)
def test_prefix_breaks_equal_compressions_in_recordings(
    name: str, every: int, strategy: str, edits: bool
) -> None:
    limit = 1_000_000 if strategy == "buffer" else 16_000  # it keeps everything, or refuses
    recordings = read_trajectories(SHARED / name)[::every]
    found = [replayed(recorded, strategy, limit, edits) for recorded in recordings]
    breaks, changes = sum(one.breaks for one in found), sum(one.changes for one in found)
    assert breaks == changes  # each break is of entries that were sent, or of the outline
    assert bool(breaks) == (edits or strategy != "buffer")


SIZES = st.integers(1, 60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["question", "calls", "answer"]), SIZES),
        st.tuples(
            st.sampled_from(["compress", "undo", "clear", "delete", "retract", "pin"]), SIZES
        ),
    ),
    min_size=10,
    max_size=60,
)


def step(watched: Watched, kind: str, size: int) -> None:
    """Do one step: add whole messages and build, or change the session."""
    memory, words = watched.memory, "some words of a file " * size
    if kind in ("question", "answer"):
        memory.add_user_message(S, f"RULE: keep {words}")
        watched.build()
        memory.add_assistant_message(S, words if kind == "answer" else "done")
    elif kind == "calls":
        for number in range(size % 4 + 1):
            memory.add_tool_call(S, "read", {"path": f"{size}-{number}.py"}, call_id=f"c{number}")
        for number in range(size % 4 + 1):
            memory.add_tool_result(S, "read", words * 3, call_id=f"c{number}")
        watched.build()
    elif kind == "compress":
        memory.compress(S)
    else:
        edit(watched, kind, size)


def edit(watched: Watched, kind: str, size: int) -> None:
    """Change the session, or one of the entries in its window."""
    memory, entries = watched.memory, watched.memory.get_active_entries(S)
    if not entries:
        return
    chosen = entries[size % len(entries)].id
    changes: dict[str, Callable[[], object]] = {
        "clear": lambda: memory.clear_session(S),
        "undo": lambda: memory.undo_compression(S),
        "delete": lambda: memory.delete_entries(S, [chosen]),
        "retract": lambda: memory.retract(S, [chosen]),
    }
    if kind == "pin":  # changes no message
        with suppress(Refused, EntryNotFound):
            memory.pin(S, chosen)
    else:
        watched.edit(changes[kind])


@settings(max_examples=examples(200), deadline=None)
@given(strategy=st.sampled_from(STRATEGIES), steps=STEPS)
def test_prefix_breaks_only_by_compressions_and_edits(
    strategy: str, steps: list[tuple[str, int]]
) -> None:
    watched = Watched(strategy, 1_000_000 if strategy == "buffer" else 2_000)
    with watched.memory as memory:
        memory.add_user_message(S, "Is there a bug?")
        for kind, size in steps:
            step(watched, kind, size)
            watched.build()
