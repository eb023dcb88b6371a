"""`compress()` by hand compresses everything but the recent window; its reason has each step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memman import CompressionResult, InvalidInput, MemoryConfig, MemoryManager
from memman.testing import ScriptedSummarizer, record_events

S = "s"


def memory_of(summarizer: Any = None, **settings: Any) -> MemoryManager:
    config = MemoryConfig(**({"max_tokens": 6_000, "max_entries": None} | settings))
    return MemoryManager(counter="chars4", summarizer=summarizer, config=config)


def fill(memory: MemoryManager, turns: int, words: int = 40) -> None:
    for number in range(turns):
        memory.add_user_message(S, f"{number} " + "abc " * words)
        memory.add_assistant_message(S, f"{number} " + "abc " * words)


def actions(memory: MemoryManager, **given: Any) -> dict[str, str]:
    return {row.entry_id: row.action for row in memory.plan_compression(S, **given).entries}


def test_compress_summarizes_a_window_below_its_target() -> None:
    scripted = ScriptedSummarizer("They talked.")
    memory = memory_of(scripted)
    fill(memory, 15)
    assert memory.get_stats(S).active_tokens < 3_000
    planned = memory.plan_compression(S)
    result = memory.compress(S)
    assert len(scripted.requests) == 1
    kinds = [entry.type for entry in memory.get_active_entries(S)]
    assert kinds == ["summary", "summary", *["message"] * 10]  # the model's, and the outline
    assert result.reason == "by hand; summarized 20 entries; the summarizer was called once"
    assert planned.asks_summarizer
    assert [row.action for row in planned.entries].count("summary") == 20


def test_compress_takes_cleared_results_into_the_summary() -> None:
    scripted = ScriptedSummarizer("They read files.")
    memory = memory_of(scripted)
    fill(memory, 3)
    memory.add_tool_call(S, "read", {"path": "a.py"}, call_id="c")
    memory.add_tool_result(S, "read", "line " * 2_000, call_id="c")
    fill(memory, 8)
    result = memory.compress(S)
    assert {item.method for item in result.replacements} == {"summary"}
    assert "line line" in scripted.requests[0].prompt


def test_second_compress_does_nothing_with_a_reason() -> None:
    memory = memory_of(ScriptedSummarizer("They talked."))
    fill(memory, 15)
    memory.compress(S)
    again = memory.compress(S)
    assert again.compression_id is None
    assert again.reason.startswith("nothing was changed: every entry is recent or protected")


def test_few_old_entries_are_outlined_without_the_summarizer() -> None:
    scripted = ScriptedSummarizer("They talked.")
    memory = memory_of(scripted, recent_window=4)
    fill(memory, 4, 100)
    result = memory.compress(S)
    assert scripted.requests == []
    assert result.reason == (
        "by hand; outlined 4 entries; the summarizer was not called: "
        "too few old entries for a summary (4, min_entries_to_compress=5)"
    )


def test_outline_of_few_entries_leaves_the_summary_alone() -> None:
    memory = memory_of(ScriptedSummarizer("They talked."), recent_window=2)
    fill(memory, 6)
    memory.compress(S)
    fill(memory, 1, 100)
    memory.compress(S)
    texts = [entry.text for entry in memory.get_active_entries(S) if entry.type == "summary"]
    assert "They talked." in texts[0]
    assert len(texts) == 2


def test_summarize_true_calls_the_summarizer_for_few_entries() -> None:
    scripted = ScriptedSummarizer("They talked.")
    memory = memory_of(scripted, recent_window=4)
    fill(memory, 4, 100)
    assert memory.plan_compression(S, summarize=True).asks_summarizer
    result = memory.compress(S, summarize=True)
    assert len(scripted.requests) == 1
    assert result.reason.startswith("by hand; summarized 4 entries; the summarizer was called once")


def test_summarize_true_calls_a_summarizer_that_rests() -> None:
    class Failing:
        calls = 0

        def __call__(self, prompt: str) -> str:
            self.calls += 1
            raise RuntimeError("down")

    failing = Failing()
    memory = memory_of(failing)
    for _ in range(4):
        fill(memory, 12)
        memory.compress(S)
    before = failing.calls
    fill(memory, 12)
    assert "the summarizer was not called: the summarizer is paused" in memory.compress(S).reason
    assert failing.calls == before
    fill(memory, 12)
    result = memory.compress(S, summarize=True)
    assert failing.calls == before + 1
    assert "the summarizer was called once and failed: RuntimeError" in result.reason


def test_summarize_false_leaves_the_entries_to_the_outline() -> None:
    scripted = ScriptedSummarizer("They talked.")
    memory = memory_of(scripted)
    fill(memory, 15)
    assert not memory.plan_compression(S, summarize=False).asks_summarizer
    result = memory.compress(S, summarize=False)
    assert scripted.requests == []
    assert result.reason == (
        "by hand; outlined 20 entries; the summarizer was not called: summarize=False"
    )


def test_summarize_true_without_a_summarizer_is_refused() -> None:
    memory = memory_of()
    fill(memory, 15)
    for call in (memory.compress, memory.plan_compression):
        with pytest.raises(InvalidInput, match="summarize=True needs a summarizer"):
            call(S, summarize=True)


def test_summarize_true_is_refused_if_no_step_summarizes() -> None:
    memory = memory_of(ScriptedSummarizer("They talked."), strategy="token_buffer")
    fill(memory, 15)
    with pytest.raises(InvalidInput, match="'token_buffer' has no step 'summarise'"):
        memory.compress(S, summarize=True)


def test_summarize_of_another_type_is_refused() -> None:
    memory = memory_of()
    fill(memory, 1)
    with pytest.raises(InvalidInput, match="summarize must be None, True or False"):
        memory.compress(S, summarize="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [1_000, 500, 200, 100, 80, 50])
def test_small_target_summarizes_before_it_drops(target: int) -> None:
    scripted = ScriptedSummarizer("They said hello.")
    memory = memory_of(scripted, auto_compress=False)
    for number in range(30):
        memory.add_user_message(S, f"hello {number} " * 20)
    planned = set(actions(memory, target_tokens=target).values())
    result = memory.compress(S, target_tokens=target)
    assert "drop" not in planned
    assert len(scripted.requests) == 1
    assert {item.method for item in result.replacements} <= {"summary", "clip"}


def test_target_that_is_met_changes_nothing() -> None:
    memory = memory_of()
    fill(memory, 10)
    tokens = memory.get_stats(S).active_tokens
    result = memory.compress(S, target_tokens=2_500)
    assert result.compression_id is None
    assert result.reason == (
        f"nothing was changed: the window has {tokens} tokens, and the target is 2500"
    )


def test_reason_of_clearing_has_why_no_summary_was_needed() -> None:
    scripted = ScriptedSummarizer("They read.")
    memory = memory_of(scripted)
    for number in range(20):
        memory.add_user_message(S, f"read file {number}")
        memory.add_tool_call(S, "read", {"n": number}, call_id=f"c{number}")
        memory.add_tool_result(S, "read", "line " * 280, call_id=f"c{number}")
    [reason] = {status.reason for status in memory.explain(S).compressions}
    before, steps = reason.split("; ", 1)
    assert before.endswith(" tokens are over max_tokens (6000)")
    assert steps.startswith("cleared ")
    assert steps.endswith("; the summarizer was not called: the other steps reached the target")


def test_automatic_reason_names_the_entries_limit() -> None:
    memory = memory_of(max_entries=20)
    with record_events(memory, [CompressionResult]) as heard:
        fill(memory, 11)
    assert heard[0].reason.startswith("21 entries are over max_entries (20); outlined ")


def test_reason_names_entries_above_the_target() -> None:
    memory = memory_of(recent_window=4, state_ratio=0)
    memory.add_user_message(S, "rule " * 400, pinned=True)
    fill(memory, 10)
    reason = memory.compress(S, target_tokens=300).reason
    tokens = memory.get_stats(S).active_tokens
    assert f"; {tokens} tokens stay, above the target of 300: " in reason
    assert "2 entries pinned, the newest user message, or waiting for a result (" in reason


# ---------------------------------------------------------------- undo


def undone(make: Callable[[], MemoryManager]) -> MemoryManager:
    """Return a session over its limit whose automatic compression was undone."""
    memory = make()
    with record_events(memory, [CompressionResult]) as heard:
        number = 0
        while not heard:
            memory.add_user_message(S, f"{number} " + "abc " * 19)
            number += 1
    memory.undo_compression(S)
    return memory


def tokens_until_compressed(memory: MemoryManager) -> int:
    added = 0
    with record_events(memory, [CompressionResult]) as heard:
        while not heard:
            added += memory.add_user_message(S, "abc " * 20).token_count.tokens
            assert memory.build_context(S).tokens.tokens <= 600
    return added


def test_undo_is_not_redone_before_the_room_is_filled() -> None:
    memory = undone(lambda: memory_of(max_tokens=600))
    assert "a compression was undone" in memory.explain(S).reason
    assert 300 <= tokens_until_compressed(memory) <= 320


def test_undo_is_not_redone_after_the_session_is_reopened(tmp_path: Path) -> None:
    config = MemoryConfig(max_tokens=600, max_entries=None)

    def opened() -> MemoryManager:
        return MemoryManager(tmp_path / "chat.db", counter="chars4", config=config)

    with undone(opened) as memory:
        memory.add_user_message(S, "abc " * 100)
    with opened() as memory:
        assert 180 <= tokens_until_compressed(memory) <= 220


def test_undo_is_not_redone_by_an_importing_manager() -> None:
    memory = undone(lambda: memory_of(max_tokens=600))
    other = memory_of(max_tokens=600)
    other.import_session(memory.export_session(S))
    assert 300 <= tokens_until_compressed(other) <= 320


def test_undo_does_not_stop_a_compression_by_hand() -> None:
    memory = undone(lambda: memory_of(max_tokens=600))
    assert memory.compress(S).compression_id is not None
    memory.add_user_message(S, "abc " * 500)
    assert memory.get_stats(S).active_tokens <= 600


def test_deletion_after_an_undo_does_not_delay_compression() -> None:
    memory = undone(lambda: memory_of(max_tokens=600))
    first = memory.get_entries(S)[0]
    memory.delete_entries(S, [first.id])
    assert 300 <= tokens_until_compressed(memory) <= 320
