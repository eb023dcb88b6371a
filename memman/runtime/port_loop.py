"""`PortLoop`: the event loop on which a sync manager awaits its async ports."""

from __future__ import annotations

import threading
from collections.abc import Awaitable
from concurrent.futures import Future, wait
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from memman.errors import StoreError, WrongEventLoop
from memman.runtime.base import SummarizerTimeout, close_awaitable
from memman.runtime.forks import renew_in_child

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
_END_SECONDS = 1.0  # for coroutines that are cancelled at the end
_LOOK_SECONDS = 0.5  # between two looks at whether a loop still runs
calling_loop: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("loop", default=None)
"""The loop of the task that awaits `memory.aio`, for the thread that works for it."""
_inherited: list[asyncio.AbstractEventLoop] = []  # closing them would disturb the parent's selector


class _Started(NamedTuple):
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    stopped: asyncio.Event


class PortLoop:
    """An event loop on a daemon thread of its own, which its first use starts."""

    def __init__(self) -> None:
        self._ended = False
        self._begin()
        renew_in_child(self._in_child)

    def _begin(self) -> None:
        self._using = threading.RLock()  # a signal handler may call the manager
        self._started: _Started | None = None

    def _in_child(self) -> None:
        """Begin without a thread."""
        if self._started is not None:
            _inherited.append(self._started.loop)
        self._begin()

    def __del__(self) -> None:
        # A manager that is dropped without a close ends its thread too. A copy that failed has no state.
        if vars(self):
            self._stop()

    def wait(self, answer: Awaitable[T], timeout: float | None = None) -> T:
        """Await `answer` on the loop, in the context of the caller, and return its result.

        It is cancelled at the deadline, and if the caller is interrupted. Raises `SummarizerTimeout`.
        """
        import asyncio

        with self._using:  # what is started here precedes the end
            try:
                loop = self._loop()
            except BaseException:
                close_awaitable(answer)
                raise
            call = asyncio.run_coroutine_threadsafe(_outcome(answer), loop)
        try:
            if not wait([call], timeout).done:
                raise SummarizerTimeout(f"the summarizer took longer than {timeout:g} s")
        finally:
            call.cancel()  # unless it is done
        return call.result().result()

    def is_here(self) -> bool:
        """Return whether the current thread is that of the loop."""
        started = self._started
        return started is not None and started.thread is threading.current_thread()

    def end(self) -> None:
        """Cancel what runs on the loop, and end its thread."""
        thread = self._stop()
        if thread not in (None, threading.current_thread()):
            thread.join(_END_SECONDS)

    def _stop(self) -> threading.Thread | None:
        """Let the thread end, if there is one, and return it."""
        with self._using:
            self._ended, started, self._started = True, self._started, None
            if started is None:
                return None
            started.loop.call_soon_threadsafe(started.stopped.set)
            return started.thread

    def _loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, which runs."""
        import asyncio

        if self._ended:
            raise StoreError("this manager was closed, and calls no async port any more")
        if self._started is None:
            loop, stopped = asyncio.new_event_loop(), asyncio.Event()
            thread = threading.Thread(
                target=_serve, args=(loop, stopped), name="memman-ports", daemon=True
            )
            thread.start()
            self._started = _Started(loop, thread, stopped)
        return self._started.loop


def _serve(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    """Run the loop until it is stopped; cancel what still runs on it then."""
    import asyncio

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(stopped.wait())


def wait_on(loop: asyncio.AbstractEventLoop, answer: Awaitable[T]) -> T:
    """Await `answer` on the loop of another thread. Raises `WrongEventLoop` if that stops before."""
    import asyncio

    async def on_its_own() -> Future[T]:
        calling_loop.set(None)  # a plain call in there would wait for the thread that it blocks
        return await _outcome(answer)

    call = asyncio.run_coroutine_threadsafe(on_its_own(), loop)
    while not wait([call], _LOOK_SECONDS).done:
        if not loop.is_running():
            call.cancel()
            raise WrongEventLoop("the event loop stopped before a receiver was done")
    return call.result().result()


async def _outcome(answer: Awaitable[T]) -> Future[T]:
    """Return the result or the error of `answer`: a `SystemExit` in a task would end the loop."""
    outcome: Future[T] = Future()
    try:
        outcome.set_result(await answer)
    except BaseException as error:  # noqa: BLE001 - raised by `wait`, in the thread that waits
        outcome.set_exception(error)
    return outcome
