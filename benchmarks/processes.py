"""Processes that run one function until they are killed, and the peak memory of a process."""

from __future__ import annotations

import os
import random
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn


def started(work: Callable[[random.Random], None], rng: random.Random) -> int:
    """Run `work`, seeded from `rng`, in a new process; return its id. It exits with 1 if `work` raises."""
    seed = rng.random()
    pid = os.fork()  # quicker than a fresh interpreter; nothing is open yet
    if pid == 0:
        _in_child(work, random.Random(seed))
    return pid


def kill(pid: int) -> None:
    """Kill a process with SIGKILL. Raises `RuntimeError` if it had ended by itself."""
    os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != -signal.SIGKILL:
        raise RuntimeError(f"a process ended with {status} before it was killed")


def highest() -> float:
    """Return the peak MiB of this process; `getrusage` would include its parent's at the fork."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _in_child(work: Callable[[random.Random], None], rng: random.Random) -> NoReturn:
    try:
        work(rng)
    except BaseException:  # noqa: BLE001 - a forked child must not go on in its parent's code
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
