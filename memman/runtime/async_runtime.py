"""`AsyncRuntime`: locks, tasks and threads of one event loop at a time, for `AsyncMemoryManager`."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from memman.errors import WrongEventLoop
from memman.runtime.base import (
    WAS_CANCELLED,
    AbandonedCalls,
    Call,
    Method,
    Pricing,
    SummarizerCancelled,
    SummarizerTimeout,
    await_receiver,
    awaited,
)
from memman.runtime.forks import renew_in_child
from memman.runtime.observation import Observer

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger("memman")
P = ParamSpec("P")
T = TypeVar("T")
_CANCEL_SECONDS = 1.0  # for a cancelled background task to finish its write
_OTHER_LOOP = (
    "this AsyncMemoryManager belongs to another event loop, which is still open: make one manager for "
    "each loop, or use MemoryManager, which any number of threads and loops may use"
)
_NO_LOOP = (
    "AsyncMemoryManager needs a running event loop of asyncio (or uvloop): under trio, and without a "
    "loop, use MemoryManager, for example by trio.to_thread.run_sync"
)


class AsyncLock:
    """An asyncio lock of its runtime's event loop; a second loop, after the first closed, gets another."""

    __slots__ = ("_lock", "_loop", "_runtime", "_waiting")

    def __init__(self, runtime: AsyncRuntime) -> None:
        self._runtime = runtime
        self._lock: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = 0

    def _of_loop(self) -> asyncio.Lock:
        """Return the lock of the running event loop."""
        loop = self._runtime.loop()
        if self._lock is None or self._loop is not loop:
            import asyncio

            self._loop, self._lock, self._waiting = loop, asyncio.Lock(), 0
        return self._lock

    async def __aenter__(self) -> None:
        lock = self._of_loop()
        self._waiting += 1
        try:
            await lock.acquire()
        finally:
            # Otherwise its loop was closed, and no task of the new one waits for it.
            if self._lock is lock:
                self._waiting -= 1

    async def __aexit__(self, *exc: object) -> None:
        self.release()

    async def try_enter(self) -> bool:
        lock = self._of_loop()
        # A lock that was released for a waiting task is free until that task runs.
        if lock.locked() or self._waiting:
            return False
        await lock.acquire()
        return True

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def is_free(self) -> bool:
        return not self._waiting and (self._lock is None or not self._lock.locked())


class LoopFlag:
    """A flag of the running event loop, which any thread may set."""

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the task that waits."""
        with suppress(RuntimeError):  # its loop was closed
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        """Return whether it was set within so many seconds, and clear it."""
        import asyncio

        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class AsyncRuntime:
    """One event loop at a time, for `AsyncMemoryManager`; blocking ports run on worker threads."""

    async_ports = True
    observer: Observer | None = None
    await_receiver = staticmethod(await_receiver)

    def __init__(self) -> None:
        import asyncio

        self._running_loop = asyncio.get_running_loop
        self.closing = False
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin without an event loop, tasks and threads."""
        self._binding = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._shielded: set[asyncio.Task[Any]] = set()
        self._summarizer_calls = AbandonedCalls()

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running event loop. Raises `WrongEventLoop` while the manager belongs to another."""
        try:
            loop = self._running_loop()
        except RuntimeError:
            raise WrongEventLoop(_NO_LOOP) from None
        if loop is not self._loop:
            with self._binding:
                if self._loop not in (None, loop) and not self._loop.is_closed():
                    raise WrongEventLoop(_OTHER_LOOP)
                self._loop = loop
                self._tasks.clear()  # they ended with their loop
                self._shielded.clear()
        return loop

    def enter(self) -> None:
        self.loop()

    def observe(self, observer: Observer | None) -> None:
        self.observer = observer

    def lock(self) -> AsyncLock:
        return AsyncLock(self)

    async def call(self, port: object, method: Method[P, T], *args: P.args, **kw: P.kwargs) -> T:
        self.enter()
        if getattr(port, "blocking", False) and not inspect.iscoroutinefunction(method):
            import asyncio

            return await awaited(await asyncio.to_thread(method, *args, **kw))
        return await awaited(method(*args, **kw))

    async def complete(self, work: Coroutine[Any, Any, T]) -> T:
        import asyncio

        task = asyncio.ensure_future(work)
        cancelled: BaseException | None = None
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                if task.cancelled():
                    raise
                cancelled = error
            except BaseException:  # noqa: BLE001 - raised below, from the task itself
                break
        if cancelled is not None:
            if not task.cancelled() and task.exception() is not None:
                logger.warning(
                    "a write failed while its caller was cancelled", exc_info=task.exception()
                )
            raise cancelled
        return task.result()

    async def shield(self, work: Coroutine[Any, Any, None]) -> None:
        import asyncio

        task = asyncio.ensure_future(work)
        self._shielded.add(task)
        task.add_done_callback(self._shielded.discard)
        await asyncio.shield(task)

    async def call_summarizer(self, call: Call[T], timeout: float | None, is_async: bool) -> T:
        """Await an async summarizer; call a sync one on a thread, so that the loop is not blocked."""
        import asyncio

        async def answered() -> T:
            return await awaited(call() if is_async else await self._on_thread(call))

        task = asyncio.ensure_future(answered())
        # Its exception is retrieved, so that asyncio does not complain about an abandoned task.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            task.cancel()
            raise SummarizerTimeout(f"the summarizer took longer than {timeout:g} s")
        if task.cancelled():
            raise SummarizerCancelled(WAS_CANCELLED)
        return task.result()

    async def _on_thread(self, call: Callable[[], T]) -> T:
        import asyncio

        result = self._summarizer_calls.start(call)
        try:
            return await asyncio.wrap_future(result)
        except asyncio.CancelledError:
            self._summarizer_calls.add(result)
            raise

    async def price(self, counter: Pricing[T], rendered: Mapping[str, Any]) -> T:
        if not counter.is_ready:
            import asyncio

            await asyncio.to_thread(counter.make_ready)
        return await counter.aprice(rendered)

    def flag(self) -> LoopFlag:
        self.enter()
        return LoopFlag()

    async def wait(self, flag: LoopFlag, seconds: float) -> bool:
        return await flag.wait(seconds)

    def start_background(self, work: Callable[[], Coroutine[Any, Any, object]]) -> bool:
        if self.closing:
            return False
        task = self.loop().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def finish_background(self, timeout: float) -> bool:
        import asyncio

        loop = self.loop()
        deadline = loop.time() + timeout
        while tasks := (self._tasks | self._shielded) - {asyncio.current_task()}:
            if (left := deadline - loop.time()) <= 0:
                return False
            await asyncio.wait(tasks, timeout=left)
        return True

    async def stop_background(self, timeout: float) -> None:
        """Wait for background tasks, and cancel those that run longer; shielded work is not cancelled."""
        import asyncio

        self.enter()
        self.closing = True
        if not await self.finish_background(timeout):
            late = self._tasks - {asyncio.current_task()}
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_CANCEL_SECONDS)

    def end(self) -> None:
        pass
