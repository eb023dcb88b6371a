"""The feed of a PostgreSQL store: complete and in order, even with open transactions."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import postgres_servers as servers
import psycopg
import pytest
from memman_postgres import PostgresStore, steps
from memman_postgres.tables import schema as schema_script

from benchmarks.feeds import follow_under_kills
from memman import InvalidInput, MemoryConfig, MemoryManager
from memman.protocols import FeedItem
from memman.testing.laws import in_threads
from memman.testing.stores import added
from tests.patience import PATIENCE

pytestmark = pytest.mark.service


def drive(connection: psycopg.Connection[Any], step: Any) -> Any:
    """Drives a step in the connection's transaction, without ending it."""
    rows: Any = None
    while True:
        try:
            statement, arguments = step.send(rows)
        except StopIteration as end:
            return end.value
        cursor = connection.execute(statement.encode(), arguments)
        rows = cursor.fetchall() if cursor.description else []


def fed(store: PostgresStore, count: int, after: str = "") -> list[FeedItem]:
    """So many items of the feed, when they have come."""
    deadline = time.monotonic() + PATIENCE
    while len(items := list(store.feed(after, 10**6))) < count:
        assert time.monotonic() < deadline, f"the feed has {len(items)} of {count}"
        time.sleep(0.01)
    return items


def places(items: list[FeedItem]) -> list[tuple[str, int]]:
    return [(item.session_id, item.seq) for item in items]


# ---------------------------------------------------------------- the horizon


def test_feed_waits_for_an_open_transaction(store: PostgresStore, url: str) -> None:
    for name in ("slow", "fast"):
        store.append(name, (added("first"),))
    last = fed(store, 2)[-1].cursor
    with psycopg.connect(url) as slow:
        drive(slow, steps.append_one("slow", [added("held")], None))
        store.append("fast", (added("quick"),))
        assert store.feed(last) == [], (
            "what came later may not be told before what may come earlier"
        )
        slow.commit()
    items = fed(store, 2, last)
    assert places(items) == [("slow", 2), ("fast", 2)]


def test_rolled_back_records_are_not_in_the_feed(store: PostgresStore, url: str) -> None:
    for name in ("slow", "fast"):
        store.append(name, (added("first"),))
    last = fed(store, 2)[-1].cursor
    with psycopg.connect(url) as slow:
        drive(slow, steps.append_one("slow", [added("never")], None))
        store.append("fast", (added("quick"),))
        slow.rollback()
    assert places(fed(store, 1, last)) == [("fast", 2)]


def _waited(store: PostgresStore, url: str, late: tuple[str, ...]) -> list[str]:
    """Return the feed after a transaction with an older id waited for a younger one's row, then wrote."""
    store.append("s", (added("first"),))
    with psycopg.connect(url) as older, psycopg.connect(url) as younger:
        older.execute("SELECT pg_current_xact_id()")
        drive(younger, steps.append_one("s", [added("second")], None))
        one = steps.append_one("s", [added(late[0])], None)
        many = steps.append("s", [added(name) for name in late], None)
        step = one if len(late) == 1 else many
        waiting = threading.Thread(target=lambda: drive(older, step))
        waiting.start()
        time.sleep(0.1)
        assert waiting.is_alive(), "it should wait for the session's row"
        younger.commit()
        waiting.join(10)
        older.commit()
    return [item.record.id for item in fed(store, 2 + len(late))]


@pytest.mark.parametrize("late", [("third",), ("third", "fourth")])
def test_transaction_comes_behind_one_that_it_waited_for(
    store: PostgresStore, url: str, late: tuple[str, ...]
) -> None:
    assert _waited(store, url, late) == ["first", "second", *late]


def _write(url: str, writer: int, names: list[str], each: int) -> None:
    """Appends in transactions that stay open for a while, some of which are taken back."""
    rng = random.Random(writer)
    with psycopg.connect(url) as connection:
        for number in range(each):
            if rng.random() < 0.5:  # an id of its own, long before the first row
                connection.execute("SELECT pg_current_xact_id()")
                time.sleep(rng.random() * 0.002)
            drive(
                connection, steps.append_one(rng.choice(names), [added(f"{writer}-{number}")], None)
            )
            time.sleep(rng.random() * 0.004)
            if rng.random() < 0.1:
                connection.rollback()
            else:
                connection.commit()


def _written(store: PostgresStore) -> int:
    states = [store.state(info.session_id) for info in store.sessions()]
    return sum(state[0] for state in states if state is not None)


def _race(url: str, names: list[str], each: int = 120) -> tuple[list[FeedItem], list[FeedItem]]:
    """Return the items that a follower saw while six writers wrote, and the feed after it."""
    store = PostgresStore(url)
    for name in names:
        store.append(name, (added("first"),))
    done = threading.Event()
    left = [None] * 6

    def write(writer: int) -> list[FeedItem]:
        try:
            _write(url, writer, names, each)
        finally:
            left.pop()
            if not left:
                done.set()
        return []

    seen, *_ = in_threads(
        [lambda: _followed(store, done), *[lambda w=w: write(w) for w in range(6)]], 50
    )  # type: ignore[misc]
    after = list(store.feed("", 10**6))
    store.close()
    return seen, after


def _followed(store: PostgresStore, done: threading.Event) -> list[FeedItem]:
    """Return the items that a follower sees until nothing came for 0.3 s after the last write."""
    seen: list[FeedItem] = []
    quiet = 0.0
    while quiet < 0.3 or (len(seen) < _written(store) and quiet < 1.5):
        page = store.feed(seen[-1].cursor if seen else "", 50)
        seen += page
        if page or not done.is_set():
            quiet = 0.0
        else:
            time.sleep(0.02)
            quiet += 0.02
    return seen


def _check(seen: list[FeedItem], after: list[FeedItem]) -> None:
    assert sorted(places(seen)) == sorted(places(after)), "something was missed or told twice"
    for name in {item.session_id for item in seen}:
        own = [item.seq for item in seen if item.session_id == name]
        assert own == list(range(1, len(own) + 1)), f"{name} is out of order"
    assert places(seen) == places(after), "a place has changed"


def test_follower_of_open_transactions_misses_nothing(url: str) -> None:
    seen, after = _race(url, ["a", "b", "c"])
    assert len(seen) > 400
    _check(seen, after)


_POSITION = (
    "greatest(its.position, pg_current_xact_id()::text::bigint + (SELECT behind FROM memman_store))"
)


def _give_positions(url: str, position: str) -> None:
    """Lets appends take another position than the one that is right."""
    assert _POSITION in schema_script()
    servers.run_sql(schema_script().replace(_POSITION, position), url)


_NO_HORIZON = "SELECT 9223372036854775807, 9223372036854775807"


@pytest.mark.parametrize(
    "position",
    [
        pytest.param("nextval('bare')", id="a bare sequence"),
        pytest.param("(extract(epoch FROM clock_timestamp()) * 1e6)::bigint", id="the clock"),
        pytest.param(_POSITION, id="no horizon"),
    ],
)
def test_race_detects_a_feed_that_misses_records(
    url: str, monkeypatch: pytest.MonkeyPatch, position: str
) -> None:
    PostgresStore(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE bare")
    _give_positions(url, position)
    monkeypatch.setattr(steps, "_HORIZON", _NO_HORIZON)
    seen, after = _race(url, ["a", "b", "c"], 60)
    with pytest.raises(AssertionError):
        _check(seen, after)


def test_transaction_id_alone_breaks_a_sessions_order(store: PostgresStore, url: str) -> None:
    _give_positions(url, "pg_current_xact_id()::text::bigint")
    assert _waited(store, url, ("third",)) == ["first", "third", "second"]


# ---------------------------------------------------------------- other servers


def test_restored_database_continues_behind_its_records(store: PostgresStore, url: str) -> None:
    store.append("s", (added("a"),))
    store.append("s", (added("b"),))
    fed(store, 2)
    with psycopg.connect(url, autocommit=True) as connection:  # ids that are yet to come here
        connection.execute("UPDATE memman_record SET position = position + 1000000000")
        connection.execute("UPDATE memman_session SET position = position + 1000000000")
    moved = PostgresStore(url)
    before = fed(moved, 2)
    store.append("s", (added("c"),))
    moved.append("t", (added("d"),))
    later = fed(moved, 2, before[-1].cursor)
    assert sorted(places(later)) == [("s", 3), ("t", 1)]
    assert fed(moved, 4) == before + later
    PostgresStore(url).close()
    assert fed(moved, 4) == before + later
    moved.close()


def test_cursor_of_a_later_copy_is_refused(store: PostgresStore) -> None:
    store.append("s", (added("a"),))
    [item] = fed(store, 1)
    position, number, seq = item.cursor.split(":")
    with pytest.raises(InvalidInput, match="has never been at"):
        store.feed(f"{int(position) + 10**9}:{number}:{seq}")
    with pytest.raises(InvalidInput, match="not a cursor of the feed of PostgreSQL"):
        store.feed("1:2")


# ---------------------------------------------------------------- processes


def test_killed_followers_see_every_record_once_in_order(url: str) -> None:
    outcome = follow_under_kills(url, 6)
    assert outcome.records >= 10
    assert outcome.problems == 0, outcome


def test_two_managers_pay_for_one_summary(url: str) -> None:
    asked = threading.Event()
    go_on = threading.Event()
    paid: list[str] = []

    def slow(_prompt: str) -> str:
        paid.append("first")
        asked.set()
        assert go_on.wait(20)
        return "a summary"

    def never(_prompt: str) -> str:
        paid.append("second")
        return "another summary"

    config = MemoryConfig(
        max_tokens=400, min_entries_to_compress=1, recent_window=2, auto_compress=False
    )
    with (
        MemoryManager(url, counter="chars4", config=config, summarizer=slow) as first,
        MemoryManager(url, counter="chars4", config=config, summarizer=never) as second,
    ):
        for number in range(30):
            first.add_user_message("s", f"{number} " + "word " * 9)
        results: list[Any] = []
        paying = threading.Thread(target=lambda: results.append(first.compress("s")))
        paying.start()
        assert asked.wait(20)
        assert "another worker is summarizing" in second.compress("s").reason
        go_on.set()
        paying.join(20)
        assert results[0].summary_id is not None
        assert second.get_summaries("s")[0].id == results[0].summary_id
        assert first.compress("s").compression_id is None
    assert paid == ["first"]


def test_lease_taken_while_waiting_is_respected(store: PostgresStore, url: str) -> None:
    """By the clock as it is when the row is free, not as it was when the statement began."""
    store.append("s", (added("a"),))
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(store.lease("s", "bob", 60)))
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM memman_session FOR UPDATE")
        waiting.start()
        time.sleep(0.2)
        assert drive(other, steps.lease("s", "ada", 60)) is True
        other.commit()
    waiting.join(20)
    assert answers == [False]
