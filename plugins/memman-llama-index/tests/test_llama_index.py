"""What is particular to LlamaIndex: its memories, agents, workflows and chat engines."""

import asyncio
import copy
import gc
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import memman_llama_index
import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import (
    BaseContentBlock,
    ChatMessage,
    ChatResponse,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms.mock import MockFunctionCallingLLM, MockLLM
from llama_index.core.memory import BaseMemory, ChatMemoryBuffer
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    JsonPickleSerializer,
    JsonSerializer,
)
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.anthropic.utils import blocks_to_anthropic_blocks
from llama_index.llms.openai import OpenAI
from llama_index.llms.openai.utils import from_openai_message
from memman_llama_index import MemmanFunctionAgent, MemmanMemory
from memman_llama_index.agent import _record_usage, _takes_cache_points
from memman_llama_index.memory import _managers
from openai.types.chat import ChatCompletionMessage

from memman import AsyncMemoryManager, BudgetExceeded, InvalidInput, MemoryConfig, MemoryManager
from memman.records import Cleared, UsageReported
from memman.testing import FakeModel

from .llama_index_agents import reading_agent

BUDGET = 2_500
USER = ChatMessage(role="user", content="Why is the build red?")
ANSWER = ChatMessage(role="assistant", content="A test fails.")
OTHER = ChatMessage(role="user", content="Which one?")


def manager(budget: int = BUDGET, store: Any = None, model: str | None = None) -> MemoryManager:
    config = MemoryConfig(max_tokens=budget, max_entries=None)
    return MemoryManager(store, model=model, config=config)


def memory_of(given: MemoryManager | None = None, **options: Any) -> MemmanMemory:
    return MemmanMemory.from_defaults(given or manager(), "s", **options)


def said(messages: Sequence[ChatMessage]) -> list[str | None]:
    return [message.content for message in messages]


def roles_of(memory: BaseMemory) -> list[str]:
    return [message.role.value for message in memory.get_all()]


def called(call_id: str | None, name: str = "read", **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(tool_call_id=call_id, tool_name=name, tool_kwargs=arguments)


def result(call_id: str, text: str = "found") -> ChatMessage:
    return ChatMessage(role="tool", content=text, additional_kwargs={"tool_call_id": call_id})


class Scripted(MockFunctionCallingLLM):
    """LlamaIndex's mock with a list of replies, which keeps what it is sent."""

    def __init__(self, *replies: ChatMessage) -> None:
        rest = list(replies)
        super().__init__(is_chat_model=True, response_generator=lambda *_, **__: rest.pop(0))
        self._sent: list[list[ChatMessage]] = []

    @property
    def sent(self) -> list[list[ChatMessage]]:
        return self._sent

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        self._sent.append(list(messages))
        return await super().achat(messages, **kwargs)


def agent_of(llm: Any, *tools: Any, **options: Any) -> MemmanFunctionAgent:
    return MemmanFunctionAgent(llm=llm, tools=list(tools), streaming=False, **options)


def read(path: str) -> str:
    """Read a file."""
    return f"# {path}\n" + "total = total + compute(row)\n" * 25


# ---------------------------------------------------------------- the contract of a memory


def own_buffer() -> BaseMemory:
    return ChatMemoryBuffer.from_defaults(token_limit=10**6)


class Sync:
    """The methods of a memory, called in either way."""

    def __init__(self, memory: BaseMemory, is_async: bool) -> None:
        self._memory = memory
        self._is_async = is_async

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if self._is_async:
            method = getattr(self._memory, f"a{name}")
            return lambda *args, **kwargs: asyncio.run(method(*args, **kwargs))
        return getattr(self._memory, name)


@pytest.fixture(params=[memory_of, own_buffer])
def make(request: pytest.FixtureRequest) -> Callable[[], BaseMemory]:
    return request.param


@pytest.mark.parametrize("is_async", [False, True])
class TestContract:
    """What LlamaIndex's own memories do, and what its agents and engines rely on."""

    def test_put_messages_come_back_in_order(self, make: Any, is_async: bool) -> None:
        memory = Sync(make(), is_async)
        assert memory.get() == memory.get_all() == []
        memory.put(USER)
        memory.put_messages([ANSWER, OTHER])
        assert memory.get() == memory.get_all() == [USER, ANSWER, OTHER]

    def test_the_same_message_may_be_put_twice(self, make: Any, is_async: bool) -> None:
        memory = Sync(make(), is_async)
        for _ in range(2):
            memory.put_messages([USER, ANSWER])
        assert memory.get_all() == [USER, ANSWER, USER, ANSWER]

    @pytest.mark.parametrize(
        "messages",
        [
            [],
            [USER],
            [USER, ANSWER, OTHER],
            [USER, ANSWER, OTHER, ANSWER],
            [OTHER, ANSWER],
            [USER, OTHER, ANSWER, OTHER],
            [USER, OTHER],
        ],
    )
    def test_set_replaces_all_messages(self, make: Any, is_async: bool, messages: Any) -> None:
        memory = Sync(make(), is_async)
        memory.put_messages([USER, ANSWER, OTHER])
        memory.set(messages)
        assert memory.get_all() == messages

    def test_reset_empties_the_memory(self, make: Any, is_async: bool) -> None:
        memory = Sync(make(), is_async)
        memory.reset()
        memory.put(USER)
        memory.reset()
        assert memory.get() == memory.get_all() == []
        memory.put(USER)
        assert memory.get_all() == [USER]


def test_blocks_of_all_kinds_come_back_equal() -> None:
    messages = [
        ChatMessage(role="system", content="Be brief."),
        ChatMessage(
            role="user",
            blocks=[
                TextBlock(text="Look"),
                ImageBlock(image=b"\x89PNG\r\n\x1a\n" * 3, image_mimetype="image/png"),
                DocumentBlock(data=b"%PDF-1.4 x", document_mimetype="application/pdf"),
            ],
        ),
        ChatMessage(
            role="assistant",
            blocks=[
                ThinkingBlock(content="hm", additional_information={"signature": "c2ln"}),
                TextBlock(text="I look."),
                called("c1", path="a"),
            ],
            additional_kwargs={"k": 1},
        ),
        result("c1"),
        ANSWER,
    ]
    memory = memory_of()
    memory.put_messages(messages)
    assert memory.get() == messages
    assert memory.get_all() == messages


def test_messages_are_fresh_objects() -> None:
    memory = memory_of()
    memory.put(USER)
    memory.get()[0].blocks[0].text = "changed"  # type: ignore[union-attr]
    assert said(memory.get()) == [USER.content]


def test_calls_of_openai_come_back_as_calls() -> None:
    function = {"name": "read", "arguments": '{"path": "a"}'}
    reply = ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        }
    )
    message = from_openai_message(reply, ["text"])
    assert message.additional_kwargs["tool_calls"], "LlamaIndex has them twice"
    memory = memory_of()
    memory.put_messages([USER, message, result("c1")])
    kinds = [entry.type for entry in memory._memory.get_entries("s")]
    assert kinds == ["message", "tool_call", "tool_result"]
    [_, again, _] = memory.get()
    assert again.blocks == message.blocks
    assert again.additional_kwargs["tool_calls"] == [
        {"id": "c1", "type": "function", "function": function}
    ]


def test_calls_in_keyword_arguments_alone_are_calls() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    memory = memory_of()
    old = ChatMessage(role="assistant", content=None, additional_kwargs={"tool_calls": [call]})
    memory.put_messages([USER, old, result("c1")])
    assert memory.get() == [USER, old, result("c1")]
    memory.put_messages([USER, old, OTHER])  # its result is missing
    assert said(memory.get())[-2] == "[memman: no result of this call is known]"


def test_ids_that_are_tool_names_stay() -> None:
    step = [ChatMessage(role="assistant", blocks=[called("read", path="a")]), result("read")]
    memory = memory_of()
    memory.put_messages([USER, *step, *step])
    assert memory.get() == [USER, *step, *step]


class Hologram(BaseContentBlock):
    block_type: str = "hologram"
    beam: str


def test_block_of_the_future_is_kept_in_the_log() -> None:
    message = ChatMessage(role="user", content="Look")
    message.blocks.append(Hologram(beam="from the future"))  # type: ignore[arg-type]
    memory = memory_of()
    memory.put(message)
    assert "from the future" in memory._memory.export_session("s").to_json()
    assert memory.get_all()[0].content == ("Look\n[memman: content that this format cannot carry]")


def test_image_whose_file_is_gone_ends_no_run(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n")
    memory = memory_of()
    seen = ChatMessage(role="user", blocks=[TextBlock(text="Look"), ImageBlock(path=path)])
    memory.put(seen)
    assert memory.get() == [seen]
    path.unlink()
    assert memory.get()[0].blocks[0] == TextBlock(text="Look")


def test_legacy_images_are_not_doubled() -> None:
    from llama_index.core.schema import ImageDocument

    image = ImageDocument(image=b"iVBORw0KGgo=")
    message = ChatMessage(role="user", content="Look", additional_kwargs={"images": [image]})
    memory = memory_of()
    memory.put(message)
    assert memory.get()[0].blocks == message.blocks


def test_values_that_are_no_json_are_kept_as_text() -> None:
    memory = memory_of()
    memory.put(ChatMessage(role="user", content="Look", additional_kwargs={"at": object()}))
    assert "object" in memory.get()[0].additional_kwargs["at"]


@pytest.mark.parametrize("odd", ["text", None, {"role": "nobody", "blocks": []}])
def test_what_is_no_message_ends_no_run(odd: Any) -> None:
    memory = memory_of()
    memory.put_messages([USER, odd])
    assert len(memory.get_all()) == len(memory.get()) == 2
    memory.set([*memory.get_all(), ANSWER])
    assert memory.get_all()[0] == USER
    assert memory.get_all()[-1] == ANSWER


# ---------------------------------------------------------------- set


def test_set_retracts_and_never_deletes() -> None:
    memory = memory_of()
    memory.put_messages([USER, ANSWER, OTHER])
    memory.set([USER, OTHER])
    assert memory.get() == [USER, OTHER]
    assert "A test fails." in memory._memory.export_session("s").to_json()
    memory._memory.undo_compression("s", memory._memory.export_session("s").log[-1].id)
    assert memory.get_all() == [USER, ANSWER, OTHER]


def test_set_with_what_is_there_adds_nothing() -> None:
    memory = memory_of()
    memory.put_messages([USER, ANSWER])
    before = memory._memory.export_session("s").log
    memory.set(memory.get_all())
    assert memory._memory.export_session("s").log == before
    memory.set([*memory.get_all(), OTHER])
    assert memory._memory.export_session("s").log[:-1] == before


def test_set_with_a_compressed_context_continues() -> None:
    memory = memory_of(manager(400))
    for number in range(30):
        memory.put_messages([ChatMessage(role="user", content=f"{number} " * 30), ANSWER])
    context = memory.get()
    assert len(context) < 60
    memory.set([*context, OTHER])
    assert len(memory.get_all()) == 61
    assert memory.get()[-1] == OTHER


def test_set_leaves_added_context_alone() -> None:
    memory = memory_of()
    memory._memory.add_context("s", "Never deploy on a Friday.", "rules.md")
    memory.put_messages([USER, ANSWER])
    memory.set([USER])
    assert "Friday" in str(memory.get())
    assert "A test fails." not in str(memory.get())


def test_nothing_put_is_nothing_added() -> None:
    memory = memory_of()
    memory.put_messages([])
    memory.set([])
    assert memory._memory.list_sessions() == []


def test_reset_keeps_the_log() -> None:
    memory = memory_of()
    memory.put(USER)
    memory.reset()
    log = memory._memory.export_session("s").log
    assert isinstance(log[-1], Cleared)
    assert "Why is the build red?" in memory._memory.export_session("s").to_json()


# ---------------------------------------------------------------- runs of an agent


def test_scratchpad_of_a_function_agent_is_not_bounded() -> None:
    largest = {}
    for cls in (FunctionAgent, MemmanFunctionAgent):
        memory = manager()
        fake = FakeModel(memory, steps=40)
        agent = reading_agent(fake, cls, streaming=False)
        played(agent, "one long task", memory=memory_of(memory), max_iterations=100)
        largest[cls] = max(request.tokens for request in fake.requests)
        assert len(fake.requests) == 41
        assert len(memory.get_entries("s")) == 162
    assert largest[FunctionAgent] > 5 * BUDGET
    assert largest[MemmanFunctionAgent] <= BUDGET


def played(agent: Any, *texts: str, **given: Any) -> list[str]:
    """Run turns in one event loop and return the answers."""

    async def run() -> list[str]:
        return [str(await agent.run(text, **given)) for text in texts]

    return asyncio.run(run())


def test_state_of_a_workflow_is_sent_and_not_logged() -> None:
    call = ChatMessage(role="assistant", blocks=[called("c1", path="a")])
    llm = Scripted(call, ANSWER, ANSWER)
    agent = agent_of(llm, read, initial_state={"step": 1}, system_prompt="You review.")
    memory = memory_of()
    played(agent, "hello", memory=memory)
    assert said(memory.get_all())[::3] == ["hello", "A test fails."]
    for prompt, asked, *_ in llm.sent:  # each step of the run
        assert prompt.content == "You review."
        assert str(asked.content).count("{'step': 1}") == 1
        assert "hello" in str(asked.content)
    played(agent_of(llm), "hello", memory=memory)
    assert "step" not in str(said(llm.sent[-1])), "another run has no state"


def test_state_counts_towards_the_budget() -> None:
    fake = FakeModel(memory := manager())
    given = memory_of(memory)
    agent = reading_agent(fake, streaming=False, initial_state={"notes": "word " * 800})
    played(agent, *(f"question {turn}" for turn in range(12)), memory=given)
    assert max(request.tokens for request in fake.requests) <= BUDGET
    assert "word word" in str(fake.requests[-2].messages)
    assert said(given.get_all())[0] == "question 0"


def test_repeated_run_adds_the_question_again() -> None:
    for memory in (memory_of(), own_buffer()):
        agent = agent_of(Scripted(ANSWER, ANSWER))
        played(agent, "hello", "hello", memory=memory)
        assert said(memory.get_all()).count("hello") == 2


def test_failed_run_goes_on_with_its_history() -> None:
    memory = manager()
    fake = FakeModel(memory, fails=(2,))
    agent, given = reading_agent(fake, streaming=False), memory_of(memory)
    with pytest.raises(Exception, match="request 2 failed"):
        played(agent, "hello", memory=given)
    assert len(memory.get_entries("s")) == 5, "the question, two calls, two results"

    async def again() -> str:
        return str(await agent.run(chat_history=await given.aget_all(), memory=given))

    asyncio.run(again())
    assert len(memory.get_entries("s")) == 6
    assert len(fake.requests) == 3


def test_handed_off_run_is_logged_in_order() -> None:
    memory = manager()
    fake = FakeModel(memory)
    handing = Scripted(
        *(
            ChatMessage(
                role="assistant",
                blocks=[called(f"h{n}", "handoff", to_agent="reader", reason="it reads")],
            )
            for n in range(2)
        )
    )
    first = agent_of(handing, name="first", description="first", can_handoff_to=["reader"])
    reader = reading_agent(fake, name="reader", description="reads", streaming=False)
    given = memory_of(memory)
    for turn in range(2):  # each run begins with the root agent
        workflow = AgentWorkflow(agents=[first, reader], root_agent="first")
        played(workflow, f"question {turn}", memory=given)
    roles = roles_of(given)
    handed_off = ["user", "assistant", "tool"]
    assert roles == [
        *handed_off,
        "assistant",
        "tool",
        "tool",
        "assistant",
        *handed_off,
        "assistant",
    ]
    assert not any(request.violations for request in fake.requests)
    assert "handoff" in str(fake.requests[-1].messages)


def test_tool_that_returns_directly_is_logged_once() -> None:
    llm = Scripted(ChatMessage(role="assistant", blocks=[called("c1", path="a")]))
    tool = FunctionTool.from_defaults(read, return_direct=True)
    memory = memory_of()
    played(agent_of(llm, tool), "hello", memory=memory)
    roles = roles_of(memory)
    assert roles == ["user", "assistant", "tool", "assistant"]


def test_run_out_of_iterations_ends_within_the_budget() -> None:
    memory = manager()
    fake = FakeModel(memory, steps=40)
    agent = reading_agent(fake, streaming=False, early_stopping_method="generate")
    played(agent, "go", memory=memory_of(memory), max_iterations=15)
    assert len(fake.requests) == 16
    assert max(request.tokens for request in fake.requests) <= BUDGET


def test_react_agent_has_a_bounded_past() -> None:
    steps = [
        'Thought: I look.\nAction: read\nAction Input: {"path": "a"}\n',
        "Thought: I know.\nAnswer: Yes.",
    ]
    replies = [ChatMessage(role="assistant", content=step) for step in steps * 20]
    llm = Scripted(*replies)
    agent = ReActAgent(llm=llm, tools=[FunctionTool.from_defaults(read)], streaming=False)
    memory = memory_of(manager(1_500))
    answers = played(agent, *(f"question {turn}" for turn in range(20)), memory=memory)
    assert answers == ["Yes."] * 20
    assert len(memory.get_all()) == 40
    assert len(memory.get()) < 40
    assert len(llm.sent[-1]) < 40


def test_other_memory_makes_it_a_function_agent() -> None:
    memory = own_buffer()
    llm = Scripted(ChatMessage(role="assistant", blocks=[called("c1", path="a")]), ANSWER)
    played(agent_of(llm, read), "hello", memory=memory)
    assert roles_of(memory) == ["user", "assistant", "tool", "assistant"]


class Searching(MemmanFunctionAgent):
    """An agent that puts what it found into each request."""

    async def take_step(self, ctx: Any, llm_input: Any, tools: Any, memory: Any) -> Any:
        found = ChatMessage(role="user", content="Found: " + "word " * 100)
        return await super().take_step(ctx, [*llm_input[:-1], found, llm_input[-1]], tools, memory)


def test_changed_request_of_a_subclass_is_fitted() -> None:
    llm = Scripted(*[ANSWER] * 30)
    agent = Searching(llm=llm, tools=[], streaming=False)
    memory = memory_of(manager(600))
    played(agent, *(f"question {turn} " + "x " * 40 for turn in range(30)), memory=memory)
    assert all("Found: word" in str(said(sent)) for sent in llm.sent)
    assert max(int(memory._memory.count_tokens(str(said(sent)))) for sent in llm.sent) < 600
    assert len(memory.get_all()) == 60
    assert "Found" not in str(memory.get_all())


def test_refusal_without_a_limit_gets_a_shorter_request() -> None:
    class Refusing(Scripted):
        async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
            response = await super().achat(messages, **kwargs)
            if len(self.sent) == 9:
                raise ValueError("prompt is too long: context_length_exceeded")
            return response

    llm = Refusing(*[ANSWER] * 10)
    memory = memory_of(manager(100_000))  # a manager without a model
    played(agent_of(llm), *(f"{turn} " + "word " * 200 for turn in range(9)), memory=memory)
    assert len(llm.sent[9]) < len(llm.sent[8])
    assert len(memory.get_all()) == 18


def test_prompt_over_the_budget_is_a_typed_error() -> None:
    memory = memory_of(manager(300))
    agent = agent_of(Scripted(ANSWER), system_prompt="word " * 400)
    with pytest.raises(BudgetExceeded):
        played(agent, "hello", memory=memory)
    played(agent_of(Scripted(ANSWER)), "hello", memory=memory)


def test_other_errors_are_raised_once() -> None:
    memory = manager()
    fake = FakeModel(memory, fails=(1,))
    with pytest.raises(Exception, match="request 1 failed"):
        played(reading_agent(fake, streaming=False), "hello", memory=memory_of(memory))
    assert len(fake.requests) == 1


# ---------------------------------------------------------------- contexts that are saved


@pytest.mark.parametrize("serializer", [JsonSerializer(), JsonPickleSerializer()])
def test_saved_context_goes_on_in_this_process(serializer: Any) -> None:
    agent = agent_of(Scripted(ANSWER, ANSWER))
    given = manager()

    async def run() -> None:
        context = Context(agent)
        await agent.run("hello", ctx=context, memory=memory_of(given))
        saved = json.loads(json.dumps(context.to_dict(serializer=serializer)))
        restored = Context.from_dict(agent, saved, serializer=serializer)
        await agent.run("again", ctx=restored)

    asyncio.run(run())
    assert [entry.text for entry in given.get_entries("s")][::2] == ["hello", "again"]


def test_saved_context_goes_on_in_another_process(tmp_path: Path) -> None:
    store = str(tmp_path / "chat.db")
    agent = agent_of(Scripted(ANSWER, ANSWER))

    async def begin() -> str:
        context = Context(agent)
        memory = MemmanMemory.from_defaults(session_id="s", store=store, token_limit=900)
        await agent.run("hello", ctx=context, memory=memory)
        memory._memory.close()
        return json.dumps(context.to_dict())

    async def go_on(saved: str) -> MemmanMemory:
        context = Context.from_dict(agent, json.loads(saved))
        await agent.run("again", ctx=context)
        memory: MemmanMemory = await context.store.get("memory")
        return memory

    saved = asyncio.run(begin())
    _managers.clear()  # as in another process
    memory = asyncio.run(go_on(saved))
    assert said(memory.get_all()) == ["hello", "A test fails.", "again", "A test fails."]
    assert memory._memory.build_context("s").budget == 900


def test_memory_of_a_dead_process_is_an_error() -> None:
    data = memory_of().to_dict()
    gc.collect()
    with pytest.raises(InvalidInput, match="in another process, or is gone"):
        MemmanMemory.from_dict(data)


def test_one_manager_is_opened_for_a_store(tmp_path: Path) -> None:
    store = str(tmp_path / "chat.db")
    first = MemmanMemory.from_defaults(session_id="a", store=store)
    assert MemmanMemory.from_defaults(session_id="b", store=store)._memory is first._memory
    given = manager(store=store)
    named = MemmanMemory.from_defaults(given, "c", store=store)
    assert MemmanMemory.from_dict(named.to_dict())._memory is given


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))],  # noqa: S301 - its own
)
def test_copies_share_the_session(copied: Callable[[Any], Any]) -> None:
    memory = memory_of()
    memory.put(USER)
    other = copied(memory)
    assert other == memory
    assert other.get_all() == [USER]


def test_fields_are_plain_data() -> None:
    data = memory_of(token_limit=900).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["session_id"] == "s"
    assert set(data) == {"session_id", "store", "token_limit", "model", "class_name"}


def test_run_that_waits_for_a_human_is_resumed() -> None:
    async def ask(ctx: Context) -> str:
        """Ask the human."""
        reply = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="Deploy?")
        )
        return f"The human says {reply.response}."

    llm = Scripted(ChatMessage(role="assistant", blocks=[called("c1", "ask")]), ANSWER)
    agent = agent_of(llm, ask)
    memory = memory_of()

    async def run() -> str:
        handler = agent.run("Shall we deploy?", memory=memory)
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                break
        saved = handler.ctx.to_dict()
        await handler.cancel_run()
        handler = agent.run(ctx=Context.from_dict(agent, saved))
        handler.ctx.send_event(HumanResponseEvent(response="no"))
        return str(await handler)

    assert asyncio.run(run()) == "A test fails."
    roles = roles_of(memory)
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert "The human says no." in str(llm.sent[-1])


# ---------------------------------------------------------------- chat engines


class Parrot(MockLLM):
    """LlamaIndex's mock of a chat model, which keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(is_chat_model=True, max_tokens=3)
        self._sent: list[list[ChatMessage]] = []

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        self._sent.append(list(messages))
        return ChatResponse(message=ChatMessage(role="assistant", content="Yes."))


def test_prefix_of_a_chat_engine_counts_towards_the_budget() -> None:
    given, llm = manager(1_000), Parrot()
    engine = SimpleChatEngine.from_defaults(
        llm=llm, memory=memory_of(given), system_prompt="word " * 500
    )
    for turn in range(20):
        engine.chat(f"question {turn} " + "and so on " * 20)
    tokens = [
        given.count_tokens([m.model_dump(mode="json") for m in sent]).tokens for sent in llm._sent
    ]
    assert max(tokens) <= 1_000
    assert len(engine.chat_history) == 40
    assert len(llm._sent[-1]) < 20


def test_streamed_chat_is_logged_whole() -> None:
    memory = memory_of()
    engine = SimpleChatEngine.from_defaults(llm=MockLLM(max_tokens=3), memory=memory)
    for _ in range(3):
        streamed = "".join(engine.stream_chat("hello").response_gen)
        assert streamed.strip() == "text text text"

    async def stream() -> str:
        response = await engine.astream_chat("hello")
        return "".join([piece async for piece in response.async_response_gen()])

    assert asyncio.run(stream()).strip() == "text text text"
    assert [m.role.value for m in engine.chat_history] == ["user", "assistant"] * 4


def test_chat_history_of_a_call_continues_the_session() -> None:
    memory = memory_of()
    engine = SimpleChatEngine.from_defaults(llm=Parrot(), memory=memory)
    engine.chat("hello")
    engine.chat("again", chat_history=engine.chat_history)
    assert said(memory.get_all()) == ["hello", "Yes.", "again", "Yes."]
    engine.reset()
    assert engine.chat_history == []


def test_chat_engine_can_make_the_memory() -> None:
    engine = SimpleChatEngine.from_defaults(
        llm=MockLLM(), memory_cls=MemmanMemory, chat_history=[USER, ANSWER]
    )
    assert engine.chat_history == [USER, ANSWER]
    assert isinstance(engine._memory, MemmanMemory)
    assert engine._memory.token_limit == MockLLM().metadata.context_window - 256


# ---------------------------------------------------------------- settings, usage, caches


def test_limit_and_model_are_those_of_the_llm() -> None:
    llm = OpenAI(model="gpt-4o", api_key="none")
    memory = MemmanMemory.from_defaults(llm=llm)
    assert memory.model == "gpt-4o"
    assert memory.token_limit == int(llm.metadata.context_window * 0.75)
    assert MemmanMemory.from_defaults(llm=MockLLM()).model is None


def test_session_is_new_without_an_id() -> None:
    assert MemmanMemory.from_defaults().session_id != MemmanMemory.from_defaults().session_id
    assert memory_of().session_id == "s"


def test_async_manager_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be a MemoryManager, not AsyncMemoryManager"):
        MemmanMemory.from_defaults(AsyncMemoryManager())  # type: ignore[arg-type]


def output_of(raw: Any, **message: Any) -> Any:
    from llama_index.core.agent.workflow import AgentOutput

    response = ChatMessage(role="assistant", content="Yes.", additional_kwargs=message)
    return AgentOutput(response=response, raw=raw, current_agent_name="a")


@pytest.mark.parametrize(
    "output",
    [
        output_of({"usage": {"prompt_tokens": 90, "completion_tokens": 5}}),
        output_of({"response": {"usage": {"input_tokens": 90, "output_tokens": 5}}}),
        output_of({"usage_metadata": {"prompt_token_count": 90, "candidates_token_count": 5}}),
        output_of({"metadata": {"usage": {"inputTokens": 90, "outputTokens": 5}}}),
        output_of({"type": "stop"}, usage={"input_tokens": 90, "output_tokens": 5}),
    ],
)
def test_usage_of_each_provider_is_recorded(output: Any) -> None:
    memory = memory_of()
    memory.put(USER)
    _record_usage(memory, output)
    [*_, report] = memory._memory.export_session("s").log
    assert isinstance(report, UsageReported)
    assert (report.input_tokens, report.output_tokens) == (90, 5)


@pytest.mark.parametrize(
    "raw", [None, "text", {}, {"usage": None}, {"usage": {"odd": 1}}, {"usage": 3.5}, object()]
)
def test_odd_usage_ends_no_run(raw: Any) -> None:
    memory = memory_of()
    memory.put(USER)
    _record_usage(memory, output_of(raw))


def test_cache_points_reach_anthropic() -> None:
    llm = Scripted(*[ANSWER] * 3)
    agent = agent_of(llm, cache="auto", system_prompt="You review.")
    memory = memory_of(manager(model="claude-sonnet-5-5"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Scripted, "__module__", "llama_index.llms.anthropic.base")
        played(agent, "one", "two", "three", memory=memory)
    blocks = [blocks_to_anthropic_blocks(message.blocks, {}) for message in llm.sent[-1]]
    marks = [each["cache_control"] for own in blocks for each in own if "cache_control" in each]
    assert marks == [{"type": "ephemeral", "ttl": "5m"}] * 2


def test_cache_points_are_in_requests_alone() -> None:
    llm = Scripted(*[ANSWER] * 2)
    agent = agent_of(llm, cache="auto", initial_state={"step": 1})
    memory = memory_of()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Scripted, "__module__", "llama_index.llms.anthropic.base")
        played(agent, "one", "two", memory=memory)
    assert [block.block_type for block in llm.sent[-1][-1].blocks] == ["text", "cache"]
    assert "step" in str(llm.sent[-1][-1].content)
    assert "cache" not in str(memory.get())


def test_cache_settings_of_ones_own_are_left_alone() -> None:
    claude = {"model": "claude-sonnet-4-5", "api_key": "none"}
    assert _takes_cache_points(Anthropic(**claude))
    assert not _takes_cache_points(Anthropic(**claude, cache_idx=-1))
    assert not _takes_cache_points(OpenAI(model="gpt-4o", api_key="none"))


def test_recall_needs_a_memory_of_memman() -> None:
    llm = Scripted(
        ChatMessage(role="assistant", blocks=[called("c1", "recall", query="a")]), ANSWER
    )
    agent = agent_of(llm, recall=True)
    [tool] = agent.tools or []
    assert tool.metadata.get_parameters_dict()["required"] == ["query"]  # type: ignore[union-attr]
    played(agent, "hello", memory=own_buffer())
    assert llm.sent[-1][-1].content == "There is nothing to recall."


# ---------------------------------------------------------------- the package


def test_package_does_not_import_llama_index() -> None:
    code = "import memman_llama_index, sys; sys.exit('llama_index' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_package_has_no_context() -> None:
    assert not hasattr(memman_llama_index, "Context"), "LlamaIndex's has this name"
    with pytest.raises(AttributeError, match="no attribute 'MemmanReActAgent'"):
        _ = memman_llama_index.MemmanReActAgent


def test_manager_detects_messages_of_llama_index() -> None:
    memory = manager()
    memory.add_messages("s", [USER, ANSWER])
    assert [entry.role for entry in memory.get_entries("s")] == ["user", "assistant"]
