"""Requests of LlamaIndex's own models to a server: what is sent, and what is learned from the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from llama_index.llms.openai import OpenAI
from memman_llama_index import MemmanFunctionAgent, MemmanMemory

from memman import MemoryConfig, MemoryManager
from memman.formats.rules import check
from memman.records import UsageReported
from memman.testing import Answer
from memman.testing.loopback import LoopbackServer, loopback

TOKENS = {"prompt_tokens": 90, "completion_tokens": 5, "total_tokens": 95}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "read", "arguments": '{"path": "a.py"}'},
}


def read(path: str) -> str:
    """Read a file."""
    return f"# {path}"


def completion(**message: Any) -> Answer:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    body = {"id": "c", "object": "chat.completion", "created": 0, "model": "gpt-4o"}
    return Answer(body={**body, "choices": [choice], "usage": TOKENS})


def streamed(*deltas: dict[str, Any]) -> Answer:
    base = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "gpt-4o"}
    chunks = [
        {**base, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}}]}
        for delta in deltas
    ]
    chunks[-1]["usage"] = TOKENS
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return Answer(
        body=f"{events}data: [DONE]\n\n".encode(), headers={"content-type": "text/event-stream"}
    )


def agent_at(server: LoopbackServer, streaming: bool) -> MemmanFunctionAgent:
    llm = OpenAI(model="gpt-4o", api_key="none", api_base=f"{server.url}/v1", max_retries=0)
    return MemmanFunctionAgent(llm=llm, tools=[read], streaming=streaming)


def played(agent: MemmanFunctionAgent, memory: MemmanMemory, texts: Sequence[str]) -> list[str]:
    async def run() -> list[str]:
        return [str(await agent.run(text, memory=memory)) for text in texts]

    return asyncio.run(run())


@pytest.mark.parametrize("streaming", [False, True])
def test_openai_gets_valid_requests_and_its_usage_is_recorded(streaming: bool) -> None:
    if streaming:
        call = {"tool_calls": [{**CALL, "index": 0}]}
        answers = [streamed(call), streamed({"content": "A test"}, {"content": " fails."})]
    else:
        answers = [
            completion(content=None, tool_calls=[CALL]),
            completion(content="A test fails."),
        ]
    manager = MemoryManager(model="gpt-4o")
    memory = MemmanMemory.from_defaults(manager, "s")
    with loopback("/chat/completions", *answers, *answers) as server:
        said = played(agent_at(server, streaming), memory, ["Why is it red?", "Which one?"])
        sent = [request.body["messages"] for request in server.received]
    assert said == ["A test fails."] * 2
    assert not any(check(messages, "openai-chat") for messages in sent)
    assert [message["role"] for message in sent[-1]] == [
        "user", "assistant", "tool", "assistant", "user", "assistant", "tool",
    ]  # fmt: skip
    entries = [entry for entry in manager.get_entries("s") if entry.text]  # a stream begins with ""
    steps = ["message", "tool_call", "tool_result", "message"]
    assert [entry.type for entry in entries] == steps * 2
    log = manager.export_session("s").log
    reports = [record.input_tokens for record in log if isinstance(record, UsageReported)]
    assert reports == [90] * 4


def test_limit_in_a_refusal_of_openai_is_learned() -> None:
    refusal = (
        "This model's maximum context length is 2000 tokens. However, your messages resulted in 2100 "
        "tokens. Please reduce the length of the messages."
    )
    error = {"message": refusal, "code": "context_length_exceeded"}
    answers = [completion(content="Yes.")] * 9 + [Answer(400, {"error": error})]
    config = MemoryConfig(max_tokens=100_000)
    memory = MemmanMemory.from_defaults(MemoryManager(model="gpt-4o", config=config), "s")
    texts = [f"{turn} " + "word " * 220 for turn in range(10)]
    with loopback("/chat/completions", *answers, completion(content="Yes.")) as server:
        assert played(agent_at(server, False), memory, texts) == ["Yes."] * 10
        sizes = [len(request.body["messages"]) for request in server.received]
    assert len(sizes) == 11
    assert sizes[10] < sizes[9]
    log = memory._memory.export_session("s").log
    assert len([record for record in log if isinstance(record, UsageReported)]) == 10
    assert memory._memory.build_context("s").budget <= 2_000
    assert len(memory.get_all()) == 20
