"""Durable execution, by DBOS on a SQLite file: memory operations are steps, and are not repeated."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS, SetWorkflowID
from memman_pydantic_ai import MemmanHistory
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ToolCallPart

from memman import MemoryConfig, MemoryManager
from memman.testing import FakeModel

from .pydantic_ai_agents import ReportingModel, calling_once, flat

BUDGET = 2_500


@pytest.fixture
def dbos(tmp_path: Path) -> Iterator[None]:
    DBOS(config={"name": "reader", "system_database_url": f"sqlite:///{tmp_path}/dbos.sqlite"})
    # Binding parses much source. A ResourceWarning of another test's event loop, raised as an error inside
    # of that, breaks the parser of Python 3.11.
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    DBOS.destroy()


def test_durable_turns_log_each_message_once(dbos: None, tmp_path: Path) -> None:
    memory = MemoryManager(tmp_path / "chat.db", config=MemoryConfig(max_tokens=BUDGET))
    fake = FakeModel(memory)
    durable = [MemmanHistory(memory), DBOSDurability()]
    agent = Agent(ReportingModel(fake), name="reader", capabilities=durable)

    @agent.tool_plain
    async def read(path: str) -> str:
        """Read a file."""
        return await fake.read(path)

    @DBOS.workflow()
    async def turn(text: str, history: bytes) -> bytes:
        messages = ModelMessagesTypeAdapter.validate_json(history)
        result = await agent.run(text, message_history=messages, conversation_id="c")
        return ModelMessagesTypeAdapter.dump_json(result.all_messages())

    async def play() -> list[ModelMessage]:
        history = b"[]"
        for number in range(8):
            for _ in range(2):  # the second time DBOS returns the steps that it has recorded
                with SetWorkflowID(f"turn-{number}"):
                    again = await turn(f"question {number}", history)
            history = again
        return ModelMessagesTypeAdapter.validate_json(history)

    DBOS.launch()
    history = asyncio.run(play())
    steps: list[Any] = DBOS.list_workflow_steps("turn-7")
    names = [step["function_name"].rpartition("memman.")[2] for step in steps]
    assert names.count("prepare_model_request") == 2
    assert names.count("record_usage") == 2
    assert names.count("log") == 1
    assert len(fake.requests) == 16
    assert not any(request.violations for request in fake.requests)
    assert max(request.tokens for request in fake.requests) <= BUDGET
    entries = memory.get_entries("c")
    assert len(entries) == 8 * 6
    spoken = [message["content"] for message in flat(history) if message["content"]]
    assert [entry.text for entry in entries if entry.type != "tool_call"] == spoken
    memory.close()


def test_durable_recall_is_replayed_and_not_repeated(dbos: None, tmp_path: Path) -> None:
    memory = MemoryManager(tmp_path / "chat.db", config=MemoryConfig(max_tokens=BUDGET))
    memory.add_user_message("c", "the code is 4711")
    call = ToolCallPart("recall", {"query": "code"}, "call-1")
    durable = [MemmanHistory(memory, recall=True), DBOSDurability()]
    agent = Agent(calling_once(call), name="caller", capabilities=durable)

    @DBOS.workflow()
    async def ask(text: str) -> bytes:
        result = await agent.run(text, conversation_id="c")
        return ModelMessagesTypeAdapter.dump_json(result.all_messages())

    async def play() -> list[bytes]:
        answers = []
        for _ in range(2):
            with SetWorkflowID("ask"):
                answers.append(await ask("Which code?"))
        return answers

    DBOS.launch()
    first, second = asyncio.run(play())
    assert first == second
    assert b"the code is 4711" in first
    names = [str(step["function_name"]) for step in DBOS.list_workflow_steps("ask")]
    assert [name.rpartition("memman.")[2] for name in names].count("answer_recall") == 1
    memory.close()
