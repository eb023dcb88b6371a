"""The requests that the framework's clients of two providers send, by the providers' rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest
from agent_framework import Agent, AgentSession, Content, Message, tool
from agent_framework.anthropic import AnthropicClient
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from anthropic import AsyncAnthropic
from memman_agent_framework import MemmanHistoryProvider
from openai import AsyncOpenAI

from memman import MemoryConfig, MemoryManager
from memman.formats.rules import check
from memman.records import UsageReported
from memman.testing import Answer
from memman.testing.loopback import loopback

BUDGET = 2_500
TURNS = 12
PIXEL = "data:image/png;base64,iVBORw0KGgo="
Body = dict[str, Any]


@tool(approval_mode="never_require")
def read(path: str) -> str:
    """Read a file."""
    return f"# {path}\n" + "total = total + compute(row)\n" * 25


def sent(
    path: str,
    answers: Iterator[Answer],
    client_of: Callable[[str], Any],
    stream: bool = False,
    **more: Any,
) -> tuple[list[Body], MemoryManager]:
    """Return the bodies of an agent's requests over several compressions."""
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=BUDGET))
    provider = MemmanHistoryProvider(memory, cache="auto")
    image = Content.from_uri(PIXEL, media_type="image/png")

    async def play(url: str) -> None:
        client = client_of(url)
        agent = Agent(client, "You read code.", tools=[read], context_providers=[provider], **more)
        for turn in range(TURNS):
            session = AgentSession(session_id="s")  # as after a restart
            said = Message("user", [f"question {turn}", *([image] if turn > TURNS - 2 else [])])
            if not stream:
                await agent.run(said, session=session)
                continue
            async for _ in (updates := agent.run(said, session=session, stream=True)):
                pass
            await updates.get_final_response()
        await (client.client if hasattr(client, "client") else client.anthropic_client).close()

    scripted = [next(answers) for _ in range(2 * TURNS)]
    with loopback(path, *scripted) as server:
        asyncio.run(play(server.url))
        bodies = [request.body for request in server.received]
    assert len(bodies) == 2 * TURNS
    assert memory.get_summaries("s")
    log = [entry.type for entry in memory.get_entries("s")]
    assert log.count("tool_call") == log.count("tool_result") == 2 * TURNS
    reports = [each for each in memory.export_session("s").log if isinstance(each, UsageReported)]
    assert [report.input_tokens for report in reports] == [900] * 2 * TURNS
    return bodies, memory


def keeps_prefix(bodies: Sequence[Body], key: str) -> list[bool]:
    """Return for each request whether the one before is its beginning."""
    return [two[key][: len(one[key])] == one[key] for one, two in pairwise(bodies)]


# ---------------------------------------------------------------- OpenAI


def openai(client_type: type[Any]) -> Callable[[str], Any]:
    """Return what makes a client of OpenAI's own server, which this machine answers for."""

    def made(url: str) -> Any:
        target = urlsplit(url)

        async def redirect(request: Any) -> None:
            request.url = request.url.copy_with(
                scheme="http", host=target.hostname, port=target.port
            )

        sdk = AsyncOpenAI(api_key="none", base_url="https://api.openai.com/v1")
        sdk._client.event_hooks = {"request": [redirect]}
        return client_type(model="gpt-5", async_client=sdk)

    return made


def responses() -> Iterator[Answer]:
    number = 0
    while True:
        for asks in (True, False):
            number += 1
            thought = {
                "type": "reasoning", "id": f"rs_{number}", "summary": [],
                "encrypted_content": f"secret-{number}",
            }  # fmt: skip
            calls = [
                {
                    "type": "function_call", "id": f"fc_{number}{x}", "call_id": f"call_{number}{x}",
                    "name": "read", "arguments": json.dumps({"path": f"{x}.py"}), "status": "completed",
                }
                for x in "ab"
            ]  # fmt: skip
            text = {"type": "output_text", "text": f"answer {number}", "annotations": []}
            answer = {
                "type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
                "content": [text],
            }  # fmt: skip
            usage = {
                "input_tokens": 900, "output_tokens": 20, "total_tokens": 920,
                "input_tokens_details": {"cached_tokens": 800, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            }  # fmt: skip
            yield Answer(
                body={
                    "id": f"resp_{number}", "object": "response", "created_at": 1, "model": "gpt-5",
                    "output": [thought, *(calls if asks else [answer])], "parallel_tool_calls": True,
                    "tool_choice": "auto", "tools": [], "usage": usage, "status": "completed",
                }
            )  # fmt: skip


def test_openai_gets_valid_responses_requests_and_a_key() -> None:
    bodies, _ = sent("/responses", responses(), openai(OpenAIChatClient))
    assert [check(body["input"], "openai-responses") for body in bodies] == [[]] * len(bodies)
    assert {body["store"] for body in bodies} == {False}, "the conversation is memman's"
    assert not any("previous_response_id" in body for body in bodies)
    assert len({body["prompt_cache_key"] for body in bodies}) == 1
    assert "secret-" in str(bodies[-1]["input"]), "reasoning goes back"
    assert PIXEL in str(bodies[-1]["input"])
    kept = keeps_prefix(bodies, "input")
    assert len(kept) / 2 < sum(kept) < len(kept)  # all but those after a compression


def chunks() -> Iterator[Answer]:
    number = 0
    while True:
        for asks in (True, False):
            number += 1
            calls = [
                {
                    "index": index, "id": f"call_{number}{x}", "type": "function",
                    "function": {"name": "read", "arguments": json.dumps({"path": f"{x}.py"})},
                }
                for index, x in enumerate("ab")
            ]  # fmt: skip
            deltas: list[Body] = [{"role": "assistant"}]
            deltas += [{"tool_calls": calls}] if asks else [{"content": "an"}, {"content": "swer"}]
            usage = {"prompt_tokens": 900, "completion_tokens": 20, "total_tokens": 920}
            head = {
                "id": f"r{number}",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "gpt-5",
            }
            events = [{**head, "choices": [{"index": 0, "delta": each}]} for each in deltas]
            reason = "tool_calls" if asks else "stop"
            end = {"index": 0, "delta": {}, "finish_reason": reason}
            events += [{**head, "choices": [end]}, {**head, "choices": [], "usage": usage}]
            lines = [*map(json.dumps, events), "[DONE]"]
            body = "".join(f"data: {line}\n\n" for line in lines).encode()
            yield Answer(body=body, headers={"content-type": "text/event-stream"})


def test_streamed_chat_completions_are_valid() -> None:
    client_of = openai(OpenAIChatCompletionClient)
    bodies, memory = sent("/chat/completions", chunks(), client_of, stream=True)
    assert [check(body["messages"], "openai-chat") for body in bodies] == [[]] * len(bodies)
    answers = [e.text for e in memory.get_entries("s") if e.role == "assistant" and not e.call_id]
    assert answers == ["answer"] * TURNS
    assert PIXEL in str(bodies[-1]["messages"])
    assert len({body["prompt_cache_key"] for body in bodies}) == 1


# ---------------------------------------------------------------- Anthropic


def anthropic_messages() -> Iterator[Answer]:
    number = 0
    while True:
        for asks in (True, False):
            number += 1
            calls = [
                {"type": "tool_use", "id": f"t_{number}{x}", "name": "read", "input": {"path": x}}
                for x in "ab"
            ]
            content = [
                {"type": "thinking", "thinking": "Hm.", "signature": f"signed-{number}"},
                *(calls if asks else [{"type": "text", "text": f"answer {number}"}]),
            ]
            usage = {
                "input_tokens": 50, "output_tokens": 20,
                "cache_read_input_tokens": 800, "cache_creation_input_tokens": 50,
            }  # fmt: skip
            yield Answer(
                body={
                    "id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude",
                    "content": content, "stop_reason": "tool_use" if asks else "end_turn",
                    "stop_sequence": None, "usage": usage,
                }
            )  # fmt: skip


def anthropic(url: str) -> AnthropicClient:
    sdk = AsyncAnthropic(api_key="none", base_url=url)
    return AnthropicClient(model="claude-sonnet-5-5", anthropic_client=sdk)


@pytest.mark.parametrize("own", [None, {"type": "ephemeral", "ttl": "1h"}])
def test_anthropic_gets_valid_messages_and_a_mark(own: Body | None) -> None:
    more = {"default_options": {"cache_control": own}} if own else {}
    bodies, _ = sent("/v1/messages", anthropic_messages(), anthropic, **more)
    for body in bodies:
        broken = check(body["messages"], "anthropic", system=body["system"])
        # The client passes the framework's messages on one by one, and the API joins neighbours.
        assert [each for each in broken if each.rule != "order.alternate"] == []
        assert body["cache_control"] == (own or {"type": "ephemeral", "ttl": "5m"})
    assert "signed-" in str(bodies[-1]["messages"]), "reasoning goes back with its signature"
    kept = keeps_prefix(bodies, "messages")
    assert len(kept) / 2 < sum(kept) < len(kept)
