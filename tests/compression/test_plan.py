"""Presets, strategies with functions, and plans of a compression."""

from typing import Any

import pytest

from memman import BudgetExceeded, ConfigError, MemoryConfig, MemoryManager, events
from memman.compression import (
    ClearToolResults,
    clip_few,
    clip_large,
    clip_rest,
    drop_oldest,
    drop_over_limit,
    drop_summaries,
    fold_repeats,
)
from memman.compression.stages import clear_tool_results
from memman.compression.strategies import PRESETS, TRIM, stages_of
from memman.testing import record_events


def manager(**settings: Any) -> MemoryManager:
    return MemoryManager(counter="chars4", config=MemoryConfig(auto_compress=False, **settings))


def traffic(memory: MemoryManager, exchanges: int = 20) -> None:
    memory.add_system_message("s", "be brief")
    for number in range(exchanges):
        memory.add_user_message("s", f"question {number} " + "abc " * 30)
        memory.add_tool_call("s", "shell", {"n": number}, call_id=f"c{number}")
        memory.add_tool_result("s", "shell", "out " * 100, call_id=f"c{number}")
        memory.add_assistant_message("s", f"answer {number} " + "abc " * 30)


def methods(memory: MemoryManager, **given: Any) -> list[str]:
    return sorted({item.method for item in memory.compress("s", **given).replacements})


@pytest.mark.parametrize("name", PRESETS)
def test_a_presets_name_gives_its_stages(name: str) -> None:
    assert stages_of(name) == PRESETS[name]


def test_default_order_removes_tool_results_first() -> None:
    keeping_the_limit = (clip_large, clip_few, drop_over_limit, clip_rest, drop_summaries)
    steps = (clear_tool_results, fold_repeats, "summarise", *keeping_the_limit)
    assert stages_of("default") == steps
    assert tuple(stage for stage in steps if stage != "summarise") == TRIM


def test_unknown_preset_error_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'nope' is not a preset; known are .*default"):
        stages_of("nope")


def test_stage_that_is_not_a_function_is_rejected() -> None:
    for stage in (7, "summarize", ClearToolResults):
        with pytest.raises(ConfigError, match="neither a stage nor 'summarise'"):
            stages_of((drop_oldest, stage))


@pytest.mark.parametrize("strategy", ["buffer", ()])
def test_buffer_removes_nothing_and_raises_over_budget(strategy: Any) -> None:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(strategy=strategy, max_tokens=500))
    with record_events(memory, [events.OverBudget]) as emitted:
        traffic(memory, 5)
    assert [event.reason for event in emitted if isinstance(event, events.OverBudget)][-1] == (
        f"the strategy {strategy!r} never compresses"
    )
    result = memory.compress("s")
    assert (result.compression_id, result.reason) == (
        None,
        f"nothing was changed: the strategy {strategy!r} never compresses",
    )
    assert {row.action for row in memory.plan_compression("s").entries} == {"keep"}
    with pytest.raises(BudgetExceeded) as refused:
        memory.build_context("s")
    context = memory.build_context("s", budget=refused.value.required)
    assert (len(context.trimmed), context.tokens.tokens) == (0, refused.value.required)


def test_a_later_stage_runs_only_while_low_water_is_not_met() -> None:
    memory = manager(max_entries=None)
    traffic(memory)
    tokens = memory.get_stats("s").active_tokens
    assert methods(memory, target_tokens=tokens - 500) == ["stub"]
    assert "outline" in methods(memory, target_tokens=tokens - 1_800)


def test_entry_target_runs_later_stages() -> None:
    memory = manager(max_entries=100)  # 81 entries are over low water, which is 50
    traffic(memory)
    tokens = memory.get_stats("s").active_tokens
    assert "outline" in methods(memory, target_tokens=tokens - 500)
    stats = memory.get_stats("s")
    assert stats.active_entries <= 50


def test_a_strategy_of_stages_is_obeyed() -> None:
    memory = manager(strategy=(drop_oldest,))
    traffic(memory)
    # The exchange that is dropped last returns as far as the target has room.
    assert methods(memory, target_tokens=1_500) == ["clip", "drop"]
    [outline] = memory.get_summaries("s")
    assert outline.content.startswith("What was said and done, oldest first:")


def test_a_stage_of_ones_own_sees_the_view_and_the_goal() -> None:
    seen: list[tuple[int, int]] = []

    def look(view: Any, goal: Any, make_entry: Any) -> None:
        seen.append((view.tokens, goal.tokens))

    memory = manager(strategy=(look, drop_oldest), state_ratio=0)
    traffic(memory)
    tokens = memory.get_stats("s").active_tokens
    memory.compress("s", target_tokens=1_500)
    assert seen == [(tokens, 1_500)]


@pytest.mark.parametrize("target", [300, 1_500, 3_000, 10_000])
@pytest.mark.parametrize("summarizer", [None, lambda prompt: "abcd" * 20])
def test_plan_predicts_the_compression(target: int, summarizer: Any) -> None:
    memory = manager()
    memory.set_summarize_callback(summarizer)
    traffic(memory)
    before = memory.export_session("s")
    plan = memory.plan_compression("s", target_tokens=target)
    assert memory.export_session("s") == before
    result = memory.compress("s", target_tokens=target)
    done = {entry_id: item.method for item in result.replacements for entry_id in item.ids}
    planned = {row.entry_id: row.action for row in plan.entries if row.action != "keep"}
    assert plan.tokens_before == result.tokens_before
    assert plan.asks_summarizer == any(item.method == "summary" for item in result.replacements)
    assert plan.tokens_after <= max(target, 300)
    if summarizer is None:
        assert planned == done
        assert result.tokens_after == plan.tokens_after
    else:  # a summary may turn out smaller than its cap, and originals return into the room
        assert done.keys() <= planned.keys()
        assert all(planned[name] in (action, "stub") for name, action in done.items())
        assert result.tokens_after <= max(target, 300)


def test_plan_calls_no_summarizer() -> None:
    prompts: list[str] = []
    memory = manager()
    memory.set_summarize_callback(lambda prompt: prompts.append(prompt) or "x")
    traffic(memory)
    plan = memory.plan_compression("s", target_tokens=1_500)
    assert plan.asks_summarizer
    assert prompts == []


def test_plan_shows_if_no_summarizer_would_be_called() -> None:
    memory = manager(max_entries=None)
    memory.set_summarize_callback(lambda prompt: "x")
    traffic(memory)
    tokens = memory.get_stats("s").active_tokens
    plan = memory.plan_compression("s", target_tokens=tokens - 500)
    assert {row.action for row in plan.entries} == {"keep", "stub"}
    assert not plan.asks_summarizer


def test_plan_has_an_action_and_reason_for_each_entry() -> None:
    memory = manager(recent_window=4, state_ratio=0)
    traffic(memory)
    plan = memory.plan_compression("s", target_tokens=1_500)
    active = memory.get_active_entries("s")
    assert [row.entry_id for row in plan.entries] == [entry.id for entry in active]
    assert [row.tokens for row in plan.entries] == [entry.token_count.tokens for entry in active]
    assert plan.tokens_before == sum(row.tokens for row in plan.entries)
    rows = sum(row.tokens_after for row in plan.entries)
    assert plan.tokens_after == rows + plan.state_tokens
    assert plan.state_tokens > 0
    assert plan.entries_before == len(active)
    assert "pinned" in plan.entries[0].reason
    assert plan.entries[-1].reason == "the newest exchange"
    assert plan.entries[-2].reason == "in the recent window"
    reasons = {row.action: row.reason for row in plan.entries if row.action != "keep"}
    assert reasons == {
        "outline": "old, and the window is over",
        "stub": "old, and the window is over",
        "clip": "too large to stay whole",  # the newest result, which has the rest of the target
    }


def test_nothing_to_do_is_a_plan_that_keeps_everything() -> None:
    memory = manager()
    traffic(memory, 2)
    plan = memory.plan_compression("s")
    assert {row.action for row in plan.entries} == {"keep"}
    assert plan.tokens_before == plan.tokens_after
