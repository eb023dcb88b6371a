"""What the kits share: running them without pytest, and saying that something is refused."""

from __future__ import annotations

import asyncio
import inspect
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from unittest import SkipTest

import msgspec

from memman.errors import CounterUnavailable, SummarizerUnavailable

T = TypeVar("T")
_PATIENCE = 10.0  # seconds; far more than any law needs, so that a hang is told and not waited for
_SHOWN_CHARACTERS = 300
_UNAVAILABLE = (CounterUnavailable, SummarizerUnavailable)


class OverdueError(AssertionError):
    """Something did not come back in time; its thread is left behind."""


class LawResult(msgspec.Struct, frozen=True):
    """What became of a law: `problem` is "" for one that holds.

    `overdue`: the subject did not come back, so that asking it further is pointless. `unavailable`: it
    says that it cannot work here, so that the law says nothing. `skipped` is why a law does not apply.
    """

    law: str
    problem: str = ""
    overdue: bool = False
    skipped: str = ""
    unavailable: bool = False


def laws_of(kit: type) -> list[str]:
    """The names of a kit's laws, in alphabetical order."""
    return [name for name, _ in inspect.getmembers(kit, callable) if name.startswith("test_")]


def broken_laws(kit: type) -> list[str]:
    """The names of the laws that a kit's subject breaks; empty for one that conforms."""
    return [result.law for result in law_results(kit) if result.problem]


def law_results(kit: type) -> Iterator[LawResult]:
    """Runs the laws one by one, each on a fresh instance of `kit`, as pytest does."""
    return (_result(kit, name) for name in laws_of(kit))


def _result(kit: type, name: str) -> LawResult:
    try:
        getattr(kit(), name)()
    except SkipTest as reason:
        return LawResult(name, skipped=str(reason))
    except BaseException as error:
        # Whatever a broken subject raises, a Rust extension's panic too, the law is broken; an
        # interruption and pytest's own outcomes are meant for who runs the laws.
        panicked = type(error).__name__ == "PanicException"
        if not panicked and not isinstance(error, Exception | SystemExit):
            raise
        return _broken(name, error)
    return LawResult(name)


def _broken(name: str, error: BaseException) -> LawResult:
    unavailable = isinstance(error, _UNAVAILABLE)
    overdue = isinstance(error, OverdueError)
    return LawResult(name, _problem(error), overdue=overdue, unavailable=unavailable)


def _problem(error: BaseException) -> str:
    """What an error says in one line; of an assertion without words, its source."""
    # Only its first line: where pytest rewrites assertions, it adds its own below.
    said = (str(error).strip().splitlines() or [""])[0]
    if not isinstance(error, (AssertionError, *_UNAVAILABLE)):
        said = f"{type(error).__name__}: {said}"
    if not said:
        said = traceback.extract_tb(error.__traceback__)[-1].line or type(error).__name__
    return said if len(said) <= _SHOWN_CHARACTERS else said[: _SHOWN_CHARACTERS - 1] + "\u2026"


def refused(error: type[Exception], action: Callable[[], object]) -> Exception:
    """Runs `action` and returns the `error` that it raises; fails when it raises none."""
    try:
        action()
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was not raised")


def finished(action: Callable[[], T], seconds: float = _PATIENCE) -> T:
    """What `action` returns or raises; fails when it takes longer than `seconds`."""
    return in_threads([action], seconds)[0]


def in_threads(actions: Sequence[Callable[[], T]], seconds: float = _PATIENCE) -> list[T]:
    """The results of actions run at once, each on a thread, in the order given."""
    results: list[Any] = [None] * len(actions)
    errors: list[BaseException] = []
    start = threading.Barrier(len(actions))

    def run(number: int) -> None:
        start.wait()
        try:
            results[number] = actions[number]()
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    if errors:
        raise errors[0]
    if any(thread.is_alive() for thread in threads):
        raise OverdueError(f"not done after {seconds:g} s")
    return results


def settled(answer: Any) -> Any:
    """The answer of a port, awaited where it has to be."""
    return asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer


async def _awaited(answer: Any) -> Any:
    return await answer
