"""memman as a session of the OpenAI Agents SDK: the laws of adapters, and the traps of this SDK."""

import asyncio
import json
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    Usage,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from agents.memory import Session, SessionSettings
from agents.memory.session import is_openai_responses_compaction_aware_session
from agents.models.openai_responses import OpenAIResponsesModel
from memman_openai_agents import MemmanSession
from memman_openai_agents.tools import tools_of
from openai import AsyncOpenAI
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_usage import (
    InputTokensDetails,
    OutputTokensDetails,
    ResponseUsage,
)

from memman import AsyncMemoryManager, InvalidInput, MemoryConfig, MemoryManager, valid_id
from memman.formats.rules import check
from memman.records import UsageReported
from memman.testing import AdapterConformance, AdapterDriver, Answer, FakeModel, ScriptedSummarizer
from memman.testing.loopback import loopback

set_tracing_disabled(True)
_NUMBERS = count()


def message(text):
    return ResponseOutputMessage(
        id=f"msg_{next(_NUMBERS)}",
        content=[ResponseOutputText(text=text, type="output_text", annotations=[], logprobs=[])],
        role="assistant",
        status="completed",
        type="message",
    )


def call(name, arguments="{}", call_id=None):
    number = next(_NUMBERS)
    return ResponseFunctionToolCall(
        id=f"fc_{number}",
        call_id=call_id or f"call_{number}",
        name=name,
        arguments=arguments,
        type="function_call",
        status="completed",
    )


def reasoning(encrypted):
    return ResponseReasoningItem(
        id=f"rs_{next(_NUMBERS)}", summary=[], encrypted_content=encrypted, type="reasoning"
    )


def definition(name, description, parameters):
    return {"type": "function", "name": name, "description": description, "parameters": parameters}


class Fake(Model):
    """The SDK's model over a `FakeModel`, or over a list of outputs."""

    def __init__(self, model=None, outputs=()):
        self.fake, self.model = model, None if model is None else model.name
        self.outputs = list(outputs)
        self.inputs = []

    def answer(self, system, items, tools, handoffs, output_schema):
        items = [{"role": "user", "content": items}] if isinstance(items, str) else items
        self.inputs.append(items)
        if self.fake is None:
            return self.outputs.pop(0), Usage(requests=1, input_tokens=100, output_tokens=5)
        sent = [definition(t.name, t.description, t.params_json_schema) for t in tools]
        sent += [definition(h.tool_name, h.tool_description, h.input_json_schema) for h in handoffs]
        natives = [item["encrypted_content"] for item in items if item.get("type") == "reasoning"]
        reply = self.fake.reply(items, system=system, tools=sent, natives=natives)
        output = [reasoning(reply.native)] if reply.native else []
        output += [message(reply.text)] if reply.text else []
        output += [call(c.name, json.dumps(c.arguments), c.call_id) for c in reply.calls]
        return output, Usage(
            requests=1, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens
        )

    async def get_response(self, system_instructions, input, model_settings, tools, output_schema,
                           handoffs, tracing, **_):  # fmt: skip
        output, usage = self.answer(system_instructions, input, tools, handoffs, output_schema)
        return ModelResponse(output=output, usage=usage, response_id=None)

    async def stream_response(self, system_instructions, input, model_settings, tools,
                              output_schema, handoffs, tracing, **_):  # fmt: skip
        output, usage = self.answer(system_instructions, input, tools, handoffs, output_schema)
        details = InputTokensDetails.model_construct(cached_tokens=0, cache_write_tokens=0)
        response = Response(
            id="resp", created_at=0, model="fake", object="response", output=output,
            tool_choice="auto", tools=[], parallel_tool_calls=True,
            usage=ResponseUsage(
                input_tokens=usage.input_tokens, output_tokens=usage.output_tokens,
                total_tokens=usage.input_tokens + usage.output_tokens, input_tokens_details=details,
                output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
            ),
        )  # fmt: skip
        yield ResponseCompletedEvent(
            response=response, type="response.completed", sequence_number=0
        )


class Both(MemmanSession):
    """memman's session that also writes into the SDK's own, which is the history to compare with."""

    def __init__(self, session_id, memory, own=None, **options):
        super().__init__(session_id, memory, **options)
        self.own = own or SQLiteSession("own")

    async def add_items(self, items):
        await super().add_items(items)
        await self.own.add_items(items)

    async def pop_item(self):
        popped = await super().pop_item()
        assert popped == await self.own.pop_item()
        return popped


class Driver(AdapterDriver):
    view = "context"

    def __init__(self, memory, session_id, model, own=None):
        self.session = Both(session_id, memory, own, view=self.view)
        self.session_id = self.session.memman_id
        self.asynchronous = True

        @function_tool
        async def read(path: str) -> str:
            """Read a file."""
            return await model.read(path) if self.asynchronous else model.read_sync(path)

        tools = [read, self.session.recall] if model.recalls else [read]
        self.agent = Agent(
            name="reviewer", instructions="You review code.", tools=tools, model=Fake(model)
        )

    def options(self):
        return {
            "session": self.session,
            "hooks": self.session.hooks,
            "run_config": RunConfig(call_model_input_filter=self.session.fit),
            "max_turns": 100,
        }

    async def run(self, text, *, stream=False):
        if not stream:
            return (await Runner.run(self.agent, text, **self.options())).final_output
        result = Runner.run_streamed(self.agent, text, **self.options())
        async for _ in result.stream_events():
            pass
        return result.final_output

    def run_sync(self, text):
        return Runner.run_sync(self.agent, text, **self.options()).final_output

    def switch(self, model):
        self.agent.model = Fake(model)

    async def history(self):
        return await self.session.own.get_items()

    def resume(self, memory, model):
        return type(self)(memory, self.session.session_id, model, self.session.own)

    async def rewind(self, turns):
        while turns:
            turns -= (await self.session.pop_item()).get("role") == "user"

    async def add_unknown(self, text):
        await self.session.add_items([{"type": "oracle", "text": text}])


class LogDriver(Driver):
    view = "log"


class TestContextView(AdapterConformance):
    format = "openai-responses"
    lacks: ClassVar = {
        "fork": "a session of this SDK has one line of items",
        "events": "its stream has events of its own kinds alone",
    }

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> AdapterDriver:
        return Driver(memory, session_id, model)


class TestLogView(TestContextView):
    turns = 50  # the SDK copies the whole list several times in each turn

    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> AdapterDriver:
        return LogDriver(memory, session_id, model)


# ---------------------------------------------------------------- traps of the SDK


def make_memory(budget=100_000, **options):
    return MemoryManager(config=MemoryConfig(max_tokens=budget, max_entries=None), **options)


def agent_of(*outputs, **options):
    """Return an agent whose model gives these outputs, one list for each request."""
    return Agent(name="a", instructions="Be brief.", model=Fake(outputs=outputs), **options)


async def run(agent, text, session, stream=False, **config):
    config = RunConfig(call_model_input_filter=session.fit, **config)
    if stream:
        result = Runner.run_streamed(agent, text, session=session, run_config=config)
        async for _ in result.stream_events():
            pass
        return result
    return await Runner.run(agent, text, session=session, run_config=config, hooks=session.hooks)


def said(items):
    return [item["content"] for item in items if item.get("role") == "user"]


def user(text):
    return {"role": "user", "content": text}


@pytest.fixture(params=["context", "log"])
def session(request):
    memory = make_memory()
    yield MemmanSession("s", memory, view=request.param)
    memory.close()


def test_path_in_place_of_a_manager_is_refused():
    with pytest.raises(InvalidInput, match="must be a MemoryManager, not str"):
        MemmanSession("s", "chat.db")


def test_session_satisfies_the_protocols(session):
    assert isinstance(session, Session)
    assert is_openai_responses_compaction_aware_session(session)


@pytest.mark.parametrize("stream", [False, True])
def test_question_is_in_the_first_request_once(session, stream):
    agent = agent_of([message("yes")], [message("no")])
    asyncio.run(run(agent, "first?", session, stream))
    asyncio.run(run(agent, "second?", session, stream))
    assert [said(items) for items in agent.model.inputs] == [["first?"], ["first?", "second?"]]


def test_instructions_are_priced_and_not_sent_as_items(session):
    agent = agent_of([message("yes")])
    asyncio.run(run(agent, "first?", session))
    assert agent.model.inputs == [[user("first?")]]
    assert session.memory.get_stats("s").overhead_tokens >= 3


def test_reading_the_tail_in_a_run_does_not_disturb_it(session, monkeypatch):
    @function_tool
    async def look() -> str:
        await session.get_items(limit=1)
        return "seen"

    agent = agent_of([call("look")], [message("done")], tools=[look])
    monkeypatch.setattr(type(session.memory.aio), "fit_messages", None)  # for lists of others
    asyncio.run(run(agent, "look", session))
    assert [item.get("output") for item in agent.model.inputs[1]] == [None, None, "seen"]


@pytest.mark.parametrize("nested", [False, True])
def test_handoff_within_the_budget_keeps_every_item(nested):
    memory = make_memory(1_500)
    model = FakeModel(memory, "openai-responses")
    driver = Driver(memory, "s", model)
    first = agent_of([call("transfer_to_reviewer")], handoffs=[driver.agent])

    async def play():
        for number in range(12):
            await driver.run(f"question {number}")
        options = driver.options()
        options["run_config"].nest_handoff_history = nested
        await Runner.run(first, "hand this over", **options)
        await driver.run("afterwards")

    asyncio.run(play())
    assert [r.violations for r in model.requests] == [[]] * len(model.requests)
    assert max(request.tokens for request in model.requests) <= 1_500
    items = memory.get_messages("s", format="openai-responses")
    assert items == asyncio.run(driver.history())
    assert any("hand this over" in str(request.messages) for request in model.requests)
    memory.close()


def test_handoffs_and_structured_output_are_priced():
    memory = make_memory(20_000, model=FakeModel.name)
    model = FakeModel(memory, "openai-responses")
    driver = Driver(memory, "s", model)
    driver.agent.handoffs = [Agent(name=f"expert {n}", instructions="") for n in range(5)]
    driver.agent.handoffs.append(handoff(Agent(name="last"), tool_description_override="The last."))
    asyncio.run(driver.run("hello"))
    assert abs(memory.get_stats("s").drift) < 0.02
    memory.close()


def test_items_with_the_placeholder_id_are_all_kept(session):
    items = [{"id": "__fake_id__", **message(text).model_dump(include={"type", "role", "content"})}
             for text in ("one", "two", "one")]  # fmt: skip
    asyncio.run(session.add_items(items))
    assert asyncio.run(session.get_items(limit=10)) == items


def test_limit_returns_the_newest_items_exactly(session):
    items = [user(f"number {n}") for n in range(9)]
    asyncio.run(session.add_items(items))
    assert asyncio.run(session.get_items(limit=3)) == items[-3:]
    assert asyncio.run(session.get_items(limit=0)) == []
    session.session_settings = SessionSettings(limit=2)
    assert asyncio.run(session.get_items()) == items[-2:]
    assert asyncio.run(session.get_items(limit=99)) == items


def test_run_with_a_limit_sends_the_limited_list(session):
    asyncio.run(session.add_items([user(f"number {n}") for n in range(9)]))
    agent = agent_of([message("yes")])
    asyncio.run(run(agent, "and now?", session, session_settings=SessionSettings(limit=2)))
    assert said(agent.model.inputs[0]) == ["number 7", "number 8", "and now?"]


def test_input_callback_decides_what_is_sent(session):
    asyncio.run(session.add_items([user(f"number {n}") for n in range(9)]))
    agent = agent_of([message("yes")])

    def shortened(history, new):
        return history[:1] + new

    asyncio.run(run(agent, "and now?", session, session_input_callback=shortened))
    assert said(agent.model.inputs[0]) == ["number 0", "and now?"]
    assert len(asyncio.run(session.get_items(limit=99))) == 11


def test_handoff_filter_decides_what_is_sent(session):
    second = agent_of([message("mine")])

    def only_this(data):
        return data.clone(input_history="only this", pre_handoff_items=(), new_items=())

    first = agent_of([call("transfer_to_a")], handoffs=[handoff(second, input_filter=only_this)])
    asyncio.run(run(first, "not this", session))
    assert said(second.model.inputs[0]) == ["only this"]


def test_popped_item_can_be_restored(session):
    asyncio.run(session.add_items([user("one"), user("two")]))
    retracted = []
    session.memory.on("compressed", lambda event: retracted.append(event.compression_id))
    assert asyncio.run(session.pop_item()) == user("two")
    assert asyncio.run(session.get_items()) == [user("one")]
    assert asyncio.run(session.get_items(limit=5)) == [user("one")]
    assert asyncio.run(session.pop_item()) == user("one")
    assert asyncio.run(session.pop_item()) is None
    for compression_id in reversed(retracted):
        session.memory.undo_compression("s", compression_id)
    assert asyncio.run(session.get_items(limit=5)) == [user("one"), user("two")]


def test_empty_session_answers(session):
    assert asyncio.run(session.get_items()) == []
    assert asyncio.run(session.pop_item()) is None
    asyncio.run(session.clear_session())
    asyncio.run(session.run_compaction({"force": True}))
    asyncio.run(session.add_items([]))


def test_cleared_session_begins_again_and_its_log_stays(session):
    asyncio.run(session.add_items([user("old")]))
    asyncio.run(session.clear_session())
    assert asyncio.run(session.get_items()) == []
    agent = agent_of([message("yes")])
    asyncio.run(run(agent, "new", session))
    assert agent.model.inputs == [[user("new")]]
    assert "old" in session.memory.export_session("s").to_json()


def test_only_a_forced_compaction_compresses():
    memory = make_memory(2_500)  # over its target, and not over its trigger
    session = MemmanSession("s", memory)
    items = [user("word " * 200) for _ in range(9)]
    asyncio.run(session.add_items(items))
    for args in (None, {}, {"response_id": "r", "compaction_mode": "auto"}):
        asyncio.run(session.run_compaction(args))
    assert memory.get_stats("s").compressed_entries == 0
    asyncio.run(session.run_compaction({"force": True}))
    assert memory.get_stats("s").compressed_entries > 0
    assert asyncio.run(session.get_items(limit=99)) == items
    memory.close()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_approval_logs_the_call_and_its_output_once(session, elsewhere):
    @function_tool(needs_approval=True)
    async def drop() -> str:
        return "dropped"

    agent = agent_of([call("drop")], [message("done")], [message("hello")], tools=[drop])

    async def approved():
        result = await run(agent, "drop it", session)
        state, same = result.to_state(), session
        if elsewhere:
            state = await RunState.from_string(agent, state.to_string())
            same = MemmanSession("s", session.memory)
        state.approve(state.get_interruptions()[0])
        assert (await run(agent, state, same)).final_output == "done"
        await run(agent, "and now?", same)

    asyncio.run(approved())
    whole = ["message", "function_call", "function_call_output", "message", "message"]
    for items, kinds in zip(agent.model.inputs, (whole[:1], whole[:3], whole), strict=True):
        assert check(items, "openai-responses") == []
        assert [item.get("type", "message") for item in items] == kinds
    assert len(asyncio.run(session.get_items(limit=99))) == 6


def test_interrupted_call_in_the_log_is_the_sessions_own(session, monkeypatch):
    interrupted = [
        user("go"),
        reasoning("secret").model_dump(exclude_none=True),
        call("look", call_id="c1").model_dump(exclude_none=True),
        user("never mind"),
    ]
    asyncio.run(session.add_items(interrupted))
    monkeypatch.setattr(type(session.memory.aio), "fit_messages", None)  # for lists of others
    agent = agent_of([message("well")])
    asyncio.run(run(agent, "so?", session))
    assert said(agent.model.inputs[0]) == ["go", "never mind", "so?"]
    assert check(agent.model.inputs[0], "openai-responses") == []


def usage(**numbers):
    details = InputTokensDetails(cached_tokens=numbers.pop("cached"), cache_write_tokens=0)
    return Usage(requests=1, input_tokens_details=details, **numbers)


def test_usage_has_cached_tokens_and_never_ends_a_run(session, caplog):
    async def respond(**numbers):
        response = ModelResponse(output=[], usage=usage(**numbers), response_id=None)
        await session.hooks.on_llm_end(None, None, response)

    asyncio.run(respond(input_tokens=9, output_tokens=1, cached=0))
    assert "not recorded: there is no session 's'" in caplog.text
    asyncio.run(session.add_items([user("hello")]))
    asyncio.run(respond(input_tokens=9, output_tokens=1, cached=7))
    asyncio.run(respond(input_tokens=9, output_tokens=1, cached=70))  # some gateways leave it out
    assert "cached" in caplog.records[-1].message
    [report] = [r for r in session.memory.export_session("s").log if isinstance(r, UsageReported)]
    assert (report.input_tokens, report.cached_tokens) == (9, 7)


def test_tools_of_a_server_are_listed_once():
    class Server:
        listed = 0

        async def list_tools(self):
            self.listed += 1
            return [SimpleNamespace(name="find", description=None, inputSchema={"type": "object"})]

    agent, servers = agent_of(output_type=list[str]), {}
    agent.mcp_servers = [Server()]
    for _ in range(2):
        names = [tool["name"] for tool in asyncio.run(tools_of(agent, servers))]
    assert names == ["final_output", "find"]
    assert agent.mcp_servers[0].listed == 1


def test_call_ids_that_come_again_lose_nothing():
    session = MemmanSession("s", make_memory())  # the SDK replaces such items of a list: view="log"

    @function_tool
    async def look(at: str) -> str:
        return f"seen {at}"

    agent = agent_of(tools=[look])
    for number in range(4):
        again = call("look", f'{{"at": "{number}"}}', call_id="call_0")
        agent.model.outputs = [[again], [message("well")]]
        asyncio.run(run(agent, f"question {number}", session))
    outputs = [item["output"] for item in agent.model.inputs[-1] if "output" in item]
    assert outputs == [f"seen {number}" for number in range(4)]
    assert check(agent.model.inputs[-1], "openai-responses") == []
    session.memory.close()


def test_async_manager_serves_the_session():
    async def play():
        memory = AsyncMemoryManager(config=MemoryConfig(max_tokens=2_500))
        session = MemmanSession("s", memory)
        agent = agent_of([message("yes")], [message("no")])
        await run(agent, "first?", session)
        await run(agent, "second?", session, stream=True)
        stats = await memory.get_stats("s")
        await memory.close()
        return stats.total_entries

    assert asyncio.run(play()) == 4


def test_session_id_of_any_kind_is_kept_for_the_sdk():
    memory = make_memory()
    session = MemmanSession("x" * 300, memory)
    assert session.session_id == "x" * 300
    assert session.memman_id == valid_id("x" * 300)
    asyncio.run(session.add_items([user("hello")]))
    assert len(memory.get_entries(session.memman_id)) == 1
    memory.close()


@pytest.mark.parametrize(("name", "view"), [(None, "context"), ("s", "all")])
def test_invalid_argument_is_refused_at_once(name, view):
    memory = make_memory()
    with pytest.raises(InvalidInput, match=r"id must be a string|view must be 'context' or 'log'"):
        MemmanSession(name, memory, view=view)
    memory.close()


def test_summaries_by_a_coroutine_work_in_run_sync():
    class Summarizer(ScriptedSummarizer):
        async def summarize(self, request: Any) -> Any:
            return super().summarize(request)

    memory = make_memory(1_500, summarizer=Summarizer("They read files."), async_ports=True)
    driver = Driver(memory, "s", FakeModel(memory, "openai-responses"))
    driver.asynchronous = False
    for number in range(9):
        driver.run_sync(f"question {number}")
    assert "They read files." in str(memory.get_summaries("s"))
    memory.close()


# ---------------------------------------------------------------- recall


def test_agent_without_the_tool_does_not_know_old_results():
    memory = make_memory(4_000)
    model = FakeModel(memory, "openai-responses")
    driver = Driver(memory, "s", model)

    async def play():
        for number in range(100):
            await driver.run(f"question {number}")
        paths = [result.splitlines()[0].removeprefix("# ") for result in model.results[::2]]
        return [await driver.run(f"Which rate has {path}?") for path in paths]

    assert asyncio.run(play()).count("I do not know.") >= 95
    memory.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("{", "[memman: the arguments are not valid JSON"),
        ('{"query": 7}', "[memman: query must be a text, not 7]"),
        ('{"query": "#99"}', "[memman: none of these can be recalled"),
    ],
)
def test_wrong_recall_is_answered_with_a_text(session, arguments, answer, stream):
    agent = agent_of([call("recall", arguments)], [message("well")], tools=[session.recall])
    asyncio.run(run(agent, "what was it?", session, stream))
    [output] = [item["output"] for item in agent.model.inputs[1] if "output" in item]
    assert output.startswith(answer)
    assert [entry.type for entry in session.memory.get_entries("s")] == [
        "message", "tool_call", "tool_result", "message",
    ]  # fmt: skip


def test_async_manager_answers_recalls():
    async def play():
        memory = AsyncMemoryManager(config=MemoryConfig(max_tokens=2_500))
        session = MemmanSession("s", memory)
        agent = agent_of(
            [call("recall", '{"query": "#2"}')], [message("ok")], tools=[session.recall]
        )
        await run(agent, "the code is 4711", session)
        await memory.close()
        return str(agent.model.inputs[1][-1]["output"])

    assert "message of the user" in asyncio.run(play())


# ---------------------------------------------------------------- the provider's cache


def test_sdk_sends_a_key_of_the_session_over_compressions():
    text = {"type": "output_text", "text": "It returns 1. " * 20, "annotations": []}
    said = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    usage = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18,
             "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
             "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    reply = {"id": "r", "object": "response", "created_at": 1, "model": "gpt-5", "output": [said],
             "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage}  # fmt: skip
    memory = MemoryManager(config=MemoryConfig(max_tokens=2_000, max_entries=None))

    async def play(url):
        target = urlsplit(url)

        async def redirect(request):  # the SDK sends the key to OpenAI's own server only
            request.url = request.url.copy_with(
                scheme="http", host=target.hostname, port=target.port
            )

        client = AsyncOpenAI(api_key="none", base_url="https://api.openai.com/v1")
        client._client.event_hooks = {"request": [redirect]}
        model = OpenAIResponsesModel("gpt-5", client)
        for turn in range(30):
            session = MemmanSession("s", memory)  # as after a restart
            config = RunConfig(call_model_input_filter=session.fit)
            agent = Agent(name="a", instructions="You review code.", model=model)
            await Runner.run(
                agent, f"Is part {turn} sound? " * 9, session=session, run_config=config
            )
        await client.close()

    with loopback("/responses", Answer(body=reply)) as server:
        asyncio.run(play(server.url))
        bodies = [request.body for request in server.received]
    assert len(memory.get_summaries("s")) > 0
    assert len({body["prompt_cache_key"] for body in bodies}) == 1
    assert len({body["instructions"] for body in bodies}) == 1
    kept = [two["input"][: len(one["input"])] == one["input"] for one, two in pairwise(bodies)]
    assert len(kept) / 2 < sum(kept) < len(kept)  # all but those after a compression
