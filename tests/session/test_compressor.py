"""Compressions: one at a time, after failures, and in the background."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memman import (
    CompressionFailed,
    MemoryConfig,
    MemoryManager,
    SessionNotFound,
    StoreConflict,
    StoreError,
    SummaryRequest,
    events,
)
from memman.runtime.async_runtime import AsyncLock, AsyncRuntime
from memman.runtime.base import drive
from memman.stores import MemoryStore
from memman.testing import Delayed, record_events
from tests.apis import APIS, SESSION, SyncUse, words
from tests.patience import PATIENCE

DOWN = OSError("429")
Make = Callable[..., SyncUse]


@pytest.fixture(params=APIS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[SyncUse] = []

    def use(*replies: Any, **settings: Any) -> SyncUse:
        made.append(APIS[request.param](*replies, **settings))
        return made[-1]

    yield use
    for each in made:
        each.end()


ROOMY = {"max_tokens": 500}
"""A window with room for an outline; messages of fifty tokens fill it as those of ten do the small one."""


def fill(use: SyncUse, entries: int = 9, size: int = 10, **keywords: Any) -> list[str]:
    """Add messages of ten tokens each; return their ids. Nine are just under the trigger of 100."""
    return [
        use.do("add_user_message", f"n{number} " + "word " * (size - 1), **keywords).id
        for number in range(entries)
    ]


def failures(emitted: list[events.Event]) -> list[events.CompressionFailedNotice]:
    return [event for event in emitted if isinstance(event, events.CompressionFailedNotice)]


def results(emitted: list[events.Event]) -> list[events.CompressionResult]:
    return [event for event in emitted if isinstance(event, events.CompressionResult)]


def methods(result: events.CompressionResult) -> set[str]:
    return {item.method for item in result.replacements}


def later(use: SyncUse, seconds: float) -> None:
    use.clock.advance(timedelta(seconds=seconds))


# ---------------------------------------------------------------- after failures


def test_summarizer_is_not_called_during_its_pause(make: Make) -> None:
    use = make(DOWN, "short", on_failure="keep")
    fill(use, 11)
    assert use.asked == 1
    fill(use, 3)
    later(use, 14.9)
    fill(use, 1, size=1)
    assert use.asked == 1
    later(use, 0.1)
    fill(use, 1, size=1)
    assert use.asked == 2
    assert [each.content for each in use.do("get_summaries")] == ["short"]


def test_enough_new_content_ends_the_pause(make: Make) -> None:
    use = make(DOWN, "short", **ROOMY)
    with record_events(use.memory) as emitted:
        fill(use, 11, size=50)
        assert use.asked == 1
        fill(use, 8, size=50)
    assert use.asked == 2
    assert [methods(each) for each in results(emitted)] == [{"outline"}, {"summary"}]


def test_open_breaker_outlines_even_new_content(make: Make) -> None:
    use = make(DOWN, DOWN, DOWN, "short", **ROOMY)
    with record_events(use.memory) as emitted:
        fill(use, 100, size=50)
        assert use.asked == 3
        assert {frozenset(methods(each)) for each in results(emitted)} == {frozenset({"outline"})}
        later(use, 60)
        fill(use, 10, size=50)
    assert use.asked > 3
    assert methods(results(emitted)[-1]) == {"summary"}


def test_reason_without_a_summary_names_the_failure(make: Make) -> None:
    use = make(DOWN)
    with record_events(use.memory) as emitted:
        fill(use, 50)
    why = [each.reason.partition("; the summarizer was ")[2] for each in results(emitted)]
    assert [one.partition(";")[0] for one in why[:3]] == ["called once and failed: OSError"] * 3
    assert why[-1].startswith("not called: the summarizer is paused until 2026-01-01T00:01:00")


def test_failure_event_has_failures_in_a_row_and_retry_at(make: Make) -> None:
    use = make(DOWN, **ROOMY)
    fill(use, size=50, compress=False)
    with record_events(use.memory) as emitted:
        for _ in range(3):
            later(use, 60)
            use.do("compress")
            use.do("undo_compression")
    found = [(each.reason, each.fallback, each.failures) for each in failures(emitted)]
    assert found == [("OSError: 429", "outline", number) for number in (1, 2, 3)]
    waits = [(each.retry_at - use.clock.now).total_seconds() + 180 for each in failures(emitted)]
    assert waits == [60 + 15, 120 + 30, 180 + 60]


@pytest.mark.parametrize("on_failure", ["keep", "raise"])
def test_keep_and_raise_change_nothing_during_a_pause(make: Make, on_failure: str) -> None:
    use = make(DOWN, "short", on_failure=on_failure)
    with record_events(use.memory) as emitted:
        fill(use, 14)
    assert (use.asked, results(emitted), len(failures(emitted))) == (1, [], 1)
    assert len(use.do("get_active_entries")) == 14
    later(use, 15)
    with record_events(use.memory) as emitted:
        fill(use, 1)
    assert (use.asked, [methods(each) for each in results(emitted)]) == (2, [{"summary"}])


def test_compress_by_hand_calls_despite_a_failure(make: Make) -> None:
    use = make(DOWN, "short", on_failure="keep")
    fill(use, compress=False)
    assert "429" in use.do("compress").reason
    assert methods(use.do("compress")) == {"summary"}


def test_compress_by_hand_does_not_call_after_three_failures(make: Make) -> None:
    use = make(DOWN, DOWN, DOWN, "short", on_failure="keep")
    fill(use, compress=False)
    for _ in range(3):
        use.do("compress")
    result = use.do("compress")
    assert (use.asked, result.compression_id) == (3, None)
    assert "nothing was changed" in result.reason
    assert "after 3 failures in a row (OSError: 429)" in result.reason
    assert "paused until 2026-01-01T00:01:00+00:00," in result.reason
    later(use, 60)
    assert methods(use.do("compress")) == {"summary"}


def test_on_failure_raise_raises_from_compress_alone(
    make: Make,
) -> None:
    use = make(DOWN, on_failure="raise")
    fill(use, compress=False)
    for _ in range(4):
        with pytest.raises(CompressionFailed, match="nothing was changed"):
            use.do("compress")
    assert use.asked == 3
    fill(use, 5)
    assert (use.asked, len(use.do("get_active_entries"))) == (3, 14)


def test_while_the_breaker_is_open_fallback_outlines_by_hand(make: Make) -> None:
    use = make(DOWN, **ROOMY)
    fill(use, size=50, compress=False)
    for _ in range(3):
        use.do("compress")
        use.do("undo_compression")
    assert methods(use.do("compress")) == {"outline"}
    assert use.asked == 3


@pytest.mark.parametrize("on_failure", ["fallback", "keep"])
def test_plan_calls_no_summarizer_while_the_breaker_is_open(make: Make, on_failure: str) -> None:
    use = make(DOWN, on_failure=on_failure, **ROOMY)
    fill(use, size=50, compress=False)
    assert use.do("plan_compression").asks_summarizer
    for _ in range(3):
        if use.do("compress").compression_id is not None:
            use.do("undo_compression")
    plan = use.do("plan_compression")
    assert not plan.asks_summarizer
    assert {row.action for row in plan.entries} == (
        {"keep"} if on_failure == "keep" else {"keep", "outline"}
    )
    assert use.asked == 3


def test_a_good_answer_ends_the_row(make: Make) -> None:
    use = make(DOWN, DOWN, "short", DOWN, "short", on_failure="keep")
    fill(use, compress=False)
    use.do("compress")
    use.do("compress")
    use.do("compress")
    use.do("undo_compression")
    with record_events(use.memory) as emitted:
        use.do("compress")
    assert [each.failures for each in failures(emitted)] == [1]


def test_another_summarizer_is_called_at_once(make: Make) -> None:
    use = make(DOWN, on_failure="keep")
    fill(use, compress=False)
    for _ in range(3):
        use.do("compress")
    use.swap(lambda prompt: "short")
    assert methods(use.do("compress")) == {"summary"}


def test_sessions_back_off_each_for_itself(make: Make) -> None:
    use = make(DOWN, "short")
    fill(use, 11)
    assert use.asked == 1
    for number in range(11):
        use.do("add_user_message", f"n{number} " + "word " * 9, session="other")
    assert use.asked == 2


@pytest.mark.parametrize(
    "reply",
    ["", "word " * 2_500, lambda request: request.prompt + " and more" * 50, None,
     asyncio.CancelledError()],
    ids=["empty", "ten times the target", "the prompt", "None", "cancelled from within"],
)  # fmt: skip
def test_every_bad_reply_is_a_failure(make: Make, reply: Any) -> None:
    use = make((lambda request: None) if reply is None else reply, **ROOMY)
    fill(use, size=50, compress=False)
    with record_events(use.memory) as emitted:
        result = use.do("compress")
    assert methods(result) == {"outline"}
    assert [each.failures for each in failures(emitted)] == [1]


def test_cancelled_call_is_not_repeated_at_once(make: Make) -> None:
    class GaveUp(BaseException):
        pass

    use = make(GaveUp(), "short", summarize_timeout=None)
    with pytest.raises(GaveUp):
        fill(use, 11)
    before = use.asked
    fill(use, 1)
    assert (before, use.asked) == (1, 1)
    later(use, 15)
    fill(use, 12)
    assert use.asked == 2


# ---------------------------------------------------------------- a compression without a gain


def test_small_gain_is_emitted_and_pauses_the_summarizer(
    make: Make,
) -> None:
    use = make("word " * 24, max_tokens=200, recent_window=0, compression_ratio=1.0)
    use.do("add_user_message", "word " * 150, pinned=True)
    fill(use, 4)
    with record_events(use.memory) as emitted:
        result = use.do("compress", target_tokens=100)
        assert result.tokens_saved < 0.1 * result.tokens_before
        assert result.compression_id is not None
        fill(use, 3)
    [notice] = failures(emitted)
    assert "less than 10%" in notice.reason
    assert (notice.fallback, notice.failures) == ("the compression stands", 1)
    assert use.asked == 1


def test_gain_counts_entries_if_only_they_are_over(make: Make) -> None:
    use = make("short", max_tokens=2_000, max_entries=10)
    use.do("add_user_message", "word " * 1_500, pinned=True)
    with record_events(use.memory) as emitted:
        fill(use, 10)
    [result] = results(emitted)
    assert methods(result) == {"summary"}
    assert result.tokens_saved < 0.1 * result.tokens_before
    assert failures(emitted) == []


@pytest.mark.parametrize("on_failure", ["fallback", "keep"])
def test_window_soon_over_again_meets_the_target_without_a_call(
    make: Make, on_failure: str
) -> None:
    use = make("short", recent_window=0, on_failure=on_failure, **ROOMY)
    use.do("add_user_message", "word " * 300, pinned=True)
    with record_events(use.memory) as emitted:
        fill(use, 5, size=50)
        assert use.do("get_stats").active_tokens < 400
        fill(use, 3, size=50)
    _, again = results(emitted)
    assert use.asked == 1
    assert again.tokens_after < 425
    assert methods(again) == {"outline"}  # without a failure the outline loses least
    assert "the summarizer was not called: it was called recently" in again.reason


# ---------------------------------------------------------------- one at a time


def test_a_compression_by_hand_waits_for_the_one_that_runs(make: Make) -> None:
    use = make()
    gate = use.gate()
    use.scripted.replies = (Delayed("first", gate), "second")
    fill(use, compress=False)
    first = use.begin("compress")
    use.until(lambda: use.asked == 1)
    fill(use, 3)
    second = use.begin("compress")
    use.a_while()
    assert use.asked == 1
    gate.set()
    assert (methods(first()), methods(second())) == ({"summary"}, {"summary"})
    assert [each.content for each in use.do("get_summaries")] == ["second"]


def test_an_add_during_a_compression_does_not_wait_for_it(make: Make) -> None:
    use = make()
    gate = use.gate()
    use.scripted.replies = (Delayed("short", gate),)
    fill(use, compress=False)
    running = use.begin("compress")
    use.until(lambda: use.asked == 1)
    fill(use, 5)
    assert use.asked == 1
    gate.set()
    assert methods(running()) == {"summary"}
    assert len(use.do("get_entries")) == 14


def test_an_automatic_compression_never_waits_behind_one_by_hand() -> None:
    async def race() -> bool:
        lock = AsyncLock(AsyncRuntime())
        await lock.__aenter__()
        waiting = asyncio.ensure_future(lock.__aenter__())
        await asyncio.sleep(0)
        await lock.__aexit__(None, None, None)
        entered = await lock.try_enter()  # before the waiting one has its turn
        await waiting
        return entered

    assert asyncio.run(asyncio.wait_for(race(), 1)) is False


def test_focus_reaches_the_request(make: Make) -> None:
    use = make("short")
    fill(use, compress=False)
    use.do("compress", focus="the failing test")
    assert use.scripted.requests[0].focus == "the failing test"


def test_plan_is_made_at_most_three_times(
    make: Make,
) -> None:
    store = MemoryStore()
    use = make("short", store=store)
    other = MemoryManager(store, counter=words)
    ids = fill(use, compress=False)
    pins = iter(ids)

    def pinning(request: SummaryRequest) -> str:
        other.pin(SESSION, next(pins))  # after the plan, in another manager
        return "short"

    use.scripted.replies = (pinning,)
    result = use.do("compress")
    assert (result.compression_id, use.asked, result.cost.calls) == (None, 3, 3)
    assert "changed shape" in result.reason
    assert [entry.id for entry in use.do("get_active_entries")] == ids


def test_result_has_the_tokens_of_the_window_at_the_commit(make: Make) -> None:
    store = MemoryStore()
    use = make(store=store)
    other = MemoryManager(store, counter=words)
    ids = fill(use, compress=False)

    def meddling(request: SummaryRequest) -> str:
        other.delete_entries(SESSION, ids[-1:])
        other.add_user_message(SESSION, "three words more")
        return "short"

    use.scripted.replies = (meddling,)
    result = use.do("compress")
    assert result.summary_id is not None
    assert result.tokens_before == 8 * 10 + 3
    assert result.tokens_after == use.do("get_stats").active_tokens
    [*_, record] = use.do("export_session").log
    assert (record.tokens_before, record.tokens_after) == (83, result.tokens_after)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("on_failure", ["fallback", "keep"])
def test_call_not_made_behind_hanging_ones_costs_nothing(api: str, on_failure: str) -> None:
    going = threading.Event()
    called = []

    def hanging(prompt: str) -> str:
        called.append(prompt)
        going.wait(PATIENCE)
        return "late"

    use = APIS[api](summarize_timeout=0.05, on_failure=on_failure)
    use.swap(hanging)
    try:
        outcomes = []
        for session in ("one", "two", "three", "three", "three", "three"):
            for number in range(9):
                text = f"n{number} " + "word " * 9
                use.do("add_user_message", text, compress=False, session=session)
            with record_events(use.memory) as emitted:
                result = use.do("compress", session=session)
            [notice] = failures(emitted)
            outcomes.append((result.cost.calls, notice.cost.calls, notice.failures))
            assert use.do("get_stats", session=session).cost.calls == result.cost.calls
        assert outcomes == [(1, 1, 1)] * 2 + [(0, 0, 0)] * 4
        assert "2 earlier calls of the summarizer still hang" in result.reason
        assert notice.retry_at is not None, "adds do not try again and again"
        assert len(called) == 2
    finally:
        going.set()
        use.close()
        use.end()


def test_automatic_plan_without_its_window_is_made_again(make: Make) -> None:
    store = MemoryStore()
    use = make(store=store)
    other = MemoryManager(store, counter=words)
    ids = fill(use, 9)

    def pinning(request: SummaryRequest) -> str:
        other.pin(SESSION, ids[0])
        return "too late"

    use.scripted.replies = (pinning, "short")
    fill(use, 2)
    assert use.asked == 2
    assert [each.content for each in use.do("get_summaries")] == ["short"]
    assert use.do("get_stats").cost.calls == 2  # the lost one was paid for too


def test_summary_is_counted_by_the_counter_at_its_commit() -> None:
    store = MemoryStore()
    settings = {"max_tokens": 4_000, "auto_compress": False, "count_policy": "estimate"}

    def changing(prompt: str) -> str:
        memory.update_config(model="claude-sonnet-4-5")
        return "They spoke of numbers. " * 20

    memory = MemoryManager(store, summarizer=changing, config=MemoryConfig(**settings))
    for number in range(60):
        memory.add_user_message(SESSION, f"{number} " + "word " * 60)
    before = memory.get_stats(SESSION).counter
    assert memory.compress(SESSION).summary_id is not None
    again = MemoryManager(store, config=MemoryConfig(**settings, model="claude-sonnet-4-5"))
    stats, others = memory.get_stats(SESSION), again.get_stats(SESSION)
    assert stats.counter == others.counter != before
    assert stats.active_tokens == others.active_tokens


def test_session_deleted_during_a_compression_stays_deleted(make: Make) -> None:
    store = MemoryStore()
    use = make("short", store=store)
    other = MemoryManager(store, counter=words)

    def deleting(request: SummaryRequest) -> str:
        other.delete_session(SESSION)
        return "too late"

    use.scripted.replies = (deleting,)
    fill(use, compress=False)
    with pytest.raises(SessionNotFound):
        use.do("compress")
    assert store.load(SESSION) is None
    assert other.list_sessions() == []


def test_a_store_that_always_refuses_ends_a_compression(make: Make) -> None:
    class Refusing(MemoryStore):
        def commit(self, *args: Any, **keywords: Any) -> Any:
            raise StoreConflict("somebody was faster")

    use = make("short", store=Refusing())
    fill(use, compress=False)
    result = use.do("compress")
    assert (result.compression_id, use.asked) == (None, 3)


# ---------------------------------------------------------------- in the background


def background(make: Make, **settings: Any) -> tuple[SyncUse, Any]:
    """Return a manager whose first summary waits for the gate."""
    use = make(background=True, **settings)
    gate = use.gate()
    use.scripted.replies = (Delayed("the first", gate), "another")
    return use, gate


def test_background_summary_commits_during_the_turn(
    make: Make,
) -> None:
    use, gate = background(make)
    with record_events(use.memory) as emitted:
        fill(use, 9)
        use.a_while()
        assert use.asked == 0, "90 of 100 tokens: low water is 50, and four fifths are not passed"
        fill(use, 1)
        use.until(lambda: use.asked == 1)
        tokens = use.do("get_stats").active_tokens
        assert tokens <= 100
        use.do("add_user_message", "meanwhile")
        gate.set()
        use.until(lambda: bool(results(emitted)))
    [result] = results(emitted)
    assert result.reason.startswith("prepared in the background: 100 tokens are over 90")
    assert [entry.text for entry in use.do("get_active_entries")][-1] == "meanwhile"
    assert [each.content for each in use.do("get_summaries")] == ["the first"]


def test_overhead_counts_for_the_background_trigger_too(make: Make) -> None:
    use = make("short", background=True, overhead_tokens=50)
    fill(use, 4)
    use.a_while()
    assert use.asked == 0
    use.do("add_user_message", "word " * 5)
    use.until(lambda: use.asked == 1)


def test_add_over_the_trigger_does_not_wait_in_the_background(make: Make) -> None:
    use, gate = background(make)
    fill(use, 10)
    use.until(lambda: use.asked == 1)
    fill(use, 5)
    assert use.do("get_stats").active_tokens == 150
    context = use.do("build_context")
    assert context.tokens.tokens <= 100
    assert context.trimmed
    gate.set()
    use.until(lambda: use.do("get_stats").active_tokens <= 90)
    assert len(use.do("get_entries")) == 15


def test_entries_added_during_a_preparation_are_compressed_too(make: Make) -> None:
    use, gate = background(make)
    with record_events(use.memory) as emitted:
        fill(use, 10)
        use.until(lambda: use.asked == 1)
        fill(use, 10)
        gate.set()
        use.until(lambda: len(results(emitted)) == 2)
    assert use.do("get_stats").active_tokens <= 100


def test_futile_preparation_is_not_repeated_at_every_add(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    use = make("short", background=True)
    begun: list[Any] = []
    api = use.core.runtime
    start = api.start_background
    monkeypatch.setattr(api, "start_background", lambda work: begun.append(1) or start(work))
    use.do("add_user_message", "word " * 92, pinned=True)
    use.a_while()
    for _ in range(5):
        use.do("add_user_message", "one")
        use.a_while()
    assert len(begun) == 1


def left_in(store: MemoryStore) -> MemoryManager:
    """Return another manager of the same store: a closed one raises."""
    return MemoryManager(store, counter=words)


def test_close_waits_for_a_summary_that_is_nearly_there(make: Make) -> None:
    store = MemoryStore()
    use = make(Delayed("in time", 0.05), store=store, background=True)
    fill(use, 10)
    use.until(lambda: use.asked == 1)
    use.close()
    assert [each.content for each in left_in(store).get_summaries(SESSION)] == ["in time"]


@pytest.mark.parametrize("on_failure", ["fallback", "keep"])
def test_summary_after_close_changes_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch, on_failure: str
) -> None:
    monkeypatch.setattr("memman.core.core._CLOSE_SECONDS", 0.02)
    store = MemoryStore()
    use, gate = background(make, store=store, on_failure=on_failure)
    with record_events(use.memory) as emitted:
        fill(use, 10)
        use.until(lambda: use.asked == 1)
        use.close()
        before = left_in(store).export_session(SESSION)
        gate.set()
        use.a_while()
        use.a_while()
    assert left_in(store).export_session(SESSION) == before
    assert results(emitted) == []
    assert getattr(use.scripted, "cancelled", 1) == 1, "the abandoned task was not cancelled"
    assert not any(thread.name == "memman-background" for thread in threading.enumerate())


def test_summary_after_its_file_was_closed_raises_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("memman.core.core._CLOSE_SECONDS", 0.02)
    path = str(tmp_path / "chat.db")
    use, gate = background(make, store=path)
    fill(use, 10)
    use.until(lambda: use.asked == 1)
    use.close()
    gate.set()
    use.a_while()
    use.a_while()
    # A close cancels what runs on the loop of async ports.
    assert all("SummarizerCancelled" in record.getMessage() for record in caplog.records)
    with MemoryManager(path, counter=words) as again:
        assert len(again.get_active_entries(SESSION)) == 10
        assert again.get_summaries(SESSION) == []


def test_compress_by_hand_after_close_changes_nothing(make: Make) -> None:
    store = MemoryStore()
    use = make(store=store, **ROOMY)
    gate = use.gate()
    use.scripted.replies = (Delayed("too late", gate),)
    fill(use, size=50, compress=False)
    running = use.begin("compress")
    use.until(lambda: use.asked == 1)
    before = use.do("export_session")
    use.close()
    gate.set()
    result = running()
    assert (result.compression_id, result.reason) == (
        None, "the manager was closed; nothing was changed",
    )  # fmt: skip
    assert left_in(store).export_session(SESSION) == before


def test_close_waits_for_a_write_under_way(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memman.core.core._CLOSE_SECONDS", 0.01)
    monkeypatch.setattr("memman.runtime.async_runtime._CANCEL_SECONDS", 0.01)
    hold, at_it = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        blocking = True

        def commit(self, *args: Any, **keywords: Any) -> Any:
            at_it.set()
            hold.wait(10)
            return super().commit(*args, **keywords)

    store = Slow()
    use = make("short", store=store, background=True)
    fill(use, 10)
    use.until(at_it.is_set)
    threading.Timer(0.1, hold.set).start()
    use.close()
    assert hold.is_set()
    assert [each.content for each in left_in(store).get_summaries(SESSION)] == ["short"]


def test_closing_runtime_starts_no_background_work(make: Make) -> None:
    use = make()
    use.close()
    begun: list[int] = []

    async def work() -> None:
        begun.append(1)

    assert use.core.runtime.start_background(work) is False
    use.a_while()
    assert begun == []


def test_after_close_nothing_begins_in_the_background(make: Make) -> None:
    store = MemoryStore()
    use = make("short", store=store, background=True)
    fill(use, 5)
    use.close()
    with pytest.raises(StoreError, match="this manager was closed"):
        fill(use, 10)
    use.a_while()
    assert use.asked == 0
    assert len(left_in(store).get_active_entries(SESSION)) == 5


OF_A_SESSION = {
    "add_user_message": ["x"],
    "add_messages": [[{"role": "user", "content": "x"}]],
    "build_context": [],
    "clear_session": [],
    "compress": [],
    "delete_session": [],
    "explain": [],
    "export_session": [],
    "feed": [],
    "get_entries": [],
    "get_stats": [],
    "pin": ["e"],
    "record_usage": [5],
    "update_config": [],
}


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("verb", OF_A_SESSION)
def test_closed_manager_raises_store_error(make: Make, verb: str, twice: bool) -> None:
    store = MemoryStore()
    use = make(store=store)
    use.do("add_user_message", "before", id="e")
    use.close()
    if twice:
        use.close()
    log = store.read(SESSION)
    with pytest.raises(StoreError, match="this manager was closed, and nothing was changed"):
        use.do(verb, *OF_A_SESSION[verb])
    assert store.read(SESSION) == log


def test_closed_manager_still_counts_tokens() -> None:
    memory = MemoryManager(counter=words)
    memory.add_user_message(SESSION, "before")
    state = memory.export_session(SESSION)
    memory.close()
    for verb in (memory.list_sessions, memory.feed, lambda: memory.import_session(state)):
        with pytest.raises(StoreError, match="this manager was closed"):
            verb()
    assert memory.count_tokens("one two").tokens == 2


def test_background_failure_is_emitted_and_adds_continue(make: Make) -> None:
    use = make(DOWN, "short", background=True, on_failure="keep")
    with record_events(use.memory) as emitted:
        fill(use, 10)
        use.until(lambda: bool(failures(emitted)))
        later(use, 15)
        fill(use, 5)
        use.until(lambda: bool(results(emitted)))
    assert use.asked == 2


def test_quick_background_work_leaves_the_session_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use = APIS["sync"]("short", background=True)
    monkeypatch.setattr(use.core.runtime, "start_background", lambda work: drive(work()) or True)
    fill(use, 30)
    assert use.asked == 4
    use.close()


def test_without_a_thread_to_be_had_an_add_is_an_add(monkeypatch: pytest.MonkeyPatch) -> None:
    use = APIS["sync"]("short", background=True)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        fill(use, 12)
    assert use.asked == 0
    fill(use, 1)
    use.until(lambda: use.asked == 1)
    use.close()


# ---------------------------------------------------------------- traces


def test_explain_has_the_last_attempt_and_the_pause(make: Make) -> None:
    use = make(DOWN, on_failure="raise")
    fill(use, compress=False)
    with pytest.raises(CompressionFailed):
        use.do("compress")
    explanation = use.do("explain")
    assert explanation.last_attempt == "nothing was changed: the summary failed: OSError: 429"
    rest = use.core.sessions.find(SESSION).compressor.leave().rest(use.clock())
    assert (rest.failures, rest.open, rest.reason) == (1, False, "OSError: 429")


def test_compression_logs_one_line_without_content(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    use = make("a summary")
    fill(use, compress=False)
    with caplog.at_level(logging.INFO, logger="memman"):
        done = use.do("compress")
        use.do("compress")  # this one has no effect
    [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    change = f"{done.tokens_before} -> {done.tokens_after} tokens (summary)"
    assert line == f"session {SESSION}: {len(done.replaced_ids)} entries compressed, {change}"


# ---------------------------------------------------------------- declared constraints


def test_constraints_without_room_are_reported(make: Make) -> None:
    use = make(auto_compress=False, max_tokens=10_000)
    declared = {"constraint": True}
    use.do("add_user_message", "Mind this: " + "word " * 900, metadata=declared)
    use.do("add_user_message", "Never deploy on Fridays.", metadata=declared)
    for number in range(40):
        use.do("add_user_message", f"{number} " + "word " * 60)
    with record_events(use.memory, [events.CompressionFailedNotice]) as received:
        result = use.do("compress", target_tokens=2_000)
    assert "#3: Never deploy on Fridays." in result.state.text
    [notice] = received
    assert isinstance(notice, events.CompressionFailedNotice)
    assert notice.reason.startswith("1 of the declared constraints do not fit the outline")
