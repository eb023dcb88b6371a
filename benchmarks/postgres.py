"""The cost of sessions in PostgreSQL, as ratios of one run.

    python -m benchmarks.postgres [--quick] [--url URL]

An add through a manager, counted with tiktoken, is compared with one bare INSERT of the same payload on a
connection of the same settings: both wait for the disk. Then appends and openings in a database of 100,000
sessions are compared with those in one of 100. The turns alternate, and each figure is the median of the
ratios of rounds. The schemas are dropped at the end.
Exit codes: 0 goals met within their noise, 1 a goal missed, 2 no server.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from time import perf_counter
from typing import Any

import msgspec

from benchmarks.fleet import NO_SERVER, URL, schema
from benchmarks.goals import TIME_NOISE, Goal, any_failed, report
from benchmarks.tables import table
from benchmarks.workload import sentence
from memman import MemoryManager

_APPEND_LIMIT = 1.5
_SAME_LIMIT = 1.25  # "as with 100": an index is a level deeper, and the pages are not all in memory
_TEMPLATE = 4  # entries in each of the many sessions


class Sizes(msgspec.Struct, frozen=True):
    """The rounds, their turns, and the large number of sessions."""

    rounds: int = 12
    turns: int = 30
    sessions: int = 100_000


QUICK = Sizes(rounds=5, turns=20, sessions=2_000)


def measure(url: str, sizes: Sizes) -> list[Goal]:
    """Measure all figures, with their goals."""
    return [*_appending(url, sizes), *_many_sessions(url, sizes)]


def _appending(url: str, sizes: Sizes) -> list[Goal]:
    """Compare an add of a manager with the bare INSERT of its payload."""
    import psycopg

    draw = random.Random(0)
    with ExitStack() as stack:
        mine = stack.enter_context(schema(url, "append"))
        bare = stack.enter_context(psycopg.connect(mine, autocommit=True, prepare_threshold=None))
        bare.execute(
            "CREATE TABLE bare (session bigint, seq bigint, payload bytea, PRIMARY KEY (session, seq))"
        )
        memories = {
            "shared": stack.enter_context(MemoryManager(mine, model="gpt-4o")),
            "exclusive": stack.enter_context(MemoryManager(mine, model="gpt-4o", exclusive=True)),
        }
        payload, number = b"x" * 1_100, iter(range(1, 10**9))

        def insert() -> None:
            bare.execute("INSERT INTO bare VALUES (%s, %s, %s)", (1, next(number), payload))

        def adding(name: str) -> Callable[[], None]:
            memory = memories[name]

            def add() -> None:
                memory.add_user_message(name, texts.pop(), compress=False)

            return add

        turns: dict[str, Callable[[], None]] = {"bare INSERT": insert}
        turns |= {name: adding(name) for name in memories}
        texts = [sentence(draw, 900) for _ in range((sizes.rounds + 1) * sizes.turns * 2)]
        times = _rounds(turns, sizes)
    print(_shown(times))
    return [
        Goal(
            f"an add, counted, store {name} / a bare INSERT",
            _ratio(times[name], times["bare INSERT"]),
            _APPEND_LIMIT,
            TIME_NOISE,
            "x",
        )
        for name in memories
    ]


def _many_sessions(url: str, sizes: Sizes) -> list[Goal]:
    """Compare appends and openings among many sessions with those among 100."""
    from memman_postgres import PostgresStore

    from memman.testing.stores import added

    draw, number = random.Random(0), iter(range(10**9))
    with ExitStack() as stack:
        turns: dict[str, Callable[[], None]] = {}
        for name, count in (("few", 100), ("many", sizes.sessions)):
            mine = stack.enter_context(schema(url, name))
            store = PostgresStore(mine)
            stack.callback(store.close)
            _fill(mine, store, count)

            def append(store: Any = store, count: int = count) -> None:
                record = added(f"e{next(number)}", "text " * 200)
                store.append(f"s{draw.randrange(count)}", (record,))

            def opened(store: Any = store, count: int = count) -> None:
                assert store.load(f"s{draw.randrange(count)}") is not None  # noqa: S101 - or it measures nothing

            turns |= {f"append, {name}": append, f"open, {name}": opened}
        times = _rounds(turns, sizes)
    print(_shown(times))
    return [
        Goal(
            f"{what} among {sizes.sessions:,} sessions / among 100",
            _ratio(times[f"{what}, many"], times[f"{what}, few"]),
            _SAME_LIMIT,
            TIME_NOISE,
            "x",
        )
        for what in ("append", "open")
    ]


def _fill(url: str, store: Any, count: int) -> None:
    """Create so many sessions, as copies of one."""
    import psycopg

    from memman.testing.stores import added

    store.append("s0", [added(f"first{number}", "text " * 60) for number in range(_TEMPLATE)])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO memman_session"
            " (id, head, epoch, entries, tokens, era, floor, items, folded, totals)"
            " SELECT 's' || n, head, epoch, entries, tokens, era, floor, items, folded, totals"
            " FROM memman_session, generate_series(1, %s) AS n WHERE id = 's0'",
            (count - 1,),
        )
        for statement in (
            b"INSERT INTO memman_record (session, seq, id, payload, position)"
            b" SELECT number, seq, record.id, payload, record.position"
            b" FROM memman_record AS record, memman_session WHERE number <> session",
            b"VACUUM ANALYZE memman_session, memman_record, memman_mention",
        ):
            connection.execute(statement)


def _rounds(turns: dict[str, Callable[[], None]], sizes: Sizes) -> dict[str, list[float]]:
    """Return the median microseconds of each turn in each round; turns alternate, round 0 warms up."""
    medians: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(sizes.rounds + 1):
        times: dict[str, list[float]] = {name: [] for name in turns}
        for _ in range(sizes.turns):
            for name, turn in turns.items():
                began = perf_counter()
                turn()
                times[name].append(perf_counter() - began)
        for name, spent in times.items() if number else ():
            medians[name].append(1e6 * median(spent))
    return medians


def _ratio(one: Sequence[float], other: Sequence[float]) -> float:
    return median(a / b for a, b in zip(one, other, strict=True))


def _shown(times: dict[str, list[float]]) -> str:
    rows = [(name, median(spent), min(spent)) for name, spent in times.items()]
    return table(("microseconds", "median", "best round"), rows) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="few rounds, 2,000 sessions")
    parser.add_argument("--url", default=URL, help=f"the database ({URL})")
    options = parser.parse_args(arguments)
    import psycopg

    try:
        goals = measure(options.url, QUICK if options.quick else Sizes())
    except psycopg.OperationalError as error:
        print(f"no server: {str(error).splitlines()[0]}")
        return NO_SERVER
    print(report(goals))
    return int(any_failed(goals))


if __name__ == "__main__":
    sys.exit(main())
