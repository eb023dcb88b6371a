"""A damaged search index, and one that cannot be written: nothing but the index is concerned."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from memman import MemoryManager
from memman.search.index import PARTS_OF_TABLES
from memman.stores import SQLiteStore

KINDS = ("bits", "zeros", "noise")
WORDS = ("kappa", "omega", "sigma", "theta")
CANARY = "qanaria"


def made(path: Path, entries: int = 120) -> None:
    """Make a file with two sessions and a search index."""
    with MemoryManager(path) as memory:
        for number in range(entries):
            word = WORDS[number % 4] if number != 7 else CANARY
            memory.add_user_message(
                "s", f"note {number} about {word}: " + "some words " * 20, id=f"e{number}"
            )
        memory.add_user_message("t", f"another session has {CANARY}")
        memory.search("s", "kappa")


def index_pages(path: Path) -> list[int]:
    """Return the pages of the index, which no other table uses."""
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0").fetchall()
        try:
            found = db.execute("SELECT name, pageno FROM dbstat").fetchall()
            return [page for name, page in found if name in PARTS_OF_TABLES]
        except sqlite3.OperationalError:  # without dbstat the first pages alone
            return [page for name, page in rows if name in PARTS_OF_TABLES]


def damage(path: Path, kind: str, random: Random) -> None:
    """Damage some pages of the index."""
    with closing(sqlite3.connect(path)) as db:
        [(size,)] = db.execute("PRAGMA page_size")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages = index_pages(path)
    data = bytearray(path.read_bytes())
    for page in random.sample(pages, min(len(pages), random.randint(1, 4))):
        start = (page - 1) * size
        if kind == "zeros":
            data[start : start + size] = bytes(size)
        elif kind == "noise":
            data[start : start + size] = random.randbytes(size)
        else:
            for _ in range(40):
                data[start + random.randrange(size)] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def stored_bytes(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("verb", ["search", "delete entries", "delete session", "add"])
def test_damage_of_the_index_makes_nothing_fail(tmp_path, kind, seed, verb):
    path = tmp_path / "chat.db"
    made(path)
    damage(path, kind, Random(f"{kind} {seed} {verb}"))
    with MemoryManager(path) as memory:
        if verb == "delete entries":
            memory.delete_entries("s", ["e7"])
        elif verb == "delete session":
            memory.delete_session("s")
        elif verb == "add":
            memory.add_user_message("s", "one more kappa", id="more")
        if verb != "delete session":
            found = {hit.entry.id for hit in memory.search("s", "kappa", limit=200)}
            expected = {f"e{n}" for n in range(0, 120, 4)} | ({"more"} if verb == "add" else set())
            assert found == expected
        hits = memory.search("t", CANARY)
        assert [hit.entry.content for hit in hits] == [f"another session has {CANARY}"]
        if verb.startswith("delete"):
            memory.delete_session("t")
    if verb.startswith("delete"):
        assert CANARY.encode() not in stored_bytes(path)


@pytest.mark.skipif(sys.platform == "win32", reason="it limits the size of files as POSIX can")
def test_full_disk_leaves_an_erasure_pending(tmp_path, caplog):
    import resource

    path = tmp_path / "chat.db"
    made(path)
    damage(path, "zeros", Random(3))
    store = SQLiteStore(path)
    with MemoryManager(store) as memory:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size * 7 // 10, before[1]))
        try:
            memory.delete_entries("s", ["e7"])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert store.has_pending_erasure()
        assert "until a later deletion can erase them" in caplog.text
        memory.delete_session("t")
        assert not store.has_pending_erasure()
    assert CANARY.encode() not in stored_bytes(path)


def test_index_is_made_again_after_damage(tmp_path):
    path = tmp_path / "chat.db"
    made(path)
    damage(path, "zeros", Random(1))
    with MemoryManager(path) as memory:
        memory.search("s", "kappa")
        memory.search("s", "kappa")
    with closing(sqlite3.connect(path)) as db:
        assert [row for (row,) in db.execute("PRAGMA integrity_check")] == ["ok"]
        assert {name for (name,) in db.execute("SELECT name FROM sqlite_master")} >= {
            "word",
            "fragment",
        }


def test_locked_file_is_searched_to_its_end(tmp_path):
    path = tmp_path / "chat.db"
    made(path)
    with (
        MemoryManager(f"sqlite:///{path}?timeout=0.2") as memory,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        memory.add_user_message("s", "the newest kappa", id="newest")
        other.execute("BEGIN IMMEDIATE")
        found = {hit.entry.id for hit in memory.search("s", "kappa", limit=200)}
        other.execute("ROLLBACK")
    assert found == {f"e{n}" for n in range(0, 120, 4)} | {"newest"}


def test_row_that_outlives_its_session_is_of_nobody(tmp_path):
    path = tmp_path / "chat.db"
    made(path)
    with closing(sqlite3.connect(path)) as db, db:  # a program that deletes without the index
        db.execute("DELETE FROM record")
        db.execute("DELETE FROM session")
    with MemoryManager(path) as memory:
        memory.add_user_message("u", "nothing of this")
        assert memory.search("u", "kappa") == []
        assert memory.search(None, "kappa") == []
