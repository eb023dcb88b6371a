"""`memman sessions` lists the sessions of a database."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_fixtures import Command

from memman import MemoryConfig, MemoryManager


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A database with two sessions of one customer and one of another."""
    path = tmp_path / "several.db"
    with MemoryManager(path, counter="chars4", config=MemoryConfig(auto_compress=False)) as memory:
        for session_id in ("customer-7/a", "customer-8/a", "customer-7/b"):
            memory.add_user_message(session_id, f"What is in {session_id}?")
            memory.add_assistant_message(session_id, "A parcel.")
    return path


def listed(output: str) -> list[str]:
    """Return the ids of a list in its order."""
    return [line.split()[0] for line in output.splitlines()[1:]]


def test_sessions_are_listed_oldest_first(several: Path, command: Command) -> None:
    result = command("sessions", several)
    assert result.exit_code == 0
    assert listed(result.stdout) == ["customer-7/a", "customer-8/a", "customer-7/b"]
    assert result.stdout.splitlines()[1].endswith("What is in customer-7/a?")
    assert result.stderr == "3 sessions, 6 entries, 27 tokens\n"


def test_json_list_has_ids_totals_and_first_lines(several: Path, command: Command) -> None:
    found = json.loads(command("sessions", several, "--json").stdout)["sessions"]
    names = ("session_id", "entries", "tokens", "first_line")
    assert [tuple(row[name] for name in names) for row in found] == [
        ("customer-7/a", 2, 9, "What is in customer-7/a?"),
        ("customer-8/a", 2, 9, "What is in customer-8/a?"),
        ("customer-7/b", 2, 9, "What is in customer-7/b?"),
    ]


def test_list_has_times_totals_and_metadata(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "a.db"
    moments = iter(
        datetime(2026, 1, 1, 9, 30, tzinfo=UTC) + n * timedelta(days=1) for n in range(9)
    )
    with MemoryManager(path, clock=lambda: next(moments), counter="chars4") as memory:
        memory.add_user_message("s", "Plan \x1b[31mit\nnow")
        memory.update_session("s", metadata={"user": "ada"})
        memory.add_assistant_message("s", "Yes.")
    [heading, line] = command("sessions", path).stdout.splitlines()
    assert heading.split("  ")[0] == "session"
    shown = [cell.strip() for cell in re.split(" {2,}", line)]
    assert shown == [
        "s",
        "2026-01-01 09:30",
        "2026-01-03 09:30",
        "2",
        "5",
        '{"user":"ada"}',
        "Plan [31mit",
    ]


def test_prefix_selects_sessions_by_their_ids(several: Path, command: Command) -> None:
    result = command("sessions", several, "--prefix", "customer-7/")
    assert listed(result.stdout) == ["customer-7/a", "customer-7/b"]
    found = json.loads(command("sessions", several, "--prefix", "customer-8", "--json").stdout)
    assert [row["session_id"] for row in found["sessions"]] == ["customer-8/a"]


@pytest.mark.parametrize("prefix", ["customer-9/", "customer-_", "%", "customer-7/*"])
def test_prefix_without_sessions_is_a_finding(several: Path, command: Command, prefix: str) -> None:
    result = command("sessions", several, "--prefix", prefix)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"memman: no session id here begins with {prefix!r}\n"
    empty = command("sessions", several, "--prefix", prefix, "--json")
    assert (empty.exit_code, json.loads(empty.stdout)["sessions"]) == (1, [])


def test_database_without_sessions_is_no_finding(tmp_path: Path, command: Command) -> None:
    MemoryManager(tmp_path / "empty.db").close()
    result = command("sessions", tmp_path / "empty.db")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "0 sessions, 0 entries, 0 tokens\n"
