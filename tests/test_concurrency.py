"""Many writers on one session, and interruptions at any moment: each acknowledged entry is kept once."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import memman
from memman import AsyncMemoryManager, MemmanError, MemoryConfig, MemoryManager, events
from memman.log import History
from memman.records import Added, Compressed, Record
from memman.session import compressor
from memman.stores import MemoryStore
from memman.testing import FakeClock, record_events, sequential_ids
from tests.examples import examples
from tests.oracle import Oracle
from tests.patience import PATIENCE
from tests.schedules import CANCEL, Tasks, Threads, TurnLock

SESSION = "s"
THREADS, EACH_THREAD = 8, 400
TASKS, EACH_TASK = 200, 6
INTERRUPTIONS = examples(2_000)  # with each manager
CONFIG = MemoryConfig(
    max_tokens=2_000, max_entries=None, recent_window=4, min_entries_to_compress=2,
    summarize_timeout=None,
)  # fmt: skip


def words(text: str) -> int:
    return len(text.split())


def log_of(store: MemoryStore) -> list[tuple[int, Record]]:
    return list(store.read(SESSION, 0, 10**9))


def assert_log_and_window_agree(store: MemoryStore, active: list[Any]) -> None:
    """Assert that the live window is the fold of the log, with its pins, and the store's own window."""
    log = log_of(store)
    assert [seq for seq, _ in log] == list(range(1, len(log) + 1)), "the log has gaps"
    folded = History.of(log)
    snapshot = store.load(SESSION)
    assert snapshot is not None
    shown = folded.state.window.shown_items
    assert [entry.id for entry in active] == [item.entry.id for item in shown]
    assert [entry.pinned for entry in active] == [item.pinned for item in shown]
    assert [place for place, _ in snapshot.window] == [
        item.place() for item in folded.state.window.stored_items
    ]
    assert snapshot.totals == folded.totals


def assert_acknowledged_once(store: MemoryStore, acknowledged: list[list[str]]) -> None:
    """Assert that the log has every acknowledged text once, and each writer's texts in order."""
    logged = [record for _, record in log_of(store) if isinstance(record, Added)]
    texts = [record.entry.text for record in logged if record.entry.text]  # or it was deleted
    places = {text: number for number, text in enumerate(texts)}
    assert len(places) == len(texts), "an entry is in the log twice"
    for each in acknowledged:
        missing = [text for text in each if text not in places]
        assert not missing, f"acknowledged and not in the log: {missing[:3]}"
        order = [places[text] for text in each]
        assert order == sorted(order), "a writer's entries are not in its order"


def kinds_emitted(emitted: list[events.Event]) -> list[tuple[str, Any]]:
    named = {
        events.EntryAdded: lambda event: event.entry.id,
        events.CompressionResult: lambda event: event.compression_id,
        events.CompressionUndone: lambda event: event.compression_id,
        events.SessionCleared: lambda event: None,
    }
    return [(type(event).__name__, named[type(event)](event)) for event in emitted]


def kinds_logged(store: MemoryStore) -> list[tuple[str, Any]]:
    names = {"Added": "EntryAdded", "Compressed": "CompressionResult",
             "Undone": "CompressionUndone", "Cleared": "SessionCleared"}  # fmt: skip
    return [
        (
            names[type(record).__name__],
            {"Undone": lambda r: r.compression_id, "Cleared": lambda r: None}.get(
                type(record).__name__, lambda r: r.id
            )(record),
        )
        for _, record in log_of(store)
        if type(record).__name__ in names
    ]


LOGGED = [
    events.EntryAdded,
    events.CompressionResult,
    events.CompressionUndone,
    events.SessionCleared,
]


@contextmanager
def quick_switches() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


# ---------------------------------------------------------------- many writers


@pytest.mark.parametrize("exclusive", [True, False])
def test_concurrent_threads_lose_no_entry(exclusive):
    store = MemoryStore()
    memory = MemoryManager(
        store, config=CONFIG, counter=words, summarizer=lambda prompt: "short", exclusive=exclusive
    )
    acknowledged: list[list[str]] = [[] for _ in range(THREADS)]
    failures: list[BaseException] = []
    writing = threading.Event()
    writing.set()

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def write(writer: int) -> None:
        for number in range(EACH_THREAD):
            text = f"w{writer} n{number} " + "word " * (number % 7)
            assert memory.add_user_message(SESSION, text).seq > 0
            acknowledged[writer].append(text)

    def meddle() -> None:
        rng = random.Random(7)
        while writing.is_set():
            try:
                match rng.choice(("compress", "compress", "undo", "clear", "read")):
                    case "compress":
                        memory.compress(SESSION, target_tokens=rng.choice((50, 200)))
                    case "undo":
                        memory.undo_compression(SESSION)
                    case "clear":
                        memory.clear_session(SESSION)
                    case "read":
                        memory.build_context(SESSION)
            except MemmanError:
                time.sleep(0)  # nothing to undo, or no session yet: expected errors

    with (
        quick_switches(),
        record_events(memory, LOGGED) as first,
        record_events(memory, LOGGED) as second,
    ):
        writers = [guarded(lambda w=w: write(w)) for w in range(THREADS)]
        meddlers = [guarded(meddle) for _ in range(2)]
        for thread in writers:
            thread.join(60)
        writing.clear()
        for thread in meddlers:
            thread.join(60)
    assert not any(thread.is_alive() for thread in writers + meddlers), "a thread hangs"
    assert failures == []
    assert sum(map(len, acknowledged)) == THREADS * EACH_THREAD
    assert_acknowledged_once(store, acknowledged)
    assert_log_and_window_agree(store, memory.get_active_entries(SESSION))
    assert kinds_emitted(first) == kinds_emitted(second) == kinds_logged(store)


class AwaitedStore:
    """A store in memory that lets other workers run before and after each call."""

    blocking = False

    def __init__(self) -> None:
        self.inner = MemoryStore()

    async def _suspended(self, name: str, *args: Any, **keywords: Any) -> Any:
        await asyncio.sleep(0)
        answer = getattr(self.inner, name)(*args, **keywords)
        await asyncio.sleep(0)
        return answer

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._suspended, name)


@pytest.mark.parametrize("exclusive", [True, False])
def test_concurrent_tasks_lose_no_entry(exclusive):
    asyncio.run(_many_tasks(exclusive))


async def _many_tasks(exclusive: bool) -> None:
    store = AwaitedStore()

    async def summarize(prompt: str) -> str:
        await asyncio.sleep(0)
        return "short"

    memory = AsyncMemoryManager(
        store, config=CONFIG, counter=words, summarizer=summarize, exclusive=exclusive
    )
    acknowledged: list[list[str]] = [[] for _ in range(TASKS)]

    async def write(writer: int) -> None:
        for number in range(EACH_TASK):
            text = f"w{writer} n{number} " + "word " * (number % 7)
            await memory.add_user_message(SESSION, text)
            acknowledged[writer].append(text)

    async def meddle(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(12):
            try:
                match rng.choice(("compress", "compress", "undo", "clear")):
                    case "compress":
                        await memory.compress(SESSION, target_tokens=rng.choice((50, 200)))
                    case "undo":
                        await memory.undo_compression(SESSION)
                    case "clear":
                        await memory.clear_session(SESSION)
            except MemmanError:
                await asyncio.sleep(0)

    with record_events(memory, LOGGED) as first, record_events(memory, LOGGED) as second:
        work = [*map(write, range(TASKS)), *map(meddle, range(4))]
        await asyncio.wait_for(asyncio.gather(*work), 60)
    assert_acknowledged_once(store.inner, acknowledged)
    assert_log_and_window_agree(store.inner, await memory.get_active_entries(SESSION))
    assert kinds_emitted(first) == kinds_emitted(second) == kinds_logged(store.inner)


# ---------------------------------------------------------------- every schedule

Script = tuple[bool, list[tuple[str, int]]]  # (of the second manager, action)
STEPS = ("add", "add", "compress", "undo", "clear", "delete", "pin", "read", "close")
SCRIPTS = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=4,
)
SCHEDULES = st.lists(st.integers(0, 5) | st.integers(CANCEL, CANCEL + 4), max_size=120)
SCHEDULED = settings(max_examples=examples(250), suppress_health_check=list(HealthCheck))
# The same examples each time, because each wrong store must be found.
HUNT = settings(
    SCHEDULED, max_examples=250, phases=[Phase.generate], derandomize=True, database=None,
    print_blob=False, report_multiple_bugs=False,
)  # fmt: skip


class Meeting:
    """Two managers on one store, a compression by hand, and other writers in turns."""

    def __init__(self, api: Threads, inner: MemoryStore, background: bool) -> None:
        self.api, self.inner = api, inner
        shared = api.store(inner)
        self.managers = [
            api.manager(
                shared, config=CONFIG.updated({"background": background}), counter=words,
                new_id=sequential_ids(name), clock=FakeClock(),
                summarizer=api.summarizer(lambda request: "short"),
            )
            for name in ("a", "b")
        ]  # fmt: skip
        self.ids = [
            api.now(
                self.managers[0].add_user_message(
                    SESSION, f"first {number} " + "word " * 170, compress=False
                )
            ).id
            for number in range(12)
        ]
        self.acknowledged: list[list[str]] = []
        self.results: list[Any] = []
        self.closed: list[Any] = []

    def worker(self, script: Script) -> Callable[[], Any]:
        second, steps = script
        texts: list[str] = []
        self.acknowledged.append(texts)
        name = f"w{len(self.acknowledged)}"
        return self.api.worker(
            [
                self._step(self.managers[second], step, which, f"{name} n{number}", texts)
                for number, (step, which) in enumerate(steps)
            ]
        )

    def _step(
        self, memory: Any, step: str, which: int, text: str, texts: list[str]
    ) -> Callable[[], Any]:
        def answer() -> Any:
            match step:
                case "add":
                    return memory.add_user_message(SESSION, text + " word" * 20)
                case "compress":
                    return memory.compress(SESSION)
                case "undo":
                    return memory.undo_compression(SESSION)
                case "clear":
                    return memory.clear_session(SESSION)
                case "delete":
                    return memory.delete_entries(SESSION, [self.ids[which]])
                case "read":
                    return memory.get_summaries(SESSION)
                case "close":
                    self.closed.append(memory)
                    return memory.close()
            return memory.pin(SESSION, self.ids[which])

        def then(given: Any) -> None:
            if step == "add":
                texts.append(given.text)
            elif step == "compress":
                self.results.append(given)

        return functools.partial(self.api.outcome, answer, then)

    @property
    def open(self) -> list[Any]:
        """Return the open managers."""
        return [memory for memory in self.managers if memory not in self.closed]

    def check(self) -> None:
        """Check the results of the schedule."""
        log = log_of(self.inner)
        Oracle.of(log).assert_represented_once()
        for memory in self.open:
            active = self.api.now(memory.get_active_entries(SESSION))
            assert_log_and_window_agree(self.inner, active)
        assert_acknowledged_once(self.inner, self.acknowledged)
        made = [record.id for _, record in log if isinstance(record, Compressed)]
        ids = [each.compression_id for each in self.results if each.compression_id is not None]
        assert len(set(made)) == len(made)
        assert set(ids) <= set(made), "a compression that was reported is not in the log"


def held_after(
    api: Threads,
    schedule: list[int],
    scripts: list[Script],
    store: type[MemoryStore] = MemoryStore,
    background: bool = False,
) -> None:
    """Play a schedule and check the results."""
    try:
        meeting = Meeting(api, store(), background)
        works = [meeting.worker(each) for each in [(False, [("compress", 0)]), *scripts]]
        one, other = meeting.managers
        with record_events(one, LOGGED) as first, record_events(other, LOGGED) as second:
            api.run(schedule, works)
            meeting.check()
            for memory in meeting.open:  # so that each emits its pending events
                api.now(memory.add_user_message(SESSION, "the last", compress=False))
        logged = kinds_logged(meeting.inner)[len(meeting.ids) :]
        by_all, due = (
            Counter(map(str, each))
            for each in (kinds_emitted(first) + kinds_emitted(second), logged)
        )
        # A manager that was closed during a call has not emitted its outcome.
        assert by_all <= due if meeting.closed else by_all == due
        for emitted in (first, second):
            at = iter(logged)
            assert all(each in at for each in kinds_emitted(emitted)), "emitted out of order"
    finally:
        api.end()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of the sync runtime that end the turn of a worker."""
    monkeypatch.setattr("memman.runtime.SyncRuntime.lock", lambda api: TurnLock())


@pytest.mark.usefixtures("turns")
@SCHEDULED
@given(schedule=SCHEDULES, scripts=SCRIPTS)
def test_threads_during_a_summary_keep_every_entry_once(schedule, scripts):
    held_after(Threads(), schedule, scripts)


@SCHEDULED
@given(schedule=SCHEDULES, scripts=SCRIPTS, background=st.booleans())
def test_tasks_during_a_summary_keep_every_entry_once(schedule, scripts, background):
    held_after(Tasks(), schedule, scripts, background=background)


class WithoutEpochCheck(MemoryStore):
    """A store that accepts a commit on any epoch."""

    def commit(self, session_id: str, epoch: int, *args: Any, **keywords: Any) -> Any:
        state = self.state(session_id)
        keywords.pop("expect_head", None)
        return super().commit(session_id, epoch if state is None else state[1], *args, **keywords)


@pytest.mark.long
@pytest.mark.usefixtures("turns")
@pytest.mark.parametrize("api", [Threads, Tasks])
def test_the_schedules_catch_a_store_without_an_epoch_check(api):
    @HUNT
    @given(schedule=SCHEDULES, scripts=SCRIPTS)
    def played(schedule: list[int], scripts: list[Script]) -> None:
        held_after(api(), schedule, scripts, WithoutEpochCheck)

    with pytest.raises((AssertionError, MemmanError, IndexError)):
        played()


# ---------------------------------------------------------------- interruptions


@contextmanager
def alarms_interrupt() -> Iterator[Callable[[float], None]]:
    """Return a function that sets the moment of the next KeyboardInterrupt; 0 cancels it."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)

    def arm(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    try:
        yield arm
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


needs_alarms = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="this system has no interval timer"
)


def _some_verb(memory: MemoryManager, rng: random.Random, text: str) -> str | None:
    """Call one method; return the text that it acknowledged, if it added one."""
    try:
        match rng.choice(
            ("add",) * 6 + ("compress", "undo", "pin", "delete", "clear", "configure")
        ):
            case "add":
                memory.add_user_message(SESSION, text)
                return text
            case "compress":
                memory.compress(SESSION, target_tokens=rng.choice((20, 60)))
            case "undo":
                memory.undo_compression(SESSION)
            case "pin":
                entry = rng.choice(memory.get_active_entries(SESSION) or [None])
                if entry is not None:
                    (memory.unpin if entry.pinned else memory.pin)(SESSION, entry.id)
            case "delete":
                entry = rng.choice(memory.get_entries(SESSION) or [None])
                if entry is not None and rng.random() < 0.2:
                    memory.delete_entries(SESSION, [entry.id])
            case "clear":
                if rng.random() < 0.2:
                    memory.clear_session(SESSION)
            case "configure":
                memory.update_config(SESSION, recent_window=rng.randint(0, 3))
    except MemmanError:
        return None  # nothing to undo, pinned: expected errors
    return None


@needs_alarms
@pytest.mark.hypothesis  # all of its interruptions by `ci`
# The alarm may strike between making a coroutine and starting it, or in a destructor: Python warns.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("exclusive", [True, pytest.param(False, marks=pytest.mark.long)])
def test_interruption_leaves_equal_state_and_no_lock(exclusive):
    rng = random.Random(11)
    left = INTERRUPTIONS // 2
    numbers = itertools.count(1)
    with alarms_interrupt() as arm:
        while left:
            # A new session now and then, because the check after each interruption reads the whole log.
            store = MemoryStore()
            memory = MemoryManager(
                store, config=CONFIG, counter=words, summarizer=lambda prompt: "short",
                exclusive=exclusive,
            )  # fmt: skip
            memory.add_user_message(SESSION, "the first")
            acknowledged = ["the first"]
            for _ in range(min(25, left)):
                with pytest.raises(KeyboardInterrupt):
                    _work(memory, rng, arm, acknowledged, numbers)
                _assert_free(memory)
                assert_log_and_window_agree(store, memory.get_active_entries(SESSION))
                _assert_all_there(store, acknowledged)
                left -= 1
    _tell_of_what_was_never_begun()


def _tell_of_what_was_never_begun() -> None:
    """Collect coroutines here, so that a warning about them does not hit a later test."""
    gc.collect()


def _work(
    memory: MemoryManager,
    rng: random.Random,
    arm: Callable[[float], None],
    acknowledged: list[str],
    numbers: Iterator[int],
) -> None:
    """Call methods until the alarm strikes.

    It is caught in another function: from Python 3.12 on, an alarm at the end of a `while` loop passes
    by a `try` around the loop (CPython's issue 130279).
    """
    while True:
        # Repeated, because Python swallows an exception in a destructor.
        arm(rng.uniform(0.00005, 0.002))
        until = time.monotonic() + 0.02
        while time.monotonic() < until:
            text = _some_verb(memory, rng, f"text {next(numbers)}")
            if text is not None:
                acknowledged.append(text)


def _assert_free(memory: MemoryManager) -> None:
    """Assert that another thread can use the manager: all locks are free."""
    answered: list[Any] = []
    thread = threading.Thread(
        target=lambda: answered.append(memory.compress(SESSION, target_tokens=2_000)), daemon=True
    )
    thread.start()
    thread.join(PATIENCE)
    assert answered, "a lock was left held"


def _assert_all_there(store: MemoryStore, acknowledged: list[str]) -> None:
    logged = [record for _, record in log_of(store) if isinstance(record, Added)]
    texts = [record.entry.text for record in logged if record.entry.text]
    assert len(texts) == len(set(texts)), "an interrupted entry is in the log twice"
    deleted = sum(not record.entry.text for record in logged)
    missing = [text for text in acknowledged if text not in set(texts)]
    assert len(missing) <= deleted, f"acknowledged and not in the log: {missing[:3]}"


class Struck(Exception):
    """The error of a scheduled interruption."""


class Heard:
    """Return the kinds of the log events that a manager emitted."""

    def __init__(self, memory: MemoryManager) -> None:
        self.kinds: list[str] = []
        for signal_ in events.LOG_SIGNALS.values():
            signal_.connect(self._hear, sender=memory)

    def _hear(self, sender: Any, event: events.Event) -> None:
        self.kinds.append(type(event).__name__)


@contextmanager
def interrupted_at_call(number: int) -> Iterator[None]:
    """Raise KeyboardInterrupt at the nth call of a function of memman's, and then `Struck`."""
    calls = itertools.count(1)
    here = str(Path(memman.__file__).parent)

    def strike(frame: Any, event: str, _arg: Any) -> None:
        if frame.f_code.co_filename.startswith(here) and next(calls) == number:
            sys.settrace(None)
            raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(strike)
    try:
        yield
    except KeyboardInterrupt:
        raise Struck from None
    finally:
        sys.settrace(before)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("exclusive", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "verb",
    [
        lambda memory: memory.add_user_message(SESSION, "one more"),
        lambda memory: memory.add_messages(SESSION, [{"role": "user", "content": "one more"}]),
        lambda memory: memory.compress(SESSION, target_tokens=60),
        lambda memory: memory.pin(SESSION, memory.get_active_entries(SESSION)[-1].id),
    ],
    ids=["add", "add_messages", "compress", "pin"],
)
def test_an_interruption_at_any_call_costs_no_receiver_an_event(verb, exclusive):
    for number in itertools.count(1):
        store = MemoryStore()
        memory = MemoryManager(
            store, config=CONFIG, counter=words, summarizer=lambda prompt: "short",
            exclusive=exclusive,
        )  # fmt: skip
        for text in range(9):
            memory.add_user_message(SESSION, f"{text} " + "word " * 20)
        first, second = Heard(memory), Heard(memory)
        ended = True
        try:
            with interrupted_at_call(number):
                verb(memory)
        except Struck:
            ended = False
        memory.add_user_message(SESSION, "the last")
        logged = [record for seq, record in log_of(store) if seq > 10]
        assert first.kinds == second.kinds
        assert len(first.kinds) == len(logged), f"an event for each record, at call {number}"
        memory.close()
        if ended:
            break
    _tell_of_what_was_never_begun()


def test_compression_interrupted_at_its_start_can_run_again(monkeypatch):
    memory = MemoryManager(config=CONFIG, counter=words, summarizer=lambda prompt: "short")
    for number in range(9):
        memory.add_user_message(SESSION, f"{number} " + "word " * 20)
    real = compressor._compressing

    class StruckBehind:
        get, reset = real.get, real.reset

        def set(self, running: Any) -> Any:
            real.set(running)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(compressor, "_compressing", StruckBehind())
        with pytest.raises(KeyboardInterrupt):
            memory.compress(SESSION, target_tokens=60)
    assert memory.compress(SESSION, target_tokens=60).compression_id


@pytest.mark.hypothesis  # all of its cancellations by `ci`
@pytest.mark.parametrize("exclusive", [True, False])
def test_cancellation_leaves_equal_state_and_no_lock(exclusive):
    asyncio.run(_cancellations(exclusive, INTERRUPTIONS // 2))


async def _cancellations(exclusive: bool, left: int) -> None:
    rng = random.Random(13)
    number = 0
    while left:
        store = AwaitedStore()

        async def summarize(prompt: str) -> str:
            await asyncio.sleep(0)
            return "short"

        memory = AsyncMemoryManager(
            store, config=CONFIG, counter=words, summarizer=summarize, exclusive=exclusive
        )
        await memory.add_user_message(SESSION, "the first")
        acknowledged = ["the first"]
        for _ in range(min(25, left)):
            tasks = []
            for _ in range(3):
                number += 1
                work = _some_awaited_verb(memory, rng, f"text {number}", acknowledged)
                tasks.append(asyncio.ensure_future(work))
            for _ in range(rng.randint(0, 14)):
                await asyncio.sleep(0)
            tasks[0].cancel()
            done, pending = await asyncio.wait(tasks, timeout=PATIENCE)
            assert not pending, "a lock was left held"
            for task in done:
                assert task.cancelled() or task.exception() is None
            active = await asyncio.wait_for(memory.get_active_entries(SESSION), 10)
            assert_log_and_window_agree(store.inner, active)
            _assert_all_there(store.inner, acknowledged)
            left -= 1


async def _some_awaited_verb(
    memory: AsyncMemoryManager, rng: random.Random, text: str, acknowledged: list[str]
) -> None:
    try:
        match rng.choice(
            ("add",) * 4 + ("compress", "undo", "pin", "delete", "clear", "configure")
        ):
            case "add":
                await memory.add_user_message(SESSION, text)
                acknowledged.append(text)
            case "compress":
                await memory.compress(SESSION, target_tokens=rng.choice((3, 20)))
            case "undo":
                await memory.undo_compression(SESSION)
            case "pin":
                active = await memory.get_active_entries(SESSION)
                if active:
                    entry = rng.choice(active)
                    await (memory.unpin if entry.pinned else memory.pin)(SESSION, entry.id)
            case "delete":
                entries = await memory.get_entries(SESSION)
                if entries and rng.random() < 0.3:
                    await memory.delete_entries(SESSION, [rng.choice(entries).id])
            case "clear":
                if rng.random() < 0.2:
                    await memory.clear_session(SESSION)
            case "configure":
                await memory.update_config(SESSION, recent_window=rng.randint(0, 3))
    except MemmanError:
        return  # nothing to undo, pinned: expected errors


# ---------------------------------------------------------------- forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
# Python counts the thread that waits for the next summary.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_calls_the_summarizer_again():
    config = CONFIG.updated({"summarize_timeout": PATIENCE})
    memory = MemoryManager(config=config, counter=words, summarizer=lambda prompt: "short")
    for number in range(12):
        memory.add_user_message(SESSION, f"{number} " + "word " * 20)
    assert memory.compress(SESSION, target_tokens=200).summary_id
    pid = os.fork()
    if pid == 0:
        try:
            for number in range(12):
                memory.add_user_message("child", f"{number} " + "word " * 20)
            began = time.monotonic()
            methods = {
                one.method for one in memory.compress("child", target_tokens=200).replacements
            }
            os._exit(0 if "summary" in methods and time.monotonic() - began < PATIENCE else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
