"""The bytecodes that `benchmarks.instructions` counts: the same each time, and of what ran."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from subprocess import CompletedProcess

import pytest

from benchmarks import instructions
from benchmarks.workload import SEED, items


@pytest.fixture
def busy_collector() -> Iterator[None]:
    """Collections all the time, each of which calls a function, as Hypothesis has one there."""

    def collected(_phase: str, _info: dict[str, int]) -> None: ...

    threshold = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(20)
    yield
    gc.set_threshold(*threshold)
    gc.callbacks.remove(collected)


@pytest.mark.parametrize("walk", instructions.WALKS)
def test_bytecodes_are_counted_of_every_walk(walk: str) -> None:
    counted = instructions.bytecodes(walk, warm=50, number=100)
    assert counted.total == pytest.approx(sum(times for _, times, _ in counted.functions))
    assert 100 < counted.total < 20_000
    assert sys.gettrace() is None or "coverage" in sys.modules
    assert gc.isenabled()


def test_a_count_is_the_same_each_time(busy_collector: None) -> None:
    first, again = (instructions.bytecodes("append+context", 20, 60) for _ in range(2))
    assert first.functions == again.functions
    assert "busy_collector" not in str(first)


def test_a_walk_does_what_it_is_named_after() -> None:
    named = {
        walk: " ".join(name for name, _, _ in instructions.bytecodes(walk, 20, 60).functions)
        for walk in ("append", "append+context")
    }
    assert "Adding.add" in named["append"]
    assert "Rendering.update" not in named["append"]
    assert "Rendering.update" in named["append+context"]


def test_what_a_summarizers_thread_runs_is_counted_wherever_it_began() -> None:
    counted = instructions.bytecodes("compressed", 300, 400)
    thread = "start_in_thread.<locals>.run (threads.py"
    assert any(name.startswith(thread) for name, _, _ in counted.functions)


def test_in_turns_each_session_has_a_transcript_of_its_own() -> None:
    walked = instructions.WALKS["in-turns"].items(150)
    assert walked == [item for number in range(3) for item in items(50, SEED + number)]
    with pytest.raises(ValueError, match="60 entries are no multiple of 50"):
        instructions.bytecodes("in-turns", 20, 60)


def test_bytecodes_in_turns_are_those_of_whole_sessions() -> None:
    assert instructions.bytecodes("in-turns", number=100) == instructions.bytecodes(
        "in-turns", 0, 100
    )


def test_machine_instructions_are_counted_with_the_same_hashes_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    def run(command: list[str], env: dict[str, str], **_: object) -> CompletedProcess[str]:
        told.append(env["PYTHONHASHSEED"])
        return CompletedProcess(command, 0, "", f"Collected : {command[-1]}")

    monkeypatch.setattr(subprocess, "run", run)
    assert instructions.instructions("parts") == 1
    assert told == ["0", "0"]


def test_an_unknown_walk_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        instructions.main(["nowhere"])
    assert ended.value.code == 2
    assert "'nowhere'" in capsys.readouterr().err
