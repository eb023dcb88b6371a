"""The bill of policies, on generated sessions whose requests are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bill
from benchmarks.bill import HEAD_TOKENS, KEEP, OURS, POLICIES, SLIDE, TRIM, Bill, play
from benchmarks.policies import Memman, Plain, Trimmed, turns
from benchmarks.trajectories import Message, Trajectory
from tests.conftest import SHARED

LIMIT = 4_000


def _call(number: int) -> Message:
    function = {"name": "read", "arguments": json.dumps({"path": f"src/part_{number}.py"})}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _session(steps: int = 60) -> Trajectory:
    messages: list[Message] = [{"role": "user", "content": "Review src/part_1.py and the rest."}]
    for number in range(steps):
        text = f"Line {number} of the file is fine. " * 25
        result = {"role": "tool", "tool_call_id": f"c{number}", "content": text}
        messages += [_call(number), result]
    return Trajectory("one", [*messages, {"role": "assistant", "content": "All is well."}])


@pytest.fixture(scope="module")
def bills() -> dict[str, Bill]:
    names = (KEEP, SLIDE, TRIM, OURS)
    return {name: play(_session(), POLICIES[name], LIMIT) for name in names}


def test_turns_are_the_messages_before_each_answer() -> None:
    messages = [
        {"role": role} for role in ("user", "assistant", "tool", "tool", "assistant", "user")
    ]
    found = [(at, len(new)) for at, new, _ in turns(messages)]
    assert found == [(1, 1), (4, 2)]


def test_keeping_everything_never_breaks_the_prefix(bills: dict[str, Bill]) -> None:
    one = bills[KEEP]
    assert (one.requests, one.breaks, one.heads, one.compressions) == (61, 0, 0, 0)
    assert one.charge.read > 60 * HEAD_TOKENS
    assert one.kept.kept == one.kept.needed > 0


def test_default_breaks_the_prefix_at_compressions(bills: dict[str, Bill]) -> None:
    one = bills[OURS]
    assert one.breaks == one.compressions > 2
    assert one.heads == 0


@pytest.mark.parametrize("name", [SLIDE, TRIM])
def test_sliding_window_costs_more_than_default(bills: dict[str, Bill], name: str) -> None:
    assert bills[name].breaks > 5 * bills[OURS].breaks
    assert bills[name].charge.total < bills[KEEP].charge.total
    for provider, money in bills[OURS].money.items():
        assert bills[name].money[provider] > money


def test_trimmed_window_begins_with_no_result() -> None:
    policy = Trimmed(1_000)
    for _, new, answer in turns(_session(9).messages):
        policy.add([*new, answer], 0)
    assert policy.chosen()[0]["role"] != "tool"
    assert len(policy.chosen()) < len(policy.messages)


def test_careful_caller_marks_head_and_two_messages() -> None:
    policy = Plain()
    policy.add([{"role": "user", "content": "Hello"}], 0)
    policy.request()
    policy.add([{"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Go"}], 0)
    request: Any = policy.request()
    marked = ["cache_control" in each for each in (*request["system"], *request["messages"])]
    assert marked == [True, True, False, True]


def test_pauses_make_requests_cold() -> None:
    session = Trajectory("one", [
        {"role": "user" if at % 2 == 0 else "assistant", "content": f"Word {at}. " * 60} for at in range(80)
    ])  # fmt: skip
    one = play(session, POLICIES[OURS], LIMIT, pauses=True)
    assert one == play(session, POLICIES[OURS], LIMIT, pauses=True)
    assert 0 < one.cold < one.requests
    assert 0 < one.cold_money < one.money["Anthropic"]


def test_summaries_read_the_cached_prefix() -> None:
    one = play(_session(), lambda limit: Memman(limit, summarized=True), LIMIT)
    assert one.summaries > 0
    assert one.read_share / one.summaries > 0.9
    assert one.on_prefix < one.apart * 2


def test_answer_without_new_messages_sends_no_request() -> None:
    session = _session(3)
    messages = [*session.messages, {"role": "assistant", "content": "Done."}]
    assert play(Trajectory("two", messages), POLICIES[OURS], LIMIT).requests == 4


def test_trace_has_the_requests_around_compressions(bills: dict[str, Bill]) -> None:
    steps = bill.trace(_session(), POLICIES[OURS], LIMIT)
    assert [one.at for one in steps] == list(range(1, 62))
    assert sum(one.broken for one in steps) == bills[OURS].breaks
    assert sum(one.money for one in steps) == pytest.approx(bills[OURS].money["Anthropic"])
    assert bill.traced(_session(), LIMIT).count("after a compression") == bills[OURS].breaks


def test_command_without_recordings_returns_2(tmp_path: Path) -> None:
    assert bill.main(["--folder", str(tmp_path)]) == 2


@pytest.mark.shared
def test_short_bill_holds_its_goals(capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--folder", str(SHARED)]
    assert bill.main([*folder, "--quick", "--grid", "--sessions", "1"]) == 0
    assert "breaks without a compression" in capsys.readouterr().out
