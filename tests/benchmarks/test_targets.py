"""The figures of `benchmarks.targets` for any system that trims a list of messages."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from benchmarks.targets import Trimmed, _beside
from benchmarks.trajectories import Trajectory

CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
TALK = Trajectory(
    "talk",
    [
        {"role": "user", "content": "words " * 400},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "words " * 400},
        {"role": "assistant", "content": "There it is."},
    ],
)


def counts_of(trim: Any, budget: int) -> dict[str, dict[str, int]]:
    trimmed = Trimmed()
    trimmed.run(TALK, budget, {"trim": trim})
    return {name: dict(counts) for (_, name), counts in trimmed.counts.items()}


def test_orphan_results_are_found_and_memman_has_none() -> None:
    counts = counts_of(lambda messages, _: messages[-2:], 700)
    assert counts["trim"]["invalid"] == 1  # of the whole; the previous piece ends in a call
    assert counts["memman"].get("invalid", 0) == 0


def test_request_without_a_message_logs_nothing() -> None:
    assert counts_of(lambda *_: [], 700)["trim"]["nothing left"] >= 1


def test_what_is_within_the_budget_is_not_looked_at() -> None:
    assert counts_of(lambda *_: [], 100_000) == {}


def test_missing_peer_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core.messages", None)
    assert _beside([TALK]).startswith("skipped: trim_messages of langchain-core: ")
