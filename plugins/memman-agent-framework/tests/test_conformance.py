"""The laws of every adapter, with Agent Framework."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from agent_framework import Agent, AgentSession, HistoryProvider, Message
from memman_agent_framework import MemmanHistoryProvider

from memman import MemoryManager, valid_id
from memman.testing import AdapterConformance, AdapterDriver, FakeModel

from .framework_agents import ReportingClient, chat, reading_tool


class Audit(HistoryProvider):
    """Stores what the framework has it store, and gives runs nothing."""

    def __init__(self) -> None:
        super().__init__("audit", load_messages=False)

    async def get_messages(self, *_: Any, state: Any = None, **__: Any) -> list[Message]:
        return list(state["messages"])

    async def save_messages(self, _: Any, messages: Any, *, state: Any = None, **__: Any) -> None:
        state.setdefault("messages", []).extend(messages)


class Driver(AdapterDriver):
    """A session of an agent with a second history provider, which is the history to compare with."""

    def __init__(self, memory: MemoryManager, session: AgentSession, model: FakeModel) -> None:
        self.session_id = valid_id(session.session_id)
        self._session = session
        self._provider = MemmanHistoryProvider(memory, recall=model.recalls)
        self._agent = Agent(
            ReportingClient(model),
            "You review code.",
            tools=[reading_tool(model)],
            context_providers=[self._provider, Audit()],
        )

    async def run(self, text: str, *, stream: bool = False) -> str:
        """Run a turn."""
        try:
            if stream:
                updates = self._agent.run(text, session=self._session, stream=True)
                async for update in updates:
                    if told := (update.additional_properties or {}).get("memman"):
                        self.events.append(told["name"])
                return (await updates.get_final_response()).text
            return (await self._agent.run(text, session=self._session)).text
        except asyncio.CancelledError:
            # The framework forgets a run that was cut off. memman keeps what the model was sent.
            audit = self._session.state.setdefault("audit", {}).setdefault("messages", [])
            audit.append(Message("user", [text]))
            raise

    async def history(self) -> Sequence[Any]:
        """Return what the second provider has stored."""
        return chat(self._session.state["audit"]["messages"])

    def resume(self, memory: MemoryManager, model: FakeModel) -> AdapterDriver:
        """Restore the session from its JSON."""
        stored = json.dumps(self._session.to_dict())
        return Driver(memory, AgentSession.from_dict(json.loads(stored)), model)

    def switch(self, model: FakeModel) -> None:
        """Give the agent another client."""
        self._agent.client = ReportingClient(model)
        self._agent.default_options["model"] = model.name

    async def add_unknown(self, text: str) -> None:
        """Save a message with a role of the future."""
        message = Message("future", [text])
        await self._provider.save_messages(self._session.session_id, [message])


class TestAgentFramework(AdapterConformance):
    lacks: ClassVar = {
        "sync": "it is async",
        "fork": "a session has one line of messages",
        "rewind": "its history providers only add messages",
    }

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> AdapterDriver:
        return Driver(memory, AgentSession(session_id=session_id), model)
