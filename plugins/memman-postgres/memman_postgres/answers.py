"""Connections that do not wait for ever: a server may accept a statement and never answer it."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg


def _limited(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
    work: Generator[Any, Any, Any],
    seconds: float,
) -> Generator[Any, Any, Any]:
    """The driver's steps of one statement, as long as the server answers in time.

    The driver resumes them several times a second, with nothing where there is nothing. A connection that
    is given up is closed: what becomes of its statement is not known.
    """
    until = time.monotonic() + seconds
    ready: Any = None
    while True:
        try:
            wanted = work.send(ready)
        except StopIteration as end:
            return end.value
        ready = yield wanted
        if not ready and time.monotonic() > until:
            work.close()
            connection.pgconn.finish()
            raise psycopg.OperationalError(f"the server did not answer within {seconds:g} s")


class Connection(psycopg.Connection[Any]):
    """A connection that is given up when a statement has had no answer for `answer_timeout` seconds."""

    answer_timeout = 60.0

    def wait(self, gen: Any, *given: Any, **settings: Any) -> Any:
        """Drives a statement to its end, or to that of its time."""
        return super().wait(_limited(self, gen, self.answer_timeout), *given, **settings)


class AsyncConnection(psycopg.AsyncConnection[Any]):
    """The same for an event loop."""

    answer_timeout = 60.0

    async def wait(self, gen: Any, *given: Any, **settings: Any) -> Any:
        """Drives a statement to its end, or to that of its time."""
        return await super().wait(_limited(self, gen, self.answer_timeout), *given, **settings)
