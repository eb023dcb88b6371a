"""A session follows other processes: by the tail of the log if that is enough."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import AsyncMemoryManager, MemoryConfig, MemoryManager, events
from memman.records import Record
from memman.stores import MemoryStore, SQLiteStore
from memman.testing import record_events
from tests.examples import examples

SESSION = "s"
CONFIG = MemoryConfig(
    max_tokens=200, max_entries=20, recent_window=2, min_entries_to_compress=1, auto_compress=False
)


def words(text: str) -> int:
    return len(text.split())


def letters(text: str) -> int:
    return len(text)


class Watched(MemoryStore):
    """A store that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.read_records = 0

    def load(self, session_id: str) -> Any:
        self.calls.append("load")
        return super().load(session_id)

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        self.calls.append("read")
        found = super().read(session_id, after, limit)
        self.read_records += len(found)
        return found


def two_on(store: Any, **second: Any) -> tuple[MemoryManager, MemoryManager]:
    given: dict[str, Any] = {"config": CONFIG, "counter": words}
    return MemoryManager(store, **given), MemoryManager(store, **(given | second))


def seen(memory: Any) -> dict[str, Any]:
    """Return everything that a manager knows of the session after a look at the store."""
    memory.get_active_entries(SESSION)
    log = memory._core.sessions.find(SESSION).log
    window = log.window
    return {
        "slots": [
            (item.entry, item.position, item.tokens, item.pinned, item.index, item.compression)
            for item in window.items
        ],
        "exchanges": [
            ([item.entry.id for item in one.items], one.tokens, one.pinned, one.unanswered)
            for one in window.exchanges
        ],
        "numbers": (window.head, window.epoch, window.tokens),
        "totals": log.totals,
        "counter": log.resolved.counter.fingerprint,
    }


# ---------------------------------------------------------------- cost


def test_append_of_another_process_reads_the_tail_alone() -> None:
    store = Watched()
    here, there = two_on(store)
    for number in range(10):
        here.add_user_message(SESSION, f"first {number}")
    there.add_user_message(SESSION, "loads the window, once")
    store.calls.clear()
    store.read_records = 0
    for number in range(10):
        here.add_user_message(SESSION, f"here {number}")
        there.add_user_message(SESSION, f"there {number}")
    assert "load" not in store.calls
    assert store.read_records <= 40, "at each append what came since the last one, and itself"
    assert seen(here) == seen(there)


def test_a_changed_shape_is_loaded() -> None:
    store = Watched()
    here, there = two_on(store)
    for number in range(10):
        here.add_user_message(SESSION, f"entry number {number} of ten")
    assert len(there.get_active_entries(SESSION)) == 10
    here.compress(SESSION, target_tokens=10)
    store.calls.clear()
    assert seen(there) == seen(here)
    assert "load" in store.calls


def test_session_recreated_during_the_tail_read_is_loaded() -> None:
    store = Watched()
    here, there = two_on(store)
    here.add_user_message(SESSION, "of the first")
    there.add_user_message(SESSION, "of the first too")

    def begin_anew() -> None:
        third = MemoryManager(store, config=CONFIG, counter=words)
        third.delete_session(SESSION)
        for number in range(5):
            third.add_user_message(SESSION, f"of the second {number}")

    real_read = store.read

    def read(session_id: str, after: int = 0, limit: int = 1_000) -> Any:
        store.read = real_read  # type: ignore[method-assign]
        begin_anew()
        return real_read(session_id, after, limit)

    store.read = read  # type: ignore[method-assign]
    assert [entry.text for entry in here.get_active_entries(SESSION)] == [
        f"of the second {number}" for number in range(5)
    ]


# ---------------------------------------------------------------- records of other processes


def test_another_counters_entries_are_priced_by_ours_and_once() -> None:
    counted: list[str] = []

    def ours(text: str) -> int:
        counted.append(text)
        return len(text)

    here, there = two_on(MemoryStore(), counter=ours)
    for number in range(3):
        here.add_user_message(SESSION, f"number {number}")
    there.get_active_entries(SESSION)
    counted.clear()
    for number in range(3, 6):
        here.add_user_message(SESSION, f"number {number}")
        assert there.get_stats(SESSION).active_tokens == len("number 0") * (number + 1)
    assert counted == [f"number {number}" for number in range(3, 6)]


def test_settings_of_the_session_are_taken_in() -> None:
    here, there = two_on(MemoryStore())
    here.add_user_message(SESSION, "hello")
    there.add_user_message(SESSION, "hello too")
    here.update_config(SESSION, max_tokens=77)
    assert there.get_stats(SESSION).max_tokens == 77
    there.update_config(SESSION, max_tokens=88)
    assert here.get_stats(SESSION).max_tokens == 88


def test_report_recorded_elsewhere_is_learned_here() -> None:
    here, there = two_on(MemoryStore())
    here.add_user_message(SESSION, "hello " * 50)
    there.add_user_message(SESSION, "there " * 50)
    there.build_context(SESSION)
    here.build_context(SESSION)
    assert there.get_stats(SESSION).drift is None
    for input_tokens in (60, 65):  # less than our count: this holds for this window alone
        here.record_usage(SESSION, {"input_tokens": input_tokens})
        there.add_user_message(SESSION, "and more")
        here.build_context(SESSION)
        there.build_context(SESSION)
        assert there.get_stats(SESSION).drift == here.get_stats(SESSION).drift
        assert there.get_stats(SESSION).overhead_tokens == here.get_stats(SESSION).overhead_tokens


def test_a_call_answered_elsewhere_is_one_exchange_here() -> None:
    here, there = two_on(MemoryStore())
    here.add_user_message(SESSION, "list it")
    there.add_tool_call(SESSION, "ls", {}, call_id="c1")
    here.add_tool_result(SESSION, "ls", "a b", call_id="c1")
    [_, exchange] = seen(there)["exchanges"]
    assert len(exchange[0]) == 2


def test_append_behind_another_writer_emits_its_own_event_alone() -> None:
    store = Watched()
    here, there = two_on(store)
    here.add_user_message(SESSION, "first")
    there.add_user_message(SESSION, "second")
    append = store.append

    def raced(session_id: str, records: Sequence[Record], **expected: Any) -> Any:
        store.append = append  # type: ignore[method-assign]
        there.add_user_message(SESSION, "just before")
        return append(session_id, records, **expected)

    here.get_active_entries(SESSION)
    store.calls.clear()
    with record_events(here, [events.EntryAdded]) as emitted:
        store.append = raced  # type: ignore[method-assign]
        entry = here.add_user_message(SESSION, "mine")
    assert [event.entry.text for event in emitted] == ["mine"]
    assert entry.seq == 5
    assert "load" not in store.calls
    assert seen(here) == seen(there)


def test_records_of_others_have_no_event_here() -> None:
    here, there = two_on(MemoryStore())
    here.add_user_message(SESSION, "first")
    with record_events(there, [events.EntryAdded, events.SessionConfigured]) as emitted:
        there.add_user_message(SESSION, "told")
        here.add_user_message(SESSION, "not told")
        here.update_config(SESSION, max_tokens=99)
        there.add_user_message(SESSION, "told too")
    assert [event.entry.text for event in emitted] == ["told", "told too"]


def test_own_record_of_a_recreated_session_is_emitted() -> None:
    here, there = two_on(MemoryStore())
    for number in range(5):
        here.add_user_message(SESSION, f"first {number}")
    there.delete_session(SESSION)
    there.add_user_message(SESSION, "anew")
    with record_events(here, [events.EntryAdded]) as emitted:
        here.add_user_message(SESSION, "mine")
    assert [(event.entry.text, event.entry.seq) for event in emitted] == [("mine", 3)]


# ---------------------------------------------------------------- interruptions


class Interruption(BaseException):
    """An error of a signal handler."""


def test_interruption_at_any_line_of_a_refresh_reloads() -> None:
    lines = left = 0

    def interrupt(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                raise Interruption
        return interrupt if frame.f_code.co_filename.endswith(("log.py", "window.py")) else None

    done = False
    while not done:
        lines += 1
        here, there = two_on(MemoryStore())
        here.add_user_message(SESSION, "first")
        there.get_active_entries(SESSION)
        here.add_tool_call(SESSION, "ls", {}, call_id="c1")
        here.update_config(SESSION, max_tokens=99)
        here.add_tool_result(SESSION, "ls", "a b", call_id="c1")
        left = lines
        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            there.get_active_entries(SESSION)
            done = True
        except Interruption:
            pass
        finally:
            sys.settrace(before)
        fresh = MemoryManager(there._core.shared.store.port, config=CONFIG, counter=words)
        assert seen(there) == seen(fresh), f"after {lines} lines"
    assert lines > 50


# ---------------------------------------------------------------- the law

STEPS: dict[str, Callable[[Any, int], Any]] = {
    "message": lambda memory, n: memory.add_user_message(SESSION, f"message {n} " * (n % 5 + 1)),
    "pinned": lambda memory, n: memory.add_assistant_message(SESSION, f"p{n}", pinned=True),
    "call": lambda memory, n: memory.add_tool_call(SESSION, "ls", {"n": n}, call_id=f"c{n % 3}"),
    "result": lambda memory, n: memory.add_tool_result(SESSION, "ls", f"{n}", call_id=f"c{n % 3}"),
    "several": lambda memory, n: memory.add_messages(
        SESSION,
        [{"role": "user", "content": f"one {n}"}, {"role": "assistant", "content": f"two {n}"}],
    ),
    "settings": lambda memory, n: memory.update_config(SESSION, max_tokens=150 + n),
    "usage": lambda memory, n: memory.record_usage(SESSION, {"input_tokens": 20 + n}, model="m"),
    "compress": lambda memory, n: memory.compress(SESSION, target_tokens=20),
    "pin": lambda memory, n: memory.pin(SESSION, memory.get_active_entries(SESSION)[-1].id),
    "clear": lambda memory, n: memory.clear_session(SESSION),
    "begin anew": lambda memory, n: memory.delete_session(SESSION),
}
OFTEN = ["message", "call", "result", "several", "settings", "usage"]
step = st.tuples(st.booleans(), st.sampled_from([*OFTEN, *OFTEN, *STEPS]))


@pytest.mark.parametrize("counters", [(words, words), (words, letters)])
@given(steps=st.lists(step, max_size=14))
@settings(max_examples=examples(60))
def test_two_writers_in_turns_see_what_a_fresh_load_sees(
    counters: tuple[Any, Any], steps: list[tuple[bool, str]]
) -> None:
    store = MemoryStore()
    writers = [MemoryManager(store, config=CONFIG, counter=counter) for counter in counters]
    for number, (second, name) in enumerate([(False, "message"), (True, "message"), *steps]):
        if not store.state(SESSION):
            name = "message"
        if name == "pin" and not writers[second].get_active_entries(SESSION):
            continue
        STEPS[name](writers[second], number)
        if not store.state(SESSION):
            continue
        for writer, counter in zip(writers, counters, strict=True):
            fresh = MemoryManager(store, config=CONFIG, counter=counter)
            assert seen(writer) == seen(fresh)


def test_two_connections_to_a_file_see_the_same(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    here = MemoryManager(SQLiteStore(path), config=CONFIG, counter=words)

    async def other() -> None:
        async with AsyncMemoryManager(SQLiteStore(path), config=CONFIG, counter=words) as there:
            for number in range(12):
                here.add_user_message(SESSION, f"here {number}")
                await there.add_user_message(SESSION, f"there {number}")
            texts = [entry.text for entry in await there.get_active_entries(SESSION)]
            assert texts == [f"{who} {n}" for n in range(12) for who in ("here", "there")]

    asyncio.run(other())
    fresh = MemoryManager(SQLiteStore(path), config=CONFIG, counter=words)
    assert seen(here) == seen(fresh)
    for memory in (here, fresh):
        memory.close()


# ---------------------------------------------------------------- appends


def test_an_append_to_a_shared_store_is_one_call() -> None:
    store = Watched()
    here, there = two_on(store)
    here.add_user_message(SESSION, "first")
    there.get_active_entries(SESSION)
    calls: list[str] = []
    for name in ("state", "load", "read", "find"):
        real = getattr(store, name)
        setattr(store, name, lambda *a, _n=name, _r=real, **k: calls.append(_n) or _r(*a, **k))
    for number in range(3):
        here.add_tool_call(SESSION, "ls", {"n": number}, call_id="c")
        here.add_tool_result(SESSION, "ls", "a b", call_id="c")
        here.add_messages(SESSION, [{"role": "user", "content": f"more {number}"}])
    assert calls == []
    assert seen(there) == seen(here)


def test_window_is_refreshed_if_it_decides_about_an_entry() -> None:
    here, there = two_on(MemoryStore())
    here.add_system_message(SESSION, "careful")
    there.get_active_entries(SESSION)
    here.add_user_message(SESSION, "no longer only system messages")
    assert not there.add_system_message(SESSION, "not at the head").pinned
    here.add_tool_call(SESSION, "ls", {}, call_id="c1")
    [result] = there.add_messages(
        SESSION, [{"role": "tool", "tool_call_id": "c1", "content": "a b"}]
    )
    assert result.name == "ls"


def test_recreated_log_of_equal_length_is_recognized() -> None:
    here, there = two_on(MemoryStore())
    for number in range(3):
        here.add_user_message(SESSION, f"first {number}")
    there.delete_session(SESSION)
    for number in range(3):
        there.add_user_message(SESSION, f"second {number}")
    here.add_user_message(SESSION, "mine")
    texts = [item.entry.text for item in here._core.sessions.find(SESSION).log.window.items]
    assert texts == ["second 0", "second 1", "second 2", "mine"]
