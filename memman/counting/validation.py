"""Strangers' counters are looked at before anybody relies on them.

What a plugin lists may be no listing, what its factory makes may be no counter, and either may never come
back. Each of these is told here, once, in words; counting itself stays in the caller's thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from typing import Any, Final, TypeVar, get_args

from cachetools import TTLCache

from memman.display import format_error, safe_repr
from memman.entries import Accuracy, check_id
from memman.errors import CounterUnavailable, InvalidInput
from memman.protocols import CounterSpec, ModelRef
from memman.runtime.forks import renew_in_child
from memman.runtime.threads import start_in_thread

logger = logging.getLogger("memman.counting")

T = TypeVar("T")
# A factory may load a vocabulary of many megabytes, or download it with a deadline of its own.
MAKE_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 5.0
_SLICES: Final = 20  # of such a time: a standstill, however long, takes one of them
_PROBE: Final = ("Does it answer?",)
_REMEMBERED: Final = 256
_REMEMBERED_SECONDS: Final = 600.0  # after which a counter that hung is tried again
_METHODS: Final = {False: ("count_texts",), True: ("count_request", "acount_request")}

_lock = threading.Lock()
_hung: TTLCache[tuple[Any, ...], str] = TTLCache(_REMEMBERED, _REMEMBERED_SECONDS)


def _renew() -> None:
    """Begin with nothing remembered and a free lock."""
    global _lock, _hung
    _lock, _hung = threading.Lock(), TTLCache(_REMEMBERED, _REMEMBERED_SECONDS)


renew_in_child(_renew)


def sound_specs(listed: Iterable[tuple[str, Any]]) -> list[CounterSpec]:
    """The specs among what plugins list, given with the plugins' names; of the rest one log line each."""
    specs = []
    for plugin, item in listed:
        fault = _fault(item)
        if fault:
            logger.warning("plugin %s lists a counter that cannot be taken: %s", plugin, fault)
        else:
            specs.append(item)
    return specs


def _fault(item: Any) -> str:
    if not isinstance(item, CounterSpec):
        return f"a {type(item).__name__} is no CounterSpec"
    if not isinstance(item.name, str) or not item.name:
        return f"its name is {safe_repr(item.name)}, not a word"
    if item.accuracy not in get_args(Accuracy):
        return f"the accuracy of {item.name} is {safe_repr(item.accuracy)}; known are high, medium and low"
    if not callable(item.match) or not callable(item.factory):
        return f"match and factory of {item.name} must be functions of a model"
    return ""


def make(spec: CounterSpec, model: ModelRef) -> Any:
    """The counter that a spec makes for a model, after a local one has answered a short text.

    Raises `CounterUnavailable` with the reason when the factory does, or fails, or makes no counter,
    and when the factory has not come back after 30 s or the counter has not answered after 5 s: its
    thread is left behind, and for 600 s nobody waits for it again.
    """
    # A spec is made anew at each listing; its factory, a function of the plugin, is not.
    key = (spec.name, spec.factory, model.name)
    with _lock:
        known = _hung.get(key)
    if known is not None:
        raise CounterUnavailable(known)
    try:
        counter = _in_time(
            lambda: spec.factory(model), MAKE_SECONDS, "its factory did not come back"
        )
        _check(spec, counter)
        if not spec.remote:
            _probe(counter)
    except CounterUnavailable:
        raise
    except _SilentError as silent:
        reason = str(silent)
        with _lock:
            _hung[key] = reason
        logger.warning("counter %s for %s is given up: %s", spec.name, model.name, reason)
        raise CounterUnavailable(reason) from None
    except BaseException as error:
        if not strangers_own(error):
            raise
        logger.warning("counter %s could not be made", spec.name, exc_info=True)
        raise CounterUnavailable(format_error(error)) from error
    return counter


def check_ready(counter: Any) -> None:
    """Raises `CounterUnavailable` where a counter can say by itself that a key or a setting is missing."""
    ready = getattr(counter, "ready", None)
    if not callable(ready):
        return
    try:
        _in_time(ready, MAKE_SECONDS, "it did not say whether it can work")
    except CounterUnavailable:
        raise
    except _SilentError as silent:
        raise CounterUnavailable(str(silent)) from None
    except BaseException as error:
        if not strangers_own(error):
            raise
        raise CounterUnavailable(format_error(error)) from error


def strangers_own(error: BaseException) -> bool:
    """Whether an error is the stranger's, and not what ends the program or cancels the task.

    A Rust extension's panic is a `BaseException` that cannot be imported.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def fingerprint_of(counter: Any) -> str:
    """Return the name of a counter's counts, which is stored. Raises `InvalidInput` for a wrong one."""
    try:
        fingerprint = counter.fingerprint
    except Exception as error:
        raise InvalidInput(
            f"{type(counter).__name__} has no fingerprint: {format_error(error)}"
        ) from error
    return check_id(fingerprint, f"the fingerprint of {type(counter).__name__}")


def _check(spec: CounterSpec, counter: Any) -> None:
    methods = [name for name in _METHODS[spec.remote] if callable(getattr(counter, name, None))]
    if not methods:
        needed = " or ".join(_METHODS[spec.remote])
        raise CounterUnavailable(
            f"its factory made a {type(counter).__name__}, which has no {needed}"
        )
    try:
        fingerprint_of(counter)
    except InvalidInput as error:
        raise CounterUnavailable(str(error)) from error


def _probe(counter: Any) -> None:
    """Waits for an answer, whatever it is: a wrong one is met and told of where a text is counted."""

    def ask() -> None:
        try:
            counter.count_texts(_PROBE)
        except BaseException as error:  # noqa: BLE001 - only its silence is looked for here
            logger.debug("a counter failed at its first text: %s", error)

    _in_time(ask, PROBE_SECONDS, "it did not answer a short text")


class _SilentError(Exception):
    """Something did not come back in time; its thread is left behind."""


def _in_time(action: Callable[[], T], seconds: float, silence: str) -> T:
    """What `action` returns or raises on a daemon thread; `_SilentError` when it takes too long.

    The seconds are those in which this process ran: where the machine stands still (it pages, its container
    is paused) no clock says how long the action has had.
    """
    answer = start_in_thread(action)
    for _ in range(_SLICES):
        if wait([answer], seconds / _SLICES).done:
            return answer.result()
    raise _SilentError(f"{silence} within {seconds:g} s")
