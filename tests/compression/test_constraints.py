"""Constraints, declared by the caller or listed by a model: none is lost."""

from __future__ import annotations

import msgspec
import pytest

from memman.compression.summary_parts import (
    NOTHING_CARRIED,
    Carried,
    Parts,
    carried,
    constraints_of,
)
from tests.compression.entries import chars4, constraint, entry, summary

RULE = "Never delete\n  production data."


@pytest.mark.parametrize(
    ("metadata", "declared"),
    [(b'{"constraint":true}', True), (b'{"constraint":"yes"}', False), (b'{"c":1}', False)],
)
def test_metadata_declares_an_entry(metadata: bytes, declared: bool) -> None:
    one = entry(1, RULE, metadata_json=msgspec.Raw(metadata))
    assert bool(constraints_of([one]).declared) is declared


def test_constraints_are_carried_verbatim() -> None:
    earlier = summary(1, Parts("Said.", ("Use tabs.",), ("No push.",)).text)
    found = carried(
        constraints_of([earlier, constraint(2, RULE)]), ("Be kind.", "Use tabs."), 500, chars4
    )
    assert found == Carried(("Use tabs.", "Be kind."), ("No push.", RULE))


def test_no_constraints_carry_nothing_and_count_nothing() -> None:
    assert (
        carried(constraints_of([entry(1, RULE)]), (), 500, lambda text: 1 // 0) is NOTHING_CARRIED
    )


def test_declared_constraints_have_their_room_first() -> None:
    long = "word " * 200
    entries = [constraint(1, RULE), constraint(2, long)]
    found = carried(constraints_of(entries), ("Use tabs.",), 60, chars4)
    assert found.declared == (RULE,)
    assert found.left_out == (long.strip(),)
    assert found.constraints == ("Use tabs.",)


def test_listed_constraints_take_at_most_half_of_the_rest() -> None:
    rules = [f"Rule {number} of many." for number in range(100)]
    found = carried(constraints_of([]), rules, 200, chars4)
    assert found.constraints == tuple(rules[: len(found.constraints)])
    assert 60 < chars4("\n- ".join(found.constraints)) <= 100
