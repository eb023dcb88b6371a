"""`SyncRuntime`: thread locks, plain calls and daemon threads, for `MemoryManager`."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import wait
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from memman.errors import AsyncPortRefused, WrongEventLoop
from memman.runtime.base import (
    USE_ASYNC,
    WAS_CANCELLED,
    AbandonedCalls,
    Call,
    Method,
    Pricing,
    Receiver,
    SummarizerCancelled,
    SummarizerTimeout,
    close_awaitable,
    drive,
    is_cancellation,
)
from memman.runtime.forks import renew_in_child
from memman.runtime.observation import Observer
from memman.runtime.port_loop import PortLoop, calling_loop, wait_on

logger = logging.getLogger("memman")
P = ParamSpec("P")
T = TypeVar("T")
_ON_PORT_LOOP = (
    "an async summarizer, store or receiver called a method of MemoryManager, which would block the event "
    "loop that it runs on: await the method of memory.aio"
)


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


class SyncRuntime:
    """Threads and plain calls, for `MemoryManager`; async ports run on a `PortLoop` if they are allowed."""

    observer: Observer | None = None

    def __init__(self, async_ports: bool = False) -> None:
        self.async_ports = async_ports
        self._port_loop = PortLoop()
        self.closing = False
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin without threads and with a free lock."""
        self._lock = threading.Lock()
        self._summarizer_calls = AbandonedCalls()
        self._started: list[threading.Thread] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a manager's coroutine to its end; if it is interrupted, release the locks it holds."""
        if self._port_loop.is_here():
            work.close()
            raise WrongEventLoop(_ON_PORT_LOOP)
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

    def allow_async_ports(self) -> None:
        """Accept async ports from now on."""
        self.async_ports = True

    def observe(self, observer: Observer | None) -> None:
        self.observer = observer

    def lock(self) -> SyncLock:
        return SyncLock()

    async def call(self, port: object, method: Method[P, T], *args: P.args, **kw: P.kwargs) -> T:
        answer = method(*args, **kw)
        if isinstance(answer, Awaitable):
            name = f"{type(port).__name__}.{getattr(method, '__name__', '')}"
            answer = self._awaited(answer, name)
        return answer

    def _awaited(self, answer: Awaitable[T], name: str, timeout: float | None = None) -> T:
        """Return the result of an async port. Raises `AsyncPortRefused` if none is allowed."""
        if self.async_ports:
            return self._port_loop.wait(answer, timeout)
        close_awaitable(answer)
        raise AsyncPortRefused(f"{name} returned an awaitable: {USE_ASYNC}")

    def complete(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        return work

    def shield(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        return work

    async def call_summarizer(self, call: Call[T], timeout: float | None, is_async: bool) -> T:
        """Call inline without a timeout, else on a daemon thread that is left behind at the deadline.

        An async summarizer is awaited on the port loop, and cancelled at the deadline.
        """
        try:
            answer = call() if timeout is None or is_async else self._on_thread(call, timeout)
            if isinstance(answer, Awaitable):
                answer = self._awaited(answer, "the summarizer", timeout)
        except BaseException as error:
            if is_cancellation(error):  # of the summarizer's own: a thread cannot be cancelled
                raise SummarizerCancelled(WAS_CANCELLED) from error
            raise
        return answer

    def _on_thread(self, call: Callable[[], T], timeout: float) -> T:
        result = self._summarizer_calls.start(call)
        try:
            done = wait([result], timeout).done
        finally:
            if not result.done():  # late, or this thread was interrupted
                self._summarizer_calls.add(result)
        if not done:
            raise SummarizerTimeout(f"the summarizer took longer than {timeout:g} s")
        return result.result()

    async def price(self, counter: Pricing[T], rendered: Mapping[str, Any]) -> T:
        counter.make_ready()
        return counter.price(rendered)

    async def await_receiver(self, receiver: Receiver, answer: Awaitable[object]) -> None:
        loop = calling_loop.get()
        if loop is not None and loop.is_running():
            wait_on(loop, answer)
        else:
            self._port_loop.wait(answer)

    def flag(self) -> threading.Event:
        return threading.Event()

    async def wait(self, flag: threading.Event, seconds: float) -> bool:
        was_set = flag.wait(seconds)
        flag.clear()
        return was_set

    def start_background(self, work: Callable[[], Coroutine[Any, Any, object]]) -> bool:
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=lambda: context.run(lambda: self.run(work())),
            name="memman-background",
            daemon=True,
        )
        with self._lock:
            if self.closing:
                return False
            try:
                thread.start()
            except RuntimeError:
                logger.exception("no thread for work in the background")
                return False
            self._started = [*filter(threading.Thread.is_alive, self._started), thread]
        return True

    async def finish_background(self, timeout: float) -> bool:
        deadline, own = time.monotonic() + timeout, threading.current_thread()
        while running := [one for one in self._started if one is not own and one.is_alive()]:
            if (left := deadline - time.monotonic()) <= 0:
                return False
            running[0].join(left)
        return True

    async def stop_background(self, timeout: float) -> None:
        with self._lock:
            self.closing = True
        await self.finish_background(timeout)

    def end(self) -> None:
        self._port_loop.end()
