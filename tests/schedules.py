"""Schedules of concurrent workers: each call of a port and each wait for a lock ends a worker's turn.

So a schedule is a list of numbers: Hypothesis draws it, shrinks it, and repeats it exactly. In the
sync API every worker is a thread, one of which runs at a time; in the async API a task.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from memman import AsyncMemoryManager, MemmanError, MemoryManager, SummaryReply, SummaryRequest
from memman.runtime.sync_runtime import SyncLock
from memman.stores import MemoryStore
from tests.patience import PATIENCE

_MOST_TURNS = 20_000
CANCEL = 100  # from this number on, a worker that is a task is cancelled instead
METHODS = (
    "append", "commit", "load", "state", "read", "find", "feed", "lease", "erase", "sessions", "delete",
)  # fmt: skip


def picks(schedule: list[int]) -> Iterator[int]:
    """Yield the numbers of a schedule, then all workers in turn."""
    yield from schedule
    turn = 0
    while True:
        turn += 1
        assert turn < _MOST_TURNS, "the workers never end"
        yield turn


class _Thread:
    """A worker that runs while it has the turn."""

    def __init__(self, work: Callable[[], None], back: threading.Semaphore) -> None:
        self.turn = threading.Semaphore(0)
        self.back = back
        self.ended = False
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.worker = self  # type: ignore[attr-defined]
        self._thread.start()

    def _run(self) -> None:
        self.turn.acquire()
        try:
            self._work()
        except BaseException as error:
            self.error = error
        self.ended = True
        self.back.release()

    def pause(self) -> None:
        self.back.release()
        self.turn.acquire()


def pause() -> None:
    """End the turn, if the thread is a worker."""
    worker = getattr(threading.current_thread(), "worker", None)
    if worker is not None:
        worker.pause()


class TurnLock(SyncLock):
    """A lock that ends the turn of a worker that waits for it."""

    async def __aenter__(self) -> None:
        while not await self.try_enter():
            pause()


class Threads:
    """The sync API under a schedule."""

    manager: Any = MemoryManager

    def run(self, schedule: list[int], works: list[Callable[[], Any]]) -> None:
        """Run the workers to their ends. Raise a worker's error."""
        back = threading.Semaphore(0)
        workers = [_Thread(work, back) for work in works]
        for pick in picks(schedule):
            waiting = [worker for worker in workers if not worker.ended]
            if not waiting:
                break
            waiting[pick % len(waiting)].turn.release()
            assert back.acquire(timeout=PATIENCE), "a worker waits for something that is no port"
        for worker in workers:
            if worker.error is not None:
                raise worker.error

    def store(self, inner: MemoryStore) -> Any:
        """A store whose callers end their turns before and after every method."""
        return _TurnStore(inner)

    def summarizer(self, reply: Callable[[SummaryRequest], str]) -> Any:
        """A summarizer that ends its caller's turn."""
        return _TurnSummarizer(reply)

    def worker(self, steps: list[Callable[[], Any]]) -> Callable[[], Any]:
        """Return a worker with these steps."""

        def work() -> None:
            for step in steps:
                step()

        return work

    def outcome(self, answer: Callable[[], Any], then: Callable[[Any], None]) -> Any:
        """A step: a call, and a function for its result; memman's errors are results too."""
        try:
            given = answer()
        except MemmanError:
            return
        then(given)

    def now(self, answer: Any) -> Any:
        """Return the result of a method outside of any schedule."""
        return answer

    def end(self) -> None:
        """Free the resources of the API."""


class _TurnStore:
    blocking = False

    def __init__(self, inner: MemoryStore) -> None:
        for name in METHODS:
            setattr(self, name, self._taking_turns(getattr(inner, name)))

    def _taking_turns(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            pause()
            answer = method(*args, **keywords)
            pause()
            return answer

        return call

    def close(self) -> None:
        """Nothing to free."""


class _TurnSummarizer:
    def __init__(self, reply: Callable[[SummaryRequest], str]) -> None:
        self.reply = reply

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        for _ in range(4):
            pause()
        return SummaryReply(text=self.reply(request))


class Tasks(Threads):
    """The async API under a schedule."""

    manager = AsyncMemoryManager

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.waiting: list[asyncio.Future[None]] = []

    async def pause(self) -> None:
        """End the turn, if a schedule runs."""
        if asyncio.current_task() is None or not self.waiting_allowed:
            return
        turn = self.loop.create_future()
        self.waiting.append(turn)
        await turn

    waiting_allowed = False

    def run(self, schedule: list[int], works: list[Callable[[], Any]]) -> None:
        self.loop.run_until_complete(self._run(schedule, works))

    async def _run(self, schedule: list[int], works: list[Callable[[], Awaitable[Any]]]) -> None:
        self.waiting_allowed = True
        tasks = [asyncio.ensure_future(work()) for work in works]
        planned = len(schedule)
        try:
            for turn, pick in enumerate(picks(schedule)):
                await self._quiet()
                self.waiting = [each for each in self.waiting if not each.done()]
                if not self.waiting:
                    break
                if turn < planned and pick >= CANCEL:
                    tasks[pick % len(tasks)].cancel()
                else:
                    self.waiting.pop(pick % len(self.waiting)).set_result(None)
        finally:
            self.waiting_allowed = False
        assert all(task.done() for task in tasks), "a worker waits for something that is no port"
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _quiet(self) -> None:
        """Run until all workers wait for a turn."""
        await asyncio.sleep(0)
        while self.loop._ready:  # type: ignore[attr-defined]  # noqa: ASYNC110 - the loop itself
            await asyncio.sleep(0)

    def store(self, inner: MemoryStore) -> Any:
        return _AwaitedTurnStore(inner, self)

    def summarizer(self, reply: Callable[[SummaryRequest], str]) -> Any:
        return _AwaitedTurnSummarizer(reply, self)

    def worker(self, steps: list[Callable[[], Any]]) -> Callable[[], Any]:
        async def work() -> None:
            for step in steps:
                await step()

        return work

    async def outcome(self, answer: Callable[[], Any], then: Callable[[Any], None]) -> Any:
        try:
            given = await answer()
        except MemmanError:
            return
        then(given)

    def now(self, answer: Any) -> Any:
        return self.loop.run_until_complete(answer)

    def end(self) -> None:
        self.loop.close()


class _AwaitedTurnStore:
    blocking = False

    def __init__(self, inner: MemoryStore, tasks: Tasks) -> None:
        self._tasks = tasks
        for name in METHODS:
            setattr(self, name, self._taking_turns(getattr(inner, name)))

    def _taking_turns(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **keywords: Any) -> Any:
            await self._tasks.pause()
            answer = method(*args, **keywords)
            await self._tasks.pause()
            return answer

        return call

    async def close(self) -> None:
        """Nothing to free."""


class _AwaitedTurnSummarizer:
    def __init__(self, reply: Callable[[SummaryRequest], str], tasks: Tasks) -> None:
        self.reply = reply
        self._tasks = tasks

    async def summarize(self, request: SummaryRequest) -> SummaryReply:
        for _ in range(4):
            await self._tasks.pause()
        return SummaryReply(text=self.reply(request))
