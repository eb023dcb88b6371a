"""The reprs of memman's objects are short and have the main numbers."""

from __future__ import annotations

from typing import Any

import pytest

import memman
from memman import Entry, MemoryConfig, MemoryManager, TokenCount
from memman.results import bar_html

WIDEST = 250  # characters


@pytest.fixture
def memory() -> MemoryManager:
    made = MemoryManager(
        counter="chars4", config=MemoryConfig(max_tokens=6_000, auto_compress=False)
    )
    for number in range(60):
        made.add_user_message("s", f"question {number} " * 8)
        made.add_tool_call("s", "read", "{}", call_id=f"c{number}")
        made.add_tool_result("s", "read", "a line " * 40, call_id=f"c{number}")
    return made


def test_reprs_stay_short_however_much_they_hold(memory: MemoryManager) -> None:
    result = memory.compress("s", target_tokens=1_000)
    [summary] = memory.get_summaries("s")
    shown: list[Any] = [
        memory.plan_compression("s", target_tokens=500),
        memory.explain("s"),
        result,
        summary,
        memory.export_session("s"),
        memory.get_stats("s"),
        memory.build_context("s"),
        memory.get_entry("s", summary.id),
        MemoryConfig(max_tokens=6_000, model="gpt-5"),
    ]
    for each in shown:
        text = repr(each)
        assert len(text) < WIDEST, text
        assert "UNSET" not in text
        assert "datetime" not in text


def test_compression_result_shows_its_savings(memory: MemoryManager) -> None:
    result = memory.compress("s", target_tokens=1_000)
    change = f"{result.tokens_before:,} -> {result.tokens_after:,} tokens"
    assert change in repr(result)
    assert f"{len(result.replaced_ids):,} entries replaced" in repr(result)
    nothing = MemoryManager()
    nothing.add_user_message("s", "hello")
    assert "nothing done" in repr(nothing.compress("s"))


def test_a_config_repr_evaluates_to_an_equal_config() -> None:
    config = MemoryConfig(max_tokens=6_000, max_entries=None, model="gpt-5", strategy="window")
    shown = repr(config)
    assert (
        shown == "MemoryConfig(max_tokens=6000, max_entries=None, strategy='window', model='gpt-5')"
    )
    assert eval(shown) == config  # noqa: S307 - it is our own text
    assert repr(MemoryConfig()) == "MemoryConfig()"


def test_an_entry_repr_names_its_kind_once(memory: MemoryManager) -> None:
    _, call, result = memory.get_entries("s")[:3]
    assert repr(call).startswith(f"<Entry {call.address} tool_call read, ")
    assert repr(result).startswith(f"<Entry {result.address} tool_result read, ")
    unplaced = Entry(
        id="e", type="tool_result", role="tool", content="ok", timestamp=call.timestamp
    )
    assert repr(unplaced) == "<Entry tool_result, 0 tokens: 'ok'>"


def test_stats_count_the_entries_of_the_window(memory: MemoryManager) -> None:
    memory.compress("s", target_tokens=1_000)
    stats = memory.get_stats("s")
    assert stats.active_entries == len(memory.get_active_entries("s"))
    assert stats.compressed_entries == sum(entry.compressed for entry in memory.get_entries("s"))


def test_stats_print_as_readable_lines(memory: MemoryManager) -> None:
    memory.compress("s", target_tokens=1_000)
    stats = memory.get_stats("s")
    first, second, *_ = str(stats).splitlines()
    assert first.startswith(f"session s: {stats.active_tokens:,} of 6,000 tokens, ")
    assert second == f"added: {stats.total_tokens:,} tokens in 180 entries, " + (
        f"{stats.compressed_entries:,} of them compressed"
    )
    assert max(map(len, str(stats).splitlines())) < 100


def test_notebooks_show_stats_and_contexts_as_bars(memory: MemoryManager) -> None:
    stats, context = memory.get_stats("s"), memory.build_context("s")
    assert f"of {stats.max_tokens:,} tokens" in stats._repr_html_()
    page = context._repr_html_()
    for part, tokens in context.breakdown.items():
        assert f"{part.replace('_', ' ')} {tokens:,}" in page


def test_a_bar_escapes_names_and_ends_at_its_width() -> None:
    page = bar_html("<script>", {"a&b": 900, "": 0}, 600)
    assert "<script>" not in page
    assert "a&amp;b 900" in page
    assert "width:100.00%" in page  # a longer one fills the bar


def test_a_token_count_is_a_number() -> None:
    assert int(TokenCount(tokens=7)) == 7


def test_dir_of_memman_has_the_public_names() -> None:
    assert set(dir(memman)) == {*memman.__all__, "__version__"}
