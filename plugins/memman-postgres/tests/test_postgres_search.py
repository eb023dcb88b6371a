"""Search in PostgreSQL: concurrent writers, deletions, tenants, hard texts and missing rights."""

from __future__ import annotations

import os
import random
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import postgres_servers as servers
import psycopg
import pytest
from memman_postgres import PostgresStore, index
from memman_postgres.index import words_of
from memman_postgres.search import search
from memman_postgres.tables import schema as script

from memman import Entry, MemoryManager
from memman.display import warn_once
from memman.protocols import Candidates, SearchRequest
from memman.records import Added
from memman.search import scan, terms_of
from memman.stores import MemoryStore
from memman.testing.laws import in_threads
from memman.testing.stores import added, erase_entries
from tests.search.test_languages import SAID, memory_of
from tests.search.test_values import VALUES, WORDINGS, longer

pytestmark = pytest.mark.service

_WORDS = [
    "kappa", "omega", "sigma", "retry", "limit", "gateway", "deploying", "src/app.py", "retryLimit",
    "4217", "密钥", "naïve",
]  # fmt: skip
_QUERIES = 100_000 if "long" in os.environ.get("MEMMAN_REQUIRE", "") else 300


def request(query: str, session_id: str | None = None, prefix: str = "") -> SearchRequest:
    return SearchRequest(terms=terms_of(query), session_id=session_id, prefix=prefix)


def ids(found: Candidates) -> list[str]:
    return sorted(hit.record.id for hit in found.found)


def text(draw: random.Random) -> str:
    return " ".join(draw.choices(_WORDS, k=4))


# ---------------------------------------------------------------- hits


@pytest.mark.parametrize("language", SAID)
def test_question_is_found_behind_other_sentences(language: str, url: str) -> None:
    said, question, other = SAID[language]
    with memory_of(url, language) as memory:
        for before in range(5):
            hits = memory.search("s", f"{other} " * before + question, limit=3)
            assert said in [hit.entry.content for hit in hits], before


@pytest.mark.parametrize("value", VALUES)
def test_whole_value_is_first(value: str, url: str) -> None:
    with MemoryManager(url) as memory:
        for number in range(60):
            memory.add_user_message("s", f"it was {longer(value, number)}")
        memory.add_user_message("s", f"it was {value} " + "of the rest " * 400, id="whole")
        for wording in WORDINGS:
            assert memory.search("s", wording.format(value), limit=1)[0].entry.id == "whole", (
                wording
            )


# ---------------------------------------------------------------- completeness


def test_search_finds_each_entry_while_others_write(store: PostgresStore) -> None:
    def write(writer: int) -> None:
        for number in range(15):
            name = f"w{writer}n{number}w"
            store.append(f"s{number % 3}", (added(name, f"kappa {name}"),))
            scope = [None, f"s{number % 3}"][number % 2]
            assert ids(store.search(request(name, scope))) == [name]

    in_threads([lambda writer=writer: write(writer) for writer in range(4)])
    assert store.search(request("kappa")).counts == (60,)


def test_search_finds_entries_of_a_transaction_that_ends_late(
    store: PostgresStore, url: str
) -> None:
    store.append("s", (added("a", "kappa"),))
    store.append("late", (added("b", "omega"),))
    assert ids(store.search(request("kappa omega"))) == ["a", "b"]
    with psycopg.connect(url) as writer:
        # An older transaction than those that the searches below see.
        writer.execute(
            "SELECT memman_add('late', 'c', 1, payload, now(), NULL) FROM memman_record LIMIT 1"
        )
        for number in range(5):
            store.append("s", (added(f"d{number}", "sigma"),))
            assert store.search(request("sigma")).counts == (number + 1,)
        writer.commit()
    assert store.search(request("kappa")).counts == (2,)


def test_index_continues_where_it_ended(store: PostgresStore, url: str) -> None:
    count = index._MOST_SESSIONS + 30
    for number in range(count):
        store.append(f"s{number}", (added("a", "kappa"),))
    store.append("long", [added(f"e{number}", "omega") for number in range(1_500)])
    assert store.search(request("kappa", prefix="s1")).counts == (111,)
    found = store.search(request("kappa omega"))
    assert (found.entries, found.counts) == (count + 1_500, (count, 1_500))
    first = servers.asked("SELECT upto FROM memman_indexed WHERE session = 0", url)
    store.append("s7", (added("b", "sigma"),))
    assert ids(store.search(request("sigma"))) == ["b"]
    assert servers.asked("SELECT upto FROM memman_indexed WHERE session = 0", url) >= first
    store.delete("long")
    assert store.search(request("kappa")).entries == count + 1


def test_two_frequent_words_find_the_entry_with_both(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memman_postgres.search._MOST_ROWS", 20)
    texts = ["kappa"] * 60 + ["omega"] * 60 + ["kappa omega"]
    store.append("s", [added(f"e{number}", text) for number, text in enumerate(texts)])
    assert store.search(request("kappa omega", "s")).found[0].record.id == "e120"


def test_search_after_a_restored_copy_finds_new_entries(store: PostgresStore, url: str) -> None:
    store.append("s", (added("a", "kappa"),))
    assert ids(store.search(request("kappa"))) == ["a"]
    # As if its server had counted more transactions than this one will for long, most without a record.
    servers.run_sql(
        "UPDATE memman_record SET position = position + 1000000;"
        "UPDATE memman_session SET position = position + 1000000;"
        "UPDATE memman_indexed SET upto = upto + 2000000 WHERE session = 0", url,
    )  # fmt: skip
    restored = PostgresStore(url, create=True)
    restored.append("t", (added("b", "kappa"),))
    assert ids(restored.search(request("kappa"))) == ["a", "b"]
    restored.close()


# ---------------------------------------------------------------- deletion


def test_erased_words_are_in_no_row(store: PostgresStore, url: str) -> None:
    store.append("s", (added("a", "canary4217canary"), added("b", "kappa")))
    assert ids(store.search(request("canary4217canary"))) == ["a"]
    erase_entries(store, "s", "a")
    assert (
        servers.asked("SELECT count(*) FROM memman_word WHERE words::text LIKE '%4217%'", url) == 0
    )
    store.delete("s")
    assert servers.asked("SELECT count(*) FROM memman_word", url) == 0
    assert servers.asked("SELECT count(*) FROM memman_indexed WHERE session <> 0", url) == 0


def test_searches_during_deletions_leave_no_words(store: PostgresStore, url: str) -> None:
    ended = threading.Event()

    def search_on() -> None:
        while not ended.is_set():
            store.search(request("canary"))

    def write() -> None:
        try:
            for number in range(25):
                store.append(
                    "s", (added(f"e{number}", f"canary{number}"), added(f"k{number}", "kappa"))
                )
                erase_entries(store, "s", f"e{number}")
                store.append("t", (added("a", "canary"),))
                store.delete("t")
        finally:
            ended.set()

    in_threads([search_on, search_on, write])
    assert ids(store.search(request("canary"))) == []
    assert (
        servers.asked("SELECT count(*) FROM memman_word WHERE words::text LIKE '%canary%'", url)
        == 0
    )


def test_fork_import_undo_and_redaction_reach_the_index(url: str) -> None:
    def redact(entry: Entry) -> Entry:
        return msgspec.structs.replace(entry, content=entry.text.replace("hunter2", "[secret]"))

    with MemoryManager(url, redact=redact) as memory:
        memory.add_user_message("s", "the deploy key is hunter2")
        assert memory.search("s", "hunter2") == []
        memory.fork_session("s", "f")
        state = memory.export_session("s")
        memory.delete_session("s")
        assert [hit.session_id for hit in memory.search(None, "deploy key")] == ["f"]
        memory.import_session(state)
        assert {hit.session_id for hit in memory.search(None, "deploy key")} == {"f", "s"}
        [hit] = memory.search("s", "deploy key")
        taken = memory.retract("s", [hit.entry.id], reason="wrong")
        assert memory.search("s", "deploy key") == []
        memory.undo_compression("s", taken)
        assert len(memory.search("s", "deploy key")) == 1


# ---------------------------------------------------------------- texts and queries


@pytest.mark.parametrize(
    "said",
    [
        " ".join(f"word{number}" for number in range(250_000)) + " kappa",
        "k" * 1_999_000,
        " ".join("密钥"[number % 2] * (number % 90) for number in range(20_000)),
        "".join(map(chr, range(0x1, 0xD800))),
        "\x00" * 9_000 + "kappa",
        "'" * 9_000 + "\\" * 9_000,
    ],
    ids=["many words", "one word", "pairs", "every character", "zeros", "quotes"],
)
def test_text_beyond_the_limits_is_indexed_in_part(store: PostgresStore, said: str) -> None:
    store.append("s", (added("a", said), added("b", "omega")))
    assert ids(store.search(request("omega", "s"))) == ["b"]
    first = next(iter(words_of(said)), None)
    if first is not None:
        assert "a" in ids(store.search(SearchRequest(terms=(first,), session_id="s")))


def test_every_part_of_a_long_word_is_found(store: PostgresStore) -> None:
    draw = random.Random(0)
    word = "".join(draw.choices("0123456789abcdef", k=3_000))
    store.append("s", (added("a", word),))
    for _ in range(20):
        at = draw.randrange(2_900)
        assert ids(store.search(request(word[at : at + 100], "s"))) == ["a"]


def test_accents_make_no_difference(store: PostgresStore) -> None:
    store.append("s", (added("a", "naïve café"), added("b", "naive cafe")))
    for query in ("naive", "NAÏVE", "café", "cafe"):
        assert ids(store.search(request(query, "s"))) == ["a", "b"]


def test_random_bytes_as_queries_are_data(store: PostgresStore) -> None:
    store.append("s", (added("a", "kappa"),))
    draw = random.Random(1)
    signs = "'\"\\%_&|!:*()<->$;\x00\x1a\ud7ff\U0010ffff-- kappa"
    for _ in range(150):
        query = "".join(draw.choices(signs, k=draw.randrange(1, 40)))
        for prefix in ("", query.replace("\x00", "")):
            assert set(ids(store.search(request(query, prefix=prefix)))) <= {"a"}
    many = SearchRequest(terms=tuple(f"w{number}" for number in range(200)), session_id="s")
    assert store.search(many).counts == (0,) * 200


# ---------------------------------------------------------------- rights


@pytest.fixture
def ordinary() -> Iterator[str]:
    """A database of a role that may not create extensions."""
    name = f"memman_{uuid.uuid4().hex}"
    servers.run_sql(f"CREATE ROLE {name} LOGIN")
    servers.run_sql(f"CREATE DATABASE {name}")
    base = f"postgresql://postgres@{servers.HOST}/{name}"
    servers.run_sql(f"CREATE SCHEMA chat AUTHORIZATION {name}", base)
    yield name
    servers.run_sql(f"DROP DATABASE {name} WITH (FORCE)")
    servers.run_sql(f"DROP ROLE {name}")


def test_without_pg_trgm_a_warning_names_the_fix(
    ordinary: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    url = f"postgresql://{ordinary}@{servers.HOST}/{ordinary}?options=-csearch_path%3Dchat"
    store = PostgresStore(url)
    store.append("s", (added("a", "the gateways"), added("b", "kappa")))
    assert ids(store.search(request("gateway kapp", "s"))) == ["a"]
    store.search(request("kapp", "s"))
    warnings = [each.getMessage() for each in caplog.records if "pg_trgm" in each.getMessage()]
    assert len(warnings) == 1
    assert "CREATE EXTENSION pg_trgm" in warnings[0]
    owner = f"postgresql://postgres@{servers.HOST}/{ordinary}"
    servers.run_sql("CREATE EXTENSION pg_trgm; CREATE EXTENSION btree_gin", owner)
    servers.run_sql(script(), url)
    assert ids(store.search(request("kapp", "s"))) == ["b"]
    store.close()


@pytest.mark.parametrize("indexed", ["", ", memman_word, memman_indexed"])
def test_role_that_may_only_read_finds_everything(
    schema: str, store: PostgresStore, indexed: str
) -> None:
    role = f"memman_{uuid.uuid4().hex}"
    store.append("s", (added("a", "kappa"),))
    assert ids(store.search(request("kappa", "s"))) == ["a"]
    store.append("s", (added("b", "kappa omega"), added("c", "sigma")))
    store.append("t", (added("d", "kappa"),))
    log = "memman_store, memman_session, memman_record, memman_mention"
    servers.run_sql(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};"
        f"SET search_path TO {schema}; GRANT SELECT ON {log}{indexed} TO {role}"
    )
    try:
        options = f"?options=-csearch_path%3D{schema}"
        reader = PostgresStore(f"postgresql://{role}@{servers.HOST}/test{options}", create=False)
        assert ids(reader.search(request("kappa omega", "s"))) == ["a", "b"]
        assert ids(reader.search(request("kappa"))) == ["a", "b", "d"]
        reader.close()
    finally:
        servers.run_sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


# ---------------------------------------------------------------- tenants


@pytest.fixture
def tenants(schema: str, url: str) -> Iterator[dict[str, PostgresStore]]:
    """The stores of two tenants in one database."""
    role = f"memman_{uuid.uuid4().hex}"
    servers.run_sql(f"CREATE ROLE {role} LOGIN")
    servers.run_sql(
        f"{script(partitions=4, tenants=True)} GRANT USAGE ON SCHEMA {schema} TO {role};"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}", url,
    )  # fmt: skip
    stores = {
        name: PostgresStore(
            f"postgresql://{role}@{servers.HOST}/test"
            f"?options=-csearch_path%3D{schema}%20-cmemman.tenant%3D{name}",
            create=False, pool_size=2,
        )
        for name in ("acme", "other")
    }  # fmt: skip
    yield stores
    for store in stores.values():
        store.close()
    servers.run_sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


def _entries(found: Candidates) -> dict[tuple[str, int], Added]:
    return {(hit.session_id, hit.seq): hit.record for hit in found.found}


def test_tenants_never_find_each_others_entries(tenants: dict[str, PostgresStore]) -> None:
    draw = random.Random(2)
    alone = {name: MemoryStore() for name in tenants}
    sessions = ["s", "s/1", "t"]
    for number in range(60):
        for name in tenants:
            # The same sessions and ids, and a word that only this tenant has.
            record = added(f"e{number}", f"{text(draw)} {name}{number % 7}")
            session = draw.choice(sessions)
            tenants[name].append(session, (record,))
            alone[name].append(session, (record,))
    rows = {
        name: {session: list(store.read(session)) for session in sessions}
        for name, store in alone.items()
    }
    words = [
        *_WORDS,
        *(f"{name}{number}" for name in tenants for number in range(7)),
        "cme",
        "the",
        "%",
    ]
    for _ in range(_QUERIES):
        name = draw.choice(list(tenants))
        scope: Any = draw.choice(
            [{"session_id": draw.choice(sessions)}, {}, {"prefix": draw.choice(["s", "s/", "x"])}]
        )
        wanted = SearchRequest(
            terms=terms_of(" ".join(draw.choices(words, k=draw.randrange(1, 4)))), **scope
        )
        found = tenants[name].search(wanted)
        by_hand = scan(
            wanted,
            [
                (session, seq, record)
                for session in sessions
                if wanted.covers(session)
                for seq, record in rows[name][session]
            ],
        )
        # Neither the entries nor the counts behind the rarity of words are those of the other tenant.
        assert (found.entries, found.counts) == (by_hand.entries, by_hand.counts), wanted
        assert _entries(found) == _entries(by_hand), wanted


def test_words_of_another_tenant_cannot_be_read_or_written(
    tenants: dict[str, PostgresStore], url: str
) -> None:
    for name, store in tenants.items():
        store.append("s", (added("a", f"kappa {name}"),))
        assert ids(store.search(request("kappa"))) == ["a"]
    with psycopg.connect(tenants["acme"]._url, autocommit=True) as connection:
        for table in ("memman_word", "memman_indexed"):
            seen = connection.execute(f"SELECT DISTINCT tenant FROM {table}".encode())  # noqa: S608 - our own names
            assert seen.fetchall() == [("acme",)]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"UPDATE {table} SET tenant = 'other'".encode())  # noqa: S608 - our own names
        connection.execute("RESET memman.tenant")
        connection.execute("SELECT set_config('memman.tenant', '', false)")
        assert connection.execute("SELECT count(*) FROM memman_word").fetchone() == (0,)
    forced = (
        "SELECT count(*) FROM pg_class WHERE relname IN ('memman_word', 'memman_indexed')"
        " AND relforcerowsecurity AND relnamespace = current_schema()::regnamespace"
    )
    assert servers.asked(forced, url) == 2


def test_search_of_a_session_reads_only_its_rows(store: PostgresStore, url: str) -> None:
    for number in range(300):
        store.append(f"s{number}", [added(f"e{n}", f"kappa n{number}n") for n in range(10)])
    store.search(request("kappa"))
    servers.run_sql("VACUUM ANALYZE memman_word", url)
    step = search(request("kappa", "s7"))
    plans: list[str] = []
    with psycopg.connect(url) as connection:
        rows: Any = None
        while True:
            try:
                statement, values = step.send(rows)
            except StopIteration:
                break
            if "memman_word " in statement:
                explained = connection.execute(f"EXPLAIN {statement}".encode(), values).fetchall()
                plans.append("\n".join(line for (line,) in explained))
            rows = connection.execute(statement.encode(), values).fetchall()
    assert plans
    for plan in plans:
        assert "Seq Scan on memman_word" not in plan
        assert "Index Cond: ((session = " in plan or "Index Cond: (session = " in plan
