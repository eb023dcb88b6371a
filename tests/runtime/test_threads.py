"""Blocking calls on daemon threads."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from memman.runtime.threads import in_thread, start_in_thread

CALLER = ContextVar("CALLER", default="none")


def raise_exit() -> None:
    raise SystemExit


def test_call_runs_on_a_daemon_thread() -> None:
    thread = start_in_thread(threading.current_thread).result(5)
    assert thread.daemon
    assert thread is not threading.current_thread()


def test_result_raises_the_error_of_the_call() -> None:
    with pytest.raises(SystemExit):
        start_in_thread(raise_exit).result(5)


def test_call_has_the_context_of_its_caller() -> None:
    token = CALLER.set("this test")
    try:
        assert start_in_thread(CALLER.get).result(5) == "this test"
    finally:
        CALLER.reset(token)


def test_cancelled_task_leaves_the_call_running() -> None:
    release = threading.Event()

    async def give_up() -> bool:
        call = in_thread(lambda: release.wait(5))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(call), 0.05)
        release.set()
        return await call

    assert asyncio.run(give_up())
