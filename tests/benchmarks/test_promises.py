"""The programs that prove the promises pass on real logs and find seeded faults."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import goals, imports, replay
from benchmarks.goals import Goal, any_failed
from benchmarks.real import ROOMY, broken, run
from benchmarks.seeded import blind_spots
from benchmarks.trajectories import Trajectory, demo_trajectory, read_trajectories
from memman import Context, MemoryManager
from tests.conftest import SHARED
from tests.examples import examples

FEW = 3 + examples(9)  # 12 in CI
SHORT = Trajectory("the first messages of the demo", demo_trajectory().messages[:60])


@pytest.mark.long
def test_the_promises_hold_on_the_bundled_conversation() -> None:
    outcomes = run([demo_trajectory()])
    assert not broken(outcomes)
    assert sum(outcome.compressions for outcome in outcomes) > 5


@pytest.mark.shared
def test_the_promises_hold_on_recorded_conversations() -> None:
    recorded = read_trajectories(SHARED / "fixture_trajectories.jsonl.gz", FEW)
    outcomes = run(recorded, budgets=(4_000, ROOMY))
    assert len(outcomes) == 2 * FEW
    assert not broken(outcomes)


def test_every_rule_sees_its_seeded_bad_request() -> None:
    assert blind_spots() == []


def test_a_message_that_is_dropped_from_a_context_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Context.messages.fget
    assert whole is not None
    monkeypatch.setattr(Context, "messages", property(lambda context: whole(context)[1:]))
    assert broken(run([SHORT], budgets=(ROOMY,)))


def test_an_entry_that_is_not_in_the_log_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    add = MemoryManager.add_messages

    def forgetful(memory: MemoryManager, session_id: str, messages: Any, *rest: Any) -> Any:
        if "OPS-4131" in str(messages):
            return []
        return add(memory, session_id, messages, *rest)

    monkeypatch.setattr(MemoryManager, "add_messages", forgetful)
    assert any("OPS-4131" in str(message) for message in SHORT.messages)
    outcome = replay.replay(SHORT, ROOMY, None)
    assert outcome.missing


def test_unexplained_compression_above_target_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("memman.session.run.why_short", lambda *_: "")
    outcome = replay.replay(SHORT, 600, None)
    assert outcome.unexplained


@pytest.mark.long
def test_importing_memman_loads_nothing_heavy() -> None:
    assert imports.measure().loaded == ()


def test_goal_fails_beyond_its_noise_and_its_bound() -> None:
    assert not any_failed([Goal("met", 1.0, 1.0), Goal("within noise", 1.05, 1.0, noise=0.1)])
    assert any_failed([Goal("missed", 1.2, 1.0, noise=0.1)])
    held = Goal("not reached yet", 1.6, 1.25, noise=0.1, held=2.0)
    assert not any_failed([held])
    assert held.verdict.startswith("missed")
    assert any_failed([Goal("lost again", 2.3, 1.25, noise=0.1, held=2.0)])


def test_slow_machine_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goals, "slowness", lambda: 2.0)
    assert not any_failed([Goal("a time", 1.9, 1.0, unit="ms")])
    assert any_failed([Goal("a time", 2.1, 1.0, unit="ms")])
    assert any_failed([Goal("a ratio", 1.9, 1.0, unit="x")])
