"""The documented behaviour of the reference memory manager, and our choice in each gap."""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memman import (
    AsyncMemoryManager,
    BudgetExceeded,
    Entry,
    EntryNotFound,
    MemoryConfig,
    MemoryManager,
    SessionState,
    StateError,
    SummaryReply,
    SummaryRequest,
    events,
)
from memman.testing import ScriptedSummarizer

BEGIN = datetime(2024, 1, 1, 12, tzinfo=UTC)


def ticking(step: timedelta = timedelta(minutes=1)) -> Callable[[], datetime]:
    """A clock that advances by `step` at each call."""
    looks = iter(range(10**9))
    return lambda: BEGIN + step * next(looks)


def manager(summarizer: Any = None, clock: Any = None, **settings: Any) -> MemoryManager:
    """Return a manager that counts four characters as a token."""
    return MemoryManager(
        counter="chars4",
        summarizer=summarizer,
        clock=clock or ticking(),
        # The reference knows no prompt cache, and this clock makes each reading a minute later. It recalls
        # nothing by itself.
        config=MemoryConfig(cache_ttl=None, recall_ratio=0, **settings),
    )


def words(tokens: int) -> str:
    """Return a text of exactly so many tokens."""
    return "abc " * tokens


def fill(memory: Any, entries: int, tokens: int, session: str = "s") -> list[Entry]:
    """Return user and assistant messages in turn, each of so many tokens."""
    verbs = (memory.add_user_message, memory.add_assistant_message)
    return [verbs[n % 2](session, words(tokens)) for n in range(entries)]


def talk(memory: Any, entries: int, tokens: int) -> None:
    """Add messages of so many tokens, each of which says something else, so that there is an outline."""
    verbs = (memory.add_user_message, memory.add_assistant_message)
    for n in range(entries):
        text = f"part {n} of the build was looked at, and " * tokens
        verbs[n % 2]("s", text[: 4 * tokens])


class Heard:
    """Collect the events of one sender, in order."""

    def __init__(self, signal: Any, sender: Any) -> None:
        self.events: list[Any] = []
        signal.connect(self, sender=sender)

    def __call__(self, sender: Any, event: Any) -> None:
        self.events.append(event)


def methods(result: events.CompressionResult) -> set[str]:
    return {item.method for item in result.replacements}


# ---------------------------------------------------------------- settings and defaults


def test_default_settings_are_those_of_the_reference() -> None:
    config = MemoryConfig()
    assert (config.recent_window, config.min_entries_to_compress) == (10, 5)
    assert (config.auto_compress, config.compression_ratio) == (True, 0.3)
    memory = MemoryManager()
    memory.add_user_message("s", "hello")
    stats = memory.get_stats("s")
    assert (stats.max_tokens, stats.max_entries) == (50_000, 100)


# ---------------------------------------------------------------- adding


def test_each_method_adds_an_entry_of_its_type_and_role() -> None:
    memory = manager()
    added = [
        memory.add_user_message("s", "Hello, how are you?"),
        memory.add_assistant_message("s", "I am doing well!"),
        memory.add_tool_call("s", "shell", {"command": "ls -la"}),
        memory.add_tool_result("s", "shell", "file1.txt\nfile2.txt"),
        memory.add_context("s", "print()", "src/main.py"),
    ]
    assert [(entry.type, entry.role) for entry in added] == [
        ("message", "user"),
        ("message", "assistant"),
        ("tool_call", "assistant"),
        ("tool_result", "tool"),
        ("context", "system"),
    ]
    assert memory.get_entries("s") == added


def test_an_entry_has_the_fields_of_the_reference() -> None:
    memory = manager()
    entry = memory.add_user_message("s", words(7), metadata={"source": {"line": 3}})
    assert entry.id
    assert entry.content == words(7)
    assert entry.timestamp == BEGIN
    assert entry.timestamp.utcoffset() == timedelta(0)
    assert entry.token_count.tokens == 7
    assert (entry.compressed, entry.summary_id) == (False, None)
    assert entry.metadata == {"source": {"line": 3}}


def test_compressed_entry_names_its_summary() -> None:
    memory = manager()
    fill(memory, 30, 100)
    result = memory.compress("s", target_tokens=1_500)
    hidden = [entry for entry in memory.get_entries("s") if entry.compressed]
    assert [entry.id for entry in hidden] == list(result.replaced_ids)
    assert {entry.summary_id for entry in hidden} == {result.summary_id}
    assert memory.get_entry("s", hidden[0].id) == hidden[0]


# ---------------------------------------------------------------- triggers


def test_compression_begins_above_50_000_tokens() -> None:
    memory = manager()
    heard = Heard(events.compressed, memory)
    fill(memory, 50, 1_000)
    assert memory.get_stats("s").active_tokens == 50_000
    assert heard.events == []
    memory.add_user_message("s", words(1))
    [event] = heard.events
    assert event.tokens_before == 50_001
    assert event.reason.startswith("50001 tokens are over max_tokens (50000); ")
    assert memory.get_stats("s").active_tokens <= 25_000


def test_at_100_entries_nothing_happens_and_one_above_compresses() -> None:
    memory = manager()
    heard = Heard(events.compressed, memory)
    talk(memory, 100, 20)
    assert heard.events == []
    memory.add_user_message("s", words(20))
    [event] = heard.events
    assert event.reason.startswith("101 entries are over max_entries (100); ")
    stats = memory.get_stats("s")
    assert (stats.total_entries, stats.active_entries) == (101, 50)


def test_a_manual_request_compresses_below_the_triggers() -> None:
    memory = manager()
    fill(memory, 30, 1_000)
    result = memory.compress("s")
    assert result.reason.startswith("by hand; ")
    assert result.tokens_saved > 0


def test_without_auto_compress_only_a_manual_request_compresses() -> None:
    memory = manager(auto_compress=False)
    heard = Heard(events.compressed, memory)
    fill(memory, 130, 500)
    assert heard.events == []
    assert memory.get_stats("s").active_entries == 130
    assert memory.compress("s").compression_id is not None


# ---------------------------------------------------------------- the compressed entries


def test_the_ten_newest_entries_stay_as_they_are() -> None:
    memory = manager()
    added = fill(memory, 101, 20)
    assert memory.get_active_entries("s")[-10:] == added[-10:]


@pytest.mark.parametrize("kept", [0, 1, 6, 10])
def test_recent_window_is_obeyed_at_its_exact_edge(kept: int) -> None:
    memory = manager(recent_window=kept, auto_compress=False, state_ratio=0)
    added = fill(memory, 20, 100)
    stay = max(kept, 2)  # the newest exchange and the newest user message always stay
    # Low water for exactly the recent ones; one more entry would exceed it.
    memory.compress("s", target_tokens=100 * stay + 60)
    active = memory.get_active_entries("s")
    assert [entry for entry in active if entry in added] == added[-stay:]


def old_and_recent(old: int, **settings: Any) -> MemoryManager:
    """Add so many large old entries before ten small recent ones."""
    memory = manager(auto_compress=False, **settings)
    fill(memory, old, 200)
    fill(memory, 10, 1)
    return memory


def test_four_old_entries_are_not_summarised_and_five_are() -> None:
    four, five = old_and_recent(4), old_and_recent(5)
    few = "too few old entries for a summary (4, min_entries_to_compress=5)"
    for memory, calls in ((four, 0), (five, 1)):
        scripted = ScriptedSummarizer("They talked.")
        memory.set_summarize_callback(scripted)
        assert (few in memory.compress("s", target_tokens=250).reason) == (not calls)
        assert len(scripted.requests) == calls


def test_at_least_five_old_entries_are_summarised() -> None:
    memory = manager(auto_compress=False)
    fill(memory, 3, 10_000)
    fill(memory, 30, 500)
    assert methods(memory.compress("s")) == {"outline"}


def test_min_entries_to_compress_moves_that_edge() -> None:
    three, four = (old_and_recent(old, min_entries_to_compress=4) for old in (3, 4))
    for memory, calls in ((three, 0), (four, 1)):
        scripted = ScriptedSummarizer("They talked.")
        memory.set_summarize_callback(scripted)
        memory.compress("s", target_tokens=250)
        assert len(scripted.requests) == calls


def test_what_is_compressed_already_is_not_compressed_again() -> None:
    memory = manager(auto_compress=False)
    fill(memory, 40, 100)
    first = memory.compress("s", target_tokens=2_500)
    fill(memory, 20, 100)
    second = memory.compress("s", target_tokens=2_500)
    assert first.replaced_ids
    assert not set(first.replaced_ids) & set(second.replaced_ids)


# ---------------------------------------------------------------- the summary


@pytest.mark.parametrize(
    ("summarizer", "limits"),
    [(None, {"max_tokens": 4_000}), (lambda prompt: "They spoke of the build.", {})],
    ids=["outline", "summary"],
)
def test_a_summary_is_at_most_three_tenths_of_what_it_replaces(
    summarizer: Any, limits: dict[str, int]
) -> None:
    memory = manager(summarizer, **limits)
    talk(memory, 101, 40)
    summary = memory.get_summaries("s")[0]
    assert 0 < summary.token_count <= 0.3 * summary.original_token_count


def test_summary_over_three_tenths_is_refused() -> None:
    for tokens, calls in ((90, 1), (91, 2)):
        memory = manager(lambda prompt, n=tokens: "abcd" * n, auto_compress=False, state_ratio=0)
        fill(memory, 5, 60)
        fill(memory, 10, 100)
        # Low water 1,001 less the cap of 200 is too small for the ten recent ones, so
        # the window gets as much as they and the summary need.
        result = memory.compress("s", target_tokens=1_260)
        assert (methods(result), result.cost.calls) == ({"summary"}, calls), f"{tokens} for 300"
        [summary] = memory.get_summaries("s")
        assert summary.token_count <= 90
        assert (summary.content == "abcd" * tokens) is (tokens == 90)


def test_default_prompt_has_five_points_and_the_conversation() -> None:
    prompts: list[str] = []
    memory = manager(lambda prompt: prompts.append(prompt) or "short")
    memory.add_user_message("s", "Why is the frobnicator red? " + words(50))
    fill(memory, 100, 20)
    [prompt] = prompts
    for point in ("key topics", "decisions", "tools used", "errors", "what comes next"):
        assert point in prompt
    assert "User: Why is the frobnicator red?" in prompt


def test_the_callbacks_text_becomes_the_summary() -> None:
    memory = manager()
    memory.set_summarize_callback(lambda prompt: "They fixed the API.")
    fill(memory, 101, 20)
    [summary] = memory.get_summaries("s")
    assert summary.content == "They fixed the API."
    assert memory.get_active_entries("s")[0].content == "They fixed the API."


def test_async_callback_writes_the_summary() -> None:
    async def summarize(prompt: str) -> str:
        await asyncio.sleep(0)
        return "They fixed the API."

    async def run() -> str:
        memory = AsyncMemoryManager(counter="chars4")
        await memory.set_summarize_callback(summarize)
        for _ in range(101):
            await memory.add_user_message("s", words(20))
        [summary] = await memory.get_summaries("s")
        return summary.content

    assert asyncio.run(run()) == "They fixed the API."


def test_a_summary_record_has_the_fields_of_the_reference() -> None:
    memory = manager(lambda prompt: words(10).strip())
    added = fill(memory, 101, 20)
    [summary] = memory.get_summaries("s")
    replaced = added[: len(summary.original_entry_ids)]
    assert summary.original_entry_ids == tuple(entry.id for entry in replaced)
    assert summary.token_count == 10
    assert summary.original_token_count == 20 * len(replaced)
    assert summary.ratio == 2.0 * len(replaced)
    assert summary.time_range == (replaced[0].timestamp, replaced[-1].timestamp)
    assert summary.created_at > added[-1].timestamp


# ---------------------------------------------------------------- settings at run time


def test_update_config_changes_the_manager_from_then_on() -> None:
    memory = manager()
    memory.update_config(max_tokens=100_000, max_entries=100, auto_compress=False)
    fill(memory, 120, 600)
    assert memory.get_stats("s").max_tokens == 100_000
    assert memory.get_stats("s").active_entries == 120
    memory.update_config(auto_compress=True)
    memory.add_user_message("s", "one more")
    assert memory.get_stats("s").active_entries < 120


# ---------------------------------------------------------------- export, import, clear


def test_an_exported_session_can_be_kept_as_text_and_restored() -> None:
    memory = manager()
    talk(memory, 101, 20)
    state = memory.export_session("s")
    assert (len(state.entries), len(state.summaries)) == (101, 1)
    restored = manager()
    assert restored.import_session(state.to_json()) == "s"
    assert restored.export_session("s") == state
    assert restored.get_active_entries("s") == memory.get_active_entries("s")


def test_clear_resets_a_session_and_touches_no_other() -> None:
    memory = manager()
    fill(memory, 101, 20)
    fill(memory, 3, 20, session="other")
    memory.clear_session("s")
    assert memory.get_active_entries("s") == []
    assert memory.build_context("s").messages == []
    assert len(memory.get_active_entries("other")) == 3


# ---------------------------------------------------------------- context, entries, statistics


def test_context_text_has_dated_summaries_first() -> None:
    memory = manager(
        lambda prompt: "User discussed API design, created routes...",
        clock=ticking(timedelta(hours=1)),
        max_entries=10,
        recent_window=2,
    )
    fill(memory, 9, 20)
    memory.add_user_message("s", "How do I add auth?")
    memory.add_assistant_message("s", "You can use JWT...")
    text = memory.get_context_for_llm("s")
    sections = text.split("\n\n=== Recent Conversation ===\n")
    assert len(sections) == 2
    heading, dates, content = sections[0].split("\n")
    assert heading == "=== Previous Conversation Summaries ==="
    assert re.fullmatch(r"\[2024-01-01 - 2024-01-0[12]\]", dates)
    assert content == "User discussed API design, created routes..."
    assert sections[1].endswith("User: How do I add auth?\nAssistant: You can use JWT...")


def test_get_active_entries_omits_compressed_entries() -> None:
    memory = manager()
    added = fill(memory, 101, 20)
    compressed = {entry.id for entry in memory.get_entries("s") if entry.compressed}
    active = {entry.id for entry in memory.get_active_entries("s")}
    assert compressed
    assert not compressed & active
    assert compressed | active >= {entry.id for entry in added}


def test_stats_have_the_six_numbers_of_the_reference() -> None:
    memory = manager(lambda prompt: words(10).strip())
    fill(memory, 101, 20)
    stats = memory.get_stats("s")
    assert stats.total_entries == 101
    assert stats.active_entries == len(memory.get_active_entries("s"))
    assert stats.summaries == 1
    assert stats.compressed_entries == 101 - (stats.active_entries - 1) > 0
    assert stats.total_tokens == 101 * 20
    assert stats.active_tokens == 20 * (stats.active_entries - 1) + 10


# ---------------------------------------------------------------- events


def test_entry_added_event_has_the_session_and_the_entry() -> None:
    memory = manager()
    heard = Heard(events.entry_added, memory)
    entry = memory.add_user_message("s", "hello")
    assert events.entry_added.name == "entry:added"
    assert [(event.session_id, event.entry) for event in heard.events] == [("s", entry)]


def test_compressed_event_has_the_savings() -> None:
    memory = manager()
    heard = Heard(events.compressed, memory)
    fill(memory, 101, 20)
    [event] = heard.events
    assert events.compressed.name == "compressed"
    assert event.session_id == "s"
    assert event.tokens_saved == 101 * 20 - memory.get_stats("s").active_tokens > 0


def test_session_cleared_is_emitted_once() -> None:
    memory = manager()
    heard = Heard(events.session_cleared, memory)
    fill(memory, 2, 2)
    memory.clear_session("s")
    assert events.session_cleared.name == "session:cleared"
    assert [event.session_id for event in heard.events] == ["s"]


# ---------------------------------------------------------------- our choice in each gap


def test_hole_1_trigger_counts_the_window_only() -> None:
    memory = manager()
    heard = Heard(events.compressed, memory)
    fill(memory, 51, 1_000)
    assert len(heard.events) == 1
    assert memory.get_stats("s").total_tokens > 50_000
    room = 50_000 - memory.get_stats("s").active_tokens
    memory.add_user_message("s", words(room))
    assert len(heard.events) == 1  # the window is at its limit exactly, summary included
    memory.add_user_message("s", words(1))
    assert len(heard.events) == 2


def test_hole_2_recent_entries_stay_only_as_far_as_they_fit() -> None:
    memory = manager(max_tokens=2_000)
    for entry in range(60):
        memory.add_user_message("s", f"{entry} " + words(1_499))
        assert memory.get_stats("s").active_tokens <= 2_000


def test_hole_2_oversized_content_is_reported_as_over_budget() -> None:
    memory = manager(max_tokens=1_000)
    heard = Heard(events.over_budget, memory)
    memory.add_user_message("s", words(1_500), pinned=True)
    [event] = heard.events
    assert (event.tokens, event.max_tokens) == (1_500, 1_000)
    with pytest.raises(BudgetExceeded):
        memory.build_context("s")


def test_hole_3_summaries_fold_into_one_and_never_pile_up() -> None:
    memory = manager(lambda prompt: words(100).strip(), max_tokens=4_000)
    for _ in range(40):
        fill(memory, 20, 50)
        stats = memory.get_stats("s")
        assert stats.summaries <= 1
        assert stats.active_tokens <= 4_000
    [summary] = memory.get_summaries("s")
    hidden = [entry.id for entry in memory.get_entries("s") if entry.compressed]
    assert list(summary.original_entry_ids) == hidden


def test_hole_4_summary_is_an_entry() -> None:
    memory = manager()
    talk(memory, 101, 20)
    [summary] = memory.get_summaries("s")
    [entry] = [one for one in memory.get_active_entries("s") if one.type == "summary"]
    assert (summary.id, summary.content) == (entry.id, entry.text)
    assert entry.role == "system"
    assert entry.id not in {one.id for one in memory.get_entries("s")}


def test_hole_5_calls_and_results_pair_by_call_id() -> None:
    memory = manager()
    memory.add_user_message("s", "go")
    memory.add_tool_call("s", "shell", {"n": 1}, call_id="a", message_id="m")
    memory.add_tool_call("s", "shell", {"n": 2}, call_id="b", message_id="m")
    memory.add_tool_result("s", "shell", "of b", call_id="b")
    memory.add_tool_result("s", "shell", "of a", call_id="a")
    openai = memory.build_context("s").messages
    results = {one["tool_call_id"]: one["content"] for one in openai if one["role"] == "tool"}
    assert results == {"a": "of a", "b": "of b"}
    assert "system" not in {message["role"] for message in openai}
    claude = memory.build_context("s", format="anthropic")
    assert claude.system is None
    blocks = claude.messages[-1]["content"]
    assert claude.messages[-1]["role"] == "user"
    assert {one["tool_use_id"]: one["content"] for one in blocks} == {"a": "of a", "b": "of b"}


def test_hole_5_without_call_ids_results_pair_by_name_and_order() -> None:
    memory = manager()
    memory.add_user_message("s", "go")
    memory.add_tool_call("s", "read", {"path": "1"})
    memory.add_tool_call("s", "list", {})
    memory.add_tool_call("s", "read", {"path": "2"})
    memory.add_tool_result("s", "list", "the list")
    memory.add_tool_result("s", "read", "text of 1")
    memory.add_tool_result("s", "read", "text of 2")
    _, request, *answers = memory.build_context("s").messages
    by_id = {one["tool_call_id"]: one["content"] for one in answers}
    results = [by_id[call["id"]] for call in request["tool_calls"]]
    assert results == ["text of 1", "the list", "text of 2"]


def test_hole_6_setting_and_record_ratio_differ() -> None:
    memory = manager(lambda prompt: words(20).strip(), compression_ratio=0.5)
    fill(memory, 101, 20)
    [summary] = memory.get_summaries("s")
    assert memory.export_session("s").summaries == (summary,)
    assert summary.ratio == summary.original_token_count / 20 > 1


def test_hole_7_an_import_checks_totals_instead_of_trusting_them() -> None:
    memory = manager()
    fill(memory, 101, 20)
    document = json.loads(memory.export_session("s").to_json())
    document["totals"]["tokens"] += 1
    other = manager()
    with pytest.raises(StateError, match="totals"):
        other.import_session(document)
    assert other.list_sessions() == []


def test_hole_7_times_keep_their_zone_in_json() -> None:
    memory = manager()
    [entry] = fill(memory, 1, 20)
    document = json.loads(memory.export_session("s").to_json())
    [kept] = document["entries"]
    assert datetime.fromisoformat(kept["timestamp"]) == entry.timestamp
    assert kept["token_count"]["counter"] == "chars4"
    assert (document["format"], document["version"]) == ("memman-session", 1)


def test_hole_7_another_counter_recounts_only_the_window() -> None:
    memory = manager()
    fill(memory, 5, 20)
    other = MemoryManager(counter=lambda text: 3)
    other.import_session(memory.export_session("s"))
    assert other.get_stats("s").active_tokens == 15
    assert other.export_session("s") == memory.export_session("s")


def test_hole_8_manual_compression_without_effect_has_a_reason() -> None:
    memory = manager()
    fill(memory, 3, 20)
    result = memory.compress("s")
    assert result.compression_id is None
    assert result.reason == "nothing was changed: every entry is recent or protected"
    pinned = manager(auto_compress=False)
    for _ in range(8):
        pinned.add_user_message("s", words(20), pinned=True)
    assert "pinned" in pinned.compress("s", target_tokens=10).reason
    assert pinned.compress("s", target_tokens=10).compression_id is None


def test_hole_8_one_summary_at_a_time() -> None:
    """A second automatic compression of a session returns while one runs."""
    prompts: list[str] = []

    async def run() -> None:
        async def summarize(prompt: str) -> str:
            prompts.append(prompt)
            await asyncio.sleep(0.05)
            return "short"

        memory = AsyncMemoryManager(counter="chars4", summarizer=summarize)
        for _ in range(100):
            await memory.add_user_message("s", words(20))
        adds = [memory.add_user_message("s", words(20)) for _ in range(5)]
        await asyncio.gather(*adds)
        assert (await memory.get_stats("s")).total_entries == 105

    asyncio.run(run())
    assert len(prompts) == 1


@pytest.mark.parametrize("answer", [RuntimeError("no credit"), "", "  \n", words(9_000), None, 7])
def test_hole_9_failing_callback_falls_back_with_an_event(answer: Any) -> None:
    def summarize(prompt: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    memory = manager(summarize)
    failed = Heard(events.compression_failed, memory)
    compressed = Heard(events.compressed, memory)
    talk(memory, 101, 20)
    [event] = failed.events
    assert event.reason
    assert event.fallback == "outline"
    assert methods(compressed.events[0]) == {"outline"}
    [summary] = memory.get_summaries("s")
    assert summary.token_count > 0


def test_hole_10_summarizer_gets_entries_and_budget() -> None:
    requests: list[SummaryRequest] = []

    class Recording:
        def summarize(self, request: SummaryRequest) -> SummaryReply:
            requests.append(request)
            return SummaryReply(text=f"summary {len(requests)}")

    memory = manager(Recording(), auto_compress=False)
    added = fill(memory, 30, 20)
    memory.compress("s", target_tokens=400)
    more = fill(memory, 30, 20)
    memory.compress("s", target_tokens=400, focus="the build")
    first, second = requests
    assert first.entries == tuple(added[: len(first.entries)])
    assert (first.previous_summary, first.focus) == (None, None)
    assert first.target_tokens == 80  # 0.2 of low water
    assert second.previous_summary == "summary 1"
    assert second.focus == "the build"
    assert "the build" in second.prompt
    assert second.entries[-1] in more


def test_hole_11_clear_keeps_settings_and_callback() -> None:
    memory = manager(lambda prompt: "kept callback")
    fill(memory, 1, 20)
    memory.update_config("s", max_entries=20)
    fill(memory, 20, 20)
    memory.clear_session("s")
    stats = memory.get_stats("s")
    assert (stats.total_entries, stats.summaries, stats.total_tokens) == (0, 0, 0)
    assert memory.get_entries("s") == memory.get_summaries("s") == []
    assert stats.max_entries == 20
    fill(memory, 21, 20)
    assert [summary.content for summary in memory.get_summaries("s")] == ["kept callback"]


def test_hole_11_a_summary_that_comes_after_a_clear_is_discarded() -> None:
    async def run() -> tuple[Any, list[Entry]]:
        requested, cleared = asyncio.Event(), asyncio.Event()

        async def summarize(prompt: str) -> str:
            requested.set()
            await cleared.wait()
            return "late"

        memory = AsyncMemoryManager(counter="chars4", summarizer=summarize)
        for _ in range(50):
            await memory.add_user_message("s", words(20))
        running = asyncio.create_task(memory.compress("s", target_tokens=400))
        await requested.wait()
        await memory.clear_session("s")
        cleared.set()
        return await running, await memory.get_active_entries("s")

    result, active = asyncio.run(run())
    assert result.compression_id is None
    assert active == []


def test_hole_12_receivers_hear_after_the_commit_in_log_order() -> None:
    memory = manager(max_entries=10, recent_window=2)
    order: list[tuple[str, bool]] = []

    def on_added(sender: Any, event: Any) -> None:
        known = event.entry.id in {entry.id for entry in memory.get_entries("s")}
        order.append(("added", known))

    def on_compressed(sender: Any, event: Any) -> None:
        known = event.summary_id in {entry.id for entry in memory.get_active_entries("s")}
        order.append(("compressed", known))

    with (
        events.entry_added.connected_to(on_added, sender=memory),
        events.compressed.connected_to(on_compressed, sender=memory),
    ):
        talk(memory, 12, 50)
    expected = ["added"] * 11 + ["compressed", "added"]
    assert order == [(name, True) for name in expected]


def test_hole_12_raising_receiver_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    memory = manager()

    def broken(sender: Any, event: Any) -> None:
        raise ZeroDivisionError("a receiver's own fault")

    with events.entry_added.connected_to(broken, sender=memory):
        heard = Heard(events.entry_added, memory)
        with caplog.at_level(logging.ERROR, logger="memman.events"):
            entry = memory.add_user_message("s", "hello")
    assert [event.entry for event in heard.events] == [entry]
    assert "a receiver's own fault" in caplog.text


def test_hole_12_a_payload_cannot_be_changed() -> None:
    memory = manager()
    heard = Heard(events.entry_added, memory)
    memory.add_user_message("s", "hello", metadata={"tags": ["a"]})
    [event] = heard.events
    with pytest.raises(AttributeError):
        event.entry.content = "changed"
    event.entry.metadata["tags"].append("b")
    assert memory.get_entries("s")[0].metadata == {"tags": ["a"]}


def test_hole_13_only_deletion_shrinks_the_log() -> None:
    memory = manager()
    deleted, gone = Heard(events.entries_deleted, memory), Heard(events.session_deleted, memory)
    added = fill(memory, 101, 20)
    assert len(memory.get_entries("s")) == 101
    memory.delete_entries("s", [added[0].id])
    assert [event.ids for event in deleted.events] == [(added[0].id,)]
    assert memory.get_entries("s")[0].id == added[1].id
    with pytest.raises(EntryNotFound):
        memory.get_entry("s", "never added")
    memory.delete_session("s")
    assert [event.session_id for event in gone.events] == ["s"]
    assert memory.list_sessions() == []


def stamps(summary_text: str) -> Iterator[str]:
    yield from re.findall(r"\[\d{4}-\d\d-\d\d - \d{4}-\d\d-\d\d\]", summary_text)


def test_hole_14_same_day_summaries_have_distinct_addresses() -> None:
    memory = manager(lambda prompt: "so it went", auto_compress=False)
    fill(memory, 40, 50)
    first = memory.compress("s", target_tokens=1_200)
    memory.pin("s", first.summary_id or "")
    fill(memory, 40, 50)
    memory.compress("s", target_tokens=1_200)
    one, two = memory.get_summaries("s")
    assert list(stamps(memory.get_context_for_llm("s"))) == ["[2024-01-01 - 2024-01-01]"] * 2
    assert one.time_range[1] < two.time_range[0]
    headings = [
        message["content"].split("\n")[0]
        for message in memory.build_context("s").messages
        if message["content"].startswith("[memman summary")
    ]
    first, last = (memory.get_entry("s", one.original_entry_ids[at]).seq for at in (0, -1))
    assert headings[0].startswith(f"[memman summary of entries {first}-{last}, not user input, ")
    assert headings[1].startswith(f"[memman summary of entries {last + 1}-")


def test_documents_are_equal_by_value() -> None:
    memory = manager()
    fill(memory, 101, 20)
    state = memory.export_session("s")
    assert memory.export_session("s") == state
    assert SessionState.from_json(state.to_json()) == state
