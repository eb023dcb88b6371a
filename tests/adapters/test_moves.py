"""A session moves between frameworks and back, with tool calls in flight, on one database."""

from __future__ import annotations

import json
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
CUT_OFF = "a question that was cut off"
# Frameworks that hand over a call before it runs; the others do with their next request.
CALLS_AT_ONCE = ("adk", "llama-index", "strands", PLAIN)

pytestmark = pytest.mark.skipif(ENVS is None, reason="needs ADAPTER_ENVS: see .ci/adapters")


class CheckedLeg(Leg):
    """A process whose requests must be valid and within the budget."""

    def run(self, session: Session, text: str, *, is_cut: bool = False) -> dict[str, Any]:
        answer = super().run(session, text, is_cut=is_cut)
        assert not answer["violations"], answer["violations"]
        assert answer["tokens"] <= session.budget
        return answer


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


def first_line(text: str) -> str:
    return text.splitlines()[0]


def log_of(session: Session) -> list[tuple[str, str]]:
    """Return the types and texts of the log."""
    with closing(MemoryManager(session.store)) as memory:
        return [(entry.type, entry.text) for entry in memory.get_entries(session.session)]


@pytest.mark.parametrize(("first", "second"), list(permutations([*FRAMEWORKS, PLAIN], 2)))
def test_session_moves_and_comes_back(first: str, second: str, legs: Any, tmp_path: Path) -> None:
    session = Session(tmp_path, AMPLE, holds=3)  # the first call of the second turn
    one = legs(first).run(session, "the first question")
    legs(first).run(session, CUT_OFF, is_cut=True)
    in_flight = [text for kind, text in log_of(session) if kind == "tool_call"][2:]
    assert len(in_flight) == (2 if first in CALLS_AT_ONCE else 0)
    two = legs(second).run(session, "the question after the move")
    said = ["the first question", one["answer"], *map(first_line, one["results"])]
    paths = [json.loads(call)["path"] for call in in_flight]
    assert [text for text in [*said, CUT_OFF, *paths] if text not in two["request"]] == []
    three = legs(first).run(session, "the question after the return")
    said += ["the question after the move", two["answer"], *map(first_line, two["results"][-2:])]
    assert [text for text in said if text not in three["request"]] == []
    log = log_of(session)
    assert [text for _, text in log if text.startswith("the ") and "question" in text] == [
        "the first question",
        "the question after the move",
        "the question after the return",
    ]
    # Some frameworks' own histories lack a cancelled run, so it leaves the context with the return.
    with closing(MemoryManager(session.store)) as memory:
        assert CUT_OFF in memory.export_session(session.session).to_json()
    texts = [text for _, text in log]
    answers = [each["answer"] for each in (one, two, three)]
    once = [*answers, *one["results"], *two["results"][-2:], *three["results"][-2:]]
    assert [texts.count(text) for text in once] == [1] * len(once)


def test_session_goes_round_all_frameworks(legs: Any, tmp_path: Path) -> None:
    session = Session(tmp_path, TIGHT)
    results: list[str] = []
    names = [*FRAMEWORKS, PLAIN]
    for turn, name in enumerate(names * 3):
        answer = legs(name).run(session, f"round question {turn}")
        assert f"round question {turn}" in answer["request"]
        results += answer["results"][-2:]
    log = log_of(session)
    asked = [text for _, text in log if text.startswith("round question")]
    assert asked == [f"round question {turn}" for turn in range(3 * len(names))]
    assert [text for kind, text in log if kind == "tool_result"] == results
