"""What an append and a context take, counted instead of timed: machine instructions, or bytecodes.

    python -m benchmarks.instructions [WALK ...] [--bytecodes]

No other load of the machine is in these figures, so a change of a hundredth shows. Machine instructions
are counted by valgrind's callgrind, a minute for each walk; `--bytecodes` does without it, and names the
functions. There is no goal: this is for whoever changes what nearly every call runs through.

Exit codes: 0 counted, 2 valgrind is not installed.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import msgspec

from benchmarks.instruments import Instruments
from benchmarks.shapes import InTurns
from benchmarks.subjects import Memman, Parts, Subject
from benchmarks.tables import table
from benchmarks.tokens import chars4
from benchmarks.workload import Item, items, transcripts
from memman import MemoryConfig, MemoryManager

_BUDGET = 8_000
_ENDLESS = 10**9
_CLEARED_EVERY = 60  # entries: about as long as windows of 8,000 tokens are
_SESSION_ENTRIES = 50
_FROM, _TO = 900, 2_100  # entries: what both walks pay once is in no difference of theirs
_COLLECTED = re.compile(r"Collected\s*:\s*(\d+)")
_FUNCTIONS_SHOWN = 40


Step = Callable[[], object]


def _instruments(budget: int, **settings: Any) -> Instruments:
    """With a manager of plain ids: whether a UUIDv7 begins a new millisecond depends on the machine."""
    instruments, ids = Instruments(chars4), count()
    instruments.shared(
        "memory",
        lambda: MemoryManager(
            counter=instruments.count,
            summarizer=instruments.summarize,
            config=MemoryConfig(max_tokens=budget, **settings),
            new_id=lambda: f"id-{next(ids)}",
        ),
    )
    return instruments


def _appends(workload: Sequence[Item], context: bool) -> Iterator[Step]:
    """One session that is never compressed, and cleared from time to time."""
    subject = Memman(_instruments(_ENDLESS, max_entries=None), _ENDLESS)
    for number, item in enumerate(workload):
        if number and not number % _CLEARED_EVERY:
            subject.memory.clear_session(subject.session)
        yield _step(subject, item, context)


def _compressed(workload: Sequence[Item]) -> Iterator[Step]:
    subject = Memman(_instruments(_BUDGET), _BUDGET)
    return (_step(subject, item) for item in workload)


def _in_turns(workload: Sequence[Item]) -> Iterator[Step]:
    """As W3: an entry for each session in turns, each with a transcript of its own."""
    instruments = _instruments(_BUDGET)
    starts = range(0, len(workload), _SESSION_ENTRIES)
    by_session = [workload[start : start + _SESSION_ENTRIES] for start in starts]
    subject = InTurns([Memman(instruments, _BUDGET, f"s{start}") for start in starts])
    return (_step(subject, item) for turn in zip(*by_session, strict=True) for item in turn)


def _whole_sessions(number: int) -> list[Item]:
    """So many entries of sessions, one session after the other."""
    sessions, rest = divmod(number, _SESSION_ENTRIES)
    if rest:
        raise ValueError(
            f"in-turns walks whole sessions: {number} entries are no multiple of {_SESSION_ENTRIES}"
        )
    return [item for each in transcripts(sessions, _SESSION_ENTRIES) for item in each]


def _parts(workload: Sequence[Item]) -> Iterator[Step]:
    subject = Parts(Instruments(chars4), _BUDGET)
    return (_step(subject, item) for item in workload)


def _step(subject: Subject, item: Item, context: bool = True) -> Step:
    def step() -> None:
        subject.append(item)
        if context:
            subject.context()

    return step


class Walk(NamedTuple):
    """What is walked through, and how: its steps, the items of so many entries, and after how many of them
    bytecodes are counted.
    """

    steps: Callable[[Sequence[Item]], Iterator[Step]]
    items: Callable[[int], list[Item]] = items
    warm: int = _FROM


WALKS: dict[str, Walk] = {
    "append": Walk(lambda workload: _appends(workload, False)),
    "append+context": Walk(lambda workload: _appends(workload, True)),
    "compressed": Walk(_compressed),
    # All of them, since those after the first hundreds would be the later ones of every session.
    "in-turns": Walk(_in_turns, _whole_sessions, warm=0),
    "parts": Walk(_parts),
}


# ---------------------------------------------------------------- machine instructions


def instructions(walk: str) -> float:
    """Machine instructions per entry: what a longer walk takes more than a shorter one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "workload.json")
        path.write_bytes(msgspec.json.encode(WALKS[walk].items(_TO)))
        shorter, longer = (_collected(walk, path, number) for number in (_FROM, _TO))
    return (longer - shorter) / (_TO - _FROM)


def _collected(walk: str, path: Path, number: int) -> int:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable]
    command += ["-m", "benchmarks.instructions", walk, "--walk", str(path), str(number)]
    # Else the order of sets and the collisions of names differ in each process, by a hundredth or two.
    environ = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    found = _COLLECTED.search(done.stderr)
    if found is None:
        raise RuntimeError(f"valgrind told no count: {done.stderr[-500:]}")
    return int(found[1])


def _walk(walk: str, path: Path, number: int) -> None:
    """What valgrind looks at. A collection would come at another moment in each length of walk."""
    gc.disable()
    workload = msgspec.json.decode(path.read_bytes(), type=list[Item])
    for step in WALKS[walk].steps(workload[:number]):
        step()


# ---------------------------------------------------------------- bytecodes


class Bytecodes(msgspec.Struct, frozen=True):
    """Bytecodes and calls per entry, of all functions and of those that run the most."""

    total: float
    calls: float
    functions: tuple[tuple[str, float, float], ...]

    def __str__(self) -> str:
        rows = [("all", self.total, self.calls), *self.functions[:_FUNCTIONS_SHOWN]]
        return table(("function", "bytecodes", "calls"), rows)


def bytecodes(walk: str, warm: int | None = None, number: int = _TO) -> Bytecodes:
    """What the entries from `warm` to `number` run, on any thread; their own frames here are in it.

    By default `warm` is the walk's. What the first entries of a process run alone was run before.
    """
    walked = WALKS[walk]
    warm, workload = walked.warm if warm is None else warm, walked.items(number)
    for step in walked.steps(workload[:_SESSION_ENTRIES]):
        step()
    run: Counter[CodeType] = Counter()
    called: Counter[CodeType] = Counter()

    def inside(frame: FrameType, event: str, _arg: object) -> Any:
        if event == "opcode":
            run[frame.f_code] += 1
        return inside

    def entered(frame: FrameType, _event: str, _arg: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        called[frame.f_code] += 1
        return inside

    before = sys.gettrace(), threading.gettrace(), gc.isenabled()
    gc.disable()  # a collection runs the callbacks of whoever has any, at another moment each time
    threading.settrace(entered)  # before the first step: only threads that start later are reached
    sys.settrace(entered)
    try:
        for done, step in enumerate(walked.steps(workload)):
            if done == warm:
                run.clear()
                called.clear()
            step()
    finally:
        sys.settrace(before[0])
        threading.settrace(before[1])
        if before[2]:
            gc.enable()
    entries = number - warm
    functions = [
        (f"{code.co_qualname} ({Path(code.co_filename).name}:{code.co_firstlineno})", times, code)
        for code, times in run.most_common()
    ]
    return Bytecodes(
        total=run.total() / entries,
        calls=called.total() / entries,
        functions=tuple(
            (name, times / entries, called[code] / entries) for name, times, code in functions
        ),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Counts and prints."""
    parser = argparse.ArgumentParser(prog="benchmarks.instructions")
    parser.add_argument("walks", nargs="*", metavar="WALK", help=f"of {', '.join(WALKS)}; or all")
    parser.add_argument("--bytecodes", action="store_true", help="by function, without valgrind")
    parser.add_argument("--walk", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    walks = given.walks or list(WALKS)
    if unknown := [walk for walk in walks if walk not in WALKS]:
        parser.error(f"there is no walk {unknown[0]!r}: it is one of {', '.join(WALKS)}")
    logging.disable(logging.CRITICAL)  # the workload's summaries are longer than asked for
    if given.walk:
        path, number = given.walk
        _walk(walks[0], Path(path), int(number))
    elif given.bytecodes:
        print("\n\n".join([f"{walk}\n{bytecodes(walk)}" for walk in walks]))
    elif shutil.which("valgrind") is None:
        print("valgrind is not installed: install it, or count with --bytecodes", file=sys.stderr)
        return 2
    else:
        rows = [(walk, round(instructions(walk))) for walk in walks]
        print(table(("per entry", "instructions"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
