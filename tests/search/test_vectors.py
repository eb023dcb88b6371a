"""Search by meaning: the nearest vectors, and how they are made, kept and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman.search.vectors import nearest, packed

NUMBER = st.floats(-1, 1, allow_nan=False)
SIZE = 24


def cosine(one: Sequence[float], two: Sequence[float]) -> float:
    lengths = sqrt(sum(x * x for x in one)) * sqrt(sum(x * x for x in two))
    return sum(x * y for x, y in zip(one, two, strict=True)) / (lengths or 1)


# ---------------------------------------------------------------- the nearest


@given(
    st.lists(NUMBER, min_size=SIZE, max_size=SIZE),
    st.lists(st.lists(NUMBER, min_size=SIZE, max_size=SIZE), max_size=40),
)
def test_nearest_are_those_of_brute_force(query, vectors):
    rows = [(seq, packed(vector)) for seq, vector in enumerate(vectors)]
    found = nearest(packed(query), rows)
    signed = [[x - 256 if x > 127 else x for x in value] for _, value in rows]
    wanted = [x - 256 if x > 127 else x for x in packed(query)]
    expected = {seq: cosine(wanted, each) for seq, each in enumerate(signed)}
    assert {seq for seq, _ in found} == set(expected)
    assert [similarity for _, similarity in found] == sorted(dict(found).values(), reverse=True)
    for seq, similarity in found:
        assert similarity == pytest.approx(expected[seq])


@given(st.lists(NUMBER, min_size=1, max_size=50))
def test_packed_vector_keeps_its_direction(vector):
    signed = [x - 256 if x > 127 else x for x in packed(vector)]
    largest = max(map(abs, vector))
    if largest > 1e-300:
        assert all(abs(x / largest - y / 127) < 0.005 for x, y in zip(vector, signed, strict=True))


def test_nearest_of_many_is_found_by_signs():
    random = Random(1)
    rows = [(n, packed([random.gauss(0, 1) for _ in range(64)])) for n in range(2_000)]
    for seq in (0, 999, 1_999):
        assert nearest(rows[seq][1], rows)[0][0] == seq


def test_vectors_of_another_length_are_left_out():
    assert (
        nearest(packed([1, 1]), [(1, packed([1, 1, 1])), (2, b""), (3, packed([1, 1]))])[0][0] == 3
    )
