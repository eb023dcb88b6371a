"""Usage objects of the real SDKs, from servers on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import anthropic
import boto3
import openai
import pytest
from botocore.config import Config
from google import genai
from google.genai.types import HttpOptions, UsageMetadata

from memman import InvalidInput
from memman.counting.usage import billed_tokens, usage_of
from memman.testing import Answer, loopback

GEMINI = {
    "promptTokenCount": 120,
    "candidatesTokenCount": 7,
    "thoughtsTokenCount": 30,
    "cachedContentTokenCount": 64,
    "toolUsePromptTokenCount": 9,
    "totalTokenCount": 166,
}
SAID = {"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}}]}
RESPONSE_USAGE = {
    "input_tokens": 120,
    "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0},
    "output_tokens": 37,
    "output_tokens_details": {"reasoning_tokens": 30},
    "total_tokens": 157,
}
RESPONSE = {
    "id": "r", "object": "response", "created_at": 1, "model": "gpt-5", "output": [], "status": "completed",
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": RESPONSE_USAGE,
}  # fmt: skip
CLAUDE_USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 64,
    "cache_creation_input_tokens": 46,
    "cache_creation": {"ephemeral_5m_input_tokens": 46, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 1,
}
CLAUDE = {
    "id": "m", "type": "message", "role": "assistant", "model": "claude-of-the-test", "content": [],
    "stop_reason": None, "stop_sequence": None, "usage": CLAUDE_USAGE,
}  # fmt: skip


def read(usage: Any) -> tuple[int, int, int]:
    record = usage_of(billed_tokens(usage), "u1", datetime(2026, 1, 1, tzinfo=UTC), None)
    return record.input_tokens, record.output_tokens, record.cached_tokens


def stream(*events: dict[str, Any]) -> Answer:
    body = "".join(
        (f"event: {each['type']}\n" if "type" in each else "") + f"data: {json.dumps(each)}\n\n"
        for each in events
    )
    return Answer(200, body.encode(), {"content-type": "text/event-stream"})


@contextmanager
def gemini(answer: Answer, path: str) -> Iterator[genai.Client]:
    with loopback(path, answer) as server:
        options = HttpOptions(base_url=server.url, headers={"connection": "close"})
        client = genai.Client(api_key="k", http_options=options)
        yield client
        client.close()


def test_google_genai_usage_is_read() -> None:
    with gemini(Answer(200, {**SAID, "usageMetadata": GEMINI}), ":generateContent") as client:
        answer = client.models.generate_content(model="gemini-2.5-flash", contents="hi")
        assert read(answer.usage_metadata) == (120, 37, 64)


def test_google_genai_live_usage_is_read() -> None:
    usage = UsageMetadata(
        prompt_token_count=40,
        response_token_count=7,
        thoughts_token_count=2,
        cached_content_token_count=30,
    )
    assert read(usage) == (40, 9, 30)


def test_google_genai_stream_usage_is_read() -> None:
    last = {**SAID, "usageMetadata": GEMINI}
    with gemini(stream(SAID, last), ":streamGenerateContent") as client:
        chunks = list(
            client.models.generate_content_stream(model="gemini-2.5-flash", contents="hi")
        )
        assert read(chunks[-1].usage_metadata) == (120, 37, 64)


def test_bedrock_converse_usage_is_read() -> None:
    usage = {
        "inputTokens": 10,
        "outputTokens": 7,
        "totalTokens": 127,
        "cacheReadInputTokens": 64,
        "cacheWriteInputTokens": 46,
        "cacheDetails": [{"ttl": "5m", "inputTokens": 46}],
    }
    message = {"role": "assistant", "content": [{"text": "hi"}]}
    answer = {"output": {"message": message}, "stopReason": "end_turn", "usage": usage,
              "metrics": {"latencyMs": 1}}  # fmt: skip
    with loopback("/converse", Answer(200, answer)) as server:
        client = boto3.Session().client(
            "bedrock-runtime",
            region_name="us-east-1",
            endpoint_url=server.url,
            aws_access_key_id="a",
            aws_secret_access_key="b",  # noqa: S106 - not a real one
            config=Config(retries={"total_max_attempts": 1}),
        )
        got = client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "hi"}]}])
        client.close()
    assert got["usage"]["cacheReadInputTokens"] == 64
    assert read(got["usage"]) == (120, 7, 64)


def test_openai_responses_usage_is_read() -> None:
    with loopback("/responses", Answer(200, RESPONSE)) as server:
        client = openai.OpenAI(api_key="k", base_url=server.url, max_retries=0)
        answer = client.responses.create(model="gpt-5", input="hi")
        client.close()
    assert read(answer.usage) == (120, 37, 64)


def test_openai_responses_stream_usage_is_read() -> None:
    completed = {"type": "response.completed", "sequence_number": 1, "response": RESPONSE}
    with loopback("/responses", stream(completed)) as server:
        client = openai.OpenAI(api_key="k", base_url=server.url, max_retries=0)
        with client.responses.create(model="gpt-5", input="hi", stream=True) as events:
            [last] = list(events)
        client.close()
    assert read(last.response.usage) == (120, 37, 64)


def claude_events(**reported: Any) -> Answer:
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    usage = {"output_tokens": 37, **reported}
    return stream(
        {"type": "message_start", "message": CLAUDE},
        {"type": "message_delta", "delta": delta, "usage": usage},
        {"type": "message_stop"},
    )


ASKED: dict[str, Any] = {
    "model": "claude-of-the-test", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]
}  # fmt: skip


def test_anthropic_message_usage_is_read() -> None:
    with loopback("/messages", Answer(200, CLAUDE)) as server:
        client = anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0)
        answer = client.messages.create(**ASKED)
        client.close()
    assert read(answer.usage) == (120, 1, 64)


@pytest.mark.parametrize(
    "reported",
    [{}, {"input_tokens": 10, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 46}],
    ids=["output alone", "everything"],
)
def test_anthropic_stream_usage_is_that_of_the_final_message(reported: dict[str, int]) -> None:
    with loopback("/messages", claude_events(**reported)) as server:
        client = anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0)
        with client.messages.stream(**ASKED) as events:
            seen = list(events)
            final = events.get_final_message()
        client.close()
    assert read(final.usage) == (120, 37, 64)
    [started] = [each for each in seen if each.type == "message_start"]
    assert read(started.message.usage)[0] == 120
    [delta] = [each for each in seen if each.type == "message_delta"]
    if reported:
        assert read(delta.usage) == (120, 37, 64)
    else:  # it has the output only
        with pytest.raises(InvalidInput, match="input_tokens=None"):
            read(delta.usage)
