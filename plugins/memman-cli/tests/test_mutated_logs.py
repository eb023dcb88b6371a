"""Damaged logs are imported completely, or refused with one line."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memman_cli.app import memman

from memman import MemoryManager
from tests.examples import examples
from tests.mutations import change

LOGS = sorted(
    path
    for path in (Path(__file__).parent / "samples").iterdir()
    if path.suffix in (".json", ".jsonl")
)
IMPORTED, FINDING, UNREADABLE = 0, 1, 3


def logged(path: Path, random: Random, changes: int) -> bytes:
    """Return the log with so many changes, sometimes cut off or with an extra byte."""
    text = path.read_text(encoding="utf-8")
    in_lines = path.suffix == ".jsonl"
    log: list[Any] = (
        [json.loads(line) for line in text.splitlines()] if in_lines else [json.loads(text)]
    )
    for _ in range(changes):
        change(log, random)
    raw = "\n".join(json.dumps(item, default=str) for item in log).encode()
    place = random.randrange(len(raw) + 1)
    spoilt = {0: raw[:place], 1: raw[:place] + bytes((random.randrange(256),)) + raw[place:]}
    return spoilt.get(random.randrange(12), raw)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=False), changes=st.integers(0, 5))
def test_mutated_log_is_imported_or_refused(
    path: Path, tmp_path: Path, random: Random, changes: int
):
    given_, session = tmp_path / path.name, tmp_path / "session.json"
    session.unlink(missing_ok=True)
    given_.write_bytes(logged(path, random, changes))
    done = CliRunner().invoke(memman, ["import", str(given_), "-o", str(session)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (IMPORTED, FINDING, UNREADABLE), done.output
    assert session.exists() == (done.exit_code != UNREADABLE), done.output
    if session.exists():
        MemoryManager().import_session(session.read_text(encoding="utf-8"))
    else:
        assert done.stderr.startswith(("memman: ", "Error: ")), done.output
        assert "Traceback" not in done.stderr
