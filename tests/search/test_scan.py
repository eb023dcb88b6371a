"""A search without an index agrees with the index."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman.protocols import SearchRequest
from memman.search import scan, terms_of
from memman.search.scan import joined
from memman.stores import MemoryStore
from memman.testing.stores import added

WORDS = ("kappa", "omega", "zulu", "retry", "retries", "gateway", "4131", "x", "東京", "grün")


def weights(texts, *terms, limit=200):
    records = [("s", seq, added(f"e{seq}", text)) for seq, text in enumerate(texts, 1)]
    found = scan(SearchRequest(terms=terms, session_id="s", limit=limit), records)
    return {each.seq: each.weights for each in found.found}


@pytest.mark.parametrize(
    ("text", "term", "weight"),
    [
        ("the retry limit", "retry", 1.0),
        ("it retries", "retry", 1.0),
        ("Retry!", "retry", 1.0),
        ("autoretry", "retry", 0.5),
        ("retrying_loop", "retry", 0.5),
        ("src/gate.py", "src/gate.py", 1.0),
        ("東京都", "京都", 1.0),
        ("a*b", "*", 0.5),
        ("nothing", "retry", None),
    ],
)
def test_term_is_found_as_a_word_or_a_part(text, term, weight):
    assert weights([text], term) == ({} if weight is None else {1: (weight,)})


def test_limit_keeps_entries_with_rare_terms():
    texts = ["omega kappa", *["kappa"] * 20]
    found = scan(
        SearchRequest(terms=("kappa", "omega"), session_id="s", limit=3),
        [("s", seq, added(f"e{seq}", text)) for seq, text in enumerate(texts, 1)],
    )
    assert found.found[0].seq == 1
    assert len(found.found) == 3
    assert found.more
    assert found.counts == (21, 1)


def found_both_ways(texts, terms):
    """Return the candidates of the index in memory, and those of a scan, for the same entries."""
    store = MemoryStore()
    records = [added(f"e{seq}", text) for seq, text in enumerate(texts, 1)]
    store.append("s", records)
    request = SearchRequest(terms=terms, session_id="s")
    return store.search(request), scan(request, [("s", n, r) for n, r in enumerate(records, 1)])


@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), max_size=12),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join),
)
@settings(max_examples=60)
def test_scan_and_index_agree_on_words(texts, query):
    indexed, scanned = found_both_ways(texts, terms_of(query))
    assert {each.seq for each in indexed.found} == {each.seq for each in scanned.found}


MANY = [
    f"plan{chr(97 + n // 26)}{chr(97 + n % 26)}orn" for n in range(60)
]  # with no English ending
VALUES = ["port-4131", "4131", "src/gate.py", "x4131y", "10.0.0.7", "build_117", "build_1170"]


@given(
    st.lists(st.lists(st.sampled_from(MANY + VALUES), max_size=6).map(" ".join), max_size=20),
    st.lists(st.sampled_from(MANY + VALUES), min_size=1, max_size=60, unique=True),
)
@settings(max_examples=60)
def test_scan_and_index_weigh_long_queries_alike(texts, terms):
    indexed, scanned = found_both_ways(texts, tuple(terms))
    assert {e.seq: e.weights for e in indexed.found} == {e.seq: e.weights for e in scanned.found}


@given(
    st.lists(st.lists(st.sampled_from(MANY + VALUES), max_size=6).map(" ".join), max_size=20),
    st.lists(st.sampled_from(MANY + VALUES), min_size=1, max_size=20, unique=True),
    st.integers(0, 20),
)
@settings(max_examples=60)
def test_parts_of_a_scope_join_to_the_whole(texts, terms, cut):
    records = [("s", seq, added(f"e{seq}", text)) for seq, text in enumerate(texts, 1)]
    request = SearchRequest(terms=tuple(terms), session_id="s")
    whole = scan(request, records)
    made = joined(request, scan(request, records[:cut]), scan(request, records[cut:]))
    assert {each.seq for each in made.found} == {each.seq for each in whole.found}
    assert made.entries == whole.entries


@given(st.lists(st.text(max_size=60), max_size=5), st.text(max_size=60))
@settings(max_examples=150)
def test_any_text_and_query_are_searched(texts, query):
    store = MemoryStore()
    records = [added(f"e{seq}", text) for seq, text in enumerate(texts, 1)]
    store.append("s", records)
    request = SearchRequest(terms=terms_of(query), session_id="s")
    scanned = scan(request, [("s", seq, record) for seq, record in enumerate(records, 1)])
    for found in (store.search(request), scanned):
        assert {each.seq for each in found.found} <= set(range(1, len(texts) + 1))
        assert len(found.counts) == len(request.terms)


@given(st.from_regex(re.compile(r"[a-z]{3,12}", re.ASCII), fullmatch=True))
@settings(max_examples=100)
def test_a_word_is_found_by_itself_in_both(word):
    store = MemoryStore()
    store.append("s", (added("a", f"say {word} now"), added("b", "other")))
    request = SearchRequest(terms=(word,), session_id="s")
    assert "a" in {each.record.id for each in store.search(request).found}
    assert weights([f"say {word} now"], word) == {1: (1.0,)}
