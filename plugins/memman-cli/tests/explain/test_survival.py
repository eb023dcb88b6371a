"""The survival of values has the same figures as the comparisons."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from memman_cli.explain import Survival, SurvivalFold, compare
from memman_cli.explain.values import Values

from memman import MemoryManager
from memman.compression.words import exact_values, stands_alone
from memman.explain.history import LogHistory
from tests.examples import examples
from tests.explain.conversation import history, manager, orders, talk

TEXT = st.text(alphabet="ab1 -_/.é", max_size=30)


def survivals(read: LogHistory) -> list[Survival]:
    fold = SurvivalFold(read)
    return [found for seq, record in read.records if (found := fold.apply(seq, record))]


def explained(read: LogHistory) -> list[Any]:
    return [
        (each.values, each.kept, [(item.tokens_before, item.kept) for item in each.replacements])
        for each in survivals(read)
    ]


def compared(read: LogHistory) -> list[Any]:
    return [
        (
            each.values,
            each.values_kept,
            [
                (item.tokens_before, {v.value: v.kept for v in item.values if v.kept})
                for item in each.replacements
            ],
        )
        for each in (compare(read, name) for name in read.compressions)
    ]


STEPS = st.sampled_from(["talk", "order", "compress", "undo", "delete"])


def do(memory: MemoryManager, what: str, number: int) -> None:
    if what == "talk":
        talk(memory, 4, 100 * number)
    elif what == "order":
        memory.add_user_message("s", f"Where is ORD-{number}? See /srv/{number % 3}.json " * 8)
    elif what == "compress":
        memory.compress("s", target_tokens=200)
    elif what == "undo" and history(memory).history.compressions:
        memory.undo_compression("s")
    elif what == "delete":
        memory.delete_entries("s", [memory.get_entries("s")[0].id])


@settings(max_examples=examples(15))
@given(st.lists(STEPS, max_size=12))
def test_figures_equal_those_of_compare(script: list[str]) -> None:
    memory = manager(recent_window=0, min_entries_to_compress=1)
    orders(memory)
    for number, what in enumerate(["talk", "compress", *script, "talk", "compress"]):
        do(memory, what, number)
    read = history(memory)
    assert explained(read) == compared(read)
    assert len(read.compressions) > 1


@given(st.lists(TEXT.filter(bool), max_size=6), TEXT)
def test_value_in_a_replacement_must_stand_alone(values: list[str], text: str) -> None:
    found = Values().kept(values, text, set(), set())
    for value in values:
        if stands_alone(value, text):
            assert found[value] == "replacement"
        else:
            assert value not in found or value in exact_values(text)


def test_retraction_has_no_survival() -> None:
    memory = manager("It left.")
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=700)
    memory.retract("s", ["result"])
    assert len(survivals(history(memory))) == 1
