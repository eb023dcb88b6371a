"""A session moves between frameworks and back, with tool calls in flight, on one database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from memman import MemoryManager
from tests.adapters.leg import PLAIN
from tests.adapters.processes import ENVS, FRAMEWORKS, Leg, Session

AMPLE = 100_000  # tokens
TIGHT = 2_500

pytestmark = pytest.mark.skipif(ENVS is None, reason="needs ADAPTER_ENVS: see .ci/adapters")


class CheckedLeg(Leg):
    """A process whose requests must be valid and within the budget."""

    def run(self, session: Session, text: str, *, is_cut: bool = False) -> dict[str, Any]:
        told = super().run(session, text, is_cut=is_cut)
        assert not told["violations"], told["violations"]
        assert told["tokens"] <= session.budget
        return told


@pytest.fixture(scope="module")
def legs() -> Iterator[Any]:
    """Return the processes by the frameworks' names; each is started at its first use."""
    started: list[CheckedLeg] = []

    @cache
    def leg(name: str) -> CheckedLeg:
        started.append(CheckedLeg(name))
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
