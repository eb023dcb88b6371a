"""The laws of every adapter, with pydantic-ai."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    UserPromptPart,
)

from memman import MemoryManager, valid_id
from memman.testing import AdapterConformance, AdapterDriver, FakeModel

from .pydantic_ai_agents import ReportingModel, flat, reading_agent


class Driver(AdapterDriver):
    """A conversation whose application keeps pydantic-ai's messages."""

    def __init__(
        self,
        memory: MemoryManager,
        conversation_id: str,
        model: FakeModel,
        messages: Sequence[ModelMessage] = (),
    ) -> None:
        self.session_id = valid_id(conversation_id)
        self._memory = memory
        self._model = model
        self._agent = reading_agent(memory, model)
        self._messages = list(messages)
        self._given: Any = {"conversation_id": conversation_id}

    async def run(self, text: str, *, stream: bool = False) -> str:
        """Run a turn."""
        given = {**self._given, "message_history": self._messages}
        if stream:
            async with self._agent.run_stream(text, **given) as streamed:
                answer = "".join([piece async for piece in streamed.stream_text(delta=True)])
                self._messages = streamed.all_messages()
                return answer
        result = await self._agent.run(text, **given)
        self._messages = result.all_messages()
        return result.output

    def run_sync(self, text: str) -> str:
        """Run a turn without an event loop."""
        result = self._agent.run_sync(text, message_history=self._messages, **self._given)
        self._messages = result.all_messages()
        return result.output

    async def history(self) -> Sequence[Any]:
        """Return the application's messages; JSON has no lone surrogates."""
        text = json.dumps(flat(self._messages), ensure_ascii=False)
        return list(json.loads(re.sub("[\ud800-\udfff]", "\ufffd", text)))

    def resume(self, memory: MemoryManager, model: FakeModel) -> AdapterDriver:
        """Load the messages that the application stored."""
        stored = ModelMessagesTypeAdapter.dump_json(self._messages)
        messages = ModelMessagesTypeAdapter.validate_json(stored)
        return Driver(memory, self._given["conversation_id"], model, messages)

    async def fork(self, turns: int) -> AdapterDriver:
        """Continue a part of the messages as another conversation."""
        fork_id = f"{self.session_id}-fork"
        return Driver(self._memory, fork_id, self._model, self._until(turns))

    async def rewind(self, turns: int) -> None:
        """Cut the messages."""
        self._messages = self._until(turns)

    def switch(self, model: FakeModel) -> None:
        """Give the agent another model."""
        self._agent.model = ReportingModel(model)

    def _until(self, turns: int) -> list[ModelMessage]:
        starts = [
            index
            for index, message in enumerate(self._messages)
            if isinstance(message, ModelRequest)
            and any(isinstance(part, UserPromptPart) for part in message.parts)
        ]
        return self._messages[: starts[-turns]]


class TestMemmanHistory(AdapterConformance):
    lacks: ClassVar = {
        "unknown": "pydantic-ai validates the kinds of messages and parts",
        "events": "its stream has events of its own kinds alone",
    }

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> AdapterDriver:
        return Driver(memory, session_id, model)
