"""What is added once more: an equal second result of a call, and a response that was stored before."""

from __future__ import annotations

from typing import Any

import pytest

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
