"""What is particular to pydantic-ai: its parts, its histories, its ways to run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from memman_pydantic_ai import MemmanHistory
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRetry, RunContext, ToolReturn
from pydantic_ai.capabilities import AbstractCapability, ReinjectSystemPrompt
from pydantic_ai.exceptions import ModelContextWindowExceededError, ModelHTTPError
from pydantic_ai.messages import (
    CachePoint,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolAvailabilityDeltaPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.usage import RequestUsage

from memman import AsyncMemoryManager, InvalidInput, MemoryConfig, MemoryManager
from memman.formats.rules import check
from memman.records import ids_retracted_by

from .pydantic_ai_agents import calling_once, definition, flat

IMAGE = BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png")
AMPLE = MemoryConfig(max_tokens=1_000_000)


@dataclass
class Sent(AbstractCapability[Any]):
    """Keeps the messages of each request as the capabilities before it left them."""

    requests: list[list[ModelMessage]] = field(default_factory=list)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        self.requests.append(list(request_context.messages))
        return request_context


def answering(*parts: Any) -> FunctionModel:
    """Return a model that always answers with these parts, and reports a usage that it estimated."""
    return FunctionModel(lambda messages, info: ModelResponse(parts=list(parts)))


def stored(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return messages as an application loads them again."""
    return ModelMessagesTypeAdapter.validate_json(
        ModelMessagesTypeAdapter.dump_json(list(messages))
    )


def retractions(memory: MemoryManager, session_id: str = "s") -> int:
    """Return how often entries were retracted."""
    log = memory.export_session(session_id).log
    return sum(bool(ids_retracted_by(record)) for record in log)


def said(memory: MemoryManager, session_id: str = "s") -> list[str]:
    """Return the texts of the log."""
    return [entry.text for entry in memory.get_entries(session_id)]


# ---------------------------------------------------------------- native objects


def test_path_in_place_of_a_manager_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be a MemoryManager, not str"):
        MemmanHistory("chat.db")  # type: ignore[arg-type]


def test_parts_are_sent_as_the_same_objects() -> None:
    thought = ThinkingPart("hm", signature="c2ln", provider_name="anthropic")
    sent = Sent()
    agent = Agent(
        answering(thought, TextPart("a dog")),
        instructions="You see.",
        capabilities=[MemmanHistory(MemoryManager(config=AMPLE), "s"), sent],
    )
    first = agent.run_sync(["What is this?", IMAGE, CachePoint()])
    history = first.all_messages()
    second = agent.run_sync("And now?", message_history=history)
    request = sent.requests[-1]
    assert all(message is own for message, own in zip(request, second.all_messages(), strict=False))
    assert any(part is thought for part in request[1].parts)
    assert isinstance(request[-1], ModelRequest)
    assert request[-1].instructions == "You see."


def test_request_of_several_parts_is_sent_as_the_same_object() -> None:
    sent = Sent()
    memory = MemoryManager(config=AMPLE)
    agent = Agent(TestModel(), capabilities=[MemmanHistory(memory, "s"), sent])

    @agent.tool_plain
    def first() -> list[Any]:
        return ["a picture", IMAGE]

    @agent.tool_plain
    def second() -> str:
        return "2"

    history = agent.run_sync("Look.").all_messages()
    assert len(history[2].parts) == 2
    agent.run_sync("Again.", message_history=history)
    assert sent.requests[-1][2] is history[2]


def test_history_of_the_application_stays_whole() -> None:
    memory = MemoryManager(config=MemoryConfig(max_tokens=400))
    sent = Sent()
    agent = Agent(
        answering(TextPart("word " * 30)), capabilities=[MemmanHistory(memory, "s"), sent]
    )
    history: list[ModelMessage] = []
    for turn in range(30):
        history = agent.run_sync(f"question {turn}", message_history=history).all_messages()
    assert len(history) == 60
    assert len(sent.requests[-1]) < 30
    assert "memman" not in str(history)
    assert said(memory) == [message["content"] for message in flat(history)]


def test_clipped_result_is_sent_short_and_kept_whole() -> None:
    memory = MemoryManager(config=MemoryConfig(max_tokens=900))
    sent = Sent()
    agent = Agent(TestModel(), capabilities=[MemmanHistory(memory, "s"), sent])

    @agent.tool_plain
    def read() -> dict[str, Any]:
        return {"lines": [f"line {number} of the file" for number in range(400)]}

    history = agent.run_sync("Read it.").all_messages()
    result = history[2].parts[0]
    assert isinstance(result, ToolReturnPart)
    shown = sent.requests[-1][-1].parts[0]
    assert isinstance(shown, ToolReturnPart)
    assert (shown.tool_call_id, shown.tool_name) == (result.tool_call_id, "read")
    assert len(shown.model_response_str()) < len(result.model_response_str()) // 2
    assert result.model_response_str() in said(memory)


# ---------------------------------------------------------------- edited histories


def conversation(memory: MemoryManager, turns: int = 4) -> list[ModelMessage]:
    agent = Agent(answering(TextPart("yes")), capabilities=[MemmanHistory(memory, "s")])
    history: list[ModelMessage] = []
    for turn in range(turns):
        history = agent.run_sync(f"question {turn}", message_history=history).all_messages()
    return history


def continued(memory: MemoryManager, history: Sequence[ModelMessage]) -> list[str]:
    """Return the texts that another process sends when it continues a history."""
    sent = Sent()
    agent = Agent(answering(TextPart("yes")), capabilities=[MemmanHistory(memory, "s"), sent])
    agent.run_sync("last", message_history=history)
    return [message["content"] for message in flat(sent.requests[-1])]


def texts(history: Sequence[ModelMessage]) -> list[str]:
    return [message["content"] for message in flat(history)]


def test_stored_history_is_recognised() -> None:
    memory = MemoryManager(config=AMPLE)
    history = stored(conversation(memory))
    assert continued(memory, history) == [*texts(history), "last"]
    assert retractions(memory) == 0
    assert len(memory.get_entries("s")) == 10


def test_edited_message_replaces_its_tail() -> None:
    memory = MemoryManager(config=AMPLE)
    history = conversation(memory)
    history[4] = ModelRequest(parts=[UserPromptPart("question 2, edited")])
    assert continued(memory, history) == [*texts(history), "last"]
    assert said(memory) == [*texts(history), "last", "yes"]
    assert retractions(memory) == 1


def test_part_replaced_in_place_replaces_its_tail() -> None:
    memory = MemoryManager(config=AMPLE)
    sent = Sent()
    agent = Agent(answering(TextPart("yes")), capabilities=[MemmanHistory(memory, "s"), sent])
    history = agent.run_sync("my password is 1234").all_messages()
    history[0].parts = [UserPromptPart("my password is ****")]
    agent.run_sync("last", message_history=history)
    assert "1234" not in str(flat(sent.requests[-1]))
    assert "my password is ****" in said(memory)


def test_message_inserted_in_the_middle_keeps_its_place() -> None:
    memory = MemoryManager(config=AMPLE)
    history = conversation(memory)
    history[2:2] = [ModelRequest(parts=[UserPromptPart("by the way")])]
    assert continued(memory, history) == [*texts(history), "last"]
    assert said(memory) == [*texts(history), "last", "yes"]


def test_messages_removed_in_the_middle_leave_the_context() -> None:
    memory = MemoryManager(config=AMPLE)
    history = conversation(memory)
    del history[2:4]
    assert continued(memory, history) == [*texts(history), "last"]


def test_branch_and_return_show_each_branch() -> None:
    memory = MemoryManager(config=AMPLE)
    history = conversation(memory)
    other = [*history[:4], ModelRequest(parts=[UserPromptPart("another way")]), history[5]]
    assert continued(memory, other) == [*texts(other), "last"]
    assert continued(memory, history) == [*texts(history), "last"]


def test_forgotten_history_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryManager(config=AMPLE)
    with caplog.at_level("WARNING", "memman"):
        history = conversation(memory)
        continued(memory, history[:2])
        assert not caplog.messages
        continued(memory, [])
    assert len(caplog.messages) == 1
    assert "session s: the history of this run continues nothing of it" in caplog.messages[0]


def test_merged_requests_are_recognised() -> None:
    memory = MemoryManager(config=AMPLE)
    history = conversation(memory, 2)
    history.append(ModelRequest(parts=[UserPromptPart("and this")]))  # as after a run that failed
    assert continued(memory, history)[-2:] == ["and this", "last"]
    merged = [*history[:-1], ModelRequest(parts=[*history[-1].parts, UserPromptPart("last")])]
    before = retractions(memory)
    sent = continued(memory, merged)
    assert sent[-3:] == ["and this", "last", "last"]
    assert retractions(memory) <= before + 1  # of the second "last", which is another one


def test_retracted_and_deleted_entries_stay_hidden() -> None:
    memory = MemoryManager(config=AMPLE)
    history = conversation(memory)
    ids = [entry.id for entry in memory.get_entries("s")]
    memory.retract("s", [ids[2]], reason="the user's wish")
    memory.delete_entries("s", [ids[4]])
    for _ in range(2):
        shown = continued(memory, history)
        assert "question 1" not in shown
        assert "question 2" not in shown
        assert shown[-1] == "last"


def test_two_processes_continue_one_session(tmp_path: Any) -> None:
    path = str(tmp_path / "chat.db")
    first, second = (MemoryManager(path, config=AMPLE) for _ in range(2))
    with first, second:
        sent = Sent()
        model = answering(TextPart("yes"))
        here = Agent(model, capabilities=[MemmanHistory(first, "s"), sent])
        there = Agent(model, capabilities=[MemmanHistory(second, "s")])
        start = here.run_sync("one").all_messages()
        there.run_sync("two", message_history=stored(start))
        here.run_sync("another two", message_history=start)
        assert texts(sent.requests[-1]) == ["one", "yes", "another two"]


# ---------------------------------------------------------------- prompts, tools, outputs


def test_standing_prompts_are_sent_anew_and_not_logged() -> None:
    memory = MemoryManager(config=MemoryConfig(max_tokens=600))
    sent = Sent()
    prompts = iter(range(100))
    capabilities = [ReinjectSystemPrompt(replace_existing=True), MemmanHistory(memory, "s"), sent]
    agent = Agent(answering(TextPart("yes")), capabilities=capabilities)

    @agent.system_prompt
    def now() -> str:
        return f"It is {next(prompts)} o'clock."

    history: list[ModelMessage] = []
    for turn in range(40):
        asked = f"question {turn} " + "word " * 20
        history = stored(agent.run_sync(asked, message_history=history).all_messages())
        first = sent.requests[-1][0].parts[0]
        assert isinstance(first, SystemPromptPart)
        assert history[0].parts[0].content == first.content  # type: ignore[union-attr]  # a prompt
    assert "o'clock" not in str(said(memory))
    assert retractions(memory) == 0


class Answer(BaseModel):
    """An answer with a schema of its own."""

    text: str


def test_output_tools_are_priced_with_the_others() -> None:
    memory = MemoryManager(config=MemoryConfig(max_tokens=1_200))
    Answer.__doc__ = "A long description. " * 100
    seen: list[int] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        [tool] = info.output_tools
        counted = memory.count_tokens(flat(messages), tools=[definition(tool)])
        seen.append(counted.tokens)
        return ModelResponse(parts=[ToolCallPart(tool.name, {"text": "yes " * 40})])

    agent = Agent(
        FunctionModel(answer), output_type=Answer, capabilities=[MemmanHistory(memory, "s")]
    )
    history: list[ModelMessage] = []
    for turn in range(20):
        history = agent.run_sync(f"question {turn}", message_history=history).all_messages()
    assert 600 < max(seen) <= 1_200
    assert said(memory)[-1] == "Final result processed."


def test_retried_tool_call_is_logged_with_its_feedback() -> None:
    memory = MemoryManager(config=AMPLE)
    agent = Agent(TestModel(), capabilities=[MemmanHistory(memory, "s")], retries=2)
    tried: list[int] = []

    @agent.tool_plain
    def read() -> str:
        tried.append(1)
        if len(tried) == 1:
            raise ModelRetry("try again")
        return "done"

    @agent.output_validator
    def check_output(text: str) -> str:
        if len(tried) < 3:
            tried.append(1)
            raise ModelRetry("longer, please")
        return text

    agent.run_sync("Read it.")
    results = [entry for entry in memory.get_entries("s") if entry.type == "tool_result"]
    assert [(entry.text, entry.is_error) for entry in results][:2] == [
        ("try again", True),
        ("done", False),
    ]
    assert "longer, please" in said(memory)


def test_approval_and_denial_continue_the_session() -> None:
    memory = MemoryManager(config=AMPLE)
    sent = Sent()
    agent = Agent(
        TestModel(),
        output_type=[str, DeferredToolRequests],
        capabilities=[MemmanHistory(memory, "s"), sent],
    )

    @agent.tool_plain(requires_approval=True)
    def delete(path: str) -> str:
        return f"deleted {path}"

    @agent.tool_plain(requires_approval=True)
    def rename(path: str) -> str:
        return f"renamed {path}"

    paused = agent.run_sync("Clean up.")
    assert isinstance(paused.output, DeferredToolRequests)
    first, second = paused.output.approvals
    decided = DeferredToolResults(
        approvals={first.tool_call_id: True, second.tool_call_id: ToolDenied("not this one")}
    )
    history = stored(paused.all_messages())
    done = agent.run_sync(message_history=history, deferred_tool_results=decided)
    assert not check(flat(sent.requests[-1]), "openai-chat")
    assert said(memory) == [
        message["content"] if "tool_calls" not in message else call["function"]["arguments"]
        for message in flat(done.all_messages())
        for call in message.get("tool_calls", [{}])
    ]
    assert retractions(memory) == 0


def test_parts_that_reveal_tools_stay_in_the_context() -> None:
    memory = MemoryManager(config=MemoryConfig(max_tokens=900))
    sent = Sent()
    model = answering(TextPart("yes " * 20))
    agent = Agent(model, capabilities=[MemmanHistory(memory, "s"), sent])
    history = agent.run_sync("question").all_messages()
    delta = ToolAvailabilityDeltaPart(tools_added=["first"])
    searched = ToolReturnPart(
        "search_tools", {"discovered_tools": [{"name": "second"}]}, "c1", tool_kind="tool-search"
    )
    history += [
        ModelRequest(parts=[delta, UserPromptPart("there is a tool")]),
        ModelResponse(
            parts=[
                ThinkingPart("I search"),
                ToolCallPart("search_tools", {"queries": ["x"]}, "c1", tool_kind="tool-search"),
            ]
        ),
        ModelRequest(parts=[searched]),
        ModelResponse(parts=[TextPart("good")]),
    ]
    found = history[-2].parts[0]  # of the class for this kind of tool
    for turn in range(30):
        history = agent.run_sync(f"question {turn}", message_history=history).all_messages()
    parts = [part for message in sent.requests[-1] for part in message.parts]
    assert len(parts) < 40
    assert delta in parts
    assert any(part is found for part in parts)
    assert any(isinstance(part, ToolCallPart) and part.tool_call_id == "c1" for part in parts)


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("stream", [False, True])
def test_request_that_is_too_long_is_sent_again_shorter(stream: bool) -> None:
    memory = MemoryManager(config=AMPLE)
    lengths: list[int] = []

    def refused(messages: list[ModelMessage]) -> None:
        lengths.append(len(str(flat(messages))))
        if lengths[-1] > 8_000:
            raise ModelContextWindowExceededError("m", "the input is too long")

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        refused(messages)
        return ModelResponse(parts=[TextPart("word " * 120)])

    async def answer_in_pieces(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        refused(messages)
        yield "word " * 120

    model = FunctionModel(answer, stream_function=answer_in_pieces)
    agent = Agent(model, capabilities=[MemmanHistory(memory, "s")])

    async def turn(text: str, history: list[ModelMessage]) -> list[ModelMessage]:
        if not stream:
            return (await agent.run(text, message_history=history)).all_messages()
        async with agent.run_stream(text, message_history=history) as result:
            await result.get_output()
            return result.all_messages()

    history: list[ModelMessage] = []
    for number in range(30):
        history = asyncio.run(turn(f"question {number}", history))
    assert len(history) == 60
    assert 1 <= sum(length > 8_000 for length in lengths) <= 4


def test_limit_in_an_error_is_learned() -> None:
    memory = MemoryManager(model="gpt-5", config=AMPLE)
    refusals: list[int] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tokens = memory.count_tokens(flat(messages)).tokens
        if tokens > 1_000:
            refusals.append(tokens)
            text = f"maximum context length is 1000 tokens. However, you requested {tokens} tokens"
            raise ModelHTTPError(400, "gpt-5", {"message": text, "code": "context_length_exceeded"})
        return ModelResponse(parts=[TextPart("word " * 40)])

    memory.update_config(reserve_output=0)
    agent = Agent(FunctionModel(answer), capabilities=[MemmanHistory(memory, "s")])
    history: list[ModelMessage] = []
    for turn in range(40):
        history = agent.run_sync(f"question {turn}", message_history=history).all_messages()
    assert len(refusals) == 1


def test_other_errors_are_not_retried() -> None:
    asked: list[int] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(1)
        raise ModelHTTPError(429, "m", {"message": "too many tokens per minute"})

    agent = Agent(FunctionModel(answer), capabilities=[MemmanHistory(MemoryManager(), "s")])
    with pytest.raises(ModelHTTPError):
        agent.run_sync("question")
    assert len(asked) == 1


class Billed(FunctionModel):
    """Reports usage that no provider estimated."""

    @property
    def system(self) -> str:
        return "openai"


def test_usage_of_any_kind_does_not_end_a_run(caplog: pytest.LogCaptureFixture) -> None:
    usage = RequestUsage(input_tokens=9, output_tokens=1, cache_read_tokens=70)  # some gateways do
    model = Billed(lambda *_: ModelResponse(parts=[TextPart("done")], usage=usage))
    agent = Agent(model, capabilities=[MemmanHistory(MemoryManager(), "s")])
    assert agent.run_sync("question").output == "done"
    assert "70 cached tokens" in caplog.text


def test_overflow_after_a_recovery_is_the_providers_error() -> None:
    capability = MemmanHistory(MemoryManager(config=AMPLE), "s")

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del capability._mirror_of  # as in the process that recovers a durable run
        raise ModelContextWindowExceededError("m", "the input is too long")

    with pytest.raises(ModelContextWindowExceededError):
        Agent(FunctionModel(answer), capabilities=[capability]).run_sync("question")


def test_value_that_is_not_json_does_not_end_the_run() -> None:
    memory = MemoryManager(config=AMPLE)
    agent = Agent(TestModel(), capabilities=[MemmanHistory(memory, "s")])

    @agent.tool_plain
    def read() -> Any:
        return ToolReturn(return_value="done", metadata={"handle": object()})

    history = agent.run_sync("Read it.").all_messages()
    agent.run_sync("Again.", message_history=history)
    assert said(memory)[2] == "done"
    assert retractions(memory) == 0


# ---------------------------------------------------------------- ways to run


def test_iterated_run_is_logged_whole() -> None:
    memory = MemoryManager(config=AMPLE)
    agent = Agent(TestModel(), capabilities=[MemmanHistory(memory)])

    @agent.tool_plain
    def read() -> str:
        return "read"

    async def run() -> tuple[str, list[ModelMessage]]:
        async with agent.iter("Read it.") as run:
            async for _ in run:
                pass
            assert run.result is not None
            conversation_id = run.result.conversation.conversation_id
            return conversation_id, run.result.all_messages()

    session_id, history = asyncio.run(run())
    assert len(memory.get_entries(session_id)) == len(flat(history))


def test_agent_that_is_a_tool_has_a_session_of_its_own() -> None:
    memory = MemoryManager(config=AMPLE)
    history = MemmanHistory(memory)
    inner = Agent(TestModel(custom_output_text="inner"), capabilities=[history])
    outer = Agent(TestModel(), capabilities=[history])

    @outer.tool_plain
    async def ask() -> str:
        return (await inner.run("a question")).output

    outer.run_sync("Ask it.", conversation_id="outer")
    sessions = [info.session_id for info in memory.list_sessions()]
    assert len(sessions) == 2
    assert said(memory, "outer")[0] == "Ask it."


def test_async_manager_serves_one_loop() -> None:
    async def run() -> int:
        async with AsyncMemoryManager(config=AMPLE) as memory:
            agent = Agent(TestModel(), capabilities=[MemmanHistory(memory, "s")])
            history = (await agent.run("one")).all_messages()
            await agent.run("two", message_history=history)
            return len(await memory.get_entries("s"))

    assert asyncio.run(run()) == 4


@pytest.mark.parametrize(("recall", "entries"), [(False, 2), (True, 4)])
def test_capability_given_twice_is_one(recall: bool, entries: int) -> None:
    memory = MemoryManager(config=AMPLE)
    twice = [MemmanHistory(memory, "s", recall=recall) for _ in range(2)]
    Agent(TestModel(), capabilities=twice).run_sync("question")  # it calls each tool once
    assert len(memory.get_entries("s")) == entries


# ---------------------------------------------------------------- the page


def test_first_example_of_the_page_runs_for_sixty_turns() -> None:
    page = Path(__file__).parents[3] / "docs/how-to/use-with-pydantic-ai.md"
    _, block, *_ = re.split("^```(?:python)?\n", page.read_text("utf-8"), flags=re.MULTILINE)
    assert block.count("range(1, 20)") == 1
    names: dict[str, Any] = {}
    exec(block.replace("range(1, 20)", "range(1, 60)"), names)  # noqa: S102 - the page's own code
    assert len(names["memory"].get_entries("user-17")) == 60 * 4


# ---------------------------------------------------------------- recall


def recalled(memory: MemoryManager, arguments: Any, conversation_id: str = "s") -> str:
    """Return the answer to a call of `recall` in a new run of a conversation."""
    call = ToolCallPart("recall", arguments)
    agent = Agent(calling_once(call), capabilities=[MemmanHistory(memory, recall=True)])
    run = agent.run_sync("The code is 4711.", conversation_id=conversation_id)
    [answer] = [
        part.content
        for message in run.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    return str(answer)


@pytest.mark.parametrize("arguments", [{"query": 7}, {}, {"query": "x", "page": -1}, {"self": 1}])
def test_wrong_recall_is_answered_with_a_text(arguments: dict[str, Any]) -> None:
    memory = MemoryManager(config=AMPLE)
    assert recalled(memory, arguments).startswith("[memman: ")
    assert len(memory.get_entries("s")) == 4


def test_recall_reads_its_own_conversation_only() -> None:
    memory = MemoryManager(config=AMPLE)
    memory.add_user_message("other", "the code is 1234")
    assert "4711" in recalled(memory, {"query": "code"})
    assert "1234" not in recalled(memory, {"query": "code 1234"})


def test_agent_has_no_recall_unless_asked() -> None:
    assert MemmanHistory(MemoryManager(config=AMPLE)).get_toolset() is None
