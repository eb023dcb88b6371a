"""Runtimes: locks, calls of ports, timeouts and background work, with threads or with asyncio.

Every method of a manager is one coroutine over a `Runtime`. `AsyncMemoryManager` awaits it; `MemoryManager`
runs it with `SyncRuntime.run`, which needs no event loop, since no coroutine suspends over sync ports.
"""

from __future__ import annotations

import contextvars
import inspect
import logging
import sys
import threading
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

from memman.errors import AsyncPortRefused, InvalidInput, MemmanError, WrongEventLoop
from memman.forks import renew_in_child
from memman.threads import start_in_thread

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger("memman")
P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_MOST_ABANDONED: Final = 2
_CANCEL_SECONDS = 1.0  # for a cancelled background task to finish its write
_STILL_HANG = f"{_MOST_ABANDONED} earlier calls of the summarizer still hang; not calling again"
_WAS_CANCELLED = "the summarizer's call was cancelled from within"
_OTHER_LOOP = (
    "this AsyncMemoryManager belongs to another event loop, which is still open: make one manager for "
    "each loop, or use MemoryManager, which any number of threads and loops may use"
)
_NO_LOOP = (
    "AsyncMemoryManager needs a running event loop of asyncio (or uvloop): under trio, and without a "
    "loop, use MemoryManager, for example by trio.to_thread.run_sync"
)


class SummarizerTimeout(MemmanError):
    """The summarizer took longer than `summarize_timeout`."""


class SummarizerBusy(MemmanError):
    """The summarizer was not called, because earlier calls of it still hang."""


class SummarizerCancelled(MemmanError):
    """The summarizer's own call was cancelled, and not by its caller."""


class Lock(Protocol):
    """A lock for `async with`."""

    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *exc: object) -> None: ...
    async def try_enter(self) -> bool:
        """Acquire the lock and return True, or return False if anyone holds or awaits it."""

    def release(self) -> None: ...
    def is_free(self) -> bool: ...
    def heal(self) -> None: ...


class Pricing(Protocol[T_co]):
    """A remote counter of requests, which imports its SDK when it is made ready."""

    @property
    def is_ready(self) -> bool: ...
    def make_ready(self) -> None: ...
    def price(self, rendered: Mapping[str, Any]) -> T_co: ...
    def aprice(self, rendered: Mapping[str, Any]) -> Awaitable[T_co]: ...


class Flag(Protocol):
    """A flag that `Runtime.wait` waits for."""

    def set(self) -> None: ...


class Runtime(Protocol):
    """The environment of a session: locks, calls of ports, and background work."""

    is_async: bool

    def enter(self) -> None:
        """Raise `WrongEventLoop` if the manager cannot be used here."""

    def lock(self) -> Lock:
        """Return a new lock."""

    async def call(
        self, port: object, method: Callable[P, T | Awaitable[T]], *args: P.args, **kw: P.kwargs
    ) -> T:
        """Return the result of a method of a port; a blocking one does not block the event loop."""

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end even if this task is cancelled, and raise the cancellation then."""

    async def apart(self, work: Coroutine[Any, Any, None]) -> None:
        """Await `work`, which continues if this task is cancelled; the cancellation is raised at once."""

    async def ask(
        self, call: Callable[[], T | Awaitable[T]], timeout: float | None, is_async: bool
    ) -> T:
        """Call the summarizer. Raises `SummarizerTimeout`, `SummarizerBusy` or `SummarizerCancelled`."""

    async def price(self, counter: Pricing[T], rendered: Mapping[str, Any]) -> T:
        """Return a remote counter's result; its deadline begins after the import of its SDK."""

    async def settle(self, receiver: Callable[..., object], answer: Awaitable[object]) -> None:
        """Await the awaitable that a receiver returned, or skip it."""

    def start(self, work: Callable[[], Coroutine[Any, Any, object]]) -> bool:
        """Start background work; return False if the manager is closing or no thread can start."""

    async def finish(self, timeout: float) -> None:
        """Refuse new background work, and wait at most `timeout` seconds for what runs."""

    def flag(self) -> Flag:
        """Return a new flag."""

    async def wait(self, flag: Any, seconds: float) -> bool:
        """Return whether the flag was set within so many seconds, and clear it."""


def is_async_callable(port: object) -> bool:
    """Return whether calling it gives an awaitable, as far as can be seen without a call."""
    return inspect.iscoroutinefunction(port) or inspect.iscoroutinefunction(
        getattr(port, "__call__", None)  # noqa: B004 - the kind of callable, not whether it is one
    )


async def awaited(answer: T | Awaitable[T]) -> T:
    """Return the value, awaiting it first if it is awaitable."""
    return await answer if isinstance(answer, Awaitable) else answer


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends to its end, without an event loop.

    Raises `AsyncPortRefused` if it does suspend, since a port is async then.
    """
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise AsyncPortRefused(
        "a store, counter, summarizer or receiver suspended in the sync MemoryManager: "
        "use AsyncMemoryManager for async ports"
    )


def close_awaitable(answer: object) -> None:
    """Close a coroutine that will not be awaited, so that Python does not warn about it."""
    close = getattr(answer, "close", None)
    if callable(close):
        close()


async def skip(receiver: Callable[..., object], answer: Awaitable[object]) -> None:
    """Log that an async receiver cannot be awaited here."""
    close_awaitable(answer)
    logging.getLogger("memman.events").warning(
        "receiver %r is async and was skipped: use AsyncMemoryManager, or areplay, for async receivers",
        receiver,
    )


async def await_receiver(_receiver: Callable[..., object], answer: Awaitable[object]) -> None:
    """Await the awaitable that a receiver returned."""
    await answer


def is_cancellation(error: BaseException) -> bool:
    """Return whether this is asyncio's `CancelledError`, without importing asyncio."""
    module = sys.modules.get("asyncio")
    return module is not None and isinstance(error, module.CancelledError)


def refuse_async_port(
    port: object, methods: Sequence[str], runtime: Runtime | None, what: str
) -> None:
    """Refuse a port that lacks a method, or that is async and passed to a sync runtime.

    Without a runtime the port must be sync. Raises `InvalidInput` or `AsyncPortRefused`.
    """
    for name in methods:
        method = getattr(port, name, None)
        if method is None:
            raise InvalidInput(f"{type(port).__name__} is no {what}: it has no method {name}()")
        if (runtime is None or not runtime.is_async) and is_async_callable(method):
            raise AsyncPortRefused(
                f"{type(port).__name__}.{name} is async and MemoryManager is not: "
                f"use AsyncMemoryManager, or a sync {what}"
            )


class _AbandonedCalls:
    """The calls of a summarizer that were left behind on their threads."""

    def __init__(self) -> None:
        self._hanging: set[Future[Any]] = set()

    def start(self, call: Callable[[], T]) -> Future[T]:
        """Start a call on a daemon thread. Raises `SummarizerBusy` while too many hang."""
        if len(self._hanging) >= _MOST_ABANDONED:
            raise SummarizerBusy(_STILL_HANG)
        return start_in_thread(call, "memman-summarizer")

    def add(self, result: Future[Any]) -> None:
        """Count a call as hanging until it ends."""
        self._hanging.add(result)
        result.add_done_callback(self._hanging.discard)


# ---------------------------------------------------------------- threads


class _Held(threading.local):
    """The locks that the calls of this thread hold, or are about to acquire or release."""

    def __init__(self) -> None:
        self.locks: list[SyncLock] = []


_held = _Held()


class SyncLock:
    """A thread lock that `SyncRuntime.run` releases if the call that holds it is interrupted.

    It is re-entrant, so that a signal handler may call the manager.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.RLock()

    @property
    def thread(self) -> Any:
        return self._lock

    async def __aenter__(self) -> None:
        _held.locks.append(self)
        self._lock.acquire()

    async def __aexit__(self, *exc: object) -> None:
        self.release()

    async def try_enter(self) -> bool:
        if self in _held.locks:
            return False
        _held.locks.append(self)
        if self._lock.acquire(blocking=False):
            return True
        _held.locks.remove(self)
        return False

    def release(self) -> None:
        with suppress(RuntimeError):  # an interrupted call may not have acquired it
            self._lock.release()
        if self in _held.locks:
            _held.locks.remove(self)

    def is_free(self) -> bool:
        if self in _held.locks or not self._lock.acquire(blocking=False):
            return False
        self._lock.release()
        return True

    def heal(self) -> None:
        while self in _held.locks:
            self.release()


class SyncRuntime:
    """Threads and plain calls, for `MemoryManager`."""

    is_async = False

    def __init__(self) -> None:
        self._closing = False
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin without threads and with a free lock."""
        self._lock = threading.Lock()
        self._summarizer_calls = _AbandonedCalls()
        self._started: list[threading.Thread] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a manager's coroutine to its end; if it is interrupted, release the locks it holds."""
        before = len(_held.locks)
        try:
            return drive(work)
        except BaseException:
            while len(_held.locks) > before:
                _held.locks[-1].release()
            raise

    def iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """Iterate over an async generator that never suspends."""
        try:
            while True:
                try:
                    item: T = self.run(items.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self.run(items.aclose())

    def enter(self) -> None:
        """Do nothing: any thread may use the manager."""

    def lock(self) -> SyncLock:
        return SyncLock()

    async def call(
        self, port: object, method: Callable[P, T | Awaitable[T]], *args: P.args, **kw: P.kwargs
    ) -> T:
        name = f"{type(port).__name__}.{getattr(method, '__name__', '')}"
        return _plain(method(*args, **kw), name, "ports")

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def apart(self, work: Coroutine[Any, Any, None]) -> None:
        await work

    async def ask(
        self, call: Callable[[], T | Awaitable[T]], timeout: float | None, is_async: bool
    ) -> T:
        """Call inline without a timeout, else on a daemon thread that is left behind at the deadline."""
        try:
            answer = call() if timeout is None else self._on_thread(call, timeout)
        except BaseException as error:
            if is_cancellation(error):  # of the summarizer's own: a thread cannot be cancelled
                raise SummarizerCancelled(_WAS_CANCELLED) from error
            raise
        return _plain(answer, "the summarizer", "summarizers")

    def _on_thread(self, call: Callable[[], T], timeout: float) -> T:
        result = self._summarizer_calls.start(call)
        if not wait([result], timeout).done:
            self._summarizer_calls.add(result)
            raise SummarizerTimeout(f"the summarizer took longer than {timeout:g} s")
        return result.result()

    async def price(self, counter: Pricing[T], rendered: Mapping[str, Any]) -> T:
        counter.make_ready()
        return counter.price(rendered)

    async def settle(self, receiver: Callable[..., object], answer: Awaitable[object]) -> None:
        await skip(receiver, answer)

    def flag(self) -> threading.Event:
        return threading.Event()

    async def wait(self, flag: threading.Event, seconds: float) -> bool:
        was_set = flag.wait(seconds)
        flag.clear()
        return was_set

    def start(self, work: Callable[[], Coroutine[Any, Any, object]]) -> bool:
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=lambda: context.run(lambda: self.run(work())),
            name="memman-background",
            daemon=True,
        )
        with self._lock:
            if self._closing:
                return False
            try:
                thread.start()
            except RuntimeError:
                logger.exception("no thread for work in the background")
                return False
            self._started = [*filter(threading.Thread.is_alive, self._started), thread]
        return True

    async def finish(self, timeout: float) -> None:
        with self._lock:
            self._closing = True
            started = list(self._started)
        deadline = time.monotonic() + timeout
        for thread in started:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


def _plain(answer: T | Awaitable[T], name: str, ports: str) -> T:
    """Return a result. Raises `AsyncPortRefused` if it is an awaitable."""
    if isinstance(answer, Awaitable):
        close_awaitable(answer)
        raise AsyncPortRefused(
            f"{name} returned an awaitable: use AsyncMemoryManager for async {ports}"
        )
    return answer


# ---------------------------------------------------------------- asyncio


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

    def heal(self) -> None:
        """Do nothing: a cancelled task leaves its `async with` in order."""


class AsyncRuntime:
    """One event loop at a time, for `AsyncMemoryManager`; blocking ports run on worker threads."""

    is_async = True

    def __init__(self) -> None:
        import asyncio

        self._running_loop = asyncio.get_running_loop
        self._closing = False
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin without an event loop, tasks and threads."""
        self._binding = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._apart: set[asyncio.Task[Any]] = set()
        self._summarizer_calls = _AbandonedCalls()

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running event loop. Raises `WrongEventLoop` while the manager belongs to another."""
        try:
            loop = self._running_loop()
        except RuntimeError:
            raise WrongEventLoop(_NO_LOOP) from None
        if loop is not self._loop:
            self._bind(loop)
        return loop

    def enter(self) -> None:
        self.loop()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._binding:
            if self._loop not in (None, loop) and not self._loop.is_closed():
                raise WrongEventLoop(_OTHER_LOOP)
            self._loop = loop
            self._tasks.clear()  # they ended with their loop
            self._apart.clear()

    def lock(self) -> AsyncLock:
        return AsyncLock(self)

    async def call(
        self, port: object, method: Callable[P, T | Awaitable[T]], *args: P.args, **kw: P.kwargs
    ) -> T:
        self.enter()
        if getattr(port, "blocking", False) and not inspect.iscoroutinefunction(method):
            import asyncio

            return await awaited(await asyncio.to_thread(method, *args, **kw))
        return await awaited(method(*args, **kw))

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
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

    async def apart(self, work: Coroutine[Any, Any, None]) -> None:
        import asyncio

        task = asyncio.ensure_future(work)
        self._apart.add(task)
        task.add_done_callback(self._apart.discard)
        await asyncio.shield(task)

    async def ask(
        self, call: Callable[[], T | Awaitable[T]], timeout: float | None, is_async: bool
    ) -> T:
        """Await an async summarizer; call a sync one on a thread, so that the loop is not blocked."""
        import asyncio

        async def answered() -> T:
            return await awaited(call() if is_async else await self._on_thread(call))

        task = asyncio.ensure_future(answered())
        task.add_done_callback(_retrieve_exception)
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            task.cancel()
            raise SummarizerTimeout(f"the summarizer took longer than {timeout:g} s")
        if task.cancelled():
            raise SummarizerCancelled(_WAS_CANCELLED)
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

    async def settle(self, receiver: Callable[..., object], answer: Awaitable[object]) -> None:
        await await_receiver(receiver, answer)

    def flag(self) -> asyncio.Event:
        self.enter()
        import asyncio

        return asyncio.Event()

    async def wait(self, flag: asyncio.Event, seconds: float) -> bool:
        import asyncio

        try:
            async with asyncio.timeout(seconds):
                await flag.wait()
        except TimeoutError:
            return False
        flag.clear()
        return True

    def start(self, work: Callable[[], Coroutine[Any, Any, object]]) -> bool:
        import asyncio

        if self._closing:
            return False
        task = asyncio.ensure_future(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def finish(self, timeout: float) -> None:
        """Wait for background tasks, and cancel those that run longer; shielded work is not cancelled."""
        self.enter()
        self._closing = True
        if not self._tasks and not self._apart:
            return
        import asyncio

        tasks = (self._tasks | self._apart) - {asyncio.current_task()}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout)
            late -= self._apart
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_CANCEL_SECONDS)


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve a task's exception, so that asyncio does not complain about an abandoned task."""
    if not task.cancelled():
        task.exception()
