"""The measure of needed values, on conversations whose values are known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import needed
from benchmarks.needed import Moment, Request, Score
from benchmarks.peers import langmem
from benchmarks.trajectories import Message, Trajectory
from tests.conftest import SHARED


def _call(name: str, **arguments: Any) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "c1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _said(text: str, role: str = "user") -> Message:
    return {"role": role, "content": text}


def _long_session() -> Trajectory:
    filler = "Nothing of note happened in this step of the work. " * 16
    result = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
    start = [_said("Work on src/gate.py for ticket OPS-4131."), _said("Will do.", "assistant")]
    middle = [_said(f"{number}. {filler}") for number in range(30)]
    calls = [_call("read", path="src/gate.py"), result, _call("close", ticket="OPS-4131")]
    return Trajectory("one", [*start, *middle, *calls])


def test_values_are_short_strings_with_a_mark() -> None:
    call = _call("f", path="src/a.py", deep=[{"id": "X-1 "}], word="plain", n=12345, tiny="a/b")
    assert needed.values_of(call) == {"src/a.py", "X-1 "}
    broken = {"tool_calls": [{"function": {"name": "f", "arguments": '{"path": "src/'}}]}
    assert needed.values_of(broken) == set()
    assert needed.values_of(_call("f", text="1" * 121)) == set()


def test_value_is_needed_if_said_before() -> None:
    messages = [
        _said("Read src/a.py."),
        _call("read", path="src/a.py", other="src/b.py"),
        _said("Now src/b.py"),
        _call("read", path="src/c.py"),
        _call("read", path="src/b.py"),
    ]
    assert needed.moments(messages) == [
        Moment(1, frozenset({"src/a.py"}), frozenset({"src/a.py"})),
        Moment(4, frozenset({"src/b.py"})),
    ]


def test_window_starts_at_the_first_message_that_fits() -> None:
    assert needed.window_start([10, 20, 30], 3, 50) == 1
    assert needed.window_start([10, 20, 30], 3, 49) == 2
    assert needed.window_start([10, 20, 30], 3, 60) == 0
    assert needed.window_start([10, 20, 30], 3, 5) == 3


def test_score_counts_old_values_apart() -> None:
    moment = Moment(9, frozenset({"src/a.py", "src/b.py", "OPS-1"}), frozenset({"OPS-1"}))
    found = needed.score(moment, "src/a.py", Request("src/a.py OPS-1", 12))
    assert found == Score(
        requests=1, needed=3, kept=2, old=2, old_kept=1, tokens=12, first=1, first_kept=1
    )
    assert found + found == Score(2, 6, 4, 4, 2, 24, 2, 2)


def test_window_has_no_old_value_and_a_whole_session_all() -> None:
    def everything(
        messages: Sequence[Message], at: Sequence[Moment], _budget: int
    ) -> Iterator[Request]:
        for moment in at:
            yield needed.request_of(messages[: moment.at])

    session = _long_session()
    at = needed.moments(session.messages)
    texts = [needed.text_of(message) for message in session.messages]
    sizes = list(map(needed.size_of, texts))
    for system, kept in ((needed.sliding_window, 0), (everything, 2)):
        total = Score()
        for moment, request in zip(at, system(session.messages, at, 1_000), strict=True):
            near = "\n".join(texts[needed.window_start(sizes, moment.at, 1_000) : moment.at])
            total += needed.score(moment, near, request)
        assert (total.requests, total.needed, total.old) == (2, 2, 2)
        assert (total.kept, total.old_kept) == (kept, kept)


def test_memman_is_measured_within_its_budget() -> None:
    played = needed.play(_long_session(), [1_000, 100_000], ["memman", "sliding window"])
    assert played.kind == "coding"
    assert {key: one.requests for key, one in played.scores.items()} == {
        (1_000, "memman"): 2,
        (1_000, "sliding window"): 2,
    }
    assert 0 < played.scores[1_000, "memman"].tokens <= 2 * 1_000


def test_sums_are_by_kind_and_aims_by_budget() -> None:
    one = Score(requests=1, needed=10, kept=9, old=4, old_kept=3, tokens=100)
    played = [
        needed.Played("coding", {(4_000, "memman"): one}),
        needed.Played("coding", {(4_000, "memman"): one}),
        needed.Played("tau-bench", {(4_000, "memman"): one}),
    ]
    found = needed.sums(played)
    assert found["coding", 4_000, "memman"] == (2, one + one)
    assert next(row[1:] for row in needed.rows(found)) == [2, 2, 20, 0.9, 8, 0.75, 0, 0.0, 100]
    goals = needed.goals(found)
    assert [goal.measured for goal in goals] == pytest.approx([0.25, 0.1])
    assert [goal.met for goal in goals] == [True, False]


def test_missing_langmem_is_noted_and_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> type[langmem.Summaries]:
        raise ModuleNotFoundError("No module named 'langmem'", name="langmem")

    monkeypatch.setattr(langmem, "load_summaries", missing)
    found, notes = needed._available(["memman", "langmem"])
    assert found == ["memman"]
    assert notes == ["note: langmem is skipped: No module named 'langmem'"]


def test_command_without_conversations_reports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert needed.main(["--folder", str(tmp_path)]) == 2
    assert "no recorded conversations" in capsys.readouterr().err


@pytest.mark.shared
def test_needed_values_of_recorded_sessions_are_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = ["--every", "60", "--budgets", "4000", "--systems", "memman; sliding window"]
    assert needed.main(["--folder", str(SHARED), *few, "--jobs", "1"]) in (0, 1)
    printed = capsys.readouterr().out
    assert "coding, 4,000: sliding window" in printed
    assert "4,000: old needed values lost" in printed
