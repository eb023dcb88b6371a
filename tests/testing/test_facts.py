"""`survival` lists the facts that are still in the context."""

from __future__ import annotations

import asyncio

import pytest

from memman import AsyncMemoryManager, MemoryConfig, MemoryManager, SessionNotFound
from memman.testing import Survival, survival

FACTS = ("ORD-8841", "/srv/app/config.toml", "the brown one")


def conversation() -> MemoryManager:
    memory = MemoryManager(config=MemoryConfig(auto_compress=False, recent_window=2))
    memory.add_user_message("s", "I ordered the brown one, ORD-8841.")
    memory.add_assistant_message("s", "It is set in /srv/app/config.toml here.")
    return memory


def test_all_facts_of_an_uncompressed_session_are_kept() -> None:
    assert survival(conversation(), "s", FACTS) == Survival(kept=FACTS, lost=())


def test_a_fact_that_a_compression_took_out_is_lost() -> None:
    memory = conversation()
    for number in range(30):
        memory.add_user_message("s", f"{number} " + "please go on " * 20)
    memory.update_config(strategy="token_buffer")  # this one drops, without a digest
    memory.compress("s", target_tokens=400)
    result = survival(memory, "s", [*FACTS, "please go on"])
    assert (result.kept, result.lost) == (("please go on",), FACTS)
    assert result.ratio == 0.25


@pytest.mark.parametrize(("fact", "found"), [("8841", True), ("884", False), ("8841.", True)])
def test_a_part_of_a_longer_number_is_not_the_fact(fact: str, found: bool) -> None:
    assert survival(conversation(), "s", [fact]).ratio == found


def test_fact_in_a_script_without_spaces_is_found() -> None:
    memory = MemoryManager()
    memory.add_user_message("s", "注文番号ORD-8841の配送状況")
    assert survival(memory, "s", ["配送", "ORD-8841", "倉庫"]).lost == ("倉庫",)


def test_without_facts_nothing_is_lost() -> None:
    assert survival(conversation(), "s", []).ratio == 1.0


def test_survival_accepts_the_async_manager() -> None:
    memory = AsyncMemoryManager()
    memory_of_words = MemoryManager()
    memory_of_words.add_user_message("s", "ORD-8841")
    state = memory_of_words.export_session("s")
    asyncio.run(memory.import_session(state))
    assert survival(memory, "s", ["ORD-8841", "zebra"]).kept == ("ORD-8841",)


def test_a_session_that_is_not_there_has_no_facts() -> None:
    with pytest.raises(SessionNotFound):
        survival(MemoryManager(), "nobody", FACTS)
