"""System prompt, tools and framing count against the trigger, and a trimmed context is reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memman import AsyncMemoryManager, MemoryConfig, MemoryManager, events
from memman.testing import record_events

S = "s"


def tools_of(number: int) -> list[dict[str, Any]]:
    """Return so many tools, of about 290 tokens each by `chars4`."""
    properties = {
        f"a{place}": {"type": "string", "description": "an argument of the tool"}
        for place in range(5)
    }
    return [
        {
            "type": "function",
            "function": {
                "name": f"tool_{place}",
                "description": "does something useful with the thing " * 20,
                "parameters": {"type": "object", "properties": properties},
            },
        }
        for place in range(number)
    ]


def manager(**settings: Any) -> MemoryManager:
    return MemoryManager(counter="chars4", config=MemoryConfig(**settings))


@pytest.mark.parametrize("number", [75, 90])
def test_contexts_with_many_tools_are_not_trimmed(number: int) -> None:
    memory, tools, trimmed = manager(max_tokens=32_000), tools_of(number), 0
    with record_events(memory, [events.ContextTrimmed, events.CompressionResult]) as seen:
        for turn in range(200):
            memory.add_user_message(S, f"question number {turn} " + "word " * 150)
            context = memory.build_context(S, tools=tools)
            trimmed += bool(context.trimmed)
            memory.add_assistant_message(S, f"answer number {turn} " + "word " * 150)
    assert 0.65 * 32_000 < context.breakdown["tools"] < 0.85 * 32_000
    assert trimmed == 0
    assert not [event for event in seen if isinstance(event, events.ContextTrimmed)]
    compressions = len(seen)
    room = 32_000 - context.breakdown["tools"]
    assert compressions <= 1 + 200 * 2 * 200 // (room // 3)


def test_tool_loop_with_many_tools_keeps_its_goal() -> None:
    memory, tools = manager(max_tokens=17_000), tools_of(35)
    memory.add_user_message(S, "GOAL-7731: fix the flaky login test, never touch prod.")
    for turn in range(120):
        memory.add_tool_call(S, "tool_1", {"path": f"src/f{turn}.py"}, call_id=f"c{turn}")
        memory.add_tool_result(S, "tool_1", f"line {turn} of a file " * 60, call_id=f"c{turn}")
        memory.add_assistant_message(S, f"I looked at f{turn} and found nothing, next. " * 4)
        assert not memory.build_context(S, tools=tools).trimmed


@pytest.mark.parametrize(
    ("model", "format"), [(None, "openai-chat"), ("claude-sonnet-4-5", "anthropic")]
)
def test_framing_counts_before_the_first_context(model: str | None, format: str) -> None:
    config = MemoryConfig(max_tokens=400, max_entries=None)
    memory = MemoryManager(model=model, format=format, counter="chars4", config=config)
    for turn in range(80):
        memory.add_tool_call(S, "ls", {}, call_id=f"c{turn}")
        memory.add_tool_result(S, "ls", "a", call_id=f"c{turn}")
    assert memory.get_stats(S).compressed_entries
    assert memory.get_stats(S).overhead_tokens > 0
    assert not memory.build_context(S).trimmed


def test_short_messages_stay_if_they_fit_with_framing() -> None:
    memory = manager(max_tokens=100)
    for turn in range(80):
        (memory.add_user_message if turn % 2 else memory.add_assistant_message)(S, "hi")
    context = memory.build_context(S)
    assert not context.trimmed
    assert 40 <= context.tokens.tokens <= 100


def test_trimmed_context_emits_the_left_out_entries() -> None:
    memory = manager(max_tokens=10_000)
    entries = [memory.add_user_message(S, f"{turn} " + "word " * 100) for turn in range(20)]
    head = entries[-1].seq
    with record_events(memory, [events.ContextTrimmed]) as seen:
        context = memory.build_context(S, budget=1_000, format="anthropic")
        again = memory.build_context(S, budget=1_000, format="anthropic")
    assert again is context
    [event] = seen
    assert isinstance(event, events.ContextTrimmed)
    assert event.entries == tuple(entry_id for item in context.trimmed for entry_id in item.ids)
    assert entries[0].id in event.entries
    whole = memory.build_context(S, format="anthropic").tokens.tokens
    assert event.tokens == whole - context.tokens.tokens > 0
    assert (event.budget, event.format) == (1_000, "anthropic")
    assert memory.add_user_message(S, "next").seq == head + 1


def test_a_receiver_of_a_trimmed_context_may_call_the_manager() -> None:
    async def trimmed() -> list[int]:
        async with AsyncMemoryManager(counter="chars4") as memory:
            stats: list[int] = []

            async def receive(event: events.ContextTrimmed) -> None:
                stats.append((await memory.get_stats(event.session_id)).total_entries)

            memory.on("context_trimmed", receive)
            for _ in range(20):
                await memory.add_user_message(S, "word " * 100)
            await memory.build_context(S, budget=1_000)
            return stats

    assert asyncio.run(trimmed()) == [20]


CHANGED = "漢字かな交じり文 and a number %d"


def test_window_is_priced_by_the_counter_that_came_back() -> None:
    memory = MemoryManager(model="gpt-4o")
    for number in range(5):
        memory.add_user_message("s", CHANGED % number)
    before = memory.get_stats("s").active_tokens
    for model in ("claude-sonnet-4-5", "gpt-4o"):
        memory.update_config(model=model)
        memory.build_context("s")
    assert memory.get_stats("s").active_tokens == before


def test_overhead_after_another_model_is_that_of_its_own_framing() -> None:
    def overhead(*models: str) -> int:
        memory = MemoryManager(model=models[0], config=MemoryConfig(max_tokens=20_000))
        for number in range(100):
            entry = memory.add_user_message("s", f"hi {number}")
        for model in models:
            memory.get_stats("s")
            memory.update_config(model=model)
        memory.build_context("s")
        memory.pin("s", entry.id)
        return memory.get_stats("s").overhead_tokens

    assert overhead("claude-sonnet-4-5", "gpt-4o") == overhead("gpt-4o")
