"""The agent loops keep their promises, and a broken one is counted."""

from __future__ import annotations

import pytest

from benchmarks import agent_loops
from memman import Context, MemoryManager


@pytest.mark.long
def test_quick_loops_keep_their_promises(capsys: pytest.CaptureFixture[str]) -> None:
    assert agent_loops.main(["--quick"]) == 0
    printed = capsys.readouterr().out
    assert all(loop.name in printed for loop in agent_loops.LOOPS)


def test_lost_question_and_invalid_context_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Context.messages.fget
    assert whole is not None
    monkeypatch.setattr(Context, "messages", property(lambda context: whole(context)[1:]))
    outcome = agent_loops.measure(3, agent_loops.LOOPS[:1])["final answer"]
    assert outcome.unasked
    assert outcome.invalid
    assert outcome.failed


def test_refusals_are_counted() -> None:
    def pinned(memory: MemoryManager, turn: int) -> None:
        memory.add_user_message("loop", "word " * 300, pinned=True)

    [outcome] = agent_loops.measure(2, [agent_loops.Loop("pinned", pinned, 100)]).values()
    assert outcome.refusals == 14
    assert outcome.failed
