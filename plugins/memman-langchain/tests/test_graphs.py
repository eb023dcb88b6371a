"""memman in graphs of one's own and in LangGraph's prebuilt agent, and the helpers for LangChain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, trim_messages
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from memman_langchain import MessageLog, chat_model_summarizer, pre_model_hook, token_counter
from scripted_agents import BUDGET, Scripted, ask, logged, make_memory, read_file, thread

from memman import MemoryManager
from memman.testing import SummarizerConformance

T = thread("t")
pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")


def make_react_agent(memory: MemoryManager, model: Scripted, **options: Any) -> Any:
    from langgraph.prebuilt import create_react_agent

    return create_react_agent(
        model, [read_file], pre_model_hook=pre_model_hook(memory, tools=[read_file]), **options
    )


def test_pre_model_hook_keeps_requests_within_the_budget() -> None:
    memory, model = make_memory(), Scripted(budget=BUDGET)
    agent = make_react_agent(memory, model, checkpointer=InMemorySaver())
    for turn in range(60):
        messages = agent.invoke(ask(f"part {turn}"), T)["messages"]
    assert len(messages) == 300
    assert logged(memory, "t") == messages[:-1]  # the last answer comes with the next run


def test_pre_model_hook_serves_async_runs() -> None:
    memory = make_memory()
    agent = make_react_agent(memory, Scripted(budget=BUDGET), checkpointer=InMemorySaver())

    async def run() -> Any:
        for turn in range(12):
            done = await agent.ainvoke(ask(f"part {turn}"), T)
        return done["messages"]

    assert asyncio.run(run())[:-1] == logged(memory, "t")


def test_pre_model_hook_without_a_thread_stores_nothing() -> None:
    memory = make_memory()
    agent = make_react_agent(memory, Scripted(budget=BUDGET))
    messages: list[BaseMessage] = []
    for turn in range(12):
        given = {"messages": [*messages, HumanMessage(f"part {turn}")]}
        messages = agent.invoke(given)["messages"]
    assert memory.list_sessions() == []


def test_pre_model_hook_finds_a_branch_by_its_messages() -> None:
    memory = make_memory(max_tokens=100_000)
    model = Scripted()
    agent = make_react_agent(memory, model, checkpointer=InMemorySaver())
    for turn in range(4):
        agent.invoke(ask(f"part {turn}"), T)
    ends = [state for state in agent.get_state_history(T) if not state.next]
    agent.invoke(ask("another way"), ends[2].config)
    agent.invoke(ask("further"), T)
    said = [message.text for message in model.seen[-1]]
    assert said == [message.text for message in agent.get_state(T).values["messages"][:-1]]
    assert "part 3" not in said


def test_message_log_serves_a_graph_of_ones_own() -> None:
    memory, model = make_memory(), Scripted(calls=0, budget=BUDGET)
    log = MessageLog(memory)

    def call_model(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        session = log.follow(config["configurable"]["thread_id"], state["messages"])
        return {"messages": [model.invoke(log.context(session, state["messages"]))]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    graph.set_entry_point("model")
    agent = graph.compile(checkpointer=InMemorySaver())
    for turn in range(60):
        messages = agent.invoke(ask(f"part {turn}: " + "word " * 100), T)["messages"]
    assert logged(memory, "t") == messages[:-1]
    assert len(model.seen[-1]) < 90


def test_message_log_takes_messages_without_ids() -> None:
    memory = make_memory()
    log = MessageLog(memory)
    messages: list[BaseMessage] = []
    for turn in range(5):
        messages += [HumanMessage(f"q{turn}"), AIMessage(f"a{turn}")]
        assert log.follow("s", messages) == "s"
    assert MessageLog(memory).follow("s", messages) == "s"
    assert [message.text for message in logged(memory, "s")] == [m.text for m in messages]
    assert log.context("s", messages) == messages


@pytest.mark.parametrize("lost", ["\ufffd", "?"], ids=["memman", "checkpointer"])
def test_lone_surrogate_is_no_edit(lost: str) -> None:
    memory = make_memory()
    messages: list[BaseMessage] = [HumanMessage("cut \ud83d off", id="m1")]
    assert MessageLog(memory).follow("s", messages) == "s"
    messages = [HumanMessage(f"cut {lost} off", id="m1"), AIMessage("Yes.", id="m2")]
    assert MessageLog(memory).follow("s", messages) == "s"
    assert [message.text for message in logged(memory, "s")] == ["cut \ufffd off", "Yes."]


@pytest.mark.parametrize(
    "value", ["cut \ud83d off", (1, 2), {1: 2}], ids=lambda value: type(value).__name__
)
def test_altered_value_is_no_edit_after_a_restart(value: Any) -> None:
    memory = make_memory()
    messages: list[BaseMessage] = [
        HumanMessage([{"type": "text", "text": "look", "value": value}], id="m1"),
        AIMessage("", id="m2", tool_calls=[{"name": "f", "args": {"a": value}, "id": None}]),
    ]
    assert MessageLog(memory).follow("s", messages) == "s"
    assert MessageLog(memory).follow("s", messages) == "s"
    edited = {"name": "f", "args": {"a": "edited"}, "id": None}
    messages[1] = AIMessage("", id="m2", tool_calls=[edited])
    assert MessageLog(memory).follow("s", messages) != "s"


def test_token_counter_serves_trim_messages() -> None:
    memory = make_memory()
    messages = [HumanMessage("word " * 100), AIMessage("word " * 100), HumanMessage("word " * 100)]
    count = token_counter(memory)
    assert count(messages) == memory.count_tokens(messages).tokens > 200
    assert count([]) == 0
    kept = trim_messages(
        messages, max_tokens=count(messages) // 2, token_counter=count, start_on="human"
    )
    assert kept == messages[2:]


class TestChatModelSummarizer(SummarizerConformance):
    def make_summarizer(self) -> Any:
        replies: list[BaseMessage] = [AIMessage("They talked about ports.")]
        return chat_model_summarizer(FakeMessagesListChatModel(responses=replies))


@pytest.mark.parametrize(
    ("metadata", "cut", "refused"),
    [
        ({"finish_reason": "length"}, True, False),
        ({"stop_reason": "max_tokens"}, True, False),
        ({"finish_reason": "content_filter"}, False, True),
        ({"finish_reason": "stop"}, False, False),
    ],
)
def test_summary_that_is_no_good_is_marked(
    metadata: dict[str, str], cut: bool, refused: bool
) -> None:
    reply = AIMessage("They", response_metadata={**metadata, "model_name": "m"})
    made = chat_model_summarizer(FakeMessagesListChatModel(responses=[reply]))
    memory = make_memory(max_tokens=400, summarizer=made)
    del memory
    from memman import SummaryRequest

    request = SummaryRequest(prompt="p", entries=(), previous_summary=None, target_tokens=9)
    answer: Any = made.summarize(request)
    assert (answer.truncated, answer.refused, answer.model) == (cut, refused, "m")
