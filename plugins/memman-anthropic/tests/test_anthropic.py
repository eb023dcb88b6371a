"""The Anthropic counter: the laws of a remote counter on both of its platforms, and what is its own."""

from __future__ import annotations

from typing import Any

import anthropic
import memman_anthropic
from memman_anthropic import AnthropicCounter

from memman.testing import Answer, RemoteCounterConformance

KEY = "key-of-the-test"
MODEL = "claude-sonnet-4-5"
TOOL = {
    "name": "read_file",
    "description": "Reads a file",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
}


def request(text: str, **changes: Any) -> dict[str, Any]:
    use = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.txt"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "what is in it"}
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": [{"type": "text", "text": "I will look"}, use]},
        {"role": "user", "content": [result]},
    ]
    return {
        "model": MODEL, "messages": messages, "system": "be brief", "tools": [TOOL], **changes
    }  # fmt: skip


class Anthropics(RemoteCounterConformance):
    path = "/v1/messages/count_tokens"
    spec = memman_anthropic.memman_token_counters()[0]
    module, sdk = "memman_anthropic", "anthropic"
    models = (MODEL, "anthropic/claude-opus-4-7", "Claude-3-5-Haiku-20241022")
    foreign = ("gpt-4o", "bedrock/anthropic.claude-sonnet-4-5", "openrouter/anthropic/claude-4")

    def make_request(self, text: str) -> dict[str, Any]:
        return request(text)

    def success(self, tokens: Any) -> Answer:
        return Answer(200, {"input_tokens": tokens})


class TestAnthropic(Anthropics):
    def make_counter(self, url: str) -> AnthropicCounter:
        return AnthropicCounter(
            client=anthropic.Anthropic(base_url=url, api_key=KEY),
            async_client=anthropic.AsyncAnthropic(base_url=url, api_key=KEY),
        )
