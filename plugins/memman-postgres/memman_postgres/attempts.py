"""Trying again: which errors may pass, how long to wait, and what to tell where it was in vain."""

from __future__ import annotations

import random
import time

import psycopg
from psycopg_pool import PoolTimeout

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0  # seconds, before the second attempt and before later ones
# Others were writing the same, or began the same session: once more, on the connection that there is.
_COLLISIONS = frozenset({"40001", "40P01", "23505"})
# The server goes down or comes up, or ended this connection (25P03, 57P05: it was idle for too long).
_ENDINGS = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})
TOO_LONG = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)
AGAIN = ". The same call may be made again"


class Attempts:
    """The attempts of one call: again, with longer and longer pauses, until its time is over.

    Every step may be repeated, since records are known by their ids.
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE
        self.broken: Exception | None = None  # the last error that came with a broken connection

    def pause_after(self, error: Exception) -> float | None:
        """Seconds to wait before the next attempt; None where there is to be none."""
        if isinstance(error, PoolTimeout):
            return None  # it waited long enough
        if connection_broke(error):
            self.broken = error
        elif getattr(error, "sqlstate", None) not in _COLLISIONS:
            return None
        # Of those that collided, not all should come again at the same moment.
        pause = self._pause * random.uniform(0.5, 1)  # noqa: S311 - no secret
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return pause if time.monotonic() + pause < self._until else None


def connection_broke(error: Exception) -> bool:
    """Whether the connection is gone, and with it the knowledge whether its last write was made."""
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError)
    return state in _ENDINGS or state.startswith("08")


_TENANT = (
    ". Say whose sessions they are: options=-cmemman.tenant%3DNAME in the URL, or ALTER ROLE ... SET "
    "memman.tenant"
)
_ADVICE: tuple[tuple[type[psycopg.Error], str], ...] = (
    (
        psycopg.errors.UndefinedTable,
        ". Its tables are missing: open it once with create=True, or run the script that "
        "`python -m memman_postgres` prints",
    ),
    (
        psycopg.errors.ReadOnlySqlTransaction,
        ". Nothing was changed. The server takes no writes (a standby, or "
        "default_transaction_read_only): give the URL of the primary",
    ),
    (
        psycopg.errors.InsufficientPrivilege,
        ". Nothing was changed. Grant the user of the URL SELECT, INSERT, UPDATE and DELETE on the "
        "tables memman_*; where it may make none, run the script that `python -m memman_postgres` prints",
    ),
)


def advice(error: Exception) -> str:
    """What can be done about an error, as the end of its message."""
    if connection_broke(error) or getattr(error, "sqlstate", None) in _COLLISIONS:
        return AGAIN
    if "memman.tenant" in str(error):
        return _TENANT
    return next((advice for kind, advice in _ADVICE if isinstance(error, kind)), "")


def said(error: Exception) -> str:
    """The first line of what the server or the driver said, which holds no password."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
