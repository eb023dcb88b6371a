"""Exact values come before longer ones that contain them."""

from __future__ import annotations

import pytest

from memman import MemoryManager

VALUES = ("host-17", "src/gate.py", "4131", "build_117", "10.0.0.7", "v2.3")
WORDINGS = ("{}", "Which {} was it?", "What did I say about {} and why?", "{} please")


def longer(value: str, number: int) -> str:
    return (f"x{value}{number}", f"{value}{number}", f"{number}{value}x")[number % 3]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("length", [1, 400, 20_000])
@pytest.mark.parametrize("value", VALUES)
def test_whole_value_is_first(value, length, stored, tmp_path):
    with MemoryManager(tmp_path / "chat.db" if stored else None) as memory:
        for number in range(60):
            told = " ".join([f"it was {longer(value, number)}"] * (1 + number % 9))
            memory.add_user_message("s", told)
            if number == 20:
                memory.add_user_message(
                    "s", f"it was {value} " + "of the rest " * length, id="whole"
                )
        for wording in WORDINGS:
            assert memory.search("s", wording.format(value), limit=1)[0].entry.id == "whole", (
                wording
            )


@pytest.mark.parametrize("stored", [False, True])
def test_search_is_the_same_whatever_another_session_has(stored, tmp_path):
    hostile = "".join(chr(0xE000 + number) for number in range(500))
    with MemoryManager(tmp_path / "chat.db" if stored else None) as memory:
        memory.add_user_message("mine", "the code of the safe is 4711")
        memory.add_user_message("mine", "nothing else")
        before = [(hit.entry.id, hit.score) for hit in memory.search("mine", "code of the safe")]
        for number in range(300):
            memory.add_user_message("other", f"code of the safe {hostile} {number}")
        after = [(hit.entry.id, hit.score) for hit in memory.search("mine", "code of the safe")]
        assert after == before
