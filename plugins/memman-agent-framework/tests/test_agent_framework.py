"""What `MemmanHistoryProvider` does in Agent Framework, beyond the laws of every adapter."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from agent_framework import (
    Agent,
    AgentResponse,
    AgentSession,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FunctionTool,
    HistoryProvider,
    Message,
    SessionContext,
    tool,
)
from memman_agent_framework import MemmanHistoryProvider
from memman_agent_framework.provider import record_usage
from memman_agent_framework.run import dumped_message

from memman import AsyncMemoryManager, InvalidInput, MemoryConfig, MemoryManager
from memman.adapters import ModelRequests
from memman.records import Compressed, UsageReported, ids_retracted_by
from memman.testing import FakeModel, FakeModelError, ModelReply

from .framework_agents import ReportingClient, reading_tool

BUDGET = 2_500


def memory_of(budget: int = BUDGET, store: str | None = None) -> MemoryManager:
    config = MemoryConfig(max_tokens=budget, max_entries=None)
    return MemoryManager(store, model=FakeModel.name, config=config)


class Client(ReportingClient):
    """A client that keeps the messages and options of its requests, and may refuse one."""

    def __init__(self, fake: FakeModel, fails: Mapping[int, Exception] | None = None) -> None:
        super().__init__(fake)
        self.sent: list[list[Message]] = []
        self.options: list[Mapping[str, Any]] = []
        self.fails = fails or {}

    def reply(self, messages: Sequence[Message], options: Mapping[str, Any]) -> ModelReply:
        self.sent.append(list(messages))
        self.options.append(options)
        if len(self.sent) in self.fails:
            raise self.fails[len(self.sent)]
        return super().reply(messages, options)


def agent_of(memory: Any, client: ReportingClient, **more: Any) -> Agent:
    options: dict[str, Any] = {
        "tools": [reading_tool(client.fake)],
        "context_providers": [MemmanHistoryProvider(memory)],
        **more,
    }
    return Agent(client, "You review code.", **options)


async def respond(
    agent: Agent, said: Any, session: AgentSession, stream: bool
) -> AgentResponse[Any]:
    if not stream:
        return await agent.run(said, session=session)
    updates = agent.run(said, session=session, stream=True)
    async for _ in updates:
        pass
    return await updates.get_final_response()


async def run(agent: Agent, said: Any, session: AgentSession, stream: bool = False) -> str:
    return (await respond(agent, said, session, stream)).text


def play(agent: Agent, turns: int, session: AgentSession, start: int = 0, **how: Any) -> None:
    async def several() -> None:
        for turn in range(start, start + turns):
            await run(agent, f"question {turn} of the user", session, **how)

    asyncio.run(several())


def asked(memory: MemoryManager, session_id: str = "s") -> list[str]:
    return [entry.text for entry in memory.get_entries(session_id) if entry.role == "user"]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if message.text]


@pytest.fixture
def memory() -> Any:
    with memory_of(100_000) as made:
        yield made


@pytest.fixture
def client(memory: MemoryManager) -> Client:
    return Client(FakeModel(memory))


@pytest.fixture
def session() -> AgentSession:
    return AgentSession(session_id="s")


# ---------------------------------------------------------------- the log


class Audit(HistoryProvider):
    """Keeps what the framework has it store, and gives runs nothing."""

    def __init__(self) -> None:
        super().__init__("audit", load_messages=False)
        self.stored: list[Message] = []

    async def get_messages(self, *_: Any, **__: Any) -> list[Message]:
        return self.stored

    async def save_messages(self, _: Any, messages: Sequence[Message], **__: Any) -> None:
        self.stored += copy.deepcopy(messages)  # the loop adds to them


@tool(approval_mode="always_require")
def guarded() -> str:
    """Return a text."""
    return "opened"


@tool(approval_mode="never_require")
def failing() -> str:
    """Raise an error."""
    raise ValueError("no")


DECLARED = FunctionTool(
    name="declared", description="The caller's.", input_model={"type": "object"}
)


def calls(*names: str, said: str = "") -> list[Content]:
    made = [Content.from_function_call(f"call-{name}", name, arguments="{}") for name in names]
    return [*([Content.from_text(said)] if said else []), *made]


@pytest.mark.parametrize("per_call", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "script",
    [
        [calls("guarded", "failing"), calls("guarded")],
        [calls("failing"), calls("failing"), calls("failing")],
        [calls("failing", said="I look."), calls("failing", said="I look.")],
        [calls("unknown"), calls("declared", "failing")],
        [[Content.from_text("ok")], [Content.from_text("ok")]],
    ],
    ids=["approvals", "equal calls", "equal texts", "tools not run", "equal answers"],
)
def test_log_equals_what_another_provider_stores(
    script: list[list[Content]],
    stream: bool,
    per_call: bool,
    memory: MemoryManager,
    session: AgentSession,
) -> None:
    class Following(Client):
        async def _respond(self, messages: Any, options: Any) -> Any:
            contents = script[len(self.sent)] if len(self.sent) < len(script) else ["done"]
            self.sent.append(messages)
            return ChatResponse(messages=Message("assistant", contents, message_id="m1"))

        async def _stream(self, messages: Any, options: Any) -> Any:
            response = await self._respond(messages, options)
            for content in response.messages[0].contents:
                yield ChatResponseUpdate(contents=[content], role="assistant", message_id="m1")

    audit, provider = Audit(), MemmanHistoryProvider(memory)
    client = Following(FakeModel(memory), {})
    client.function_invocation_configuration["max_iterations"] = 3
    agent = agent_of(
        memory,
        client,
        tools=[guarded, failing, DECLARED],
        context_providers=[audit, provider],
        require_per_service_call_history_persistence=per_call,
    )

    async def play_it() -> None:
        for said in ("yes", "yes"):
            response = await respond(agent, said, session, stream)
            while requests := response.user_input_requests:
                if {each.type for each in requests} != {"function_approval_request"}:
                    break
                answers = [each.to_function_approval_response(True) for each in requests]
                response = await respond(agent, Message("user", answers), session, stream)

    asyncio.run(play_it())
    logged = [dumped_message(each) for each in asyncio.run(provider.get_messages("s"))]
    stored = [dumped_message(each) for each in audit.stored]

    def facts(messages: list[Any]) -> list[str]:
        return sorted(str((each["role"], each["contents"])) for each in messages)

    assert facts(logged) == facts(stored)


@pytest.mark.parametrize("stream", [False, True])
def test_loop_and_provider_write_one_log(
    stream: bool, memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    play(agent_of(memory, client), 3, session, stream=stream)
    assert len(memory.get_entries("s")) == 3 * 6
    assert [each.session_id for each in memory.list_sessions()] == ["s"]


def test_log_is_read_by_the_provider(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    agent = agent_of(memory, client)
    play(agent, 2, session)
    [provider] = agent.context_providers
    assert isinstance(provider, MemmanHistoryProvider)
    found = asyncio.run(provider.get_messages("s"))
    assert [message.role for message in found] == ["user", "assistant", "tool", "assistant"] * 2
    assert [content.result for content in found[2].contents] == client.fake.results[:2]
    assert asyncio.run(provider.get_messages("unknown")) == []


@pytest.mark.parametrize("per_call", [False, True])
def test_repeated_answer_of_the_user_is_kept(
    per_call: bool, memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    agent = agent_of(memory, client, require_per_service_call_history_persistence=per_call)
    for _ in range(3):
        asyncio.run(run(agent, "yes", session))
    assert asked(memory) == ["yes"] * 3


def test_message_object_may_be_used_again(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    agent, message = agent_of(memory, client), Message("user", ["go on"])
    for _ in range(2):
        asyncio.run(run(agent, message, session))
    assert asked(memory) == ["go on"] * 2
    assert message.to_dict() == Message("user", ["go on"]).to_dict(), "it stays as it was"


def test_whole_conversation_as_input_is_logged_once(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    client.fake = FakeModel(memory, steps=0)
    agent = agent_of(memory, client)
    history: list[Message] = []
    for turn in range(4):
        history.append(Message("user", [f"question {turn} of the user"]))
        history.append(Message("assistant", [asyncio.run(run(agent, history, session))]))
    assert asked(memory) == [f"question {turn} of the user" for turn in range(4)]
    assert len(client.sent[-1]) == 7, "nor is it sent twice"


def test_conversation_begun_elsewhere_is_logged_once(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    memory.add_user_message("s", "question 0 of the user")
    memory.add_assistant_message("s", "I look.")
    memory.add_tool_call("s", "read", {"path": "a.py"}, call_id="c1")
    memory.add_tool_result("s", "read", "x = 1", call_id="c1")
    memory.add_assistant_message("s", "It is sound.")
    client.fake = FakeModel(memory, steps=0)
    agent = agent_of(memory, client)
    provider: Any = agent.context_providers[0]
    history: list[Message] = asyncio.run(provider.get_messages("s"))
    begun = len(history)
    for turn in range(1, 4):
        history.append(Message("user", [f"question {turn} of the user"]))
        history.append(Message("assistant", [asyncio.run(run(agent, history, session))]))
        assert len(memory.get_entries("s")) == 5 + 2 * turn
        assert len(client.sent[-1]) == begun + 2 * turn - 1, "nor is it sent twice"


def test_equal_answer_after_another_framework_is_kept(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    memory.add_user_message("s", "yes")
    agent = agent_of(memory, client)
    asyncio.run(run(agent, Message("user", ["yes"], message_id="m1"), session))
    assert asked(memory) == ["yes", "yes"]


def test_message_id_makes_a_repetition_known(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    agent, message = agent_of(memory, client), Message("user", ["yes"], message_id="m1")
    provider: Any = agent.context_providers[0]
    for _ in range(2):  # as after a run that was cut off
        asyncio.run(provider.save_messages("s", [message]))
    asyncio.run(run(agent, message, session))
    assert asked(memory) == ["yes"]


def test_runs_without_a_session_stay_apart(memory: MemoryManager, client: Client) -> None:
    agent = agent_of(memory, client)
    for _ in range(2):
        asyncio.run(agent.run("Is it sound?"))
    assert [each.entries for each in memory.list_sessions()] == [6, 6]


def test_audit_stores_without_loading(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    provider = MemmanHistoryProvider(memory, load_messages=False, store_inputs=False)
    agent = agent_of(memory, client, context_providers=[provider])
    play(agent, 2, session)
    assert asked(memory) == []
    assert len(memory.get_entries("s")) == 2 * 5


@pytest.mark.parametrize("memory", ["chat.db", None, MemoryConfig()])
def test_provider_needs_a_manager(memory: Any) -> None:
    with pytest.raises(InvalidInput, match="MemoryManager"):
        MemmanHistoryProvider(memory)


def test_async_manager_is_taken(session: AgentSession) -> None:
    async def several() -> int:
        async with AsyncMemoryManager(config=MemoryConfig(max_tokens=BUDGET)) as memory:
            agent = agent_of(memory, Client(FakeModel(MemoryManager())))
            for turn in range(3):
                await run(agent, f"question {turn}", session)
            return len(await memory.get_entries("s"))

    assert asyncio.run(several()) == 18


# ---------------------------------------------------------------- resumption


def test_session_goes_on_from_its_json(tmp_path: Path) -> None:
    path, stored = str(tmp_path / "chat.db"), ""
    for turn in range(3):
        with memory_of(store=path) as memory:
            session = (
                AgentSession.from_dict(json.loads(stored))
                if stored
                else AgentSession(session_id="s")
            )
            client = Client(FakeModel(memory))
            play(agent_of(memory, client), 1, session, turn)
            assert texts(client.sent[-1])[0] == "question 0 of the user"
            stored = json.dumps(session.to_dict())
            assert len(stored) < 200, "the messages are in memman's store"
            assert len(memory.get_entries("s")) == 6 * (turn + 1)


def test_two_agents_share_a_session(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    provider = MemmanHistoryProvider(memory)
    for _ in range(2):
        one, two = (agent_of(memory, client, context_providers=[provider]) for _ in range(2))
        play(one, 1, session)
        play(two, 1, session, 1)
    assert len(memory.get_entries("s")) == 4 * 6
    assert [each for request in client.fake.requests for each in request.violations] == []


# ---------------------------------------------------------------- approvals


def approving_agent(memory: MemoryManager, client: Client) -> Agent:
    return agent_of(
        memory, client, tools=[reading_tool(client.fake, approval_mode="always_require")]
    )


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("stream", [False, True])
def test_approval_is_given_in_another_process(stream: bool, approved: bool, tmp_path: Path) -> None:
    async def ask(agent: Agent, session: AgentSession) -> list[str]:
        answer = await agent.run("Is it sound?", session=session)
        return [json.dumps(each.to_dict()) for each in answer.user_input_requests]

    path = str(tmp_path / "chat.db")
    with memory_of(store=path) as memory:
        session = AgentSession(session_id="s")
        requests = asyncio.run(ask(approving_agent(memory, Client(FakeModel(memory))), session))
        stored = json.dumps(session.to_dict())
    assert len(requests) == 2
    with memory_of(store=path) as memory:
        client = Client(FakeModel(memory, steps=0))
        session = AgentSession.from_dict(json.loads(stored))
        agent = approving_agent(memory, client)
        answers = [
            Content.from_dict(json.loads(each)).to_function_approval_response(approved)
            for each in requests
        ]
        asyncio.run(run(agent, Message("user", answers), session, stream))
        assert len(client.fake.results) == (2 if approved else 0), "each call is executed once"
        asyncio.run(run(agent, "Are you sure?", session, stream))
        assert len(client.fake.results) == (2 if approved else 0)
        kinds = [content.type for sent in client.sent for each in sent for content in each.contents]
        assert not {"function_approval_request", "function_approval_response"} & set(kinds)
        assert [each for request in client.fake.requests for each in request.violations] == []
        log = [entry.type for entry in memory.get_entries("s")]
        assert log.count("tool_call") == 2
        assert log.count("tool_result") == 2


def test_pending_approval_outlives_another_question(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    async def play_it() -> None:
        agent = approving_agent(memory, client)
        asked_for = (await agent.run("Is it sound?", session=session)).user_input_requests
        client.fake = FakeModel(memory, steps=0)
        await agent.run("And what is it?", session=session)
        answers = [each.to_function_approval_response(True) for each in asked_for]
        await agent.run(Message("user", answers), session=session)

    asyncio.run(play_it())
    log = [entry.type for entry in memory.get_entries("s")]
    assert log.count("tool_call") == log.count("tool_result") == 2
    assert [each for request in client.fake.requests for each in request.violations] == []


# ---------------------------------------------------------------- other messages in a request


class Weather(ContextProvider):
    def __init__(self, text: str = "It rains.") -> None:
        super().__init__("weather")
        self.text = text

    async def before_run(self, *, context: SessionContext, **_: Any) -> None:
        context.extend_messages(self, [Message("user", [self.text])])
        context.extend_instructions(self.source_id, "Mention the weather.")


def test_context_of_another_provider_is_not_logged(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    providers = [MemmanHistoryProvider(memory), Weather()]
    play(agent_of(memory, client, context_providers=providers), 2, session)
    assert texts(client.sent[-1]) == [
        "question 0 of the user",
        *texts(client.sent[-1])[1:2],
        "It rains.",
        "question 1 of the user",
    ]
    assert asked(memory) == ["question 0 of the user", "question 1 of the user"]
    assert "Mention the weather" in str(client.options[-1]["instructions"])


def test_context_of_another_provider_is_within_the_budget(session: AgentSession) -> None:
    with memory_of() as memory:
        client = Client(FakeModel(memory))
        providers = [MemmanHistoryProvider(memory), Weather("It rains. " * 150)]
        play(agent_of(memory, client, context_providers=providers), 20, session)
        assert max(request.tokens for request in client.fake.requests) <= BUDGET
        assert all("It rains." in str(request.messages) for request in client.fake.requests)
        assert [each for request in client.fake.requests for each in request.violations] == []


def test_context_of_another_provider_is_logged_if_asked(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    provider = MemmanHistoryProvider(memory, store_context_messages=True)
    play(agent_of(memory, client, context_providers=[Weather(), provider]), 2, session)
    assert asked(memory) == [
        "It rains.", "question 0 of the user", "It rains.", "question 1 of the user",
    ]  # fmt: skip
    assert texts(client.sent[-1]).count("It rains.") == 2


class Redacting(ChatMiddleware):
    async def process(self, context: ChatContext, call_next: Callable[[], Any]) -> None:
        context.messages = [
            Message("user", ["My password is [redacted]."])
            if "hunter2" in message.text
            else message
            for message in context.messages
        ]
        await call_next()


def test_message_that_a_middleware_redacts_is_not_sent(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    agent = agent_of(memory, client, middleware=[Redacting()])
    asyncio.run(run(agent, "My password is hunter2.", session))
    asyncio.run(run(agent, "What is it?", session))
    assert not any("hunter2" in text for sent in client.sent for text in texts(sent))
    assert all("My password is [redacted]." in texts(sent) for sent in client.sent)
    assert asked(memory) == ["My password is hunter2.", "What is it?"]


class Rebuilding(ChatMiddleware):
    """Makes each message again, with `words` redacted, and keeps none of its properties."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def redacted(self, text: str | None) -> str:
        for word in self.words:
            text = (text or "").replace(word, "[redacted]")
        return text or ""

    async def process(self, context: ChatContext, call_next: Callable[[], Any]) -> None:
        context.messages = [
            Message(
                message.role,
                [
                    Content.from_text(self.redacted(content.text))
                    if content.type == "text"
                    else Content.from_dict(content.to_dict())
                    for content in message.contents
                ],
            )
            for message in context.messages
        ]
        await call_next()


@pytest.mark.parametrize("words", [(), ("sound",), ("question",), ("sound", "question", "look")])
@pytest.mark.parametrize("stream", [False, True])
def test_messages_that_a_middleware_makes_again_are_logged_once(
    stream: bool, words: tuple[str, ...], memory: MemoryManager, session: AgentSession
) -> None:
    class Speaking(Client):
        def reply(self, messages: Sequence[Message], options: Mapping[str, Any]) -> ModelReply:
            reply = super().reply(messages, options)
            said = "I look." if reply.calls else "It is sound."
            return msgspec.structs.replace(reply, text=said)

    client = Speaking(FakeModel(memory))
    agent = agent_of(memory, client, middleware=[Rebuilding(*words)])
    play(agent, 4, session, stream=stream)
    logged = [entry.type for entry in memory.get_entries("s")]
    assert len(logged) == 4 * 7, "a question, a text, two calls and their results, an answer"
    assert [each.text for each in memory.get_entries("s")].count("It is sound.") == 4
    assert asked(memory) == [f"question {turn} of the user" for turn in range(4)]
    assert [len(sent) for sent in client.sent] == [1, 3, 5, 7, 9, 11, 13, 15]
    assert not any(word in text for word in words for sent in client.sent for text in texts(sent))
    assert [each for request in client.fake.requests for each in request.violations] == []


def test_rebuilt_messages_are_within_the_budget(session: AgentSession) -> None:
    with memory_of() as memory:
        client = Client(FakeModel(memory))
        play(agent_of(memory, client, middleware=[Rebuilding()]), 20, session)
        assert len(memory.get_entries("s")) == 20 * 6
        assert max(request.tokens for request in client.fake.requests) <= BUDGET
        assert [each for request in client.fake.requests for each in request.violations] == []


@pytest.mark.parametrize("words", [(), ("example",)])
def test_rebuilt_input_of_the_assistant_is_logged_once(
    words: tuple[str, ...], memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    agent = agent_of(memory, client, middleware=[Rebuilding(*words)])
    inputs = [Message("assistant", ["an example"]), Message("user", ["Is it sound?"])]
    asyncio.run(run(agent, inputs, session))
    assert len(memory.get_entries("s")) == 7
    assert [len(sent) for sent in client.sent] == [2, 4]


class Numbering(ChatMiddleware):
    def __init__(self) -> None:
        self.calls = 0

    async def process(self, context: ChatContext, call_next: Callable[[], Any]) -> None:
        self.calls += 1
        context.messages = [
            Message(each.role, [f"{self.calls}: {each.text}"]) if each.text else each
            for each in context.messages
        ]
        await call_next()


def test_texts_that_change_in_each_request_are_logged_once(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    play(agent_of(memory, client, middleware=[Numbering()]), 4, session)
    assert len(memory.get_entries("s")) == 4 * 6
    assert [len(sent) for sent in client.sent] == [1, 3, 5, 7, 9, 11, 13, 15]
    assert all(
        text.startswith(f"{n}: ") for n, sent in enumerate(client.sent, 1) for text in texts(sent)
    )


class Promising(ChatMiddleware):
    async def process(self, context: ChatContext, call_next: Callable[[], Any]) -> None:
        first, *others = context.messages
        context.messages = [first, Message("assistant", ["I read files."]), *others]
        await call_next()


def test_text_that_a_middleware_adds_is_not_logged(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    play(agent_of(memory, client, middleware=[Promising()]), 2, session)
    assert len(memory.get_entries("s")) == 2 * 6
    assert all(texts(sent).count("I read files.") == 1 for sent in client.sent)


@pytest.mark.parametrize("approved", [True, False])
def test_approval_outlives_rebuilt_messages(
    approved: bool, memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    async def play_it() -> None:
        tools = [reading_tool(client.fake, approval_mode="always_require")]
        agent = agent_of(memory, client, tools=tools, middleware=[Rebuilding()])
        asked_for = (await agent.run("Is it sound?", session=session)).user_input_requests
        client.fake = FakeModel(memory, steps=0)
        answers = [each.to_function_approval_response(approved) for each in asked_for]
        await agent.run(Message("user", answers), session=session)
        await agent.run("Are you sure?", session=session)

    asyncio.run(play_it())
    log = [entry.type for entry in memory.get_entries("s")]
    assert log.count("tool_call") == log.count("tool_result") == 2
    assert [each for request in client.fake.requests for each in request.violations] == []


# ---------------------------------------------------------------- who keeps the history


def test_history_per_model_call_fits_too(session: AgentSession) -> None:
    with memory_of() as memory:
        client = Client(FakeModel(memory, steps=3))
        agent = agent_of(memory, client, require_per_service_call_history_persistence=True)
        play(agent, 8, session)
        assert max(request.tokens for request in client.fake.requests) <= BUDGET
        assert [each for request in client.fake.requests for each in request.violations] == []
        assert len(memory.get_entries("s")) == 8 * (2 + 3 * 4)
        log = memory.export_session("s").log
        reports = [record.input_tokens for record in log if isinstance(record, UsageReported)]
        assert reports == [request.billed for request in client.fake.requests]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_history_per_call_fits_results_of_all_sizes(
    seed: int, stream: bool, session: AgentSession
) -> None:
    sizes, results = Random(seed), list[str]()

    @tool(approval_mode="never_require")
    def read(path: str) -> str:
        """Read a file."""
        results.append(f"# {path}\n" + "total += row\n" * sizes.choice([1, 50, 500, 2_000]))
        return results[-1]

    with memory_of() as memory:
        client, audit = Client(FakeModel(memory, steps=2)), Audit()
        agent = agent_of(
            memory,
            client,
            tools=[read],
            context_providers=[audit, MemmanHistoryProvider(memory)],
            require_per_service_call_history_persistence=True,
        )
        play(agent, 12, session, stream=stream)
        for request in client.fake.requests:
            assert request.tokens <= BUDGET
            assert request.violations == []
            answered = [each.get("tool_call_id") for each in request.messages]
            assert len(set(answered)) == len(answered) - answered.count(None) + 1
        logged = [e.content for e in memory.get_entries("s") if e.type == "tool_result"]
        assert logged == results
        stored = [each.result for message in audit.stored for each in message.contents]
        assert list(filter(None, stored)) == results, "another provider gets them whole"


class Serving(Client):
    """A client whose service keeps the conversation unless it is told not to."""

    STORES_BY_DEFAULT = True

    async def _respond(self, messages: Any, options: Any) -> Any:
        response = await super()._respond(messages, options)
        if options.get("store") is not False:
            response.conversation_id = "conversation-1"
        return response


def test_service_is_told_not_to_keep_the_conversation(
    memory: MemoryManager, session: AgentSession
) -> None:
    client = Serving(FakeModel(memory))
    play(agent_of(memory, client), 2, session)
    assert session.service_session_id is None
    assert len(texts(client.sent[-1])) == 3


def test_conversation_of_a_service_is_logged_only(
    memory: MemoryManager, session: AgentSession
) -> None:
    client = Serving(FakeModel(memory))
    play(agent_of(memory, client, default_options={"store": True}), 2, session)
    assert session.service_session_id == "conversation-1"
    assert [len(sent) for sent in client.sent] == [1, 1, 1, 1], "the service gets what is new"
    assert len(memory.get_entries("s")) == 2 * 6


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_failed_run_leaves_the_context(
    number: int, stream: bool, memory: MemoryManager, session: AgentSession
) -> None:
    client = Client(FakeModel(memory), {number: FakeModelError("content filter")})
    agent = agent_of(memory, client)
    with pytest.raises(FakeModelError):
        asyncio.run(run(agent, "a forbidden question", session, stream))
    asyncio.run(run(agent, "another question", session, stream))
    assert not any("forbidden" in text for text in texts(client.sent[-1]))
    assert asked(memory) == ["another question"]
    assert "a forbidden question" in memory.export_session("s").to_json(), "nothing is lost"


def test_stream_that_breaks_leaves_the_context(
    memory: MemoryManager, session: AgentSession
) -> None:
    class Breaking(Client):
        async def _stream(self, messages: Any, options: Any) -> Any:
            async for update in super()._stream(messages, options):
                yield update
                if len(self.sent) == 1:
                    raise FakeModelError("the connection broke")

    client = Breaking(FakeModel(memory))
    agent = agent_of(memory, client)
    with pytest.raises(FakeModelError):
        asyncio.run(run(agent, "the first question", session, True))
    asyncio.run(run(agent, "the second question", session, True))
    assert asked(memory) == ["the second question"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        "This model's maximum context length is 1500 tokens",
        "Input is too long for requested model.",
    ],
)
def test_refused_request_is_sent_again_shorter(
    error: str, stream: bool, session: AgentSession
) -> None:
    with memory_of(5_000) as memory:
        client = Client(FakeModel(memory), {11: ValueError(error)})
        play(agent_of(memory, client), 8, session, stream=stream)
        assert len(client.sent) == 17
        refused, again = (str([each.to_dict() for each in client.sent[n]]) for n in (10, 11))
        assert len(again) < len(refused)
        assert len(memory.get_entries("s")) == 8 * 6
        log = memory.export_session("s").log
        assert not [r for r in log if isinstance(r, Compressed) and ids_retracted_by(r)]


def test_request_that_cannot_be_shorter_fails(memory: MemoryManager, session: AgentSession) -> None:
    error = ValueError("maximum context length is 50 tokens")
    client = Client(FakeModel(memory), {1: error, 2: error})
    with pytest.raises(Exception, match="tokens"):
        play(agent_of(memory, client), 1, session)
    assert asked(memory) == []


# ---------------------------------------------------------------- usage


@pytest.mark.parametrize(
    "usage",
    [
        {"input_token_count": 1_000, "output_token_count": 10, "total_token_count": 1_010},
        {
            "input_token_count": 100,
            "output_token_count": 10,
            "anthropic.cache_read_input_tokens": 800,
        },
    ],
)
def test_cached_tokens_are_counted_once(
    usage: dict[str, int], memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    counts = {
        **usage,
        "cache_read_input_token_count": 800,
        "cache_creation_input_token_count": 100,
    }
    play(agent_of(memory, client), 1, session)
    asyncio.run(record_usage(ModelRequests(memory.aio, "s"), counts))
    report = memory.export_session("s").log[-1]
    assert isinstance(report, UsageReported)
    assert (report.input_tokens, report.cached_tokens) == (1_000, 800)


@pytest.mark.parametrize(
    "usage", [None, {}, {"input_token_count": None}, {"input_token_count": -5}]
)
def test_odd_usage_does_not_end_a_run(usage: Any, memory: MemoryManager) -> None:
    asyncio.run(record_usage(ModelRequests(memory.aio, "s"), usage))


# ---------------------------------------------------------------- recall


def test_tool_recall_belongs_to_its_session(memory: MemoryManager, client: Client) -> None:
    provider = MemmanHistoryProvider(memory, recall=True)
    agent = agent_of(memory, client, context_providers=[provider])
    for name in ("one", "two"):
        memory.add_user_message(name, f"The code is {name}-17.")
        play(agent, 1, AgentSession(session_id=name))
        tools = {tool.name: tool for tool in client.options[-1]["tools"]}
        assert sorted(tools) == ["read", "recall"]
        found = asyncio.run(tools["recall"].invoke(arguments={"query": "The code is"}))
        assert f"{name}-17" in str(found[0].text)


def test_history_of_the_framework_moves_to_memman(
    memory: MemoryManager, client: Client, session: AgentSession
) -> None:
    agent = agent_of(memory, client, context_providers=None)
    play(agent, 2, session)
    old = next(each for each in agent.context_providers if isinstance(each, HistoryProvider))
    stored = asyncio.run(old.get_messages("s", state=session.state[old.source_id]))
    provider = MemmanHistoryProvider(memory)
    asyncio.run(provider.save_messages("s", stored))
    play(agent_of(memory, client, context_providers=[provider]), 1, session, 2)
    assert len(memory.get_entries("s")) == 3 * 6
    assert texts(client.sent[-1])[0] == "question 0 of the user"
