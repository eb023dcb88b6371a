"""What `MemmanEngine` does in agents of Hermes, beyond the laws of every adapter."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memman import AsyncMemoryManager, InvalidInput, MemoryConfig, MemoryManager
from memman.formats.rules import check
from memman.records import UsageReported
from memman.testing import FakeModel

from .hermes import PROMPT, ModelServer, agent_of, plugins, use

from hermes_state import SessionDB  # isort: skip
from memman_hermes import MemmanEngine  # isort: skip

BUDGET = 4_000
AMPLE = 1_000_000


def memory_of(budget: int = BUDGET, store: Path | None = None) -> MemoryManager:
    config = MemoryConfig(max_tokens=budget, max_entries=None)
    return MemoryManager(store, model=FakeModel.name, config=config)


class Talk:
    """A conversation of an agent whose application keeps its messages."""

    def __init__(self, memory: MemoryManager, session_id: str = "s", **options: Any) -> None:
        use(memory)
        self.model = FakeModel(memory)
        self.server = ModelServer(self.model)
        self.agent = agent_of(self.server, session_id, **options)
        self.messages: list[dict[str, Any]] = []

    def ask(self, text: str) -> dict[str, Any]:
        result = self.agent.run_conversation(
            text, system_message=PROMPT, conversation_history=self.messages
        )
        self.messages = result["messages"]
        return result

    def play(self, turns: int) -> None:
        for turn in range(turns):
            self.ask(f"question {turn} of the user")


def said_by_user(memory: MemoryManager, session_id: str = "s") -> list[str]:
    return [entry.text for entry in memory.get_entries(session_id) if entry.role == "user"]


# ---------------------------------------------------------------- messages


def test_messages_that_stay_are_the_agents_own() -> None:
    talk = Talk(memory_of())
    talk.ask("question 0")
    talk.messages[-1]["reasoning_details"] = [{"type": "reasoning.encrypted", "data": "x="}]
    before = len(talk.messages)
    talk.agent.context_compressor.memory.add_user_message("s", "from elsewhere")
    talk.ask("question 1")
    details = [each.get("reasoning_details") for each in talk.messages[:before]]
    assert [{"type": "reasoning.encrypted", "data": "x="}] in details


def test_outline_is_in_the_agents_messages_and_is_no_entry() -> None:
    memory = memory_of()
    talk = Talk(memory)
    talk.play(14)
    assert "[memman outline, from earlier entries" in str(talk.messages)
    assert said_by_user(memory) == [f"question {turn} of the user" for turn in range(14)]


def test_adjacent_messages_of_the_user_are_one() -> None:
    talk = Talk(memory_of())
    talk.play(14)
    roles = [message["role"] for message in talk.messages]
    assert ("user", "user") not in pairwise(roles)


def test_entries_of_others_are_in_the_next_request() -> None:
    memory = memory_of(AMPLE)
    memory.add_user_message("s", "from a plain loop")
    memory.add_assistant_message("s", "heard")
    talk = Talk(memory)
    talk.ask("question 0")
    assert "from a plain loop" in str(talk.model.requests[0].messages)
    memory.add_context("s", "the deadline is Friday", "calendar")
    talk.ask("question 1")
    assert "the deadline is Friday" in str(talk.model.requests[-1].messages)
    assert check(talk.model.requests[-1].messages, "openai-chat") == []


def test_session_moves_here_and_back_with_a_call_in_flight() -> None:
    memory = memory_of(AMPLE)
    memory.add_user_message("s", "from a plain loop")
    memory.add_tool_call("s", "read", {"path": "a.py"}, call_id="c1")
    talk = Talk(memory)
    talk.play(2)
    memory.add_user_message("s", "back in the loop")
    context = memory.build_context("s", format="openai-chat")
    assert not any(request.violations for request in talk.model.requests)
    assert check(context.messages, "openai-chat") == []
    answer = talk.messages[-1]["content"]
    assert [text in str(context.messages) for text in ("from a plain loop", answer)] == [True, True]
    talk.ask("and in Hermes again")
    assert "back in the loop" in str(talk.model.requests[-1].messages)
    assert said_by_user(memory)[-2:] == ["back in the loop", "and in Hermes again"]


def test_edited_message_takes_the_place_of_the_first_version() -> None:
    memory = memory_of(AMPLE)
    talk = Talk(memory)
    talk.play(3)
    [edited] = [each for each in talk.messages if each["content"] == "question 1 of the user"]
    edited["content"] = "another question"
    del talk.messages[1:3]  # a call and a result, which Hermes may drop
    talk.ask("question 3")
    sent = talk.model.requests[-1].messages
    log = memory.get_messages("s", format="openai-chat")
    texts = ["question 0 of the user", "another question", "question 2 of the user", "question 3"]
    assert said_by_user(memory) == texts
    assert [each["content"] for each in sent if each["role"] == "user"] == texts
    assert len(log) == len(talk.messages)


def test_undone_compression_is_in_the_next_request() -> None:
    memory = memory_of()
    talk = Talk(memory)
    talk.play(8)
    assert "question 1 of" not in str([each for each in talk.messages if each["role"] == "tool"])
    memory.undo_compression("s")
    shown = memory.get_active_entries("s")
    talk.agent.context_compressor._max_tokens = AMPLE
    talk.ask("question 8")
    assert len(talk.model.requests[-2].messages) > len(shown) // 2
    assert len(said_by_user(memory)) == 9


def test_agent_that_resumes_another_session_takes_it() -> None:
    memory = memory_of(AMPLE)
    talk = Talk(memory, "one")
    talk.ask("in the first session")
    talk.agent.session_id, talk.messages = "two", []
    talk.agent.reset_session_state()
    talk.ask("in the second session")
    assert said_by_user(memory, "one") == ["in the first session"]
    assert said_by_user(memory, "two") == ["in the second session"]


def test_equal_messages_are_logged_each() -> None:
    memory = memory_of(AMPLE)
    talk = Talk(memory)
    for _ in range(3):
        talk.ask("continue")
    assert said_by_user(memory) == ["continue"] * 3


# ---------------------------------------------------------------- a new process, an old list


def said(*texts: str) -> list[dict[str, Any]]:
    """Return messages of the user and the model in turn."""
    roles = ["user", "assistant"] * len(texts)
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


def ask_in_new_process(memory: MemoryManager, messages: list[dict[str, Any]]) -> str:
    """Return the texts that an agent sends which has just begun."""
    engine = MemmanEngine(memory)
    engine.on_session_start("s")
    engine.log(messages)
    sent = engine.compress(messages)
    return " ".join(each["content"] or "" for each in sent).replace("\n\n", " ")


def texts(memory: MemoryManager) -> str:
    return " ".join(entry.text for entry in memory.get_entries("s"))


@pytest.mark.parametrize("gone", [[0], [1], [0, 1], [2, 3], [3]])
@pytest.mark.parametrize("way", ["delete", "retract"])
def test_what_was_taken_out_stays_out(tmp_path: Path, way: str, gone: list[int]) -> None:
    memory = memory_of(AMPLE, tmp_path / "memman.db")
    old = said("q1", "a1", "q2", "a2")
    ask_in_new_process(memory, old)
    ids = [memory.get_entries("s")[number].id for number in gone]
    if way == "delete":
        memory.delete_entries("s", ids)
    else:
        memory.retract("s", ids)
    memory.close()
    memory = memory_of(AMPLE, tmp_path / "memman.db")
    left = [each["content"] for number, each in enumerate(old) if number not in gone]
    expected = " ".join([*left, "q3"])
    for _ in range(2):
        assert ask_in_new_process(memory, [*old, *said("q3")]) == expected
    edited = [*said("first", "then"), *old, *said("q3")]
    assert ask_in_new_process(memory, edited) == " ".join(["first then", *left, "q3"])
    assert texts(memory) == " ".join(["first then", *left, "q3"])


@pytest.mark.parametrize("gone", [[0], [1], [0, 3], [1, 2, 3], [2, 5]])
def test_deleted_message_stays_out_among_equal_ones(gone: list[int]) -> None:
    memory = memory_of(AMPLE)
    old = said("continue", "done 1", "continue", "done 2", "continue", "done 3")
    ask_in_new_process(memory, old)
    memory.delete_entries("s", [memory.get_entries("s")[number].id for number in gone])
    left = [each["content"] for number, each in enumerate(old) if number not in gone]
    assert ask_in_new_process(memory, [*old, *said("continue")]) == " ".join([*left, "continue"])


def test_cleared_messages_stay_out_and_may_be_said_again() -> None:
    memory = memory_of(AMPLE)
    old = said("hello", "good day")
    ask_in_new_process(memory, old)
    memory.clear_session("s")
    assert ask_in_new_process(memory, [*old, *said("hello")]) == "hello"
    memory.clear_session("s")
    assert ask_in_new_process(memory, said("hello")) == "hello"
    ask_in_new_process(memory, old)
    assert ask_in_new_process(memory, [*old, *said("more")]) == "hello good day more"
    assert texts(memory) == "hello good day more"


def test_turn_that_the_agent_took_back_may_return() -> None:
    memory = memory_of(AMPLE)
    old = said("q1", "a1", "q2", "a2")
    ask_in_new_process(memory, old)
    ask_in_new_process(memory, old[:2])
    assert texts(memory) == "q1 a1"
    assert ask_in_new_process(memory, [*old, *said("q3")]) == "q1 a1 q2 a2 q3"


def test_compressed_messages_are_not_logged_again() -> None:
    memory = memory_of()
    talk = Talk(memory)
    talk.play(14)
    log = memory.get_entries("s")
    history = memory.get_messages("s", format="openai-chat")
    assert len(memory.get_active_entries("s")) < len(log)
    ask_in_new_process(memory, [*history, *said("continue")])
    assert memory.get_entries("s")[:-1] == log


def test_conversation_begun_elsewhere_is_not_logged_again() -> None:
    memory = memory_of(AMPLE)
    memory.add_system_message("s", "You review code.")
    memory.add_user_message("s", "from a plain loop")
    memory.add_tool_call("s", "read", {"path": "a.py"}, call_id="c1")
    memory.add_tool_result("s", "c1", "total = 8")
    memory.add_assistant_message("s", "It is sound.")
    history = memory.get_messages("s", format="openai-chat")[1:]
    log = len(memory.get_entries("s"))
    for question in ("and b.py?", "and c.py?"):
        history += said(question)
        ask_in_new_process(memory, [{**each, "content": each["content"] or ""} for each in history])
        history += said("", "It is, too.")[1:]
    assert said_by_user(memory) == ["from a plain loop", "and b.py?", "and c.py?"]
    assert len(memory.get_entries("s")) == log + 3


# ---------------------------------------------------------------- Hermes' own store


@pytest.mark.parametrize("in_place", [True, False])
def test_agent_restored_from_hermes_database_goes_on(tmp_path: Path, in_place: bool) -> None:
    memory = memory_of(store=tmp_path / "memman.db")
    database = SessionDB(tmp_path / "state.db")
    talk = Talk(memory, session_db=database)
    talk.agent.compression_in_place = in_place
    talk.play(14)
    assert (talk.agent.session_id == "s") is in_place
    memory.close()

    memory = memory_of(store=tmp_path / "memman.db")
    again = Talk(memory, talk.agent.session_id, session_db=database)
    again.messages = database.get_messages_as_conversation(talk.agent.session_id)
    again.ask("the last question")
    asked = [f"question {turn} of the user" for turn in range(14)]
    assert said_by_user(memory) == [*asked, "the last question"]
    assert [info.session_id for info in memory.list_sessions()] == ["s"]
    assert max(request.tokens for request in again.model.requests) <= BUDGET


def test_compression_by_hand_takes_a_focus() -> None:
    talk = Talk(memory_of(AMPLE))
    talk.play(4)
    messages, _ = talk.agent._compress_context(
        talk.messages, PROMPT, approx_tokens=100, focus_topic="rates", force=True
    )
    assert len(messages) < len(talk.messages)
    talk.messages = messages
    talk.ask("question 4")
    assert len(said_by_user(talk.agent.context_compressor.memory)) == 5


# ---------------------------------------------------------------- agents and threads


def test_agents_share_a_memory_and_no_conversation() -> None:
    memory = memory_of()
    one, two = Talk(memory, "one"), Talk(memory, "two")
    one.ask("the first")
    two.ask("the second")
    assert one.agent.context_compressor is not two.agent.context_compressor
    assert said_by_user(memory, "one") == ["the first"]
    assert said_by_user(memory, "two") == ["the second"]


def test_review_in_another_thread_is_not_logged() -> None:
    memory = memory_of()
    talk = Talk(memory)
    talk.ask("question 0")
    before = memory.get_entries("s")
    history = [*talk.messages, {"role": "user", "content": "Review this conversation."}]
    hook = {"session_id": "s", "conversation_history": history}
    thread = threading.Thread(target=plugins.invoke_hook, args=("pre_api_request",), kwargs=hook)
    thread.start()
    thread.join()
    assert memory.get_entries("s") == before


def test_usage_is_recorded_and_shown() -> None:
    memory = memory_of()
    talk = Talk(memory)
    talk.play(2)
    log = memory.export_session("s").log
    reported = [record.input_tokens for record in log if isinstance(record, UsageReported)]
    assert reported == [request.billed for request in talk.model.requests]
    assert talk.agent.context_compressor.get_status()["last_prompt_tokens"] == reported[-1]


def test_usage_belongs_to_the_model_that_was_asked() -> None:
    memory = memory_of(AMPLE)
    talk = Talk(memory)
    names = [FakeModel.name, "house-small", FakeModel.name]
    for name in names:
        talk.agent.switch_model(name, "custom", "unused", talk.agent.base_url)
        talk.ask("Is it sound?")
    log = memory.export_session("s").log
    reported = [record.model for record in log if isinstance(record, UsageReported)]
    assert reported == [name for name in names for _ in range(2)]


def test_odd_usage_ends_no_run(caplog: pytest.LogCaptureFixture) -> None:
    engine = MemmanEngine(memory_of())
    engine.on_session_start("s")
    engine.update_from_response({})
    engine.update_from_response({"prompt_tokens": 5, "cache_read_tokens": 9})
    assert "usage" in caplog.text


def test_context_that_cannot_fit_is_left_to_the_model(caplog: pytest.LogCaptureFixture) -> None:
    engine = MemmanEngine(memory_of(), max_tokens=300)
    engine.on_session_start("s")
    engine.update_model("m", 64_000)
    engine.memory.add_system_message("s", "MUST stay. " * 400, pinned=True)
    messages = [{"role": "user", "content": "hello"}]
    with caplog.at_level(logging.WARNING):
        assert engine.compress(messages) is messages
    assert "session s" in caplog.text


@pytest.mark.parametrize(
    "body",
    [
        {"system": [{"type": "text", "text": "long " * 900}], "messages": []},
        {"instructions": "long " * 900, "input": []},
        {"messages": [{"role": "system", "content": [{"type": "text", "text": "long " * 900}]}]},
        {"messages": [{"role": "system", "content": "long " * 900}]},
    ],
)
def test_prompt_counts_in_every_api(body: dict[str, Any]) -> None:
    engine = MemmanEngine(memory_of())
    engine.on_session_start("s")
    engine.log([{"role": "user", "content": "hello"}])
    engine.should_compress(1_000)
    engine.price(body)
    assert not engine.should_compress(2_500)
    assert engine.should_compress(4_000)  # without the prompt, half as many by memman


def test_async_manager_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be a MemoryManager"):
        MemmanEngine(AsyncMemoryManager())  # type: ignore[arg-type]


def test_without_recall_there_is_no_tool() -> None:
    engine = MemmanEngine(memory_of(), recall=False)
    assert engine.get_tool_schemas() == []
    assert [tool["name"] for tool in MemmanEngine(memory_of()).get_tool_schemas()] == ["recall"]


# ---------------------------------------------------------------- the plugin


def test_hermes_finds_the_plugin_by_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "plugins: {enabled: [memman]}\ncontext: {engine: memman}\nmemman: {max_tokens: 9000}\n"
        "model: {context_length: 64000}\n"
    )
    code = (
        "from run_agent import AIAgent\n"
        "agent = AIAgent(base_url='http://127.0.0.1:9/v1', api_key='x', provider='custom', model='m',"
        " quiet_mode=True, skip_context_files=True, skip_memory=True,"
        " enabled_toolsets=['context_engine'])\n"
        "print(agent.context_compressor.name, agent.valid_tool_names)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HERMES_HOME": str(tmp_path), "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split("\n")[-2] == "memman {'recall'}", done.stderr[-2_000:]
    assert (tmp_path / "memman.db").exists()
