"""One request under way, and how it is made: on a thread, or as a task of the running loop."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from memman.runtime.threads import start_in_thread

# What a call ended with: its answer and None, or None and what it raised.
Done = Callable[[Any, BaseException | None], None]


class TakenDown(Exception):
    """The task that made the call was cancelled from outside, with its loop."""


class Flight:
    """A request that is under way once for all who want its answer.

    `answer` is waited for by threads and tasks alike. `began` and `deadline` are of the meter's timer,
    `era` is the breaker's pass. Who sets `landed`, under the meter's lock, has ended it; `cancel` asks a
    task to end, `call` is the one that was made on a thread.
    """

    __slots__ = ("_mine", "answer", "began", "call", "cancel", "deadline", "era", "key", "landed")

    def __init__(self, key: bytes, began: float, deadline: float, era: int) -> None:
        self._mine = threading.Lock()
        self.key = key
        self.began = began
        self.deadline = deadline
        self.era = era
        self.landed = False
        self.call: Future[Any] | None = None
        self.cancel: Callable[[], None] | None = None
        self.answer: Future[Any] = Future()
        # A running future cannot be cancelled: one task that gives up must not end it for the others.
        self.answer.set_running_or_notify_cancel()

    def land(self) -> bool:
        """End the flight, under the meter's lock; return False if it had ended before."""
        landed, self.landed = self.landed, True
        return not landed

    def mine(self) -> bool:
        """True to the first who asks: that one makes the call, the others wait for it."""
        return self._mine.acquire(blocking=False)

    def on_thread(self, call: Callable[[], Any], done: Done) -> None:
        """Make the call on a daemon thread, which a waiting caller may leave behind."""

        def ended(call: Future[Any]) -> None:
            error = call.exception()
            done(None if error else call.result(), error)

        self.call = start_in_thread(call, "memman-remote-count")
        self.call.add_done_callback(ended)

    def on_loop(self, call: Callable[[], Awaitable[Any]], done: Done) -> None:
        """Makes the call as a task of the running loop, apart from the task that wants it."""
        import asyncio

        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(call())

        def ended(task: asyncio.Future[Any]) -> None:
            error = TakenDown() if task.cancelled() else task.exception()
            done(None if error else task.result(), error)

        def cancel() -> None:
            with suppress(RuntimeError):  # the loop is closed, and its tasks with it
                loop.call_soon_threadsafe(task.cancel)

        task.add_done_callback(ended)
        self.cancel = cancel
