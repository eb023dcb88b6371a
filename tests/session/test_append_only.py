"""The law of requests: an answered one begins the next one, unless a change reaches a sent message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.trajectories import read_trajectories
from memman import MemoryConfig, MemoryManager
from memman.formats import builtin_formats
from memman.formats.rules import check
from memman.stores import MemoryStore
from tests.conftest import SHARED
from tests.examples import examples

S = "s"
FORMATS = [form.name for form in builtin_formats() if form.name != "text"]  # it is one message


class Agent:
    """A session whose model is asked again and again; each request is compared with the one before."""

    def __init__(self) -> None:
        self._store = MemoryStore()
        self._calls = 0
        self._before: dict[str, list[dict[str, Any]]] = {}
        self.open()

    def open(self) -> None:
        """Begin in another process."""
        config = MemoryConfig(max_tokens=10**7)
        self.memory = MemoryManager(counter="chars4", config=config, store=self._store)

    def ask(self) -> None:
        """Build the request in all formats."""
        for form in FORMATS:
            context = self.memory.build_context(S, format=form)
            before = self._before.get(form, [])
            assert context.messages[: len(before)] == before, form
            self._before[form] = context.messages
            assert check(context.messages, form, system=context.system) == []

    def reply(self, text: str, calls: int, singly: bool) -> None:
        """Ask, and add the reply: entry by entry, or as a message."""
        self.ask()
        ids = [f"c{self._calls + number}" for number in range(calls)]
        self._calls += calls
        if singly:
            if text or not ids:
                self.memory.add_assistant_message(S, text or "done")
            for call_id in ids:
                self.memory.add_tool_call(S, "find", {"of": call_id}, call_id=call_id)
            return
        made = [
            {"id": name, "type": "function", "function": {"name": "find", "arguments": "{}"}}
            for name in ids
        ]
        message = {"role": "assistant", "content": text or (None if made else "done")}
        self.memory.add_messages(S, [{**message, **({"tool_calls": made} if made else {})}])

    def result(self, number: int) -> None:
        """Add the result of one of the newest calls, in time or late, possibly not its first."""
        if self._calls:
            call_id = f"c{max(0, self._calls - number)}"
            self.memory.add_tool_result(S, "find", f"result {number}", call_id=call_id)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reply"), st.sampled_from(["", "so"]), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("result"), st.integers(1, 4)),
        st.tuples(st.just("result"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["user", "open"])),
    ),
    min_size=2,
    max_size=14,
)


@settings(max_examples=examples(100), deadline=None)
@given(STEPS)
def test_answered_request_begins_the_next_one(steps: list[tuple[Any, ...]]) -> None:
    agent = Agent()
    agent.memory.add_user_message(S, "begin")
    for kind, *rest in steps:
        if kind == "user":
            agent.memory.add_user_message(S, "and then?")
        else:
            getattr(agent, kind)(*rest)
    agent.ask()


@pytest.mark.shared
@pytest.mark.parametrize("form", FORMATS)
def test_recorded_request_begins_the_next_one(form: str) -> None:
    for recorded in read_trajectories(SHARED / "fixture_trajectories.jsonl.gz")[::6]:
        memory, before = Agent().memory, list[Any]()
        for number, message in enumerate(recorded.messages):
            if number and message["role"] == "assistant":
                sent = memory.build_context(S, format=form).messages
                assert sent[: len(before)] == before
                before = sent
            memory.add_messages(S, [message], "openai-chat")


def test_paused_turn_grows_at_its_end() -> None:
    agent, before = Agent(), list[Any]()
    agent.memory.add_user_message(S, "Search.")
    for number in range(3):
        use = {
            "type": "server_tool_use",
            "id": f"srvtoolu_{number}",
            "name": "web_search",
            "input": {},
        }
        found = {"type": "web_search_tool_result", "tool_use_id": use["id"], "content": []}
        result = before[-1:] and [{**found, "tool_use_id": f"srvtoolu_{number - 1}"}]
        message = {"role": "assistant", "content": [*result, use]}
        agent.memory.add_messages(S, [message], "anthropic")
        sent = agent.memory.build_context(S, format="anthropic").messages
        assert check(sent, "anthropic") == []
        assert [message["role"] for message in sent] == ["user", "assistant"]
        assert sent[-1]["content"][: len(before)] == before
        before = sent[-1]["content"]


TYPED = {
    "openai-responses": (
        {"type": "shell_call", "id": "sh_1", "call_id": "c", "status": "completed",
         "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c",
         "output": [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
    ),
    "computer": (
        {"type": "computer_call", "id": "cu_1", "call_id": "c", "status": "completed",
         "pending_safety_checks": [], "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "call_id": "c",
         "output": {"type": "computer_screenshot", "image_url": "https://example.org/a.png"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "result"), TYPED.values(), ids=list(TYPED))
def test_late_result_of_a_typed_call_has_its_type(call: Any, result: Any) -> None:
    memory = Agent().memory
    form = "openai-responses"
    user = {"role": "user", "content": "And now?"}
    memory.add_messages(S, [call, user], form)
    before = memory.build_context(S, format=form).messages
    memory.add_messages(S, [{"role": "assistant", "content": "I wait."}], form)
    memory.add_messages(S, [result], form)
    sent = memory.build_context(S, format=form).messages
    assert sent[: len(before)] == before
    again, answer = sent[-2:]
    assert again == {**call, "id": f"{call['id']}--again-5", "call_id": "c--again-5"}
    assert answer == {**result, "call_id": "c--again-5"}
    assert check(sent, form) == []
    assert memory.get_messages(S, format=form)[-1] == result


def test_second_result_is_shown_behind_its_call() -> None:
    memory = Agent().memory
    memory.add_user_message(S, "Book.")
    memory.add_tool_call(S, "book", {"to": "Lima"}, call_id="c")
    for said in ("pending", "booked"):
        memory.add_tool_result(S, "book", said, call_id="c")
        sent = memory.build_context(S).messages
        assert sent[-1]["content"] == said
        assert "Lima" in str(sent[-2])


def test_result_after_a_retraction_of_its_call_is_a_note() -> None:
    memory = Agent().memory
    called = memory.add_tool_call(S, "book", {"to": "Lima"}, call_id="c")
    memory.add_user_message(S, "Wait.")
    memory.add_tool_result(S, "book", "booked", call_id="c")
    compression_id = memory.retract(S, [called.id])
    assert "whose call is not" in str(memory.build_context(S).messages)
    memory.undo_compression(S, compression_id)
    assert "Lima" in str(memory.build_context(S).messages[-2])


def test_clipped_late_result_keeps_its_call() -> None:
    store = MemoryStore()
    config = MemoryConfig(auto_compress=False, max_tokens=3_000)
    memory = MemoryManager(counter="chars4", config=config, store=store)
    memory.add_user_message(S, "Book.")
    memory.add_tool_call(S, "book", {"to": "Lima"}, call_id="c")
    for number in range(40):
        memory.add_user_message(S, f"question {number} " + "word " * 10)
        memory.add_assistant_message(S, "wait")
    memory.add_tool_result(S, "book", "booked " * 2_000, call_id="c")
    memory.compress(S, target_tokens=1_500)
    assert memory.get_active_entries(S)[-1].replacement
    for _ in ("this process", "another one"):
        call, result = memory.build_context(S).messages[-2:]
        assert result["tool_call_id"] == call["tool_calls"][0]["id"]
        assert "Lima" in str(call)
        memory = MemoryManager(counter="chars4", config=config, store=store)
