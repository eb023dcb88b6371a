"""A process killed between any two statements leaves the old state or the new one; a retry completes it.

The n-th statement of a call kills its own process, for every n. A fresh store then has the old state
or the new one, and the same call with the same ids leads to the new one.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import psycopg
import pytest
from memman_postgres import steps

from memman import MemoryConfig, MemoryManager
from memman.protocols import StoredItem
from memman.records import Cleared, Deleted, encode
from memman.stores import SQLiteStore, sqlite_tables
from memman.testing.stores import AT, added, summary_of
from tests.kinds import IN_FILES, InFile, InPostgres

_KILLED = -signal.SIGKILL
COMPRESSING = MemoryConfig(max_tokens=400, min_entries_to_compress=2, recent_window=2)
# From Python 3.12 on, forking a process with threads warns; these children are new processes.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Strike:
    """Kill this process at a statement; with 0 it survives."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, _statement: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def with_strikes(strike: Strike) -> None:
    """Let `strike` count every statement of SQLite and PostgreSQL in this process."""
    real = sqlite3.connect

    def connect(*given: Any, **named: Any) -> sqlite3.Connection:
        connection = real(*given, **named)
        connection.set_trace_callback(strike)
        return connection

    sqlite3.connect = connect  # type: ignore[assignment]
    execute = psycopg.Connection.execute

    def counted(self: Any, *given: Any, **named: Any) -> Any:
        done = execute(self, *given, **named)
        strike()  # the server has the statement, and its answer is lost
        return done

    psycopg.Connection.execute = counted  # type: ignore[method-assign]


def struck(work: Callable[[Strike], object], at: int) -> bool:
    """Return whether `work` was killed at a statement; False if it ended before."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            strike = Strike(0)
            with_strikes(strike)
            strike.left = at
            work(strike)
            status = 0
        finally:
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert ended in (0, _KILLED), "the method failed"
    return ended == _KILLED


def look(store: Any, session_id: str) -> Any:
    """Return all that a store returns about a session, apart from its epoch."""
    snapshot = store.load(session_id)
    listed = [info for info in store.sessions() if info.session_id == session_id]
    if snapshot is None:
        assert store.state(session_id) is None
        assert list(store.read(session_id)) == listed == []
        return None
    assert store.state(session_id) == (snapshot.head, snapshot.epoch)
    log = [(seq, encode(record)) for seq, record in store.read(session_id, 0, 10_000)]
    assert [seq for seq, _ in log] == list(range(1, snapshot.head + 1))
    window = [(place, encode(record)) for place, record in snapshot.window]
    names = ["a", "b", "k", "k/0", "x", *[f"n{number}" for number in range(40)]]
    found = [seq for seq, _ in store.find(session_id, names)]
    if isinstance(store, SQLiteStore):  # a feed of PostgreSQL waits for all transactions
        fed = [item.seq for item in store.feed(limit=100_000) if item.session_id == session_id]
        assert fed == [seq for seq, _ in log], "the feed is not the log"
    [info] = listed
    totals = snapshot.totals
    assert (info.entries, info.tokens) == (totals.entries, totals.tokens)
    assert (info.metadata, info.first_line) == (totals.metadata, totals.first_line)
    return log, window, found, msgspec.json.encode(totals), info.tokens


def prepared(store: Any, session_id: str) -> None:
    """Create a session of five entries and a compression."""
    store.append(session_id, tuple(added(name, tokens=3) for name in "abcde"))
    epoch = store.state(session_id)[1]
    store.commit(session_id, epoch, (summary_of("k", ["a", "b"]),),
                 [StoredItem(0, 0, 1), *[StoredItem(seq, -1, seq) for seq in (3, 4, 5)]], 5)  # fmt: skip


def nothing(store: Any, session_id: str) -> None:
    """Create no session."""


def append_one(store: Any, session_id: str, _epoch: int) -> None:
    store.append(session_id, (added("n1", tokens=5),))


def append_many(store: Any, session_id: str, _epoch: int) -> None:
    store.append(session_id, tuple(added(f"n{number}", tokens=5) for number in range(4)))


def compress(store: Any, session_id: str, epoch: int) -> None:
    record = summary_of("x", ["c", "d"])
    places = [StoredItem(6, 0, 1), StoredItem(0, 0, 3), StoredItem(5, -1, 5)]
    store.commit(session_id, epoch, (record,), places, 6)


def clear(store: Any, session_id: str, epoch: int) -> None:
    record = Cleared(id="x", at=AT)
    store.commit(session_id, epoch, (record,), (), 6, expect_head=6)


def bring_in(store: Any, session_id: str, _epoch: int) -> None:
    records = [
        *[added(f"n{number}", tokens=2) for number in range(12)],
        summary_of("x", ["n0", "n1"]),
    ]
    places = [
        StoredItem(-12, 0, 1),
        *[StoredItem(-number, -1, number + 1) for number in range(2, 12)],
    ]
    store.commit(session_id, 0, records, places, 13, expect_head=0)


def delete_entries(store: Any, session_id: str, epoch: int) -> None:
    record = Deleted(id="x", at=AT, ids=("c",), entries=1, tokens=3)
    places = [StoredItem(6, 0, 1), StoredItem(4, -1, 4), StoredItem(5, -1, 5)]
    store.erase(session_id, epoch, record, places, 6, frozenset({"a", "c", "k/0"}))


def delete(store: Any, session_id: str, _epoch: int) -> None:
    store.delete(session_id)


METHODS = [
    (nothing, append_one), (prepared, append_one), (nothing, append_many), (prepared, append_many),
    (prepared, compress), (prepared, clear), (nothing, bring_in), (prepared, delete),
    (prepared, delete_entries),
]  # fmt: skip


LONG = {append_one, bring_in, clear}  # each shares its code with one of the others


@pytest.fixture(params=IN_FILES)
def kind(request: pytest.FixtureRequest) -> Iterator[InFile | InPostgres]:
    made = request.param()
    yield made
    made.remove()


def hunt(kind: InFile | InPostgres, prepare: Any, method: Any) -> None:
    """Kill the call `method` at each of its statements, each time on a new session."""
    seen = set()
    for at in range(1, 1_000):
        session = f"s{at}"
        epoch, before, after = foreseen(kind, prepare, method, session)

        def work(strike: Strike, session: str = session, epoch: int = epoch, at: int = at) -> None:
            strike.left = 0
            store = kind.open()
            strike.left = at
            method(store, session, epoch)

        killed = struck(work, at)
        with closing(kind.open()) as fresh:
            found = look(fresh, session)
            assert found in (before, after), f"neither before nor after, killed at statement {at}"
            seen.add(found == after)
            method(fresh, session, epoch)
            assert look(fresh, session) == after, f"not as after one call, killed at statement {at}"
        if not killed:
            break
    assert at >= 2
    assert True in seen  # an append in one round trip is done once it is sent


def foreseen(
    kind: InFile | InPostgres, prepare: Any, method: Any, session: str
) -> tuple[int, Any, Any]:
    """Return a prepared session's epoch and state, and the state after the call."""
    with closing(kind.open()) as store:
        prepare(store, "whole")
        method(store, "whole", (store.state("whole") or (0, 0))[1])
        after = look(store, "whole")
        store.delete("whole")
        prepare(store, session)
        return (store.state(session) or (0, 0))[1], look(store, session), after


@pytest.mark.parametrize(
    ("prepare", "method"),
    [
        pytest.param(
            begun, method, id=f"{method.__name__}-{begun.__name__}",
            marks=[pytest.mark.long] if method in LONG else [],
        )
        for begun, method in METHODS
    ],
)  # fmt: skip
def test_kill_at_any_statement_leaves_state_before_or_after(
    kind: InFile | InPostgres, prepare: Any, method: Any
) -> None:
    hunt(kind, prepare, method)


@pytest.mark.long
def test_killed_deletion_deletes_all_or_nothing(
    kind: InFile | InPostgres,
) -> None:
    for at in range(1, 1_000):
        session = f"s{at}"
        with MemoryManager(kind.url, counter="chars4", config=COMPRESSING) as memory:
            for number in range(12):
                memory.add_user_message(session, f"secret{number} " + "word " * 20, id=f"n{number}")
            assert memory.compress(session, target_tokens=120).compression_id is not None

        def work(strike: Strike, session: str = session, at: int = at) -> None:
            memory = MemoryManager(kind.url, counter="chars4", config=COMPRESSING)
            memory.get_entries(session)
            strike.left = at
            memory.delete_entries(session, ["n1"])

        killed = struck(work, at)
        with MemoryManager(kind.url, counter="chars4") as memory:
            there = "n1" in [entry.id for entry in memory.get_entries(session)]
            with closing(kind.open()) as store:
                held = any(b"secret1 " in encode(record) for _, record in store.read(session))
            assert held == there, f"killed at statement {at}"
            memory.delete_session(session)
        if not killed:
            break
    assert not there
    assert at > 5


@pytest.mark.parametrize("method", [compress, pytest.param(clear, marks=pytest.mark.long)])
def test_window_committed_apart_from_its_record_is_detected(
    kind: InFile | InPostgres, method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_reshape, real_commit = sqlite_tables.replace_window, steps.commit

    def torn_reshape(db: sqlite3.Connection, *given: Any) -> None:
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")
        real_reshape(db, *given)

    def torn_commit(*given: Any) -> Any:
        step, rows = real_commit(*given), None
        while True:
            try:
                statement = step.send(rows)
            except StopIteration as end:
                return end.value
            if "SET epoch" in statement[0]:
                yield "COMMIT", ()
                yield "BEGIN", ()
            rows = yield statement

    monkeypatch.setattr(sqlite_tables, "replace_window", torn_reshape)
    monkeypatch.setattr(steps, "commit", torn_commit)
    with pytest.raises(AssertionError, match="neither before nor after"):
        hunt(kind, prepared, method)


# ---------------------------------------------------------------- making the tables


@pytest.mark.parametrize("made", IN_FILES)
def test_next_process_creates_tables_after_a_kill(made: Any) -> None:
    for at in range(1, 1_000):
        kind = made()
        killed = struck(lambda strike, kind=kind: kind.open(), at)  # type: ignore[misc]
        with closing(kind.open()) as store:
            store.append("s", (added("new"),))
            assert [record.id for _, record in store.read("s")] == ["new"]
        kind.remove()
        if not killed:
            break
    assert at > 4
