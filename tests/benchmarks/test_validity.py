"""Random histories: no request breaks a rule, and the checks of the benchmark find faults."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from benchmarks import validity
from benchmarks.exchanges import EXCHANGES
from memman import BudgetExceeded


def test_no_request_of_random_histories_breaks_a_rule() -> None:
    totals = validity.run(100)
    assert sum(found.requests for found in totals.values()) == 100
    assert sum(found.requests > 0 for found in totals.values()) >= 4
    found = [finding for each in totals.values() for finding in each.findings]
    assert [(one.rule, one.reason) for one in found if one.rule != "SDK type"] == []


def test_histories_are_the_same_for_the_same_seed() -> None:
    def sent() -> list[str]:
        found = []
        for _, build in validity.History("gemini", 5).requests(3):
            with suppress(BudgetExceeded):
                found.append(str(build().messages))
        return found

    assert sent() == sent() != []


def test_report_names_the_findings() -> None:
    finding = validity.Finding("gemini", "mistral", "pair.alone", "a half", 1, [])
    totals = {"gemini": validity.Totals(3, 0, 0.25, [finding, finding])}
    assert "pair.alone (mistral) 2" in validity.report(totals)


@pytest.mark.parametrize("form", EXCHANGES)
def test_types_of_an_sdk_refuse_other_keys(form: str) -> None:
    validate = validity.validators().get(form)
    if validate is None:
        pytest.skip("the SDK is not installed")
    kind = next(iter(EXCHANGES[form]))
    messages = [one for added in EXCHANGES[form][kind](Random(1), 1) for one in added]
    assert validate(messages) == ""
    assert "created_at" in validate([{**message, "created_at": 1} for message in messages])
