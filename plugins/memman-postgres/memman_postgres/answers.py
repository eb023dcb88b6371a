"""Connections with a timeout for each answer: a server may accept a statement and never answer it."""

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
    """Run the driver's steps of one statement until the server has answered or the time is over.

    The driver resumes them several times a second, even without data. A connection that is given up is
    closed, and the outcome of its statement is unknown.
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
    """A connection that is closed if a statement has no answer within `answer_timeout` seconds."""

    answer_timeout = 60.0

    def wait(self, gen: Any, *given: Any, **settings: Any) -> Any:
        """Run a statement until its answer or its timeout."""
        return super().wait(_limited(self, gen, self.answer_timeout), *given, **settings)


class AsyncConnection(psycopg.AsyncConnection[Any]):
    """`Connection` for an event loop."""

    answer_timeout = 60.0

    async def wait(self, gen: Any, *given: Any, **settings: Any) -> Any:
        """Run a statement until its answer or its timeout."""
        return await super().wait(_limited(self, gen, self.answer_timeout), *given, **settings)
