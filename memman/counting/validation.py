"""Validation of third-party counters before use."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, get_args

from memman.display import format_error, safe_repr
from memman.entries import Accuracy, check_id
from memman.errors import CounterUnavailable, InvalidInput
from memman.protocols import CounterSpec, LocalCounter, ModelRef, RemoteCounter

logger = logging.getLogger("memman.counting")
_METHODS = {False: ("count_texts",), True: ("count_request", "acount_request")}


def valid_specs(listed: Iterable[tuple[str, Any]]) -> list[CounterSpec]:
    """Return the valid specs among those that plugins list, as (plugin, spec); log each other one."""
    specs = []
    for plugin, item in listed:
        named = isinstance(item, CounterSpec) and isinstance(item.name, str) and item.name != ""
        if named and item.accuracy in get_args(Accuracy) and callable(item.match):
            specs.append(item)
        else:
            logger.warning("plugin %s lists an invalid counter: %s", plugin, safe_repr(item, 200))
    return specs


def make(spec: CounterSpec, model: ModelRef) -> LocalCounter | RemoteCounter:
    """Return the counter of a spec for a model.

    Raises `CounterUnavailable` if the factory does, if it fails, or if it makes another object.
    """
    try:
        counter: LocalCounter | RemoteCounter = spec.factory(model)
        _check(spec, counter)
    except CounterUnavailable:
        raise
    except BaseException as error:
        if not is_plugin_error(error):
            raise
        logger.warning("counter %s could not be made", spec.name, exc_info=True)
        raise CounterUnavailable(format_error(error)) from error
    return counter


def _check(spec: CounterSpec, counter: LocalCounter | RemoteCounter) -> None:
    methods = _METHODS[spec.remote]
    if not any(callable(getattr(counter, name, None)) for name in methods):
        needed = " or ".join(methods)
        raise CounterUnavailable(f"its factory made a {type(counter).__name__} without {needed}")
    fingerprint_of(counter)


def check_ready(counter: object) -> None:
    """Call a counter's `ready()`, if any. Raises `CounterUnavailable` if that fails."""
    ready = getattr(counter, "ready", None)
    if not callable(ready):
        return
    try:
        ready()
    except CounterUnavailable:
        raise
    except BaseException as error:
        if not is_plugin_error(error):
            raise
        raise CounterUnavailable(format_error(error)) from error


def is_plugin_error(error: BaseException) -> bool:
    """Return whether an error is a plugin's own, and not the end of the program or of the task.

    The panic of a Rust extension is a `BaseException` whose class cannot be imported.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def fingerprint_of(counter: LocalCounter | RemoteCounter) -> str:
    """Return the name of a counter's counts, which is stored. Raises `InvalidInput` for a wrong one."""
    try:
        fingerprint = counter.fingerprint
    except Exception as error:
        raise InvalidInput(
            f"{type(counter).__name__} has no fingerprint: {format_error(error)}"
        ) from error
    return check_id(fingerprint, f"the fingerprint of {type(counter).__name__}")
