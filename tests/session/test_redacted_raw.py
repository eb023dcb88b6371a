"""`redact` and the provider's own form of a message: a request keeps its keys, and secrets go."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import Entry, MemoryManager
from tests.examples import examples

S = "s"
SECRET = re.compile(r"sk-\w+")
KEY = "sk-abcdef123456"


def hide(entry: Entry) -> Entry:
    assert isinstance(entry.content, str)
    return msgspec.structs.replace(entry, content=SECRET.sub("[secret]", entry.content))


def thinking(argument: str = "{}", **more: Any) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": argument}}
    reply = {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c", "content": "1"}
    return [{"role": "user", "content": "q"}, reply | more, result]


def signed(argument: str = "x", **more: Any) -> list[dict[str, Any]]:
    call = {
        "functionCall": {"name": "f", "args": {"a": argument}},
        "thoughtSignature": "SG",
        **more,
    }
    answer = {"functionResponse": {"name": "f", "response": {"output": "1"}}}
    return [{"role": "user", "parts": [{"text": "q"}]}, {"role": "model", "parts": [call]},
            {"role": "user", "parts": [answer]}]  # fmt: skip


def sent(messages: list[dict[str, Any]], form: str, redact: Any = hide) -> list[Any]:
    memory = MemoryManager(redact=redact)
    memory.add_messages(S, messages, form)
    return memory.build_context(S, format=form).messages


@pytest.mark.parametrize(("messages", "form"), [(thinking(), "openai-chat"), (signed(), "gemini")])
def test_message_that_redact_leaves_keeps_its_raw_form(messages: Any, form: str) -> None:
    assert sent(messages, form) == messages
    assert sent(messages, form, lambda entry: entry) == messages


def test_changed_message_keeps_keys_without_its_text() -> None:
    [_, call, _] = sent(thinking(f'{{"key":"{KEY}"}}'), "openai-chat")
    assert call["reasoning_content"] == "hm"
    assert call["tool_calls"][0]["function"]["arguments"] == '{"key":"[secret]"}'
    [_, reply, _] = sent(signed(KEY), "gemini")
    assert reply["parts"][0]["thoughtSignature"] == "SG"
    assert reply["parts"][0]["functionCall"]["args"] == {"a": "[secret]"}


@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_content": f"The key is {KEY}."},
        {"reasoning_details": [{"type": "reasoning.text", "text": KEY, "signature": "s"}]},
        {"extra": {KEY: 1}},
    ],
    ids=["text", "list", "key"],
)
def test_secret_in_a_raw_form_is_not_stored(more: Any) -> None:
    memory = MemoryManager(redact=hide)
    added = memory.add_messages(S, thinking(**more), "openai-chat")
    assert KEY not in memory.export_session(S).to_json()
    assert added[1].metadata["memman"]["altered"] == "redacted"


def test_copy_of_a_removed_word_is_not_stored() -> None:
    def by_name(entry: Entry) -> Entry:
        secret = entry.role == "user" and "password" in entry.text
        return msgspec.structs.replace(entry, content="[removed]") if secret else entry

    memory = MemoryManager(redact=by_name)
    message = {"role": "user", "content": "the password is hunter2", "lang": "en"}
    memory.add_messages(S, [message | {"transcript": "it is hunter2"}], "openai-chat")
    assert memory.get_messages(S) == [{"role": "user", "content": "[removed]", "lang": "en"}]


def test_redact_that_fails_for_a_raw_text_drops_its_key() -> None:
    def strict(entry: Entry) -> Entry:
        if entry.type == "tool_call" and "SG" in entry.text:
            raise ValueError
        return entry

    [_, reply, _] = sent(signed(), "gemini", strict)
    assert reply["parts"][0]["thoughtSignature"] != "SG"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from([KEY, f"a {KEY}", "plain", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", KEY]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(content=st.sampled_from(["hi", f"use {KEY}"]), extra=JSON)
@settings(max_examples=examples(200), deadline=None)
def test_no_secret_survives_in_any_raw_form(content: str, extra: Any) -> None:
    memory = MemoryManager(redact=hide)
    message = {"role": "user", "content": content, "extra": extra}
    memory.add_messages(S, [message], "openai-chat")
    assert KEY not in memory.export_session(S).to_json()
    if KEY not in str(message):
        assert memory.get_messages(S) == [message]


def test_redacted_output_of_a_typed_call_loses_its_old_form() -> None:
    """A provider's own block has the text that `redact` removed, so it goes with it"""

    def hide(entry: Entry) -> Entry:
        if isinstance(entry.content, str):
            return msgspec.structs.replace(entry, content=entry.content.replace("hunter2", "***"))
        return entry

    memory = MemoryManager(redact=hide, counter="chars4")
    call = {"type": "shell_call", "id": "s", "call_id": "c", "action": {"commands": ["env"]}}
    outcome = {"type": "exit", "exit_code": 0}
    said = {"stdout": "PASSWORD=hunter2", "stderr": "", "outcome": outcome}
    result = {"type": "shell_call_output", "call_id": "c", "output": [said]}
    memory.add_messages("s", [call, result], "openai-responses")
    request = memory.build_context("s", format="openai-responses").messages
    assert request[0] == call
    assert request[1]["type"] == "shell_call_output"
    assert request[1]["output"][0]["stdout"] == "PASSWORD=***"
    assert "hunter2" not in memory.export_session("s").to_json()
