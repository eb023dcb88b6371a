"""Blocking calls on daemon threads, for calls that may hang.

A thread of a pool, as of `asyncio.to_thread`, would delay the end of the program until its call returns.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def start_in_thread(call: Callable[[], T], name: str = "memman-call") -> Future[T]:
    """Start `call` on a daemon thread, in the caller's context, and return its future result.

    The call cannot be cancelled; a caller that stops waiting leaves it behind.
    """
    context = copy_context()
    result: Future[T] = Future()
    # A running future cannot be cancelled, so the thread can always set its result.
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(context.run(call))
        except StopIteration as error:  # an asyncio future does not take it
            result.set_exception(RuntimeError(f"the call raised {error!r}"))
        except BaseException as error:  # noqa: BLE001 - raised by `Future.result` in the waiting thread
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result


def in_thread(call: Callable[[], T]) -> Awaitable[T]:
    """Start `call` on a daemon thread and return an awaitable of the running event loop."""
    import asyncio

    return asyncio.wrap_future(start_in_thread(call))
