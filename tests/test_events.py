"""Events are emitted after the commit, in log order, and each receiver has its own guard."""

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, get_args

import blinker
import pytest

from memman import (
    AsyncMemoryManager,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
    events,
)
from memman.stores import MemoryStore
from memman.testing import record_events
from tests.patience import PATIENCE


def manager(**settings: Any) -> MemoryManager:
    return MemoryManager(counter="chars4", config=MemoryConfig(**settings))


class Heard:
    """Collect the events of one sender, in order."""

    def __init__(self, sender: Any, *signals: Any) -> None:
        self.events: list[Any] = []
        for signal in signals or events.SIGNALS.values():
            signal.connect(self, sender=sender)

    def __call__(self, sender: Any, event: Any) -> None:
        self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


def test_each_change_is_emitted_once_by_its_own_event() -> None:
    memory = manager(auto_compress=False)
    heard = Heard(memory)
    entries = [memory.add_user_message("s", "abc " * 100) for _ in range(20)]
    memory.pin("s", entries[0].id)
    memory.unpin("s", entries[0].id)
    memory.compress("s", target_tokens=800)
    memory.undo_compression("s")
    memory.update_config("s", recent_window=3)
    memory.record_usage("s", 99)
    memory.delete_entries("s", [entries[1].id])
    memory.clear_session("s")
    memory.delete_session("s")
    assert heard.kinds == [
        "SessionOpened", *["EntryAdded"] * 20,
        "EntryPinned", "EntryPinned", "Compressing", "CompressionResult", "CompressionUndone",
        "SessionConfigured", "Usage", "EntriesDeleted", "SessionCleared", "SessionDeleted",
    ]  # fmt: skip


def test_call_without_effect_emits_nothing() -> None:
    memory = manager()
    entry = memory.add_user_message("s", "x", id="a", pinned=True)
    heard = Heard(memory)
    memory.add_user_message("s", "x", id="a", pinned=True)
    memory.pin("s", entry.id)
    memory.compress("s")
    memory.plan_compression("s", target_tokens=1)
    memory.build_context("s")
    memory.get_stats("s")
    memory.export_session("s")
    assert heard.events == []


def test_import_emits_one_event_and_no_added_entries() -> None:
    source, memory = manager(), manager()
    for _ in range(3):
        source.add_user_message("s", "x")
    heard = Heard(memory)
    memory.import_session(source.export_session("s"))
    assert heard.kinds == ["SessionImported"]
    assert heard.events[0].records == 4
    memory.get_stats("s")
    memory.add_user_message("s", "y")
    assert heard.kinds == ["SessionImported", "EntryAdded"]


def test_the_result_of_compress_is_the_payload_of_its_event() -> None:
    memory = manager(auto_compress=False)
    for number in range(20):
        memory.add_user_message("s", f"{number} " + "abc " * 99)
    heard = Heard(memory, events.compressed)
    result = memory.compress("s", target_tokens=800)
    assert heard.events == [result]
    assert result.tokens_saved == result.tokens_before - result.tokens_after
    assert result.summary_id == memory.get_summaries("s")[0].id
    assert set(result.replaced_ids) == {e.id for e in memory.get_entries("s") if e.compressed}


def test_the_sender_is_the_manager_and_only_its_receivers_hear() -> None:
    one, two = manager(), manager()
    heard = Heard(one, events.entry_added)
    senders: list[Any] = []

    def receive(sender: Any, event: Any) -> None:
        senders.append(sender)

    with events.entry_added.connected_to(receive):
        one.add_user_message("s", "x")
        two.add_user_message("s", "x")
    assert len(heard.events) == 1
    assert senders == [one, two]


def test_receivers_are_held_weakly() -> None:
    memory = manager()
    heard = Heard(memory, events.entry_added)
    memory.add_user_message("s", "x")
    kept = heard.events
    del heard
    gc.collect()
    memory.add_user_message("s", "y")
    assert len(kept) == 1


def test_add_in_a_receiver_is_emitted_after_its_cause() -> None:
    memory = manager()
    order: list[str] = []

    def receive(sender: Any, event: Any) -> None:
        order.append(f"begin {event.entry.text}")
        if event.entry.text == "one":
            memory.add_user_message("s", "two")
        order.append(f"end {event.entry.text}")

    with events.entry_added.connected_to(receive, sender=memory):
        memory.add_user_message("s", "one")
    assert order == ["begin one", "end one", "begin two", "end two"]


def test_receiver_may_call_any_method_of_the_session() -> None:
    memory = manager()
    seen: list[int] = []

    def receive(sender: Any, event: Any) -> None:
        memory.build_context("s")
        seen.append(memory.get_stats("s").total_entries)

    with events.entry_added.connected_to(receive, sender=memory):
        memory.add_user_message("s", "x")
    assert seen == [1]


def test_raising_receiver_stops_neither_others_nor_the_method(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = manager()

    def broken(sender: Any, event: Any) -> None:
        raise ValueError("a receiver's own fault")

    with events.entry_added.connected_to(broken, sender=memory):
        heard = Heard(memory, events.entry_added)
        memory.add_user_message("s", "x")
        memory.add_user_message("s", "y")
    assert [event.entry.text for event in heard.events] == ["x", "y"]
    records = [r for r in caplog.records if r.name == "memman.events"]
    assert len(records) == 2
    assert all(record.exc_info for record in records)


def test_an_interruption_in_a_receiver_costs_the_others_nothing() -> None:
    memory = MemoryManager()
    heard: list[tuple[int, str]] = []

    def hear(number: int, text: str) -> None:
        heard.append((number, text))
        if len(heard) == 1:  # the first receiver
            raise KeyboardInterrupt

    receivers = [
        lambda sender, event, number=number: hear(number, event.entry.text) for number in range(3)
    ]
    for receiver in receivers:
        events.entry_added.connect(receiver, sender=memory)
    with pytest.raises(KeyboardInterrupt):
        memory.add_user_message("s", "one")
    memory.add_user_message("s", "two")
    assert [text for _, text in heard] == ["one"] * 3 + ["two"] * 3
    assert sorted(heard[:3]) == [(number, "one") for number in range(3)]


def test_sync_manager_awaits_async_receivers_on_its_loop() -> None:
    memory = manager()
    ran: list[Any] = []

    async def receive(sender: Any, event: Any) -> None:
        await asyncio.sleep(0)
        ran.append((event.entry.text, threading.current_thread() is threading.main_thread()))

    async def callback(event: Any) -> None:
        await receive(memory, event)

    memory.on("add", callback)
    with events.entry_added.connected_to(receive, sender=memory):
        memory.add_user_message("s", "x")
    assert ran == [("x", False), ("x", False)]
    memory.close()


def test_async_manager_awaits_receivers_in_turn() -> None:
    async def run() -> list[str]:
        memory = AsyncMemoryManager(counter="chars4")
        order: list[str] = []

        async def receive(sender: Any, event: Any) -> None:
            order.append(f"begin {event.entry.text}")
            await asyncio.sleep(0.002)
            order.append(f"end {event.entry.text}")

        with events.entry_added.connected_to(receive, sender=memory):
            await asyncio.gather(*(memory.add_user_message("s", str(n)) for n in range(5)))
        return order

    order = asyncio.run(run())
    emitted = [line.split()[1] for line in order[::2]]
    assert order == [f"{word} {text}" for text in emitted for word in ("begin", "end")]
    assert sorted(emitted) == list("01234")


def test_cancelled_call_still_emits_its_events() -> None:
    async def run() -> tuple[list[str], list[str]]:
        memory = AsyncMemoryManager(counter="chars4")
        slow: list[str] = []
        gate = asyncio.Event()

        async def receive(sender: Any, event: Any) -> None:
            await gate.wait()
            slow.append(event.entry.text)

        with events.entry_added.connected_to(receive, sender=memory):
            heard = Heard(memory, events.entry_added)
            cancelled = asyncio.create_task(memory.add_user_message("s", "one"))
            await asyncio.sleep(0.01)
            await memory.add_user_message("s", "two")  # emitted by the running call
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled  # at once: a hanging receiver delays no cancelled call
            assert not slow
            gate.set()
            await memory.close()
        return slow, [event.entry.text for event in heard.events]

    assert asyncio.run(run()) == (["one", "two"], ["one", "two"])


def test_committed_import_or_deletion_emits_when_cancelled() -> None:
    class Slow(MemoryStore):
        blocking = True

        def commit(self, *args: Any, **keywords: Any) -> Any:
            return slowly(super().commit, *args, **keywords)

        def delete(self, session_id: str) -> bool:
            return bool(slowly(super().delete, session_id))

    def slowly(method: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        begun.set()
        going.wait(PATIENCE)
        return method(*args, **keywords)

    async def cancelled(verb: Coroutine[Any, Any, Any]) -> None:
        begun.clear()
        going.clear()
        task = asyncio.ensure_future(verb)
        await asyncio.to_thread(begun.wait, PATIENCE)
        task.cancel()
        await asyncio.sleep(0)
        going.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def work() -> list[events.Event]:
        memory = AsyncMemoryManager(Slow())
        with record_events(memory) as emitted:
            await cancelled(memory.import_session(state))
            await cancelled(memory.delete_session("s"))
            await memory.close()
        return emitted

    begun, going = threading.Event(), threading.Event()
    there = MemoryManager()
    there.add_user_message("s", "x")
    state = there.export_session("s")
    assert asyncio.run(work()) == [
        events.SessionImported(session_id="s", records=2),
        events.SessionDeleted(session_id="s"),
    ]


def test_close_waits_for_receivers_of_a_cancelled_method(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("memman.core.core._CLOSE_SECONDS", 0.05)

    async def run() -> list[str]:
        memory = AsyncMemoryManager(counter="chars4")
        ends: list[str] = []
        gate = asyncio.Event()

        async def receive(sender: Any, event: Any) -> None:
            try:
                await gate.wait()
                ends.append(event.entry.text)
            except asyncio.CancelledError:
                ends.append("cut")
                raise

        with events.entry_added.connected_to(receive, sender=memory):
            adding = asyncio.create_task(memory.add_user_message("s", "one"))
            await asyncio.sleep(0.01)
            await memory.close()
            gate.set()
            await adding
        return ends

    assert asyncio.run(run()) == ["one"]


@pytest.mark.parametrize("awaits", [True, False])
def test_cancellation_inside_a_receiver_is_its_failure(
    awaits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> list[str]:
        memory = AsyncMemoryManager(counter="chars4")
        work = asyncio.create_task(asyncio.sleep(60))
        work.cancel()
        await asyncio.wait({work})

        async def awaiting(sender: Any, event: Any) -> None:
            await work

        def looking(sender: Any, event: Any) -> None:
            work.result()

        with events.entry_added.connected_to(awaiting if awaits else looking, sender=memory):
            heard = Heard(memory, events.entry_added)
            await memory.add_user_message("s", "x")
        return [event.entry.text for event in heard.events]

    assert asyncio.run(run()) == ["x"]
    assert [record.name for record in caplog.records if record.exc_info] == ["memman.events"]


def test_cancelled_future_in_a_receiver_does_not_end_an_add() -> None:
    memory = manager()

    def looking(sender: Any, event: Any) -> None:
        raise asyncio.CancelledError

    with events.entry_added.connected_to(looking, sender=memory):
        heard = Heard(memory, events.entry_added)
        memory.add_user_message("s", "x")
    assert heard.kinds == ["EntryAdded"]


def test_threads_hear_in_log_order() -> None:
    memory = manager(auto_compress=False)
    heard = Heard(memory, events.entry_added)

    def work(name: str) -> None:
        for number in range(100):
            memory.add_user_message("s", f"{name} {number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seqs = [event.entry.seq for event in heard.events]
    assert seqs == list(range(2, 402))


def test_without_receivers_nothing_is_kept_for_later() -> None:
    memory = manager()
    memory.add_user_message("s", "before")
    heard = Heard(memory, events.entry_added)
    memory.add_user_message("s", "after")
    assert [event.entry.text for event in heard.events] == ["after"]


@pytest.mark.parametrize("event", events.SIGNALS)
def test_every_event_has_a_signal_with_a_documented_meaning(event: type[events.Event]) -> None:
    signal = events.SIGNALS[event]
    assert signal.__doc__
    assert event.__doc__


def test_the_names_of_the_reference_are_kept() -> None:
    names = {signal.name for signal in events.SIGNALS.values()}
    assert {"entry:added", "compressed", "session:cleared"} <= names
    assert len(names) == len(events.SIGNALS)


def test_over_budget_is_emitted_if_no_compression_helps() -> None:
    memory = manager(max_tokens=100)
    heard = Heard(memory, events.over_budget)
    memory.add_user_message("s", "abc " * 200, pinned=True)
    [event] = heard.events
    assert (event.session_id, event.tokens, event.max_tokens) == ("s", 200, 100 - 4)


# ---------------------------------------------------------------- memory.on


def test_on_calls_the_callback_with_the_event_until_off() -> None:
    memory, other = manager(), manager()
    heard: list[Any] = []
    subscription = memory.on("entry_added", heard.append)
    gc.collect()
    entry = memory.add_user_message("s", "x")
    other.add_user_message("s", "y")
    assert heard == [events.EntryAdded(session_id="s", entry=entry)]
    subscription.off()
    subscription.off()
    memory.add_user_message("s", "z")
    assert len(heard) == 1


def test_on_holds_a_lambda_but_not_its_manager() -> None:
    def used() -> weakref.ref[MemoryManager]:
        memory = manager()
        memory.on("entry:added", lambda event: heard.append(f"{memory!r}: {event.entry.text}"))
        gc.collect()
        memory.add_user_message("s", "x")
        return weakref.ref(memory)

    heard: list[str] = []
    gone = used()
    gc.collect()
    assert len(heard) == 1
    assert gone() is None


@pytest.mark.parametrize("kind", events.SIGNALS)
def test_on_takes_names_of_both_styles_and_types(kind: type[events.Event]) -> None:
    memory = manager()
    signal = events.SIGNALS[kind]
    attribute = next(name for name, value in vars(events).items() if value is signal)
    heard: list[Any] = []
    for name in (attribute, signal.name, kind):
        memory.on(name, heard.append)  # type: ignore[call-overload]
    signal.send(memory, event="it")
    assert heard == ["it"] * 3
    assert {attribute, signal.name} <= set(get_args(events.EventName))


def test_on_suggests_the_name_that_was_meant() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'compressed'"):
        manager().on("compresed", print)  # type: ignore[call-overload]


def test_on_refuses_a_callback_of_another_signature() -> None:
    with pytest.raises(InvalidInput, match="callback\\(event\\)"):
        manager().on("compressed", lambda sender, event: None)  # type: ignore[call-overload]


def test_on_awaits_an_async_callback_in_the_async_manager() -> None:
    async def run() -> list[str]:
        memory = AsyncMemoryManager(counter="chars4")
        heard: list[str] = []

        async def callback(event: events.EntryAdded) -> None:
            await asyncio.sleep(0)
            heard.append(event.entry.text)

        memory.on(events.EntryAdded, callback)
        await memory.add_user_message("s", "x")
        return heard

    assert asyncio.run(run()) == ["x"]


# ---------------------------------------------------------------- mistakes that blinker leaves silent


def test_signals_of_other_libraries_do_not_reach_receivers() -> None:
    heard: list[Any] = []

    def receive(sender: Any, event: Any) -> None:
        heard.append(event)

    with events.compressed.connected_to(receive):
        blinker.signal("compressed").send("another library", path="x.gz")
    assert heard == []


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    """Return the log records of a process that has not warned yet."""
    monkeypatch.setattr(events, "_warned", set())
    caplog.set_level(logging.WARNING, logger="memman.events")
    return caplog


def test_collected_lambda_is_one_warning_per_process(warned: Any) -> None:
    memory = manager()
    for _ in range(3):
        events.entry_added.connect(lambda sender, event: None)
    gc.collect()
    memory.add_user_message("s", "x")
    [record] = warned.records
    assert "hold receivers weakly" in record.getMessage()
    assert "memory.on('entry:added', callback)" in record.getMessage()


def test_receiver_that_received_an_event_may_go_silently(warned: Any) -> None:
    memory = manager()
    receivers = [lambda sender, event: None, lambda sender, event: None]
    for receiver in receivers:
        events.entry_added.connect(receiver, sender=memory)
    memory.add_user_message("s", "x")
    events.compressed.connect(receivers[0])
    events.compressed.disconnect(receivers[0])
    del receiver
    receivers.clear()
    gc.collect()
    assert warned.records == []


def test_wrong_signature_is_one_warning_and_no_error_per_event(warned: Any) -> None:
    memory = manager()

    def receive(sender: Any, e: Any) -> None:
        """Fail: blinker passes the event by name."""

    for _ in range(2):
        events.entry_added.connect(receive)
    memory.add_user_message("s", "x")
    memory.add_user_message("s", "y")
    [record] = warned.records
    assert "receiver(sender, event=...)" in record.getMessage()
    assert "memory.on('entry:added', callback)" in record.getMessage()
