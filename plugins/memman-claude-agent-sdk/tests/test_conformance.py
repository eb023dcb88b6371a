"""The SDK's own contracts of session stores, which take the place of `AdapterConformance`.

Claude Code itself makes the requests and chooses their models; the store only gets its transcripts. So the
laws about requests, budgets and models that take turns do not apply.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest
from claude_agent_sdk.testing import run_session_store_conformance
from memman_claude_agent_sdk import MemmanSessionStore

from memman import MemoryManager


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_contracts_hold_in_memory(backend: str) -> None:
    make = partial(run_session_store_conformance, lambda: MemmanSessionStore(MemoryManager()))
    anyio.run(make, backend=backend)


def test_contracts_hold_in_a_file(tmp_path: Path) -> None:
    numbers = iter(range(100))

    def make() -> MemmanSessionStore:
        return MemmanSessionStore(MemoryManager(tmp_path / f"{next(numbers)}.db"))

    anyio.run(run_session_store_conformance, make)
