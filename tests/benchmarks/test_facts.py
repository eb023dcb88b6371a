"""The rows next to memman's: extracts by sumy if it is installed, a note otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import facts, planted
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
    assert list(facts.methods()) == ["memman", "head truncation"]
    assert "sumy is skipped: No module named 'sumy'" in facts.left_out()


def test_what_is_minutes_for_a_case_is_not_measured_on_long_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def scripted(text: str, most: int, count: sumy.Count) -> str:
        return text[: 2 * most]

    monkeypatch.setattr(sumy, "load", lambda: {"SumBasic": scripted, "Luhn": scripted})
    monkeypatch.setattr(facts, "version", lambda _package: "1.0")
    assert list(facts.methods())[2:] == ["sumy 1.0 SumBasic", "sumy 1.0 Luhn"]
    assert list(facts.methods(long=True))[2:] == ["sumy 1.0 Luhn"]
    assert "SumBasic" in facts.left_out()


def test_command_without_conversations_reports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert facts.main(["--folder", str(tmp_path)]) == 2
    assert "no recorded conversations" in capsys.readouterr().err


@pytest.mark.shared
def test_outline_keeps_more_facts_than_a_truncation() -> None:
    cases = list(facts.tau_cases(SHARED))[::4]
    kept = {name: facts.recall(cases, method, 0.1).kept for name, method in facts.METHODS.items()}
    assert kept["memman"] > 1.5 * kept["head truncation"]


def test_planted_values_are_in_the_conversation_once() -> None:
    for name in planted.SETS:
        for language in planted.LANGUAGES:
            for shape in planted.SHAPES:
                made = planted.conversation(name, language, shape, 1)
                assert made == planted.conversation(name, language, shape, 1)
                texts = [message["content"] or "" for message in made.messages]
                for one in made.planted:
                    [place] = [n for n, text in enumerate(texts) if one.value in text]
                    of_tool = made.messages[place]["role"] == "tool"
                    assert of_tool is (one.kind == "tool")
                kinds = [one.kind for one in made.planted]
                assert {kinds.count(kind) for kind in planted.KINDS} == {6}


def test_wordings_of_the_two_sets_are_disjoint() -> None:
    first, other = (planted.wordings(name) for name in planted.SETS)
    assert list(first) == list(other) == list(planted.LANGUAGES)
    for language in planted.LANGUAGES:
        texts = [set[str](), set[str]()]
        for found, of in zip(texts, (first[language], other[language]), strict=True):
            for kind in (*planted.KINDS, "user", "assistant", "line", "words"):
                found.update(getattr(of, kind))
        assert not texts[0] & texts[1]


def test_kept_values_are_counted_by_kind() -> None:
    messages = ({"role": "user", "content": "alpha beta gamma " * 10},)
    cases = [
        ("constraint", facts.Case(messages, frozenset({"alpha", "beta"}))),
        ("preference", facts.Case(messages, frozenset({"gamma"}))),
        ("tool", facts.Case(messages, frozenset({"beta"}))),
    ]
    allowed = []

    def keeps_beta(_case: facts.Case, most: int) -> str:
        allowed.append(most)
        return "beta"

    kept = facts.kept_of_each(cases, keeps_beta)
    assert kept == {"constraint": 0.5, "preference": 0.0, "tool": 1.0}
    assert allowed == [int(0.2 * facts.tokens(cases[0][1].text))]


def test_carried_text_fits_and_is_of_the_product() -> None:
    made = planted.conversation("a", "en", "identifier", 3)
    case = facts.Case(made.messages, frozenset(one.value for one in made.planted))
    whole = facts.carried(case, 100_000)
    assert all(value in whole for value in case.facts)
    most = facts.tokens(case.text) // 5
    text = facts.carried(case, most)
    assert most // 2 < facts.tokens(text) <= most
    assert sum(value in text for value in case.facts) > len(case.facts) // 3
