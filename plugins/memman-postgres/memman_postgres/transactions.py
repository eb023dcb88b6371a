"""Steps: transactions as generators, which the sync and the async store drive."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
Step = Generator[tuple[str, Sequence[Any] | None], Rows, T]
"""Yields statements with arguments, and is sent the rows or thrown the server's error.

A statement with None for arguments may be a script.
"""

WRITE = "BEGIN"
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
BRIEFLY = "SET LOCAL lock_timeout = 1000"
"""Limits the wait for the index, which everything can do without."""
INDEX_WRITE, INDEX_SNAPSHOT = f"{WRITE}; {BRIEFLY}", f"{SNAPSHOT}; {BRIEFLY}"
