"""`explain`: why a session was or was not compressed, and the status of each entry."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from memman import (
    AsyncMemoryManager,
    BudgetExceeded,
    Explanation,
    MemoryConfig,
    MemoryManager,
    SessionNotFound,
)
from memman.compression import drop_oldest
from memman.testing import ScriptedSummarizer


def manager(summarizer: Any = None, **settings: Any) -> MemoryManager:
    given = {"auto_compress": False, **settings}
    return MemoryManager(counter="chars4", summarizer=summarizer, config=MemoryConfig(**given))


def fill(memory: MemoryManager, entries: int = 20) -> list[str]:
    return [memory.add_user_message("s", f"{n} " + "abc " * 100).id for n in range(entries)]


def results(memory: MemoryManager, number: int = 10) -> list[str]:
    ids = []
    for n in range(number):
        memory.add_tool_call("s", "shell", {}, call_id=str(n))
        ids.append(memory.add_tool_result("s", "shell", "out " * 200, call_id=str(n)).id)
    return ids


def states(memory: MemoryManager) -> dict[str, str]:
    return {status.entry_id: status.state for status in memory.explain("s").entries}


def fate_of(memory: MemoryManager, entry_id: str) -> Any:
    return {status.entry_id: status for status in memory.explain("s").entries}[entry_id]


# ---------------------------------------------------------------- entries


def test_retracted_entry_has_its_retraction_until_its_undo() -> None:
    memory = manager()
    ids = fill(memory, 3)
    compression = memory.compress("s", target_tokens=150).compression_id
    retraction = memory.retract("s", ids[:1])
    status = fate_of(memory, ids[0])
    assert (status.state, status.compression_id) == ("retracted", retraction)
    assert (status.shown_by, status.retrievable) == (None, True)
    found = {each.compression_id: each.state for each in memory.explain("s").compressions}
    assert found == {compression: "unfolded", retraction: "in force"}
    memory.undo_compression("s", retraction)
    status = fate_of(memory, ids[0])
    assert (status.state, status.undone) == ("active", (retraction,))


def test_entry_added_again_has_no_history_of_the_retracted_one() -> None:
    memory = manager()
    memory.add_user_message("s", "first", id="e1")
    memory.add_user_message("s", "second", id="e2")
    memory.undo_compression("s", memory.retract("s", ["e1"]))
    memory.retract("s", ["e1"])
    added = memory.add_user_message("s", "again", id="e1")
    status = fate_of(memory, "e1")
    assert (status.state, status.seq, status.undone) == ("active", added.seq, ())
    assert list(states(memory)) == ["e2", "e1"]
    assert "last compression: none" in str(memory.explain("s"))


def test_active_entry_is_shown_by_itself() -> None:
    memory = manager()
    entry = memory.add_system_message("s", "be brief")
    status = fate_of(memory, entry.id)
    assert (status.state, status.shown_by, status.shown_at) == ("active", entry.id, entry.seq)
    assert (status.pinned, status.compression_id, status.retrievable) == (True, None, True)


def test_summarised_entry_has_its_compression_and_summary() -> None:
    memory = manager()
    ids = fill(memory)
    done = memory.compress("s", target_tokens=800)
    [summary] = [entry for entry in memory.get_active_entries("s") if entry.type == "summary"]
    status = fate_of(memory, ids[0])
    assert (status.state, status.compression_id) == ("summarised", done.compression_id)
    assert (status.shown_by, status.shown_at) == (summary.id, summary.seq)
    assert memory.get_entry("s", ids[0]).text.startswith("0 ")


def test_entry_in_summary_of_summaries_keeps_its_compression() -> None:
    memory = manager()
    ids = fill(memory)
    first = memory.compress("s", target_tokens=800).compression_id
    fill(memory)
    second = memory.compress("s", target_tokens=800)
    status = fate_of(memory, ids[0])
    assert (status.compression_id, status.shown_by) == (first, second.summary_id)
    inner, outer = memory.explain("s").compressions
    assert (inner.state, inner.folded_into) == ("folded", (second.compression_id,))
    assert (outer.state, outer.folded_into) == ("in force", ())


def test_cleared_result_is_stubbed_until_stub_is_summarised() -> None:
    memory = manager(max_entries=None)
    [first, *_] = results(memory)
    memory.compress("s", target_tokens=1_500)
    stubbed = fate_of(memory, first)
    assert stubbed.state == "stubbed"
    assert memory.get_entry("s", stubbed.shown_by).text.startswith("[memman: this tool result")
    fill(memory)
    memory.compress("s", target_tokens=900)
    later = fate_of(memory, first)
    assert (later.state, later.compression_id) == ("summarised", stubbed.compression_id)


def test_dropped_entry_has_no_replacement_but_can_be_read() -> None:
    memory = manager(strategy=(drop_oldest,))
    ids = fill(memory)
    memory.compress("s", target_tokens=800)
    status = fate_of(memory, ids[0])
    assert (status.state, status.shown_by, status.shown_at) == ("dropped", None, None)
    assert status.retrievable
    assert memory.get_entry("s", ids[0]).id == ids[0]


def test_clipped_entry_is_shown_by_its_clip() -> None:
    memory = manager(max_tokens=1_000)
    entry = memory.add_user_message("s", "abc " * 3_000)
    memory.compress("s")
    assert states(memory) == {entry.id: "clipped"}


def test_deleted_entry_is_deleted_and_its_neighbours_active() -> None:
    memory = manager()
    ids = fill(memory)
    memory.compress("s", target_tokens=800)
    memory.delete_entries("s", [ids[0]])
    status = fate_of(memory, ids[0])
    assert (status.state, status.shown_by, status.retrievable) == ("deleted", None, False)
    assert states(memory)[ids[1]] == "active"
    [compression] = memory.explain("s").compressions
    assert compression.state == "unfolded"


def test_restored_entry_lists_the_undone_compression() -> None:
    memory = manager()
    ids = fill(memory)
    name = memory.compress("s", target_tokens=800).compression_id
    memory.undo_compression("s")
    status = fate_of(memory, ids[0])
    assert (status.state, status.undone, status.compression_id) == ("active", (name,), None)
    assert memory.explain("s").compressions[0].state == "undone"
    again = memory.compress("s", target_tokens=800).compression_id
    status = fate_of(memory, ids[0])
    assert (status.state, status.undone, status.compression_id) == ("summarised", (name,), again)


def test_one_summary_represents_both_sides_of_a_pinned_entry() -> None:
    memory = manager()
    ids = fill(memory)
    memory.pin("s", ids[3])
    summary = memory.compress("s", target_tokens=1_200).summary_id
    assert fate_of(memory, ids[0]).shown_by == fate_of(memory, ids[4]).shown_by == summary
    assert (fate_of(memory, ids[3]).state, fate_of(memory, ids[3]).pinned) == ("active", True)


def test_explanation_omits_earlier_eras() -> None:
    memory = manager()
    fill(memory)
    memory.compress("s", target_tokens=800)
    memory.clear_session("s")
    later = memory.add_user_message("s", "later").id
    explanation = memory.explain("s")
    assert [status.entry_id for status in explanation.entries] == [later]
    assert explanation.compressions == ()


# ---------------------------------------------------------------- compressions


def test_compression_status_has_its_numbers() -> None:
    memory = manager(max_tokens=1_500, auto_compress=True)
    fill(memory, 50)
    compressions = memory.explain("s").compressions
    log = dict(enumerate(memory.export_session("s").log, 1))
    assert len(compressions) > 1
    for explained in compressions:
        record = log[explained.seq]
        assert explained.compression_id == record.id
        assert (explained.tokens_before, explained.tokens_after) == (
            record.tokens_before,
            record.tokens_after,
        )
        assert "are over max_tokens (1500)" in explained.reason
        assert sum(explained.replaced.values()) == sum(
            len(item.ids) for item in record.replacements
        )


# ---------------------------------------------------------------- why, and what next


def test_next_names_tokens_that_start_a_compression() -> None:
    memory = manager(max_tokens=4_000, max_entries=50, auto_compress=True)
    fill(memory, 3)
    explanation = memory.explain("s")
    assert explanation.reason == "within the limits"
    left = 4_000 - explanation.trigger.tokens - explanation.trigger.overhead_tokens
    assert f"more than {left:,} tokens or 47 entries" in explanation.next
    assert "down to 2,000 tokens and 25 entries" in explanation.next


def test_named_number_of_tokens_starts_a_compression() -> None:
    memory = manager(max_tokens=1_000, auto_compress=True, max_entries=None)
    memory.add_user_message("s", "abc " * 400)
    trigger = memory.explain("s").trigger
    framing = 4  # of the next message
    left = trigger.max_tokens - trigger.tokens - trigger.overhead_tokens - framing
    memory.add_user_message("s", "abc " * left)
    assert memory.explain("s").compressions == ()
    memory.add_user_message("s", "abcd")
    assert len(memory.explain("s").compressions) == 1


def test_trigger_has_the_deciding_numbers() -> None:
    memory = manager(max_tokens=4_000, max_entries=50, overhead_tokens=300)
    fill(memory, 3)
    trigger = memory.explain("s").trigger
    stats = memory.get_stats("s")
    assert (trigger.tokens, trigger.overhead_tokens) == (stats.active_tokens, 300)
    assert (trigger.max_tokens, trigger.target_tokens) == (4_000, 2_000)
    assert (trigger.entries, trigger.max_entries, trigger.target_entries) == (3, 50, 25)
    assert (trigger.over, trigger.auto_compress) == (False, False)


def test_overhead_counts_toward_the_limit() -> None:
    memory = manager(max_tokens=1_000, overhead_tokens=300, auto_compress=True, max_entries=None)
    memory.add_user_message("s", "abc " * 600)
    explanation = memory.explain("s")
    left = 1_000 - explanation.trigger.tokens - 300
    assert f"more than {left:,} tokens beyond these" in explanation.next
    memory.add_user_message("s", "abc " * (left + 1), compress=False)
    assert memory.explain("s").trigger.over
    assert memory.get_stats("s").active_tokens < 1_000


def test_next_is_nothing_without_auto_compress() -> None:
    memory = manager()
    fill(memory, 2)
    assert memory.explain("s").next == "nothing by itself: auto_compress is off"


def test_next_has_plan_without_auto_compress() -> None:
    memory = manager(max_tokens=1_000)
    fill(memory)
    explanation = memory.explain("s")
    plan = memory.plan_compression("s")
    assert explanation.trigger.over
    assert explanation.reason == "over the limits, and auto_compress is off"
    assert f"{plan.tokens_before:,} -> {plan.tokens_after:,} tokens" in explanation.next


def test_next_add_compresses_after_add_without_compress() -> None:
    memory = manager(max_tokens=1_000, auto_compress=True)
    for number in range(20):
        memory.add_user_message("s", f"{number} " + "abc " * 100, compress=False)
    assert memory.explain("s").next.startswith("the next add compresses")
    memory.add_user_message("s", "x")
    assert memory.explain("s").reason == "within the limits"


def test_reason_with_all_entries_pinned() -> None:
    memory = manager(max_tokens=1_000, auto_compress=True)
    for _ in range(12):
        memory.add_user_message("s", "abc " * 100, pinned=True)
    explanation = memory.explain("s")
    assert "nothing can be compressed" in explanation.reason
    assert memory.compress("s").compression_id is None


def test_next_without_stages_is_a_refused_context() -> None:
    memory = manager(max_tokens=1_000, strategy="buffer", auto_compress=True)
    memory.add_user_message("s", "x")
    assert memory.explain("s").next == "nothing by itself: the strategy never compresses"
    for _ in range(12):
        memory.add_user_message("s", "abc " * 100)
    explanation = memory.explain("s")
    assert explanation.reason == "over the limits, and the strategy never compresses"
    assert explanation.next == "nothing by itself: build_context raises BudgetExceeded"
    with pytest.raises(BudgetExceeded):
        memory.build_context("s")


def test_pinned_entries_over_the_limit_refuse_a_context() -> None:
    memory = manager(max_tokens=1_000, on_failure="keep", auto_compress=True)
    rules = memory.add_user_message("s", "rules " * 1_000, pinned=True)
    memory.add_user_message("s", "hello")
    explanation = memory.explain("s")
    assert explanation.trigger.pinned_tokens == 1_500
    assert (
        "build_context raises BudgetExceeded, since pinned entries alone exceed" in explanation.next
    )
    with pytest.raises(BudgetExceeded):
        memory.build_context("s")
    memory.update_config("s", max_tokens=1_600)
    memory.build_context("s")
    assert "BudgetExceeded" not in memory.explain("s").next
    memory.update_config("s", max_tokens=1_000)
    memory.unpin("s", rules.id)
    memory.add_user_message("s", "rules " * 1_000, compress=False)
    assert memory.build_context("s").tokens.tokens <= 1_000


def test_pinned_entries_may_leave_no_room_for_a_context() -> None:
    memory = manager(max_tokens=1_000)
    memory.add_system_message("s", "x" * 3_950)
    memory.add_user_message("s", "hello " * 6)
    assert memory.explain("s").next.endswith("as it is built if pinned entries leave room for it")
    with pytest.raises(BudgetExceeded):
        memory.build_context("s")


def test_running_compression_is_the_reason() -> None:
    explanations: list[Explanation] = []

    def summarize(prompt: str) -> str:
        explanations.append(memory.explain("s"))
        return "short"

    memory = MemoryManager(
        counter="chars4",
        summarizer=summarize,
        config=MemoryConfig(auto_compress=False, summarize_timeout=None),
    )
    fill(memory)
    memory.compress("s", target_tokens=800)
    assert [explanation.running for explanation in explanations] == [True]
    assert explanations[0].reason == "a compression is under way"
    assert not memory.explain("s").running


# ---------------------------------------------------------------- the summarizer


def test_reason_without_a_summarizer_names_the_outline() -> None:
    memory = manager()
    fill(memory, 1)
    state = memory.explain("s").summarizer
    assert (state.configured, state.may_be_asked) == (False, False)
    assert "outline" in state.reason


def test_summarizer_is_called_again_only_after_enough_entries() -> None:
    summarizer = ScriptedSummarizer("short")
    memory = manager(summarizer, max_tokens=2_000, auto_compress=True)
    fill(memory, 5)
    state = memory.explain("s").summarizer
    assert (state.configured, state.may_be_asked, state.reason) == (
        True,
        True,
        "it may be called now",
    )
    while not summarizer.requests:
        fill(memory, 1)
    state = memory.explain("s").summarizer
    assert not state.may_be_asked
    assert "not called again before" in state.reason


def test_failed_summarizer_is_the_reason() -> None:
    memory = manager(ScriptedSummarizer(RuntimeError("down")), max_tokens=1_000)
    fill(memory)
    memory.compress("s")
    state = memory.explain("s").summarizer
    assert not state.may_be_asked
    assert "paused until" in state.reason
    assert "after 1 failure (RuntimeError: down)" in state.reason


def test_new_summarizer_after_a_failed_one_may_be_called() -> None:
    memory = manager(ScriptedSummarizer(RuntimeError("down")), max_tokens=1_000)
    fill(memory)
    memory.compress("s")
    memory.set_summarize_callback(lambda prompt: "a summary")
    state = memory.explain("s").summarizer
    assert (state.may_be_asked, state.reason) == (True, "it may be called now")


def test_new_summarizer_after_a_recent_reply_may_be_called() -> None:
    summarizer = ScriptedSummarizer()
    memory = manager(summarizer, max_tokens=1_000, auto_compress=True)
    while not summarizer.requests:
        fill(memory, 1)
    memory.set_summarize_callback(lambda prompt: "a summary")
    assert memory.explain("s").summarizer.reason == "it may be called now"


def test_next_add_does_what_next_says() -> None:
    memory = manager(
        ScriptedSummarizer(RuntimeError("down")),
        max_tokens=1_000, max_entries=None, auto_compress=True, on_failure="keep",
    )  # fmt: skip
    for _ in range(18):
        memory.add_user_message("s", "abc " * 60)
    explanation = memory.explain("s")
    assert "the summarizer is paused until" in explanation.reason
    assert explanation.next.startswith("nothing until then")
    memory.add_user_message("s", "x")
    assert memory.explain("s").compressions == ()
    memory.set_summarize_callback(None)
    assert memory.explain("s").next.startswith("the next add compresses")
    memory.add_user_message("s", "x")
    assert len(memory.explain("s").compressions) == 1


def test_failing_stage_is_the_reason_not_an_error() -> None:
    def broken(view: Any, goal: Any, make_entry: Any) -> None:
        raise KeyError("no such thing")

    memory = manager(max_tokens=1_000)
    fill(memory)
    memory.update_config(strategy=(broken,), auto_compress=True)
    assert "the stage broken raised KeyError" in memory.explain("s").reason
    memory.add_user_message("s", "x")
    explanation = memory.explain("s")
    assert "the strategy is paused until" in explanation.reason
    assert explanation.next.startswith("nothing until then")


# ---------------------------------------------------------------- its form


def test_text_has_a_line_for_each_state() -> None:
    memory = manager(state_ratio=0)
    memory.add_system_message("s", "be brief")
    fill(memory)
    done = memory.compress("s", target_tokens=800)
    text = str(memory.explain("s"))
    [summary] = memory.get_summaries("s")
    at = memory.get_entry("s", summary.id).address
    assert f"summarised in {at}: 13 entries, 1,313 tokens: #3-#15" in text
    assert "clipped: 1 entry, 101 tokens: #16" in text
    assert "active: 7 entries, 608 tokens: #2, #17-#22" in text
    assert f"{done.tokens_before:,} -> {done.tokens_after:,} tokens (by hand; " in text
    assert all(len(line) <= 160 for line in text.splitlines())


def test_text_is_short_for_many_entries() -> None:
    memory = manager(max_entries=None)
    results(memory, 60)
    memory.compress("s", target_tokens=9_000)
    text = str(memory.explain("s"))
    assert ", and 13 more" in text
    assert len(text) < 2_000


def test_explanation_is_plain_data_for_json() -> None:
    memory = manager()
    fill(memory)
    memory.compress("s", target_tokens=800)
    explanation = memory.explain("s")
    assert msgspec.json.decode(msgspec.json.encode(explanation), type=Explanation) == explanation


def test_explanation_is_frozen() -> None:
    memory = manager()
    fill(memory, 1)
    with pytest.raises(AttributeError):
        memory.explain("s").reason = "other"  # type: ignore[misc]


def test_unknown_session_raises_session_not_found() -> None:
    with pytest.raises(SessionNotFound):
        manager().explain("nobody")


def test_async_manager_explains_alike() -> None:
    async def explained() -> str:
        memory = AsyncMemoryManager(counter="chars4", config=MemoryConfig(auto_compress=False))
        for number in range(20):
            await memory.add_user_message("s", f"{number} " + "abc " * 100)
        await memory.compress("s", target_tokens=800)
        return str(await memory.explain("s")).split("summarised")[1]

    memory = manager()
    fill(memory)
    memory.compress("s", target_tokens=800)
    assert asyncio.run(explained()) == str(memory.explain("s")).split("summarised")[1]


def test_explain_changes_nothing() -> None:
    memory = manager(max_tokens=1_000)
    fill(memory)
    memory.compress("s")
    fill(memory)
    before = memory.export_session("s")
    memory.explain("s")
    assert memory.export_session("s") == before
