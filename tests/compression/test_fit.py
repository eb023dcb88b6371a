"""After each compression the window is at its target, or the result has the reason."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import BudgetExceeded, CompressionResult, MemoryConfig, MemoryManager, events
from memman.compression import ClearToolResults, clip_rest, drop_oldest, fold_repeats
from memman.config import resolve_budget
from memman.formats.rules import check
from memman.testing import ScriptedSummarizer, record_events
from tests.examples import examples

S = "s"
HUGE = "The quick brown fox. " * 19_048  # 400,008 characters
STRATEGIES: tuple[Any, ...] = (
    "default", "window", "window(3)", "token_buffer", "summary", "summary_buffer", (drop_oldest,),
    (ClearToolResults(protect_tokens=100), fold_repeats, "summarise", drop_oldest, clip_rest),
)  # fmt: skip


def named(strategy: Any) -> str:
    """Return a name for a test that is the same in every process."""
    stages = (strategy,) if isinstance(strategy, str) else strategy
    return ", ".join(getattr(stage, "__name__", type(stage).__name__) if callable(stage) else stage
                     for stage in stages)  # fmt: skip


SUMMARIZERS: dict[str, Any] = {
    "none": None,
    "good": lambda prompt: "in short",
    "long": lambda prompt: "word " * 3_000,
    "failing": lambda prompt: 1 / 0,
}
KINDS = ("user", "assistant", "system", "context", "repeat", "pair", "parallel", "open", "pinned")
EVENTS = st.tuples(st.sampled_from(KINDS), st.integers(0, 400))


def add(memory: MemoryManager, number: int, kind: str, tokens: int) -> int:
    """Add entries of a kind with `tokens` tokens; return their number."""
    text = f"{number:04}" + "abc " * tokens
    if kind in ("user", "assistant", "system"):
        getattr(memory, f"add_{kind}_message")(S, text)
    elif kind in ("context", "repeat"):
        memory.add_context(S, "abc " * tokens if kind == "repeat" else text, "a.py")
    elif kind == "pinned":
        memory.add_user_message(S, "abc " * (tokens // 20), pinned=True)
    else:
        calls = [f"c{number}.{n}" for n in range(2 if kind == "parallel" else 1)]
        for call in calls:
            memory.add_tool_call(S, "shell", {"x": "a" * tokens}, call_id=call)
        for call in calls if kind != "open" else ():
            memory.add_tool_result(S, "shell", text, call_id=call)
        return len(calls) * (1 if kind == "open" else 2)
    return 1


@pytest.mark.parametrize("strategy", STRATEGIES, ids=named)
@settings(max_examples=examples(40))
@given(
    st.lists(EVENTS, min_size=5, max_size=40),
    st.sampled_from([60, 200, 1_000, 4_000, 20_000]),
    st.sampled_from(sorted(SUMMARIZERS)),
)
def test_compression_reaches_its_target_or_has_a_reason(
    strategy: Any, kinds: list[tuple[str, int]], budget: int, summarizer: str
) -> None:
    config = MemoryConfig(max_tokens=budget, strategy=strategy, summarize_timeout=None)
    memory = MemoryManager(counter="chars4", config=config, summarizer=SUMMARIZERS[summarizer])
    target = resolve_budget(config, None)
    unexplained: list[CompressionResult] = []

    def receive(_: Any, event: CompressionResult) -> None:
        stats = memory.get_stats(S)
        entries = len(memory.get_active_entries(S))
        most = target.target_entries
        short = stats.active_tokens > target.target_tokens or (most is not None and entries > most)
        why = "above the target of" in event.reason
        if event.tokens_after != stats.active_tokens or (short and not why):
            unexplained.append(event)

    added = 0
    with events.compressed.connected_to(receive, sender=memory):
        for number, (kind, tokens) in enumerate(kinds):
            added += add(memory, number, kind, tokens)
    assert unexplained == []
    assert len(memory.get_entries(S)) == added
    by_hand = memory.compress(S)
    assert by_hand.reason
    if fixed_tokens(memory) > budget:
        with pytest.raises(BudgetExceeded):
            memory.build_context(S)
        return
    with suppress(BudgetExceeded):  # framing and placeholders are added to protected entries
        context = memory.build_context(S)
        assert context.tokens.tokens <= budget
        assert not context.messages or check(context.messages, "openai-chat") == []


def fixed_tokens(memory: MemoryManager) -> int:
    """Return the tokens that no stage may remove."""
    return sum(e.token_count.tokens for e in memory.get_active_entries(S) if e.pinned)


@settings(max_examples=examples(60))
@given(st.lists(EVENTS, min_size=1, max_size=30), st.integers(20, 4_000))
def test_manual_target_is_reached_or_has_a_reason(
    kinds: list[tuple[str, int]], target: int
) -> None:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(auto_compress=False))
    for number, (kind, tokens) in enumerate(kinds):
        add(memory, number, kind, tokens)
    result = memory.compress(S, target_tokens=target)
    tokens = memory.get_stats(S).active_tokens
    assert result.tokens_after == tokens
    if tokens > target:
        assert "above the target of" in result.reason or "nothing was" in result.reason
    # The room that is planned for an outline stays, also if the entries beside it need more than planned.
    if tokens - sum(each.token_count for each in memory.get_summaries(S)) > target:
        left = memory.plan_compression(S, target_tokens=target).entries
        old = [row for row in left if row.reason.startswith("old") and row.type != "summary"]
        assert all("too few old entries for a summary" in row.reason for row in old)
        assert sum(row.tokens_after for row in old) <= 4 * 48


@pytest.mark.parametrize(
    "strategy", ["default", "window", "token_buffer", "summary", "summary_buffer"]
)
@pytest.mark.parametrize(
    "budget",
    [2_000, *(pytest.param(each, marks=pytest.mark.long) for each in (8_000, 32_000)), 99_000],
)
def test_huge_entry_is_clipped_and_its_original_retrievable(strategy: str, budget: int) -> None:
    memory = MemoryManager(
        counter="chars4", config=MemoryConfig(max_tokens=budget, strategy=strategy)
    )
    entry = memory.add_user_message(S, HUGE)
    context = memory.build_context(S)
    assert context.tokens.tokens <= budget
    *_, message = context.messages
    assert (
        f"of {len(HUGE)} characters here; the original is entry #{entry.seq}]" in message["content"]
    )
    assert len(message["content"]) > 2 * budget  # as much as fits, not a stub
    assert memory.get_entry(S, entry.id).text == HUGE


@pytest.mark.parametrize("budget", [2_000, 8_000, 99_000])
def test_a_huge_tool_result_fits_clipped_with_its_call(budget: int) -> None:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=budget))
    for number in range(8):
        memory.add_user_message(S, f"{number} abc")
    memory.add_tool_call(S, "cat", {"path": "log"}, call_id="c")
    entry = memory.add_tool_result(S, "cat", HUGE, call_id="c")
    context = memory.build_context(S)
    assert context.tokens.tokens <= budget
    assert check(context.messages, "openai-chat") == []
    assert len(context.messages) == 10  # one huge entry removes no recent ones
    assert memory.get_entry(S, entry.id).text == HUGE


def notices(memory: MemoryManager) -> list[str]:
    """Return the notices of clips and stubs in the window."""
    return [
        found
        for entry in memory.get_active_entries(S)
        for found in re.findall(r"\[memman[^]]*entry (#\d+)", entry.text)
    ]


def test_repeated_replacements_name_the_added_entry() -> None:
    config = MemoryConfig(max_tokens=2_000, recent_window=0, state_ratio=0)
    memory = MemoryManager(counter="chars4", config=config)
    pinned = memory.add_user_message(S, "abc " * 1_500, pinned=True)
    memory.add_tool_call(S, "cat", {"path": "log"}, call_id="c")
    original = memory.add_tool_result(S, "cat", HUGE, call_id="c")
    assert notices(memory) == [f"#{original.seq}"]  # cut, and cut again in the same compression
    assert f"#{original.seq}]" in memory.build_context(S, budget=1_700).messages[-1]["content"]
    memory.unpin(S, pinned.id)
    for _ in range(3):
        memory.add_user_message(S, "abc " * 200)
    memory.update_config(strategy=(ClearToolResults(),))
    memory.compress(S, target_tokens=400)
    assert notices(memory) == [f"#{pinned.seq}", f"#{original.seq}"]
    assert memory.get_entry(S, original.id).text == HUGE


def test_summary_clipped_at_once_covers_all_its_pieces() -> None:
    config = MemoryConfig(
        max_tokens=1_000, target_ratio=0.55, max_summary_ratio=0.8, max_entry_ratio=0.06,
        compression_ratio=0.9, recent_window=0, auto_compress=False, state_ratio=0,
    )  # fmt: skip
    memory = MemoryManager(counter="chars4", config=config, summarizer=lambda prompt: "fact " * 230)
    for number in range(8):
        memory.add_user_message(S, f"{number} " + "word " * 60, pinned=number in (3, 4, 6))
    memory.add_user_message(S, "abc " * 600)
    result = memory.compress(S)
    [summary] = memory.get_summaries(S)
    assert "memman cut" in summary.content
    assert result.summary_id == summary.id
    assert len(summary.original_entry_ids) == 5
    assert {entry.summary_id for entry in memory.get_entries(S) if entry.compressed} == {summary.id}
    assert "summary of entries 2-9" in str(memory.build_context(S).messages)


@pytest.mark.parametrize(
    "strategy", ["default", "window", "token_buffer", "summary_buffer", "buffer"]
)
def test_error_names_pinned_entries_over_the_budget(strategy: str) -> None:
    memory = MemoryManager(
        counter="chars4", config=MemoryConfig(max_tokens=2_000, strategy=strategy)
    )
    pinned = memory.add_user_message(S, HUGE, pinned=True)
    memory.add_user_message(S, "and now?")
    result = memory.compress(S)
    assert result.compression_id is None
    assert result.reason
    with pytest.raises(BudgetExceeded) as refused:
        memory.build_context(S)
    what, tokens = refused.value.culprits[0]
    assert what.startswith(f"pinned {pinned.address} ")
    assert tokens == pinned.token_count.tokens
    assert refused.value.available == 2_000
    memory.unpin(S, pinned.id)
    if strategy != "buffer":
        assert memory.build_context(S).tokens.tokens <= 2_000


# ---------------------------------------------------------------- a stable prefix


def test_pins_over_the_limit_remove_no_other_entry() -> None:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=1_000))
    with record_events(memory, [events.OverBudget]) as emittedons:
        pinned = memory.add_user_message(S, "abc " * 1_300, pinned=True)
        for number in range(10):
            memory.add_user_message(S, f"question {number}")
    assert "pinned entries alone take 1300 of " in str(emittedons[-1])
    assert "pinned entries alone take" in memory.explain(S).last_attempt
    assert memory.plan_compression(S).tokens_after == memory.get_stats(S).active_tokens
    with pytest.raises(BudgetExceeded):
        memory.build_context(S)
    memory.unpin(S, pinned.id)
    assert len(memory.get_active_entries(S)) == 11


# ---------------------------------------------------------------- removed and kept entries


def methods(memory: MemoryManager) -> set[str]:
    return {method for one in memory.explain(S).compressions for method in one.replaced}


def test_task_is_kept_if_the_target_is_out_of_reach() -> None:
    scripted = ScriptedSummarizer("They fix report.py.")
    memory = MemoryManager(
        counter="chars4", summarizer=scripted, config=MemoryConfig(max_tokens=8_000)
    )
    task = memory.add_user_message(S, "Fix report.py.")
    for number in range(2):
        memory.add_tool_call(S, "read_file", {"path": f"f{number}.py"}, call_id=f"c{number}")
        memory.add_tool_result(S, "read_file", "abc " * 5_400, call_id=f"c{number}")
    assert memory.explain(S).compressions[-1].replaced == {"stub": 1}
    assert task.id in [entry.id for entry in memory.get_active_entries(S)]
    why = "too few old entries for a summary (2, min_entries_to_compress=5), and they fit"
    assert why in memory.explain(S).last_attempt
    for number in range(4):  # with enough old entries there is a summary, and it has the constraint
        memory.add_tool_call(S, "read_file", {"path": f"g{number}.py"}, call_id=f"d{number}")
        memory.add_tool_result(S, "read_file", "abc " * 5_400, call_id=f"d{number}")
    assert "Fix report.py." in memory.build_context(S).messages[0]["content"]
    assert "drop" not in methods(memory)


@pytest.mark.parametrize(("share", "most"), [(0.6, 30), (0.7, 45), (0.8, 85)])
def test_many_pins_drop_nothing_and_few_adds_compress(share: float, most: int) -> None:
    scripted = ScriptedSummarizer("They ship orders.")
    memory = MemoryManager(
        counter="chars4", summarizer=scripted, config=MemoryConfig(max_tokens=2_000)
    )
    memory.add_user_message(S, "pin " * int(2_000 * share), pinned=True)
    for number in range(200):
        memory.add_user_message(S, f"{number} order " + "abc " * (30 + number * 37 % 60))
        assert memory.get_stats(S).active_tokens <= 2_000
    assert "drop" not in methods(memory)
    assert scripted.requests
    assert len(memory.explain(S).compressions) <= most


def test_manual_target_cuts_a_message_instead_of_dropping() -> None:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=4_000))
    task = memory.add_user_message(S, "The order is ORD-8841. " + "abc " * 3_000)
    memory.add_assistant_message(S, "It is on its way.")
    result = memory.compress(S, target_tokens=500)
    assert result.tokens_after <= 500
    outline, left, _ = memory.get_active_entries(S)
    assert "ORD-8841" in outline.text
    assert left.text.startswith("The order is ORD-8841.")
    assert memory.get_entry(S, task.id).text == task.text


def test_unreachable_target_removes_no_message() -> None:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=4_000))
    memory.add_user_message(S, "Never deploy on Friday. " * 10, pinned=True)
    memory.add_user_message(S, "The order is ORD-8841. " + "abc " * 1_000)
    memory.add_assistant_message(S, "It is on its way.")
    plan = memory.plan_compression(S, target_tokens=40)
    result = memory.compress(S, target_tokens=40)
    assert [row.action for row in plan.entries] == ["keep", "clip", "keep"]
    assert "ORD-8841" in str(memory.build_context(S).messages)
    assert f"{result.tokens_after} tokens stay, above the target of 40: " in result.reason


def test_plan_has_the_reason_why_old_entries_stay() -> None:
    memory = MemoryManager(
        counter="chars4",
        summarizer=ScriptedSummarizer(*[ValueError("down")] * 9),
        config=MemoryConfig(max_tokens=1_000, on_failure="keep", auto_compress=False),
    )
    for number in range(3):
        memory.add_user_message(S, f"{number} " + "abc " * 180)
    assert reasons(memory) == set()
    for number in range(9):
        memory.add_user_message(S, f"{number} " + "abc " * 180)
    for _ in range(3):
        memory.compress(S)
    assert "; the summarizer is paused until" in reasons(memory).pop()
    memory.add_user_message(S, "abc " * 1_100, pinned=True)
    assert "; pinned entries alone take" in reasons(memory).pop()


def reasons(memory: MemoryManager) -> set[str]:
    """Return the reasons of a plan for the old entries that it keeps."""
    rows = memory.plan_compression(S).entries
    return {row.reason for row in rows if row.reason.startswith("old") and row.action == "keep"}


def test_unanswered_exchange_leaves_room_for_the_rest() -> None:
    scripted = ScriptedSummarizer("They look at the parts.")
    memory = MemoryManager(
        counter="chars4", summarizer=scripted, config=MemoryConfig(max_tokens=8_000)
    )
    for number in range(6):
        memory.add_tool_call(S, "read", {"n": number}, call_id=f"c{number}", message_id="m1")
    for number in range(5):
        memory.add_tool_result(S, "read", "abc " * 2_000, call_id=f"c{number}")
    for number in range(200):
        memory.add_user_message(S, f"{number} " + "abc " * 80)
    assert "drop" not in methods(memory)
    assert scripted.requests
    assert len(memory.explain(S).compressions) < 30  # 16,000 tokens through the rest of 8,000


def test_paid_summary_is_kept_if_a_clip_suffices() -> None:
    scripted = ScriptedSummarizer("They look after order ORD-8841.")
    memory = MemoryManager(
        counter="chars4", summarizer=scripted, config=MemoryConfig(max_tokens=2_000)
    )
    with record_events(memory, [CompressionResult]) as results:
        for number in range(7):
            memory.add_tool_call(S, "read", {"n": number}, call_id=f"c{number}", message_id="m1")
        for number in range(6):
            memory.add_tool_result(S, "read", "abc " * 400, call_id=f"c{number}")
        for number in range(60):
            memory.add_user_message(S, f"{number} " + "abc " * 40)
    paid = [one for one in results if isinstance(one, CompressionResult) and one.cost.calls]
    assert paid
    assert all(one.summary_id for one in paid)


def broken_prefixes(memory: MemoryManager, entries: int) -> tuple[int, int, int]:
    """Count the contexts that do not begin with the previous one, the compressions, and the contexts
    that were trimmed because of a few tokens of framing.
    """
    heard: list[CompressionResult] = []

    def receive(_: Any, event: CompressionResult) -> None:
        heard.append(event)

    broken = trimmed = before = 0
    with events.compressed.connected_to(receive, sender=memory):
        for number in range(entries):
            if number % 3 == 0:
                memory.add_user_message(S, f"{number:04}" + "abc " * 40)
            else:
                memory.add_tool_call(S, "shell", {"n": number}, call_id=f"c{number}")
                memory.add_tool_result(
                    S, "shell", f"{number:04}" + "abc " * 80, call_id=f"c{number}"
                )
            context = memory.build_context(S)
            broken += context.unchanged_prefix < before
            trimmed += bool(context.trimmed)
            before = len(context)
    return broken, len(heard), trimmed


@pytest.mark.parametrize(
    "strategy", ["default", "summary_buffer", "summary", (drop_oldest,)], ids=named
)
def test_prefix_changes_only_with_compressions(
    strategy: Any,
) -> None:
    config = MemoryConfig(max_tokens=4_000, max_entries=None, strategy=strategy)
    if strategy == "summary":
        config = MemoryConfig(strategy=strategy)
    memory = MemoryManager(counter="chars4", config=config, summarizer=lambda prompt: "in short")
    broken, compressions, trimmed = broken_prefixes(memory, 300)
    assert 0 < broken <= compressions + trimmed
    assert trimmed <= compressions / 2
    budget = resolve_budget(config, None)
    stats = memory.get_stats(S)
    rooms = [stats.total_tokens / (budget.max_tokens - budget.target_tokens)]
    if budget.max_entries is not None and budget.target_entries is not None:
        rooms.append(stats.total_entries / (budget.max_entries - budget.target_entries))
    assert compressions <= 1.25 * max(rooms) + 1


def test_compression_leaves_messages_before_its_first_cut() -> None:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(auto_compress=False))
    memory.add_system_message(S, "be brief")
    for number in range(4):
        memory.add_user_message(S, f"keep {number}", pinned=True)
    for number in range(30):
        memory.add_user_message(S, f"{number} " + "abc " * 50)
    before = memory.build_context(S)
    memory.compress(S, target_tokens=800)
    after = memory.build_context(S)
    assert after.unchanged_prefix == 5
    assert after.messages[:5] == before.messages[:5]


# ---------------------------------------------------------------- contexts that are trimmed


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("budget", [800, 2_000, 8_000])
def test_trimmed_context_uses_its_budget(tools: bool, budget: int) -> None:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(auto_compress=False))
    for number in range(1, 300):
        add(memory, number, "pair" if tools and number % 3 else "user", 50)
        if number % 20 == 0 and memory.get_stats(S).active_tokens > budget:
            context = memory.build_context(S, budget=budget)
            assert 0.7 * budget <= context.tokens.tokens <= budget
            assert check(context.messages, "openai-chat") == []


def test_trimmed_contexts_share_prefixes() -> None:
    config = MemoryConfig(auto_compress=False, max_tokens=4_000)
    memory = MemoryManager(counter="chars4", config=config)
    broken = before = trimmed = 0
    for number in range(examples(300, by_default=210)):
        memory.add_user_message(S, f"{number:04}" + "abc " * 40)
        context = memory.build_context(S)
        broken += context.unchanged_prefix < before
        trimmed += bool(context.trimmed)
        before = len(context)
    assert trimmed > 0.45 * memory.get_stats(S).total_entries
    assert broken <= 1.25 * memory.get_stats(S).total_tokens / (4_000 / 8)
    assert broken < trimmed / 8


@pytest.mark.parametrize("pinned", [1, 30, 60])
@pytest.mark.parametrize("newest", [1, 60])
def test_budget_is_rejected_only_below_the_protected_minimum(pinned: int, newest: int) -> None:
    config = MemoryConfig(max_tokens=2_000, max_entries=None, recent_window=2)
    memory = MemoryManager(counter="chars4", config=config)
    for number in range(30):
        memory.add_user_message(S, f"message {number} " + "word " * 40)
    assert memory.compress(S, target_tokens=600).summary_id is not None
    memory.add_user_message(S, "keep this " + "word " * pinned, pinned=True)
    memory.add_user_message(S, "and now? " + "word " * newest)
    with pytest.raises(BudgetExceeded) as raisedons:
        memory.build_context(S, budget=1)
    least = raisedons.value.required
    assert not any("summary" in culprit for culprit, _ in raisedons.value.culprits)
    step = 4 // examples(4, by_default=1)
    for budget in (*range(2, least - 1, step), least - 1):
        with pytest.raises(BudgetExceeded) as refused:
            memory.build_context(S, budget=budget)
        assert refused.value.required == least
    for budget in range(least, 300, 4):
        assert memory.build_context(S, budget=budget).tokens.tokens <= budget


def test_budget_exceeded_names_a_crowded_exchange_by_its_calls() -> None:
    config = MemoryConfig(max_tokens=2_000, auto_compress=False)
    memory = MemoryManager(counter="chars4", config=config)
    memory.add_user_message(S, "Read them all.")
    calls = [
        memory.add_tool_call(S, "read", '{"path": "a.py"}', call_id=f"c{number}")
        for number in range(1_000)
    ]
    with pytest.raises(BudgetExceeded) as refused:
        memory.build_context(S)
    first, last = calls[0].address, calls[-1].address
    assert refused.value.culprits[0][0] == f"the newest exchange has 1,000 calls, {first} to {last}"
    assert "unpin" not in str(refused.value)
