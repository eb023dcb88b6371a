"""A fleet of workers on PostgreSQL, killed without warning: throughput, and the fate of every entry.

    python -m benchmarks.fleet [--quick] [--url URL] [--workers 8] [--sessions 1000] [--seconds 180]

Eight processes work in 1,000 sessions for three minutes: appends, contexts, compressions with a scripted
summarizer, undos, clears. Every few seconds `kill -9` ends one and another begins. Each writes its
completed calls to a file outside the store. Afterwards every log and window is compared with these notes.
The database user must be allowed to create a schema, which is dropped at the end.
Exit codes: 0 nothing lost, doubled or out of order, 1 a fault, 2 no server.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgspec

from benchmarks.tables import table
from memman.log import History
from memman.records import Added, Compressed, Record

URL = "postgresql://postgres@127.0.0.1:5432/test"
NO_SERVER = 2
_PAGE = 10_000
_PATIENCE = 300  # seconds until all workers have begun


class Sizes(msgspec.Struct, frozen=True):
    """The size of a run. `seconds` starts once all workers have begun; `kill_every` is in seconds."""

    workers: int = 8
    sessions: int = 1_000
    seconds: float = 180
    kill_every: float = 5


QUICK = Sizes(workers=4, sessions=8, seconds=6, kill_every=1.5)


class Note(msgspec.Struct, frozen=True):
    """A call that returned."""

    kind: str
    milliseconds: float
    session: str
    marks: tuple[str, ...]


class Findings(msgspec.Struct):
    """Faults of the store's content: entries lost, doubled or out of order."""

    sessions: int = 0
    records: int = 0
    acknowledged: int = 0
    compressions: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    gaps: int = 0
    windows_wrong: int = 0

    @property
    def faults(self) -> int:
        """Count all faults."""
        return self.lost + self.doubled + self.out_of_order + self.gaps + self.windows_wrong


class Outcome(msgspec.Struct, frozen=True):
    """The calls, kills and findings of a run."""

    notes: list[Note]
    kills: int
    seconds: float
    findings: Findings

    @property
    def failed(self) -> list[Note]:
        """Return the calls that ended in an error of memman's."""
        return [note for note in self.notes if note.kind == "failed"]


# ---------------------------------------------------------------- the run


class Fleet:
    """The worker processes, a constant number of them."""

    def __init__(self, url: str, folder: Path, sizes: Sizes) -> None:
        self._url, self._folder, self._sizes = url, folder, sizes
        self._draw = random.Random(0)
        self._begun = 0
        self._alive = [self._begin() for _ in range(sizes.workers)]
        self.kills = 0

    def run(self) -> float:
        """Runs the workers, kills one at each interval, and returns the seconds."""
        self._wait_for_all()
        began = time.monotonic()
        while (left := began + self._sizes.seconds - time.monotonic()) > 0:
            time.sleep(min(left, self._sizes.kill_every))
            self._kill(self._draw.randrange(len(self._alive)))
        return time.monotonic() - began

    def end(self) -> None:
        """Kills all remaining workers."""
        while self._alive:
            self._end(self._alive.pop())

    def _begin(self) -> subprocess.Popen[bytes]:
        self._begun += 1
        notes = self._folder / f"w{self._begun}"
        worker = [sys.executable, "-m", "benchmarks.fleet_worker"]
        here = Path(__file__).resolve().parents[1]
        return subprocess.Popen(
            [*worker, self._url, notes.name, str(notes), str(self._sizes.sessions)], cwd=here
        )

    def _kill(self, place: int) -> None:
        self._end(self._alive[place])
        self._alive[place] = self._begin()

    def _end(self, worker: subprocess.Popen[bytes]) -> None:
        worker.kill()
        worker.wait()
        self.kills += 1

    def _wait_for_all(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while len(list(self._folder.glob("w*"))) < len(self._alive):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the workers did not begin within {_PATIENCE} s")
            time.sleep(0.05)


def measure(url: str, sizes: Sizes) -> Outcome:
    """Run a fleet in its own schema and check the resulting logs."""
    with tempfile.TemporaryDirectory() as folder, schema(url, "fleet") as mine:
        from memman_postgres import PostgresStore

        store = PostgresStore(mine)
        fleet = Fleet(mine, Path(folder), sizes)
        try:
            seconds = fleet.run()
        finally:
            fleet.end()
        notes = [note for path in Path(folder).glob("w*") for note in _notes(path)]
        findings = check(store, notes)
        store.close()
    return Outcome(notes, fleet.kills, seconds, findings)


@contextmanager
def schema(url: str, purpose: str) -> Iterator[str]:
    """Create a schema for the time of a measurement, and yield its URL."""
    import psycopg

    name = f"memman_{purpose}_{os.getpid()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        try:
            yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"
        finally:
            connection.execute(f"DROP SCHEMA {name} CASCADE".encode())


def _notes(path: Path) -> Iterator[Note]:
    # A killed worker may have written half of its last line. That call was never acknowledged.
    for line in path.read_text().split("\n")[:-1]:
        kind, spent, session, *marks = line.split("\t")
        yield Note(kind, float(spent), session, tuple(marks))


# ---------------------------------------------------------------- checks


def check(store: Any, notes: Sequence[Note]) -> Findings:
    """Compare every log and window with the acknowledged calls."""
    acknowledged: dict[str, set[str]] = {}
    for note in notes:
        if note.kind in ("add", "exchange"):
            acknowledged.setdefault(note.session, set()).update(note.marks)
    findings = Findings(acknowledged=sum(map(len, acknowledged.values())))
    sessions = [info.session_id for info in store.sessions()]
    findings.lost += sum(
        len(acknowledged[session]) for session in acknowledged.keys() - set(sessions)
    )
    for session in sessions:
        _check_session(store, session, acknowledged.get(session, set()), findings)
    return findings


def _check_session(store: Any, session: str, acknowledged: set[str], findings: Findings) -> None:
    log = list(_log(store, session))
    marks = _marks(log)
    history, snapshot = History.of(log), store.load(session)
    findings.sessions += 1
    findings.records += len(log)
    findings.compressions += sum(isinstance(record, Compressed) for _, record in log)
    findings.lost += len(acknowledged - set(marks))
    findings.doubled += len(marks) - len(set(marks))
    findings.doubled += len(log) - len({record.id for _, record in log})
    findings.out_of_order += _disorder(marks)
    findings.gaps += [seq for seq, _ in log] != list(range(1, len(log) + 1))
    folded = [item.place() for item in history.state.window.stored_items]
    same = folded == [place for place, _ in snapshot.window] and history.totals == snapshot.totals
    findings.windows_wrong += not same


def _log(store: Any, session: str) -> Iterator[tuple[int, Record]]:
    after = 0
    while page := store.read(session, after, _PAGE):
        yield from page
        after = page[-1][0]


def _marks(log: Sequence[tuple[int, Record]]) -> list[str]:
    added = [record.entry for _, record in log if isinstance(record, Added)]
    return [entry.text.partition(" ")[0] for entry in added if entry.type != "tool_call"]


def _disorder(marks: Sequence[str]) -> int:
    """Count the entries of one worker that precede an earlier entry of it."""
    last: dict[str, int] = {}
    wrong = 0
    for mark in marks:
        worker, _, number = mark.partition(".")
        wrong += int(number) <= last.get(worker, 0)
        last[worker] = int(number)
    return wrong


# ---------------------------------------------------------------- the report


def report(outcome: Outcome) -> str:
    """Format the run as tables."""
    done = [note for note in outcome.notes if note.kind != "failed"]
    kinds = sorted({note.kind for note in done})
    rows = [_figures(kind, [n for n in done if n.kind == kind], outcome) for kind in kinds]
    found = msgspec.structs.asdict(outcome.findings)
    return "\n".join(
        [
            table(("call", "calls", "a second", "p50 ms", "p99 ms", "max ms"), rows),
            "",
            f"{len(done):,} calls in {outcome.seconds:.0f} s: {len(done) / outcome.seconds:,.0f} a "
            f"second; {outcome.kills} workers killed; {len(outcome.failed)} calls failed",
            ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in found.items()),
            *[note.marks[0] for note in outcome.failed[:5]],
        ]
    )


def _figures(kind: str, notes: Sequence[Note], outcome: Outcome) -> tuple[object, ...]:
    times = sorted(note.milliseconds for note in notes)
    cuts = quantiles(times, n=100) if len(times) > 1 else times * 99
    return (kind, len(times), len(times) / outcome.seconds, cuts[49], cuts[98], times[-1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="4 workers, 8 sessions, 6 seconds")
    parser.add_argument("--url", default=URL, help=f"the database ({URL})")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--sessions", type=int)
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args(arguments)
    given = {name: getattr(options, name) for name in ("workers", "sessions", "seconds")}
    sizes = msgspec.structs.replace(
        QUICK if options.quick else Sizes(), **{n: v for n, v in given.items() if v is not None}
    )
    import psycopg

    try:
        outcome = measure(options.url, sizes)
    except psycopg.OperationalError as error:
        print(f"no server: {str(error).splitlines()[0]}")
        return NO_SERVER
    print(report(outcome))
    return int(bool(outcome.findings.faults or outcome.failed))


if __name__ == "__main__":
    sys.exit(main())
