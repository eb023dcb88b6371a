"""The ranking of candidates, and searches over hostile input."""

from time import process_time

import pytest

from memman import MemoryConfig, MemoryManager
from memman.protocols import Candidate, Candidates
from memman.search.ranking import ranked, rarity
from memman.stores import SQLiteStore
from memman.testing.stores import added

UNCOMPRESSED = MemoryConfig(max_tokens=10**9, max_entries=None, auto_compress=False)


def order(texts, *terms, entries=100, session_id="s"):
    found = [
        Candidate(session_id, seq, added(f"e{seq}", text), tuple(float(t in text) for t in terms))
        for seq, text in enumerate(texts, 1)
        if any(term in text for term in terms)
    ]
    counts = tuple(sum(term in text for text in texts) for term in terms)
    return [one.candidate.seq for one in ranked(Candidates(entries, counts, found), terms)]


def test_rare_term_weighs_more():
    assert rarity(100, 1) > rarity(100, 50) > rarity(100, 100) > 0
    assert rarity(10, 1_000) == rarity(10, 10)
    assert (
        order(
            ["kappa one", "-", "-", "-", "omega one", "-", "-", "-", "kappa two"], "kappa", "omega"
        )[0]
        == 5
    )


def test_short_entry_with_a_term_comes_first():
    filler = "word " * 300
    assert order([f"kappa {filler}", "-", "-", "-", "-", f"kappa {'a' * 50}"], "kappa")[0] == 6


def test_of_equal_entries_the_newer_comes_first():
    assert order(["kappa a", "-", "-", "-", "-", "kappa b"], "kappa", "other") == [6, 1]


def test_entry_between_matches_comes_first():
    gap = ["-"] * 4
    texts = ["kappa one", *gap, "kappa two", "kappa three", "kappa four", *gap, "kappa five"]
    assert order(texts, "kappa", "other")[0] == 7


def test_neighbours_in_other_sessions_do_not_count():
    record = added("e", "kappa")
    found = [Candidate(name, seq, record, (1.0,)) for name, seq in (("a", 1), ("b", 2), ("a", 9))]
    scores = {one.score for one in ranked(Candidates(10, (3,), found), ("kappa",))}
    assert len(scores) == 2  # the second and third have the match of the first


def test_exact_path_comes_before_its_words_in_another_form():
    texts = ["see auto commit go", "-", "-", "-", "edit src/committed.go"]
    found = [Candidate("s", seq, added(f"e{seq}", texts[seq - 1]), (1.0, 1.0)) for seq in (1, 5)]
    terms = ("committed.go", "committed")
    assert ranked(Candidates(100, (2, 2), found), terms)[0].candidate.seq == 5


def test_repeated_command_is_found_once_among_the_first():
    texts = []
    for _ in range(5):
        texts += ["run src/a/common.go", "-", "-", "-", "-"]
    texts += ["a longer text about the file src/b/common.go here"]
    first = order(texts, "common.go")[:2]
    assert 26 in first
    assert first != [21, 16]


def test_nothing_found_is_ranked():
    assert ranked(Candidates(0, (0,), []), ("kappa",)) == []


def test_limit_counts_neighbours():
    with MemoryManager(counter="chars4", config=UNCOMPRESSED) as memory:
        for number in range(6):
            memory.add_user_message("s", f"kappa {number}")
            memory.add_assistant_message("s", f"answer {number}")
        for limit in (1, 2, 3):
            assert len(memory.search("s", "kappa", limit=limit, budget=1_000)) == limit


def test_filters_hold_for_neighbours():
    with MemoryManager(counter="chars4", config=UNCOMPRESSED) as memory:
        memory.add_user_message("s", "kappa")
        memory.add_tool_call("s", "read", {"path": "a"}, call_id="c")
        everything = memory.search("s", "kappa", budget=1_000)
        assert [hit.neighbour for hit in everything] == [False, True]
        messages = memory.search("s", "kappa", budget=1_000, types=("message",))
        assert [hit.entry.type for hit in messages] == ["message"]


def test_filter_finds_an_entry_behind_many_candidates():
    with MemoryManager(counter="chars4", config=UNCOMPRESSED) as memory:
        memory.add_tool_call("s", "read", {"path": "kappa"}, call_id="c")
        for number in range(700):
            memory.add_user_message("s", f"kappa kappa {number}")
        [hit] = memory.search("s", "kappa", types=("tool_call",))
        assert hit.entry.name == "read"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "s.db"
    pieces = ("a", "ab ", "日本", 'x"', "a/", "É")
    with MemoryManager(SQLiteStore(path), counter="chars4", config=UNCOMPRESSED) as memory:
        for piece in pieces:
            memory.add_user_message("s", piece * (500_000 // len(piece)))
        memory.search("s", "kappa")
        yield memory


@pytest.mark.parametrize(
    "query",
    [
        "a" * 2_000,
        "a " * 1_000,
        "ab",
        "日" * 2_000,
        "日本",
        'x"' * 1_000,
        "a/" * 1_000,
        "é" * 50,
        "x",
    ],
)
def test_hostile_texts_and_queries_take_a_moment(hostile, query):
    began = process_time()
    hostile.search("s", query)
    assert process_time() - began < 1
