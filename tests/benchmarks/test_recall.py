"""The measure of recall, on conversations whose evidence and values are known."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import recall
from benchmarks.trajectories import Trajectory
from memman import MemoryConfig, MemoryManager

SMALL = recall.Sizes(tokens=20_000, sessions=60, queries=6, appends=50)


def _dialogue(word: str) -> dict[str, Any]:
    turns = [{"id": f"t{n}", "speaker": "Ann", "text": f"Nothing new {n}."} for n in range(80)]
    turns[40]["text"] = f"My boat is called {word}."
    questions = [
        {"question": "What is the boat called?", "evidence": ["t40"], "category_name": "single"},
        {"question": "Who is the president?", "evidence": ["t79", "t0"], "category_name": "single"},
        {"question": "What is left out?", "evidence": ["t1"], "category_name": "adversarial"},
        {"question": "What is unknown?", "evidence": ["t999"], "category_name": "single"},
    ]
    return {"speakers": ["Ann", "Ben"], "turns": turns, "questions": questions}


def test_share_of_questions_with_all_their_evidence_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "dialogues.jsonl.gz"
    lines = [json.dumps(_dialogue(word)) for word in ("Vela", "Lyra")]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    found = recall.Measurement()
    recall.measure_dialogues(found, path, 1)
    assert [goal.measured for goal in found.goals] == [0.5, 0.5, 0.5]
    assert "LoCoMo, held out            2" in found.tables[0]


@pytest.mark.parametrize(
    ("value", "query", "kind"),
    [
        ("src/deep/gate.py", "gate.py", "path"),
        ("src/deep/", "deep", "path"),
        ("/", "/", "path"),
        ("OPS-4131", "OPS-4131", "one word"),
        ("run tests/a.py now", "tests/a.py", "several words"),
    ],
)
def test_query_of_a_value(value: str, query: str, kind: str) -> None:
    assert recall.query_of(value) == query
    assert recall.kind_of_value(value) == kind


def test_value_that_a_context_lacks_is_missing() -> None:
    filler = "Nothing of note happened in this step of the work. " * 16
    call = {"name": "read", "arguments": json.dumps({"path": "src/gate.py"})}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Begin."},
        {"role": "assistant", "content": "The file is src/gate.py, I think."},
        *({"role": "user", "content": f"{number}. {filler}"} for number in range(40)),
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": call}]},
    ]  # fmt: skip
    config = MemoryConfig(max_tokens=1_000, state_ratio=0, max_summary_ratio=0.05)
    with MemoryManager(counter="chars4", config=config) as memory:
        missing = list(recall.missing_values(memory, Trajectory("one", messages), 1_000))
        context = memory.build_context("one").messages
    there = any("src/gate.py" in str(message) for message in context)
    assert missing == ([] if there else [("one", "src/gate.py")])


def test_every_goal_without_recorded_data_is_measured(tmp_path: Path) -> None:
    found = recall.measure(SMALL, tmp_path / "no data here", tmp_path)
    assert [goal.name for goal in found.goals] == [
        "a query over 20,000 tokens",
        "index over its texts",
        "an add to a searched file",
        "opening a searched file",
        *(
            f"a query over 60 sessions: {scope}"
            for scope in (
                "one session", "a customer's, by prefix", "a tenth, by prefix", "all, two words",
                "all, a name",
            )
        ),
    ]  # fmt: skip
    assert "evidence was not searched" in str(found)
    assert "old values were not searched" in str(found)
