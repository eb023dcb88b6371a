"""Identifiers: UUIDv7 (RFC 9562), monotone within a process.

An id is made before the first attempt to store a record, so that a retry is recognised. It is never
an order: the log's `seq` is.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

_RANDOM_MASK = (1 << 47) - 1  # of the counter's 48 bits the top one stays free, to grow
_TWELVE_DIGITS = (
    1 << 44
)  # so that a counter is written without padding, which costs as much as the rest
_MILLISECOND = 1_000_000  # nanoseconds


def uuid7_factory(
    now_ns: Callable[[], int] = time.time_ns,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> Callable[[], str]:
    """A generator of UUIDv7 strings that never go backwards, even when the clock does.

    Within a millisecond the random part counts up from a random start (RFC 9562, method 1).
    """
    lock = threading.Lock()
    state: tuple[int, str, Iterator[int]] = (0, "", count())

    def new_id() -> str:
        nonlocal state
        until, pattern, counter = state
        now = now_ns()
        if now >= until:
            with lock:
                if now >= state[0]:
                    state = _millisecond(now // _MILLISECOND, random_bytes(10))
                _, pattern, counter = state
        return pattern % next(counter)

    return new_id


def _millisecond(ms: int, random: bytes) -> tuple[int, str, Iterator[int]]:
    """When a millisecond ends, in nanoseconds, and the pattern and the counter of its ids."""
    stamp = f"{ms:012x}"
    rand_a = int.from_bytes(random[:2]) & 0xFFF
    variant = 0x8000 | (int.from_bytes(random[2:4]) & 0x3FFF)
    pattern = f"{stamp[:8]}-{stamp[8:]}-7{rand_a:03x}-{variant:04x}-%x"
    first = int.from_bytes(random[4:]) & _RANDOM_MASK | _TWELVE_DIGITS
    return (ms + 1) * _MILLISECOND, pattern, count(first)


new_id = uuid7_factory()
