"""Division of a run that is too long for one call, if possible between exchanges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memman.compression.prompt import chunked
from memman.entries import Entry
from tests.compression.entries import entry, result


def exchange(first: int, *sizes: int) -> list[Entry]:
    return [entry(first + n, "word " * size) for n, size in enumerate(sizes)]


def test_run_that_fits_is_one_piece() -> None:
    exchanges = [exchange(1, 20, 20), exchange(3, 20)]
    assert chunked(exchanges, 1_000) == [[*exchanges[0], *exchanges[1]]]


def test_exchanges_that_fit_stay_whole() -> None:
    exchanges = [exchange(10 * n, 60, 60) for n in range(1, 7)]
    pieces = chunked(exchanges, 400)
    assert len(pieces) > 1
    bounds = {item[0].seq for item in exchanges}
    assert all(piece[0].seq in bounds for piece in pieces)
    assert [one for piece in pieces for one in piece] == [one for item in exchanges for one in item]


def test_large_exchange_is_divided_between_entries() -> None:
    long = exchange(1, 200, 200, 200)
    pieces = chunked([long, exchange(9, 10)], 400)
    assert [[one.seq for one in piece] for piece in pieces] == [[1], [2], [3, 9]]


def test_an_entry_that_does_not_fit_is_split_after_a_line() -> None:
    text = "".join(f"line {number} of a long text\n" for number in range(400))
    pieces = chunked([[entry(1, text)]], 300)
    assert len(pieces) > 5
    assert "".join(one.text for piece in pieces for one in piece) == text
    assert all(piece[-1].text.endswith("\n") for piece in pieces)


@given(
    st.lists(st.lists(st.text(max_size=900), min_size=1, max_size=3), min_size=1, max_size=6),
    st.integers(40, 400),
)
def test_no_piece_costs_more_than_the_room_and_nothing_is_lost(
    texts: list[list[str]], room: int
) -> None:
    exchanges = [
        [entry(100 * n + m, text) for m, text in enumerate(run)] for n, run in enumerate(texts)
    ]
    pieces = chunked(exchanges, room)
    assert all(sum(one.token_count.tokens for one in piece) <= room for piece in pieces)
    joined = "".join(one.text for piece in pieces for one in piece)
    assert joined == "".join(text for run in texts for text in run)


def test_long_result_costs_only_its_shown_text() -> None:
    exchanges = [[result(n, "x" * 40_000)] for n in range(1, 5)]
    assert len(chunked(exchanges, 3_000)) == 1
