"""What is added once more: an equal second result of a call, and a response that was stored before."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from memman import MemoryManager

CALL = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {}}],
}


def answered(*texts: str) -> dict[str, Any]:
    """Return a message of results of the one call."""
    results = [{"type": "tool_result", "tool_use_id": "t", "content": text} for text in texts]
    return {"role": "user", "content": results}


def reply(name: str, text: str) -> dict[str, Any]:
    """Return a response of Anthropic's."""
    return {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": text}],
        "usage": {"input_tokens": 100, "output_tokens": 5},
    }


@pytest.fixture
def memory() -> MemoryManager:
    """A session with a call."""
    memory = MemoryManager(format="anthropic")
    memory.add_messages("s", [{"role": "user", "content": "Read it."}, CALL], "anthropic")
    return memory


@pytest.mark.parametrize("messages", [
    [answered("done", "done")], [answered("done"), answered("done")],
    [answered("done"), {"role": "user", "content": "And?"}, answered("done")],
    [{"role": "user", "content": "And?"}, answered("done"), answered("done")],
])  # fmt: skip
@pytest.mark.parametrize("one_by_one", [False, True])
def test_equal_second_result_is_not_stored(memory, messages, one_by_one):
    for batch in [[each] for each in messages] if one_by_one else [messages]:
        memory.add_messages("s", batch, "anthropic")
    results = [entry for entry in memory.get_entries("s") if entry.type == "tool_result"]
    assert [entry.text for entry in results] == ["done"]


def test_repeated_result_is_returned_as_it_is_stored(memory):
    first = memory.add_tool_result("s", "read", "done", call_id="t")
    assert memory.add_tool_result("s", "read", "done", call_id="t") == first
    assert memory.add_messages("s", [answered("done")], "anthropic") == [first]


def test_other_second_result_is_stored(memory):
    memory.add_messages("s", [answered("not yet"), answered("done")], "anthropic")
    assert [entry.text for entry in memory.get_entries("s")[-2:]] == ["not yet", "done"]


def test_result_of_a_second_call_with_the_same_id_is_stored(memory):
    memory.add_messages("s", [answered("done"), CALL, answered("done")], "anthropic")
    request = memory.build_context("s").messages
    assert [message["content"][0].get("content") for message in request[2::2]] == ["done", "done"]


def test_result_with_an_id_of_the_callers_is_stored(memory):
    memory.add_messages("s", [answered("done"), answered("done")], "anthropic", ids=["a", "b"])
    assert len(memory.get_entries("s")) == 4


def test_response_added_again_changes_nothing(memory):
    memory.add_messages("s", [answered("done")], "anthropic")
    first = memory.add_messages("s", reply("msg_1", "It says done."))
    again = memory.add_messages("s", reply("msg_1", "It says done."))
    assert [entry.id for entry in again] == [entry.id for entry in first]
    assert len(memory.get_entries("s")) == 4
    assert memory.get_stats("s").reported.requests == 1


@pytest.mark.parametrize(("name", "text"), [("msg_2", "Done."), ("msg_1", "It is done.")])
def test_other_response_is_stored(memory, name, text):
    memory.add_messages("s", [answered("done")], "anthropic")
    memory.add_messages("s", reply("msg_1", "Done."))
    memory.add_messages("s", reply(name, text))
    assert len(memory.get_entries("s")) == 5


def test_reply_without_usage_added_again_changes_nothing(memory):
    message = {"id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": "Done."}]}
    memory.add_messages("s", [answered("done")], "anthropic")
    assert memory.add_messages("s", message) == memory.add_messages("s", message)
    assert len(memory.get_entries("s")) == 4


def test_servers_with_one_id_for_every_response_lose_nothing(memory):
    for number in range(3):
        memory.add_user_message("s", f"Again, {number}.")
        memory.add_messages("s", reply("msg_1", "Done."))
    assert len(memory.get_entries("s")) == 8
    assert memory.get_stats("s").reported.requests == 3


# ---------------------------------------------------------------- usage, which counts once


def asked(text: str, tool: bool = False, name: str = "msg_1", given: int = 100) -> dict[str, Any]:
    """Return a response of Anthropic's, which may call a tool."""
    call = {"type": "tool_use", "id": f"c{text}", "name": "read", "input": {}}
    content = [{"type": "text", "text": text}, *([call] if tool else [])]
    return {
        **reply(name, text),
        "content": content,
        "usage": {"input_tokens": given, "output_tokens": 5},
    }


def requests(memory: MemoryManager) -> int:
    """Return the number of requests whose usage was recorded."""
    return memory.get_stats("s").reported.requests


@pytest.mark.parametrize("steps", ["ar", "ra", "arr", "rar", "rr", "rrarr", "aar", "ara"])
def test_response_counts_once_whichever_way_it_comes_in(memory, steps):
    memory.add_messages("s", [answered("done")], "anthropic")
    for step in steps:
        response = reply("msg_1", "Done.")
        memory.add_messages("s", response) if step == "a" else memory.record_usage("s", response)
    assert requests(memory) == 1
    assert len(memory.get_entries("s")) == 3 + ("a" in steps)


@pytest.mark.parametrize("steps", ["ar", "ra"])
def test_response_counts_once_over_a_restart(tmp_path, steps):
    for step in steps:
        with MemoryManager(tmp_path / "chat.db", format="anthropic") as memory:
            if step == steps[0]:
                memory.add_user_message("s", "Well?")
            response = reply("msg_1", "Done.")
            memory.add_messages("s", response) if step == "a" else memory.record_usage(
                "s", response
            )
    with MemoryManager(tmp_path / "chat.db") as memory:
        assert requests(memory) == 1


def test_response_counts_once_by_object_and_chunks(memory):
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    fields = {"id": "chatcmpl-1", "created": 1, "model": "gpt-5"}
    said = {"role": "assistant", "content": "Done."}
    end = {"index": 0, "finish_reason": "stop"}
    chunks = [
        {**fields, "object": "chat.completion.chunk", "choices": [{**end, "delta": said}]},
        {**fields, "object": "chat.completion.chunk", "choices": [], "usage": usage},
    ]
    whole = {
        **fields,
        "object": "chat.completion",
        "usage": usage,
        "choices": [{**end, "message": said}],
    }
    memory.add_messages("s", chunks)
    memory.record_usage("s", ChatCompletion.model_validate(whole))
    memory.record_usage("s", chunks)
    assert requests(memory) == 1


def test_usage_is_recorded_once_behind_the_results_of_its_calls(memory):
    memory.add_messages("s", asked("1", tool=True))
    memory.add_tool_result("s", "read", "text", call_id="c1")
    memory.record_usage("s", asked("1", tool=True))
    assert requests(memory) == 1


def test_usages_of_a_run_are_recorded_once_at_its_end(memory):
    run = [asked(str(number), tool=True, name=f"msg_{number}") for number in range(5)]
    for number, response in enumerate(run):
        memory.add_messages("s", response)
        memory.add_tool_result("s", "read", "text", call_id=f"c{number}")
    for response in run:
        memory.record_usage("s", response)
    assert requests(memory) == 5


@pytest.mark.parametrize("how", ["a", "r", "ar", "ra"])
@pytest.mark.parametrize("growing", [0, 50])
def test_servers_with_one_id_lose_no_usage(memory, how, growing):
    for number in range(3):
        memory.add_user_message("s", f"Again, {number}.")
        response = asked("Done.", given=100 + number * growing)
        for step in how:
            memory.add_messages("s", response) if step == "a" else memory.record_usage(
                "s", response
            )
    assert requests(memory) == 3


@pytest.mark.parametrize("how", ["a", "ar"])
def test_no_usage_is_lost_in_a_tool_loop_with_one_id(memory, how):
    for number in range(3):
        for step in how:
            response = asked(str(number), tool=True)
            memory.add_messages("s", response) if step == "a" else memory.record_usage(
                "s", response
            )
        memory.add_tool_result("s", "read", "text", call_id=f"c{number}")
    assert requests(memory) == 3


def test_same_id_with_other_numbers_is_another_response(memory):
    for number in range(3):
        memory.record_usage("s", asked("Done.", given=100 + number))
    assert requests(memory) == 3


def test_usage_without_an_id_counts_each_time(memory):
    for usage in (reply("msg_1", "x")["usage"], {**reply("", "x"), "id": None}):
        memory.record_usage("s", usage)
        memory.record_usage("s", usage)
    assert requests(memory) == 4


def test_response_of_another_session_counts_there(memory):
    memory.add_user_message("other", "Well?")
    for session in ("s", "other"):
        memory.record_usage(session, reply("msg_1", "x"))
        assert memory.get_stats(session).reported.requests == 1


@pytest.mark.parametrize("name", ["\ud800", "x" * 100_000, ""])
def test_response_with_an_odd_id_is_recorded(memory, name):
    memory.record_usage("s", reply(name, "Done."))
    assert requests(memory) == 1


def test_identities_of_responses_are_bounded(memory):
    for number in range(100):
        memory.record_usage("s", reply(f"msg_{number}", "x"))
    state = memory._core.sessions.get("s").log.totals
    assert len(state.responses) <= 32
    assert requests(memory) == 100
