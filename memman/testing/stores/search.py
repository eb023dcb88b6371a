"""The laws of `search`."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

from memman.entries import ImagePart, TextPart
from memman.protocols import Candidate, Candidates, SearchRequest
from memman.records import Added, Record, Undone
from memman.search import scan, terms_of
from memman.testing.stores.base import StoreLaws, erase_entries, filled, items
from memman.testing.stores.records import AT, added, clearing, retraction

# Without English endings, so that every way to compare words gives the same answer.
_WORDS = ("kappa", "omega", "src/port.go", "db_pool", "x7f3-91", "99.5%", "zulu", "42")
_HOSTILE = (
    '"', "'", "*", "(", ")", "kappa OR omega", "kappa NOT omega", "NEAR(kappa omega)", "text:kappa",
    "^kappa", "kappa -omega", "%_", "\\", "'; DROP TABLE record; --", "\0", "& | ! <-> :*", "{}", "kap*",
    "x" * 2_000,
)  # fmt: skip


class SearchLaws(StoreLaws):
    """Laws of `search`."""

    def test_search_finds_words_values_paths_and_parts_of_words(self) -> None:
        store = self.make_store_with("search")
        texts = {
            "a": "The retry limit of the gateway is 7.",
            "b": "see src/gateway/retryLimit.py:42 and deploy_key=a1b2-c3d4",
            "c": "Error: E1042 (connection reset by peer)",
        }
        store.append("s", [added(name, text) for name, text in texts.items()])
        assert _found(store, "retry limit") == ["a", "b"]
        assert _found(store, "limits") == ["a"], "a plural is found by its stem"
        assert _found(store, "src/gateway/retryLimit.py") == ["a", "b"]
        assert _found(store, "tryLim") == ["b"], "a part of a word is found"
        assert _found(store, "a1b2-c3d4") == ["b"]
        assert _found(store, "E1042") == ["c"]
        assert _found(store, "connection reset by peer") == ["c"]
        assert _found(store, "absent") == []

    def test_search_finds_names_of_tools_and_arguments(self) -> None:
        store = self.make_store_with("search")
        fields: Any = {"type": "tool_call", "role": "assistant", "name": "read_file"}
        arguments = '{"path":"a\\nb.py","deep":[{"n":417}]}'
        store.append("s", [added("a", arguments, **fields), added("b")])
        assert _found(store, "read_file") == ["a"]
        assert _found(store, "b.py") == ["a"]
        assert _found(store, "417") == ["a"]

    def test_search_finds_scripts_without_spaces(self) -> None:
        store = self.make_store_with("search")
        texts = {"a": "东京的部署密钥在哪里", "b": "京都のデプロイ鍵", "c": "Ключи шлюза"}
        store.append("s", [added(name, text) for name, text in texts.items()])
        assert _found(store, "密钥") == ["a"]
        assert _found(store, "デプロイ") == ["b"]
        assert _found(store, "京") == ["a", "b"]
        assert _found(store, "шлюза") == ["c"]

    def test_search_weighs_a_word_more_than_a_part(self) -> None:
        store = self.make_store_with("search")
        store.append("s", [added("a", "the port is 80"), added("b", "transporter")])
        weights = {hit.record.id: hit.weights for hit in _candidates(store, "port").found}
        assert weights == {"a": (1.0,), "b": (0.5,)}

    def test_whole_value_weighs_more_than_its_namesakes(self) -> None:
        store = self.make_store_with("search")
        store.append("s", [added(f"e{n}", f"host-17{n} is up") for n in range(9)])
        store.append("s", [added("whole", "host-17 " + "is down " * 50)])
        found = _candidates(store, "host-17")
        weights = {hit.record.id: hit.weights[0] for hit in found.found}
        assert weights == {"whole": 1.0, **{f"e{n}": 0.01 for n in range(9)}}
        assert found.counts[0] == 1

    def test_words_of_a_session_do_not_change_a_search_in_another(self) -> None:
        store = self.make_store_with("search")
        store.append("s", [added("a", "kappa 17"), added("b", "the omega")])
        before = [_candidates(store, query) for query in ("kappa", "omega 17", "kappa omega")]
        hostile = "".join(chr(0xE000 + n) for n in range(200))
        store.append("t", [added(f"e{n}", f"kappa 17 {hostile[n:]}") for n in range(200)])
        after = [_candidates(store, query) for query in ("kappa", "omega 17", "kappa omega")]
        assert after == before

    def test_search_says_if_there_are_more_candidates(self) -> None:
        store = self.make_store_with("search")
        store.append("s", [added(f"e{number}", "kappa") for number in range(5)])
        requests = [SearchRequest(terms=("kappa",), session_id="s", limit=n) for n in (3, 6)]
        answers = list(map(store.search, requests))
        assert [(len(answer.found), answer.more) for answer in answers] == [(3, True), (5, False)]

    def test_search_returns_what_the_log_has(self) -> None:
        store = self.make_store_with("search")
        parts = (TextPart("kappa"), ImagePart("https://example.com/omega.png"))
        record = added("a", parts, name="ada", timestamp=AT + timedelta(hours=1))  # type: ignore[arg-type]
        store.append("s", [clearing("x"), record])
        found = _candidates(self.reopen(store), "kappa")
        assert list(found.found) == [Candidate("s", 2, record, (1.0,))]
        assert found.counts == (1,)

    def test_search_finds_an_entry_at_once(self) -> None:
        store = self.make_store_with("search")
        for number in range(30):
            store.append("s", [added(f"e{number}", f"kappa n{number}n")])
            assert _found(store, f"n{number}n") == [f"e{number}"]

    def test_search_of_a_session_finds_nothing_of_others(self) -> None:
        store = self.make_store_with("search")
        for name in ("s", "s/1", "s/2", "t", "s%", "S"):
            store.append(name, [added("a", f"kappa of {name}")])
        assert [hit.session_id for hit in _candidates(store, "kappa").found] == ["s"]
        assert _sessions(store, "s/") == ["s/1", "s/2"]
        assert _sessions(store, "s%") == ["s%"]
        assert _sessions(store, "") == ["S", "s", "s%", "s/1", "s/2", "t"]
        assert _candidates(store, "kappa", "unknown") == Candidates(0, (0,), [])

    def test_search_by_a_prefix_of_many_sessions(self) -> None:
        store = self.make_store_with("search")
        for number in range(130):
            store.append(f"s/{number}", [added("a", f"kappa n{number}n")])
        store.append("t", [added("a", "kappa n1n")])
        assert len(_sessions(store, "s/")) == 130
        request = SearchRequest(terms=("n1n",), session_id=None, prefix="s/")
        assert [hit.session_id for hit in store.search(request).found] == ["s/1"]

    def test_search_returns_the_limit_of_the_best(self) -> None:
        store = self.make_store_with("search")
        store.append("s", [added(f"e{n}", "kappa" if n else "kappa omega") for n in range(50)])
        terms = ("kappa", "omega")
        found = store.search(SearchRequest(terms=terms, session_id="s", limit=5)).found
        assert len(found) == 5
        assert "e0" in {hit.record.id for hit in found}, "it has the rare term"

    def test_search_takes_hostile_terms_as_data(self) -> None:
        store = filled(self.make_store_with("search"), added("a", "kappa"), added("b", "omega"))
        for query in _HOSTILE:
            expected = [name for name, word in (("a", "kappa"), ("b", "omega")) if word in query]
            found = _found(store, query)
            assert set(found) >= set(expected), query
            assert set(found) <= {"a", "b"}, query
        assert list(store.search(SearchRequest(terms=(), session_id="s")).found) == []
        assert _found(store, "kappa") == ["a"]

    def test_text_that_is_hard_to_index_is_appended(self) -> None:
        store = self.make_store_with("search")
        texts = [
            "", "\x00", "a\x00kappa", "\ud7ff\ue000\uf8ff\uffff\U0010ffff kappa", "x" * 300_000 + " kappa",
            " ".join(f"w{n}" for n in range(60_000)) + " kappa", "e\u0301" * 5_000 + " kappa",
            "\u202e kappa",
        ]  # fmt: skip
        store.append("s", [added(f"e{n}", text) for n, text in enumerate(texts)])
        found = _found(store, "kappa")
        assert {"e3", "e4", "e6", "e7"} <= set(found)

    def test_search_finds_entries_of_every_era_and_retracted_ones(self) -> None:
        store = filled(self.make_store_with("search"), added("a", "kappa"), added("b", "kappa"))
        store.commit("s", 0, (retraction("r", "a"),), items((2, -1, 2)), 2)
        assert _found(store, "kappa") == ["a", "b"]
        undo = Undone(id="u", at=AT, compression_id="r", restored=("a",))
        store.commit("s", 1, (undo,), items((1, -1, 1), (2, -1, 2)), 3)
        store.commit("s", 2, (clearing("x"),), (), 4)
        assert _found(store, "kappa") == ["a", "b"]

    def test_search_never_finds_an_erased_entry(self) -> None:
        store = self.make_store_with("search")
        store.append("s", (added("a", "kappa omega", name="zulu"), added("b", "kappa")))
        assert _found(store, "omega zulu") == ["a"]
        if not hasattr(store, "erase"):
            return
        erase_entries(store, "s", "a")
        store = self.reopen(store)
        assert _found(store, "omega zulu kappa") == ["b"]
        assert _candidates(store, "omega").counts == (0,)

    def test_search_never_finds_a_deleted_session(self) -> None:
        store = self.make_store_with("search")
        for name in ("s", "t"):
            store.append(name, (added("a", "kappa"),))
        assert _sessions(store, "") == ["s", "t"]
        store.delete("s")
        assert _sessions(store, "") == ["t"]
        store.append("s", (added("b", "omega"),))
        assert _found(store, "kappa omega") == ["b"]

    def test_search_agrees_with_a_scan_in_random_lives(self) -> None:
        for seed in range(max(2, self.lives // 3)):
            self._live(Random(seed))  # noqa: S311 - the same lives each time

    def _live(self, random: Random) -> None:
        store = self.make_store_with("search")
        made = 0
        for _ in range(30):
            name = random.choice(["s", "s/1", "t"])
            deed = random.choice(["append", "append", "append", "erase", "delete", "search"])
            log = [record.id for _, record in store.read(name) if isinstance(record, Added)]
            if deed == "append" or not log:
                made += 1
                text = " ".join(random.choices(_WORDS, k=3))
                store.append(name, (added(f"e{made}", text),))
            elif deed == "erase" and hasattr(store, "erase"):
                erase_entries(store, name, random.choice(log))
            elif deed == "delete" and random.random() < 0.2:
                store.delete(name)
            else:
                self._agrees(store, random)
        self._agrees(self.reopen(store), random)

    def _agrees(self, store: Any, random: Random) -> None:
        terms = tuple(random.sample(_WORDS, 2))
        records: list[tuple[str, int, Record]] = [
            (name, seq, record) for name in ("s", "s/1", "t") for seq, record in store.read(name)
        ]
        for request in (
            SearchRequest(terms=terms, session_id="s"),
            SearchRequest(terms=terms, session_id="s", until=random.randrange(1, 40)),
            SearchRequest(terms=terms, prefix="s"),
            SearchRequest(terms=terms),
        ):
            in_scope = [each for each in records if request.covers(*each[:2])]
            by_hand, by_store = scan(request, in_scope), store.search(request)
            assert _by_place(by_store) == _by_place(by_hand), request
            assert by_store.counts == by_hand.counts, request


def _candidates(store: Any, query: str, session_id: str = "s") -> Candidates:
    found: Candidates = store.search(SearchRequest(terms=terms_of(query), session_id=session_id))
    return found


def _found(store: Any, query: str) -> list[str]:
    """Return the ids of the entries that a search of the session "s" finds, sorted."""
    return sorted(hit.record.id for hit in _candidates(store, query).found)


def _sessions(store: Any, prefix: str) -> list[str]:
    """Return the sessions with an entry that contains "kappa", sorted."""
    found = store.search(SearchRequest(terms=("kappa",), prefix=prefix)).found
    return sorted(hit.session_id for hit in found)


def _by_place(found: Candidates) -> dict[tuple[str, int], tuple[float, ...]]:
    return {(hit.session_id, hit.seq): hit.weights for hit in found.found}
