"""The cost of `import memman` and `memman --version` in a fresh process, and the modules they load.

    python -m benchmarks.imports [--json]

Exit codes: 0 within the goal or its noise, 1 too slow, or a provider's SDK is loaded.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.goals import TIME_NOISE, Goal, any_failed, report
from benchmarks.tables import table

GOAL_SECONDS = 0.06
# The machine's speed changes by a factor of five, so CI holds a multiple of the time of the four
# dependencies in the same run (3.1 when it was set).
_HELD_DEPENDENCIES = 2.8
GOAL_COMMAND = 0.15  # seconds of the whole process, its start included
_HELD_COMMAND = 4.5  # times the four dependencies (3.5 when it was set)
UNWANTED = ("openai", "anthropic", "tiktoken", "google.genai", "boto3", "click", "rich")
_RUNS = 9
_SHOWN_PARTS = 12
_IMPORT_TIME = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")
_IMPORT = "import memman; "
_VERSION = """
from memman_cli.app import run
try:
    run(["--version"])
except SystemExit:
    print()
"""
_DEPENDENCIES = "import blinker, cachetools, msgspec, pluggy; "
# CPU of the whole process, its start included: an import may start threads or load libraries.
_CPU = "import resource as r; u = r.getrusage(r.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"

Environment = Mapping[str, str]


class Import(msgspec.Struct, frozen=True):
    """CPU seconds of importing memman, and its dependencies alone; the unwanted modules, and the parts."""

    seconds: float
    dependencies_seconds: float
    interpreter_seconds: float
    command_seconds: float
    loaded: tuple[str, ...]
    parts: tuple[tuple[str, int], ...]

    @property
    def goals(self) -> list[Goal]:
        """Return the goals: the time, and no unwanted modules."""
        return [
            Goal("import memman", self.seconds, GOAL_SECONDS, TIME_NOISE, "s CPU", self._held),
            Goal(
                "memman --version",
                self.command_seconds,
                GOAL_COMMAND,
                TIME_NOISE,
                "s CPU",
                max(GOAL_COMMAND, _HELD_COMMAND * self.dependencies_seconds),
            ),
            Goal(f"unwanted modules {' '.join(self.loaded)}".strip(), len(self.loaded), 0),
        ]

    @property
    def _held(self) -> float:
        return max(GOAL_SECONDS, _HELD_DEPENDENCIES * self.dependencies_seconds)

    def __str__(self) -> str:
        rows = [(name, own / 1_000) for name, own in self.parts]
        return "\n\n".join(
            [
                table(("slowest parts, without what they import", "ms"), rows),
                f"bare interpreter: {self.interpreter_seconds:.3f} s CPU; the four dependencies: "
                f"{self.dependencies_seconds:.3f} s, of which memman's import is "
                f"{self.seconds / self.dependencies_seconds:.2f} times",
                report(self.goals),
            ]
        )


def measure(runs: int = _RUNS) -> Import:
    """Measure fresh processes, the bare interpreter and memman in turn.

    The first of each is not counted: it writes the bytecode that an installed package already has. The
    bytecode has its own folder, so that neither old bytecode nor a ban on writing it changes the figure.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        seconds = [
            [
                float(_python(code + _CPU, environment).split()[-1])
                for code in ("", _DEPENDENCIES, _IMPORT, _VERSION)
            ]
            for _ in range(1 + runs)
        ]
        # The minimum, because a neighbour can only add to a process's time.
        bare, some, full, command = (min(column) for column in zip(*seconds[1:], strict=True))
        loaded, parts = _unwanted(environment), _slowest(environment)
        return Import(full - bare, some - bare, bare, command, loaded, parts)


def _unwanted(environment: Environment) -> tuple[str, ...]:
    found = f"import sys; print(*[name for name in {UNWANTED!r} if name in sys.modules])"
    return tuple(_python(_IMPORT + found, environment).split())


def _slowest(environment: Environment) -> tuple[tuple[str, int], ...]:
    """Return (module, its own microseconds), the slowest first, by the interpreter's own clock."""
    trace = _run(("-X", "importtime", "-c", _IMPORT), environment).stderr
    own = [(name, int(spent)) for spent, name in _IMPORT_TIME.findall(trace)]
    begun = [name for name, _ in own].index("site") + 1  # earlier modules belong to the interpreter
    return tuple(sorted(own[begun:], key=lambda part: -part[1])[:_SHOWN_PARTS])


def _python(code: str, environment: Environment) -> str:
    return _run(("-c", code), environment).stdout


def _run(arguments: Sequence[str], environment: Environment) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.imports", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    options = parser.parse_args(arguments)
    found = measure()
    print(msgspec.json.encode(found).decode() if options.json else found)
    return int(any_failed(found.goals))


if __name__ == "__main__":
    sys.exit(main())
