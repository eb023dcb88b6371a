"""A run that is too long for one call is summarized in pieces, and their summaries are merged."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memman import (
    AsyncMemoryManager,
    CompressionFailed,
    MemoryConfig,
    MemoryManager,
    SummaryReply,
    SummaryRequest,
    events,
)
from memman.protocols import SummaryUsage
from memman.stores import MemoryStore
from memman.testing import FakeClock, ScriptedSummarizer, record_events
from tests.compression.entries import chars4

S = "s"


class Windowed(ScriptedSummarizer):
    """A summarizer with a declared window."""

    max_input_tokens = 2_000


def manager(summarizer: Any, **settings: Any) -> MemoryManager:
    config = MemoryConfig(**{"auto_compress": False, "max_tokens": 20_000} | settings)
    return MemoryManager(counter="chars4", summarizer=summarizer, config=config)


def filled(memory: MemoryManager, entries: int = 100) -> MemoryManager:
    """Return entries of 100 tokens, each with its own number."""
    for number in range(entries):
        memory.add_user_message(S, f"n{number:03d} ".ljust(400, "x"))
    return memory


def prompts(scripted: ScriptedSummarizer) -> list[str]:
    return [request.prompt for request in scripted.requests]


def test_run_that_fits_takes_one_call() -> None:
    scripted = ScriptedSummarizer("short")
    filled(manager(scripted)).compress(S, target_tokens=2_000)
    assert len(scripted.requests) == 1


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("<think>\nWhat did they say?\n</think>\n\nThey spoke.", "They spoke."),
        ("They said <think>.", "They said <think>."),
    ],
)
def test_leading_thinking_is_not_part_of_the_summary(reply: str, text: str) -> None:
    memory = filled(manager(ScriptedSummarizer(reply)))
    memory.compress(S, target_tokens=2_000)
    assert memory.get_summaries(S)[0].content.split("\n")[0] == text


@pytest.mark.parametrize("reply", ["<think>All of it", "<think>All of it</think>"])
def test_nothing_but_thinking_is_an_empty_summary(reply: str) -> None:
    memory = filled(manager(ScriptedSummarizer(reply)))
    with record_events(memory) as emitted:
        result = memory.compress(S, target_tokens=2_000)
    assert "outline" in {item.method for item in result.replacements}
    assert emitted[0].reason == "the summary was empty"


def test_long_run_is_summarized_in_pieces_and_merged() -> None:
    scripted = ScriptedSummarizer(lambda request: f"part of {request.entries[0].id}")
    memory = filled(manager(scripted, summarizer_window=2_000))
    result = memory.compress(S, target_tokens=2_000)
    *parts, merge = scripted.requests
    assert len(parts) > 4
    assert all(chars4(request.prompt) <= 2_000 for request in scripted.requests)
    assert all(entry.type == "message" for request in parts for entry in request.entries)
    assert [entry.text for entry in merge.entries] == [
        f"part of {request.entries[0].id}" for request in parts
    ]
    assert merge.content.count("[memman summary so far of entries ") == len(parts)
    assert "[memman conversation]" not in merge.content
    summary, _ = memory.get_summaries(S)  # the other one is the outline
    assert summary.content == f"part of {merge.entries[0].id}"
    assert result.cost.calls == len(scripted.requests)


def test_each_entry_reaches_a_summarizer_once() -> None:
    scripted = ScriptedSummarizer("They said numbers.")
    memory = manager(scripted, summarizer_window=2_000)
    for _ in range(4):
        filled(memory, 60)
        memory.compress(S, target_tokens=2_000)
    emittedpts_text = "\n".join(prompts(scripted))
    seen = [entry.id for request in scripted.requests for entry in request.entries]
    added = {entry.id for entry in memory.get_entries(S) if entry.compressed}
    assert added <= set(seen)
    assert all(seen.count(entry_id) == 1 for entry_id in added)
    assert emittedpts_text.count("#2 User: n000 ") == 1


def test_an_entry_larger_than_the_window_reaches_it_in_pieces() -> None:
    scripted = ScriptedSummarizer("short")
    memory = manager(scripted, summarizer_window=2_000, min_entries_to_compress=1)
    memory.add_user_message(S, "".join(f"line {number}\n" for number in range(2_000)))
    filled(memory, 20)
    memory.compress(S, target_tokens=2_000)
    emittedpts_text = "\n".join(prompts(scripted))
    assert all(chars4(prompt) <= 2_000 for prompt in prompts(scripted))
    assert [n for n in range(2_000) if f"line {n}\n" not in emittedpts_text] == []


def test_parts_that_do_not_fit_together_are_merged_again() -> None:
    scripted = ScriptedSummarizer(lambda request: "word " * (request.target_tokens * 3 // 4))
    memory = filled(manager(scripted, summarizer_window=2_000, max_entries=None), 200)
    memory.compress(S, target_tokens=2_000)
    merges = [request for request in scripted.requests if request.entries[0].type == "summary"]
    assert len(merges) > 2
    assert scripted.requests[-1] is merges[-1]
    assert len(memory.get_summaries(S)) == 2  # the model's, and the outline


def test_run_with_too_many_pieces_is_outlined() -> None:
    scripted = ScriptedSummarizer("short")
    memory = manager(scripted, summarizer_window=1_000, max_tokens=200_000, max_entries=None)
    filled(memory, 900)
    with record_events(memory) as emitted:
        result = memory.compress(S, target_tokens=2_000)
    assert {item.method for item in result.replacements} == {"outline"}
    assert scripted.requests == []
    assert "too many calls of a summarizer with a window of 1000 tokens" in emitted[0].reason
    assert "not called: this much text needs too many calls" in result.reason


@pytest.mark.parametrize("broken", ["", OSError("429")])
def test_failed_part_fails_the_whole_summary(broken: Any) -> None:
    scripted = ScriptedSummarizer("short", "short", broken)
    memory = filled(manager(scripted, summarizer_window=2_000, on_failure="keep"))
    before = memory.export_session(S)
    result = memory.compress(S, target_tokens=2_000)
    assert result.compression_id is None
    assert memory.export_session(S) == before
    assert len(scripted.requests) == (4 if broken == "" else 3)


def test_setting_overrides_the_summarizers_window() -> None:
    calls = []
    for settings in ({}, {"summarizer_window": 4_000}, {"summarizer_window": 40_000}):
        scripted = Windowed("short")
        filled(manager(scripted, **settings)).compress(S, target_tokens=2_000)
        calls.append(len(scripted.requests))
    assert calls[0] > calls[1] > calls[2] == 1


def test_plan_of_a_long_run_calls_no_summarizer() -> None:
    scripted = ScriptedSummarizer("short")
    memory = filled(manager(scripted, summarizer_window=1_000))
    assert memory.plan_compression(S, target_tokens=2_000).asks_summarizer
    assert scripted.requests == []


# ---------------------------------------------------------------- costs


def billed(text: str, taken: int, given: int) -> SummaryReply:
    return SummaryReply(text=text, model="m-1", usage=SummaryUsage(taken, given))


def test_cost_of_all_calls_is_in_event_and_stats() -> None:
    scripted = ScriptedSummarizer(billed("", 100, 1), billed("short", 200, 10))
    clock = FakeClock(tick=timedelta(seconds=1))
    config = MemoryConfig(auto_compress=False, max_tokens=20_000)
    memory = MemoryManager(counter="chars4", summarizer=scripted, config=config, clock=clock)
    memory.add_user_message(S, "hello")
    assert memory.get_stats(S).cost.calls == 0
    filled(memory)
    first = memory.compress(S, target_tokens=2_000).cost
    assert (first.calls, first.input_tokens, first.output_tokens) == (2, 300, 11)
    assert (first.model, first.seconds) == ("m-1", 2.0)
    assert memory.get_stats(S).cost == first
    filled(memory)
    second = memory.compress(S, target_tokens=2_000).cost
    total = memory.get_stats(S).cost
    assert total == first.plus(second)
    assert (total.calls, total.input_tokens, total.output_tokens) == (3, 500, 21)
    memory.undo_compression(S)
    assert memory.get_stats(S).cost == total  # it was paid for
    other = MemoryManager(counter="chars4")
    other.import_session(memory.export_session(S))
    assert other.get_stats(S).cost == total
    memory.clear_session(S)
    assert memory.get_stats(S).cost.calls == 0


def test_cost_survives_reopening_the_session(tmp_path: Path) -> None:
    config = MemoryConfig(auto_compress=False, max_tokens=20_000)
    scripted = ScriptedSummarizer(billed("short", 200, 10))
    with MemoryManager(
        tmp_path / "chat.db", counter="chars4", summarizer=scripted, config=config
    ) as memory:
        cost = filled(memory).compress(S, target_tokens=2_000).cost
    with MemoryManager(tmp_path / "chat.db") as again:
        assert again.get_stats(S).cost == cost
        assert cost.input_tokens == 200


# ---------------------------------------------------------------- visible entries


def test_redact_runs_before_summaries_of_foreign_entries() -> None:
    store = MemoryStore()
    config = MemoryConfig(auto_compress=False)
    writer = MemoryManager(store, counter="chars4", config=config)
    for number in range(30):
        writer.add_user_message(S, f"{number} the key is sk-secret{number} " + "word " * 60)
    scripted = ScriptedSummarizer("short")

    def redact(entry: Any) -> Any:
        return msgspec.structs.replace(entry, content=entry.text.replace("sk-secret", "[key]-"))

    for summarizer in (scripted, None):
        reader = MemoryManager(
            store, counter="chars4", config=config, summarizer=summarizer, redact=redact
        )
        reader.compress(S, target_tokens=1_200)
        summaries = [summary.content for summary in reader.get_summaries(S)]
        assert len(summaries) == (1 if summarizer is None else 2)
        assert "secret" not in str(summaries)
        assert "[key]-" in summaries[-1]
        reader.undo_compression(S)
    [request] = scripted.requests
    assert "[key]-3" in request.prompt
    assert "secret" not in f"{request.prompt} {[entry.text for entry in request.entries]}"


def test_failing_redact_prevents_the_summary() -> None:
    store = MemoryStore()
    config = MemoryConfig(auto_compress=False)
    writer = MemoryManager(store, counter="chars4", config=config)
    for number in range(30):
        writer.add_user_message(S, f"{number} " + "word " * 60)
    scripted = ScriptedSummarizer("short")

    def broken(entry: Any) -> Any:
        raise RuntimeError("no rules loaded")

    reader = MemoryManager(store, summarizer=scripted, config=config, redact=broken)
    before = reader.export_session(S)
    with pytest.raises(CompressionFailed, match="redact raised RuntimeError"):
        reader.compress(S, target_tokens=1_200)
    assert (reader.export_session(S), scripted.requests) == (before, [])


@pytest.mark.parametrize("on_failure", ["fallback", "keep", "raise"])
@pytest.mark.parametrize("summarizer", ["a summarizer", "the outline"])
@pytest.mark.parametrize("api", ["sync", "async"])
def test_compression_error_names_a_failing_redact(
    api: str, summarizer: str, on_failure: Any
) -> None:
    scripted = ScriptedSummarizer("short")
    settings: dict[str, Any] = {"max_tokens": 1_000, "max_entries": None, "on_failure": on_failure}

    def broken(entry: Any) -> Any:
        if "secret" in entry.text:
            raise RuntimeError("no rule for sk-secret")
        return entry

    store, clock = MemoryStore(), FakeClock()
    writer = MemoryManager(store, config=MemoryConfig(auto_compress=False), counter="chars4")
    for number in range(30):
        writer.add_user_message(S, f"{number} the key is sk-secret{number} " + "word " * 60)
    given: dict[str, Any] = {"config": MemoryConfig(**settings), "counter": "chars4"}
    given |= {"redact": broken, "clock": clock}
    given |= {"summarizer": scripted} if summarizer == "a summarizer" else {}
    before = len(store.read(S))

    async def in_async() -> tuple[str, str]:
        memory = AsyncMemoryManager(store, **given)
        await memory.add_user_message(S, "and then?")
        await memory.add_user_message(S, "and then?")
        with pytest.raises(CompressionFailed) as raised:
            await memory.compress(S)
        return str(raised.value), str(await memory.explain(S))

    def in_sync() -> tuple[str, str]:
        memory = MemoryManager(store, **given)
        memory.add_user_message(S, "and then?")
        memory.add_user_message(S, "and then?")
        with pytest.raises(CompressionFailed) as raised:
            memory.compress(S)
        return str(raised.value), str(memory.explain(S))

    with record_events(kinds=[events.CompressionFailedNotice]) as emitted:
        error, explained = asyncio.run(in_async()) if api == "async" else in_sync()
    notice: Any
    [notice] = emitted  # the second add does not try again at once
    assert (notice.failures, notice.retry_at) == (1, clock() + timedelta(seconds=15))
    for words in (notice.reason, error, explained):
        assert "redact raised RuntimeError for a message" in words
        assert "fix the function passed as redact" in words
        assert "nothing was stored" not in words
        assert "strategy" not in words
        assert "secret" not in words
    assert (
        "no add compresses until 2026-01-01T00:00:30+00:00 or until enough was added" in explained
    )
    assert scripted.requests == []
    assert len(store.read(S)) == before + 2


def test_compression_error_names_a_wrong_result_of_redact() -> None:
    store = MemoryStore()
    config = MemoryConfig(auto_compress=False)
    writer = MemoryManager(store, config=config, counter="chars4")
    first = filled(writer, 30).get_entries(S)[0]
    reader = MemoryManager(store, counter="chars4", config=config, redact=lambda entry: None)
    with pytest.raises(CompressionFailed, match=rf"redact must return .* \(entry {first.id}\)"):
        reader.compress(S, target_tokens=1_200)


def test_async_manager_summarizes_in_pieces() -> None:
    requests: list[SummaryRequest] = []

    class Slow:
        max_input_tokens = 2_000

        async def summarize(self, request: SummaryRequest) -> SummaryReply:
            await asyncio.sleep(0)
            requests.append(request)
            return SummaryReply(text="short")

    async def run() -> int:
        config = MemoryConfig(auto_compress=False, max_tokens=20_000)
        memory = AsyncMemoryManager(counter="chars4", summarizer=Slow(), config=config)
        for number in range(100):
            await memory.add_user_message(S, f"n{number:03d} ".ljust(400, "x"))
        return (await memory.compress(S, target_tokens=2_000)).cost.calls

    assert asyncio.run(run()) == len(requests) > 4


def test_the_calls_of_one_summary_have_an_end_in_all() -> None:
    clock = FakeClock()

    def slow(_prompt: str) -> str:
        clock.advance(timedelta(seconds=50))
        return "In short."

    memory = MemoryManager(
        counter="chars4",
        clock=clock,
        summarizer=slow,
        config=MemoryConfig(
            max_tokens=20_000, auto_compress=False, summarizer_window=1_000, summarize_timeout=60.0
        ),
    )
    for number in range(120):
        memory.add_user_message("s", f"{number} " + "word " * 60)
    with record_events(memory, [events.CompressionFailedNotice]) as emitted:
        result = memory.compress("s", target_tokens=500)
    assert {item.method for item in result.replacements} == {"outline"}
    assert "13 calls took 650 s in all" in emitted[0].reason
    assert result.cost.calls == 13
