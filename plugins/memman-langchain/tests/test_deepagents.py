"""memman in deepagents: in place of its summarization, and its log as files."""

from __future__ import annotations

import re
from typing import Any

import pytest
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from memman_langchain import MemmanSummarization
from memman_langchain.deepagents import MemmanBackend
from scripted_agents import Scripted, ask, logged, make_memory, read_file, thread

from memman import MemoryManager

BUDGET = 14_000  # deepagents' own tools take most of it
T = thread("d")


@tool
def load(path: str) -> str:
    """Load a file."""
    return str(read_file.invoke({"path": path}))


def make_agent(memory: MemoryManager, model: Scripted, **options: Any) -> Any:
    """Return a deep agent with memman, which has the log at /history/."""
    backend = CompositeBackend(default=StateBackend(), routes={"/history/": MemmanBackend(memory)})
    settings: dict[str, Any] = {"tools": [load], "checkpointer": InMemorySaver()}
    return create_deep_agent(
        model,
        middleware=[MemmanSummarization(memory)],
        backend=backend,
        **(settings | options),
    )


def play(agent: Any, turns: int) -> list[BaseMessage]:
    """Run turns and return the state's messages."""
    for turn in range(turns):
        done = agent.invoke({"messages": [HumanMessage(f"part {turn}")]}, T)
    return list(done["messages"])


def reader(*calls: tuple[str, dict[str, Any]]) -> Scripted:
    """Return a model that calls tools once, then answers."""

    def reply(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("I have read it.")
        asked = [
            {"name": name, "args": args, "id": f"r{n}"} for n, (name, args) in enumerate(calls)
        ]
        return AIMessage("", tool_calls=asked)

    return Scripted(reply=reply)


def test_memman_takes_the_place_of_the_summarization() -> None:
    memory = make_memory(max_tokens=BUDGET)
    agent = make_agent(memory, Scripted())
    nodes = [node for node in agent.get_graph().nodes if "Summarization" in node]
    assert nodes == ["SummarizationMiddleware.before_model", "SummarizationMiddleware.after_agent"]


def test_deep_agent_stays_within_its_budget() -> None:
    memory, model = make_memory(max_tokens=BUDGET), Scripted(tool="load", budget=BUDGET)
    messages = play(make_agent(memory, model), 60)
    assert logged(memory, "d") == messages
    assert memory.get_stats("d").compressed_entries


@pytest.mark.parametrize("trim", [False, True], ids=["whole", "trimmed"])
def test_messages_without_ids_are_logged_once(trim: bool) -> None:
    memory = make_memory(max_tokens=BUDGET)
    middleware = MemmanSummarization(memory, trim_state=trim)
    agent = create_deep_agent(
        Scripted(tool="load", budget=BUDGET),
        tools=[load],
        middleware=[middleware],
        checkpointer=InMemorySaver(),
    )
    for turn in range(40):
        done = agent.invoke(ask(f"part {turn}"), T)  # this text has no id in deepagents' state
    assert [info.session_id for info in memory.list_sessions()] == ["d"]
    log = logged(memory, "d")
    assert len(log) == 200
    assert [m.text for m in log[-len(done["messages"]) :]] == [m.text for m in done["messages"]]
    assert (len(done["messages"]) < 150) == trim


def test_agent_reads_a_cleared_result_with_its_own_tools() -> None:
    memory, model = make_memory(max_tokens=BUDGET), Scripted(tool="load", budget=BUDGET)
    agent = make_agent(memory, model)
    play(agent, 40)
    stub = next(
        message.text
        for message in model.seen[-1]
        if isinstance(message, ToolMessage) and "memman" in message.text
    )
    found = re.search(r"#(\d+)", stub)
    assert found is not None
    model = reader(
        ("read_file", {"file_path": f"/history/{found[1]}.txt"}),
        ("grep", {"pattern": "fn_3(x)", "path": "/history/", "output_mode": "content"}),
        ("ls", {"path": "/history/"}),
        ("glob", {"pattern": "*.txt", "path": "/history/"}),
        ("read_file", {"file_path": "/history/99999.txt"}),
    )
    agent = make_agent(memory, model, checkpointer=agent.checkpointer)
    *_, read, grep, ls, glob, missing, _ = agent.invoke(ask("Read it again."), T)["messages"]
    assert "def fn_3(x): return x + 3" in read.text
    assert "def fn_3(x)" in grep.text
    assert f"/history/{found[1]}.txt" in ls.text
    assert f"/history/{found[1]}.txt" in glob.text
    assert "not found" in missing.text


def test_files_are_those_of_the_branch() -> None:
    memory = make_memory(max_tokens=BUDGET)
    agent = make_agent(memory, Scripted(tool="load"))
    play(agent, 2)
    first = [state for state in agent.get_state_history(T) if not state.next][1]
    model = reader(("grep", {"pattern": "other way", "path": "/history/"}))
    agent = make_agent(memory, model, checkpointer=agent.checkpointer)
    *_, found, _ = agent.invoke(ask("the other way"), first.config)["messages"]
    assert "/history/" in found.text
    assert agent.get_state(T).values["memman"]["session"] != "d"


def test_writing_to_the_log_is_refused_and_the_run_goes_on() -> None:
    memory = make_memory(max_tokens=BUDGET)
    edit = {"file_path": "/history/2.txt", "old_string": "part 0", "new_string": "other"}
    calls = [("write_file", {"file_path": "/history/9.txt", "content": "x"}), ("edit_file", edit)]
    messages = play(make_agent(memory, reader(*calls)), 1)
    refusals = [message.text for message in messages if isinstance(message, ToolMessage)]
    assert ["cannot be changed" in refusal for refusal in refusals] == [True, True], refusals
    backend = MemmanBackend(memory, "d")
    file_data = backend.read("/2.txt").file_data
    assert file_data is not None
    assert file_data["content"] == "part 0"


def test_files_of_a_run_without_a_thread_are_none() -> None:
    calls = [("ls", {"path": "/history"}), ("read_file", {"file_path": "/history/2.txt"})]
    agent = make_agent(make_memory(max_tokens=BUDGET), reader(*calls), checkpointer=None)
    *_, listed, read, _ = agent.invoke({"messages": [HumanMessage("go")]})["messages"]
    assert ".txt" not in listed.text
    assert "not found" in read.text


def test_files_are_those_of_a_named_session_without_a_thread() -> None:
    memory, model = make_memory(max_tokens=BUDGET), reader(("ls", {"path": "/history"}))
    backend = CompositeBackend(default=StateBackend(), routes={"/history/": MemmanBackend(memory)})
    named = MemmanSummarization(memory, session_id="mine")
    agent = create_deep_agent(model, middleware=[named], backend=backend)
    *_, listed, _ = agent.invoke({"messages": [HumanMessage("go")]})["messages"]
    assert "/history/2.txt" in listed.text


def test_files_of_an_unknown_session_are_none() -> None:
    backend = MemmanBackend(make_memory(), lambda: "nowhere")
    assert backend.ls("/").entries == []
    assert backend.read("/1.txt").error == "File '/1.txt' not found"
    assert backend.grep("x").matches == []


def test_parallel_sub_agents_have_sessions_of_their_own() -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage:
        if any("sub job" in m.text for m in messages if isinstance(m, HumanMessage)):
            return AIMessage("sub done")
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("all done")
        jobs = [
            {"description": f"sub job {n}", "subagent_type": "general-purpose"} for n in range(2)
        ]
        calls = [
            {"name": "task", "args": job, "id": f"{len(messages)}.{n}"}
            for n, job in enumerate(jobs)
        ]
        return AIMessage("", tool_calls=calls)

    memory = make_memory(max_tokens=BUDGET)
    agent = make_agent(memory, Scripted(reply=reply, budget=BUDGET))
    messages = play(agent, 2)
    assert logged(memory, "d") == messages
    sessions = [info.session_id for info in memory.list_sessions(prefix="d/tools")]
    assert len(sessions) == 4
    for session in sessions:
        assert [message.text for message in logged(memory, session)][1:] == ["sub done"]
