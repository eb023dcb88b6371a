"""`python -m memman_postgres`: `memman postgres schema`, without the `memman` command."""

from __future__ import annotations

from memman_postgres.commands import schema

if __name__ == "__main__":
    schema(prog_name="python -m memman_postgres")
