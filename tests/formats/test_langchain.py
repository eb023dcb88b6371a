"""LangChain's messages: uncounted keys, and missing results."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)

from memman import MemoryManager
from memman.formats.rules import check

CALL = {"name": "f", "args": {}, "id": "c1", "type": "tool_call"}


def talk(**result: Any) -> list[AnyMessage]:
    return [
        HumanMessage("q"),
        AIMessage("", tool_calls=[CALL]),
        ToolMessage("ok", tool_call_id="c1", **result),
    ]


def added(messages: Any) -> MemoryManager:
    memory = MemoryManager(counter="chars4")
    memory.add_messages("s", messages)
    return memory


def tokens_of(messages: Any) -> list[int]:
    return [entry.token_count.tokens for entry in added(messages).get_entries("s")]


def rendered(memory: MemoryManager) -> list[Any]:
    messages = memory.build_context("s", format="langchain").messages
    assert not check(messages, "langchain")
    return messages_from_dict(messages)


def test_artifact_is_kept_and_not_counted() -> None:
    messages = talk(artifact={"doc": "x y z " * 2_000})
    assert tokens_of(messages) == tokens_of(talk())
    assert rendered(added(messages)) == messages


@pytest.mark.parametrize("artifact", [object(), {"a": object()}, float("nan"), {1: "a"}, b"\xff"])
def test_artifact_that_is_not_json_is_left_out(artifact: Any) -> None:
    messages = talk(artifact=artifact)
    for given in (messages, messages_to_dict(messages)):
        result = rendered(added(given))[2]
        assert (result.content, result.artifact) in [("ok", None), ("ok", {"1": "a"})]


def test_additional_kwargs_are_kept_and_not_counted() -> None:
    more = {"reasoning_content": "I think so. " * 250}
    plain, thought = AIMessage("yes"), AIMessage("yes", additional_kwargs=more)
    assert tokens_of([HumanMessage("q"), thought]) == tokens_of([HumanMessage("q"), plain])
    assert rendered(added([HumanMessage("q"), thought])) == [HumanMessage("q"), thought]


def test_placeholder_result_has_name_and_error_status() -> None:
    result = rendered(added(talk()[:2]))[2]
    assert (result.name, result.status, result.tool_call_id) == ("f", "error", "c1")


def test_invalid_call_without_id_has_no_result() -> None:
    odd = {"name": "f", "args": "{", "id": None, "error": "no JSON", "type": "invalid_tool_call"}
    messages = [HumanMessage("q"), AIMessage("", invalid_tool_calls=[odd])]
    assert rendered(added(messages)) == messages


def test_invalid_call_with_id_has_a_result() -> None:
    odd = {"name": "f", "args": "{", "id": "c9", "error": "no JSON", "type": "invalid_tool_call"}
    messages = [HumanMessage("q"), AIMessage("", invalid_tool_calls=[odd])]
    *same, result = rendered(added(messages))
    assert same == messages
    assert (result.tool_call_id, result.status) == ("c9", "error")
