"""The requests that LangChain's own chat models send with `cache="auto"`."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from memman_langchain import MemmanMiddleware, MemmanSummarization

from memman import MemoryConfig, MemoryManager
from memman.testing import Answer
from memman.testing.loopback import loopback

CLAUDE = {
    "id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5",
    "stop_reason": "end_turn", "stop_sequence": None,
    "content": [{"type": "text", "text": "It returns 1. " * 20}],
    "usage": {"input_tokens": 9, "output_tokens": 9},
}  # fmt: skip
GPT = {
    "id": "m", "object": "chat.completion", "created": 1, "model": "gpt-5",
    "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None,
                 "message": {"role": "assistant", "content": "It returns 1. " * 20}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18},
}  # fmt: skip
BEDROCK = {
    "output": {"message": {"role": "assistant", "content": [{"text": "It returns 1. " * 20}]}},
    "stopReason": "end_turn", "metrics": {"latencyMs": 1},
    "usage": {"inputTokens": 9, "outputTokens": 9, "totalTokens": 18},
}  # fmt: skip


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return path


def reviewer(model: Any, memory: MemoryManager) -> Any:
    return create_agent(
        model,
        [read_file],
        system_prompt="You review code.",
        middleware=[MemmanMiddleware(memory, cache="auto")],
        checkpointer=InMemorySaver(),
    )


def sent(
    name: str, path: str, reply: Any, turns: int = 40, make: Any = reviewer, **settings: Any
) -> list[Any]:
    """Return the bodies of an agent's requests over several compressions."""
    config = MemoryConfig(**{"max_tokens": 3_000, "max_entries": None} | settings)
    with loopback(path, Answer(body=reply)) as server, MemoryManager(config=config) as memory:
        provider = name.partition(":")[0]
        access = {
            "anthropic": {"api_key": "key", "base_url": server.url},
            "openai": {"api_key": "key"},
            "bedrock_converse": {
                "aws_access_key_id": "id",
                "aws_secret_access_key": "key",
                "region_name": "us-east-1",
                "endpoint_url": server.url,
            },
        }
        model = init_chat_model(name, **access[provider])
        if provider == "openai":  # a base URL of one's own means another server
            model.root_client = model.root_client.with_options(base_url=f"{server.url}/v1")
            model.client = model.root_client.chat.completions
        agent = make(model, memory)
        for turn in range(turns):
            question = {"messages": [("user", f"What does module {turn} do? " * 9)]}
            agent.invoke(question, {"configurable": {"thread_id": "t"}})
        assert len(memory.get_summaries("t")) > 0
        return [request.body for request in server.received]


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_marks(each) for key, each in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [without_marks(each) for each in value]
    return value


@pytest.mark.parametrize(("ttl", "named"), [(300.0, "5m"), (3_600.0, "1h")])
def test_claude_gets_marks_behind_head_and_conversation(ttl: float, named: str) -> None:
    mark = {"type": "ephemeral", "ttl": named}
    bodies = sent("anthropic:claude-sonnet-5-5", "/messages", CLAUDE, cache_ttl=ttl)
    for body in bodies:
        assert body["tools"][-1]["cache_control"] == mark
        assert body["system"][-1]["cache_control"] == mark
        assert body["cache_control"] == mark  # the provider marks the last block
        assert str(body).count("cache_control") == 3
    heads = [without_marks([body["tools"], body["system"]]) for body in bodies]
    assert all(head == heads[0] for head in heads)  # read from the cache after a compression, too
    talks = [without_marks(body["messages"]) for body in bodies]
    kept = [two[: len(one)] == one for one, two in pairwise(talks)]
    assert len(kept) / 2 < sum(kept) < len(kept)  # all but those after a compression


def test_gpt_gets_one_key_for_a_session() -> None:
    bodies = sent("openai:gpt-5", "/completions", GPT)
    keys = {body["prompt_cache_key"] for body in bodies}
    assert len(keys) == 1
    assert keys.pop().startswith("memman-")


def test_bedrock_gets_marks_behind_head_and_conversation() -> None:
    pytest.importorskip("langchain_aws", reason="runs with the oldest releases")
    name = "anthropic.claude-sonnet-4-5-20250929-v1:0"
    bodies = sent(f"bedrock_converse:{name}", "/converse", BEDROCK, cache_ttl=3_600.0)
    mark = {"cachePoint": {"type": "default", "ttl": "1h"}}
    for body in bodies:
        assert body["toolConfig"]["tools"][-1] == mark
        assert body["system"][-1] == mark
        assert body["messages"][-1]["content"][-1] == mark


@pytest.mark.parametrize("order", ["before", "after", "deep"])
def test_other_caching_middleware_adds_no_marks(order: str) -> None:
    def make(model: Any, memory: MemoryManager) -> Any:
        own, other = MemmanMiddleware(memory, cache="auto"), AnthropicPromptCachingMiddleware()
        if order == "deep":  # deepagents adds the other by itself
            kept = MemmanSummarization(memory, cache="auto")
            return create_deep_agent(
                model, [read_file], middleware=[kept], checkpointer=InMemorySaver()
            )
        chain = [other, own] if order == "before" else [own, other]
        return create_agent(model, [read_file], middleware=chain, checkpointer=InMemorySaver())

    budget = 11_000 if order == "deep" else 3_000
    bodies = sent("anthropic:claude-sonnet-5-5", "/messages", CLAUDE, 60, make, max_tokens=budget)
    assert all(1 <= json.dumps(body).count('"cache_control"') <= 4 for body in bodies)
