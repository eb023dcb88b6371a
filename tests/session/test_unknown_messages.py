"""`unknown="keep"`: messages that cannot be stored or read never stop the caller."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage

from memman import FormatError, InvalidInput, MemoryManager, PluginNotFound, events
from memman.formats.rules import check
from memman.testing import record_events

Message = dict[str, Any]
FUTURE: dict[str, Any] = {
    "langchain": {"type": "future", "data": {"content": "from the future"}},
    "openai-responses": {"type": "message", "content": "without a role"},
    "openai-chat": {"role": "critic", "content": "no"},
    "mistral": {"role": "critic", "content": "no"},
    "anthropic": {"role": "user", "content": 7},
    "gemini": {"role": "user", "parts": "text"},
    "bedrock": {"role": "user", "content": [{"text": 7}]},
}
SAID: dict[str, Message] = {
    "langchain": {"type": "human", "data": {"content": "hello"}},
    "gemini": {"role": "user", "parts": [{"text": "hello"}]},
    "bedrock": {"role": "user", "content": [{"text": "hello"}]},
}


def said(form: str) -> Message:
    return SAID.get(form, {"role": "user", "content": "hello"})


@pytest.mark.parametrize("form", FUTURE)
def test_unknown_message_is_returned_and_the_context_is_valid(form: str) -> None:
    memory = MemoryManager()
    messages = [said(form), FUTURE[form], said(form)]
    with pytest.raises(FormatError):
        memory.add_messages("s", messages, form)
    first, kept, last = memory.add_messages("s", messages, form, unknown="keep")
    assert memory.get_messages("s", format=form) == messages
    assert kept.metadata["memman"].keys() == {"kept"}
    assert first.metadata == last.metadata == {}
    for target in (*FUTURE, "text"):
        context = memory.build_context("s", format=target)
        if target != "text":
            assert check(context.messages, target, system=context.system) == []
        assert "an unknown message" in str(context.messages)


def test_unknown_message_that_the_rules_accept_is_in_the_context() -> None:
    memory = MemoryManager(format="openai-responses")
    item = {"type": "hosted_result", "id": "h1", "text": "found"}
    messages = [{"role": "user", "content": "hi"}, item, {"role": "user", "content": "and?"}]
    memory.add_messages("s", messages, "openai-responses", unknown="keep")
    assert memory.build_context("s").messages == messages
    assert "hosted_result" in str(memory.build_context("s", format="anthropic").messages)


def test_unknown_message_survives_store_export_and_fork(tmp_path: Path) -> None:
    form = "langchain"
    messages = [said(form), FUTURE[form]]
    with MemoryManager(tmp_path / "log.db") as memory:
        added = memory.add_messages("s", messages, form, ids=["a", "b"], unknown="keep")
    with MemoryManager(tmp_path / "log.db") as memory:
        again = memory.add_messages("s", messages, form, ids=["a", "b"], unknown="keep")
        assert again == added
        other = MemoryManager()
        other.import_session(memory.export_session("s").to_json())
        assert other.get_messages("s", format=form) == messages
        memory.compress("s", target_tokens=5)
        assert memory.get_messages("s", format=form) == messages


class Strange:
    """An object without a form in JSON."""


ODD: list[tuple[Any, Any]] = [
    ("cut \ud800 off", "cut \ufffd off"),
    ("\ud83d\ude00", "\U0001f600"),
    (b"\xff", "/w=="),
    ([{"type": "text", "text": "a\udc80"}], [{"type": "text", "text": "a\ufffd"}]),
    ([{"type": "text", "text": "a", "n": float("inf")}], [{"type": "text", "text": "a", "n": "inf"}]),
    ([{"type": "text", "text": "a", 5: Strange()}],
     [{"type": "text", "text": "a", "5": f"<{__name__}.Strange object>"}]),
    ([{"type": "text", "text": "a", "s": {"b"}}], [{"type": "text", "text": "a", "s": ["'b'"]}]),
    ([{"type": "text", "text": "a\ud800", "n": 2**70}], [{"type": "text", "text": "a\ufffd", "n": 2**70}]),
    ([{"type": "text", "text": "a", "n": 10**5_000}],
     [{"type": "text", "text": "a", "n": "<int that cannot be shown>"}]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "kept"), ODD)
def test_value_that_json_does_not_have_is_replaced(given: Any, kept: Any) -> None:
    memory = MemoryManager()
    message = {"role": "tool", "tool_call_id": "c1", "content": given}
    [entry] = memory.add_messages("s", [message], "openai-chat", unknown="keep")
    assert memory.get_messages("s") == [{**message, "content": kept}]
    assert entry.type == "tool_result"
    assert entry.metadata["memman"]["altered"]
    memory.import_session(memory.export_session("s").to_json(), "new_session")


def test_surrogate_in_a_framework_object_is_replaced() -> None:
    memory = MemoryManager(format="langchain")
    message = ToolMessage("cut \ud800 off", tool_call_id="c1", artifact=Strange())
    [entry] = memory.add_messages("s", [message], unknown="keep")
    assert (entry.text, entry.call_id) == ("cut \ufffd off", "c1")


def test_artifact_that_is_left_out_is_recorded() -> None:
    memory = MemoryManager(format="langchain")
    message = ToolMessage("ok", tool_call_id="c1", artifact=object())
    for given in (message, {"type": "tool", "data": {"content": "ok", "tool_call_id": "c1",
                                                     "artifact": object()}}):  # fmt: skip
        [entry] = memory.add_messages("s", [given], unknown="keep")
        assert entry.metadata == {
            "memman": {"altered": "the artifact is not JSON, and was left out"}
        }
    kept = ToolMessage("ok", tool_call_id="c1", artifact={"rows": 3})
    [entry] = memory.add_messages("s", [kept], unknown="keep")
    assert entry.metadata == {}


@pytest.mark.parametrize(
    "given", [5, None, b"\xff", "text", object(), [5, "a\udc80"], {}, {"a": 1}]
)
@pytest.mark.parametrize("form", ["auto", "openai-chat", "langchain", "text"])
def test_anything_is_kept(given: Any, form: str) -> None:
    memory = MemoryManager()
    added = memory.add_messages("s", given, form, unknown="keep")
    assert len(added) == (2 if isinstance(given, list) else 1)
    memory.build_context("s")
    memory.import_session(memory.export_session("s").to_json(), "new_session")


def test_format_of_the_readable_messages_is_taken() -> None:
    memory = MemoryManager()
    messages = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user"},
    ]  # fmt: skip
    call, kept = memory.add_messages("s", messages, unknown="keep")
    assert (call.type, kept.content[0].format) == ("tool_call", "anthropic message")  # type: ignore[union-attr]  # an opaque part


def test_caller_metadata_stays_beside_the_reason() -> None:
    memory = MemoryManager()
    [entry] = memory.add_messages("s", [{"role": "critic"}], metadata={"run": 1}, unknown="keep")
    assert entry.metadata.keys() == {"run", "memman"}


def test_first_alteration_is_logged_and_each_is_an_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = MemoryManager()
    odd = {"role": "user", "content": "a\ud800"}
    with caplog.at_level(logging.WARNING, "memman"), record_events(memory) as emitted:
        for ids in (["a", "b"], ["a", "b"], ["a", "c"]):
            memory.add_messages("s", [odd, odd], ids=ids, unknown="keep")
        memory.add_messages("t", [odd], unknown="keep")
    assert len(caplog.records) == 2
    reason = "$.content holds a lone surrogate"
    assert f"session s: message a could not be stored as it was: {reason}" in caplog.messages[0]
    altered = [event for event in emitted if isinstance(event, events.MessageAltered)]
    assert [event.entry_id for event in altered][:3] == ["a", "b", "c"]
    assert altered[0].reason == reason


def test_programming_errors_are_still_raised() -> None:
    memory = MemoryManager()
    with pytest.raises(FormatError, match="has not been read"):
        memory.add_messages("s", iter([said("openai-chat")]), unknown="keep")
    with pytest.raises(PluginNotFound):
        memory.add_messages("s", [{}], "openay", unknown="keep")
    with pytest.raises(InvalidInput, match="use 'refuse' or 'keep'"):
        memory.add_messages("s", [], unknown="drop")  # type: ignore[arg-type]  # the test's point


def test_huge_message_is_cut() -> None:
    memory = MemoryManager(counter=len)
    [entry] = memory.add_messages("s", [HumanMessage("x" * 70_000_000)], unknown="keep")
    assert 1_000_000 < len(entry.text) < 64 * 2**20
    assert entry.text.endswith("[memman: the rest was too long to keep]")
    bytes_only = {"role": "user", "content": "\u4f60" * 23_000_000}
    [entry] = memory.add_messages("s", [bytes_only], "openai-chat", unknown="keep")
    assert entry.metadata["memman"].keys() == {"kept", "altered"}
    assert "is too large" in entry.metadata["memman"]["altered"]
