"""Nearness in meaning, by the vectors of the caller's `embed`: stored small, and compared without numpy.

A vector is one signed byte a dimension. The signs of all are compared first, as the bits of integers, and
the exact products of the nearest alone. In a database vectors have a table beside the search index, which
is derived, guarded and discarded like it; the key of a row is the place of its record. The row 0, which is
the place of no record, has the name of their embed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from math import sqrt
from operator import mul
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlite3 import Connection

Vector = tuple[int, bytes]
"""The seq of an entry, and its vector."""
LEAST_SIMILARITY: Final = 0.17  # the least similarity of an entry that a context quotes
_LARGEST: Final = 127
_COMPARED: Final = 200  # vectors whose products are computed
_NEGATIVE: Final = bytes(byte > _LARGEST for byte in range(256))
_FIND: Final = """
SELECT place & 0xFFFFFFFF, value FROM vector
WHERE place > ?1 << 32 AND place <= ?1 << 32 | ?2 AND typeof(value) = 'blob' ORDER BY place DESC LIMIT ?3
"""
_REMOVE: Final = """
DELETE FROM vector WHERE place >> 32 = ?1 AND place BETWEEN ?1 << 32 AND ?1 + 1 << 32
    AND (?2 IS NULL OR place & 0xFFFFFFFF IN (SELECT value FROM json_each(?2)))
"""


def packed(vector: Iterable[float]) -> bytes:
    """Return a vector as signed bytes, of which the largest is 127. Raises an error unless it is one."""
    numbers = [float(number) for number in vector]
    largest = max(map(abs, numbers)) or 1.0
    return array("b", [round(number / largest * _LARGEST) for number in numbers]).tobytes()


def nearest(query: bytes, vectors: Iterable[Vector]) -> list[tuple[int, float]]:
    """Return the seqs of the vectors that are nearest to one, nearest first, with their cosines."""
    signs, wanted = _signs(query), array("b", query)
    sound = [each for each in vectors if len(each[1]) == len(query)]
    close = nsmallest(_COMPARED, sound, key=lambda each: (_signs(each[1]) ^ signs).bit_count())
    cosines = [(seq, _cosine(wanted, array("b", vector))) for seq, vector in close]
    return sorted(cosines, key=lambda each: -each[1])


def _signs(vector: bytes) -> int:
    return int.from_bytes(vector.translate(_NEGATIVE))


def _cosine(one: Sequence[int], other: Sequence[int]) -> float:
    squares = sum(map(mul, one, one)) * sum(map(mul, other, other))
    return float(sum(map(mul, one, other)) / sqrt(squares or 1))


class ProcessVectors:
    """Vectors in this process, for a store that keeps none."""

    def __init__(self) -> None:
        self._held: dict[object, dict[int, bytes]] = {}

    def vectors(self, session_id: str, _embed: str, until: int, limit: int) -> list[Vector]:
        """Return the vectors of a session's entries up to a seq, the newest first."""
        found = sorted(dict(self._held.get(session_id, {})).items(), reverse=True)
        return [each for each in found if each[0] <= until][:limit]

    def keep_vectors(
        self, session_id: str, _embed: str, _epoch: int, rows: Sequence[Vector]
    ) -> bool:
        """Keep vectors."""
        self._held.setdefault(session_id, {}).update(rows)
        return True

    def drop(self, session_id: object, rows: Sequence[Vector] | None = None) -> None:
        """Drop these vectors of a session, or all."""
        held = self._held.get(session_id, {})
        for seq in list(held) if rows is None else dict(rows):
            held.pop(seq, None)


# ---------------------------------------------------------------- in a database


def create(db: Connection) -> None:
    """Create the table if there is none, in the caller's transaction."""
    db.execute("CREATE TABLE IF NOT EXISTS vector (place INTEGER PRIMARY KEY, value BLOB NOT NULL)")


def add(db: Connection, session: int, embed: str, rows: Iterable[Vector]) -> None:
    """Add the vectors of an embed to those of the session with this number; others' go."""
    create(db)
    if not exist(db, embed):
        db.execute("DELETE FROM vector")
        db.execute("INSERT INTO vector VALUES (0, ?)", (embed.encode(),))
    keyed = [(session << 32 | seq, value) for seq, value in rows]
    db.executemany("INSERT OR REPLACE INTO vector VALUES (?, ?)", keyed)


def find(db: Connection, session: int, until: int, limit: int) -> list[Vector]:
    """Return the vectors of the session with this number up to a seq, the newest first."""
    return db.execute(_FIND, (session, until, limit)).fetchall()


def remove(db: Connection, session: int, seqs: str | None) -> None:
    """Remove the vectors of these records (JSON), or of all, of the session with this number."""
    if exist(db):
        db.execute(_REMOVE, (session, seqs))


def exist(db: Connection, embed: str | None = None) -> bool:
    """Return whether there is the table, and if an embed is named, whether the vectors are its."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'vector'").fetchone():
        return False
    found: object = db.execute("SELECT value FROM vector WHERE place = 0").fetchone()
    return embed is None or found == (embed.encode(),)
