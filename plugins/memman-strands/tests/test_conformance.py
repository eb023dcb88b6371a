"""The laws of every adapter, with Strands Agents."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Sequence
from tempfile import mkdtemp
from typing import Any, ClassVar
from uuid import uuid4

from memman_strands import MemmanConversationManager
from strands import Agent
from strands.session import FileSessionManager

from memman import MemoryManager, valid_id
from memman.testing import AdapterConformance, AdapterDriver, FakeModel

from .strands_agents import ReportingModel, plain, reading_tool

FILES = mkdtemp()
atexit.register(shutil.rmtree, FILES)


class Driver(AdapterDriver):
    """A conversation of an agent whose messages a session manager stores in files."""

    def __init__(
        self,
        memory: MemoryManager,
        session_id: str,
        model: FakeModel,
        stored_as: str | None = None,
    ) -> None:
        self.session_id = valid_id(session_id)
        self._memory = memory
        self._model = model
        self._stored_as = stored_as or uuid4().hex
        self._store = FileSessionManager(session_id=self._stored_as, storage_dir=FILES)
        self._agent = Agent(
            model=ReportingModel(model),
            tools=[reading_tool(model)],
            system_prompt="You review code.",
            conversation_manager=MemmanConversationManager(
                memory, session_id, recall=model.recalls
            ),
            session_manager=self._store,
            callback_handler=None,
        )

    async def run(self, text: str, *, stream: bool = False) -> str:
        """Run a turn."""
        return await self._run(text, stream)

    async def _run(self, text: str | None, stream: bool = False) -> str:
        if not stream:
            return str(await self._agent.invoke_async(text)).removesuffix("\n")
        answer = ""
        async for event in self._agent.stream_async(text):
            if "memman" in event:
                self.events.append(event["memman"]["name"])
            if "message" in event:
                answer = "".join(block.get("text", "") for block in event["message"]["content"])
        return answer

    def run_sync(self, text: str) -> str:
        """Run a turn without an event loop."""
        return str(self._agent(text)).removesuffix("\n")

    async def retry(self, text: str) -> str:
        """Go on: the agent has the message already."""
        return await self._run(None)

    async def history(self) -> Sequence[Any]:
        """Return what the session manager stored of what left the agent, and the agent's messages."""
        left = self._agent.conversation_manager.removed_message_count
        stored = self._store.list_messages(self._stored_as, self._agent.agent_id, limit=left)
        return plain([each.to_message() for each in stored if left] + self._agent.messages)

    def resume(self, memory: MemoryManager, model: FakeModel) -> AdapterDriver:
        """Restore the agent."""
        return Driver(memory, self.session_id, model, self._stored_as)

    async def fork(self, turns: int) -> AdapterDriver:
        """Restore an earlier state in another session."""
        snapshot = self._agent.take_snapshot(preset="session")
        snapshot.data["messages"] = snapshot.data["messages"][: self._start_of(turns)]
        other = Driver(self._memory, f"{self.session_id}-fork", self._model)
        other._agent.load_snapshot(snapshot)
        return other

    async def rewind(self, turns: int) -> None:
        """Cut the messages."""
        del self._agent.messages[self._start_of(turns) :]

    def _start_of(self, turns: int) -> int:
        starts = [
            index
            for index, message in enumerate(self._agent.messages)
            if message["role"] == "user" and "text" in message["content"][0]
        ]
        return starts[-turns]

    def switch(self, model: FakeModel) -> None:
        """Give the agent another model."""
        self._agent.model = ReportingModel(model)

    async def add_unknown(self, text: str) -> None:
        """Add a message with a role of the future."""
        message: Any = {"role": "future", "content": [{"text": text}]}
        self._agent.messages.append(message)


class TestStrands(AdapterConformance):
    format = "bedrock"
    lacks: ClassVar = {
        "surrogates": "FileSessionManager cannot write a lone surrogate; see test_strands.py"
    }
    budget = 3_000  # memman prices the messages around a summary a little higher than they are

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> AdapterDriver:
        return Driver(memory, session_id, model)
