"""A failed attempt leaves its cost and its finished parts to the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memman import (
    AsyncMemoryManager,
    CompressionFailed,
    MemoryConfig,
    MemoryManager,
    events,
)
from memman.protocols import SummaryReply, SummaryUsage
from memman.testing import AsyncScriptedSummarizer, Delayed, ScriptedSummarizer

S = "s"
BILLED = SummaryUsage(input_tokens=100, output_tokens=10)
GOOD = SummaryReply(text="They talked.", model="acme-1", usage=BILLED)
CUT = SummaryReply(text="They", model="acme-1", usage=BILLED, truncated=True)


def config(**settings: Any) -> MemoryConfig:
    given = {"max_tokens": 1_000, "auto_compress": False, "on_failure": "keep", **settings}
    return MemoryConfig(**given)


def manager(*replies: Any, **settings: Any) -> MemoryManager:
    return MemoryManager(
        counter="chars4", summarizer=ScriptedSummarizer(*replies), config=config(**settings)
    )


def fill(memory: MemoryManager, entries: int = 20) -> None:
    for number in range(entries):
        memory.add_user_message(S, f"{number} " + "abc " * 60)


# ---------------------------------------------------------------- costs


def test_cost_of_a_futile_compression_is_in_event_and_stats() -> None:
    memory = manager(CUT, CUT, GOOD)
    emitted: list[events.CompressionFailedNotice] = []

    def note(sender: Any, event: events.CompressionFailedNotice) -> None:
        emitted.append(event)

    events.compression_failed.connect(note)
    fill(memory)
    result = memory.compress(S)
    assert result.compression_id is None
    assert (result.cost.calls, result.cost.input_tokens, result.cost.model) == (2, 200, "acme-1")
    assert [event.cost for event in emitted] == [result.cost]
    assert memory.get_stats(S).cost == result.cost


def test_next_committed_compression_records_that_cost_once() -> None:
    memory = manager(CUT, CUT, GOOD)
    fill(memory)
    memory.compress(S)
    done = memory.compress(S)
    assert (done.cost.calls, done.cost.input_tokens) == (3, 300)
    assert memory.get_stats(S).cost == done.cost
    again = MemoryManager(counter="chars4")
    again.import_session(memory.export_session(S))
    assert again.get_stats(S).cost.calls == 3


def test_cost_of_a_compression_that_raised_is_kept() -> None:
    memory = manager(CUT, on_failure="raise")
    fill(memory)
    with pytest.raises(CompressionFailed):
        memory.compress(S)
    assert memory.get_stats(S).cost.calls == 2


def test_a_call_that_was_cancelled_counts() -> None:
    async def run() -> int:
        summarizer = AsyncScriptedSummarizer(Delayed(GOOD, 60.0))
        memory = AsyncMemoryManager(counter="chars4", summarizer=summarizer, config=config())
        for number in range(20):
            await memory.add_user_message(S, f"{number} " + "abc " * 60)
        task = asyncio.create_task(memory.compress(S))
        while not summarizer.requests:  # noqa: ASYNC110 - the fake has no event to wait for
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await memory.get_stats(S)).cost.calls

    assert asyncio.run(run()) == 1


def test_a_clear_begins_a_new_account() -> None:
    memory = manager(CUT)
    fill(memory)
    memory.compress(S)
    memory.clear_session(S)
    assert memory.get_stats(S).cost.calls == 0


# ---------------------------------------------------------------- parts


def in_parts(*replies: Any, **settings: Any) -> tuple[MemoryManager, ScriptedSummarizer]:
    """Return a session whose old part is summarized in several calls."""
    summarizer = ScriptedSummarizer(*replies)
    memory = MemoryManager(
        counter="chars4",
        summarizer=summarizer,
        config=config(max_tokens=4_000, summarizer_window=2_000, max_entries=None, **settings),
    )
    fill(memory, 80)
    return memory, summarizer


def test_finished_parts_are_not_requested_again() -> None:
    memory, summarizer = in_parts("one", "two", "three", RuntimeError("down"), "more")
    assert memory.compress(S).compression_id is None
    prompts = [request.prompt for request in summarizer.requests]
    assert len(prompts) == 4
    done = memory.compress(S)
    later = [request.prompt for request in summarizer.requests[4:]]
    assert done.compression_id is not None
    assert later[0] == prompts[3]
    assert not {*prompts[:3]} & {*later}
    assert any("one" in prompt and "two" in prompt and "three" in prompt for prompt in later)


def test_another_summarizer_gets_all_parts() -> None:
    memory, _ = in_parts("one", "two", RuntimeError("down"))
    memory.compress(S)
    other = ScriptedSummarizer("more")
    memory.set_summarize_callback(other)
    memory.compress(S)
    assert "#2 " in other.requests[0].prompt


def test_part_with_a_deleted_entry_is_requested_again() -> None:
    memory, summarizer = in_parts("one", "two", RuntimeError("down"), "more")
    memory.compress(S)
    memory.delete_entries(S, [memory.get_entries(S)[3].id])
    memory.compress(S)
    assert "#2 " in summarizer.requests[3].prompt
