"""A blocking call made aside hands over what it returns or raises, and nobody can break it off."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from memman.counting.aside import aside, begun

WHO = ContextVar("WHO", default="nobody")


def test_it_hands_over_what_the_call_returns_on_a_daemon_thread() -> None:
    name, daemon = begun(
        lambda: (threading.current_thread().name, threading.current_thread().daemon)
    ).result(5)
    assert daemon
    assert name != threading.current_thread().name


def test_it_hands_over_what_the_call_raises() -> None:
    with pytest.raises(SystemExit):
        begun(lambda: exec("raise SystemExit")).result(5)  # noqa: S102 - a lambda cannot raise


def test_the_call_sees_the_callers_context() -> None:
    token = WHO.set("somebody")
    try:
        assert begun(WHO.get).result(5) == "somebody"
    finally:
        WHO.reset(token)


def test_a_task_that_gives_up_leaves_the_call_to_its_end() -> None:
    release = threading.Event()

    async def give_up() -> bool:
        call = aside(lambda: release.wait(5))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(call), 0.05)
        release.set()
        return await call

    assert asyncio.run(give_up())
