"""The protocols of a runtime, its errors, and the kinds of ports."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from memman.errors import AsyncPortRefused, InvalidInput, MemmanError
from memman.runtime.observation import Observer
from memman.runtime.threads import start_in_thread

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Receiver: TypeAlias = Callable[..., object]
Method: TypeAlias = Callable[P, T | Awaitable[T]]
"""A method of a port, which may be async."""
Call: TypeAlias = Callable[[], T | Awaitable[T]]
"""A call of one, with its arguments."""
_MOST_ABANDONED: Final = 2
_STILL_HANG = f"{_MOST_ABANDONED} earlier calls of the summarizer still hang; not calling again"
USE_ASYNC: Final = "use MemoryManager(async_ports=True), memory.aio or AsyncMemoryManager"
WAS_CANCELLED = "the summarizer's call was cancelled from within"


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

    async_ports: bool  # whether ports may be async
    closing: bool  # whether no background work may start
    observer: Observer | None

    def enter(self) -> None:
        """Raise `WrongEventLoop` if the manager cannot be used here."""

    def observe(self, observer: Observer | None) -> None:
        """Set the observer of operations."""

    def lock(self) -> Lock:
        """Return a new lock."""

    async def call(self, port: object, method: Method[P, T], *args: P.args, **kw: P.kwargs) -> T:
        """Return the result of a method of a port; a blocking one does not block the event loop."""

    def complete(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Run `work` to its end even if this task is cancelled, and raise the cancellation then."""

    def shield(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Await `work`, which continues if this task is cancelled; the cancellation is raised at once."""

    async def call_summarizer(self, call: Call[T], timeout: float | None, is_async: bool) -> T:
        """Call the summarizer. Raises `SummarizerTimeout`, `SummarizerBusy` or `SummarizerCancelled`."""

    async def price(self, counter: Pricing[T], rendered: Mapping[str, Any]) -> T:
        """Return a remote counter's result; its deadline begins after the import of its SDK."""

    async def await_receiver(self, receiver: Receiver, answer: Awaitable[object]) -> None:
        """Await the awaitable that a receiver returned."""

    def start_background(self, work: Callable[[], Coroutine[Any, Any, object]]) -> bool:
        """Start background work; return False if the manager is closing or no thread can start."""

    async def finish_background(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for background work, and return whether it is done."""

    async def stop_background(self, timeout: float) -> None:
        """Refuse new background work, and wait at most `timeout` seconds for what runs."""

    def flag(self) -> Flag:
        """Return a new flag."""

    async def wait(self, flag: Any, seconds: float) -> bool:
        """Return whether the flag was set within so many seconds, and clear it."""

    def end(self) -> None:
        """Free what async ports needed, after the store was closed."""


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
        f"a store, counter, summarizer or receiver suspended in MemoryManager: {USE_ASYNC}"
    )


def close_awaitable(answer: object) -> None:
    """Close a coroutine that will not be awaited, so that Python does not warn about it."""
    close = getattr(answer, "close", None)
    if callable(close):
        close()


async def skip(receiver: Receiver, answer: Awaitable[object]) -> None:
    """Log that an async receiver cannot be awaited here."""
    close_awaitable(answer)
    logging.getLogger("memman.events").warning(
        "receiver %r is async and was skipped: await areplay in place of replay", receiver
    )


async def await_receiver(receiver: Receiver, answer: Awaitable[object]) -> None:
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
        if (runtime is None or not runtime.async_ports) and is_async_callable(method):
            fix = f"pass a sync {what}" if runtime is None else f"{USE_ASYNC}, or a sync {what}"
            raise AsyncPortRefused(f"{type(port).__name__}.{name} is async: {fix}")


class AbandonedCalls:
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
