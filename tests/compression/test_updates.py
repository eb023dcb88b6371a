"""Updates: a later statement replaces an earlier one about the same thing, and no other."""

from __future__ import annotations

import pytest

from memman.compression.updates import is_update, superseded
from memman.compression.words import words_of


def left_of(*statements: str) -> list[str]:
    gone = superseded(statements, [words_of(text) for text in statements])
    return [text for number, text in enumerate(statements) if number not in gone]


@pytest.mark.parametrize(
    "text",
    [
        "The bakery moved to Hill Street.",
        "Das Treffen ist jetzt dienstags.",
        "La reunión ahora es el martes.",
        "Отныне отчёты пишет Ада.",
        "\u4ece\u73b0\u5728\u8d77\u7528\u82f1\u6587\u5199\u3002",
    ],
)
def test_update_is_recognised_in_its_language(text: str) -> None:
    assert is_update(text)
    assert not is_update("The oven has two doors.")


def test_newer_value_of_a_label_replaces_the_older() -> None:
    assert left_of("Oven: gas", "Oven door: glass", "Oven: wood") == [
        "Oven door: glass",
        "Oven: wood",
    ]


def test_newer_number_in_the_same_words_replaces_the_older() -> None:
    assert left_of("Bake it for 35 minutes.", "Stir it.", "Bake it for 45 minutes.") == [
        "Stir it.",
        "Bake it for 45 minutes.",
    ]


def test_update_replaces_the_likeliest_statement_only() -> None:
    flour, yeast = "FACT: Our flour comes from the Kern mill.", "FACT: Our yeast is dry."
    update = "We buy our flour from the Lund mill now."
    assert left_of(flour, yeast, update) == [yeast, update]


def test_update_of_something_else_replaces_nothing() -> None:
    said = ["FACT: Our yeast is dry.", "The van is repaired now.", "I sleep better now."]
    assert left_of(*said) == said


def test_two_updates_replace_two_statements() -> None:
    said = ["RULE: Orders of cake close at noon.", "RULE: Orders of bread close at five."]
    updates = ["Cake orders now close at ten.", "Bread orders now close at six."]
    assert left_of(*said, *updates) == updates
