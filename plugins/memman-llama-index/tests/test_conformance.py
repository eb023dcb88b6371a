"""The laws of every adapter, with LlamaIndex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from memman_llama_index import MemmanEvent

from memman import MemoryManager
from memman.testing import AdapterConformance, AdapterDriver, FakeModel

from .llama_index_agents import Both, ReportingModel, flat, reading_agent


class Driver(AdapterDriver):
    """A conversation of an agent with a memory."""

    def __init__(
        self,
        memory: MemoryManager,
        session_id: str,
        model: FakeModel,
        own: ChatMemoryBuffer | None = None,
        history: list[ChatMessage] | None = None,
    ) -> None:
        self.memory = Both.from_defaults(memory, session_id, chat_history=history)
        if own is not None:
            self.memory._own = own
        self.session_id = self.memory.session_id
        self._manager = memory
        self._model = model
        self._agent = reading_agent(model)

    async def run(self, text: str, *, stream: bool = False) -> str:
        """Run a turn."""
        return await self._run(stream, user_msg=text)

    async def _run(self, stream: bool, **given: Any) -> str:
        self._agent.streaming = stream
        handler = self._agent.run(memory=self.memory, max_iterations=100, **given)
        if stream:
            async for event in handler.stream_events():
                if isinstance(event, MemmanEvent):
                    self.events.append(event.name)
        return str(await handler)

    async def retry(self, text: str) -> str:
        """Go on: the memory has the question, and the steps so far."""
        return await self._run(False, chat_history=await self.memory.aget_all())

    async def history(self) -> Sequence[Any]:
        """Return what LlamaIndex's own memory has."""
        return flat(self.memory._own.get_all())

    def resume(self, memory: MemoryManager, model: FakeModel) -> AdapterDriver:
        """Begin with nothing but the session's id."""
        return Driver(memory, self.session_id, model, self.memory._own)

    async def fork(self, turns: int) -> AdapterDriver:
        """Give a part of the messages to another session."""
        history = self._until(turns)
        return Driver(self._manager, f"{self.session_id}-fork", self._model, None, history)

    async def rewind(self, turns: int) -> None:
        """Set the messages without the last ones."""
        self.memory.set(self._until(turns))

    def switch(self, model: FakeModel) -> None:
        """Give the agent another model."""
        self._agent.llm = ReportingModel(model)

    def _until(self, turns: int) -> list[ChatMessage]:
        messages = self.memory.get_all()
        starts = [index for index, each in enumerate(messages) if each.role == "user"]
        return messages[: starts[-turns]]


class TestMemmanMemory(AdapterConformance):
    lacks: ClassVar = {
        "sync": "agents run in an event loop",
        "surrogates": "pydantic refuses a lone surrogate",
        "unknown": "pydantic validates roles and blocks; see test_llama_index.py",
    }

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> AdapterDriver:
        return Driver(memory, session_id, model)
