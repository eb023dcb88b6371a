"""Processes that do one thing until they are killed, and how much memory one has had."""

from __future__ import annotations

import os
import random
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn


def started(work: Callable[[random.Random], None], rng: random.Random) -> int:
    """Starts a process that does `work`, seeded from `rng`; its id. It ends with 1 where `work` raises."""
    seed = rng.random()
    pid = os.fork()  # quicker than a fresh interpreter; nothing is open yet
    if pid == 0:
        _in_child(work, random.Random(seed))
    return pid


def kill(pid: int) -> None:
    """Kills a process with SIGKILL. Raises `RuntimeError` if it had ended by itself."""
    os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != -signal.SIGKILL:
        raise RuntimeError(f"a process ended with {status} before it was killed")


def highest() -> float:
    """The most MiB that this process has had; what `getrusage` says begins with its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _in_child(work: Callable[[random.Random], None], rng: random.Random) -> NoReturn:
    try:
        work(rng)
    except BaseException:  # noqa: BLE001 - a forked child must not go on in its parent's code
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
