"""The largest parts of a window by tool, source and entry, with one line of advice."""

from __future__ import annotations

import pytest

from memman import MemoryConfig, MemoryManager
from memman.explain.shares import Shares


def manager(**settings: object) -> MemoryManager:
    return MemoryManager(
        counter="chars4", config=MemoryConfig(max_tokens=10_000, auto_compress=False, **settings)
    )


def shares(memory: MemoryManager) -> Shares:
    return memory.explain("s").shares


def read(memory: MemoryManager, name: str, characters: int, call_id: str) -> None:
    memory.add_tool_call("s", name, "{}", call_id=call_id)
    memory.add_messages(
        "s", [{"role": "tool", "tool_call_id": call_id, "content": "x" * characters}]
    )


def test_tokens_are_summed_by_tool_and_source() -> None:
    memory = manager()
    memory.add_context("s", "y" * 400, "notes.md")
    memory.add_context("s", "y" * 200, "notes.md")
    memory.add_context("s", "y" * 800, "plan.md")
    for number in range(3):
        read(memory, "read_file", 400, f"r{number}")
    read(memory, "grep", 40, "g")
    found = shares(memory)
    entries = memory.get_active_entries("s")
    assert found.tokens == sum(entry.token_count.tokens for entry in entries)
    assert [(tool.name, tool.entries) for tool in found.tools] == [("read_file", 6), ("grep", 2)]
    calls = [e.token_count.tokens for e in entries if e.type == "tool_call" and e.name == "grep"]
    assert found.tools[1].tokens == 10 + sum(calls)
    assert [(source.name, source.tokens) for source in found.sources] == [
        ("plan.md", 200),
        ("notes.md", 150),
    ]


def test_ten_largest_entries_come_first() -> None:
    memory = manager()
    for number in range(15):
        memory.add_user_message("s", "word " * (number + 1))
    found = shares(memory)
    newest = list(reversed(memory.get_entries("s")))[:10]
    assert [each.entry_id for each in found.largest] == [entry.id for entry in newest]
    assert [each.tokens for each in found.largest] == [e.token_count.tokens for e in newest]
    assert found.largest[0].address == newest[0].address
    assert found.largest[0].text.startswith("word word")


def test_replaced_entries_count_as_their_replacements() -> None:
    memory = manager()
    for number in range(20):
        read(memory, "read_file", 800, f"r{number}")
        memory.add_user_message("s", "go on")
    before = shares(memory).tools[0]
    memory.compress("s", target_tokens=2_500)
    found = shares(memory)
    assert found.tools[0].tokens < before.tokens
    assert found.tokens == memory.get_stats("s").active_tokens


@pytest.mark.parametrize(
    ("fill", "start"),
    [
        ("tool", "`read_file` holds "),
        ("source", "The source `notes.md` holds "),
        ("entry", "{largest} alone holds "),
        ("pinned", "Pinned entries hold "),
        ("even", "No tool, source or single entry holds "),
    ],
)
def test_advice_names_the_largest_part(fill: str, start: str) -> None:
    memory = manager()
    for number in range(8):
        memory.add_user_message("s", "a question " * 10, pinned=fill == "pinned")
        if fill == "tool":
            read(memory, "read_file", 400, f"r{number}")
        elif fill == "source":
            memory.add_context("s", "y" * 400, "notes.md")
    if fill == "entry":
        memory.add_user_message("s", "z" * 4_000)
    found = shares(memory)
    assert found.advice.startswith(start.format(largest=found.largest[0].address))


def test_explanation_has_the_shares() -> None:
    memory = manager()
    memory.add_context("s", "y" * 400, "notes.md")
    read(memory, "read_file", 400, "r")
    lines = str(memory.explain("s")).splitlines()
    assert lines[-4].startswith("tools: read_file 1")
    assert lines[-3] == "sources: notes.md 100"
    assert lines[-2].startswith("largest entries: #")
    assert lines[-1].startswith("advice: ")
    memory.clear_session("s")
    memory.add_user_message("s", "")
    assert shares(memory).tokens == 0
    assert shares(memory).advice == ""
