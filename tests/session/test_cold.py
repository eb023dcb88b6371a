"""Compressions when the provider's cache has expired: the add after a long pause compresses early."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from memman import MemoryConfig, MemoryManager, ModelInfo, Prices, SessionState
from memman.compression import drop_oldest
from memman.config import resolve_budget
from memman.session.policy import COLD_SHARE
from memman.testing import FakeClock, ScriptedSummarizer

S = "s"
MODEL = "claude-sonnet-4-5"
FREE = Prices(input=0.0, output=0.0)
LIMIT = 20_000


def made(**given: Any) -> tuple[MemoryManager, FakeClock]:
    clock = given.pop("clock", None) or FakeClock()
    arguments = {
        name: given.pop(name) for name in ("store", "summarizer", "model_info") if name in given
    }
    config = MemoryConfig(**{"max_tokens": LIMIT, "max_entries": None, "recall_ratio": 0} | given)
    return MemoryManager(counter="chars4", config=config, clock=clock, **arguments), clock


def fill(memory: MemoryManager, tokens: int = 17_000, first: int = 0) -> None:
    """Add exchanges of about 210 tokens until the window has so many tokens."""
    for number in range(first, first + 100):
        if number and memory.get_stats(S).active_tokens >= tokens:
            return
        memory.add_user_message(S, f"Look at file {number}, please.")
        memory.add_assistant_message(S, f"File {number} defines a function. " * 25)


def recorded(memory: MemoryManager) -> list[Any]:
    found: list[Any] = []
    memory.on("compressed", found.append)
    return found


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def compressions(memory: MemoryManager) -> list[str]:
    return [each.reason for each in memory.explain(S).compressions]


def compresses(memory: MemoryManager, clock: FakeClock, pause: float = 17) -> bool:
    """Add a user's message after a pause in minutes, and return whether that compressed."""
    before = len(compressions(memory))
    clock.advance(minutes(pause))
    memory.add_user_message(S, "And now?")
    return len(compressions(memory)) > before


# ---------------------------------------------------------------- when it compresses


def test_add_after_the_lifetime_compresses_a_large_window() -> None:
    memory, clock = made()
    fill(memory)
    found = recorded(memory)
    assert compresses(memory, clock)
    assert found[0].tokens_before < LIMIT
    assert memory.get_stats(S).active_tokens <= LIMIT // 2


def test_reason_has_the_time_since_the_cache_expired() -> None:
    memory, clock = made()
    fill(memory)
    assert compresses(memory, clock, 17)
    start = "the provider's cache expired 12 minutes ago; "
    assert compressions(memory)[0].startswith(start)
    assert f"tokens are over {early_at()}, near max_tokens (20000); " in compressions(memory)[0]


def early_at() -> int:
    return (
        resolve_budget(MemoryConfig(max_tokens=LIMIT, recall_ratio=0), None)
        .prepared(COLD_SHARE)
        .max_tokens
    )


@pytest.mark.parametrize(
    ("pause", "ago"), [(5.5, "30 seconds"), (6, "1 minute"), (125, "2 hours"), (3_000, "2 days")]
)
def test_reason_has_the_largest_whole_unit(pause: float, ago: str) -> None:
    memory, clock = made()
    fill(memory)
    assert compresses(memory, clock, pause)
    assert f"expired {ago} ago" in compressions(memory)[0]


def test_lifetime_of_an_hour_is_waited_for() -> None:
    memory, clock = made(cache_ttl=3_600)
    fill(memory)
    assert not compresses(memory, clock, 17)
    assert compresses(memory, clock, 61)


def test_restarted_process_compresses(tmp_path: Path) -> None:
    store = tmp_path / "memory.db"
    memory, clock = made(store=store)
    fill(memory)
    memory.close()
    memory, clock = made(store=store, clock=clock)
    assert compresses(memory, clock)


def test_result_after_a_long_call_compresses() -> None:
    memory, clock = made()
    fill(memory)
    memory.add_tool_call(S, "run", {"tests": "all"}, call_id="c1")
    clock.advance(minutes(17))
    memory.add_tool_result(S, "run", "All pass.", call_id="c1")
    assert len(compressions(memory)) == 1


def test_second_result_after_a_long_call_compresses() -> None:
    memory, clock = made()
    fill(memory, early_at() - 1_500)
    for call in ("c1", "c2"):
        memory.add_tool_call(S, "read", {"path": call}, call_id=call)
    clock.advance(minutes(17))
    memory.add_tool_result(S, "read", "short", call_id="c1")
    assert not compressions(memory)
    memory.add_tool_result(S, "read", "long " * 2_000, call_id="c2")
    assert len(compressions(memory)) == 1


def test_reply_added_with_the_next_message_compresses() -> None:
    memory, clock = made()
    fill(memory)
    memory.add_user_message(S, "Go on.", compress=False)
    clock.advance(minutes(17))
    reply = {"role": "assistant", "content": "Done."}
    memory.add_messages(S, [reply, {"role": "user", "content": "Thanks. Next?"}])
    assert len(compressions(memory)) == 1


def test_summarizer_is_called() -> None:
    summarizer = ScriptedSummarizer("They looked at many files.")
    memory, clock = made(summarizer=summarizer)
    fill(memory)
    assert compresses(memory, clock)
    assert "the summarizer was called once" in compressions(memory)[0]


def test_next_pause_compresses_again() -> None:
    memory, clock = made(summarizer=ScriptedSummarizer("They looked at many files."))
    fill(memory)
    assert compresses(memory, clock)
    fill(memory, first=100)
    assert compresses(memory, clock)
    assert all("the summarizer was called once" in each for each in compressions(memory))


# ---------------------------------------------------------------- when it does not


@pytest.mark.parametrize(
    "settings",
    [
        {"compress_when_cold": False},
        {"cache_ttl": None},
        {"auto_compress": False},
        {"background": True},
        {"strategy": "buffer"},
        {"strategy": "token_buffer"},
        {"strategy": "window(400)"},
        {"target_ratio": 0.8},
        {"model": MODEL, "model_info": ModelInfo(200_000, 200_000, 64_000, prices=FREE)},
    ],
    ids=str,
)
def test_setting_prevents_an_early_compression(settings: dict[str, Any]) -> None:
    memory, clock = made(**settings)
    found = recorded(memory)
    fill(memory)
    assert not compresses(memory, clock)
    memory.close()  # waits for the background
    assert not found


def test_warm_cache_does_not_compress() -> None:
    memory, clock = made()
    fill(memory)
    assert not compresses(memory, clock, 4.9)


def test_window_that_is_not_due_soon_does_not_compress() -> None:
    memory, clock = made()
    fill(memory, early_at() - 2_000)
    assert not compresses(memory, clock)


def test_small_window_does_not_compress() -> None:
    memory, clock = made(max_tokens=2_000)
    fill(memory, 1_800)
    assert not compresses(memory, clock)


def test_build_context_does_not_compress() -> None:
    memory, clock = made()
    fill(memory)
    clock.advance(minutes(17))
    memory.build_context(S)
    assert not compressions(memory)


def test_build_or_usage_counts_as_a_request() -> None:
    requests: list[Callable[[MemoryManager], object]] = [
        lambda memory: memory.build_context(S),
        lambda memory: memory.record_usage(S, input_tokens=9_000, output_tokens=10),
    ]
    for request in requests:
        memory, clock = made()
        fill(memory)
        clock.advance(minutes(17))
        request(memory)
        assert not compresses(memory, clock, 1)


def test_session_without_a_request_does_not_compress() -> None:
    memory, clock = made()
    for number in range(40):
        clock.advance(minutes(17))
        memory.add_user_message(S, f"Note {number}: " + "read this later. " * 100)
    assert not compressions(memory)


def test_reply_of_another_process_counts_as_a_request(tmp_path: Path) -> None:
    memory, clock = made(store=tmp_path / "memory.db")
    other, _ = made(store=tmp_path / "memory.db", clock=clock)
    fill(memory)
    memory.build_context(S)
    clock.advance(minutes(17))
    other.add_user_message(S, "From another process.", compress=False)
    other.add_assistant_message(S, "Yes.", compress=False)
    assert not compresses(memory, clock, 1)
    memory.close()
    other.close()


def test_undone_compression_is_not_repeated() -> None:
    memory, clock = made()
    fill(memory)
    assert compresses(memory, clock)
    memory.undo_compression(S)
    assert not compresses(memory, clock)


def test_futile_compression_is_not_repeated() -> None:
    runs = []

    def nothing(view: Any, _goal: Any, _make_entry: Any) -> Any:
        runs.append(1)
        return view

    memory, clock = made(strategy=(nothing,))
    fill(memory)
    for _ in range(3):
        clock.advance(minutes(17))
        memory.add_user_message(S, "And now?")
    assert len(runs) == 1


def test_paused_summarizer_puts_it_off() -> None:
    memory, clock = made(summarizer=ScriptedSummarizer(RuntimeError("down")))
    fill(memory)
    for _ in range(3):  # then it is paused for a minute
        memory.compress(S, summarize=True, target_tokens=16_000)
    memory.undo_compression(S)
    before = len(compressions(memory))
    memory.update_config(cache_ttl=1)
    fill(memory, 19_000, first=100)
    assert not compresses(memory, clock, 0.1)
    assert len(compressions(memory)) == before


def test_imported_session_is_not_compressed() -> None:
    memory, clock = made(auto_compress=False)
    fill(memory)
    state: SessionState = memory.export_session(S)
    clock.advance(minutes(170))
    other, _ = made(clock=clock)
    other.import_session(state)
    assert not compressions(other)
    other.add_messages("log", memory.get_messages(S))
    assert not other.explain("log").compressions


def test_own_stage_runs_on_a_cold_window() -> None:
    memory, clock = made(strategy=(drop_oldest,))
    fill(memory)
    assert compresses(memory, clock)


# ---------------------------------------------------------------- explain


def cache_line(memory: MemoryManager) -> str:
    lines = str(memory.explain(S)).splitlines()
    return next((line for line in lines if line.startswith("cache: ")), "")


def test_explain_has_the_cost_while_the_cache_is_warm() -> None:
    memory, clock = made(auto_compress=False)
    fill(memory)
    clock.advance(minutes(4))
    cache = memory.explain(S).cache
    assert cache is not None
    assert cache.is_warm
    assert not cache.compresses_next
    assert cache.expires_at == clock.now + minutes(1)
    plan = memory.plan_compression(S)
    assert cache.saved_tokens == plan.tokens_before - plan.tokens_after
    assert cache.written_tokens == plan.tokens_after
    assert cache.pays_after == ceil(plan.tokens_after * 1.15 / (cache.saved_tokens * 0.1))
    about = f"{round(plan.tokens_after, -2):,}"
    assert cache_line(memory) == (
        f"cache: warm until 00:05; a compression now costs about {about} tokens of cache and pays after "
        f"{cache.pays_after} requests"
    )


def test_explain_counts_no_prefix_that_stays() -> None:
    memory, _ = made(auto_compress=False)
    memory.add_system_message(S, "Be brief. " * 100)
    fill(memory)
    plan, cache = memory.plan_compression(S), memory.explain(S).cache
    assert cache is not None
    assert cache.written_tokens == plan.tokens_after - plan.entries[0].tokens


def test_explain_uses_the_prices_of_the_model() -> None:
    prices = Prices(input=1.0, output=1.0, cache_read=0.5)
    info = ModelInfo(200_000, 200_000, 64_000, prices=prices)
    memory, _ = made(model=MODEL, model_info=info)
    fill(memory)
    cache = memory.explain(S).cache
    assert cache is not None
    assert cache.pays_after == ceil(cache.written_tokens * 0.5 / (cache.saved_tokens * 0.5))


def test_explain_has_the_next_add_when_the_cache_is_cold() -> None:
    memory, clock = made()
    fill(memory)
    clock.advance(minutes(17))
    found = memory.explain(S)
    assert found.cache is not None
    assert (found.cache.is_warm, found.cache.pays_after) == (False, 0)
    assert found.reason == "within the limits, and the provider's cache has expired"
    assert found.next.startswith("the next add compresses: about ")
    line = "cache: cold since 2026-01-01 00:05; a compression now costs no tokens of cache"
    assert cache_line(memory) == line


def test_explain_of_a_small_window_has_the_time_alone() -> None:
    memory, clock = made()
    fill(memory, 2_000)
    assert cache_line(memory) == "cache: warm until 00:05"
    clock.advance(minutes(17))
    assert cache_line(memory) == "cache: cold since 2026-01-01 00:05"
    assert memory.explain(S).next.startswith("more than ")


def test_explain_without_a_request_has_no_cache() -> None:
    memory, _ = made()
    memory.add_user_message(S, "Hello")
    assert memory.explain(S).cache is None
    memory.add_assistant_message(S, "Hello!")
    assert memory.explain(S).cache is not None
    memory.update_config(cache_ttl=None)
    assert memory.explain(S).cache is None
    assert cache_line(memory) == ""
