"""What the kits share: running them without pytest, and saying that something is refused."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
_PATIENCE = 10.0  # seconds; far more than any law needs, so that a hang is told and not waited for


def laws_of(kit: type) -> list[str]:
    """The names of a kit's laws, in alphabetical order."""
    return [name for name, _ in inspect.getmembers(kit, callable) if name.startswith("test_")]


def broken_laws(kit: type) -> list[str]:
    """The names of the laws that a kit's subject breaks; empty for one that conforms.

    Each law runs on a fresh instance of `kit`, as it does under pytest.
    """
    return [name for name in laws_of(kit) if not _holds(kit, name)]


def _holds(kit: type, name: str) -> bool:
    try:
        getattr(kit(), name)()
    except Exception:  # noqa: BLE001 - whatever a broken subject raises, the law does not hold
        return False
    return True


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
    assert not any(thread.is_alive() for thread in threads), f"not done after {seconds:g} s"
    return results


def settled(answer: Any) -> Any:
    """The answer of a port, awaited where it has to be."""
    return asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer


async def _awaited(answer: Any) -> Any:
    return await answer
