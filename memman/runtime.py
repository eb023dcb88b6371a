"""The two doors: what differs between sync and async, and nothing else.

Every verb is one coroutine over a `Runtime`. The async door awaits; the sync door steps the coroutine with
one `send(None)`: no event loop, no second copy of the code. An add and a context, which nearly always
wait for nothing, are plain functions that both doors call and that give a coroutine only where there is
something to be awaited. A port that suspends in the sync door is a mistake that is refused when the port
is handed over; stepping is only the second net.
"""

from __future__ import annotations

import contextvars
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar

from memman.errors import AsyncPortRefused, InvalidInput, MemmanError, WrongEventLoop
from memman.events import is_cancellation, skip
from memman.forks import renew_in_child

logger = logging.getLogger("memman")
P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_MOST_ABANDONED = 2
_TO_CANCEL = 1.0  # seconds that a cancelled task has for the write that it is at
_STILL_HANG = f"{_MOST_ABANDONED} earlier calls of the summarizer still hang; not calling again"


class SummarizerTimeout(MemmanError):
    """The summarizer took longer than `summarize_timeout`."""


class SummarizerBusy(MemmanError):
    """The summarizer was not called: earlier calls of it still hang."""


class SummarizerCancelled(MemmanError):
    """The summarizer's own call was cancelled, and not by who waited for it."""


class Lock(Protocol):
    """A lock that is entered with `async with`, and may be tried."""

    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *exc: object) -> None: ...
    async def try_enter(self) -> bool: ...
    def is_free(self) -> bool: ...
    def heal(self) -> None: ...


class Pricing(Protocol[T_co]):
    """A remote counter of requests, which imports its SDK when it is made ready."""

    @property
    def is_ready(self) -> bool: ...
    def make_ready(self) -> None: ...
    def price(self, rendered: Mapping[str, Any]) -> T_co: ...
    def aprice(self, rendered: Mapping[str, Any]) -> Awaitable[T_co]: ...


class Runtime(Protocol):
    """What a session needs of the world it runs in."""

    is_async: bool

    def enter(self) -> None: ...
    def lock(self) -> Lock: ...
    async def call(
        self, port: object, method: Callable[P, T | Awaitable[T]], *args: P.args, **kw: P.kwargs
    ) -> T: ...
    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T: ...
    async def apart(self, work: Coroutine[Any, Any, None]) -> None: ...
    async def ask(
        self, call: Callable[[], T | Awaitable[T]], timeout: float | None, is_async: bool
    ) -> T: ...
    async def price(self, counter: Pricing[T], rendered: Mapping[str, Any]) -> T: ...
    async def settle(self, receiver: Callable[..., Any], answer: Awaitable[Any]) -> None: ...
    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> bool: ...
    async def finish(self, timeout: float) -> None: ...
    def flag(self) -> Any: ...
    async def wait(self, flag: Any, seconds: float) -> bool: ...


def is_async_callable(port: Any) -> bool:
    """Whether calling it gives an awaitable, as far as can be seen without calling."""
    return inspect.iscoroutinefunction(port) or inspect.iscoroutinefunction(
        getattr(port, "__call__", None)  # noqa: B004 - asks what kind it is, not whether it is there
    )


_WAS_CANCELLED = "the summarizer's call was cancelled from within"


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Runs a verb's coroutine in the sync door: one step, to its end."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    return suspended(work)


async def awaited(answer: T | Awaitable[T]) -> T:
    """Return the value, awaiting it first if it is awaitable."""
    return await answer if isinstance(answer, Awaitable) else answer


def suspended(work: Coroutine[Any, Any, Any]) -> NoReturn:
    """Ends a coroutine that waits for something that the sync door cannot give it."""
    work.close()
    raise AsyncPortRefused(
        "a store, counter, summarizer or receiver suspended in the sync MemoryManager: "
        "use AsyncMemoryManager for async ports"
    )


class _Ready:
    """Awaitable that is done at once, without a Python frame in which a signal could strike."""

    __slots__ = ()
    __await__ = staticmethod(iter(()).__iter__)


_READY = _Ready()


class SyncLock:
    """A thread lock. After an interruption the thread that still holds it lets go of it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        # Re-entrant only because a re-entrant lock knows its owner, which healing needs.
        self._lock: Any = threading.RLock()

    @property
    def thread(self) -> Any:
        """The thread lock itself, for a section in which nothing is awaited."""
        return self._lock

    def __aenter__(self) -> Any:
        lock = self._lock
        if lock._is_owned():
            self.heal()
        try:
            lock.acquire()
        except BaseException:
            self.heal()
            raise
        return _READY

    def __aexit__(self, *exc: object) -> Any:
        if self._lock._is_owned():
            self._lock.release()
        return _READY

    async def try_enter(self) -> bool:
        if self._lock._is_owned():
            return False
        return bool(self._lock.acquire(blocking=False))

    def is_free(self) -> bool:
        if self._lock._is_owned() or not self._lock.acquire(blocking=False):
            return False
        self._lock.release()
        return True

    def heal(self) -> None:
        while self._lock._is_owned():
            self._lock.release()


class _Worker:
    """A daemon thread that makes one call after another; it ends when nobody keeps it."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._done: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._thread = threading.Thread(
            target=_work, args=(self._calls, self._done), name="memman-summarizer", daemon=True
        )
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether its thread is there: one that was left ends after its call, and a fork has none."""
        return self._thread.is_alive()

    def run(self, call: Callable[[], T], timeout: float) -> Callable[[], T] | None:
        """What gives the call's answer or raises its error; None where none came in time."""
        self._calls.put(call)
        try:
            return self._done.get(timeout=timeout)
        except Empty:
            return None

    def leave(self) -> None:
        """Lets the thread end after the call that it is at."""
        self._calls.put(None)

    __del__ = leave


def _living(workers: list[_Worker]) -> list[_Worker]:
    return [worker for worker in workers if worker.is_alive]


def _work(
    calls: SimpleQueue[Callable[[], Any] | None], done: SimpleQueue[Callable[[], Any]]
) -> None:
    """The life of a worker's thread."""
    while (call := calls.get()) is not None:
        try:
            answer = call()
        except BaseException as error:  # noqa: BLE001 - handed to the waiting thread
            done.put(partial(_raise, error))
        else:
            done.put(partial(_identity, answer))
        call = answer = None


def _identity(answer: T) -> T:
    return answer


def _raise(error: BaseException) -> NoReturn:
    raise error


class SyncRuntime:
    """Threads and plain calls."""

    is_async = False

    def __init__(self) -> None:
        self._closing = False
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin without threads and with a free lock."""
        self._lock = threading.Lock()  # for the lists
        self._idle: list[_Worker] = []
        self._abandoned: list[_Worker] = []
        self._started: list[threading.Thread] = []

    def enter(self) -> None:
        """Do nothing: any thread may use the manager."""

    def lock(self) -> SyncLock:
        return SyncLock()

    async def call(
        self, port: object, method: Callable[P, T | Awaitable[T]], *args: P.args, **kw: P.kwargs
    ) -> T:
        answer = method(*args, **kw)
        if isinstance(answer, Awaitable):
            close_awaitable(answer)
            raise AsyncPortRefused(
                f"{type(port).__name__}.{method.__name__} returned an awaitable: "
                "use AsyncMemoryManager for async ports"
            )
        return answer

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def apart(self, work: Coroutine[Any, Any, None]) -> None:
        await work

    async def ask(
        self, call: Callable[[], T | Awaitable[T]], timeout: float | None, is_async: bool
    ) -> T:
        """Calls inline without a time-out, else on a daemon thread that is left behind at the deadline."""
        try:
            answer = call() if timeout is None else self._on_thread(call, timeout)
        except BaseException as error:
            if is_cancellation(error):  # nobody can cancel a thread
                raise SummarizerCancelled(_WAS_CANCELLED) from error
            raise
        if isinstance(answer, Awaitable):
            close_awaitable(answer)
            raise AsyncPortRefused(
                "the summarizer returned an awaitable; use AsyncMemoryManager for async summarizers"
            )
        return answer

    def _on_thread(self, call: Callable[[], T], timeout: float) -> T:
        """The answer of a call made on a daemon thread, which is left behind at the deadline."""
        worker = self._worker()
        context = contextvars.copy_context()
        answer = worker.run(lambda: context.run(call), timeout)
        if answer is None:
            worker.leave()
            with self._lock:
                self._abandoned.append(worker)
            raise SummarizerTimeout(f"the summarizer took longer than {timeout:g} s")
        with self._lock:
            self._idle.append(worker)
        return answer()

    def _worker(self) -> _Worker:
        """One that has nothing to do. Raises `SummarizerBusy` while two calls hang."""
        with self._lock:
            self._abandoned, self._idle = _living(self._abandoned), _living(self._idle)
            if len(self._abandoned) >= _MOST_ABANDONED:
                raise SummarizerBusy(_STILL_HANG)
            return self._idle.pop() if self._idle else _Worker()

    async def price(self, counter: Pricing[T], rendered: Mapping[str, Any]) -> T:
        """Return what a remote meter says of a request; its deadline begins after its SDK's import."""
        counter.make_ready()
        return counter.price(rendered)

    async def settle(self, receiver: Callable[..., Any], answer: Awaitable[Any]) -> None:
        await skip(receiver, answer)

    def flag(self) -> threading.Event:
        """What `wait` waits for; any thread may set it."""
        return threading.Event()

    async def wait(self, flag: threading.Event, seconds: float) -> bool:
        """Whether the flag was set within so many seconds; it is taken down."""
        was_set = flag.wait(seconds)
        flag.clear()
        return was_set

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
        """Begins work on a daemon thread; False where no more may begin, or no thread is to be had."""
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=lambda: context.run(lambda: drive(work())), name="memman-background", daemon=True
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
        """Begins nothing any more, and waits for what was begun, at most `timeout` seconds."""
        with self._lock:
            self._closing = True
            started = list(self._started)
        deadline = time.monotonic() + timeout
        for thread in started:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


_OTHER_LOOP = (
    "this AsyncMemoryManager belongs to another event loop, which is still open: make one manager for "
    "each loop, or use MemoryManager, which any number of threads and loops may use"
)
_NO_LOOP = (
    "AsyncMemoryManager needs a running event loop of asyncio (or uvloop): under trio, and without a "
    "loop, use MemoryManager, for example by trio.to_thread.run_sync"
)


class AsyncLock:
    """An asyncio lock of the door's event loop; another loop, after the first was closed, gets another."""

    __slots__ = ("_door", "_lock", "_loop", "_waiting")

    def __init__(self, runtime: AsyncRuntime) -> None:
        self._door = runtime
        self._lock: Any = None
        self._loop: Any = None
        self._waiting: set[object] = set()

    def _real(self) -> Any:
        loop = self._door.loop()
        if self._loop is not loop:
            import asyncio

            self._loop, self._lock, self._waiting = loop, asyncio.Lock(), set()
        return self._lock

    async def __aenter__(self) -> None:
        lock, row, place = self._real(), self._waiting, object()
        row.add(place)
        try:
            await lock.acquire()
        finally:
            row.discard(place)

    async def __aexit__(self, *exc: object) -> None:
        self._lock.release()

    async def try_enter(self) -> bool:
        lock = self._real()
        # Between its release and the next in the row the lock is free, and would be waited for.
        if lock.locked() or self._waiting:
            return False
        await lock.acquire()
        return True

    def is_free(self) -> bool:
        return not self._waiting and (self._lock is None or not self._lock.locked())

    def heal(self) -> None:
        """Nothing: a cancelled task leaves its `async with` in order."""


class AsyncRuntime:
    """One event loop at a time; blocking ports go to its worker threads."""

    is_async = True

    def __init__(self) -> None:
        import asyncio

        self._running = asyncio.get_running_loop
        self._closing = False
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin without an event loop, tasks and threads."""
        self._binding = threading.Lock()
        self._loop: Any = None
        self._tasks: set[Any] = set()
        self._apart: set[Any] = set()
        self._abandoned: list[threading.Thread] = []

    def loop(self) -> Any:
        """Return the running event loop. Raises `WrongEventLoop` while the manager belongs to another."""
        try:
            loop = self._running()
        except RuntimeError:
            raise WrongEventLoop(_NO_LOOP) from None
        if loop is not self._loop:
            self._bind(loop)
        return loop

    enter = loop

    def _bind(self, loop: Any) -> None:
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
        """Runs to its end even when this task is cancelled, and raises the cancellation after."""
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
        """Waits for work that goes on where this task is cancelled, which is raised at once."""
        import asyncio

        task = asyncio.ensure_future(work)
        self._apart.add(task)
        task.add_done_callback(self._apart.discard)
        await asyncio.shield(task)

    async def ask(
        self, call: Callable[[], T | Awaitable[T]], timeout: float | None, is_async: bool
    ) -> T:
        """Awaits an async summarizer; a sync one runs on a worker thread so that the loop goes on."""
        import asyncio

        async def answered() -> T:
            return await awaited(call() if is_async else await self._on_thread(call))

        task = asyncio.ensure_future(answered())
        task.add_done_callback(_looked_at)
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
        """A blocking call on a daemon thread of its own: a hung one must not use up the loop's workers."""
        import asyncio

        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        if len(self._abandoned) >= _MOST_ABANDONED:
            raise SummarizerBusy(_STILL_HANG)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Callable[[], T]] = loop.create_future()
        context = contextvars.copy_context()

        def settle(outcome: Callable[[], T]) -> None:
            if not future.done():
                future.set_result(outcome)

        def run() -> None:
            try:
                outcome: Callable[[], T] = partial(_identity, context.run(call))
            except BaseException as error:  # noqa: BLE001 - handed to the waiting task
                outcome = partial(_raise, error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, outcome)

        thread = threading.Thread(target=run, name="memman-summarizer", daemon=True)
        thread.start()
        try:
            return (await future)()
        except asyncio.CancelledError:
            self._abandoned.append(thread)
            raise

    async def price(self, counter: Pricing[T], rendered: Mapping[str, Any]) -> T:
        """Return what a remote meter says of a request; its deadline begins after its SDK's import."""
        if not counter.is_ready:
            import asyncio

            await asyncio.to_thread(counter.make_ready)
        return await counter.aprice(rendered)

    async def settle(self, receiver: Callable[..., Any], answer: Awaitable[Any]) -> None:
        await answer

    def flag(self) -> Any:
        """What `wait` waits for; set in the manager's event loop."""
        self.enter()
        import asyncio

        return asyncio.Event()

    async def wait(self, flag: Any, seconds: float) -> bool:
        """Whether the flag was set within so many seconds; it is taken down."""
        import asyncio

        try:
            async with asyncio.timeout(seconds):
                await flag.wait()
        except TimeoutError:
            return False
        flag.clear()
        return True

    def start(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
        """Begins work as a task; False where no more may begin."""
        import asyncio

        if self._closing:
            return False
        task = asyncio.ensure_future(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def finish(self, timeout: float) -> None:
        """Begins nothing any more, waits at most `timeout` seconds for what was begun, and cancels it.

        What is apart is waited for as long, and left alone.
        """
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
                await asyncio.wait(late, timeout=_TO_CANCEL)


def _looked_at(task: Any) -> None:
    """Looks at how a task ended, so that asyncio does not complain of one that was left behind."""
    if not task.cancelled():
        task.exception()


def close_awaitable(answer: Any) -> None:
    """Closes a coroutine that will not be awaited, so that nothing warns about it later."""
    close = getattr(answer, "close", None)
    if callable(close):
        close()


def refuse_async_port(
    port: Any, methods: Sequence[str], runtime: Runtime | None, what: str
) -> None:
    """Refuses a port that lacks a method, or has an async one and is not for an async door.

    Without a `door` it must be sync whatever the door is. Raises `InvalidInput` or `AsyncPortRefused`.
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
