"""The bytecodes that `benchmarks.instructions` counts: the same each time, and of what ran."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from benchmarks import instructions


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
    assert "add_here" in named["append"]
    assert "Rendering.update" not in named["append"]
    assert "Rendering.update" in named["append+context"]


def test_an_unknown_walk_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        instructions.main(["nowhere"])
    assert ended.value.code == 2
    assert "'nowhere'" in capsys.readouterr().err
