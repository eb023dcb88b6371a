"""Running conformance tests without pytest, and helpers that the kits share."""

from __future__ import annotations

import asyncio
import inspect
import logging
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial
from logging.handlers import BufferingHandler
from typing import Any, TypeVar
from unittest import SkipTest

import msgspec

from memman.errors import CounterUnavailable, SummarizerUnavailable
from memman.runtime.base import awaited
from memman.runtime.threads import start_in_thread

T = TypeVar("T")
_PATIENCE = 10.0  # seconds; far more than any law needs, so that a hang is reported
_SHOWN_CHARACTERS = 300
_UNAVAILABLE = (CounterUnavailable, SummarizerUnavailable)


class OverdueError(AssertionError):
    """A call did not return in time; its thread is left behind."""


class LawResult(msgspec.Struct, frozen=True):
    """The result of a law: `problem` is "" if it holds.

    `overdue`: a call did not return, so further laws are pointless. `unavailable`: the subject cannot
    work here, so there is no result. `skipped` is the reason for which a law does not apply.
    """

    law: str
    problem: str = ""
    overdue: bool = False
    skipped: str = ""
    unavailable: bool = False


def laws_of(kit: type) -> list[str]:
    """Return the names of a kit's laws, in alphabetical order."""
    return [name for name, _ in inspect.getmembers(kit, callable) if name.startswith("test_")]


def broken_laws(kit: type) -> list[str]:
    """Return the names of the laws that a kit's subject breaks; empty for one that conforms."""
    return [result.law for result in law_results(kit) if result.problem]


def law_results(kit: type) -> Iterator[LawResult]:
    """Yield the results of the laws, each on a new instance of `kit`, as in pytest."""
    return (_result(kit, name) for name in laws_of(kit))


def _result(kit: type, name: str) -> LawResult:
    try:
        getattr(kit(), name)()
    except SkipTest as reason:
        return LawResult(name, skipped=str(reason))
    except BaseException as error:
        # Any error of the subject, even a Rust extension's panic, breaks the law; an interruption
        # and pytest's own outcomes are for the caller.
        panicked = type(error).__name__ == "PanicException"
        if not panicked and not isinstance(error, Exception | SystemExit):
            raise
        unavailable = isinstance(error, _UNAVAILABLE)
        overdue = isinstance(error, OverdueError)
        return LawResult(name, _problem(error), overdue=overdue, unavailable=unavailable)
    return LawResult(name)


def _problem(error: BaseException) -> str:
    """Return an error in one line; the source of an assertion without a message."""
    # Only its first line: pytest's rewriting adds its own below.
    said = (str(error).strip().splitlines() or [""])[0]
    if not isinstance(error, (AssertionError, *_UNAVAILABLE)):
        said = f"{type(error).__name__}: {said}"
    if not said:
        said = traceback.extract_tb(error.__traceback__)[-1].line or type(error).__name__
    return said if len(said) <= _SHOWN_CHARACTERS else said[: _SHOWN_CHARACTERS - 1] + "\u2026"


def refused(error: type[Exception], action: Callable[[], object]) -> Exception:
    """Run `action` and return the `error` that it raises; fail if it raises none."""
    try:
        action()
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was not raised")


def finished(action: Callable[[], T], seconds: float = _PATIENCE) -> T:
    """Return or raise the result of `action`; fail if it takes longer than `seconds`."""
    return in_threads([action], seconds)[0]


def in_threads(actions: Sequence[Callable[[], T]], seconds: float = _PATIENCE) -> list[T]:
    """Return the results of actions run concurrently, each on a thread, in the order given."""
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], T]) -> T:
        start.wait()
        return action()

    calls = [start_in_thread(partial(run, action)) for action in actions]
    done, late = wait(calls, seconds * len(calls))
    for call in done:
        call.result()  # raises its error
    if late:
        raise OverdueError(f"not done after {seconds:g} s")
    return [call.result() for call in calls]


@contextmanager
def logged(name: str, level: int) -> Iterator[list[logging.LogRecord]]:
    """Yield the list of records from `level` on that a logger gets inside the block."""
    keeper, logger = BufferingHandler(sys.maxsize), logging.getLogger(name)
    before = logger.level
    logger.addHandler(keeper)
    logger.setLevel(level)
    try:
        yield keeper.buffer
    finally:
        logger.removeHandler(keeper)
        logger.setLevel(before)


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program in a process of its own, for a minute at most."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def finished_answer(answer: Any) -> Any:
    """Return an answer, awaited if it is awaitable."""
    return asyncio.run(awaited(answer)) if inspect.isawaitable(answer) else answer
