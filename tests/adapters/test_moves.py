"""A session moves between frameworks: begun in one, continued in another, and back, with calls in flight.

Each framework runs in a process of its own, with the environment that `.ci/adapters` made for it: their
dependencies conflict. ADAPTER_ENVS is the folder of the environments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from memman import MemoryManager
from tests.adapters.leg import PLAIN, ROOT

ENVS = os.environ.get("ADAPTER_ENVS")
_NEWEST = "-newest"
FRAMEWORKS = sorted(
    path.name.removeprefix("memman-")
    for path in (ROOT / "plugins").iterdir()
    if ENVS and Path(ENVS, f"{path.name.removeprefix('memman-')}{_NEWEST}").is_dir()
)
AMPLE = 100_000  # tokens
TIGHT = 2_500

pytestmark = pytest.mark.skipif(ENVS is None, reason="needs ADAPTER_ENVS: see .ci/adapters")


class Leg:
    """The process of one framework."""

    def __init__(self, name: str) -> None:
        python = sys.executable if name == PLAIN else f"{ENVS}/{name}{_NEWEST}/bin/python"
        command = [python, "-W", "ignore", "-m", "tests.adapters.leg", name]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def run(self, session: Session, text: str, *, is_cut: bool = False) -> dict[str, Any]:
        """Run a turn, and check what the model was sent."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        asked = {**vars(session), "text": text, "is_cut": is_cut}
        stdin.write(json.dumps(asked) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, "the process has ended: see its error above"
        told: dict[str, Any] = json.loads(line)
        assert not told["violations"], told["violations"]
        assert told["tokens"] <= session.budget
        return told

    def end(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)


class Session:
    """A session on a database."""

    def __init__(self, folder: Path, budget: int, holds: int = 0) -> None:
        self.store = str(folder / "moves.db")
        self.session = "customer-17"
        self.budget = budget
        self.holds = holds


@pytest.fixture(scope="module")
def legs() -> Iterator[Any]:
    """Return the processes by the frameworks' names; each is started at its first use."""
    started: list[Leg] = []

    @cache
    def leg(name: str) -> Leg:
        started.append(Leg(name))
        return started[-1]

    yield leg
    for each in started:
        each.end()


def log_of(session: Session) -> list[tuple[str, str]]:
    """Return the types and texts of the log."""
    with closing(MemoryManager(session.store)) as memory:
        return [(entry.type, str(entry.content)) for entry in memory.get_entries(session.session)]


@pytest.mark.parametrize(("first", "second"), list(permutations([*FRAMEWORKS, PLAIN], 2)))
def test_session_moves_and_comes_back(first: str, second: str, legs: Any, tmp_path: Path) -> None:
    session = Session(tmp_path, AMPLE, holds=3)  # the first call of the second turn
    one = legs(first).run(session, "the first question")
    legs(first).run(session, "a question that was cut off", is_cut=True)
    two = legs(second).run(session, "the question after the move")
    said = [
        "the first question",
        one["answer"],
        *(result.splitlines()[0] for result in one["results"]),
        "a question that was cut off",
    ]
    assert [text for text in said if text not in two["request"]] == []
    said.remove(
        "a question that was cut off"
    )  # some frameworks' own histories lack a cancelled run
    three = legs(first).run(session, "the question after the return")
    said += ["the question after the move", two["answer"], two["results"][-1].splitlines()[0]]
    assert [text for text in said if text not in three["request"]] == []
    log = log_of(session)
    assert [text for _, text in log if text.startswith("the ") and "question" in text] == [
        "the first question",
        "the question after the move",
        "the question after the return",
    ]
    results = [text for kind, text in log if kind == "tool_result"]
    # Without the result of the call beside the cancelled one, which frameworks drop.
    assert {*one["results"], *two["results"], *three["results"][-2:]} <= set(results)


def test_session_goes_round_all_frameworks(legs: Any, tmp_path: Path) -> None:
    session = Session(tmp_path, TIGHT)
    results: list[str] = []
    names = [*FRAMEWORKS, PLAIN]
    for turn, name in enumerate(names * 3):
        told = legs(name).run(session, f"round question {turn}")
        assert f"round question {turn}" in told["request"]
        results += told["results"][-2:]
    log = log_of(session)
    asked = [text for _, text in log if text.startswith("round question")]
    assert asked == [f"round question {turn}" for turn in range(3 * len(names))]
    assert [text for kind, text in log if kind == "tool_result"] == results
