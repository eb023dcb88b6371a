"""Summaries behind the session's last request, by the plugins' summarizers and the real SDKs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memman import MemoryManager
from memman.events import CompressionResult
from tests.cached_providers import PROVIDERS, REPLY, Provider, S, agent_of, answered, serving, work

each_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda each: each.format)


def summarized(memory: MemoryManager) -> CompressionResult:
    return memory.compress(S, target_tokens=8_000, summarize=True)


def written(memory: MemoryManager, result: CompressionResult) -> set[str]:
    """Return the texts of the summaries without the outline."""
    outline = result.compression_id
    return {each.content for each in memory.get_summaries(S) if each.id != outline}


@each_provider
def test_summary_reads_its_input_from_the_cache(provider: Provider) -> None:
    with serving(provider) as server, agent_of(provider, server.url) as memory:
        work(memory, turns=50)
        answered(memory, provider, server.url, "Is file 3 fine?")
        result = summarized(memory)
        summaries = written(memory, result)
    sent, continued = server.bodies
    assert provider.head_of(continued) == provider.head_of(sent)
    before, instruction = provider.split(continued)
    assert before == json.dumps(provider.messages_of(sent))
    assert "call no tool" in instruction
    assert "def f3()" not in instruction
    charge = server.charges[-1]
    assert charge.read >= 0.9 * charge.total
    cost = result.cost
    assert (cost.calls, cost.cached_tokens) == (1, int(charge.read))
    assert cost.cached_tokens >= 0.9 * cost.input_tokens
    assert summaries == {REPLY}


@each_provider
def test_reply_that_calls_a_tool_is_refused(provider: Provider) -> None:
    with serving(provider) as server, agent_of(provider, server.url) as memory:
        work(memory)
        answered(memory, provider, server.url, "Is file 3 fine?")
        server.tool_calls = 1
        result = summarized(memory)
        summaries = written(memory, result)
    _, continued, ordinary = server.bodies
    assert provider.tools_of(continued)
    assert is_ordinary(provider, ordinary)
    assert result.cost.calls == 2
    assert summaries == {REPLY}


@each_provider
@pytest.mark.parametrize(
    "given",
    [{"redact": lambda entry: entry}, {"other": True}, {"summarize_on_prefix": False}],
    ids=["redact", "another-model", "switched-off"],
)
def test_ordinary_prompt_is_sent(provider: Provider, given: dict[str, Any]) -> None:
    with serving(provider) as server, agent_of(provider, server.url, **given) as memory:
        work(memory)
        answered(memory, provider, server.url, "Is file 3 fine?")
        result = summarized(memory)
    assert result.cost.calls == len(server.bodies) - 1 > 0, result.reason
    assert all(is_ordinary(provider, body) for body in server.bodies[1:])


def is_ordinary(provider: Provider, body: Any) -> bool:
    """Return whether a request has the conversation as one quoted text, and no tools."""
    messages = json.dumps(provider.messages_of(body))
    return not provider.tools_of(body) and "[memman conversation]" in messages
