"""Plain agent loops run for hundreds of turns: no refusal, few compressions, valid contexts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.trajectories import read_trajectories
from memman import CompressionResult, Context, Entry, MemoryConfig, MemoryManager
from memman.formats.rules import RULES, check
from memman.stores import MemoryStore
from memman.testing import record_events
from tests.conftest import SHARED
from tests.examples import examples

S = "s"
FORMATS = tuple(RULES)
STRATEGIES = ("default", "window(6)", "token_buffer", "summary", "summary_buffer")
FEW = 6

Turn = Callable[[MemoryManager, int], None]


def final_answer(memory: MemoryManager, turn: int) -> None:
    """Add a turn that ends with a tool call without a result."""
    memory.add_user_message(S, f"question {turn} about the report and the data of week {turn}")
    text = f"The answer to question {turn} is that " + "the data show a clear trend " * 20
    memory.add_tool_call(S, "final_answer", {"text": text}, call_id=f"d{turn}")


def interrupted(memory: MemoryManager, turn: int) -> None:
    """Add a turn; every third is interrupted before its call has a result."""
    memory.add_user_message(S, f"please do thing {turn}")
    memory.add_tool_call(S, "shell", {"cmd": f"sleep {turn}"}, call_id=f"d{turn}")
    if turn % 3:
        memory.add_tool_result(S, "shell", f"slept {turn} " * 30, call_id=f"d{turn}")
        memory.add_assistant_message(S, f"done {turn}")


def assert_valid(memory: MemoryManager) -> None:
    for form in FORMATS:
        context = memory.build_context(S, format=form)
        assert check(context.messages, form, system=context.system) == [], form


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("turn", [final_answer, interrupted])
def test_400_turns_with_open_calls_are_never_refused(turn: Turn, background: bool) -> None:
    config = MemoryConfig(max_tokens=8_000, max_entries=None, background=background)
    with MemoryManager(config=config) as memory:
        with record_events(memory, [CompressionResult]) as heard:
            for number in range(400):
                turn(memory, number)
                memory.build_context(S)
                if number % 40 == 0:
                    assert_valid(memory)
        added = memory.get_stats(S).total_tokens
        room = 4_000 * (
            0.8 if background else 1
        )  # compressed in advance at four fifths of the room
        assert len(heard) <= added / room + 1


def test_open_call_is_compressed_after_a_user_message() -> None:
    memory = MemoryManager(config=MemoryConfig(recent_window=0, auto_compress=False))
    call = memory.add_tool_call(S, "shell", {"cmd": "make " * 50}, call_id="c")
    assert memory.plan_compression(S, target_tokens=10).entries[0].action == "keep"
    memory.add_user_message(S, "never mind, go on " * 20)
    for number in range(5):
        memory.add_assistant_message(S, f"I went on, step {number} " * 20)
    memory.compress(S, target_tokens=100)
    assert call.id not in {entry.id for entry in memory.get_active_entries(S)}


@pytest.mark.parametrize("form", FORMATS)
def test_late_result_of_a_compressed_call_has_its_call(form: str) -> None:
    store = MemoryStore()
    memory = MemoryManager(config=MemoryConfig(recent_window=2), store=store)
    memory.add_user_message(S, "start the build " * 20)
    called = memory.add_tool_call(S, "build", {"target": "all " * 50}, call_id="late")
    for number in range(6):
        memory.add_user_message(S, f"and thing {number} " * 20)
        memory.add_assistant_message(S, f"thing {number} is done " * 20)
    memory.compress(S, target_tokens=200)
    assert all(entry.call_id != "late" for entry in memory.get_active_entries(S))
    memory.add_tool_result(S, "build", "built in 77 s", call_id="late")
    for _ in ("this process", "another one"):
        context = memory.build_context(S, format=form)
        assert check(context.messages, form, system=context.system) == []
        said = str(context.messages[-2:])
        assert "all all all" in said
        assert "built in 77 s" in said
        memory = MemoryManager(store=store)
    memory.delete_entries(S, [called.id])
    said = str(memory.build_context(S, format=form).messages)
    assert "whose call is not in this context" in said
    assert "all all all" not in said


# ---------------------------------------------------------------- the newest user message


def newest_question(entries: list[Entry]) -> Entry:
    return [entry for entry in entries if entry.type == "message" and entry.role == "user"][-1]


def assert_asked(context: Context, question: Entry, largest: int) -> None:
    """Assert that the context has the question, whole unless it is over the limit of an entry."""
    texts = [part for message in context.messages if message["role"] == "user"
            for part in _texts(message["content"])]  # fmt: skip
    text = question.text
    if question.token_count.tokens > largest:
        assert any(text[:20] in one for one in texts)
    else:
        assert any(text in one for one in texts)


def _texts(content: Any) -> list[str]:
    return [content] if isinstance(content, str) else [part.get("text", "") for part in content]


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=examples(3))
@given(
    sizes=st.lists(st.integers(1, 3_000), min_size=1, max_size=8),
    budget=st.sampled_from([4_000, 8_000]),
    background=st.booleans(),
)
def test_question_stays_in_a_turn_of_200_tool_calls(
    strategy: str, sizes: list[int], budget: int, background: bool
) -> None:
    config = MemoryConfig(
        max_tokens=budget, max_entries=6 if strategy == "window(6)" else None,
        strategy=strategy, background=background,
    )  # fmt: skip
    with MemoryManager(config=config, counter="chars4") as memory:
        memory.add_user_message(S, "what did we do last week? " * 5)
        memory.add_assistant_message(S, "we wrote a parser " * 20)
        question = memory.add_user_message(S, "GOAL-7731: fix the flaky login test. " * 4)
        for number in range(200):
            memory.add_tool_call(S, "read", {"path": f"src/f{number}.py"}, call_id=f"c{number}")
            text = f"{number} line " * sizes[number % len(sizes)]
            memory.add_tool_result(S, "read", text, call_id=f"c{number}")
            assert_asked(memory.build_context(S), question, budget // 4)
        for smaller in (budget // 2, budget // 4):
            assert_asked(memory.build_context(S, budget=smaller), question, smaller // 4)
        assert_valid(memory)


@pytest.mark.shared
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_question_stays_in_recorded_conversations(strategy: str) -> None:
    for recorded in read_trajectories(SHARED / "fixture_trajectories.jsonl.gz", FEW):
        config = MemoryConfig(max_tokens=8_000, max_entries=None, strategy=strategy)
        memory, question = MemoryManager(config=config), None
        for message in recorded.messages:
            added = memory.add_messages(S, [message], "openai-chat")
            users = [entry for entry in added if entry.role == "user"]
            question = users[-1] if users else question
            if question is not None:
                assert_asked(memory.build_context(S), question, 2_000)


def test_question_too_large_for_the_window_is_clipped() -> None:
    memory = MemoryManager(config=MemoryConfig(max_tokens=1_000, max_entries=None))
    memory.add_user_message(S, "FIRST " + "many words about it " * 2_000)
    for number in range(20):
        memory.add_tool_call(S, "read", {"path": f"f{number}"}, call_id=f"c{number}")
        memory.add_tool_result(S, "read", "a line of code " * 500, call_id=f"c{number}")
        messages = memory.build_context(S).messages
        assert any(str(message["content"]).startswith("FIRST many words") for message in messages)


def test_question_of_the_turn_before_may_be_summarized() -> None:
    memory = MemoryManager(config=MemoryConfig(max_tokens=1_000, recent_window=0))
    first = memory.add_user_message(S, "the first question " * 20)
    for number in range(6):
        memory.add_assistant_message(S, f"step {number} " * 40)
    newest = memory.add_user_message(S, "the second question " * 20)
    for number in range(6):
        memory.add_assistant_message(S, f"step {number} " * 40)
    memory.compress(S, target_tokens=400)
    active = {entry.id for entry in memory.get_active_entries(S)}
    assert newest.id in active
    assert first.id not in active
