"""Replacements of an attached context name it."""

from __future__ import annotations

from typing import Any

import pytest

from memman import MemoryConfig, MemoryManager
from memman.compression import fold_repeats
from memman.formats.rules import RULES

S = "s"


def memory_of(**settings: Any) -> MemoryManager:
    config = MemoryConfig(**({"max_tokens": 4_000, "max_entries": None} | settings))
    return MemoryManager(counter="chars4", config=config)


def code(seed: int) -> str:
    return "\n".join(f"def body_{n}_{seed}(x): return token_{n}(x, {n * seed})" for n in range(60))


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
