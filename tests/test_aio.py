"""`memory.aio`: one memory for sync and async code, from any number of event loops and threads."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from memman import (
    AsyncMemoryManager,
    AsyncPortRefused,
    CompressionResult,
    MemoryConfig,
    MemoryManager,
    StoreError,
    SummarizerUnavailable,
    WrongEventLoop,
    events,
)
from memman.records import Added
from memman.stores import MemoryStore
from memman.testing import AsyncScriptedSummarizer, Delayed, record_events
from tests.patience import PATIENCE

T = Any
NAMES = ("memman-aio", "memman-ports", "memman-summarizer", "memman-background")
LONG = "word " * 400


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in NAMES]


def until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.002)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """After each test, no thread and no event loop of a manager is left."""
    yield
    gc.collect()
    until(lambda: not ours())
    loops = [one for one in gc.get_objects() if isinstance(one, asyncio.AbstractEventLoop)]
    assert all(loop.is_closed() for loop in loops)


@pytest.fixture
def make() -> Iterator[Callable[..., MemoryManager]]:
    """Return a function that makes managers, which are closed at the end."""
    made: list[MemoryManager] = []

    def manager(store: Any = None, summarizer: Any = None, **settings: Any) -> MemoryManager:
        config = MemoryConfig(**{"max_tokens": 2_000, **settings})
        made.append(
            MemoryManager(
                store, config=config, counter="chars4", summarizer=summarizer, async_ports=True
            )
        )
        return made[-1]

    yield manager
    for memory in made:
        memory.close()


Make = Callable[..., MemoryManager]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


def in_threads(*works: Callable[[], object]) -> None:
    """Run each on a thread of its own, and raise the first error."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


def texts(memory: MemoryManager, session: str = "s") -> list[str]:
    return [entry.text for entry in memory.get_entries(session)]


# ---------------------------------------------------------------- one memory, many loops


def test_four_threads_with_loops_add_to_one_file(make: Make, tmp_path: Path) -> None:
    memory = make(tmp_path / "chat.db", summarizer=AsyncScriptedSummarizer("short"))
    added = record_numbers(memory)

    async def work(name: str) -> None:
        for number in range(50):
            await memory.aio.add_user_message("s", f"{name}{number} " + "x" * 200)

    in_threads(*(lambda name=name: run(work(name)) for name in "abcd"))
    found = [text.split()[0] for text in texts(memory)]
    assert sorted(found) == sorted(f"{name}{number}" for name in "abcd" for number in range(50))
    for name in "abcd":  # each thread's in its order
        assert [each for each in found if each[0] == name] == [f"{name}{n}" for n in range(50)]
    assert added == sorted(added)
    assert len(added) == 200
    assert memory.get_stats("s").active_tokens <= 2_000
    memory.close()
    with MemoryManager(tmp_path / "chat.db", counter="chars4") as later:
        assert len(later.get_entries("s")) == 200


def record_numbers(memory: MemoryManager) -> list[int]:
    """Return the list of the seqs of added entries, in the order of their events."""
    numbers: list[int] = []
    memory.on(events.EntryAdded, lambda event: numbers.append(event.entry.seq))
    return numbers


def test_sync_and_async_code_share_a_session(make: Make) -> None:
    memory = make()

    async def main() -> list[dict[str, Any]]:
        await memory.aio.add_user_message("s", "async")
        memory.add_assistant_message("s", "sync, in a loop")
        await asyncio.to_thread(memory.add_user_message, "s", "sync, in a thread")
        return (await memory.aio.build_context("s")).messages

    messages = run(main())
    assert messages == memory.build_context("s").messages
    assert run(main())[-1]["content"] == "sync, in a thread"
    assert len(memory.get_entries("s")) == 6


def test_twenty_sessions_compress_at_once(make: Make) -> None:
    summarizer = AsyncScriptedSummarizer(Delayed("short", 0.2))
    memory = make(summarizer=summarizer)
    results: list[CompressionResult] = []
    memory.on(CompressionResult, results.append)

    async def use(session: str) -> None:
        for number in range(10):
            await memory.aio.add_user_message(session, f"{number} {LONG}"[:1_000])
        assert len(await memory.aio.get_entries(session)) == 10
        assert (await memory.aio.build_context(session)).tokens.tokens <= 2_000

    async def main() -> float:
        begun = time.monotonic()
        await asyncio.gather(*(use(f"s{number}") for number in range(20)))
        return time.monotonic() - begun

    assert run(main()) < 0.2 * len(results)  # they waited side by side
    assert {result.session_id for result in results} == {f"s{number}" for number in range(20)}
    assert summarizer.requests


def test_loop_goes_on_while_a_summary_is_written(make: Make) -> None:
    entered, released = threading.Event(), threading.Event()

    def summarize(_prompt: str) -> str:
        entered.set()
        assert released.wait(PATIENCE)
        return "short"

    memory = make(summarizer=summarize)

    async def main() -> None:
        for number in range(6):
            memory.add_user_message("s", f"{number} {LONG}", compress=False)
        compressing = asyncio.ensure_future(memory.aio.compress("s"))
        await asyncio.to_thread(entered.wait, PATIENCE)
        await memory.aio.add_user_message("s", "in the meantime")
        assert not compressing.done()
        released.set()
        assert (await compressing).compression_id

    run(main())
    assert texts(memory)[-1] == "in the meantime"


def test_async_manager_is_its_own_aio() -> None:
    memory = AsyncMemoryManager()
    assert memory.aio is memory


def test_aio_without_asyncio_names_the_way_out(make: Make) -> None:
    adding = make().aio.add_user_message("s", "x")
    with pytest.raises(WrongEventLoop, match=r"trio.*MemoryManager"):
        adding.send(None)


def test_errors_reach_the_awaiting_task(make: Make) -> None:
    memory = make()

    async def main() -> None:
        with pytest.raises(LookupError, match="nowhere"):
            await memory.aio.get_entries("nowhere")
        with pytest.raises(TypeError, match="unexpected keyword"):
            await memory.aio.add_user_message("s", "x", colour="red")  # type: ignore[call-arg] # wrong

    run(main())


# ---------------------------------------------------------------- following


def test_follow_gives_records_of_every_thread(make: Make) -> None:
    memory = make()

    async def main() -> list[str]:
        seen = []
        writing = asyncio.ensure_future(
            asyncio.to_thread(lambda: [memory.add_user_message("s", f"{n}") for n in range(600)])
        )
        async for item in memory.aio.follow("s", timeout=PATIENCE):
            if isinstance(item.record, Added):
                seen.append(item.record.entry.text)
                if seen[-1] == "599":
                    break
        await writing
        return seen

    assert run(main()) == [*map(str, range(600))]


def test_cancelled_follow_holds_no_thread(make: Make) -> None:
    memory = make()
    memory.add_user_message("s", "x")

    async def main() -> None:
        following = asyncio.ensure_future(read())
        await asyncio.sleep(0.05)
        assert [thread.name for thread in ours()] == []
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following

    async def read() -> None:
        async for _item in memory.aio.follow("s", poll=(60, 60)):
            pass

    run(main())
    assert not memory._core.shared.flags


def test_close_ends_a_follow(make: Make) -> None:
    memory = make()

    async def main() -> int:
        count = 0
        async for _item in memory.aio.follow(poll=(60, 60)):
            count += 1
            asyncio.get_running_loop().call_later(0.02, memory.close)
        return count

    memory.add_user_message("s", "x")
    assert run(main()) == 2


# ---------------------------------------------------------------- async ports


def fill(memory: MemoryManager, session: str = "s") -> None:
    for number in range(8):
        memory.add_user_message(session, f"{number} {LONG}", compress=False)


def test_async_summarizer_serves_sync_calls(make: Make) -> None:
    summarizer = AsyncScriptedSummarizer(Delayed("a short summary", 0.01))
    memory = make(summarizer=summarizer)
    fill(memory)
    assert memory.compress("s").cost.calls == 1
    assert "a short summary" in memory.get_context_for_llm("s")
    assert len(ours()) == 1


def test_coroutine_function_is_a_summarizer(make: Make) -> None:
    where: list[str] = []

    async def summarize(prompt: str) -> str:
        await asyncio.sleep(0)
        where.append(threading.current_thread().name)
        return "a short summary"

    memory = make(summarizer=summarize)
    fill(memory)
    memory.compress("s")
    run(refill_and_compress(memory))
    assert where == ["memman-ports"] * 2


async def refill_and_compress(memory: MemoryManager) -> CompressionResult:
    for number in range(8):
        await memory.aio.add_user_message("s", f"{number} {LONG}", compress=False)
    return await memory.aio.compress("s")


def test_async_ports_are_refused_until_allowed() -> None:
    async def summarize(prompt: str) -> str:
        return prompt

    with pytest.raises(AsyncPortRefused, match=r"async_ports=True"):
        MemoryManager(summarizer=summarize)
    memory = MemoryManager()
    with pytest.raises(AsyncPortRefused, match=r"memory\.aio"):
        memory.set_summarize_callback(summarize)
    run(memory.aio.set_summarize_callback(summarize))
    memory.close()


@pytest.mark.parametrize("bad", [None, 1, "yes"])
def test_async_ports_is_true_or_false(bad: Any) -> None:
    with pytest.raises(ValueError, match="async_ports must be True or False"):
        MemoryManager(async_ports=bad)


def test_hanging_async_summarizer_is_cancelled_at_its_deadline(make: Make) -> None:
    summarizer = AsyncScriptedSummarizer(Delayed("never", 10 * PATIENCE))
    memory = make(summarizer=summarizer, summarize_timeout=0.05)
    fill(memory)
    with record_events(memory, [events.CompressionFailedNotice]) as failures:
        result = run(memory.aio.compress("s"))
    assert [item.method for item in result.replacements] == ["outline"]
    assert "longer than 0.05 s" in failures[0].reason  # type: ignore[attr-defined] # of this kind
    until(lambda: summarizer.cancelled == 1)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer")
def test_interrupt_cancels_an_async_summarizer(make: Make) -> None:
    summarizer = AsyncScriptedSummarizer(Delayed("never", 10 * PATIENCE), "short")
    memory = make(summarizer=summarizer)
    fill(memory)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            memory.compress("s")
    finally:
        signal.signal(signal.SIGALRM, before)
    until(lambda: summarizer.cancelled == 1)
    assert memory.compress("s", summarize=True).compression_id


@pytest.mark.parametrize(
    "error", [ValueError("broken"), asyncio.CancelledError(), SummarizerUnavailable("no network")]
)
def test_failing_async_summarizer_falls_back_to_the_outline(
    make: Make, error: BaseException
) -> None:
    memory = make(summarizer=AsyncScriptedSummarizer(Delayed(error, 0.0)))
    fill(memory)
    assert [item.method for item in memory.compress("s").replacements] == ["outline"]


def test_exit_in_an_async_summarizer_reaches_the_caller(make: Make) -> None:
    memory = make(summarizer=AsyncScriptedSummarizer(Delayed(SystemExit(3), 0.0), "short"))
    fill(memory)
    with pytest.raises(SystemExit):
        memory.compress("s")
    assert memory.compress("s", summarize=True).cost.calls  # the loop goes on


class AsyncStore:
    """The store in memory, as a server's would be used."""

    def __init__(self) -> None:
        self._store = MemoryStore()
        self.threads: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **kw: Any) -> Any:
            self.threads.add(threading.current_thread().name)
            await asyncio.sleep(0)
            return method(*args, **kw)

        return call


def test_async_store_serves_sync_and_async_calls(make: Make) -> None:
    store = AsyncStore()
    memory = make(store, summarizer=AsyncScriptedSummarizer("short"))

    async def work(name: str) -> None:
        for number in range(20):
            await memory.aio.add_user_message("s", f"{name}{number} " + "x" * 400)

    def sync_work() -> None:
        for number in range(20):
            memory.add_user_message("s", f"c{number} " + "x" * 400)

    in_threads(lambda: run(work("a")), lambda: run(work("b")), sync_work)
    assert len(texts(memory)) == 60
    assert store.threads == {"memman-ports"}


def test_async_receivers_are_awaited_in_log_order(make: Make) -> None:
    memory = make()
    seen: list[int] = []

    async def receive(event: events.EntryAdded) -> None:
        await asyncio.sleep(0.001)
        seen.append(event.entry.seq)

    memory.on(events.EntryAdded, receive)

    async def work(name: str) -> None:
        for number in range(15):
            await memory.aio.add_user_message("s", f"{name}{number}")

    in_threads(lambda: run(work("a")), lambda: run(work("b")))
    until(lambda: len(seen) == 30)
    assert seen == sorted(seen)


def test_async_receiver_may_await_the_memory(make: Make) -> None:
    memory = make()

    async def answer(event: events.EntryAdded) -> None:
        if event.entry.role == "user":
            await memory.aio.add_assistant_message("s", f"re: {event.entry.text}")

    memory.on(events.EntryAdded, answer)

    async def main() -> None:
        await asyncio.gather(*(memory.aio.add_user_message("s", f"{n}") for n in range(20)))

    run(main())
    memory.add_user_message("s", "sync")
    until(lambda: len(memory.get_entries("s")) == 42)


def test_async_summarizer_may_await_the_memory(make: Make) -> None:
    reasons: list[str] = []

    async def summarize(_prompt: str) -> str:
        assert len(await memory.aio.get_entries("s")) == 8
        reasons.append((await memory.aio.compress("s")).reason)
        return "a short summary"

    memory = make(summarizer=summarize)
    fill(memory)
    assert run(memory.aio.compress("s")).compression_id
    assert "another compression" in reasons[0]


def test_sync_call_on_the_port_loop_is_refused(make: Make) -> None:
    refusals: list[str] = []

    async def summarize(_prompt: str) -> str:
        try:
            memory.get_stats("s")
        except WrongEventLoop as error:
            refusals.append(str(error))
        return "a short summary"

    memory = make(AsyncStore(), summarizer=summarize)
    fill(memory)
    assert memory.compress("s").cost.calls == 1
    assert "await the method of memory.aio" in refusals[0]


def test_background_compression_awaits_an_async_summarizer(make: Make) -> None:
    summarizer = AsyncScriptedSummarizer(Delayed("a short summary", 0.01))
    memory = make(summarizer=summarizer, background=True)
    run(refill(memory))
    until(lambda: bool(memory.get_summaries("s")))
    assert summarizer.requests


async def refill(memory: MemoryManager) -> None:
    for number in range(8):
        await memory.aio.add_user_message("s", f"{number} {LONG}")


request_id: ContextVar[str] = ContextVar("request_id", default="none")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_context_of_the_caller_reaches_ports(make: Make, kind: str) -> None:
    seen: list[str] = []

    async def summarize(_prompt: str) -> str:
        return note(_prompt)

    def note(_prompt: Any) -> str:
        seen.append(request_id.get())
        return "a short summary"

    async def receive(event: Any) -> None:
        note(event)

    memory = make(summarizer=summarize if kind == "async" else note)
    memory.on("entry_added", receive if kind == "async" else note)

    async def main() -> None:
        request_id.set("r-1")
        fill_here = [
            memory.aio.add_user_message("s", f"{n} {LONG}", compress=False) for n in range(6)
        ]
        for adding in fill_here:
            await adding
        await memory.aio.compress("s")

    run(main())
    assert seen == ["r-1"] * 7


# ---------------------------------------------------------------- cancellation


class SlowStore(MemoryStore):
    """Holds each write until `released` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.released = threading.Event(), threading.Event()

    def append(self, *args: Any, **kw: Any) -> Any:
        self.entered.set()
        assert self.released.wait(PATIENCE)
        return super().append(*args, **kw)


async def cancelled(work: Awaitable[Any], entered: threading.Event) -> None:
    """Cancel the task of `work` once `entered` is set."""
    task = asyncio.ensure_future(work)
    await asyncio.to_thread(entered.wait, PATIENCE)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancelled_add_is_stored_and_emitted_once(make: Make) -> None:
    store = SlowStore()
    memory = make(store)
    numbers = record_numbers(memory)

    async def main() -> None:
        await cancelled(memory.aio.add_user_message("s", "first", id="1"), store.entered)
        store.released.set()
        await memory.aio.add_user_message("s", "first", id="1")  # as a framework would repeat it
        await memory.aio.add_user_message("s", "second", id="2")

    run(main())
    assert texts(memory) == ["first", "second"]
    until(lambda: len(numbers) == 2)
    assert numbers == [2, 3]


def test_cancelled_build_leaves_the_session_usable(make: Make) -> None:
    entered, released = threading.Event(), threading.Event()

    def count(text: str) -> int:
        if "slow" in text:
            entered.set()
            assert released.wait(PATIENCE)
        return len(text)

    memory = MemoryManager(counter=count, config=MemoryConfig(max_tokens=9_000))
    memory.add_user_message("s", "hello")

    async def main() -> None:
        await cancelled(memory.aio.build_context("s", system="slow"), entered)
        released.set()
        context = await memory.aio.build_context("s", system="slow")
        assert context.messages[-1]["content"] == "hello"

    run(main())
    memory.close()


@pytest.mark.parametrize("is_async", [True, False])
def test_cancelled_compress_is_recorded_and_emitted_once(make: Make, is_async: bool) -> None:
    entered, released = threading.Event(), threading.Event()

    def summarize(_prompt: str) -> str:
        entered.set()
        assert released.wait(PATIENCE)
        return "a short summary"

    async def asummarize(_prompt: str) -> str:
        entered.set()
        await asyncio.to_thread(released.wait, PATIENCE)
        return "a short summary"

    memory = make(summarizer=asummarize if is_async else summarize, state_ratio=0)
    fill(memory)

    async def main() -> None:
        await cancelled(memory.aio.compress("s"), entered)
        await memory.aio.add_user_message("s", "in the meantime")
        released.set()

    with record_events(memory, [CompressionResult]) as results:
        run(main())
        until(lambda: bool(memory.get_summaries("s")) and len(results) == 1)
        assert memory.compress("s").compression_id is None
    assert len(results) == 1
    assert texts(memory)[-1] == "in the meantime"


def test_error_of_a_cancelled_call_is_logged(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    entered, released = threading.Event(), threading.Event()

    class BrokenStore(MemoryStore):
        def append(self, *_args: Any, **_kw: Any) -> Any:
            entered.set()
            assert released.wait(PATIENCE)
            raise StoreError("the disk is gone")

    run(cancelled(make(BrokenStore()).aio.add_user_message("s", "x"), entered))
    released.set()
    until(lambda: "the disk is gone" in caplog.text)
    assert "a call failed after its caller was cancelled" in caplog.text


# ---------------------------------------------------------------- the end


def test_close_cancels_what_async_ports_do(make: Make) -> None:
    entered = threading.Event()
    ended: list[str] = []

    async def summarize(_prompt: str) -> str:
        entered.set()
        try:
            await asyncio.sleep(10 * PATIENCE)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "never"

    memory = make(summarizer=summarize)
    fill(memory)
    results: list[CompressionResult] = []
    thread = threading.Thread(target=lambda: results.append(memory.compress("s")), daemon=True)
    thread.start()
    assert entered.wait(PATIENCE)
    memory.close()
    thread.join(PATIENCE)
    assert ended == ["cancelled"]
    assert results[0].compression_id is None


def test_dropped_manager_ends_its_loop() -> None:
    summarizer, config = AsyncScriptedSummarizer("short"), MemoryConfig(max_tokens=2_000)
    memory = MemoryManager(summarizer=summarizer, config=config, async_ports=True)
    fill(memory)
    memory.compress("s")
    assert len(ours()) == 1
    del memory  # `nothing_left` waits for its thread


def test_aio_closes_the_memory(make: Make) -> None:
    memory = make(AsyncStore())
    run(memory.aio.add_user_message("s", "x"))
    run(memory.aio.close())
    assert "memman-ports" not in {thread.name for thread in ours()}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_starts_its_own_loop(make: Make) -> None:
    memory = make(summarizer=AsyncScriptedSummarizer("short"))
    fill(memory)
    memory.compress("s")
    child = os.fork()
    if not child:
        status = 1
        try:
            fill(memory, "t")
            assert run(memory.aio.compress("t")).cost.calls == 1
            memory.close()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    fill(memory, "u")
    assert memory.compress("u").cost.calls == 1


HANGING = """
import asyncio
from memman import MemoryConfig, MemoryManager

async def summarize(prompt):
    print("asked", flush=True)
    await asyncio.sleep(3_600)

async def main():
    for number in range(8):
        await memory.aio.add_user_message("s", "word " * 400, compress=False)
    task = asyncio.ensure_future(memory.aio.compress("s"))
    await asyncio.sleep(0.2)
    task.cancel()

memory = MemoryManager(
    summarizer=summarize,
    async_ports=True,
    config=MemoryConfig(max_tokens=2_000, summarize_timeout=None),
)
asyncio.run(main())
"""


def test_program_ends_while_a_summarizer_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", HANGING],
        capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert done.stdout == "asked\n"
    assert done.stderr == ""
