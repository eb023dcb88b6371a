"""Summaries that continue the session's last request, with a summarizer in this process."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from memman import AsyncMemoryManager, MemoryConfig, MemoryManager, SummaryReply, SummaryUsage
from memman.protocols import SummaryRequest
from memman.testing import FakeClock, ScriptedSummarizer, record_events

S = "s"
MODEL = "gpt-5"
FORM = "openai-chat"
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
SYSTEM = "You review code. " * 20
CLOCK = FakeClock()
GOOD = SummaryReply(text="They read many files.", usage=SummaryUsage(9_000, 20, 8_500, 100))


class Continuing(ScriptedSummarizer):
    """Takes prefixes in OpenAI's chat format."""

    prefix_formats = (FORM,)

    def __init__(self, *replies: Any, model: str = f"openai/{MODEL}") -> None:
        super().__init__(*(replies or (GOOD,)))
        self.model = model


def manager(summarizer: Any = None, **given: Any) -> MemoryManager:
    settings = {"max_tokens": 20_000, "auto_compress": False, **given.pop("settings", {})}
    given = {"model": MODEL, "clock": CLOCK, **given}
    return MemoryManager(
        summarizer=summarizer or Continuing(), config=MemoryConfig(**settings), **given
    )


def fill(memory: Any, turns: int = 40, start: int = 0) -> None:
    for number in range(start, start + turns):
        memory.add_user_message(S, f"Look at file {number}, please.")
        memory.add_tool_call(S, "read", {"path": f"src/{number}.py"}, call_id=f"c{number}")
        memory.add_tool_result(S, "read", f"def f{number}(): pass\n" * 30, call_id=f"c{number}")
        memory.add_assistant_message(S, f"File {number} defines a function. " * 6)


def built(memory: MemoryManager, **given: Any) -> Any:
    return memory.build_context(S, **{"format": FORM, "system": SYSTEM, "tools": TOOLS, **given})


def asked(memory: MemoryManager, **given: Any) -> list[SummaryRequest]:
    """Compress, and return the requests to the summarizer."""
    memory.compress(S, **{"target_tokens": 6_000, "summarize": True, **given})
    summarizer = memory._core.summarizers._given
    assert summarizer is not None
    return list(summarizer.port.requests)


def test_request_has_the_last_context_and_an_instruction() -> None:
    memory = manager()
    fill(memory)
    context = built(memory)
    memory.add_assistant_message(S, "The next file is larger.")
    [request] = asked(memory, focus="names")
    prefix = request.prefix
    assert prefix is not None
    assert (prefix.format, prefix.messages) == (FORM, context.messages)
    assert (prefix.system, prefix.tools) == (context.system, TOOLS)
    assert "Pay special attention to: names." in request.instruction
    assert "[memman conversation]" in request.prompt  # complete without the prefix, too


def test_instruction_names_where_the_part_ends() -> None:
    memory = manager()
    fill(memory)
    built(memory)
    entries = memory.get_active_entries(S)
    [request] = asked(memory)
    last = request.entries[-1]
    following = next(entry for entry in entries if entry.seq > last.seq)
    assert f"(entry #{last.seq}) that begins with" in request.instruction
    assert f"(entry #{following.seq}) that begins with" in request.instruction
    assert '"File' in request.instruction
    assert "call no tool" in request.instruction


def test_cached_tokens_are_in_cost_and_stats() -> None:
    memory = manager()
    fill(memory)
    built(memory)
    result = memory.compress(S, target_tokens=6_000, summarize=True)
    cost = result.cost
    assert (cost.cached_tokens, cost.cache_written_tokens, cost.input_tokens) == (8_500, 100, 9_000)
    assert memory.get_stats(S).cost == cost


def test_earlier_summary_is_part_of_the_prefix() -> None:
    memory = manager()
    fill(memory)
    asked(memory)
    fill(memory, turns=55, start=40)
    built(memory)
    request = asked(memory)[-1]
    assert request.prefix is not None
    assert request.previous_summary == GOOD.text
    assert GOOD.text in str(request.prefix.messages)


def test_new_entries_of_the_part_are_quoted() -> None:
    memory = manager(settings={"recent_window": 0})
    fill(memory)
    built(memory)
    memory.add_user_message(S, "One more: is main.py fine?")
    memory.add_assistant_message(S, "It is fine.")
    memory.add_user_message(S, "Good.")
    memory.add_assistant_message(S, "Thank you.")
    [request] = asked(memory, target_tokens=None)
    assert request.prefix is not None
    quoted = request.instruction.partition("[memman conversation]")[2]
    assert "It is fine." in quoted
    assert "file 3," not in quoted
    assert "Nothing follows it." in request.instruction


# ---------------------------------------------------------------- when there is no prefix


def unchanged(entry: Any) -> Any:
    return entry


def without_context(memory: MemoryManager) -> None:
    """Build nothing."""


def with_new_shape(memory: MemoryManager) -> None:
    built(memory)
    memory.compress(S, target_tokens=memory.get_stats(S).active_tokens - 500, summarize=False)


def trimmed(memory: MemoryManager) -> None:
    assert built(memory, budget=5_000).trimmed


def of_another_format(memory: MemoryManager) -> None:
    built(memory, format="anthropic")


def for_another_model(memory: MemoryManager) -> None:
    built(memory, model="gpt-4.1")


def without_its_tools(memory: MemoryManager) -> None:
    built(memory, tools=None)


def with_a_prompt_elsewhere(memory: MemoryManager) -> None:
    built(memory, system_inline=False)


def to_show_it(memory: MemoryManager) -> None:
    built(memory, complete=False)


def long_ago(memory: MemoryManager) -> None:
    built(memory)
    CLOCK.advance(timedelta(seconds=301))


def of_another_era(memory: MemoryManager) -> None:
    built(memory)
    memory.clear_session(S)
    fill(memory)


@pytest.mark.parametrize(
    "prepare",
    [
        without_context, with_new_shape, trimmed, of_another_format, for_another_model, without_its_tools,
        with_a_prompt_elsewhere, to_show_it, long_ago, of_another_era,
    ],
)  # fmt: skip
def test_other_last_requests_are_not_continued(prepare: Any) -> None:
    memory = manager()
    fill(memory)
    prepare(memory)
    [request] = asked(memory)
    assert (request.prefix, request.instruction) == (None, "")


@pytest.mark.parametrize(
    "given",
    [
        {"settings": {"summarize_on_prefix": False}},
        {"settings": {"cache_ttl": None}},
        {"settings": {"summary_prompt": "Briefly: {content}"}},
        {"settings": {"summarizer_window": 5_000}},
        {"settings": {"overhead_tokens": 3_000}},
        {"model": None},
        {"model": "gpt-5-mini"},
        {"model": "azure/gpt-5"},
        {"redact": unchanged},
        {"summarizer": Continuing(model="openai/gpt-5-mini")},
        {"summarizer": Continuing(model=f"localhost:1/v1/{MODEL}")},
        {"summarizer": ScriptedSummarizer(GOOD)},
    ],
)
def test_settings_and_models_that_prevent_it(given: dict[str, Any]) -> None:
    memory = manager(**given)
    fill(memory)
    built(memory)
    assert [request.prefix for request in asked(memory)][:1] == [None]


def test_callable_gets_the_ordinary_prompt() -> None:
    prompts: list[str] = []

    def summarize(prompt: str) -> str:
        prompts.append(prompt)
        return "They read files."

    memory = manager(summarize)
    fill(memory)
    built(memory)
    memory.compress(S, target_tokens=6_000, summarize=True)
    assert prompts[0].startswith("Summarize the conversation")


def test_short_part_of_a_long_window_is_quoted() -> None:
    """The ordinary prompt is cheaper than reading the whole prefix from the cache."""
    memory = manager(settings={"min_entries_to_compress": 1})
    memory.add_user_message(S, "Begin. " * 30)
    memory.add_assistant_message(S, "Begun. " * 30)
    memory.add_user_message(S, "Keep this. " * 6_000, pinned=True)
    fill(memory, 3)
    built(memory)
    assert [each.prefix for each in asked(memory, target_tokens=None)] == [None]


# ---------------------------------------------------------------- replies


@pytest.mark.parametrize(
    "bad",
    [
        SummaryReply(text="I will look.", calls_tool=True, usage=SummaryUsage(100, 1, 90)),
        SummaryReply(text="", usage=SummaryUsage(100, 1, 90)),
        SummaryReply(text="No.", refused=True, usage=SummaryUsage(100, 1, 90)),
        SummaryReply(text="They", truncated=True, usage=SummaryUsage(100, 1, 90)),
    ],
)
def test_bad_reply_is_followed_by_the_ordinary_prompt(bad: SummaryReply) -> None:
    memory = manager(Continuing(bad, GOOD))
    fill(memory)
    built(memory)
    with record_events() as emitted:
        first, second = asked(memory)
    assert first.prefix is not None
    assert second.prefix is None
    [notice] = [each for each in emitted if type(each).__name__ == "CompressionFailedNotice"]
    assert notice.fallback == "the ordinary prompt is sent"  # type: ignore[attr-defined]
    [result] = [each for each in emitted if type(each).__name__ == "CompressionResult"]
    assert (result.cost.calls, result.cost.cached_tokens) == (2, 8_590)  # type: ignore[attr-defined]
    assert memory.get_summaries(S)[0].content == GOOD.text


def test_long_reply_is_requested_again_on_the_prefix() -> None:
    long = SummaryReply(text="They read a file and then another one. " * 300)
    memory = manager(Continuing(long, GOOD))
    fill(memory)
    built(memory)
    first, second = asked(memory)
    assert first.prefix == second.prefix
    assert second.instruction.startswith("The last attempt was rejected because the summary had")


def test_failure_leaves_the_ordinary_prompt_the_rest_of_the_time() -> None:
    clock = FakeClock()

    def slow(_request: SummaryRequest) -> SummaryReply:
        clock.advance(timedelta(seconds=50))
        raise ConnectionError("gone")

    memory = manager(Continuing(slow, GOOD), clock=clock)
    fill(memory)
    built(memory)
    first, second = asked(memory)
    assert (first.timeout, second.timeout) == (60.0, 10.0)
    assert memory.get_summaries(S)[0].content == GOOD.text


def test_failure_that_took_all_the_time_ends_in_the_outline() -> None:
    clock = FakeClock()

    def slow(_request: SummaryRequest) -> SummaryReply:
        clock.advance(timedelta(seconds=60))
        raise ConnectionError("gone")

    memory = manager(Continuing(slow, GOOD), clock=clock)
    fill(memory)
    built(memory)
    result = memory.compress(S, target_tokens=6_000, summarize=True)
    assert result.cost.calls == 1
    assert "outline" in [item.method for item in result.replacements]
    assert "ConnectionError" in result.reason


def test_async_manager_continues_the_last_request() -> None:
    async def run() -> list[SummaryRequest]:
        summarizer = Continuing()
        config = MemoryConfig(max_tokens=20_000, auto_compress=False)
        async with AsyncMemoryManager(model=MODEL, summarizer=summarizer, config=config) as memory:
            for number in range(60):
                await memory.add_user_message(S, f"Look at {number}. " * 20)
                await memory.add_assistant_message(S, f"It is fine, {number}. " * 20)
            context = await memory.build_context(S, format=FORM)
            await memory.compress(S, target_tokens=6_000)
            prefix = summarizer.requests[0].prefix
            assert prefix is not None
            assert prefix.messages == context.messages
        return summarizer.requests

    assert len(asyncio.run(run())) == 1


def test_automatic_compression_continues_the_last_request() -> None:
    summarizer = Continuing()
    memory = manager(summarizer, settings={"auto_compress": True, "strategy": "summary_buffer"})
    number = 0
    while not summarizer.requests:
        fill(memory, 1, start=number)
        if not summarizer.requests:
            context = built(memory)
        number += 1
    prefix = summarizer.requests[0].prefix
    assert prefix is not None
    assert prefix.messages == context.messages
