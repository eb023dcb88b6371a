"""`MemmanEngine` against the laws of framework adapters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from memman import MemoryManager, valid_id
from memman.testing import AdapterConformance, AdapterDriver, FakeModel

from .hermes import PROMPT, ModelServer, agent_of, use


class HermesDriver(AdapterDriver):
    """A conversation of an agent whose messages the application keeps, as Hermes' own shells do."""

    def __init__(self, memory: MemoryManager, session_id: str, model: FakeModel) -> None:
        # Hermes puts the id of a session into its environment, where NUL cannot be.
        session_id = session_id.replace("\x00", "")
        use(memory, recall=model.recalls)
        self.server = ModelServer(model)
        self.agent = agent_of(self.server, session_id)
        self.session_id = valid_id(session_id)
        self.messages: list[dict[str, Any]] = []

    async def run(self, text: str, *, stream: bool = False) -> str:
        return await asyncio.to_thread(self.run_sync, text, stream)

    def run_sync(self, text: str, stream: bool = False) -> str:
        said, errors = len(self.server.said), len(self.server.errors)
        self.server.said.append({"role": "user", "content": text})
        result = self.agent.run_conversation(
            text,
            system_message=PROMPT,
            conversation_history=self.messages,
            stream_callback=(lambda piece: None) if stream else None,
        )
        if result.get("failed") or result["final_response"] is None:
            del self.server.said[said:]
            raise self.server.errors[errors]
        self.messages = result["messages"]
        return str(result["final_response"])

    async def history(self) -> Sequence[Any]:
        return self.server.said

    def resume(self, memory: MemoryManager, model: FakeModel) -> HermesDriver:
        other = HermesDriver(memory, self.session_id, model)
        other.messages = json.loads(json.dumps(self.messages))
        other.server.said = list(self.server.said)
        return other

    async def rewind(self, turns: int) -> None:
        for messages in (self.messages, self.server.said):
            begins = [n for n, message in enumerate(messages) if message["role"] == "user"]
            del messages[begins[-turns] :]


class TestMemmanEngine(AdapterConformance):
    budget = 4_000  # Hermes' own prompt has a thousand tokens
    turns = 40
    lacks: ClassVar = {
        "native": "no part of a chat completion is opaque",
        "cancel": "an agent is interrupted by its own method, from another thread",
        "unknown": "a message with another role is dropped before the engine sees it",
        "fork": "a branch is a new session of Hermes with a copy of the messages",
        "events": "its stream has the text of the model alone",
        "quotes": "the agent keeps its own messages until the next compaction",
        "switch": "a compaction for a small model replaces the agent's messages, also for a larger one",
    }

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> HermesDriver:
        return HermesDriver(memory, session_id, model)
