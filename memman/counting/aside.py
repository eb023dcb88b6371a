"""A blocking call made aside: on a daemon thread, for an SDK that has no async client.

A thread of `asyncio.to_thread` would make the end of the program wait for a call that hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def aside(call: Callable[[], T]) -> Future[T]:
    """What `call` will return or raise; in a task, await it by `asyncio.wrap_future`.

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

    threading.Thread(target=run, name="memman-count-aside", daemon=True).start()
    return answer
