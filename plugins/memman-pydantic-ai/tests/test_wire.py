"""The requests that pydantic-ai's own models of two providers send, by the providers' rules."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from memman_pydantic_ai import MemmanHistory
from openai import AsyncOpenAI
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


def sent_with_cache(
    model: Callable[[str], Any], reply: Callable[[Body, int, int], Body], **settings: Any
) -> list[Body]:
    """Return the bodies of an agent's requests with `cache="auto"`, over several compressions."""
    config = MemoryConfig(max_tokens=BUDGET, cache_ttl=3_600.0)
    memory = MemoryManager(counter="chars4", config=config)
    server = Provider(reply, memory)
    made = model(server.url)
    history = MemmanHistory(memory, "s", cache="auto")
    agent = Agent(
        made, instructions="You read code.", capabilities=[history], model_settings=settings or None
    )

    @agent.tool_plain
    def read(path: str) -> str:
        """Read a file."""
        return f"# {path}\n" + "total = total + compute(row)\n" * 25

    async def play() -> None:
        messages: list[ModelMessage] = []
        for turn in range(12):
            messages = (
                await agent.run(f"question {turn}", message_history=messages)
            ).all_messages()
        await made.client.close()

    with server.running() as received:
        asyncio.run(play())
    assert memory.get_summaries("s")
    return [request.body for request in received]


def openai_itself(url: str) -> Any:
    """Return a model of OpenAI's own server, whose requests the server at `url` receives."""

    target = urlsplit(url)

    async def redirect(request: Any) -> None:
        request.url = request.url.copy_with(scheme="http", host=target.hostname, port=target.port)

    client = AsyncOpenAI(api_key="none", base_url="https://api.openai.com/v1")
    client._client.event_hooks = {"request": [redirect]}
    return OpenAIChatModel("gpt-5", provider=OpenAIProvider(openai_client=client))


def pieces(body: Body) -> list[tuple[str, bool]]:
    """Return the blocks of a request to Anthropic in the order of its cache, and whether each is marked."""
    found = []
    for role, blocks in [
        ("tools", body["tools"]),
        ("system", body["system"]),
        *((message["role"], message["content"]) for message in body["messages"]),
    ]:
        for block in [{"text": blocks}] if isinstance(blocks, str) else blocks:
            kept = {key: value for key, value in block.items() if key != "cache_control"}
            found.append((f"{role} {json.dumps(kept)}", "cache_control" in block))
    return found


def test_claude_reads_the_head_after_a_compression() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    written: set[str] = set()
    whole = 0
    bodies = sent_with_cache(anthropic_model, anthropic_reply)
    for number, body in enumerate(bodies):
        assert body["tools"][-1]["cache_control"] == mark
        assert body["system"][-1]["cache_control"] == mark
        assert body["messages"][-1]["content"][-1]["cache_control"] == mark
        found = pieces(body)
        ends = [end for end, (_, marked) in enumerate(found, 1) if marked]
        assert len(ends) <= 4
        texts = [text for text, _ in found]
        near = {end for mark in ends for end in range(max(1, mark - 19), mark + 1)}
        read = max((end for end in near if str(texts[:end]) in written), default=0)
        head = len(body["tools"]) + len(body["system"])
        assert read >= head * (number > 0)
        whole += read > head
        written |= {str(texts[:end]) for end in ends}
    assert len(bodies) / 2 < whole < len(bodies) - 1  # all but those after a compression


@pytest.mark.parametrize(
    "settings", [{"anthropic_cache": True}, {"anthropic_cache_messages": "5m"}], ids=str
)
def test_caching_settings_of_ones_own_win(settings: Body) -> None:
    for body in sent_with_cache(anthropic_model, anthropic_reply, **settings):
        assert "1h" not in json.dumps(body)


def test_gpt_gets_one_key_for_a_session() -> None:
    keys = {body["prompt_cache_key"] for body in sent_with_cache(openai_itself, openai_reply)}
    assert len(keys) == 1
    assert keys.pop().startswith("memman-")


def test_other_server_of_openai_chat_gets_no_key() -> None:
    bodies = sent_with_cache(openai_model, openai_reply)
    assert not any("prompt_cache_key" in body for body in bodies)


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
