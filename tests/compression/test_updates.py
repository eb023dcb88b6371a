"""A later statement replaces an earlier one with the same key, and no other."""

from __future__ import annotations

import pytest

from memman import MemoryConfig, MemoryManager
from memman.compression.user_messages import superseded

# Rules and facts about different things, worded alike.
ALIKE = [
    ("Never delete customer rows.", "From now on never delete customer backups."),
    ("Use spaces in the api folder.", "Now use tabs in the docs folder."),
    ("The staging port is 8443.", "The test port is now 9443."),
    ("RULE: Orders of cake close at noon.", "RULE: Orders of bread now close at five."),
    ("FACT: Our flour comes from the Kern mill.", "We buy our yeast from the Lund mill now."),
    ("Ada works in Porto.", "Ben has moved to Braga."),
]


def left_of(*statements: str) -> list[str]:
    gone = superseded(("", text) for text in statements)
    return [text for number, text in enumerate(statements) if number not in gone]


def test_newer_value_of_a_label_replaces_the_older() -> None:
    assert left_of("Oven: gas", "Oven door: glass", "Oven: wood") == [
        "Oven door: glass",
        "Oven: wood",
    ]


@pytest.mark.parametrize("pair", ALIKE, ids=lambda pair: pair[0])
def test_statements_that_are_worded_alike_both_stay(pair: tuple[str, str]) -> None:
    assert left_of(*pair) == list(pair)
    memory = MemoryManager(config=MemoryConfig(max_tokens=2_000), counter="chars4")
    for number in range(40):
        said = pair[number // 20] if number % 20 == 1 else f"What is in file {number}?"
        memory.add_user_message("s", said)
        memory.add_assistant_message("s", f"File {number} reads reports and checks them. " * 6)
    assert any(entry.compressed for entry in memory.get_entries("s"))
    context = memory.get_context_for_llm("s")
    assert all(statement in str(context) for statement in pair)
