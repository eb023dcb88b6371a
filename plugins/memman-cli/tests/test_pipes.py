"""Pipes in place of files, as a shell's `<(...)` makes them, are read once."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A pipe without a writer or a reader."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def filled(pipe: Path, source: Path) -> Path:
    """The pipe, with a writer that waits for a reader."""
    threading.Thread(target=pipe.write_bytes, args=(source.read_bytes(),), daemon=True).start()
    return pipe


def test_log_is_read_from_a_pipe(command, log_file, tmp_path, pipe):
    session = tmp_path / "s.json"
    result = command("import", filled(pipe, log_file), "-o", session)
    assert result.exit_code == 0, result.stderr
    assert command("stats", session).exit_code == 0


@pytest.mark.parametrize("verb", [("stats",), ("show",), ("export",), ("verify",)])
def test_session_is_read_from_a_pipe(command, session_file, pipe, verb):
    result = command(*verb, filled(pipe, session_file))
    assert result.exit_code == 0, result.stderr
    done = command(*verb, session_file)
    assert result.stdout.replace(str(pipe), "") == done.stdout.replace(str(session_file), "")


def test_report_is_made_from_a_pipe(command, session_file, tmp_path, pipe):
    result = command("report", filled(pipe, session_file), "-o", tmp_path / "s.html")
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    "verb", [("import",), ("report",), ("undo",), ("compress", "--budget", "9k")]
)
def test_pipe_is_never_a_target(command, log_file, session_file, pipe, verb):
    source = log_file if verb == ("import",) else session_file
    result = command(verb[0], source, *verb[1:], "-o", pipe)
    assert result.exit_code in (1, 2)
    assert "Traceback" not in result.stderr
