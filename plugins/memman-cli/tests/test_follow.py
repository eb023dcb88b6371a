"""Tests of `memman follow`: records of any process, until Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_fixtures import Command

from memman import MemoryConfig, MemoryManager
from tests.patience import PATIENCE

CONFIG = MemoryConfig(auto_compress=False, min_entries_to_compress=2, recent_window=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@pytest.fixture
def memory(path: Path) -> Iterator[MemoryManager]:
    with MemoryManager(path, counter="chars4", config=CONFIG) as opened:
        yield opened


def lived(memory: MemoryManager) -> None:
    """A session with every kind of record."""
    for number in range(8):
        memory.add_user_message("trip", f"message {number} " + "word " * 30)
    memory.compress("trip", target_tokens=100)
    memory.undo_compression("trip")
    last = memory.add_assistant_message("trip", "To Lisbon,\n\x1b[31mby train.")
    memory.pin("trip", last.id)
    memory.delete_entries("trip", [memory.get_entries("trip")[0].id])
    memory.retract("trip", [last.id], reason="the user\nchanged it")
    memory.update_config("trip", recent_window=3)
    memory.update_session("trip", metadata={"user": "ada", "plan": 1})
    memory.record_usage("trip", {"prompt_tokens": 1_234, "completion_tokens": 5})
    memory.clear_session("trip")
    memory.add_user_message("work", "hello")
    memory.fork_session("work", "copy")


def test_every_kind_of_record_is_a_line(
    path: Path, memory: MemoryManager, command: Command
) -> None:
    lived(memory)
    result = command("follow", path, "--timeout", "0")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split("  ")[:2] for line in lines] == [
        *[["trip", str(seq)] for seq in range(1, 20)],
        ["work", "1"], ["work", "2"], ["copy", "1"], ["copy", "2"],
    ]  # fmt: skip
    kinds = [line.split("  ")[2] for line in lines]
    assert kinds[0] == "[session opened]"
    del kinds[:9]
    assert kinds[0].startswith("[compressed: ")
    assert " tokens]" in kinds[0]
    assert kinds[1].startswith("[compression ")
    assert kinds[2] == "Assistant: To Lisbon, \\x1b[31mby train."
    assert kinds[3].endswith(" pinned]")
    assert kinds[4].startswith("[deleted: ")
    assert kinds[5].startswith("[retracted: the user changed it: ")
    assert kinds[6:] == [
        "[configured: recent_window]", "[metadata: user, plan]", "[usage reported: 1,234 input tokens]",
        "[cleared]", "[session opened]", "User: hello", "[session opened: a fork of work up to #2]",
        "User: hello",
    ]  # fmt: skip


def test_session_is_followed_from_a_place(
    path: Path, memory: MemoryManager, command: Command
) -> None:
    lived(memory)
    result = command("follow", path, "--session", "trip", "--after", "18", "--timeout", "0")
    assert result.stdout == "trip  19  [cleared]\n"


def test_cursor_of_a_json_line_continues(
    path: Path, memory: MemoryManager, command: Command
) -> None:
    lived(memory)
    lines = command("follow", path, "--json", "--timeout", "0").stdout.splitlines()
    items: list[dict[str, Any]] = [json.loads(line)["item"] for line in lines]
    assert [item["record"]["kind"] for item in items[-2:]] == ["opened", "added"]
    rest = command("follow", path, "--json", "--timeout", "0", "--after", items[3]["cursor"])
    assert rest.stdout.splitlines() == lines[4:]


def test_source_that_cannot_be_followed_is_one_line(
    path: Path, memory: MemoryManager, session_file: Path, command: Command, tmp_path: Path
) -> None:
    memory.add_user_message("s", "hello")
    for arguments, code, message in (
        ((tmp_path / "none.db",), 3, "No such file"),
        ((session_file,), 3, "is not a database"),
        ((path, "--after", "nonsense"), 2, "is not a cursor of the feed"),
        ((path, "--session", "s", "--after", "x"), 2, "after must be the seq"),
        ((path, "--session", "s", "--after", "9"), 2, "never had one behind 9"),
    ):
        result = command("follow", *arguments, "--timeout", "0")
        assert (result.exit_code, result.stdout) == (code, "")
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "none.db").exists()


def test_records_of_another_process_are_shown_until_ctrl_c(
    path: Path, memory: MemoryManager
) -> None:
    memory.add_user_message("s", "before")
    with subprocess.Popen(
        [sys.executable, "-m", "memman_cli", "follow", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A background process of a shell ignores Ctrl-C, and so do its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as follower:
        try:
            assert follower.stdout is not None
            assert follower.stdout.readline() == "s  1  [session opened]\n"
            assert follower.stdout.readline() == "s  2  User: before\n"
            memory.add_user_message("s", "while it looks")
            assert follower.stdout.readline() == "s  3  User: while it looks\n"
            follower.send_signal(signal.SIGINT)
            out, errors = follower.communicate(timeout=PATIENCE)
        finally:
            follower.kill()
    assert (follower.returncode, out, errors) == (0, "", "")
