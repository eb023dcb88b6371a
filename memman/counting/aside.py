"""A blocking call made aside, on a daemon thread: for an SDK without an async client, or one that may hang.

A thread of `asyncio.to_thread` or of a pool would make the end of the program wait for a call that hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def begun(call: Callable[[], T]) -> Future[T]:
    """What `call` will return or raise; it sees the caller's context.

    Who gives up waiting leaves the call behind: it goes on to its own end and disturbs nobody.
    """
    context = copy_context()
    answer: Future[T] = Future()
    # A running future cannot be cancelled, so the thread can always set its result.
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001 - handed to who waits
            answer.set_exception(error)

    threading.Thread(target=run, name="memman-aside", daemon=True).start()
    return answer


def aside(call: Callable[[], T]) -> Awaitable[T]:
    """The same to be awaited; called with the loop running."""
    import asyncio

    return asyncio.wrap_future(begun(call))
