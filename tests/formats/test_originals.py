"""`get_messages` returns the messages of a session as they were added."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import InvalidInput, MemoryConfig, MemoryManager, SessionNotFound
from memman.formats import builtin_formats
from memman.ids import new_id
from tests.examples import examples
from tests.formats.rich import CONVERSATIONS

Message = dict[str, Any]
FORMATS = [form.name for form in builtin_formats()]
# Messages that no context contains as they are: blank, unanswered, orphaned or alone.
ODD: dict[str, list[Any]] = {
    "openai-chat": [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": ""},
        {"role": "function", "name": "clock", "content": "noon"},
        {"role": "tool", "tool_call_id": "gone", "content": ""},
    ],
    "openai-responses": [
        {"role": "user", "content": ""},
        {"type": "message", "role": "assistant", "content": []},
        {"type": "reasoning", "id": "rs_9", "summary": []},
        {"type": "custom_tool_call_output", "call_id": "gone", "output": ""},
    ],
    "anthropic": [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": [{"type": "text", "text": " "}]},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "gone", "content": "x", "is_error": True},
        ]},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": ""}]},
        {"role": "model", "parts": []},
        {"role": "model", "parts": [{"text": "a"}, {"text": ""}]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "f9", "name": "x", "response": {"output": "y"}}},
            {"text": "and?"},
        ]},
    ],
    "bedrock": [
        {"role": "user", "content": [{"text": ""}]},
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": [{"text": "a"}, {"text": "\n"}]},
        {"role": "user", "content": [{"toolResult": {
            "toolUseId": "gone", "content": [{"text": ""}], "status": "error",
        }}]},
    ],
    "mistral": [
        {"role": "assistant", "content": ""},
        {"role": "tool", "tool_call_id": "an id of others", "name": "f", "content": "x"},
    ],
    "langchain": [
        {"type": "human", "data": {"content": ""}},
        {"type": "ai", "data": {"content": "", "tool_calls": [], "invalid_tool_calls": []}},
        {"type": "tool", "data": {"content": "", "tool_call_id": "gone", "status": "success"}},
        {"type": "ai", "data": {"content": "", "tool_calls": [], "invalid_tool_calls": [
            {"name": "f", "args": "{", "id": None, "type": "invalid_tool_call"},
        ]}},
    ],
}  # fmt: skip


def without_repeats(memory: MemoryManager, batch: list[Message], form: str) -> list[Message]:
    """Return messages without the results that their calls have already, added one by one."""
    kept, name, earlier = list[Message](), new_id(), list[Message]()
    if memory.list_sessions():
        memory.fork_session("s", name)
        earlier = memory.get_messages(name, format=form)
    for message in batch:
        known = {entry.id for entry in memory.get_entries(name)} if earlier else set()
        # A compression in between would hide calls that wait for results.
        added = memory.add_messages(name, [copy.deepcopy(message)], format=form, compress=False)
        now = memory.get_messages(name, format=form)
        new = now[len(earlier) :]
        if new != [message]:  # a part of it, or nothing, is new
            assert len(new) <= 1
            assert any(entry.id in known and entry.type == "tool_result" for entry in added)
        kept, earlier = kept + new, now
    memory.delete_session(name)
    return kept


def small() -> MemoryManager:
    """Return a manager that compresses soon."""
    return MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=300))


@pytest.mark.parametrize("form", CONVERSATIONS)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_messages_in_any_order_come_back_as_added(form: str, data: Any) -> None:
    messages = data.draw(st.lists(st.sampled_from(CONVERSATIONS[form] + ODD[form]), min_size=1))
    memory = small()
    while messages and (count := data.draw(st.integers(1, len(messages)))):
        batch, messages = messages[:count], messages[count:]
        before = memory.get_messages("s", format=form) if memory.list_sessions() else []
        kept = without_repeats(memory, batch, form)
        memory.add_messages("s", copy.deepcopy(batch), format=form)
        found = memory.get_messages("s", format=form)
        assert found == before + kept
        if kept:
            assert memory.get_messages("s", format=form, last=len(kept)) == kept


def test_result_of_a_batch_belongs_to_its_newest_call() -> None:
    def call(number: int) -> dict[str, Any]:
        made = {"name": "read", "arguments": str(number)}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": made}],
        }

    memory = small()
    memory.add_messages("s", [{"role": "user", "content": "q"}, call(1)])
    late = {"role": "tool", "tool_call_id": "c1", "content": "found"}
    memory.add_messages("s", [call(2), {"role": "user", "content": "Well?"}, late])
    sent = json.dumps(memory.build_context("s").messages)
    assert sent.count("found") == 1
    assert sent.rindex('"arguments": "2"') < sent.index("found")
    assert sent.count('"arguments": "2"') == 2  # with its call once more


@pytest.mark.parametrize("form", CONVERSATIONS)
def test_other_formats_get_the_same_texts(form: str) -> None:
    memory = small()
    memory.add_messages("s", CONVERSATIONS[form], format=form)
    for target in FORMATS:
        messages = memory.get_messages("s", format=target)
        assert "Well?" in json.dumps(messages)
        assert "memman: no result" not in json.dumps(messages)


def test_compressed_messages_come_back_and_deleted_ones_do_not() -> None:
    memory = small()
    messages = [{"role": "user", "content": f"question {n} " * 20} for n in range(20)]
    entries = memory.add_messages("s", messages)
    assert memory.get_stats("s").compressed_entries > 0
    memory.delete_entries("s", [entries[3].id])
    assert memory.get_messages("s") == messages[:3] + messages[4:]


def test_messages_of_an_earlier_era_do_not_come_back() -> None:
    memory = MemoryManager()
    memory.add_user_message("s", "before")
    memory.clear_session("s")
    assert memory.get_messages("s") == []
    memory.add_user_message("s", "after")
    assert memory.get_messages("s") == [{"role": "user", "content": "after"}]


def test_entries_added_by_hand_are_messages() -> None:
    memory = MemoryManager()
    memory.add_context("s", "notes", "notes.txt")
    memory.add_tool_call("s", "f", {}, call_id="c1")
    memory.add_tool_call("s", "g", {}, call_id="c2")
    memory.add_tool_result("s", "g", "two", call_id="c2")
    context, calls, result = memory.get_messages("s")
    assert "notes" in context["content"]
    assert "[memman context" in context["content"]
    assert [call["id"] for call in calls["tool_calls"]] == ["c1", "c2"]
    assert result == {"role": "tool", "tool_call_id": "c2", "content": "two"}


def test_text_is_one_message() -> None:
    memory = MemoryManager()
    memory.add_user_message("s", "What time is it?")
    memory.add_tool_result("s", "clock", "noon")
    (message,) = memory.get_messages("s", format="text")
    assert message["content"].splitlines()[1:] == ["User: What time is it?", "Tool clock: noon"]


def test_changing_messages_changes_nothing_else() -> None:
    memory = MemoryManager()
    memory.add_messages("s", CONVERSATIONS["anthropic"], format="anthropic")
    memory.get_messages("s", format="anthropic")[0]["content"].clear()
    assert memory.get_messages("s", format="anthropic") == CONVERSATIONS["anthropic"]


@pytest.mark.parametrize("last", [-1, True, "2", 1.5])
def test_wrong_last_is_refused(last: Any) -> None:
    memory = MemoryManager()
    memory.add_user_message("s", "hi")
    with pytest.raises(InvalidInput, match="last"):
        memory.get_messages("s", last=last)


def test_unknown_session_is_refused() -> None:
    with pytest.raises(SessionNotFound):
        MemoryManager().get_messages("s")


@pytest.mark.parametrize("form", CONVERSATIONS)
def test_newest_messages_of_a_long_session_are_as_added(form: str) -> None:
    memory = small()
    messages = CONVERSATIONS[form] * 8
    memory.add_messages("s", messages, format=form)
    for last in range(1, 2 * len(CONVERSATIONS[form])):
        assert memory.get_messages("s", format=form, last=last) == messages[-last:]
