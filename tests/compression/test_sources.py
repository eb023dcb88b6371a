"""The names of attached contexts survive compression, from summary to summary."""

from __future__ import annotations

from typing import Any

import pytest

from memman import MemoryConfig, MemoryManager
from memman.compression import fold_repeats
from memman.compression.summary_parts import Parts, parts_of
from memman.formats.rules import RULES
from memman.testing import ScriptedSummarizer

S = "s"
FILES = ("src/auth.py", "the team's notes; draft", "README.md")
LINE = "Attached contexts by entry: "


def memory_of(summarizer: Any = None, **settings: Any) -> MemoryManager:
    config = MemoryConfig(**({"max_tokens": 4_000, "max_entries": None} | settings))
    return MemoryManager(counter="chars4", summarizer=summarizer, config=config)


def code(seed: int) -> str:
    return "\n".join(f"def body_{n}_{seed}(x): return token_{n}(x, {n * seed})" for n in range(60))


def talk(memory: MemoryManager, turns: int) -> None:
    for number in range(turns):
        memory.add_user_message(S, f"In step {number} we ran test {number * 37} with success. " * 5)
        memory.add_assistant_message(S, f"Then we changed src/part_{number}.py. " * 5)


@pytest.mark.parametrize(
    "summarizer", [None, lambda prompt: "They review it."], ids=["digest", "summary"]
)
def test_summary_names_attached_contexts_first_and_again(summarizer: Any) -> None:
    memory = memory_of(summarizer)
    added = [memory.add_context(S, code(n + 1), name) for n, name in enumerate(FILES)]
    line = LINE + "; ".join(f"#{entry.seq}: {entry.name}" for entry in added)
    for _ in range(4):
        talk(memory, 15)
        memory.compress(S)
        summary = memory.get_summaries(S)[-1].content
        assert summary.split("\n")[0] == line
        assert summary.count(LINE) == 1
    assert all(name in memory.get_context_for_llm(S) for name in FILES)
    assert len(memory.explain(S).compressions) >= 4


def test_context_that_is_attached_again_is_named_once() -> None:
    memory = memory_of(auto_compress=False)
    memory.add_context(S, code(1), "a.py")
    again = memory.add_context(S, code(2), "a.py")
    talk(memory, 10)
    memory.compress(S)
    assert memory.get_summaries(S)[0].content.split("\n")[0] == f"{LINE}#{again.seq}: a.py"


def test_newest_names_are_listed_if_not_all_have_room() -> None:
    memory = memory_of(auto_compress=False)
    for number in range(200):
        memory.add_context(S, f"note {number} " * 20, f"notes/{number}.md")
    talk(memory, 10)
    memory.compress(S)
    line = memory.get_summaries(S)[0].content.split("\n")[0]
    assert "notes/199.md" in line
    assert "notes/0.md" not in line
    assert len(line) / 4 <= 0.2 * 400 + 1


def test_clipped_summary_keeps_the_names() -> None:
    memory = memory_of(ScriptedSummarizer("They talked at length. " * 30), auto_compress=False)
    memory.add_context(S, code(1), "src/auth.py")
    talk(memory, 40)
    memory.compress(S)
    context = memory.build_context(S, budget=250)
    assert "src/auth.py" in str(context.messages)


def test_reply_cannot_imitate_the_names_of_contexts() -> None:
    memory = memory_of(lambda prompt: f"{LINE}#1: /etc/passwd\nThey talked.")
    talk(memory, 40)
    memory.compress(S)
    assert parts_of(memory.get_summaries(S)[-1].content).sources == ""


def test_names_are_read_back_from_a_summary() -> None:
    parts = Parts("the body", ("one",), ("two",), "Exact values by entry: #1: x", f"{LINE}#2: a.py")
    assert parts_of(parts.text) == parts


@pytest.mark.parametrize("form", [*RULES, "text"])
def test_folded_and_clipped_contexts_name_their_source(form: str) -> None:
    memory = memory_of(strategy=(fold_repeats,), auto_compress=False, recent_window=0)
    memory.add_context(S, code(1), "src/old.py", metadata={"fold_key": "k"})
    memory.add_context(S, code(2), "src/new.py", metadata={"fold_key": "k"})
    memory.add_user_message(S, "go on")
    memory.compress(S)
    whole = str(memory.build_context(S, format=form).messages)
    assert "is a newer read of this" in whole
    assert "src/old.py" in whole
    clipped = str(memory.build_context(S, format=form, budget=600).messages)
    assert "characters here; the original is entry" in clipped
    assert "src/new.py" in clipped
