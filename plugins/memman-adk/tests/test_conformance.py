"""The laws of every adapter, with Google's Agent Development Kit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, ClassVar

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from memman_adk import MemmanPlugin
from memman_adk.contents import message_of

from memman import MemoryManager, valid_id
from memman.testing import AdapterConformance, AdapterDriver, FakeModel

from .adk_agents import ReportingModel, reading_tool, user

RECENT = 40  # events
USER: Any = {"app_name": "tests", "user_id": "ada"}


class Driver(AdapterDriver):
    """A session of ADK and its runner."""

    def __init__(
        self,
        memory: MemoryManager,
        session_id: str,
        model: FakeModel,
        service: BaseSessionService | None = None,
    ) -> None:
        self.session_id = valid_id(session_id)
        self._of_adk = session_id
        self._memory = memory
        self._model = model
        self._service = service or InMemorySessionService()
        self._agent = LlmAgent(
            name="reviewer",
            model=ReportingModel(model),
            instruction="You review code.",
            tools=[reading_tool(model)],
        )
        self._runner = Runner(
            app=App(
                name=USER["app_name"],
                root_agent=self._agent,
                plugins=[MemmanPlugin(memory, recall=model.recalls)],
            ),
            session_service=self._service,
            auto_create_session=True,
        )

    async def run(self, text: str, *, stream: bool = False) -> str:
        """Run a turn."""
        answer = ""
        events = self._runner.run_async(
            user_id=USER["user_id"],
            session_id=self._of_adk,
            new_message=user(text),
            run_config=_config(stream),
        )
        async with aclosing(events):
            async for event in events:
                told = (event.custom_metadata or {}).get("memman", ())
                self.events += [each["name"] for each in told]
                if event.is_final_response():
                    answer = _text(event)
        return answer

    def run_sync(self, text: str) -> str:
        """Run a turn without an event loop."""
        events = self._runner.run(
            user_id=USER["user_id"],
            session_id=self._of_adk,
            new_message=user(text),
            run_config=_config(),
        )
        *_, last = events
        return _text(last)

    async def retry(self, text: str) -> str:
        """Take the failed turn back, and run it again."""
        await self.rewind(1)
        return await self.run(text)

    async def history(self) -> Sequence[Any]:
        """Return the contents of the session's events, without what was rewound."""
        return [message_of(event.content) for event in await self._events() if event.content]

    def resume(self, memory: MemoryManager, model: FakeModel) -> AdapterDriver:
        """Make another runner for the stored session."""
        return Driver(memory, self._of_adk, model, self._service)

    async def fork(self, turns: int) -> AdapterDriver:
        """Copy the events to another session."""
        other = Driver(self._memory, f"{self._of_adk}-fork", self._model, self._service)
        session = await self._service.create_session(**USER, session_id=other._of_adk)
        events = await self._events()
        end = _starts(events)[-turns]
        for event in events[:end]:
            await self._service.append_event(session, event)
        return other

    async def rewind(self, turns: int) -> None:
        """Rewind the session."""
        events = await self._events()
        await self._runner.rewind_async(
            user_id=USER["user_id"],
            session_id=self._of_adk,
            rewind_before_invocation_id=events[_starts(events)[-turns]].invocation_id,
        )

    def switch(self, model: FakeModel) -> None:
        """Give the agent another model."""
        self._agent.model = ReportingModel(model)

    async def add_unknown(self, text: str) -> None:
        """Append an event with a role of the future."""
        content = types.Content(role="future", parts=[types.Part(text=text)])
        event = Event(author="reviewer", invocation_id="i", content=content)
        await self._service.append_event(await self._session(), event)

    async def _session(self) -> Session:
        session = await self._service.get_session(**USER, session_id=self._of_adk)
        assert session
        return session

    async def _events(self) -> list[Event]:
        found: list[Event] = []
        for event in (await self._session()).events:
            target = event.actions.rewind_before_invocation_id
            if target:
                del found[[each.invocation_id for each in found].index(target) :]
            else:
                found.append(event)
        return found


def _config(stream: bool = False) -> RunConfig:
    """Return how a run loads its session: ADK copies all events of a session, and the laws have 800."""
    return RunConfig(
        streaming_mode=StreamingMode.SSE if stream else StreamingMode.NONE,
        get_session_config=GetSessionConfig(num_recent_events=RECENT),
    )


def _text(event: Event) -> str:
    parts = (event.content and event.content.parts) or ()
    return "".join(part.text or "" for part in parts)


def _starts(events: Sequence[Event]) -> list[int]:
    return [index for index, event in enumerate(events) if event.author == "user"]


class TestAdk(AdapterConformance):
    format = "gemini"
    lacks: ClassVar = {}

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> AdapterDriver:
        return Driver(memory, session_id, model)
