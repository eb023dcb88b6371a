"""What `MemmanConversationManager` does in Strands' agents, beyond the laws of every adapter."""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from memman_strands import MemmanConversationManager
from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.models import BedrockModel, CacheConfig
from strands.session import FileSessionManager
from strands.types.exceptions import ContextWindowOverflowException
from strands.vended_plugins.context_injector import ContextInjector

from memman import (
    AsyncMemoryManager,
    BudgetExceeded,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
)
from memman.records import Compressed, UsageReported, ids_retracted_by
from memman.testing import FakeModel, ModelReply
from memman.testing.laws import in_threads
from tests.adapters.counting import CountingStore

from .strands_agents import ReportingModel, events_of, plain, reading_tool

BUDGET = 2_500


def memory_of(budget: int = BUDGET, store: str | None = None) -> MemoryManager:
    config = MemoryConfig(max_tokens=budget, max_entries=None)
    return MemoryManager(store, model=FakeModel.name, config=config)


def agent_of(memory: Any, model: FakeModel, session_id: str = "s", **more: Any) -> Agent:
    options = {"conversation_manager": MemmanConversationManager(memory, session_id), **more}
    return Agent(
        model=ReportingModel(model),
        tools=[reading_tool(model)],
        system_prompt="You review code.",
        callback_handler=None,
        **options,
    )


def play(agent: Agent, turns: int, start: int = 0) -> None:
    for turn in range(start, start + turns):
        agent(f"question {turn} of the user")


def questions_in(messages: Any) -> list[str]:
    return [
        block["text"]
        for message in messages
        if message["role"] == "user"
        for block in message["content"]
        if block.get("text", "").startswith("question")
    ]


class Scripted(ReportingModel):
    """A model that answers with given events and keeps what it is sent."""

    def __init__(self, *replies: list[Any]) -> None:
        super().__init__(FakeModel(MemoryManager(), "bedrock"))
        self.replies = list(replies)
        self.sent: list[Any] = []

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, *_: Any, **__: Any
    ) -> AsyncIterator[Any]:
        self.sent.append(messages)
        for event in self.replies.pop(0):
            yield event


def said(text: str, **usage: int) -> list[Any]:
    *events, last = events_of(ModelReply(text, (), "", 100))
    last = {"metadata": {**last["metadata"], "usage": {**last["metadata"]["usage"], **usage}}}
    return [*events, last]


# ---------------------------------------------------------------- agent.messages and the log


def test_log_has_no_keys_of_strands() -> None:
    with memory_of() as memory:
        agent = agent_of(memory, FakeModel(memory, "bedrock"))
        play(agent, 2)
        assert all("tracking_id" in message for message in agent.messages)
        document = memory.export_session("s").to_json()
        assert "tracking_id" not in document
        assert "latencyMs" not in document


def test_messages_that_left_the_context_leave_the_agent(tmp_path: Path) -> None:
    with memory_of() as memory:
        model = FakeModel(memory, "bedrock")
        store = FileSessionManager(session_id="x", storage_dir=str(tmp_path))
        agent = agent_of(memory, model, session_manager=store)
        play(agent, 30)
        removed = agent.conversation_manager.removed_message_count
        assert removed > 60
        assert len(agent.messages) == 120 - removed
        assert agent.messages[0]["role"] == "user"
        stored = store.list_messages("x", agent.agent_id)
        assert len(stored) == 120, "the session manager keeps all"
        assert plain([each.to_message() for each in stored][removed:]) == plain(agent.messages)

        store = FileSessionManager(session_id="x", storage_dir=str(tmp_path))
        again = agent_of(memory, model, session_manager=store)
        assert again.messages == agent.messages
        assert again.conversation_manager.removed_message_count == removed
        play(again, 1, 30)
        assert len(memory.get_entries("s")) == 31 * 6


def test_new_agent_without_a_session_manager_goes_on(tmp_path: Path) -> None:
    path = str(tmp_path / "chat.db")
    with memory_of(store=path) as memory:
        play(agent_of(memory, FakeModel(memory, "bedrock")), 3)
        before = memory.export_session("s").log
    with memory_of(store=path) as memory:
        model = FakeModel(memory, "bedrock")
        agent = agent_of(memory, model)
        agent("question 3 of the user")
        assert memory.export_session("s").log[: len(before)] == before
        assert questions_in(model.requests[-1].messages)[-1] == "question 3 of the user"
        assert "question 2 of the user" in str(model.requests[-1].messages)
        assert len(agent.messages) == 4


def test_agent_restored_for_another_session_is_a_fork(tmp_path: Path) -> None:
    with memory_of() as memory:
        model = FakeModel(memory, "bedrock")
        agent = agent_of(memory, model)
        play(agent, 30)
        snapshot = agent.take_snapshot(preset="session")
        play(agent, 1, 30)
        other = agent_of(memory, model, "branch")
        other.load_snapshot(snapshot)
        play(other, 1, 31)
        texts = [entry.text for entry in memory.get_entries("branch") if entry.role == "user"]
        numbers = [*range(30), 31]
        assert texts == [f"question {number} of the user" for number in numbers]
        assert not model.requests[-1].violations


def test_earlier_snapshot_rewinds_the_session() -> None:
    with memory_of() as memory:
        model = FakeModel(memory, "bedrock")
        agent = agent_of(memory, model)
        play(agent, 20)
        snapshot = agent.take_snapshot(preset="session")
        play(agent, 20, 20)
        later = agent.take_snapshot(preset="session")
        agent.load_snapshot(snapshot)
        play(agent, 1, 40)
        texts = [entry.text for entry in memory.get_entries("s") if entry.role == "user"]
        assert texts == [f"question {number} of the user" for number in [*range(20), 40]]
        agent.load_snapshot(later)
        play(agent, 1, 41)
        texts = [entry.text for entry in memory.get_entries("s") if entry.role == "user"]
        assert set(questions_in(later.data["messages"])) < set(texts)
        assert texts[-1] == "question 41 of the user"


def test_messages_cut_off_at_the_front_stay() -> None:
    with memory_of(100_000) as memory:
        model = FakeModel(memory, "bedrock")
        agent = agent_of(memory, model)
        play(agent, 3)
        del agent.messages[:4]
        play(agent, 1, 3)
        assert len(questions_in(model.requests[-1].messages)) == 4


def test_cleared_messages_are_retracted(caplog: pytest.LogCaptureFixture) -> None:
    with memory_of() as memory:
        model = FakeModel(memory, "bedrock")
        agent = agent_of(memory, model)
        play(agent, 20)
        agent.messages.clear()
        with caplog.at_level(logging.WARNING, "memman"):
            play(agent, 1, 20)
        assert questions_in(model.requests[-1].messages) == ["question 20 of the user"]
        assert "question 1 of" not in str(model.requests[-1].messages)
        assert len(memory.get_entries("s")) == 6
        assert "continues nothing" in caplog.text
        assert "question 1 of the user" in memory.export_session("s").to_json(), "nothing is lost"


def test_session_of_another_manager_is_logged_whole(tmp_path: Path) -> None:
    def store() -> FileSessionManager:
        return FileSessionManager(session_id="x", storage_dir=str(tmp_path))

    with memory_of() as memory:
        model = FakeModel(memory, "bedrock")
        window = SlidingWindowConversationManager(window_size=8)
        play(agent_of(memory, model, session_manager=store(), conversation_manager=window), 10)
        agent = agent_of(memory, model, session_manager=store())
        play(agent, 1, 10)
        assert len(memory.get_entries("s")) == 11 * 6
        assert not model.requests[-1].violations


def test_messages_without_ids_are_recognised() -> None:
    with memory_of() as memory:
        model = FakeModel(memory, "bedrock")
        messages: list[Any] = []
        for turn in range(20):  # the application keeps the messages, as a provider gets them
            agent = agent_of(memory, model, messages=plain(messages))
            agent("yes" if turn % 2 else f"question {turn}")
            messages = [*messages, *plain(agent.messages[-4:])]
        texts = [entry.text for entry in memory.get_entries("s") if entry.role == "user"]
        assert texts == ["yes" if turn % 2 else f"question {turn}" for turn in range(20)]
        assert len(memory.get_entries("s")) == 20 * 6
        log = memory.export_session("s").log
        edits = [each for each in log if isinstance(each, Compressed) and ids_retracted_by(each)]
        assert not edits


def test_missing_results_are_repaired_once(tmp_path: Path) -> None:
    call: Any = {"toolUse": {"toolUseId": "t1", "name": "read", "input": {"path": "a"}}}
    with memory_of(100_000) as memory:
        model = FakeModel(memory, "bedrock")
        agent = agent_of(
            memory,
            model,
            session_manager=FileSessionManager(session_id="x", storage_dir=str(tmp_path)),
            messages=[
                {"role": "user", "content": [{"text": "question 0"}]},
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [{"text": "question 1"}]},
            ],
        )
        for turn in range(2, 5):
            store = FileSessionManager(session_id="x", storage_dir=str(tmp_path))
            agent = agent_of(memory, model, session_manager=store)
            play(agent, 1, turn)
            assert not model.requests[-1].violations
        results = [entry for entry in memory.get_entries("s") if entry.call_id == "t1"]
        assert [entry.type for entry in results] == ["tool_call", "tool_result"]
        log = memory.export_session("s").log
        assert not [record for record in log if isinstance(record, Compressed)]


def test_message_redacted_by_a_guardrail_leaves_the_context() -> None:
    redact = {"redactContent": {"redactUserContentMessage": "[blocked]"}}
    model = Scripted([redact, *said("I cannot say.")], said("Yes."))
    with memory_of() as memory:
        agent = Agent(
            model=model,
            conversation_manager=MemmanConversationManager(memory, "s"),
            callback_handler=None,
        )
        agent("my password is hunter2")
        agent("Are you there?")
        assert "hunter2" not in str(model.sent[-1])
        assert "[blocked]" in str(model.sent[-1])


def test_pinned_message_of_strands_is_pinned() -> None:
    with memory_of() as memory:
        model = FakeModel(memory, "bedrock")
        agent = agent_of(memory, model)
        pinned: Any = {
            "role": "user",
            "content": [{"text": "Never touch setup.py."}],
            "metadata": {"custom": {"pinned": True}},
        }
        agent([pinned])
        play(agent, 20)
        assert {"text": "Never touch setup.py."} in model.requests[-1].messages[0]["content"]


def test_lone_surrogate_in_a_result_is_replaced() -> None:
    with memory_of() as memory:
        model = FakeModel(memory, "bedrock", result="cut \ud83d off")
        agent = agent_of(memory, model)
        play(agent, 2)
        assert "cut \ufffd off" in str(model.requests[-1].messages)
        assert len(memory.get_entries("s")) == 12


# ---------------------------------------------------------------- requests


def test_image_is_sent_as_bytes() -> None:
    image = {"image": {"format": "png", "source": {"bytes": b"\x89PNG\r\n"}}}
    model = Scripted(said("An image."), said("Yes."))
    with memory_of() as memory:
        agent = Agent(
            model=model,
            conversation_manager=MemmanConversationManager(memory, "s"),
            callback_handler=None,
        )
        agent([{"text": "What is it?"}, image])
        again = Agent(  # its messages are rendered, since the agent does not have them
            model=model,
            conversation_manager=MemmanConversationManager(memory, "s"),
            callback_handler=None,
        )
        again("Sure?")
    assert model.sent[0][0]["content"][1] == image
    assert model.sent[1][0]["content"][1] == image


def test_injected_context_is_sent_and_counted() -> None:
    with memory_of() as memory:
        model = FakeModel(memory, "bedrock")
        injector = ContextInjector(lambda _: "It is Monday. " * 50)  # for each user's message
        agent = agent_of(memory, model, plugins=[injector])
        play(agent, 20)
        assert all("It is Monday." in str(each.messages[-1]) for each in model.requests[::2])
        assert max(request.tokens for request in model.requests) <= BUDGET
        assert "Monday" not in memory.export_session("s").to_json()


def test_tools_are_counted_unless_asked_not_to() -> None:
    with memory_of() as memory:
        model = FakeModel(memory, "bedrock")
        for session_id, count_tools in (("with", True), ("without", False)):
            manager = MemmanConversationManager(memory, session_id, count_tools=count_tools)
            play(agent_of(memory, model, conversation_manager=manager), 1)
        first = [
            next(r for r in memory.export_session(s).log if isinstance(r, UsageReported))
            for s in ("with", "without")
        ]
        assert first[0].estimated > first[1].estimated + 20


def test_path_in_place_of_a_manager_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be a MemoryManager, not str"):
        MemmanConversationManager("chat.db", "s")  # type: ignore[arg-type]


def test_async_manager_is_taken() -> None:
    async def run() -> int:
        async with AsyncMemoryManager(config=MemoryConfig(max_tokens=BUDGET)) as memory:
            model = FakeModel(MemoryManager(), "bedrock")
            agent = agent_of(memory, model)
            for turn in range(3):
                await agent.invoke_async(f"question {turn}")
            return len(await memory.get_entries("s"))

    assert asyncio.run(run()) == 18


@pytest.mark.parametrize(
    "config", [None, {}, Mock(), {"model_id": Mock(), "context_window_limit": "8k"}]
)
def test_model_with_any_configuration_is_asked(config: Any) -> None:
    with memory_of() as memory:
        agent = agent_of(memory, FakeModel(memory, "bedrock"))
        agent.model.get_config = lambda: config  # type: ignore[method-assign]
        play(agent, 2)
        assert len(memory.get_entries("s")) == 12


@pytest.mark.parametrize("turns", [20, 200])
def test_new_agent_reads_the_end_of_the_log_alone(turns: int) -> None:
    store = CountingStore()
    with MemoryManager(store, config=MemoryConfig(max_tokens=BUDGET)) as memory:
        fake = FakeModel(memory, "bedrock", steps=0)
        agent = agent_of(memory, fake)
        play(agent, turns)
        memory.retract("s", [memory.get_entries("s", last=3)[0].id])
        for messages in ([], copy.deepcopy(agent.messages[-6:])):
            before = store.records_read
            play(agent_of(memory, fake, messages=messages), 1, turns)
            assert store.records_read - before <= 60
            assert len(memory.get_entries("s")) == 2 * (turns + 1) - 1  # a restored one goes on


# ---------------------------------------------------------------- overflows and usage


class Refusing(ReportingModel):
    """A model that refuses requests of more than a number of messages, without naming a limit."""

    most = 9
    refused = 0

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if len(messages) > self.most:
            self.refused += 1
            raise ContextWindowOverflowException("Input is too long for requested model.")
        async for event in super().stream(messages, *args, **kwargs):
            yield event


def refused_agent(memory: MemoryManager, most: int) -> tuple[Agent, Refusing]:
    model = Refusing(FakeModel(memory, "bedrock"))
    model.most = most
    manager = MemmanConversationManager(memory, "s")
    tools = [reading_tool(model._fake)]
    return Agent(
        model=model, tools=tools, conversation_manager=manager, callback_handler=None
    ), model


def test_refused_request_is_sent_again_shorter() -> None:
    with memory_of(100_000) as memory:
        agent, model = refused_agent(memory, 17)
        play(agent, 8)
        assert 1 <= model.refused <= 5
        assert len(memory.get_entries("s")) == 8 * 6


def test_refusal_of_a_short_request_is_raised_once() -> None:
    with memory_of(100_000) as memory:
        agent, model = refused_agent(memory, 0)
        for _ in range(2):
            with pytest.raises(ContextWindowOverflowException, match="Input is too long"):
                agent("question 0")
        assert model.refused == 2
        model.most = 9
        play(agent, 1)


def test_request_that_cannot_be_shorter_fails() -> None:
    with memory_of(100_000) as memory:
        agent, model = refused_agent(memory, 0)
        agent.system_prompt = "You review code. " * 600
        with pytest.raises(ContextWindowOverflowException, match="What must stay") as caught:
            agent("question 0")
        assert isinstance(caught.value.__cause__, BudgetExceeded)
        assert model.refused == 1


class Meeting(ReportingModel):
    """A model whose first two requests wait for each other."""

    barrier = threading.Barrier(2, timeout=10)

    async def stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        await asyncio.to_thread(self.barrier.wait)
        async for event in super().stream(*args, **kwargs):
            yield event


def test_reentrant_runs_of_an_agent_are_logged_once() -> None:
    with memory_of(100_000) as memory:
        agent = Agent(
            model=Meeting(FakeModel(memory, "bedrock", steps=0)),
            conversation_manager=MemmanConversationManager(memory, "s"),
            concurrent_invocation_mode="unsafe_reentrant",
            callback_handler=None,
        )
        in_threads([partial(agent, "one way"), partial(agent, "another way")], 30)
        texts = {str(entry.content) for entry in memory.get_entries("s")}
        assert texts > {"one way", "another way"}
        assert len(texts) == 4


def test_overflow_before_any_request_is_raised_again() -> None:
    with memory_of() as memory:
        agent = agent_of(memory, FakeModel(memory, "bedrock"))
        error = ContextWindowOverflowException("too long")
        with pytest.raises(ContextWindowOverflowException):
            agent.conversation_manager.reduce_context(agent, error)
        agent.conversation_manager.reduce_context(agent)


@pytest.mark.parametrize("total", [1_010, 110])
def test_cached_tokens_are_counted_once(total: int) -> None:
    counts = {
        "inputTokens": 100 if total == 1_010 else 1_000,
        "outputTokens": 10,
        "totalTokens": 1_010,
        "cacheReadInputTokens": 800,
        "cacheWriteInputTokens": 100,
    }
    with memory_of() as memory:
        agent = Agent(
            model=Scripted(said("Yes.", **counts)),
            conversation_manager=MemmanConversationManager(memory, "s"),
            callback_handler=None,
        )
        agent("Is it?")
        log = memory.export_session("s").log
    [report] = [record for record in log if isinstance(record, UsageReported)]
    assert (report.input_tokens, report.cached_tokens) == (1_000, 800)


# ---------------------------------------------------------------- cache points


class Bedrock(BedrockModel):
    """Bedrock's model: keeps the request that it would send, and answers by a fake."""

    def __init__(self, fake: FakeModel, **config: Any) -> None:
        super().__init__(model_id=CLAUDE, region_name="us-east-1", **config)
        self.fake = ReportingModel(fake)
        self.bodies: list[Any] = []

    async def stream(
        self,
        messages: Any,
        tool_specs: Any = None,
        system_prompt: Any = None,
        *,
        system_prompt_content: Any = None,
        **_: Any,
    ) -> AsyncIterator[Any]:
        self.bodies.append(self.format_request(messages, tool_specs, system_prompt_content))
        unmarked = [
            {**each, "content": [block for block in each["content"] if "cachePoint" not in block]}
            for each in messages
        ]
        async for event in self.fake.stream(unmarked, tool_specs, system_prompt):
            yield event


CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


def cached_bodies(system: Any = "You review code.", **config: Any) -> list[Any]:
    with MemoryManager(model=CLAUDE, config=MemoryConfig(max_tokens=BUDGET)) as memory:
        fake = FakeModel(memory, "bedrock")
        model = Bedrock(fake, **config)
        agent = Agent(
            model=model,
            tools=[reading_tool(fake)],
            system_prompt=system,
            conversation_manager=MemmanConversationManager(memory, "s", cache="auto"),
            callback_handler=None,
        )
        play(agent, 12)
        assert "cachePoint" not in str(agent.messages)
        return model.bodies


def test_bedrock_gets_cache_points() -> None:
    for body in cached_bodies():
        assert "cachePoint" in body["system"][-1]
        points = str(body).count("cachePoint")
        assert 2 <= points <= 4
        assert "cachePoint" in body["messages"][-1]["content"][-1]


def test_application_places_its_own_cache_points() -> None:
    own: Any = [{"text": "You review code."}, {"cachePoint": {"type": "default"}}]
    assert all(str(body).count("cachePoint") == 1 for body in cached_bodies(own))
    automatic = cached_bodies(cache_config=CacheConfig(strategy="auto"))
    assert all("cachePoint" in str(body) for body in automatic)
    assert all(str(body["messages"]).count("cachePoint") <= 1 for body in automatic)
