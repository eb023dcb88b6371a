"""The requests that pydantic-ai's own models of two providers send, by the providers' rules."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
from memman_pydantic_ai import MemmanHistory
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from memman import MemoryConfig, MemoryManager
from memman.formats.rules import check
from memman.records import UsageReported
from memman.testing import Answer, LoopbackServer
from memman.testing.loopback import Received

BUDGET = 2_500
IMAGE = BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png")
Body = dict[str, Any]


class Provider(LoopbackServer):
    """A provider that requests two tool calls after a user's message, and answers after their results."""

    def __init__(self, reply: Callable[[Body, int, int], Body], memory: MemoryManager) -> None:
        super().__init__("", ())
        self.billed: list[int] = []
        self._reply = reply
        self._memory = memory

    def answer_to(self, request: Received) -> Answer:
        """Return the reply to a request."""
        self.received.append(request)
        body = request.body
        counted = self._memory.count_tokens(
            body["messages"], system=body.get("system"), tools=body["tools"]
        )
        self.billed.append(counted.tokens)
        reply = self._reply(body, len(self.received), counted.tokens)
        if not request.body.get("stream"):
            return Answer(body=reply)
        return Answer(body=streamed(reply), headers={"content-type": "text/event-stream"})

    @contextmanager
    def running(self) -> Iterator[list[Received]]:
        """Serve for the length of the block; yields the requests."""
        with self:
            thread = Thread(target=self.serve_forever, args=(0.01,), daemon=True)
            thread.start()
            yield self.received
            self.shutdown()
            thread.join()


def openai_reply(body: Body, number: int, tokens: int) -> Body:
    if body["messages"][-1]["role"] == "tool":
        message = {"role": "assistant", "content": f"answer {number}"}
    else:
        calls = [
            {
                "id": f"call_{number}{letter}",
                "type": "function",
                "function": {"name": "read", "arguments": json.dumps({"path": f"{letter}.py"})},
            }
            for letter in "ab"
        ]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    usage = {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20}
    return {"id": f"r{number}", "object": "chat.completion", "created": 1, "model": "gpt-5",
            "choices": [choice], "usage": usage}  # fmt: skip


def anthropic_reply(body: Body, number: int, tokens: int) -> Body:
    last = body["messages"][-1]["content"]
    answered = isinstance(last, list) and any(block["type"] == "tool_result" for block in last)
    thought = {
        "type": "thinking",
        "thinking": f"thought {number}",
        "signature": f"c2lnbmVk{number}",
    }
    blocks: list[Body] = [thought]
    if answered:
        blocks.append({"type": "text", "text": f"answer {number}"})
    else:
        blocks += [
            {
                "type": "tool_use",
                "id": f"toolu_{number}{letter}",
                "name": "read",
                "input": {"path": letter},
            }
            for letter in "ab"
        ]
    return {"id": f"m{number}", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "content": blocks, "stop_reason": "end_turn" if answered else "tool_use",
            "stop_sequence": None, "usage": {"input_tokens": tokens, "output_tokens": 20}}  # fmt: skip


def openai_model(url: str) -> Any:
    provider = OpenAIProvider(api_key="none", base_url=url)
    return OpenAIChatModel("gpt-5", provider=provider)


def anthropic_model(url: str) -> Any:
    provider = AnthropicProvider(api_key="none", base_url=url)
    return AnthropicModel("claude-sonnet-4-5", provider=provider)


def streamed(reply: Body) -> bytes:
    """Return a reply of Anthropic's as server-sent events: pydantic-ai requests it so."""
    deltas = {"thinking": "thinking", "text": "text", "tool_use": "input_json"}
    events: list[Body] = [{"type": "message_start", "message": {**reply, "content": []}}]
    for index, block in enumerate(reply["content"]):
        kind = block["type"]
        empty = {**block, "input": {}} if kind == "tool_use" else {**block, kind: ""}
        said = json.dumps(block["input"]) if kind == "tool_use" else block[kind]
        field = "partial_json" if kind == "tool_use" else kind
        delta = {"type": f"{deltas[kind]}_delta", field: said}
        changes = [delta]
        if kind == "thinking":
            empty["signature"] = ""
            changes.append({"type": "signature_delta", "signature": block["signature"]})
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [
            {"type": "content_block_delta", "index": index, "delta": change} for change in changes
        ]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 20}})
    events.append({"type": "message_stop"})
    return "".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events
    ).encode()


def parts_of(messages: list[ModelMessage]) -> Iterator[object]:
    for message in messages:
        yield from message.parts


@pytest.mark.parametrize(
    ("model", "reply", "rules"),
    [
        (openai_model, openai_reply, "openai-chat"),
        (anthropic_model, anthropic_reply, "anthropic"),
    ],
)
def test_wire_is_valid_and_within_the_budget(
    model: Callable[[str], Any], reply: Callable[[Body, int, int], Body], rules: str
) -> None:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=BUDGET))
    server = Provider(reply, memory)
    capabilities = [MemmanHistory(memory, "s")]
    made = model(server.url)
    agent = Agent(made, instructions="You read code.", capabilities=capabilities)
    numbers = itertools.count()

    @agent.tool_plain
    def read(path: str) -> str:
        """Read a file."""
        return f"# {path} {next(numbers)}\n" + "total = total + compute(row)\n" * 25

    async def play() -> list[ModelMessage]:
        history: list[ModelMessage] = []
        for turn in range(40):
            prompt: Any = [f"question {turn}", IMAGE] if turn % 10 == 9 else f"question {turn}"
            history = (await agent.run(prompt, message_history=history)).all_messages()
        await made.client.close()
        return history

    with server.running() as received:
        history = asyncio.run(play())
    assert len(received) == 80
    for number, body in enumerate(request.body for request in received):
        assert not check(body["messages"], rules, system=body.get("system")), number
    assert max(server.billed) <= BUDGET
    log = memory.export_session("s").log
    usages = [record.input_tokens for record in log if isinstance(record, UsageReported)]
    assert usages == server.billed
    results = [entry for entry in memory.get_entries("s") if entry.type == "tool_result"]
    assert len(results) == 80
    assert all(len(entry.text) > 700 for entry in results)
    document = memory.export_session("s").to_json()
    if rules == "anthropic":
        assert all(f"c2lnbmVk{number}" in document for number in range(1, 81))
        assert "c2lnbmVk79" in str(received[-1].body)
    # The log in pydantic-ai's own format is the history, part by part.
    logged = ModelMessagesTypeAdapter.validate_python(
        memory.get_messages("s", format="pydantic-ai")
    )
    loaded = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(history))
    assert list(parts_of(logged)) == list(parts_of(loaded))
