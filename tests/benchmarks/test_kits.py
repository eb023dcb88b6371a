"""The public kits around memman, and the statements that they do not have."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import kits, statements
from benchmarks.statements import Found, Planted, Said, Session


def test_statements_are_planted_once_and_updates_come_later() -> None:
    for name in statements.SETS:
        one = statements.session(name, 1)
        assert one == statements.session(name, 1)
        assert one != statements.session(name, 2)
        texts = [said.text for said in one.said]
        for planted in one.planted:
            at = [n for n, text in enumerate(texts) if planted.value in text]
            assert len(at) == 1
            if planted.stale:
                assert next(n for n, text in enumerate(texts) if planted.stale in text) < at[0]
        assert sum(bool(planted.stale) for planted in one.planted) == 3


def test_sets_of_statements_have_no_text_in_common() -> None:
    first, other = statements.SETS.values()
    for of in ("filler", "answers"):
        assert not {*getattr(first, of)} & {*getattr(other, of)}
    labels = [{each.label for each in one.subjects.values()} for one in (first, other)]
    wordings = [{each.wording for each in one.subjects.values()} for one in (first, other)]
    assert not labels[0] & labels[1]
    assert not wordings[0] & wordings[1]


def test_found_counts_values_updates_and_pairs() -> None:
    planted = (Planted("a", "Vela", "Mira"), Planted("b", "4711"), Planted("c", "4712", "9"))
    of = Session((), planted, (("a", "b"), ("b", "c")))
    found = statements.found_in("old mira, new VELA, port 4711", of)
    assert found == Found(values=3, kept=2, updates=2, resolved=0, stale=1, pairs=2, both=1)
    assert statements.found_in("vela, 4712", of).resolved == 2


def test_context_fits_and_keeps_what_fits() -> None:
    turns = [Said("user", f"RULE: gate {n} stays closed.") for n in range(40)]
    text = kits.compressed(turns, 600)
    assert len(text) <= 600
    assert "gate 39 stays closed" in text
    assert len(kits.compressed(turns, 600, times=4)) <= 600


@pytest.mark.package("compaction_kit")
def test_kit_measures_memman_and_its_own_strategies() -> None:
    made = kits.strategies(quick=True)
    entries = kits.kit_entries({name: made[name] for name in ("memman", "semantic-checklist")}, [1])
    rows = {(row[0], row[1]): row for row in kits.kit_rows("kit", entries)}
    assert len(rows) == 2 * len(kits.SHARES)
    # What the kit's authors publish for their own strategy, on one of their seeds.
    assert rows["kit: semantic-checklist", "30%"][2:7] == [1.0, 1.0, 0, 16, 1.0]
    assert [goal.limit for goal in kits.kit_goals(entries)] == pytest.approx([0.55, 0.15, 0, 0.1])
    assert all(entry["budget_compliant"] for entry in entries)


@pytest.mark.package("compaction_kit")
def test_strategy_that_keeps_everything_keeps_every_statement() -> None:
    class Whole:
        def compact(self, turns: Any, **_options: Any) -> Any:
            return Said("user", "\n".join(turn.text for turn in turns))

    rows = [
        *kits.statement_rows({"whole": Whole}, [1, 2]),
        *kits.rotating_rows({"whole": Whole}, [1]),
    ]
    assert {row[2] for row in rows} == {1.0}
    assert {row[3] for row in rows} == {0.0}


@pytest.mark.package("retainkit")
def test_turns_and_sentences_of_a_context_are_retained() -> None:
    from retainkit.evaluate import Case, run
    from retainkit.types import Probe, Transcript, Turn

    turns = [
        Turn(f"t{n}", 1, "Ann", f"We talked about house {n} and about nothing else of note today.")
        for n in range(60)
    ]
    turns.append(Turn("last", 2, "Ben", "My boat is called Vela."))
    probes = tuple(Probe(name, "?", (name,)) for name in ("t20", "last"))
    cases = [Case(Transcript("d", tuple(turns)), probes)]
    for budget, recall in ((100, 0.5), (5_000, 1.0)):
        found = run(cases, [kits.Window("memman")], [budget])
        assert found.rows[0].recall == recall


def test_missing_kit_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(_name: str) -> Any:
        raise ModuleNotFoundError("No module named 'compaction_kit'", name="compaction_kit")

    monkeypatch.setattr(kits, "import_module", missing)
    assert kits.main(["--quick"]) == 2
    assert "not installed: No module named 'compaction_kit'" in capsys.readouterr().err
