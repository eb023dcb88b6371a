"""The laws of every adapter, with LiteLLM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from litellm.exceptions import APIError, BadRequestError

from memman import MemoryManager, valid_id
from memman.testing import AdapterConformance, AdapterDriver, FakeModel, FakeModelError

from .chats import TOOL, ask, logger_of

PROMPT = {"role": "system", "content": "You review code."}


class Driver(AdapterDriver):
    """A client of LiteLLM: a list of messages and a loop."""

    def __init__(
        self,
        memory: MemoryManager,
        session_id: str,
        model: FakeModel,
        messages: Sequence[Any] = (PROMPT,),
    ) -> None:
        self.session_id = valid_id(session_id)
        self._name = session_id
        self._memory = memory
        self._model = model
        self._messages = list(messages)
        logger_of(memory)

    async def run(self, text: str, *, stream: bool = False) -> str:
        """Run a turn."""
        self._messages.append({"role": "user", "content": text})
        return await self._loop(stream)

    async def retry(self, text: str) -> str:
        """Go on: the list has the message already."""
        return await self._loop()

    async def _loop(self, stream: bool = False) -> str:
        while True:
            try:
                reply = await ask(
                    self._model,
                    self._messages,
                    stream=stream,
                    tools=[TOOL],
                    metadata={"session_id": self._name, "memory": str(id(self._memory))},
                )
            except (APIError, BadRequestError) as error:
                raise FakeModelError(str(error)) from error
            self._messages.append(reply)
            if not reply.tool_calls:
                return str(reply.content)
            for call in reply.tool_calls:
                result = await self._model.read(**json.loads(call.function.arguments))
                self._messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    async def history(self) -> Sequence[Any]:
        """Return the client's messages."""
        return self._messages[1:]

    def resume(self, memory: MemoryManager, model: FakeModel) -> AdapterDriver:
        """Continue with the same list."""
        return Driver(memory, self._name, model, self._messages)

    async def fork(self, turns: int) -> AdapterDriver:
        """Continue with a copy of the list, under another name."""
        past = self._messages[: self._start_of(turns)]
        return Driver(self._memory, f"{self._name}-fork", self._model, past)

    async def rewind(self, turns: int) -> None:
        """Cut the list."""
        del self._messages[self._start_of(turns) :]

    def _start_of(self, turns: int) -> int:
        return [n for n, each in enumerate(self._messages) if each["role"] == "user"][-turns]

    def switch(self, model: FakeModel) -> None:
        """Ask another model."""
        self._model = model

    async def add_unknown(self, text: str) -> None:
        """Add a message with a role of the future."""
        self._messages.append({"role": "future", "content": text})


class TestLiteLLM(AdapterConformance):
    lacks: ClassVar = {
        "sync": "litellm.completion calls no hook that may change its messages",
        "recall": "a client runs its own tools",
        "events": "its stream has chunks of the model alone",
    }

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> AdapterDriver:
        return Driver(memory, session_id, model)
