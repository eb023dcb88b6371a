"""Imported logs: detection by their head, in bounded memory, compared with parsing and counting.

    python -m benchmarks.logs [--quick] [--entries N] [--data FOLDER]

A generated file of JSON lines (a million messages, 500 MB) is imported by `memman import` into a database,
each step in its own process. The import of the longest recorded conversation alternates
with parsing its JSON and counting its texts. Exit codes: 0 goals met, 1 a goal missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import msgspec
from memman_cli.app import run as memman
from memman_cli.logs import read_log

from benchmarks.goals import TIME_NOISE, Goal, any_failed, report
from benchmarks.processes import highest
from benchmarks.tables import table
from benchmarks.trajectories import read_trajectories
from benchmarks.usage import SHARED
from memman import MemoryManager

_QUICK, _FULL = 101_000, 1_000_000
_TEXT = (
    "The build fails in step seven because a lock file of an earlier run was never removed. " * 5
)
_QUICK_TEXT = 60  # characters of it
GOAL_DETECTION = 0.1  # seconds
GOAL_MEMORY = 128.0  # MiB more than before, whatever the length
_HELD_RATIO = 2.5  # with the index of the search
GOAL_RATIO = 2.0  # times the parsing of the JSON and the counting of the tokens
_ROUNDS = 7
_STEPS = ("detect", "import")


class Step(msgspec.Struct, frozen=True):
    """The cost of a step: seconds, CPU seconds, and growth of memory in MiB."""

    seconds: float
    cpu: float
    grown: float


def measure(entries: int, text: str) -> tuple[float, dict[str, Step]]:
    """Return the file's MB, and the cost of each step of its import."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        with path.open("w") as file:
            for number in range(entries):
                role = "assistant" if number % 2 else "user"
                message = {"role": role, "content": f"{number} {text}"}
                file.write(json.dumps(message) + "\n")
        size = path.stat().st_size / 1e6
        return size, {step: _apart(step, path) for step in _STEPS}


def _apart(step: str, path: Path) -> Step:
    command = [sys.executable, "-m", "benchmarks.logs", "--step", step, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return msgspec.json.decode(done.stdout, type=Step)


def _step(step: str, path: Path) -> Step:
    """Run one step in this process."""
    works: dict[str, Callable[[], object]] = {
        "detect": lambda: read_log(str(path)).format,
        "import": lambda: _command(str(path), "--into", f"{path}.db"),
    }
    before = highest()
    began, cpu = perf_counter(), process_time()
    works[step]()
    return Step(perf_counter() - began, process_time() - cpu, highest() - before)


def _command(*arguments: str) -> None:
    """Runs `memman import` in this process. Raises `RuntimeError` if it fails."""
    said = StringIO()
    with redirect_stderr(said):
        try:
            memman(["import", *arguments])
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(said.getvalue()) from None


def ratio(data: Path) -> tuple[str, float, float, float]:
    """Return (name, MB, CPU seconds of parsing and counting, and of importing) of the longest conversation.

    Both alternate in one process; the figures are medians.
    """
    talks = read_trajectories(data)
    talk = max(talks, key=lambda one: sum(len(str(message)) for message in one.messages))
    with tempfile.TemporaryDirectory() as folder:
        path, to = Path(folder) / "log.json", Path(folder) / "s.json"
        path.write_text(json.dumps(talk.messages))
        taken = [
            (_timed(lambda: _floor(path)), _timed(lambda: _import(path, to)))
            for _ in range(_ROUNDS)
        ]
        floor, whole = (median(column) for column in zip(*taken, strict=True))
        return talk.id, path.stat().st_size / 1e6, floor, whole


def _floor(path: Path) -> None:
    """Parses the JSON and counts each text of the messages, as the import does."""
    count = MemoryManager().count_tokens
    for message in json.loads(path.read_bytes()):
        content = message.get("content")
        if isinstance(content, str):
            count(content)
        for call in message.get("tool_calls") or ():
            count(call["function"]["arguments"])


def _import(path: Path, to: Path) -> None:
    _command(str(path), "-o", str(to))


def _timed(work: Callable[[], None]) -> float:
    began = process_time()
    work()
    return process_time() - began


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.logs", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--quick", action="store_true", help="a short file, the fixture of recordings"
    )
    parser.add_argument("--entries", type=int, help="messages of the generated file")
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the recordings")
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.step:
        step, path = options.step
        print(msgspec.json.encode(_step(step, Path(path))).decode())
        return 0
    entries = options.entries or (_QUICK if options.quick else _FULL)
    size, steps = measure(entries, _TEXT[:_QUICK_TEXT] if options.quick else _TEXT)
    rows = [(name, took.seconds, took.cpu, took.grown) for name, took in steps.items()]
    print(f"{entries:,} messages, {size:.0f} MB of JSON lines")
    print(table(("step", "seconds", "CPU s", "MiB grown"), rows))
    goals = [
        Goal("recognised", steps["detect"].seconds, GOAL_DETECTION, TIME_NOISE, "s"),
        Goal("memory of the import", max(s.grown for s in steps.values()), GOAL_MEMORY, 0.0, "MiB"),
    ]
    name = "fixture_trajectories" if options.quick else "trajectories"
    recorded = options.data / f"{name}.jsonl.gz"
    if recorded.is_file():
        talk, megabytes, floor, whole = ratio(recorded)
        print(
            f"{talk}, {megabytes:.2f} MB: parsing and counting {floor:.3f} s CPU, importing {whole:.3f}"
        )
        import_ratio = whole / floor
        goals.append(
            Goal("import / parse and count", import_ratio, GOAL_RATIO, TIME_NOISE, "x", _HELD_RATIO)
        )
    else:
        print(f"note: no recordings in {options.data}")
    print(report(goals))
    return int(any_failed(goals))


if __name__ == "__main__":
    sys.exit(main())
