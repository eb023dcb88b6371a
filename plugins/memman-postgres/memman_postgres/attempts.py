"""Retries: which errors are temporary, how long to wait, and the advice of the final error."""

from __future__ import annotations

import random
import time

import psycopg
from psycopg_pool import PoolTimeout

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0  # seconds, before the second attempt and before later ones
# Another worker wrote the same row or began the same session: retry on the same connection.
_COLLISIONS = frozenset({"40001", "40P01", "23505"})
# The server stops or starts, or it ended this connection (25P03, 57P05: idle for too long).
_ENDINGS = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})
TOO_LONG = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)
AGAIN = ". The same call may be made again"


class Attempts:
    """The attempts of one call, with growing pauses, until its time is over.

    Every step may be repeated, since records are recognised by their ids.
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE
        self.broken: Exception | None = None  # the last error of a broken connection

    def pause_after(self, error: Exception) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up."""
        if isinstance(error, PoolTimeout):
            return None  # it has waited for `timeout`
        if connection_broke(error):
            self.broken = error
        elif not is_temporary(error):
            return None
        # Random, so that workers that collided do not collide again.
        pause = self._pause * random.uniform(0.5, 1)  # noqa: S311 - no secret
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return pause if time.monotonic() + pause < self._until else None


def connection_broke(error: Exception) -> bool:
    """Return whether the connection is gone, so that the outcome of its last write is unknown."""
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError)
    return state in _ENDINGS or state.startswith("08")


def is_temporary(error: Exception) -> bool:
    """Return whether the same transaction may be run again: it collided, or its connection is gone."""
    return connection_broke(error) or getattr(error, "sqlstate", None) in _COLLISIONS


_TENANT = (
    ". Name the tenant: options=-cmemman.tenant%3DNAME in the URL, or ALTER ROLE ... SET "
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
        "tables memman_*; if it may create no tables, run the script that "
        "`python -m memman_postgres` prints",
    ),
)


def advice(error: Exception) -> str:
    """Return the end of an error's message: the way out."""
    if is_temporary(error):
        return AGAIN
    if "memman.tenant" in str(error):
        return _TENANT
    return next((advice for kind, advice in _ADVICE if isinstance(error, kind)), "")


def said(error: Exception) -> str:
    """Return the first line of an error of the server or the driver, which contains no password."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
