"""A response of each real SDK is accepted unchanged, with its usage, and the next request is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import anthropic
import boto3
import openai
import pytest
from botocore.config import Config
from google import genai
from google.genai.types import HttpOptions

from memman import MemoryManager
from memman.events import Usage
from memman.formats.bedrock import sdk_messages
from memman.formats.rules import check
from memman.records import UsageReported
from memman.testing import Answer, loopback

CHAT = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "gpt-5", "system_fingerprint": "fp",
    "choices": [{"index": 0, "finish_reason": "tool_calls", "logprobs": None, "message": {
        "role": "assistant", "content": "I look.", "refusal": None, "annotations": [],
        "tool_calls": [{"id": "c1", "type": "function",
                        "function": {"name": "look", "arguments": '{"at": null}'}}]}}],
    "usage": {"prompt_tokens": 120, "completion_tokens": 7, "total_tokens": 127,
              "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 40, "audio_tokens": 0}},
}  # fmt: skip
RESPONSE = {
    "id": "r", "object": "response", "created_at": 1, "model": "gpt-5", "status": "completed",
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    "usage": {"input_tokens": 120, "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 40},
              "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 127},
    "output": [
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAA"},
        {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "id": "fc", "call_id": "c1", "name": "look",
         "arguments": '{"at": null}', "status": "completed"},
    ],
}  # fmt: skip
CLAUDE = {
    "id": "m", "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": "tool_use",
    "stop_sequence": None, "content": [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": None}}],
    "usage": {"input_tokens": 16, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 40,
              "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 30},
              "output_tokens": 7},
}  # fmt: skip
GEMINI = {
    "candidates": [{"finishReason": "STOP", "index": 0, "content": {"role": "model", "parts": [
        {"text": "I look."},
        {"functionCall": {"name": "look", "args": {"at": None}}, "thoughtSignature": "YWJj"}]}}],
    "usageMetadata": {"promptTokenCount": 120, "candidatesTokenCount": 4, "thoughtsTokenCount": 3,
                      "totalTokenCount": 127, "cachedContentTokenCount": 64},
    "modelVersion": "gemini-3", "responseId": "x",
}  # fmt: skip
CONVERSE = {
    "output": {"message": {"role": "assistant", "content": [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}, {"text": "I look."},
        {"toolUse": {"toolUseId": "c1", "name": "look", "input": {"at": None}}}]}},
    "stopReason": "tool_use", "metrics": {"latencyMs": 1},
    "usage": {"inputTokens": 16, "outputTokens": 7, "totalTokens": 127, "cacheReadInputTokens": 64,
              "cacheWriteInputTokens": 40,
              "cacheDetails": [{"ttl": "5m", "inputTokens": 10}, {"ttl": "1h", "inputTokens": 30}]},
}  # fmt: skip

Ask = Callable[[str, list[Any]], Any]


def chat(url: str, messages: list[Any]) -> Any:
    with openai.OpenAI(api_key="k", base_url=url, max_retries=0) as client:
        return client.chat.completions.create(model="gpt-5", messages=messages)


def responses(url: str, messages: list[Any]) -> Any:
    with openai.OpenAI(api_key="k", base_url=url, max_retries=0) as client:
        return client.responses.create(model="gpt-5", input=messages)


def claude(url: str, messages: list[Any]) -> Any:
    with anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as client:
        return client.messages.create(model="claude-x", max_tokens=9, messages=messages)


def beta(url: str, messages: list[Any]) -> Any:
    with anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as client:
        return client.beta.messages.create(model="claude-x", max_tokens=9, messages=messages)


def gemini(url: str, messages: list[Any]) -> Any:
    options = HttpOptions(base_url=url, headers={"connection": "close"})
    with genai.Client(api_key="k", http_options=options) as client:
        return client.models.generate_content(model="gemini-3", contents=messages)


@contextmanager
def bedrock_runtime(url: str) -> Iterator[Any]:
    client = boto3.Session().client(
        "bedrock-runtime", region_name="us-east-1", endpoint_url=url, aws_access_key_id="a",
        aws_secret_access_key="b",  # noqa: S106 - not a real one
        config=Config(retries={"total_max_attempts": 1}),
    )  # fmt: skip
    with closing(client):
        yield client


def converse(url: str, messages: list[Any]) -> Any:
    with bedrock_runtime(url) as client:
        return client.converse(modelId="m", messages=sdk_messages(messages))


SDKS: dict[str, tuple[str, str, dict[str, Any], Ask]] = {
    "openai, chat": ("openai-chat", "/chat/completions", CHAT, chat),
    "openai, responses": ("openai-responses", "/responses", RESPONSE, responses),
    "anthropic": ("anthropic", "/messages", CLAUDE, claude),
    "anthropic, beta": ("anthropic", "/messages", CLAUDE, beta),
    "google-genai": ("gemini", ":generateContent", GEMINI, gemini),
    "boto3": ("bedrock", "/converse", CONVERSE, converse),
}
# What each format reports: input, output, read from the cache, written to it, and that for an hour.
USAGES = {
    "openai-chat": (120, 7, 64, 40, 0),
    "openai-responses": (120, 7, 64, 40, 0),
    "anthropic": (120, 7, 64, 40, 30),
    "gemini": (120, 7, 64, 0, 0),
    "bedrock": (120, 7, 64, 40, 30),
}


def tokens_of(usage: UsageReported | Usage) -> tuple[int, ...]:
    """Return the tokens of a record or of an event."""
    return (
        usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cache_written_tokens,
        usage.cache_written_1h_tokens,
    )  # fmt: skip


@pytest.mark.parametrize("sdk", SDKS)
def test_response_is_accepted_unchanged_and_the_loop_continues(sdk: str) -> None:
    form, path, body, ask = SDKS[sdk]
    memory = MemoryManager(counter="chars4")
    memory.add_user_message("s", "Where is it?")
    with loopback(path, Answer(200, body)) as server:
        answer = ask(server.url, memory.build_context("s", format=form).messages)
        memory.add_messages("s", answer)
        entries = memory.get_entries("s")
        [call] = [entry for entry in entries if entry.type == "tool_call"]
        assert (call.name, json.loads(call.text)) == ("look", {"at": None})
        assert [entry.text for entry in entries if entry.type == "message" and entry.text][
            -1
        ] == "I look."
        memory.add_tool_result("s", "look", "here", call_id=call.call_id)
        context = memory.build_context("s", format=form)
        assert check(context.messages, form, system=context.system) == []
        memory.add_messages("s", ask(server.url, context.messages))
    rendered = [
        record for record in memory.export_session("s").log if isinstance(record, UsageReported)
    ]
    assert [(one.input_tokens, one.output_tokens, one.cached_tokens) for one in rendered] == [
        (120, 7, 64)
    ] * 2


@pytest.mark.parametrize("sdk", SDKS)
def test_usage_is_read_from_the_response(sdk: str) -> None:
    form, path, body, ask = SDKS[sdk]
    memory = MemoryManager(counter="chars4")
    events: list[Usage] = []
    memory.on(Usage, events.append)
    memory.add_user_message("s", "Where is it?")
    with loopback(path, Answer(200, body)) as server:
        memory.record_usage("s", ask(server.url, memory.build_context("s", format=form).messages))
    usage = memory.export_session("s").log[-1]
    assert isinstance(usage, UsageReported)
    assert [tokens_of(each) for each in (usage, *events)] == [USAGES[form]] * 2
    copy = MemoryManager(counter="chars4")
    copy.import_session(memory.export_session("s").to_json())
    assert copy.export_session("s").log[-1] == usage


def stream(*events: dict[str, Any]) -> Answer:
    body = "".join(
        (f"event: {each['type']}\n" if "type" in each else "") + f"data: {json.dumps(each)}\n\n"
        for each in events
    )
    return Answer(200, body.encode(), {"content-type": "text/event-stream"})


def test_joined_openai_stream_is_accepted() -> None:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    [choice] = CHAT["choices"]  # type: ignore[misc]
    delta = {
        **choice["message"],
        "tool_calls": [{"index": 0, **choice["message"]["tool_calls"][0]}],
    }  # type: ignore[index]
    parts = stream(
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {**chunk, "choices": [], "usage": CHAT["usage"]},
    )
    memory = MemoryManager(counter="chars4")
    memory.add_user_message("s", "Where is it?")
    with (
        loopback("/chat/completions", parts) as server,
        openai.OpenAI(api_key="k", base_url=server.url, max_retries=0) as client,
    ):
        messages: Any = memory.build_context("s").messages
        with client.chat.completions.stream(model="gpt-5", messages=messages) as events:
            final = events.get_final_completion()
    memory.add_messages("s", final)
    [_, message, call] = memory.get_entries("s")
    assert (message.text, call.name, call.text) == ("I look.", "look", '{"at": null}')
    assert memory.export_session("s").log[-1].input_tokens == 120  # type: ignore[union-attr]


def test_joined_anthropic_stream_is_accepted() -> None:
    blocks = [
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
    ]
    deltas = [
        {"type": "text_delta", "text": "I look."},
        {"type": "input_json_delta", "partial_json": '{"at": null}'},
    ]
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**CLAUDE, "content": []}}]
    for index, (block, delta) in enumerate(zip(blocks, deltas, strict=True)):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    ended = {"stop_reason": "tool_use", "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]
    memory = MemoryManager(counter="chars4")
    memory.add_user_message("s", "Where is it?")
    with (
        loopback("/messages", stream(*events)) as server,
        anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0) as client,
    ):
        messages: Any = memory.build_context("s", format="anthropic").messages
        with client.messages.stream(model="claude-x", max_tokens=9, messages=messages) as given:
            final = given.get_final_message()
    memory.add_messages("s", final)
    [_, message, call] = memory.get_entries("s")
    assert (message.text, call.name, json.loads(call.text)) == ("I look.", "look", {"at": None})
    assert memory.export_session("s").log[-1].input_tokens == 120  # type: ignore[union-attr]
