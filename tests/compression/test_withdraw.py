"""A compression for a target uses its room: what it removed and what still fits is put back."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from memman import CompressionResult, Entry, MemoryConfig, MemoryManager
from memman.formats.rules import check

S = "s"
SIZES = st.lists(st.integers(1, 4_000), min_size=1, max_size=30)
SMALL = st.lists(st.integers(60, 300), min_size=60, max_size=90)


def manager(counter: str = "chars4", **settings: int) -> MemoryManager:
    given = {"max_tokens": 100_000, "auto_compress": False, "max_entries": None}
    return MemoryManager(counter=counter, config=MemoryConfig(**given | settings))


def filled(memory: MemoryManager, sizes: list[int], chat: int = 1) -> list[Entry]:
    """Add a call with a result of each size in tokens, and some messages between; return the results."""
    found = []
    for number, size in enumerate(sizes):
        if number % 3 == 0:
            memory.add_user_message(S, f"Step {number}: look at unit {number}. " + "abc " * chat)
        memory.add_tool_call(S, "read", {"unit": number}, call_id=f"c{number}")
        text = "".join(f"row {row} of unit {number} is {row * number}\n" for row in range(size))
        found.append(memory.add_tool_result(S, "read", text[: 4 * size], call_id=f"c{number}"))
    memory.add_assistant_message(S, "All of these units are read now.")
    return found


def protected(memory: MemoryManager) -> int:
    """Return the tokens of the newest exchange and of the newest message of the user."""
    entries = memory.get_active_entries(S)
    newest = next((e for e in reversed(entries) if e.type == "message" and e.role == "user"), None)
    kept = {entries[-1].id} | ({newest.id} if newest else set())
    return sum(entry.token_count.tokens for entry in entries if entry.id in kept)


def compressed(memory: MemoryManager, target: int) -> CompressionResult:
    """Compress for a target; the planned tokens are those of the window, which is valid."""
    plan = memory.plan_compression(S, target_tokens=target)
    result = memory.compress(S, target_tokens=target)
    stats = memory.get_stats(S)
    if result.compression_id is not None:
        assert result.tokens_after == plan.tokens_after == stats.active_tokens
    context = memory.build_context(S)
    assert check(context.messages, "openai-chat") == []
    return result


@given(SIZES, st.integers(200, 20_000), st.integers(1, 200), st.sampled_from([0, 2, 10]))
def test_window_is_at_most_the_target(
    sizes: list[int], target: int, chat: int, recent: int
) -> None:
    memory = manager(recent_window=recent)
    filled(memory, sizes, chat)
    kept = protected(memory)
    compressed(memory, target)
    # The recent window and the newest messages may be larger than a small target.
    stays = sum(entry.token_count.tokens for entry in memory.get_active_entries(S)[-recent - 2 :])
    assert memory.get_stats(S).active_tokens <= max(target, stays + kept + target // 2)
    if recent == 0 and kept < target // 2:
        assert memory.get_stats(S).active_tokens <= target


@given(SMALL, st.floats(0.2, 0.8))
def test_room_of_small_results_is_used(sizes: list[int], share: float) -> None:
    memory = manager(recent_window=2)
    filled(memory, sizes)
    target = int(share * memory.get_stats(S).active_tokens)
    result = compressed(memory, target)
    assert 0.85 * target <= result.tokens_after <= target


@given(st.lists(st.integers(60, 300), min_size=20, max_size=40), st.floats(0.3, 0.9))
def test_newest_originals_return_first(sizes: list[int], share: float) -> None:
    memory = manager(recent_window=2)
    results = filled(memory, sizes)
    target = int(share * memory.get_stats(S).active_tokens)
    memory.compress(S, target_tokens=target)
    there = {entry.id for entry in memory.get_active_entries(S)}
    # Of two neighbours the newer one is there, unless it is larger than what was left of the room.
    for older, newer in pairwise(results):
        if older.id in there and newer.id not in there:
            assert newer.token_count.tokens > older.token_count.tokens
    assert results[-1].id in there


@given(st.integers(20_000, 60_000), st.integers(20, 40), st.integers(60, 300))
def test_huge_newest_old_result_is_clipped_and_others_stay(
    huge: int, number: int, small: int
) -> None:
    memory = manager(recent_window=2)
    results = filled(memory, [small] * number)
    memory.add_tool_call(S, "read", {"unit": "large"}, call_id="large")
    rows = "".join(f"row {row} of the large unit is {row * 7}\n" for row in range(huge))
    large = memory.add_tool_result(S, "read", rows[: 4 * huge], call_id="large")
    memory.add_assistant_message(S, "I read it; next the tests.")
    memory.add_tool_call(S, "test", {}, call_id="test")
    others = memory.get_stats(S).active_tokens - large.token_count.tokens
    target = others + 800  # less than the large result
    result = compressed(memory, target)
    active = {entry.id for entry in memory.get_active_entries(S)}
    [clip] = [item for item in result.replacements if large.id in item.ids]
    assert clip.method == "clip"
    assert results[-1].id in active
    notices = [entry.text for entry in memory.get_active_entries(S)]
    assert any(f"the original is entry #{large.seq}]" in text for text in notices)
    assert 0.85 * target <= result.tokens_after <= target


def test_compression_by_hand_without_a_target_is_thorough() -> None:
    memory = manager(recent_window=2)
    results = filled(memory, [100] * 40)
    memory.compress(S)
    there = {entry.id for entry in memory.get_active_entries(S)}
    assert there.isdisjoint(entry.id for entry in results)


def test_entry_target_counts_what_returns() -> None:
    memory = manager(max_entries=60, recent_window=2)
    filled(memory, [100] * 40)
    tokens = memory.get_stats(S).active_tokens
    memory.compress(S, target_tokens=tokens - 500)
    stats = memory.get_stats(S)
    assert 25 <= stats.active_entries <= 30  # half of max_entries
