"""Kill followers and writers of a store's feed, and check that each follower gets every record in order.

    uv run python -m benchmarks.feeds              # SQLite: 6 writers, 2 followers, 60 kills
    uv run python -m benchmarks.feeds postgresql://postgres@127.0.0.1/test [--kills 60]

Every process has its own `MemoryManager`. Writers add to shared sessions, and clear some. A follower
reads the feed of the whole store and writes each record with its cursor to a file. About twice a second
one follower is killed with SIGKILL, and its replacement continues after the last line. Writers
are killed, too. Afterwards each follower's file is compared with the logs. The exit code is 1 if any
check fails.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.fleet import schema
from benchmarks.processes import kill, started
from benchmarks.tables import table
from memman import MemoryConfig, MemoryManager
from memman.plugins import shared_plugins
from memman.stores import open_store

SESSIONS = [f"s{number}" for number in range(8)]
CONFIG = MemoryConfig(auto_compress=False)
_PATIENCE = 60.0  # seconds without a new line of any follower: they will not get further
_FIRST = 10  # records of each follower before the first kill
_POLL = (0.002, 0.05)
_PAUSE = 0.002  # most seconds between two records of a writer, so that 2 cores can also read them
_BETWEEN_KILLS = (0.1, 0.9)  # seconds

Place = tuple[str, int]
"""A record: its session and its seq."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run. The last four, over all followers, must be 0."""

    records: int
    seconds: float
    kills: int
    missed: int
    disordered: int
    repeated: int
    invented: int

    @property
    def problems(self) -> int:
        """Count the faults."""
        return self.missed + self.disordered + self.repeated + self.invented


def follow_under_kills(
    url: str, kills: int, *, writers: int = 6, followers: int = 2, seed: int = 1
) -> Found:
    """Let processes write and follow, kill some at random, and check the followers' records."""
    began = time.monotonic()
    open_store(url, shared_plugins).close()
    MemoryManager(counter="chars4").close()  # discovers plugins once, before the forks
    with tempfile.TemporaryDirectory() as folder:
        notes = [Path(folder) / str(number) for number in range(followers)]
        for note in notes:
            note.touch()
        _run(url, notes, kills, writers, random.Random(seed))
        logs = _logs(url)
        seen = [_places(note) for note in notes]
    return found(logs, seen, kills, time.monotonic() - began)


def found(logs: set[Place], seen: Sequence[Sequence[Place]], kills: int, seconds: float) -> Found:
    """Compare the followers' records, in their order, with the logs."""
    return Found(
        records=len(logs),
        seconds=seconds,
        kills=kills,
        missed=sum(len(logs - set(own)) for own in seen),
        disordered=sum(map(_disorder, seen)),
        repeated=sum(len(own) - len(set(own)) for own in seen),
        invented=sum(len(set(own) - logs) for own in seen),
    )


def _disorder(seen: Sequence[Place]) -> int:
    """Count the records that did not directly follow the previous one of their session."""
    last: dict[str, int] = {}
    wrong = 0
    for session, seq in seen:
        wrong += seq != last.get(session, 0) + 1
        last[session] = seq
    return wrong


# ---------------------------------------------------------------- the run


def _run(url: str, notes: Sequence[Path], kills: int, writers: int, rng: random.Random) -> None:
    stop = notes[0].with_name("stop")

    def writer(_number: int) -> int:
        return started(lambda own: _write(url, stop, own), rng)

    def follower(number: int) -> int:
        return started(lambda _own: _follow(url, notes[number]), rng)

    writing = {number: writer(number) for number in range(writers)}
    following = {number: follower(number) for number in range(len(notes))}
    _await_records(notes, _FIRST)
    for _ in range(kills):
        time.sleep(rng.uniform(*_BETWEEN_KILLS))
        living, begun_by = (writing, writer) if rng.random() < 0.2 else (following, follower)
        number = rng.choice(list(living))
        kill(living[number])
        living[number] = begun_by(number)
    stop.touch()
    for pid in writing.values():
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            raise RuntimeError("a writer failed")
    _await_records(notes, len(_logs(url)))
    for pid in following.values():
        kill(pid)


def _write(url: str, stop: Path, rng: random.Random) -> None:
    with MemoryManager(url, counter="chars4", config=CONFIG) as memory:
        while not stop.exists():
            session = rng.choice(SESSIONS)
            memory.add_user_message(session, "word " * rng.randrange(1, 30))
            if rng.random() < 0.01:
                memory.clear_session(session)
            time.sleep(rng.random() * _PAUSE)


def _follow(url: str, note: Path) -> None:
    # Unbuffered, so that the lines outlive the process, and each is written whole or not at all.
    output = os.open(note, os.O_WRONLY | os.O_APPEND)
    lines = note.read_text().splitlines()
    after = lines[-1].split()[0] if lines else ""
    with MemoryManager(url, counter="chars4", config=CONFIG) as memory:
        for item in memory.follow(after=after, poll=_POLL):
            os.write(output, f"{item.cursor} {item.session_id} {item.seq}\n".encode())


def _await_records(notes: Sequence[Path], records: int) -> None:
    """Wait until each follower has so many records, or none gets any more; the checks find the rest."""
    seen: list[int] = []
    deadline = time.monotonic() + _PATIENCE
    while min(now := [len(_places(note)) for note in notes]) < records:
        if now != seen:
            seen, deadline = now, time.monotonic() + _PATIENCE
        elif time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _places(note: Path) -> list[Place]:
    rows = [line.split() for line in note.read_text().splitlines()]
    return [(session, int(seq)) for _, session, seq in rows]


def _logs(url: str) -> set[Place]:
    store: Any = open_store(url, shared_plugins)
    logs = {
        (info.session_id, seq)
        for info in store.sessions()
        for seq, _ in store.read(info.session_id, 0, store.state(info.session_id)[0])
    }
    store.close()
    return logs


# ---------------------------------------------------------------- the command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.feeds", description=__doc__)
    parser.add_argument(
        "url", nargs="?", help="of a PostgreSQL database (default: a new SQLite file)"
    )
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--writers", type=int, default=6)
    parser.add_argument("--followers", type=int, default=2)
    given = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # each process would warn that others write the same file
    if given.url:
        with schema(given.url, "feeds") as url:
            outcome = _measured(url, given)
    else:
        with tempfile.TemporaryDirectory() as folder:
            outcome = _measured(str(Path(folder) / "chat.db"), given)
    rows = [(name, getattr(outcome, name)) for name in Found.__struct_fields__]
    print(table(["", "PostgreSQL" if given.url else "SQLite"], rows))
    return 1 if outcome.problems else 0


def _measured(url: str, given: Any) -> Found:
    return follow_under_kills(url, given.kills, writers=given.writers, followers=given.followers)


if __name__ == "__main__":
    sys.exit(main())
