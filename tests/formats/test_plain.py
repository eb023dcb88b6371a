"""Messages of other frameworks are refused with a way out; nothing of them is swallowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from memman import FormatError, MemoryManager
from memman.formats import detect_format
from memman.formats.text import TextFormat

FOREIGN: dict[str, tuple[dict[str, Any], str]] = {
    "LlamaIndex": (
        {"role": "user", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "hi"}]},
        "'blocks' makes it a message of LlamaIndex.*install memman-llama-index",
    ),
    "LlamaIndex, dumped": (
        {"role": "user", "content": None, "blocks": [{"block_type": "text", "text": "hi"}]},
        "'blocks' makes it a message of LlamaIndex",
    ),
    "Agent Framework": (
        {"role": "user", "contents": [{"type": "text", "text": "hi"}]},
        "'contents' makes it a message of Agent Framework.*message.to_dict()",
    ),
    "pydantic-ai": (
        {"parts": [{"content": "hi", "part_kind": "user-prompt"}], "kind": "request"},
        "'part_kind' makes it a message of pydantic-ai.*install memman-pydantic-ai",
    ),
    "Vercel": (
        {"id": "1", "role": "assistant", "parts": [{"type": "tool-f", "toolCallId": "c"}]},
        "'toolCallId' makes it a message of the Vercel AI SDK",
    ),
    "ADK": (
        {"author": "user", "content": {"parts": [{"text": "hi"}], "role": "user"}},
        "'author' makes it a message of Google ADK.*pass the event's content",
    ),
    "AutoGen": (
        {"source": "user", "type": "TextMessage", "content": "hi", "models_usage": None},
        "'source' makes it a message of AutoGen",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_framework_message_is_refused_by_name(name: str) -> None:
    message, words = FOREIGN[name]
    memory = MemoryManager()
    with pytest.raises(FormatError, match=f"message 1: {words}") as refused:
        memory.add_messages("s", [{"role": "user", "content": "hello"}, message])
    assert refused.value.index == 1
    assert memory.list_sessions() == []


@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool"])
def test_message_without_content_is_refused(role: str) -> None:
    with pytest.raises(FormatError, match=f"message 0: it has the role '{role}' and no content"):
        MemoryManager().add_messages("s", [{"role": role}])


def test_message_without_content_is_refused_among_others() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": []},
    ]
    with pytest.raises(FormatError, match="message 1: it has the role 'user' and no content"):
        MemoryManager().add_messages("s", messages)


def test_wrong_role_error_names_the_allowed_roles() -> None:
    words = "message 0: role 'usr' is not one of system, user, assistant, tool; did you mean 'user'"
    with pytest.raises(FormatError, match=words):
        MemoryManager().add_messages("s", [{"role": "usr", "content": "hi"}])
    with pytest.raises(
        FormatError, match="message 0: role 3 is not one of system, user, assistant"
    ):
        MemoryManager().add_messages("s", [{"role": 3, "content": "hi"}])


def test_gemini_parts_with_unknown_keys_are_refused() -> None:
    content = [{"role": "user", "parts": [{"words": "hi"}]}]
    memory = MemoryManager()
    with pytest.raises(FormatError, match="unknown message format"):
        memory.add_messages("s", content)
    [kept] = memory.add_messages("s", content, format="gemini")
    assert memory.build_context("s", format="gemini").messages == content, kept


@pytest.mark.parametrize(
    "reply",
    [
        {"role": "assistant", "content": None},
        {"role": "assistant", "refusal": "no"},
        {"role": "assistant", "reasoning_content": "hm"},
        {"role": "assistant", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    ],
)  # fmt: skip
def test_reply_without_text_is_accepted(reply: dict[str, Any]) -> None:
    assert len(MemoryManager().add_messages("s", [reply])) == 1


def test_reply_that_ended_before_it_began_is_accepted() -> None:
    completion = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": None}}],
    }
    [entry] = MemoryManager().add_messages("s", [completion])
    assert (entry.role, entry.text) == ("assistant", "")


@dataclass
class ModelRequest:
    """As pydantic-ai's messages are: a dataclass."""

    parts: list[str]


ModelRequest.__module__ = "pydantic_ai.messages"


def test_framework_object_is_refused_by_name() -> None:
    with pytest.raises(FormatError, match="message 0: it is a message of pydantic-ai"):
        MemoryManager().add_messages("s", [ModelRequest(["hi"])])


class ChatMessage:
    """As LlamaIndex's messages are: with `additional_kwargs`, without a type."""

    def __init__(self) -> None:
        self.additional_kwargs: dict[str, Any] = {}

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Return the message as plain data."""
        return FOREIGN["LlamaIndex"][0]


def test_llama_index_object_is_refused_by_name() -> None:
    with pytest.raises(FormatError, match="message 0: 'blocks' makes it a message of LlamaIndex"):
        MemoryManager().add_messages("s", [ChatMessage()])


@pytest.mark.parametrize("form", ["openai-chat", "mistral"])
def test_user_without_content_is_refused_in_a_named_format(form: str) -> None:
    message, _ = FOREIGN["LlamaIndex"]
    with pytest.raises(FormatError, match="message 0: it has the role 'user' and no content"):
        MemoryManager().add_messages("s", [message], format=form)


def test_format_of_a_plugin_comes_before_a_log() -> None:
    """Items that look like those of a log belong to the format that claims them"""
    items = [{"from": "a", "value": "b"}]
    own = TextFormat()
    own.detect = lambda messages: 5  # type: ignore[method-assign]
    assert detect_format(items, [own]) is own
    with pytest.raises(FormatError, match="a file of ShareGPT"):
        detect_format(items)


@pytest.mark.parametrize(
    ("item", "producer"),
    [
        (
            {"type": "result", "subtype": "success", "session_id": "s", "result": "Done."},
            "claude -p",
        ),
        ({"type": "thread.started", "thread_id": "t"}, "codex exec"),
        ({"type": "user.message", "data": {}, "id": "e", "parentId": None}, "Copilot"),
        ({"type": "metadata", "protocol_version": "1.4"}, "Kimi"),
        ({"info": {"role": "user"}, "parts": [{"type": "text", "text": "hi"}]}, "opencode"),
        ({"ts": 1, "type": "say", "say": "text", "text": "hi"}, "Cline"),
    ],
)
def test_log_that_nothing_reads_is_refused_by_name(item: dict[str, Any], producer: str) -> None:
    with pytest.raises(FormatError, match=f"a file of .?{producer}.*no format here reads it"):
        MemoryManager().add_messages("s", [item])
