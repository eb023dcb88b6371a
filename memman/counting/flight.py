"""A request in progress: on a thread, or as a task of the running loop."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from memman.runtime.threads import start_in_thread

# The outcome of a call: its answer and None, or None and its error.
Done = Callable[[Any, BaseException | None], None]


class TakenDown(Exception):
    """The task of the call was cancelled from outside, with its loop."""


class Flight:
    """A request in progress, shared by all callers that want its answer.

    Threads and tasks wait for `answer`. `began` and `deadline` are times of the counter's timer, `ticket`
    is the breaker's number of the call. `ended` is set under the counter's lock when the request ends.
    `cancel` cancels a task, `call` is a call on a thread.
    """

    def __init__(self, key: bytes, began: float, deadline: float, ticket: int) -> None:
        self._first = threading.Lock()
        self.key = key
        self.began = began
        self.deadline = deadline
        self.ticket = ticket
        self.ended = False
        self.call: Future[Any] | None = None
        self.cancel: Callable[[], None] | None = None
        self.answer: Future[Any] = Future()
        # A running future cannot be cancelled: a task that stops waiting must not end it for the others.
        self.answer.set_running_or_notify_cancel()

    def end(self) -> bool:
        """End the request, under the counter's lock; return False if it had ended before."""
        ended, self.ended = self.ended, True
        return not ended

    def is_first(self) -> bool:
        """Return True to the first caller, which makes the call; the others wait for it."""
        return self._first.acquire(blocking=False)

    def on_thread(self, call: Callable[[], Any], done: Done) -> None:
        """Make the call on a daemon thread, which a waiting caller may leave behind."""

        def ended(call: Future[Any]) -> None:
            error = call.exception()
            done(None if error else call.result(), error)

        self.call = start_in_thread(call, "memman-remote-count")
        self.call.add_done_callback(ended)

    def on_loop(self, call: Callable[[], Awaitable[Any]], done: Done) -> None:
        """Make the call as a task of the running loop, separate from the waiting tasks."""
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
