"""What `MemmanPlugin` does in ADK's applications, beyond the laws of every adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import BaseAgent, LlmAgent, ParallelAgent, SequentialAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.artifacts import InMemoryArtifactService
from google.adk.code_executors import UnsafeLocalCodeExecutor
from google.adk.events import Event, EventActions
from google.adk.events.event_actions import EventCompaction
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.planners import PlanReActPlanner
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import LongRunningFunctionTool, load_artifacts
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import Workflow
from google.genai import types
from memman_adk import MemmanPlugin, MemmanSessionService
from memman_adk.contents import message_of

from memman import (
    AsyncMemoryManager,
    BudgetExceeded,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
)
from memman.records import Compressed, UsageReported, ids_retracted_by
from memman.testing import FakeModel
from tests.adapters.counting import CountingStore

from .adk_agents import ReportingModel, reading_tool, user

BUDGET = 2_500
RELEASE = tuple(map(int, version("google-adk").split(".")[:2]))
# Until 2.11 ADK showed an agent what happened inside a tool, besides its result.
SINCE_2_12 = pytest.mark.skipif(RELEASE < (2, 12), reason="needs google-adk 2.12")
PICTURE = b"\x89PNG\xff\xfe"


class Scripted(BaseLlm):
    """A model that answers with given parts and keeps what it is sent."""

    replies: Any = None
    sent: Any = None

    def __init__(self, *replies: Any) -> None:
        super().__init__(model="scripted")
        self.replies = list(replies)
        self.sent = []

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.sent.append(llm_request.model_copy())
        reply = self.replies.pop(0) if self.replies else "Done."
        if isinstance(reply, Exception):
            raise reply
        parts = reply if isinstance(reply, list) else [reply]
        parts = [types.Part(text=part) if isinstance(part, str) else part for part in parts]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


class Talk:
    """An application with one session of one user."""

    def __init__(
        self,
        root: Any,
        *plugins: BasePlugin,
        service: BaseSessionService | None = None,
        session_id: str = "s",
        user_id: str = "ada",
        **app: Any,
    ) -> None:
        self.service = service or InMemorySessionService()
        self.session_id = session_id
        self.user_id = user_id
        self.runner = Runner(
            app=App(name="tests", root_agent=root, plugins=list(plugins), **app),
            session_service=self.service,
            artifact_service=InMemoryArtifactService(),
            auto_create_session=True,
        )

    def say(self, text: str | types.Content, **config: Any) -> list[Event]:
        async def run() -> list[Event]:
            return [event async for event in self.events(text, **config)]

        return asyncio.run(run())

    def events(self, text: str | types.Content, **config: Any) -> AsyncGenerator[Event, None]:
        return self.runner.run_async(
            user_id=self.user_id,
            session_id=self.session_id,
            new_message=user(text) if isinstance(text, str) else text,
            run_config=RunConfig(**config),
        )

    def session(self) -> Session:
        found = asyncio.run(
            self.service.get_session(
                app_name="tests", user_id=self.user_id, session_id=self.session_id
            )
        )
        assert found
        return found

    def rewind(self, invocation_id: str) -> None:
        asyncio.run(
            self.runner.rewind_async(
                user_id=self.user_id,
                session_id=self.session_id,
                rewind_before_invocation_id=invocation_id,
            )
        )


def memory_of(budget: int = BUDGET, store: str | None = None) -> MemoryManager:
    config = MemoryConfig(max_tokens=budget, max_entries=None)
    return MemoryManager(store, model=FakeModel.name, config=config)


def agent_of(model: BaseLlm, name: str = "reviewer", **more: Any) -> LlmAgent:
    return LlmAgent(name=name, model=model, instruction="You review code.", **more)


def call(name: str, **arguments: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=arguments))


def texts(contents: Sequence[types.Content]) -> list[str]:
    return [
        part.text or f"{kind}:{inner.name}"
        for content in contents
        for part in content.parts or ()
        for kind, inner in (("call", part.function_call), ("result", part.function_response))
        if inner or (part.text and kind == "call")
    ]


def log_of(memory: MemoryManager, session_id: str = "s") -> list[str]:
    return [str(entry.content) for entry in memory.get_entries(session_id)]


def tokens(memory: MemoryManager, request: LlmRequest) -> int:
    messages = [message_of(content) for content in request.contents]
    return int(memory.count_tokens(messages, system=request.config.system_instruction))


def retractions(memory: MemoryManager, session_id: str) -> int:
    log = memory.export_session(session_id).log
    return sum(bool(ids_retracted_by(record)) for record in log if isinstance(record, Compressed))


def read(path: str) -> str:
    """Read a file."""
    return f"# {path}\n" + "total = total + compute(row)\n" * 25


# ---------------------------------------------------------------- events and entries


def test_entries_have_the_ids_and_origin_of_events() -> None:
    with memory_of() as memory:
        app = Talk(agent_of(Scripted(call("read", path="a")), tools=[read]), MemmanPlugin(memory))
        app.say("Is a sound?")
        events, entries = app.session().events, memory.get_entries("s")
        assert [entry.id for entry in entries] == [f"adk-{event.id}" for event in events]
        assert [entry.metadata["adk"]["author"] for entry in entries] == [
            "user", "reviewer", "reviewer", "reviewer",
        ]  # fmt: skip
        assert entries[0].metadata["adk"] == {
            "author": "user",
            "invocation_id": events[0].invocation_id,
            "timestamp": events[0].timestamp,
            "user_id": "ada",
            "session_id": "s",
        }


def test_final_answer_is_logged_at_once() -> None:
    async def until_answered(app: Talk) -> None:
        async for event in app.events("Is a sound?"):
            if event.is_final_response():
                assert log_of(memory)[-1] == "It is."

    with memory_of() as memory:
        asyncio.run(until_answered(Talk(agent_of(Scripted("It is.")), MemmanPlugin(memory))))


def test_partial_events_are_not_logged() -> None:
    with memory_of() as memory:
        model = ReportingModel(FakeModel(memory, "gemini"))
        app = Talk(agent_of(model, tools=[reading_tool(model.fake)]), MemmanPlugin(memory))
        events = app.say("Is a sound?", streaming_mode=StreamingMode.SSE)
        assert len([event for event in events if event.partial]) == 2
        stored = app.session().events
        assert [e.id.split(":")[0] for e in memory.get_entries("s") if ":" not in e.id] == [
            f"adk-{event.id}" for event in stored
        ]
        records = memory.export_session("s").log
        reports = [record for record in records if isinstance(record, UsageReported)]
        assert len(reports) == 2, "one for each request"


def test_signatures_in_bytes_come_back() -> None:
    signature = bytes(range(256))
    first = types.Part(
        function_call=types.FunctionCall(name="read", args={"path": "a"}),
        thought_signature=signature,
    )
    model = Scripted([types.Part(text="Hm.", thought=True), first], "It is sound.")
    with memory_of() as memory:
        app = Talk(agent_of(model, tools=[read]), MemmanPlugin(memory))
        app.say("Is a sound?")
        app.say("Sure?")
        parts = [part for content in model.sent[-1].contents for part in content.parts or ()]
        assert [part.thought_signature for part in parts if part.function_call] == [signature]


def plain() -> tuple[Any, list[Scripted]]:
    model = Scripted(
        [call("read", path="a"), call("read", path="b")],
        "Both are sound.",
        [types.Part(text="Hm.", thought=True, thought_signature=b"\xff"), call("read", path="c")],
    )
    return agent_of(model, tools=[read]), [model]


def with_dynamic_instruction() -> tuple[Any, list[Scripted]]:
    model = Scripted(call("read", path="a"), "It is sound.")
    instructions = {"static_instruction": "You review.", "instruction": "It is turn {turn?}."}
    agent = LlmAgent(name="reviewer", model=model, tools=[read], **instructions)
    return agent, [model]


def with_plans() -> tuple[Any, list[Scripted]]:
    plan = types.Part(text="/*PLANNING*/ Read it.", thought=True)
    model = Scripted([plan, "/*FINAL_ANSWER*/ Yes."], call("read", path="a"))
    return agent_of(model, tools=[read], planner=PlanReActPlanner()), [model]


def with_code() -> tuple[Any, list[Scripted]]:
    model = Scripted("I compute:\n```tool_code\nprint(1 + 1)\n```\n", "It is 2.")
    return agent_of(model, code_executor=UnsafeLocalCodeExecutor()), [model]


def with_task() -> tuple[Any, list[Scripted]]:
    worker = Scripted(call("read", path="a"), "Which b?", call("finish_task", result="42"))
    model = Scripted(call("worker", request="Look."), "It is 42.")
    agent = agent_of(worker, "worker", description="Works.", mode="task", tools=[read])
    return agent_of(model, sub_agents=[agent]), [model, worker]


def with_single_turn() -> tuple[Any, list[Scripted]]:
    worker = Scripted(call("read", path="a"), "one", "two")
    model = Scripted(call("worker", request="Look."), "One.", call("worker", request="Again."))
    agent = agent_of(worker, "worker", description="Works.", mode="single_turn", tools=[read])
    return agent_of(model, sub_agents=[agent]), [model, worker]


def with_workflow() -> tuple[Any, list[Scripted]]:
    models = [Scripted("one", "two"), Scripted("three", "four")]
    first, second = (agent_of(model, f"node_{n}") for n, model in enumerate(models))
    return Workflow(name="flow", edges=[("START", first, second)]), models


@pytest.mark.parametrize(
    "application",
    [
        plain,
        with_dynamic_instruction,
        with_plans,
        with_code,
        with_task,
        pytest.param(with_single_turn, marks=SINCE_2_12),
        with_workflow,
    ],
)
def test_request_is_what_adk_would_send(
    application: Callable[[], tuple[Any, list[Scripted]]],
) -> None:
    picture = types.Part(inline_data=types.Blob(data=PICTURE, mime_type="image/png"))
    sent = []
    with memory_of(100_000) as memory:
        for plugins in ([], [MemmanPlugin(memory)]):
            root, models = application()
            app = Talk(root, *plugins)
            app.say("Are a and b sound?")
            app.say(types.Content(role="user", parts=[types.Part(text="And this?"), picture]))
            app.say("Sure?")
            sent.append([request.contents for model in models for request in model.sent])
        assert sent[1] == sent[0]
        assert all(retractions(memory, each.session_id) == 0 for each in memory.list_sessions())
        document = "".join(
            memory.export_session(each.session_id).to_json() for each in memory.list_sessions()
        )
        assert "It is turn" not in document


def test_ids_of_calls_are_kept_for_models_that_need_them() -> None:
    class Pairing(BasePlugin):
        """Stands for a model that pairs results by id, for which ADK keeps its ids."""

        async def before_model_callback(
            self, *, callback_context: Any, llm_request: LlmRequest
        ) -> None:
            calls = [
                part.function_call or part.function_response
                for content in llm_request.contents
                for part in content.parts or ()
            ]
            for each in filter(None, calls):
                each.id = f"adk-{each.name}"

    model = Scripted(call("read", path="a"))
    with memory_of() as memory:
        app = Talk(agent_of(model, tools=[read]), Pairing(name="pairing"), MemmanPlugin(memory))
        app.say("Is a sound?")
        _, asked, answered = model.sent[-1].contents
        assert asked.parts
        assert answered.parts
        ids = [asked.parts[0].function_call.id, answered.parts[0].function_response.id]
        assert ids == [memory.get_entries("s")[1].call_id] * 2


def test_late_result_of_a_long_tool_finds_its_call() -> None:
    def approve(change: str) -> dict[str, str]:
        """Ask a person."""
        return {"status": "pending"}

    model = Scripted(call("approve", change="x"), "Waiting.", "No news.")
    with memory_of() as memory:
        agent = agent_of(model, tools=[LongRunningFunctionTool(approve)])
        app = Talk(agent, MemmanPlugin(memory))
        app.say("Approve x.")
        app.say("And?")
        asked = next(
            part.function_call
            for event in app.session().events
            for part in event.content.parts
            if part.function_call
        )
        answer = types.FunctionResponse(
            id=asked.id, name="approve", response={"status": "approved"}
        )
        app.say(types.Content(role="user", parts=[types.Part(function_response=answer)]))
        assert "approved" in str(model.sent[-1].contents)
        assert retractions(memory, "s") == 0


def test_odd_results_of_tools_are_kept() -> None:
    def look() -> dict[str, Any]:
        """Look."""
        return {"found": {1, 2}, "when": float("nan"), "cut": "\ud83d"}

    model = Scripted(call("look"))
    with memory_of() as memory:
        app = Talk(agent_of(model, tools=[look]), MemmanPlugin(memory))
        app.say("Look.")
        app.say("Again?")
        assert "\ufffd" in log_of(memory)[2]
        assert len(model.sent) == 3


def test_events_that_no_model_sees_are_not_logged() -> None:
    async def append(app: Talk) -> None:
        session = await app.service.get_session(app_name="tests", user_id="ada", session_id="s")
        asked = call("adk_request_confirmation", hint="Sure?")
        for parts in ([asked], [types.Part(text="Hm.", thought=True)], [types.Part(text="")]):
            content = types.Content(role="model", parts=parts)
            await app.service.append_event(session, Event(author="reviewer", content=content))

    with memory_of() as memory:
        app = Talk(agent_of(Scripted()), MemmanPlugin(memory))
        app.say("one")
        asyncio.run(append(app))
        app.say("two")
        assert log_of(memory) == ["one", "Done.", "two", "Done."]


def test_event_changed_by_a_later_plugin_is_replaced() -> None:
    class Redacting(BasePlugin):
        async def on_event_callback(self, *, invocation_context: Any, event: Event) -> Event | None:
            if not event.content or not event.content.parts:
                return None
            event.content.parts[0].text = "[redacted]"
            return event

    model = Scripted("the password is 1234")
    for before in (False, True):
        with memory_of() as memory:
            plugins = [MemmanPlugin(memory), Redacting(name="redacting")]
            app = Talk(agent_of(model), *(plugins[::-1] if before else plugins))
            app.say("Which password?")
            assert log_of(memory) == ["Which password?", "[redacted]"]
            app.say("Again.")
            assert "1234" not in str(model.sent[-1].contents)


# ---------------------------------------------------------------- sessions


def test_rewound_turns_are_retracted_and_may_return() -> None:
    model = Scripted("one", "two", "three", "four")
    with memory_of() as memory:
        app = Talk(agent_of(model), MemmanPlugin(memory))
        for text in ("first", "second"):
            app.say(text)
        app.rewind(app.session().events[2].invocation_id)
        app.say("third")
        assert log_of(memory) == ["first", "one", "third", "three"]
        assert "second" not in str(model.sent[-1].contents)
        assert "second" in memory.export_session("s").to_json()
        rewound = next(e for e in app.session().events if e.actions.rewind_before_invocation_id)
        app.rewind(rewound.invocation_id)
        app.say("fourth")
        assert log_of(memory) == ["first", "one", "second", "two", "fourth", "four"]
        assert texts(model.sent[-1].contents) == ["first", "one", "second", "two", "fourth"]


def test_rewound_turn_stays_so_in_a_part_of_the_session() -> None:
    with memory_of() as memory:
        app = Talk(agent_of(Scripted()), MemmanPlugin(memory))
        recent = GetSessionConfig(num_recent_events=4)
        for text in ("first", "second"):
            app.say(text)
        app.rewind(app.session().events[2].invocation_id)
        for text in ("third", "fourth"):
            app.say(text, get_session_config=recent)
        app.rewind(app.session().events[-2].invocation_id)
        app.say("fifth", get_session_config=recent)
        assert log_of(memory)[::2] == ["first", "third", "fifth"]


def test_sessions_on_sqlite_continue_without_rewriting(tmp_path: Path) -> None:
    path = str(tmp_path / "memory.db")
    model = Scripted()
    for turn in range(3):
        with memory_of(store=path) as memory:
            service = SqliteSessionService(str(tmp_path / "adk.db"))
            app = Talk(agent_of(model), MemmanPlugin(memory), service=service)
            app.say(f"question {turn}")
            assert len(memory.get_entries("s")) == 2 * (turn + 1)
            assert retractions(memory, "s") == 0
    assert texts(model.sent[-1].contents)[::2] == ["question 0", "question 1", "question 2"]


def test_new_adk_session_continues_the_memman_session(tmp_path: Path) -> None:
    path = str(tmp_path / "memory.db")
    model = Scripted("an answer")
    with memory_of(store=path) as memory:
        Talk(agent_of(model), MemmanPlugin(memory)).say("a question")
    with memory_of(store=path) as memory:
        Talk(agent_of(model), MemmanPlugin(memory)).say("another")
        assert texts(model.sent[-1].contents) == ["a question", "an answer", "another"]
        assert len(memory.get_entries("s")) == 4


def test_context_has_what_adk_did_not_load() -> None:
    model = Scripted()
    with memory_of(100_000) as memory:
        app = Talk(agent_of(model), MemmanPlugin(memory))
        recent = GetSessionConfig(num_recent_events=3)
        for turn in range(6):
            app.say(f"question {turn}", get_session_config=recent)
        assert texts(model.sent[-1].contents)[::2] == [f"question {turn}" for turn in range(6)]
        assert retractions(memory, "s") == 0


@pytest.mark.parametrize("turns", [20, 200])
def test_new_plugin_reads_the_end_of_the_log_alone(turns: int) -> None:
    store, service = CountingStore(), InMemorySessionService()
    with MemoryManager(store, config=MemoryConfig(max_tokens=BUDGET)) as memory:
        app = Talk(agent_of(Scripted()), MemmanPlugin(memory), service=service)
        for turn in range(turns):
            app.say(f"question {turn}")
        memory.retract("s", [memory.get_entries("s", last=1)[0].id])
        before = store.records_read
        Talk(agent_of(Scripted()), MemmanPlugin(memory), service=service).say("another")
        assert store.records_read - before <= 40
        assert len(memory.get_entries("s")) == 2 * turns - 1 + 2


def test_entries_of_another_framework_are_in_the_context() -> None:
    model = Scripted()
    with memory_of() as memory:
        memory.add_user_message("s", "from elsewhere")
        memory.add_tool_call("s", "read", {"path": "x"}, call_id="call-1")
        app = Talk(agent_of(model), MemmanPlugin(memory))
        app.say("hello")
        memory.add_context("s", "The build is red.", "ci")
        app.say("again")
        sent = str(model.sent[-1].contents)
        assert [t for t in ("from elsewhere", "hello", "The build is red.") if t not in sent] == []
        parts = [part for content in model.sent[-1].contents for part in content.parts or ()]
        [asked] = [part for part in parts if part.function_call]
        # As ADK marks calls that Gemini has not made.
        assert asked.thought_signature == b"skip_thought_signature_validator"
        assert asked.function_call
        assert asked.function_call.id == "call-1"


def test_keys_that_google_genai_does_not_know_are_left_out() -> None:
    model = Scripted()
    part = {"functionResponse": {"name": "read", "id": "call-1", "response": {}, "future": 1}}
    with memory_of() as memory:
        memory.add_messages(
            "s",
            [
                {"role": "user", "parts": [{"text": "hi", "newKey": True}]},
                {"role": "model", "parts": [{"functionCall": {"name": "read", "id": "call-1"}}]},
                {"role": "user", "parts": [part]},
            ],
            "gemini",
        )
        Talk(agent_of(model), MemmanPlugin(memory)).say("hello")
        assert texts(model.sent[-1].contents) == ["hi", "call:read", "result:read", "hello"]


def test_what_the_application_retracts_stays_out(tmp_path: Path) -> None:
    service = InMemorySessionService()
    path = str(tmp_path / "memory.db")
    model = Scripted()
    with memory_of(store=path) as memory:
        app = Talk(agent_of(model), MemmanPlugin(memory), service=service)
        for text in ("one", "two", "three"):
            app.say(text)
        entries = memory.get_entries("s")
        memory.retract("s", [entries[0].id], reason="wrong")
        memory.delete_entries("s", [entries[2].id])
    with memory_of(store=path) as memory:
        Talk(agent_of(model), MemmanPlugin(memory), service=service).say("four")
        assert log_of(memory) == ["Done.", "Done.", "three", "Done.", "four", "Done."]
        memory.retract("s", [entry.id for entry in memory.get_entries("s", last=2)], reason="wrong")
    with memory_of(store=path) as memory:
        Talk(agent_of(model), MemmanPlugin(memory), service=service).say("five")
        assert log_of(memory) == ["Done.", "Done.", "three", "Done.", "five", "Done."]
        memory.clear_session("s")
    with memory_of(store=path) as memory:
        Talk(agent_of(model), MemmanPlugin(memory), service=service).say("six")
        assert log_of(memory) == ["six", "Done."]


def test_another_users_session_is_refused() -> None:
    with memory_of() as memory:
        plugin = MemmanPlugin(memory)
        Talk(agent_of(Scripted()), plugin).say("my secret")
        for used in (plugin, MemmanPlugin(memory)):
            other = Talk(agent_of(Scripted()), used, user_id="eve")
            with pytest.raises(RuntimeError, match="is of the user 'ada', not of 'eve'"):
                other.say("Which secret?")
        plugin = MemmanPlugin(memory, session_id=lambda each: f"{each.user_id}/{each.id}")
        Talk(agent_of(Scripted()), plugin, user_id="eve").say("hello")
        assert log_of(memory, "eve/s") == ["hello", "Done."]


def test_deleted_session_is_deleted_in_memman_too() -> None:
    with memory_of() as memory:
        plugin = MemmanPlugin(memory)
        service = MemmanSessionService(InMemorySessionService(), plugin)
        tester = agent_of(Scripted("I test."), "tester")
        model = Scripted(call("transfer_to_agent", agent_name="tester"))
        talk = Talk(agent_of(model, sub_agents=[tester]), plugin, service=service)
        talk.say("my secret")
        memory.add_user_message("s2", "of another session")
        Talk(agent_of(Scripted()), plugin, session_id="s/b").say("of a session below")
        memory.add_user_message("s/notes", "of the application")
        asyncio.run(service.delete_session(app_name="tests", user_id=talk.user_id, session_id="s"))
        assert [info.session_id for info in memory.list_sessions()] == ["s2", "s/b", "s/notes"]
        talk.say("Begin anew.")
        assert "my secret" not in memory.export_session("s").to_json()


def test_deletion_spares_the_session_of_another_user() -> None:
    with memory_of() as memory:
        plugin = MemmanPlugin(memory)
        Talk(agent_of(Scripted()), plugin).say("my secret")
        service = MemmanSessionService(InMemorySessionService(), plugin)

        async def create_and_delete() -> None:
            eve = {"app_name": "tests", "user_id": "eve", "session_id": "s"}
            await service.create_session(**eve)
            await service.delete_session(**eve)

        asyncio.run(create_and_delete())
        assert log_of(memory) == ["my secret", "Done."]


def test_path_in_place_of_a_manager_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be a MemoryManager, not str"):
        MemmanPlugin("chat.db")  # type: ignore[arg-type]


def test_async_manager_works_in_its_loop() -> None:
    async def play() -> list[str]:
        async with AsyncMemoryManager(config=MemoryConfig(max_tokens=BUDGET)) as memory:
            app = Talk(agent_of(Scripted("Sure.")), MemmanPlugin(memory))
            assert [event async for event in app.events("Sound?")]
            return [str(entry.content) for entry in await memory.get_entries("s")]

    assert asyncio.run(play()) == ["Sound?", "Sure."]


# ---------------------------------------------------------------- several agents


def test_transfers_rewrite_nothing() -> None:
    first = Scripted("Hello.", call("transfer_to_agent", agent_name="tester"))
    second = Scripted(
        call("read", path="a"), "It fails.", call("transfer_to_agent", agent_name="reviewer")
    )
    tester = agent_of(second, "tester", description="Tests.", tools=[read])
    with memory_of(100_000) as memory:
        app = Talk(agent_of(first, sub_agents=[tester]), MemmanPlugin(memory))
        for text in ("hi", "Test a.", "Back, please."):
            app.say(text)
        assert sorted(each.session_id for each in memory.list_sessions()) == ["s", "s/tester"]
        assert retractions(memory, "s") == retractions(memory, "s/tester") == 0
        contents = len([event for event in app.session().events if event.content])
        assert len(memory.get_entries("s")) == contents
        own = [entry.type for entry in memory.get_entries("s/tester")]
        assert own.count("tool_call") == own.count("tool_result") == 2
        request = "\n".join(texts(first.sent[-1].contents))
        assert "context from tester, not user input" in request
        assert "tester said:\nIt fails.\n" in request


def test_root_session_has_the_turns_of_other_agents() -> None:
    tester = agent_of(Scripted("It fails."), "tester", description="Tests.")
    first = Scripted(call("transfer_to_agent", agent_name="tester"))
    with memory_of() as memory:
        Talk(agent_of(first, sub_agents=[tester]), MemmanPlugin(memory)).say("Test a.")
        newest = memory.get_entries("s")[-1]
        assert (newest.type, newest.content) == ("context", "tester said:\nIt fails.")
        assert newest.metadata["adk"]["author"] == "tester"


@pytest.mark.parametrize("kind", [SequentialAgent, ParallelAgent])
def test_agents_of_a_workflow_have_a_session_each(kind: type[BaseAgent]) -> None:
    models = [Scripted("one", "three"), Scripted("two", "four")]
    agents = [agent_of(model, f"agent_{n}") for n, model in enumerate(models)]
    with memory_of() as memory:
        app = Talk(kind(name="all", sub_agents=agents), MemmanPlugin(memory))
        app.say("first")
        app.say("second")
        found = {
            each.session_id: log_of(memory, each.session_id) for each in memory.list_sessions()
        }
        assert len(found) == 2
        for number, (id_, log) in enumerate(sorted(found.items())):
            assert id_.endswith(f"agent_{number}")
            assert log[0] == "first"
            assert ["three", "four"][number] in log
            assert retractions(memory, id_) == 0
            assert len(log) == (6 if kind is SequentialAgent else 4)


def test_agents_without_a_history_are_fitted_and_not_logged() -> None:
    model = Scripted()
    with memory_of(400) as memory:
        agent = agent_of(model, include_contents="none")
        app = Talk(agent, MemmanPlugin(memory))
        app.say("first")
        app.say("second")
        assert texts(model.sent[-1].contents) == ["second"]
        assert memory.list_sessions() == []
        app.say("word " * 1_000)
        assert tokens(memory, model.sent[-1]) <= 400


def test_agent_as_a_tool_has_a_session_of_its_own() -> None:
    helper = AgentTool(agent_of(Scripted("42"), "helper"))
    model = Scripted(call("helper", request="Which number?"))
    with memory_of() as memory:
        Talk(agent_of(model, tools=[helper]), MemmanPlugin(memory)).say("Ask.")
        [other] = [each.session_id for each in memory.list_sessions() if each.session_id != "s"]
        assert log_of(memory, other) == ["Which number?", "42"]
        assert len(memory.get_entries("s")) == 4


# ---------------------------------------------------------------- contents of one request


def test_artifacts_of_one_request_are_sent_and_not_logged() -> None:
    model = Scripted(call("load_artifacts", artifact_names=["a.txt"]), "It is short.")
    with memory_of(100_000) as memory:
        app = Talk(agent_of(model, tools=[load_artifacts]), MemmanPlugin(memory))
        asyncio.run(
            app.runner.artifact_service.save_artifact(
                app_name="tests",
                user_id="ada",
                session_id="s",
                filename="a.txt",
                artifact=types.Part(text="the text of a"),
            )
        )
        app.say("Is a.txt short?")
        assert "the text of a" in str(model.sent[1].contents[-1])
        app.say("Sure?")
        assert "the text of a" not in str(model.sent[-1].contents)
        assert "the text of a" not in memory.export_session("s").to_json()


def test_contents_of_one_request_count() -> None:
    model = Scripted()
    with memory_of(600) as memory:
        app = Talk(agent_of(model), MemmanPlugin(memory))
        long = types.Content(role="user", parts=[types.Part(text="word " * 1_000)])
        app.say("Sure?", model_input_context=[long])
        assert 400 < tokens(memory, model.sent[-1]) <= 600
        short = types.Content(role="user", parts=[types.Part(text="It rains.")])
        app.say("And now?", model_input_context=[short])
        assert texts(model.sent[-1].contents)[-2:] == ["It rains.", "And now?"]


def test_summaries_of_adk_are_not_sent_too() -> None:
    class Summarizer(BaseEventsSummarizer):
        async def maybe_summarize_events(self, *, events: list[Event]) -> Event:
            compaction = EventCompaction(
                start_timestamp=events[0].timestamp,
                end_timestamp=events[-1].timestamp,
                compacted_content=types.Content(
                    role="model", parts=[types.Part(text="a summary by ADK")]
                ),
            )
            actions = EventActions(compaction=compaction)
            return Event(author="user", invocation_id=Event.new_id(), actions=actions)

    model = Scripted()
    compaction = EventsCompactionConfig(
        compaction_interval=2, overlap_size=0, summarizer=Summarizer()
    )
    with memory_of() as memory:
        app = Talk(agent_of(model), MemmanPlugin(memory), events_compaction_config=compaction)
        for turn in range(5):
            app.say(f"question {turn}")
        assert any(event.actions.compaction for event in app.session().events)
        assert texts(model.sent[-1].contents)[::2] == [f"question {turn}" for turn in range(5)]
        assert "a summary by ADK" not in str(model.sent[-1].contents)


# ---------------------------------------------------------------- budgets


def test_tools_count_towards_the_budget() -> None:
    def big(path: str) -> str:
        return ""

    big.__doc__ = "word " * 1_000
    with memory_of(600) as memory:
        app = Talk(agent_of(Scripted(), tools=[big]), MemmanPlugin(memory))
        with pytest.raises(RuntimeError) as caught:
            app.say("Sure?")
        assert isinstance(caught.value.__cause__, BudgetExceeded)
        uncounted = MemmanPlugin(memory, count_tools=False)
        Talk(agent_of(Scripted(), tools=[big]), uncounted, session_id="t").say("Sure?")
        assert len(memory.get_entries("t")) == 2


def test_refused_request_is_sent_again_shorter() -> None:
    memory = memory_of(20_000)
    fake = FakeModel(memory, "gemini", limit=2_000)
    agent = agent_of(ReportingModel(fake), tools=[reading_tool(fake)])
    with memory:
        app = Talk(agent, MemmanPlugin(memory))
        for turn in range(12):
            app.say(f"question {turn}")
        assert fake.overflows == 1, "the limit is learned"
        assert len(memory.get_entries("s")) == 12 * 6


def test_refusal_without_a_limit_shortens_the_request() -> None:
    refusal = ValueError("400 INVALID_ARGUMENT: prompt is too long")
    model = Scripted(*["word " * 300] * 6, refusal, "Shorter.")
    with memory_of(20_000) as memory:
        app = Talk(agent_of(model), MemmanPlugin(memory))
        for turn in range(7):
            app.say(f"question {turn}")
        refused, answered = model.sent[-2:]
        assert len(str(answered.contents)) < 0.8 * len(str(refused.contents))
        assert log_of(memory)[-1] == "Shorter."


def test_further_refusals_raise_the_first() -> None:
    first, second = ValueError("prompt is too long"), ValueError("prompt is too long, still")
    with MemoryManager(config=MemoryConfig(max_tokens=20_000)) as memory:
        model = Scripted("word " * 3_000, first, *[second] * 20)
        app = Talk(agent_of(model), MemmanPlugin(memory))
        app.say("one")
        with pytest.raises(ValueError, match=r"prompt is too long$"):
            app.say("two")
        model.replies.clear()
        app.say("three")
        assert log_of(memory) == ["one", "word " * 3_000, "two", "three", "Done."]


def test_other_errors_of_the_model_are_raised() -> None:
    memory = memory_of()
    with memory:
        app = Talk(agent_of(Scripted(ConnectionError("down"))), MemmanPlugin(memory))
        with pytest.raises(ConnectionError, match="down"):
            app.say("Sure?")
        assert log_of(memory) == ["Sure?"]


def test_recall_is_a_tool_of_every_agent() -> None:
    model = Scripted(call("recall", query="the code word"))
    with memory_of() as memory:
        memory.add_user_message("s", "The code word is heron.")
        app = Talk(agent_of(model), MemmanPlugin(memory, recall=True))
        app.say("Which word?")
        result = [entry for entry in memory.get_entries("s") if entry.type == "tool_result"]
        assert "heron" in str(result[0].content)
        assert "recall" in model.sent[0].tools_dict
