"""LangChain's agents with memman: what its users do, and what its middleware may do to a request."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    hook_config,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, interrupt
from memman_langchain import (
    MemmanMiddleware,
    MemmanSummarization,
    chat_model_summarizer,
)
from memman_langchain.middleware import _formats
from pydantic import BaseModel
from scripted_agents import (
    BUDGET,
    Scripted,
    ask,
    logged,
    make_memory,
    price,
    read_file,
    thread,
)

from memman import AsyncMemoryManager, InvalidInput, MemoryManager

T = thread("t")


def make_agent(memory: MemoryManager, model: Scripted, *more: Any, **options: Any) -> Any:
    """Return an agent with memman as its last middleware."""
    settings: dict[str, Any] = {
        "tools": [read_file],
        "system_prompt": "You review code.",
        "checkpointer": InMemorySaver(),
    }
    trim = options.pop("trim_state", False)
    middleware = [*more, MemmanMiddleware(memory, trim_state=trim)]
    return create_agent(model, middleware=middleware, **(settings | options))


def play(agent: Any, turns: int, config: Any = T) -> list[BaseMessage]:
    """Run turns and return the state's messages."""
    for turn in range(turns):
        done = agent.invoke(ask(f"Look at part {turn}"), config)
    return list(done["messages"])


def session_of(agent: Any, config: Any = T) -> str:
    """Return the session in force."""
    return str(agent.get_state(config).values["memman"]["session"])


# ---------------------------------------------------------------- wrong use


def test_memory_must_be_a_sync_manager() -> None:
    with pytest.raises(InvalidInput, match="must be a MemoryManager, not AsyncMemoryManager"):
        MemmanMiddleware(AsyncMemoryManager())  # type: ignore[arg-type]  # a mistake to be named


def test_missing_checkpointer_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "memman"):
        play(make_agent(make_memory(), Scripted()), 3)
        assert not caplog.messages
        play(make_agent(make_memory(), Scripted(), checkpointer=None), 3)
    assert ["no message of session t," in line for line in caplog.messages] == [True, True]


# ---------------------------------------------------------------- streams and summaries


def summarized_agent() -> tuple[Any, Scripted]:
    summarizer = Scripted(calls=0, reply=lambda _: AIMessage("SUMMARY of the first part."))
    memory = make_memory(summarizer=chat_model_summarizer(summarizer))
    return make_agent(memory, Scripted(budget=BUDGET)), summarizer


def test_summary_tokens_stay_out_of_streamed_messages() -> None:
    agent, summarizer = summarized_agent()
    text = ""
    for turn in range(20):
        for chunk, _ in agent.stream(ask(f"part {turn}"), T, stream_mode="messages"):
            text += chunk.text if isinstance(chunk, AIMessageChunk) else ""
    assert summarizer.seen
    assert "Done with step" in text
    assert "SUMMARY" not in text


async def streamed(agent: Any) -> str:
    text = ""
    for turn in range(20):
        async for chunk, _ in agent.astream(ask(f"part {turn}"), T, stream_mode="messages"):
            text += chunk.text if isinstance(chunk, AIMessageChunk) else ""
    return text


def test_summary_tokens_stay_out_of_async_streams() -> None:
    agent, summarizer = summarized_agent()
    text = asyncio.run(streamed(agent))
    assert summarizer.seen
    assert "SUMMARY" not in text


def test_usage_of_summaries_is_recorded() -> None:
    summarizer = Scripted(calls=0, reply=lambda _: AIMessage("SUMMARY of the first part."))
    memory = make_memory(summarizer=chat_model_summarizer(summarizer))
    play(make_agent(memory, Scripted(budget=BUDGET)), 20)
    cost = memory.get_stats("t").cost
    assert cost.calls == len(summarizer.seen) > 0
    assert cost.output_tokens == 10 * cost.calls


# ---------------------------------------------------------------- what other middleware does


class OnRequest(AgentMiddleware[Any, Any, Any]):
    """Changes the messages of a request, and not the state."""

    def __init__(self, change: Callable[[list[Any]], list[Any]]) -> None:
        super().__init__()
        self._change = change

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(messages=self._change(list(request.messages))))


def test_message_for_one_request_is_sent_and_not_logged() -> None:
    memory, model = make_memory(), Scripted(budget=BUDGET)
    reminder = OnRequest(lambda messages: [*messages, HumanMessage("Be brief.")])
    messages = play(make_agent(memory, model, reminder), 12)
    assert all(request[-1].text == "Be brief." for request in model.seen)
    assert logged(memory, "t") == messages
    assert "Be brief." not in memory.export_session("t").to_json()


def test_message_before_all_others_stays_there() -> None:
    memory, model = make_memory(), Scripted(budget=BUDGET)
    preface = OnRequest(lambda messages: [HumanMessage("I am Anna."), *messages])
    messages = play(make_agent(memory, model, preface), 12)
    assert all(request[1].text == "I am Anna." for request in model.seen)
    assert all(len([m for m in request if "Anna" in m.text]) == 1 for request in model.seen)
    assert logged(memory, "t") == messages


def test_edit_for_one_request_is_sent_and_not_logged() -> None:
    def shout(messages: list[Any]) -> list[Any]:
        edited = {"content": messages[0].content.upper()}
        return [messages[0].model_copy(update=edited), *messages[1:]]

    memory, model = make_memory(max_tokens=100_000), Scripted()
    messages = play(make_agent(memory, model, OnRequest(shout)), 2)
    assert all(request[1].content == "LOOK AT PART 0" for request in model.seen)
    assert logged(memory, "t") == messages
    assert messages[0].content == "Look at part 0"


def test_state_objects_are_sent_where_nothing_was_altered() -> None:
    memory, model = make_memory(max_tokens=100_000), Scripted()

    class Artful(AgentMiddleware[Any, Any, Any]):
        def before_agent(self, state: Any, runtime: Any) -> Any:
            image = {"type": "image", "url": "https://example.org/a.png"}
            return {"messages": [HumanMessage([image], additional_kwargs={"mine": 1})]}

    play(make_agent(memory, model, Artful()), 1)
    assert model.seen[0][2].additional_kwargs == {"mine": 1}


def test_failed_attempts_are_not_logged() -> None:
    memory, model = make_memory(), Scripted(fail_every=3, budget=BUDGET)
    retry = ModelRetryMiddleware(max_retries=3, initial_delay=0, jitter=False)
    messages = play(make_agent(memory, model, retry), 15)
    assert logged(memory, "t") == messages


def test_failed_run_continues_from_its_checkpoint() -> None:
    memory, failures = make_memory(), 0
    agent = make_agent(memory, Scripted(fail_every=4, budget=BUDGET))
    for turn in range(15):
        given: Any = ask(f"Look at part {turn}")
        while True:
            try:
                done = agent.invoke(given, T)
                break
            except ConnectionError:
                given, failures = None, failures + 1
    assert failures > 5
    assert logged(memory, "t") == done["messages"]
    assert memory.list_sessions(prefix="t")[0].session_id == "t"


def test_second_memman_in_one_agent_is_refused() -> None:
    with pytest.raises(AssertionError, match="duplicate middleware"):
        make_agent(make_memory(), Scripted(), MemmanMiddleware(make_memory()))


def test_summarization_of_langchain_beside_memmans_is_refused() -> None:
    memory, model = make_memory(), Scripted()
    both = [SummarizationMiddleware(model), MemmanSummarization(memory)]
    with pytest.raises(AssertionError, match="duplicate middleware"):
        create_agent(model, middleware=both)


def test_agent_that_jumps_to_its_end_is_logged() -> None:
    class Closed(AgentMiddleware[Any, Any, Any]):
        @hook_config(can_jump_to=["end"])
        def before_agent(self, state: Any, runtime: Any) -> Any:
            return {"messages": [AIMessage("We are closed.")], "jump_to": "end"}

    memory = make_memory()
    messages = play(make_agent(memory, Scripted(), Closed()), 2)
    assert logged(memory, "t") == messages


def test_empty_input_reaches_the_model_unchanged() -> None:
    memory = make_memory()
    model = Scripted(reply=lambda _: AIMessage("What is it?"))
    agent = make_agent(memory, model)
    done = agent.invoke({"messages": []}, T)
    assert [message.text for message in done["messages"]] == ["What is it?"]
    assert logged(memory, "t") == done["messages"]


# ---------------------------------------------------------------- branches


def test_forks_have_sessions_of_their_own() -> None:
    memory = make_memory()
    agent = make_agent(memory, Scripted(budget=BUDGET))
    first = play(agent, 12)
    ends = [state for state in agent.get_state_history(T) if not state.next]
    other = agent.invoke(ask("another way"), ends[6].config)["messages"]
    branch = session_of(agent)
    assert branch.startswith("t~")
    assert logged(memory, branch) == other
    assert logged(memory, "t") == first
    other = agent.invoke(ask("on, in the fork"), T)["messages"]
    assert session_of(agent) == branch
    assert logged(memory, branch) == other
    first = agent.invoke(ask("on, in the first"), ends[0].config)["messages"]
    assert session_of(agent) == "t"
    assert logged(memory, "t") == first
    assert len(memory.list_sessions(prefix="t")) == 2


def test_fork_keeps_the_compressions_of_its_past() -> None:
    summarizer = Scripted(calls=0, reply=lambda _: AIMessage("SUMMARY"))
    memory = make_memory(summarizer=chat_model_summarizer(summarizer))
    agent = make_agent(memory, Scripted(budget=BUDGET))
    play(agent, 20)
    asked = len(summarizer.seen)
    ends = [state for state in agent.get_state_history(T) if not state.next]
    agent.invoke(ask("another way"), ends[1].config)
    assert memory.get_summaries(session_of(agent))
    assert len(summarizer.seen) <= asked + 1


def test_each_replay_of_a_checkpoint_is_a_branch() -> None:
    memory = make_memory(max_tokens=100_000)
    agent = make_agent(memory, Scripted())
    play(agent, 4)
    middle = [state for state in agent.get_state_history(T) if state.next == ("model",)][2]
    sessions = {session_of(agent)}
    for _ in range(3):
        done = agent.invoke(None, middle.config)
        sessions.add(session_of(agent))
        assert logged(memory, session_of(agent)) == done["messages"]
    assert len(sessions) == 4


def test_edited_message_begins_a_branch() -> None:
    memory = make_memory()
    agent = make_agent(memory, Scripted(budget=BUDGET))
    messages = play(agent, 6)
    question = next(m for m in reversed(messages) if m.type == "human")
    agent.update_state(T, {"messages": [HumanMessage("edited", id=question.id)]})
    done = agent.invoke(ask("next"), T)["messages"]
    assert session_of(agent) != "t"
    assert logged(memory, session_of(agent)) == done
    assert logged(memory, "t") == messages


def test_removed_messages_leave_the_context_not_the_log() -> None:
    memory, model = make_memory(max_tokens=100_000), Scripted()
    agent = make_agent(memory, model)
    messages = play(agent, 3)
    agent.update_state(T, {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})
    done = agent.invoke(ask("afresh"), T)["messages"]
    assert [m.text for m in model.seen[-1][1:]] == [m.text for m in done[:-1]]
    assert logged(memory, session_of(agent)) == done
    assert logged(memory, "t") == messages


@pytest.mark.parametrize("method", ["delete_entries", "retract"])
def test_hidden_message_stays_hidden_after_a_restart(method: str) -> None:
    memory, model = make_memory(max_tokens=100_000), Scripted()
    saver = InMemorySaver()
    messages = play(make_agent(memory, model, checkpointer=saver), 3)
    getattr(memory, method)("t", [str(messages[3].id)])
    agent = make_agent(memory, model, checkpointer=saver)
    play(agent, 1)
    assert session_of(agent) == "t"
    first_line = messages[3].text.splitlines()[0]
    assert first_line not in str(model.seen[-1])
    ends = [state for state in agent.get_state_history(T) if not state.next]
    agent.invoke(ask("another way"), ends[1].config)
    assert session_of(agent) != "t"
    assert first_line not in str(model.seen[-1])
    assert "# src/mod_1_0.py" in str(model.seen[-1])


# ---------------------------------------------------------------- interruptions and people


@tool
def ask_person(path: str) -> str:
    """Ask a person about a file."""
    if path.endswith("_1.py"):
        return f"They said {interrupt('Is it fine?')}"
    return "plain"


def test_interrupt_in_one_of_two_calls_is_resumed() -> None:
    memory = make_memory()
    agent = make_agent(memory, Scripted(tool="ask_person", budget=BUDGET), tools=[ask_person])
    for turn in range(8):
        done = agent.invoke(ask(f"go {turn}"), T)
        assert "__interrupt__" in done
        done = agent.invoke(Command(resume="yes"), T)
    assert logged(memory, "t") == done["messages"]
    assert session_of(agent) == "t"


def test_question_in_place_of_an_answer_gets_a_valid_context() -> None:
    memory = make_memory()
    model = Scripted(tool="ask_person", budget=BUDGET)
    agent = make_agent(memory, model, tools=[ask_person])
    agent.invoke(ask("go"), T)
    before = len(model.seen)
    agent.invoke(ask("Never mind the question."), T)
    assert len(model.seen) == before + 1  # the model checks that each call has a result
    assert session_of(agent) == "t"


def test_arguments_edited_by_a_person_are_logged() -> None:
    memory = make_memory()
    review = HumanInTheLoopMiddleware(interrupt_on={"read_file": True})
    agent = make_agent(memory, Scripted(calls=1), review)
    agent.invoke(ask("go"), T)
    action = {"name": "read_file", "args": {"path": "EDITED.py"}}
    decision = {"type": "edit", "edited_action": action}
    done = agent.invoke(Command(resume={"decisions": [decision]}), T)
    assert logged(memory, "t") == done["messages"]
    assert any("EDITED.py" in entry.text for entry in memory.get_entries("t"))
    assert session_of(agent) == "t"


# ---------------------------------------------------------------- agents inside agents


def test_sub_agents_have_sessions_by_namespace() -> None:
    memory = make_memory()
    middleware = MemmanMiddleware(memory)
    inner_model = Scripted(budget=BUDGET, id_prefix="inner")
    inner = create_agent(
        inner_model, tools=[read_file], middleware=[middleware], system_prompt="Sub."
    )
    found: list[list[BaseMessage]] = []

    @tool
    def delegate(path: str) -> str:
        """Delegate a file."""
        done = inner.invoke(ask(f"sub task {path}"))["messages"]
        found.append(done)
        return str(done[-1].text)

    model = Scripted(tool="delegate", budget=BUDGET)
    outer = create_agent(
        model, tools=[delegate], middleware=[middleware], checkpointer=InMemorySaver()
    )
    messages = play(outer, 6)
    assert logged(memory, "t") == messages
    sessions = [info.session_id for info in memory.list_sessions(prefix="t/")]
    assert len(sessions) == len(found) == 12
    logs = [logged(memory, session) for session in sessions]
    assert sorted(logs, key=str) == sorted(found, key=str)


def test_agent_as_a_node_continues_its_own_session() -> None:
    memory = make_memory()
    inner = create_agent(
        Scripted(budget=BUDGET), tools=[read_file], middleware=[MemmanMiddleware(memory)]
    )
    graph = StateGraph(MessagesState)
    graph.add_node("reviewer", inner)
    graph.set_entry_point("reviewer")
    agent = graph.compile(checkpointer=InMemorySaver())
    messages = play(agent, 10)
    assert logged(memory, "t/reviewer") == messages
    assert [info.session_id for info in memory.list_sessions(prefix="t")] == ["t/reviewer"]


# ---------------------------------------------------------------- limits


class Limited(Scripted):
    """Refuses more tokens than its provider takes."""

    limit: int = 1_500
    names_limit: bool = True

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        tokens = price(messages, self.tools)
        if tokens > self.limit:
            most = f"maximum context length is {self.limit} tokens. However, your messages"
            named = f"This model's {most} resulted in {tokens} tokens."
            raise ContextOverflowError(named if self.names_limit else "Prompt is too long.")
        return super()._answer(messages)


@pytest.mark.parametrize("names_limit", [True, False], ids=["named", "unnamed"])
def test_overflow_of_the_provider_is_survived(names_limit: bool) -> None:
    memory = make_memory()
    messages = play(make_agent(memory, Limited(names_limit=names_limit)), 20)
    assert logged(memory, "t") == messages


def test_overflow_of_the_provider_is_survived_async() -> None:
    memory = make_memory()
    agent = make_agent(memory, Limited())

    async def run() -> Any:
        for turn in range(12):
            done = await agent.ainvoke(ask(f"part {turn}"), T)
        return done["messages"]

    messages = asyncio.run(run())
    assert logged(memory, "t") == messages


def test_usage_of_any_kind_does_not_end_a_run(caplog: pytest.LogCaptureFixture) -> None:
    usage: Any = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}
    usage["input_token_details"] = {"cache_read": -70}
    model = FakeMessagesListChatModel(responses=[AIMessage("done", usage_metadata=usage)])
    agent = create_agent(model, middleware=[MemmanMiddleware(make_memory(), session_id="s")])
    assert agent.invoke(ask("go"))["messages"][-1].text == "done"
    assert "cache_read=-70" in caplog.text


def test_context_that_cannot_fit_is_langchains_overflow() -> None:
    agent = make_agent(make_memory(max_tokens=300), Scripted(), system_prompt="word " * 500)
    with pytest.raises(ContextOverflowError):
        agent.invoke(ask("go"), T)


class Verdict(BaseModel):
    """The verdict about a file, with everything that a reader needs to know of it."""

    reason: str
    path: str


def test_tools_of_a_structured_answer_are_priced() -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage:
        args = {"reason": "ok " * 100, "path": "a.py"}
        return AIMessage("", tool_calls=[{"name": "Verdict", "args": args, "id": uuid.uuid4().hex}])

    memory, model = make_memory(max_tokens=800), Scripted(budget=800, reply=reply)
    agent = make_agent(memory, model, response_format=ToolStrategy(Verdict))
    messages = play(agent, 12)
    assert "Verdict" in str(model.tools)
    assert logged(memory, "t") == messages


def test_schema_of_any_strategy_is_priced() -> None:
    [schema] = _formats(ProviderStrategy(Verdict))
    assert schema["name"] == "Verdict"
    assert _formats(Verdict) == _formats(ToolStrategy(Verdict)) != []


def test_repeated_call_ids_are_made_unique() -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("done")
        call = {"name": "read_file", "args": {"path": "a.py"}, "id": "call_0"}
        return AIMessage("", tool_calls=[call])

    memory, model = make_memory(), Scripted(budget=BUDGET, reply=reply)
    messages = play(make_agent(memory, model), 12)  # the model refuses repeated ids
    assert logged(memory, "t") == messages


# ---------------------------------------------------------------- without a thread


def test_run_without_a_thread_stores_nothing() -> None:
    memory, model = make_memory(), Scripted(budget=BUDGET)
    agent = make_agent(memory, model, checkpointer=None)
    messages: list[BaseMessage] = []
    for turn in range(12):
        given = {"messages": [*messages, HumanMessage(f"part {turn}")]}
        messages = agent.invoke(given)["messages"]
    assert len(messages) == 60
    assert memory.list_sessions() == []


def test_named_session_needs_no_thread() -> None:
    memory, model = make_memory(), Scripted(budget=BUDGET)
    agent = create_agent(
        model, tools=[read_file], middleware=[MemmanMiddleware(memory, session_id="mine")]
    )
    messages: list[BaseMessage] = []
    for turn in range(12):
        given = {"messages": [*messages, HumanMessage(f"part {turn}")]}
        messages = agent.invoke(given)["messages"]
    assert logged(memory, "mine") == messages


def test_session_may_follow_from_the_runtime() -> None:
    memory = make_memory()
    agent = create_agent(
        Scripted(calls=0),
        middleware=[MemmanMiddleware(memory, session_id=lambda runtime: runtime.context["user"])],
        checkpointer=InMemorySaver(),
        context_schema=dict,
    )
    agent.invoke(ask("hello"), T, context={"user": "anna"})
    assert [info.session_id for info in memory.list_sessions()] == ["anna"]


def test_session_of_another_tenant_is_not_shown() -> None:
    memory, model = make_memory(), Scripted(calls=0)
    make_agent(memory, Scripted(calls=0)).invoke(ask("The password is tulip."), thread("anna"))
    agent = create_agent(
        model,
        middleware=[MemmanMiddleware(memory, session_id="anna")],
        checkpointer=InMemorySaver(),
    )
    agent.invoke(ask("What is the password?"), T)
    assert "tulip" not in str(model.seen)
    assert len(logged(memory, "anna")) == 2


# ---------------------------------------------------------------- trimming the state


def test_trimmed_state_stays_small_and_the_log_whole() -> None:
    memory, model = make_memory(), Scripted(budget=BUDGET)
    agent = make_agent(memory, model, trim_state=True)
    seen: list[BaseMessage] = []
    for turn in range(60):
        done = agent.invoke(ask(f"Look at part {turn}"), T)
        seen += [message for message in done["messages"] if message not in seen]
        assert len(done["messages"]) < 40
    # A message may leave the state in the turn that it was added in.
    log = logged(memory, "t")
    assert len(log) == 300
    assert [message for message in log if message in seen] == seen
    assert [info.session_id for info in memory.list_sessions()] == ["t"]


def test_trimmed_state_of_one_long_run_stays_small() -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage:
        if len(sizes) == 60:
            return AIMessage("done")
        call = {"name": "read_file", "args": {"path": f"{len(sizes)}.py"}, "id": f"c{len(sizes)}"}
        sizes.append(len(messages))
        return AIMessage("", tool_calls=[call])

    sizes: list[int] = []
    memory, model = make_memory(), Scripted(budget=BUDGET, reply=reply)
    agent = make_agent(memory, model, trim_state=True)
    done = agent.invoke(ask("Read all files."), {**T, "recursion_limit": 300})
    assert len(done["messages"]) < 40
    assert len(logged(memory, "t")) == 122


def test_trimming_streams_no_old_messages() -> None:
    agent = make_agent(make_memory(), Scripted(), trim_state=True)
    for turn in range(20):
        stream = agent.stream(ask(f"part {turn}"), T, stream_mode="messages")
        text = "".join(chunk.text for chunk, _ in stream)
        assert text.count("I read 2 files.") == 1


def test_trimmed_state_can_be_forked() -> None:
    memory = make_memory()
    agent = make_agent(memory, Scripted(budget=BUDGET), trim_state=True)
    play(agent, 30)
    ends = [state for state in agent.get_state_history(T) if not state.next]
    agent.invoke(ask("another way"), ends[5].config)
    branch = logged(memory, session_of(agent))
    assert len(branch) == 25 * 5 + 5
    assert branch[: 25 * 5] == logged(memory, "t")[: 25 * 5]
    assert branch[-5].text == "another way"


# ---------------------------------------------------------------- other processes


PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from langgraph.checkpoint.sqlite import SqliteSaver
from scripted_agents import BUDGET, Scripted, ask, logged, make_memory, read_file, thread
from langchain.agents import create_agent
from memman_langchain import MemmanMiddleware
folder, part, trim = sys.argv[2], int(sys.argv[3]), sys.argv[4] == "True"
open_saver = SqliteSaver.from_conn_string(f"{folder}/graph.db")
with make_memory(f"{folder}/memman.db") as memory, open_saver as saver:
    agent = create_agent(Scripted(budget=BUDGET, id_prefix=f"call{part}"), tools=[read_file],
                         middleware=[MemmanMiddleware(memory, trim_state=trim)], checkpointer=saver)
    before = [(e.id, e.seq) for e in memory.get_entries("t")] if part else []
    for turn in range(4):
        done = agent.invoke(ask(f"part {part}.{turn}"), thread("t"))["messages"]
    after = [(e.id, e.seq) for e in memory.get_entries("t")]
    assert after[:len(before)] == before, "the log was rewritten"
    log = logged(memory, "t")
    assert log[-len(done):] == done
    assert len(log) == (part + 1) * 20, len(log)
    assert [info.session_id for info in memory.list_sessions()] == ["t"]
    print("ok", len(done))
"""


@pytest.mark.parametrize("trim", [False, True], ids=["whole", "trimmed"])
def test_processes_continue_one_thread(tmp_path: Path, trim: bool) -> None:
    here = str(Path(__file__).parent)
    for part in range(3):
        command = [sys.executable, "-c", PROCESS, here, str(tmp_path), str(part), str(trim)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout.startswith("ok"), done.stderr


def test_two_programs_take_turns_in_one_thread(tmp_path: Path) -> None:
    saver, path = InMemorySaver(), str(tmp_path / "chat.db")
    with make_memory(path) as one, make_memory(path) as two:
        agents = [
            make_agent(memory, Scripted(id_prefix=name), checkpointer=saver)
            for memory, name in ((one, "one"), (two, "two"))
        ]
        for turn in range(6):
            messages = play(agents[turn % 2], 1)
        assert logged(one, "t") == messages
        ends = [state for state in agents[0].get_state_history(T) if not state.next]
        play(agents[1], 1)
        agents[0].invoke(ask("another way"), ends[0].config)
        assert session_of(agents[0]) != "t"


def test_twenty_threads_at_once_stay_apart() -> None:
    memory = make_memory()
    agent = make_agent(memory, Scripted(budget=BUDGET))

    def one(number: int) -> None:
        messages = play(agent, 5, thread(f"t{number}"))
        assert logged(memory, f"t{number}") == messages

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(20)))


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", ["x" * 300, "a\nb\x00", "a~b", "é" * 200, "\ud83d"])
def test_thread_ids_of_any_kind_are_taken(name: str) -> None:
    memory = make_memory()
    agent = make_agent(memory, Scripted(budget=BUDGET))
    messages = play(agent, 6, thread(name))
    session = session_of(agent, thread(name))
    assert logged(memory, session) == messages


def test_thread_id_may_be_a_number() -> None:
    memory = make_memory()
    play(make_agent(memory, Scripted()), 1, {"configurable": {"thread_id": 7}})
    assert len(logged(memory, "7")) == 5


def test_session_stays_out_of_the_output() -> None:
    done = make_agent(make_memory(), Scripted()).invoke(ask("go"), T)
    assert set(done) == {"messages"}


def test_message_ids_of_any_kind_are_taken() -> None:
    memory = make_memory(max_tokens=100_000)
    model = Scripted()
    agent = make_agent(memory, model)
    for name in ("y" * 300, "line\nbreak", "\ud83d", "#3"):
        agent.invoke({"messages": [HumanMessage("hello", id=name)]}, T)
    state = agent.get_state(T).values["messages"]
    assert len(logged(memory, session_of(agent))) == len(state) == 20
    assert session_of(agent) == "t"


def test_artifact_that_is_no_json_is_not_sent_or_priced() -> None:
    def reads(path: str) -> tuple[str, Any]:
        """Read a file."""
        return "short", {"document": "word " * 5_000, "seen": {1, 2}, "at": datetime.now(UTC)}

    odd = StructuredTool.from_function(
        reads, name="read_file", response_format="content_and_artifact"
    )
    memory = make_memory()
    agent = make_agent(memory, Scripted(budget=BUDGET), tools=[odd])
    messages = play(agent, 3)
    assert [m.content for m in logged(memory, "t")] == [m.content for m in messages]
    assert memory.get_stats("t").active_tokens < 500


def test_invalid_tool_calls_are_answered_and_logged() -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage:
        if "Look at part 1" in messages[-1].text:
            bad = {
                "name": "read_file",
                "args": "{",
                "id": f"bad{len(messages)}",
                "error": "no JSON",
            }
            return AIMessage("Hm", invalid_tool_calls=[bad])
        return AIMessage("fine")

    memory, model = make_memory(), Scripted(budget=BUDGET, reply=reply)
    agent = make_agent(memory, model)
    messages = play(agent, 4)
    assert logged(memory, session_of(agent)) == messages


def test_users_own_entries_do_not_begin_a_branch() -> None:
    memory, model = make_memory(max_tokens=100_000), Scripted()
    agent = make_agent(memory, model)
    play(agent, 2)
    memory.add_context("t", "The style guide.", "guide.md")
    play(agent, 2)
    assert session_of(agent) == "t"
    assert "The style guide." in str(model.seen[-1])


# ---------------------------------------------------------------- recall


def recalling(query: Any, **options: Any) -> tuple[Any, MemoryManager]:
    """Return an agent that calls `recall` once for each question, and its memory."""

    def reply(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("I see.")
        call = {"name": "recall", "args": {"query": query}, "id": uuid.uuid4().hex}
        return AIMessage("", tool_calls=[call])

    memory = make_memory()
    middleware = [MemmanMiddleware(memory, recall=True, **options)]
    model = Scripted(reply=reply)
    return create_agent(model, middleware=middleware, checkpointer=InMemorySaver()), memory


def last_result(done: Any) -> str:
    """Return the newest tool result of a state."""
    return str([each for each in done["messages"] if isinstance(each, ToolMessage)][-1].content)


def test_wrong_recall_is_answered_with_a_text() -> None:
    agent, memory = recalling(7)
    assert last_result(agent.invoke(ask("What?"), T)) == "[memman: query must be a text, not 7]"
    assert len(memory.get_entries("t")) == 4


@pytest.mark.parametrize("asynchronous", [False, True])
def test_recall_without_a_thread_names_the_reason(asynchronous: bool) -> None:
    agent, _ = recalling("code")
    agent.checkpointer = None
    done = asyncio.run(agent.ainvoke(ask("x"))) if asynchronous else agent.invoke(ask("x"))
    assert "this run has no thread id" in last_result(done)


def test_recall_reads_the_branch_in_force() -> None:
    agent, _ = recalling("code")
    agent.invoke(ask("The code is 1."), T)
    first = agent.get_state(T).config
    agent.invoke(ask("The code is 22."), T)
    done = agent.invoke(ask("The code is 333."), first)
    assert session_of(agent) != "t"
    assert "333." in last_result(done)
    assert "22." not in last_result(done)


def test_recall_reads_the_session_of_the_function() -> None:
    agent, memory = recalling("code", session_id=lambda runtime: f"{runtime.context}-7")
    done = agent.invoke(ask("The code is 1."), T, context="customer")
    assert "The code is 1." in last_result(done)
    assert [info.session_id for info in memory.list_sessions()] == ["customer-7"]


def test_model_cannot_choose_the_session_of_a_recall() -> None:
    agent, memory = recalling("code")
    memory.add_user_message("other", "The code is 1234.")
    tool = agent.nodes["tools"].bound.tools_by_name["recall"]
    assert set(tool.tool_call_schema["properties"]) == {"query", "tool", "page"}
    assert "1234" not in last_result(agent.invoke(ask("The code?"), T))
