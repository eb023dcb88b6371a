"""The measures of `benchmarks.memory`, on conversations whose contents are known."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from benchmarks import ablations, compactions, instructions, memory, surroundings
from benchmarks.ablations import ABLATIONS, Data, difference
from benchmarks.reader import with_paths
from benchmarks.trajectories import Message, Trajectory, half_of, is_in
from tests.conftest import SHARED


def _said(text: str, role: str = "user") -> Message:
    return {"role": role, "content": text}


def _called(number: int, path: str) -> list[Message]:
    function = {"name": "read", "arguments": f'{{"path": "{path}"}}'}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"text of {path}"},
    ]


def _compacted() -> Trajectory:
    summary = (
        "This session is being continued from a previous conversation. Summary:\n"
        "- The gate lease expired because the clock drifted backwards.\n- Short.\n"
        "```\ncode stays out of this\n```\n"
        "Please continue the conversation."
    )
    turns = [
        message
        for number in range(15)
        for message in (
            _said(f"Look at part {number} of the gate module."),
            *_called(number, f"src/gate_{number}.py"),
            _said(f"Part {number} holds the queue lock for longer than needed.", "assistant"),
        )
    ]
    answer = "The gate lease expired because the clock drifted backwards."
    return Trajectory("s1", [*turns, _said(answer, "assistant"), _said(summary)], "ann/gate x")


def test_case_is_what_was_said_before_a_compaction() -> None:
    session = _compacted()
    [case] = compactions.cases([session])
    assert (case.session, len(case.messages)) == ("s1", len(session.messages) - 1)
    assert compactions._sentences(case.summary) == [
        "The gate lease expired because the clock drifted backwards."
    ]
    typed, ends = compactions._turns(case.messages)
    assert typed[0] == "Look at part 0 of the gate module."
    assert ends[-1].startswith("The gate lease expired")
    early = Trajectory("s2", session.messages[-3:], "")
    assert not list(compactions.cases([early]))


def test_figures_are_one_for_everything_and_zero_for_nothing() -> None:
    [case] = compactions.cases([_compacted()])
    text = "\n".join(map(compactions.text_of, case.messages))
    whole = compactions.figures(case, text, "two words\n- 12 | 4")
    assert (whole.agreement, whole.sentences, whole.short, whole.all) == (1, 1, 1, 1)
    assert (whole.conclusions, whole.wordless) == (1, 0.5)
    none = compactions.figures(case, "", "")
    assert (none.agreement, none.sentences, none.short, none.wordless) == (0, 0, 0, 1)


def test_compressions_of_a_case_are_of_the_product() -> None:
    [case] = compactions.cases([_compacted()])
    for times in (1, 10):
        found = compactions.measured(case, times)
        assert found.agreement == found.sentences == 1
        assert found.size < 2
    assert compactions.means([found, found])["short"] == found.short


def test_statements_stand_between_recorded_exchanges() -> None:
    session = Trajectory("s1", [_said("prompt", "system"), *_compacted().messages], "ann/gate x")
    exchanges = surroundings._exchanges(session.messages)
    around = surroundings.Surroundings("ann/gate", tuple(exchanges))
    messages, stated = surroundings.conversation(around, 1)
    assert (messages, stated) == surroundings.conversation(around, 1)
    assert {one.kind for one in stated} == {*surroundings.KINDS}
    ids = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert len(ids) == len(set(ids))
    for one in stated:
        [place] = [at for at, each in enumerate(messages) if one.value in str(each["content"])]
        assert messages[place]["role"] == ("assistant" if one.kind == "finding" else "user")
        assert place < 0.7 * len(messages)
    texts, used = surroundings.played_at(messages, 1_000_000)
    text = "\n".join(texts)
    assert all(one.value in text for one in stated)
    assert used == []
    assert surroundings.played_at(messages, 4_000)[1]


def test_repository_is_of_the_task_or_of_the_source() -> None:
    task = "SWE-agent/SWE-agent demo/replay__marshmallow-code__marshmallow-1867__default/x.traj"
    assert Trajectory("a", [], task).repository == "marshmallow-code/marshmallow"
    assert Trajectory("a", [], "entireio/cli branch x").repository == "entireio/cli"


def test_half_of_a_conversation_is_by_its_id() -> None:
    names = [f"session {number}" for number in range(100)]
    halves = [half_of(name) for name in names]
    assert 30 < halves.count("tune") < 70
    for name, half in zip(names, halves, strict=True):
        assert [is_in(each, name) for each in ("both", half)] == [True, True]
        assert not is_in({"tune": "test", "test": "tune"}[half], name)


def test_instruction_is_put_at_each_place() -> None:
    texts = ["one", "two", "three", "four"]
    said = [each for text in texts for each in (_said(text), _said("Yes.", "assistant"))]
    session = instructions.Session("s", tuple(said))
    found = {
        place: [
            message["content"]
            for message in instructions.with_instruction(session, place, "RULE")
            if message["role"] == "user"
        ]
        for place in instructions.PLACES
    }
    assert found == {
        "first": ["one", "RULE", "two", "three", "four"],
        "first, appended": ["one\n\nRULE", "two", "three", "four"],
        "middle": ["one", "two", "RULE", "three", "four"],
        "middle, appended": ["one", "two", "three\n\nRULE", "four"],
    }
    assert instructions.is_kept(session, "first", "RULE")


def test_instructions_are_read_without_importing_the_package() -> None:
    if find_spec("conpact") is None:
        pytest.skip("needs conpact: run `uv sync --group bench-kits`")
    assert len(instructions.instructions()) == 15
    assert "conpact" not in sys.modules


def test_missing_package_of_instructions_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "_PACKAGE", "no_such_package")
    text, goals = memory.compint(Data(Path(), "both", quick=True))
    assert "skipped: No module named 'no_such_package'" in text
    assert goals == []


def test_reader_joins_paths_of_a_directory() -> None:
    assert with_paths("- src/{a.py,b.py} x").splitlines()[1:] == ["src/a.py", "src/b.py"]


def test_everything_that_an_ablation_replaces_exists() -> None:
    for patches in ABLATIONS.values():
        for target, attribute, other in patches:
            before = getattr(target, attribute)
            with patch.object(target, attribute, other):
                assert getattr(target, attribute) is other
            assert getattr(target, attribute) is before


def test_ablation_changes_the_outline_and_is_undone() -> None:
    [case] = compactions.cases([_compacted()])

    def agreed(_data: Data) -> dict[str, list[float]]:
        return {"size": [compactions.measured(case).size]}

    data = Data(Path(), "both", quick=True)
    with patch.object(ablations, "MEASURES", (agreed,)):
        whole = ablations.units_of("", 0, data)
        without = [ablations.units_of(name, 0, data) for name in ABLATIONS]
        assert any(one != whole for one in without)
        assert ablations.units_of("", 0, data) == whole
        shown, _ = ablations.run(["share of steps"], data, 1)
    assert "without: share of steps" in shown


def test_fall_counts_if_it_is_more_than_noise() -> None:
    assert difference([1.0] * 9, [0.5] * 9).loses
    assert not difference([1.0, 0.5] * 9, [0.5, 1.0] * 9).loses
    assert difference([0.5] * 9, [1.0] * 9).gains
    assert str(difference([1.0] * 9, [0.5] * 9)) == "-0.500*"


def test_command_without_conversations_reports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert memory.main(["--folder", str(tmp_path)]) == 2
    assert "no recorded conversations" in capsys.readouterr().err


def test_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        memory.main(["--parts", "agreement,nothing"])
    assert "no such part: nothing" in capsys.readouterr().err


@pytest.mark.shared
def test_recorded_compactions_are_measured_in_halves() -> None:
    sizes: dict[str, int] = {}
    for half in ("both", "tune", "test"):
        data = Data(SHARED, half, quick=True)
        sizes[half] = len(list(compactions.cases(data.sessions)))
    assert sizes["both"] == sizes["tune"] + sizes["test"] == 44


@pytest.mark.shared
def test_statements_are_in_conversations_of_five_repositories() -> None:
    data = Data(SHARED, "both", quick=True)
    found: list[Any] = surroundings.surroundings(data.sessions, data.folder)
    assert len(found) >= 5
