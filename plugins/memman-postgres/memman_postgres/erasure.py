"""Removal of deleted words from the full-text index.

A deletion in the log never fails because of the index. If it cannot remove words, it leaves a mark: a
mention of the session with an empty id, which no entry has. This deletion and later ones try again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import psycopg

from memman_postgres.attempts import is_temporary
from memman_postgres.index import ALL, ask
from memman_postgres.transactions import BRIEFLY, Step

_REMOVE: Final = """
WITH gone AS (
    DELETE FROM memman_word WHERE session = %s AND coalesce(seq = ANY(%s::bigint[]), true) RETURNING 1
)
UPDATE memman_indexed SET entries = entries - (SELECT count(*) FROM gone) WHERE session IN (0, %s)
"""
_MARK: Final = """
INSERT INTO memman_mention (session, id, seq, effect) VALUES (%s, '', 0, 0) ON CONFLICT DO NOTHING
"""


def remove(number: int, seqs: Sequence[int] | None = None) -> Step[None]:
    """Remove the words of entries, or of a session for good; if that fails, mark the session."""
    yield "SAVEPOINT words", ()
    try:
        yield BRIEFLY, ()
        yield _REMOVE, (number, seqs, number)
        if seqs is None:
            yield "DELETE FROM memman_indexed WHERE session = %s", (number,)
    except psycopg.Error as error:
        if is_temporary(error):
            raise
        yield "ROLLBACK TO SAVEPOINT words", ()
        yield _MARK, (number,)


def marked() -> Step[list[int]]:
    """Return the numbers of the sessions whose deleted words are in the index."""
    found = yield "SELECT session FROM memman_mention WHERE id = ''", ()
    return [number for (number,) in found]


def remove_marked() -> Step[None]:
    """Remove all words of marked sessions; those that exist are indexed again."""
    numbers = yield from marked()
    # Without its row for all sessions, the next search looks at each session.
    yield from ask("DELETE FROM memman_indexed WHERE session = ANY(%s)", ([ALL, *numbers],))
    yield from ask("DELETE FROM memman_word WHERE session = ANY(%s)", (numbers,))
    yield "DELETE FROM memman_mention WHERE id = '' AND session = ANY(%s)", (numbers,)
