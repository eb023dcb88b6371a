"""A foreign SQLite file cannot run code."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from memman import MemoryManager, StoreError
from memman.stores import SQLiteStore, open_store
from memman.stores.drivers import Driver
from memman.stores.sqlite_readonly import SQLiteReader

_TRIGGER = """
CREATE TRIGGER kept BEFORE DELETE ON record BEGIN
    UPDATE store SET first_epoch = first_epoch + 1;
END
"""
_VIEW = """
CREATE VIEW session AS
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)
SELECT real.* FROM real, c WHERE c.x < 0
"""


def _made(folder: Path, *statements: str) -> Path:
    """A memman file with foreign alterations."""
    path = folder / "chat.db"
    with MemoryManager(path) as memory:
        memory.add_user_message("s", "hello")
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return path


_OPENERS: list[Callable[[Path], object]] = [
    SQLiteStore,
    SQLiteReader,
    lambda path: SQLiteStore(path, driver="apsw"),
    lambda path: MemoryManager(path),
]


@pytest.mark.parametrize("opened", _OPENERS)
@pytest.mark.parametrize(
    ("statements", "named"),
    [
        ((_TRIGGER,), "trigger kept"),
        (("ALTER TABLE session RENAME TO real", _VIEW), "view session"),
        (("CREATE TABLE more (payload BLOB)",), "table more"),
        (("CREATE INDEX slow ON record (hex(payload))",), "index slow"),
        (("ALTER TABLE record ADD COLUMN more AS (hex(payload))",), "table record"),
    ],
)
def test_altered_schema_is_refused(
    tmp_path: Path, opened: Callable[[Path], object], statements: tuple[str, ...], named: str
) -> None:
    """A file with a trigger, a view or a table of its own is not opened"""
    path = _made(tmp_path, *statements)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=named):
        opened(path)
    assert path.read_bytes() == before


def test_view_in_a_file_of_version_zero_is_refused_unrun(tmp_path: Path) -> None:
    """No statement that creates the tables runs a foreign view"""
    path = _made(tmp_path, "ALTER TABLE session RENAME TO real", _VIEW, "PRAGMA user_version = 0")
    with pytest.raises(StoreError, match="view session"):
        open_store(str(path), lambda: pytest.fail("no plugin may be loaded"))


@pytest.mark.parametrize("driver", ["sqlite3", "apsw"])
def test_schema_functions_are_not_trusted(tmp_path: Path, driver: Driver) -> None:
    """A connection trusts no function of the schema and checks its pages"""
    with closing(SQLiteStore(tmp_path / "chat.db", driver=driver)) as store:
        db = store._open
        assert db is not None
        assert list(db.execute("PRAGMA trusted_schema")) == [(0,)]
        assert list(db.execute("PRAGMA cell_size_check")) == [(1,)]


def test_statistics_tables_are_accepted(tmp_path: Path) -> None:
    """A file whose owner ran ANALYZE or VACUUM is opened"""
    path = _made(tmp_path, "ANALYZE")
    with MemoryManager(path) as memory:
        assert len(memory.get_entries("s")) == 1
