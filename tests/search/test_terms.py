"""The terms of queries, and the text that entries are found by."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman import MemoryManager
from memman.search import in_pairs, searchable, terms_of
from memman.search.terms import MOST_TERMS, function_words


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("Retry limit", ("retry", "limit")),
        ("the retry limit of the gateway", ("retry", "limit", "gateway")),
        ("Caroline's house?", ("caroline", "house")),
        ('"quoted" (words), [here].', ("quoted", "words")),
        ("src/gate_post.py", ("src/gate_post.py", "src", "gate", "post")),
        ("OPS-4131", ("ops-4131", "ops", "4131")),
        ("retry retry RETRY", ("retry",)),
        ("NOT near OR *", ("near", "*")),
        ("東京都", ("東京", "京都")),
        ("東", ("東",)),
        ("v2東京x", ("v2", "東京", "x")),
        ("->", ("->",)),
        ("", ()),
        (" \n\t", ()),
    ],
)
def test_query_has_terms(query, terms):
    assert terms_of(query) == terms


def test_function_words_alone_are_terms():
    assert terms_of("to be or not to be") == ("to", "be", "or", "not")


@given(st.text(max_size=3_000))
def test_terms_of_any_query_are_few_and_without_white_space(query):
    terms = terms_of(query)
    assert len(terms) <= MOST_TERMS
    assert len(set(terms)) == len(terms)
    assert all(term and not any(map(str.isspace, term)) for term in terms)


def test_function_words_are_lower_case_words():
    assert {"the", "of", "und", "pas"} <= function_words()
    assert all(word == word.lower() for word in function_words())


def test_scripts_without_spaces_are_written_in_pairs():
    assert in_pairs("plain text") == "plain text"
    assert in_pairs("in 東京都 now").split() == ["in", "東京", "京都", "都", "now"]
    assert in_pairs("grün").split() == ["grün"]


def test_call_is_found_by_its_name_keys_and_values():
    with MemoryManager(counter="chars4") as memory:
        arguments = {"path": 'a "b".py', "deep": [{"x": 5}, None, True]}
        entry = memory.add_tool_call("s", "read_file", arguments, call_id="c")
    assert searchable(entry).split("\n") == [
        "read_file",
        "path",
        'a "b".py',
        "deep",
        "x",
        "5",
        "True",
    ]


@pytest.mark.parametrize("text", ["{", '{"a": ', "[" * 3_000, json.dumps("plain")])
def test_arguments_that_are_not_an_object_are_found(text):
    with MemoryManager(counter="chars4") as memory:
        entry = memory.add_tool_call("s", "f", text, call_id="c")
    assert searchable(entry).startswith("f\n")
    assert len(searchable(entry)) > 2
