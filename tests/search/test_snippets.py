"""Snippets show the part of a text with the words of a query, and the places of the words in it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman.search import matches_in, terms_of
from memman.search.snippets import snippet_of

NOISE = "nothing of interest " * 200


@pytest.mark.parametrize(
    ("text", "terms", "expected"),
    [
        ("The limit, and Limits", ("limit",), ["limit", "Limit"]),
        ("they retry, retried, retries", ("retries",), ["retry", "retries"]),
        ("retraction", ("retries",), []),
        ("open /srv/a.py now", ("/srv/a.py", "srv"), ["/srv/a.py"]),
        ("ORD-80134", ("ord-8013",), ["ORD-8013"]),  # a part of a word
        ("a cat at 8 of 80", ("a", "8"), ["a", "8"]),  # but not of one or two characters
        ("(.*) is a pattern", (".*", "["), [".*"]),
        ("東京都に行く", ("東京",), ["東京"]),
        ("anything", ("", ), []),
        ("anything", (), []),
    ],
)  # fmt: skip
def test_matches_are_words_parts_and_forms(
    text: str, terms: tuple[str, ...], expected: list[str]
) -> None:
    assert [text[start:end] for start, end in matches_in(text, terms)] == expected


@given(st.text(max_size=60), st.lists(st.text(min_size=1, max_size=5), max_size=4))
def test_matches_are_in_order_and_apart(text: str, terms: list[str]) -> None:
    places = [place for span in matches_in(text, terms) for place in span]
    assert places == sorted(places)
    assert all(0 <= place <= len(text) for place in places)


@pytest.mark.parametrize(
    ("said", "term"),
    [("the retry limit", "retries"), ("ORD-8013", "ord-8013"), ("İki ord-8013", "ord-8013")],
)
def test_snippet_shows_the_match_in_a_long_text(said: str, term: str) -> None:
    snippet = snippet_of(f"{NOISE} {said} {NOISE}", (term,))
    assert said in snippet
    assert len(snippet) < 260
    assert snippet.startswith("... ")
    assert snippet.endswith(" ...")


def test_snippet_of_a_long_text_is_made_quickly() -> None:
    text = "aaaa " * 1_000_000
    begun = time.process_time()
    snippet_of(text, tuple(f"{number}aaaas" for number in range(24)))
    assert time.process_time() - begun < 5


def test_snippet_of_a_short_text_is_the_text() -> None:
    assert snippet_of("retry\n limit", ("retry",)) == "retry limit"
    assert snippet_of("", ("retry",)) == ""


def test_snippet_has_the_most_different_terms() -> None:
    text = f"retry retry retry {NOISE} retry the limit {NOISE} limit"
    assert "retry the limit" in snippet_of(text, ("retry", "limit"))


def test_snippet_without_a_match_is_the_beginning() -> None:
    assert snippet_of(f"first words {NOISE}", ("absent",)).startswith("first words")


@given(st.text(max_size=2_000), st.text(max_size=50), st.integers(1, 400))
def test_snippet_is_a_part_of_the_text(text: str, query: str, length: int) -> None:
    snippet = snippet_of(text, terms_of(query), length)
    bare = snippet.removeprefix("... ").removesuffix(" ...")
    one_line = " ".join(text.split())
    assert bare in one_line or snippet in one_line
    assert len(snippet) <= length + len("...  ...")
