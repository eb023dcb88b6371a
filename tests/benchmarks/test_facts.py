"""The rows next to the digest: extracts by sumy if it is installed, a note otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import facts
from benchmarks.peers import sumy
from tests.conftest import SHARED


def test_lines_and_clauses_of_long_sentences_are_sentences() -> None:
    assert sumy.sentences_of("One. Two!\n\nThree, four\n--\n") == ["One.", "Two!", "Three, four"]
    clauses = ", ".join(f"clause number {number}" for number in range(30))
    assert sumy.sentences_of(clauses)[:2] == ["clause number 0,", "clause number 1,"]


def test_the_best_rated_sentences_are_taken_while_they_fit() -> None:
    class Rated(str):
        sentence = property(str)

    room = sumy._Room(12, len)
    taken = room([Rated("best one"), Rated("too long"), Rated("ok")])
    assert taken == ["best one", "ok"]


def test_missing_sumy_is_noted_and_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> dict[str, sumy.Extract]:
        raise ModuleNotFoundError("No module named 'sumy'", name="sumy")

    monkeypatch.setattr(sumy, "load", missing)
    assert list(facts.methods()) == ["digest", "head truncation", "heuristic text"]
    assert "sumy is skipped: No module named 'sumy'" in facts.left_out()


def test_what_is_minutes_for_a_case_is_not_measured_on_long_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def scripted(text: str, most: int, count: sumy.Count) -> str:
        return text[: 2 * most]

    monkeypatch.setattr(sumy, "load", lambda: {"SumBasic": scripted, "Luhn": scripted})
    monkeypatch.setattr(facts, "version", lambda _package: "1.0")
    assert list(facts.methods())[3:] == ["sumy 1.0 SumBasic", "sumy 1.0 Luhn"]
    assert list(facts.methods(long=True))[3:] == ["sumy 1.0 Luhn"]
    assert "SumBasic" in facts.left_out()


def test_command_without_conversations_reports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert facts.main(["--folder", str(tmp_path)]) == 2
    assert "no recorded conversations" in capsys.readouterr().err


@pytest.mark.shared
def test_digest_keeps_more_facts_than_its_peers() -> None:
    cases = list(facts.tau_cases(SHARED))[::4]
    kept = {name: facts.recall(cases, method, 0.1).kept for name, method in facts.METHODS.items()}
    assert kept["digest"] > 0.65
    assert kept["digest"] > 2 * max(kept["head truncation"], kept["heuristic text"])
