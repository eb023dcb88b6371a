"""Replies that a filter stopped, or that ended before they began: only their usage is recorded."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import Message
from google.genai import types as genai
from openai.types.chat import ChatCompletion

from memman import FormatError, MemoryManager

S = "s"
CHAT = {"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5}
RESPONSES = {"input_tokens": 5, "output_tokens": 0, "input_tokens_details": {"cached_tokens": 0}}
CONVERSE = {"inputTokens": 5, "outputTokens": 0, "totalTokens": 5}
USAGE = {"promptTokenCount": 5, "totalTokenCount": 5}
CLAUDE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
    "stop_reason": "refusal", "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 0},
}  # fmt: skip


def gemini(reason: str = "SAFETY", **content: Any) -> dict[str, Any]:
    return {"candidates": [{"finishReason": reason, "index": 0, **content}], "usageMetadata": USAGE}


def chat(*choices: Any) -> dict[str, Any]:
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-4o"}
    return {**head, "choices": list(choices), "usage": CHAT}


def choice(**message: Any) -> dict[str, Any]:
    return {"index": 0, "finish_reason": "content_filter", **message}


def response(output: Any) -> dict[str, Any]:
    head = {"id": "resp_1", "object": "response", "status": "incomplete"}
    return {**head, "output": output, "usage": RESPONSES}


NULL = choice(message={"role": "assistant", "content": None})
MODEL = genai.GenerateContentResponse.model_validate
EMPTY: dict[str, Any] = {
    "gemini, safety": gemini(),
    "gemini, recitation": gemini("RECITATION"),
    "gemini, malformed call": gemini("MALFORMED_FUNCTION_CALL"),
    "gemini, null": gemini(content=None),
    "gemini, a role": gemini(content={"role": "model"}),
    "gemini, null parts": gemini(content={"role": "model", "parts": None}),
    "gemini, no parts": gemini(content={"role": "model", "parts": []}),
    "gemini, blocked prompt": {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": USAGE},
    "gemini, no candidates": {"candidates": [], "usageMetadata": USAGE},
    "gemini, object": MODEL(gemini()),
    "gemini, object of a blocked prompt": MODEL({"usageMetadata": USAGE}),
    "gemini, stream": [gemini(""), gemini()],
    "chat, null": chat(NULL),
    "chat, blank": chat(choice(message={"role": "assistant", "content": ""})),
    "chat, no message": chat(choice()),
    "chat, no choices": chat(),
    "chat, object": ChatCompletion.model_validate(chat(NULL)),
    "anthropic": CLAUDE,
    "anthropic, object": Message.model_validate(CLAUDE),
    "responses": response([]),
    "responses, null": response(None),
    "responses, no content": response(
        [{"type": "message", "id": "msg_1", "role": "assistant", "status": "incomplete", "content": []}]
    ),
    "bedrock": {"output": {"message": {"role": "assistant", "content": []}},
                "stopReason": "guardrail_intervened", "usage": CONVERSE},
    "bedrock, no message": {"output": {}, "stopReason": "content_filtered", "usage": CONVERSE},
}  # fmt: skip


def kinds(memory: MemoryManager) -> list[str]:
    return [type(item.record).__name__ for item in memory.feed(S)]


@pytest.mark.parametrize("unknown", ["refuse", "keep"])
@pytest.mark.parametrize("kind", EMPTY)
def test_empty_reply_stores_its_usage_alone(kind: str, unknown: Any) -> None:
    memory = MemoryManager()
    memory.add_user_message(S, "q")
    assert memory.add_messages(S, EMPTY[kind], unknown=unknown) == []
    assert kinds(memory) == ["Opened", "Added", "UsageReported"]
    assert memory.get_stats(S).reported.input == 5
    assert [message["content"] for message in memory.build_context(S).messages] == ["q"]


@pytest.mark.parametrize("kind", ["gemini, safety", "chat, no choices", "anthropic", "bedrock"])
def test_empty_reply_with_an_id_of_the_caller_is_taken(kind: str) -> None:
    memory = MemoryManager()
    assert memory.add_messages(S, EMPTY[kind], ids=["r"]) == []
    assert kinds(memory) == ["Opened", "UsageReported"]


@pytest.mark.parametrize("reply", [{"role": "model"}, genai.Content(role="model")])
def test_content_without_parts_stores_nothing(reply: Any) -> None:
    memory = MemoryManager()
    assert memory.add_messages(S, reply) == []
    assert memory.list_sessions() == []


@pytest.mark.parametrize("form", ["gemini", None])
@pytest.mark.parametrize("empty", [{"role": "model"}, {"role": "model", "parts": None}])
def test_content_without_parts_in_a_list_is_taken(empty: Any, form: str | None) -> None:
    memory = MemoryManager(format=form)
    first, last = [{"role": "user", "parts": [{"text": text}]} for text in ("q", "and?")]
    added = memory.add_messages(S, [first, empty, last], form or "auto")
    assert [entry.text for entry in added] == ["q", "", "and?"]
    sent = memory.build_context(S, format="gemini").messages
    assert sent == [{**first, "parts": first["parts"] + last["parts"]}]


@pytest.mark.parametrize(
    "said",
    [
        chat(choice(message={"role": "assistant", "content": None, "refusal": "No."})),
        chat(choice(message={"role": "assistant", "content": "", "reasoning_content": "hm"})),
        gemini(content={"role": "model", "parts": [{"text": "", "thoughtSignature": "SG"}]}),
    ],
    ids=["refusal", "reasoning", "signature"],
)
def test_reply_with_anything_to_keep_is_stored(said: Any) -> None:
    memory = MemoryManager()
    [entry] = memory.add_messages(S, said)
    assert kinds(memory) == ["Opened", "Added", "UsageReported"]
    assert entry.text or entry.raw or entry.content


@pytest.mark.parametrize("key", ["text", "delta"])
def test_completion_of_another_kind_is_refused(key: str) -> None:
    with pytest.raises(FormatError, match="a completion without a message in its first choice"):
        MemoryManager().add_messages(S, chat(choice(**{key: "Once upon a time"})))
