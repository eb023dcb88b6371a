"""The shapes of use hold on small sizes, and an invalid context is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks import shapes
from benchmarks.instruments import Instruments
from benchmarks.sampling import Checker
from benchmarks.subjects import Memman, Reference, Shown
from benchmarks.tokens import chars4
from benchmarks.workload import Item, items

TINY = shapes.Sizes(entries=160, sessions=4, each=24, history=100, reads=10)
BUDGET = 8_000


@pytest.mark.parametrize("make", [Memman, Reference])
def test_no_context_of_any_shape_is_invalid(make: shapes.Open) -> None:
    found = shapes.measure(make, TINY)
    assert (found.one.checked, found.turns.checked) == (20, 12)
    assert found.one.faults == found.turns.faults
    assert found.one.invalid == found.turns.invalid == 0
    assert found.read.items > 1


def test_what_counts_is_what_is_given() -> None:
    counted = []

    def count(text: str) -> int:
        counted.append(text)
        return chars4(text)

    found = shapes.measure(Reference, TINY, count)
    assert found.one.counts >= 1
    assert len(counted) > TINY.entries + TINY.sessions * TINY.each + TINY.history


def test_sessions_in_turns_are_sessions_of_one_manager() -> None:
    instruments = Instruments(chars4)
    opened = [Memman(instruments, BUDGET, f"s{number}") for number in range(3)]
    turns = shapes.InTurns(opened)
    for item in items(6):
        turns.append(item)
    assert {one.memory for one in opened} == {opened[0].memory}
    assert [opened[0].memory.get_stats(f"s{n}").total_entries for n in range(3)] == [2, 2, 2]


RESULT = Item("tool_result", "tool", "done", "shell", {}, "call_1")


class Scripted:
    """A subject whose context is the visible entries."""

    def append(self, item: Item) -> None: ...

    def context(self) -> Any: ...

    def shown(self, context: Any) -> Sequence[Shown]:
        return tuple(context)


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        (None, [Shown("tool_call", "{}", "call_1"), Shown("tool_result", "done", "call_1")]),
        ("orphan result", [Shown("tool_result", "done", "call_1")]),
        (
            "orphan result",
            [Shown("tool_result", "done", "call_1"), Shown("tool_call", "{}", "call_1")],
        ),
        ("newest missing", [Shown("message", "done")]),
        (
            "over budget",
            [
                Shown("message", "x" * 4 * BUDGET),
                Shown("tool_call", "{}", "call_1"),
                Shown("tool_result", "done", "call_1"),
            ],
        ),
    ],
)
def test_the_checker_sees_each_fault(fault: str | None, shown: list[Shown]) -> None:
    check = Checker(chars4, BUDGET)
    check(Scripted(), shown, RESULT)
    assert [name for name, times in check.faults.items() if times] == ([fault] if fault else [])
    assert check.invalid == bool(fault)


def test_a_message_is_found_by_its_text() -> None:
    check = Checker(chars4, BUDGET)
    shown = [Shown("message", "Hello.")]
    check(Scripted(), shown, Item("message", "user", "Hello."))
    check(Scripted(), shown, Item("message", "user", "Goodbye."))
    assert (check.contexts, check.invalid) == (2, 1)
