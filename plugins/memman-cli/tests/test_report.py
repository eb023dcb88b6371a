"""Tests of `memman report`, which overwrites only reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memman import MemoryManager

SAMPLES = Path(__file__).parent / "samples"
READ_ONLY = ["claude-code.jsonl", "codex.jsonl", "sharegpt.json", "otel.json"]


def test_page_is_written(command, demo_file, tmp_path):
    page = tmp_path / "demo.html"
    done = command("report", demo_file, "-o", page)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"wrote {page}; open it in a browser\n"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["demo.html"]


def test_stdout_gets_the_same_page(command, session_file, tmp_path):
    command("report", session_file, "-o", tmp_path / "s.html")
    piped = command("report", "-", "-o", "-", given=session_file.read_bytes())
    written = (tmp_path / "s.html").read_text(encoding="utf-8")
    assert piped.stdout == written.replace("memman undo session.json", "memman undo S")


def test_page_has_the_undo_command(command, session_file, log_file, tmp_path):
    for source, undo in ((session_file, "memman undo session.json"), (log_file, "")):
        command("report", source, "-o", tmp_path / "page.html", "--force")
        assert f'"undo":"{undo}"' in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_log_has_a_page_without_import(command, log_file, tmp_path):
    done = command("report", log_file, "-o", tmp_path / "log.html", "--model", "gpt-4o")
    assert done.exit_code == 0
    page = (tmp_path / "log.html").read_text(encoding="utf-8")
    assert "<title>log · memman</title>" in page
    assert "Why is the build red?" in page
    assert "tiktoken" in page


def test_log_on_stdin_has_a_page(command, log_file):
    done = command("report", "-", "-o", "-", given=log_file.read_bytes())
    assert done.exit_code == 0
    assert "<title>stdin · memman</title>" in done.stdout
    assert "Why is the build red?" in done.stdout


@pytest.mark.parametrize("given", [b"", b"[{", b"\xff\x00\x01", b'{"a": 1}'])
def test_unknown_stdin_is_named_stdin(command, given):
    done = command("report", "-", "-o", "-", given=given)
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith(("memman: stdin ", "memman: stdin: "))


def test_json_has_the_page_and_its_size(command, log_file, tmp_path):
    page = tmp_path / "log.html"
    done = command("report", log_file, "-o", page, "--json")
    assert json.loads(done.stdout) == {
        "memman": "report",
        "version": 1,
        "session_id": "log",
        "report_file": str(page),
        "bytes": page.stat().st_size,
        "entries": 5,
    }
    assert command("report", log_file, "-o", "-", "--json").exit_code == 2


def test_missing_target_error_names_the_option(command, session_file):
    done = command("report", session_file)
    assert done.exit_code == 2
    assert "-o FILE" in done.stderr


def test_report_is_overwritten_with_force(command, session_file, tmp_path):
    page = tmp_path / "s.html"
    assert command("report", session_file, "-o", page).exit_code == 0
    again = command("report", session_file, "-o", page)
    assert (again.exit_code, "--force" in again.stderr) == (2, True)
    assert command("report", session_file, "-o", page, "--force").exit_code == 0


def test_foreign_file_is_never_overwritten(command, session_file, tmp_path):
    held = session_file.read_bytes()
    done = command("report", session_file, "-o", session_file, "--force")
    assert done.exit_code == 2
    assert session_file.read_bytes() == held
    folder = command("report", session_file, "-o", tmp_path)
    assert folder.exit_code == 2


def test_failed_write_leaves_nothing(command, session_file, tmp_path):
    done = command("report", session_file, "-o", tmp_path / "nowhere" / "s.html")
    assert done.exit_code == 2
    assert done.stderr.startswith("memman: cannot write ")


def test_unreadable_session_leaves_no_page(command, tmp_path):
    half = tmp_path / "half.json"
    half.write_text('{"format": "memman-session", "version": 1, "log"')
    done = command("report", half, "-o", tmp_path / "s.html")
    assert done.exit_code == 3
    assert not (tmp_path / "s.html").exists()


def test_session_of_a_database_has_a_page(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with MemoryManager("chat.db") as memory:
        memory.add_user_message("one", "Hello")
        memory.add_user_message("two", "Good morning")
    assert command("report", "chat.db", "-o", "s.html").exit_code == 2
    done = command("report", "chat.db", "--session", "two", "-o", "s.html")
    assert done.exit_code == 0
    assert "<title>two · memman</title>" in Path("s.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("log", READ_ONLY)
def test_read_only_log_has_a_page(command, tmp_path, log):
    done = command("report", SAMPLES / log, "-o", tmp_path / "log.html")
    assert (done.exit_code, done.stdout) == (0, "")
    assert (tmp_path / "log.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("log", READ_ONLY)
def test_read_only_log_is_played_by_the_demo(command, log):
    done = command("demo", "--file", SAMPLES / log, "--budget", 4_000)
    assert done.exit_code == 0, done.stderr


HIDE = """
from msgspec.structs import replace

def hide(entry):
    return replace(entry, content="(hidden)")

def fail(entry):
    raise OSError("no dictionary")
"""


def test_redactor_hides_texts(command, session_file, tmp_path, monkeypatch):
    (tmp_path / "own_redactor.py").write_text(HIDE)
    monkeypatch.chdir(tmp_path)
    for name in ("own_redactor.py:hide", "own_redactor:hide"):
        done = command("report", session_file, "-o", "-", "--redact", name)
        assert done.exit_code == 0
        assert "(hidden)" in done.stdout
        assert "Why is the build red?" not in done.stdout
    monkeypatch.setenv("MEMMAN_REDACT", "own_redactor.py:hide")
    assert "Why is the build red?" not in command("report", session_file, "-o", "-").stdout


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("own_redactor.py", 2, "names no function; write MODULE:FUNCTION"),
        ("own_redactor.py:nobody", 2, "own_redactor.py has no function 'nobody'"),
        ("gone.py:hide", 2, "gone.py cannot be loaded: FileNotFoundError"),
        ("no_such_module_here:hide", 2, "cannot be loaded: ModuleNotFoundError"),
        ("own_redactor.py:fail", 2, "redact raised OSError for a message; no report was made"),
    ],
)
def test_unusable_redactor_leaves_no_page(
    name, code, message, command, session_file, tmp_path, monkeypatch
):
    (tmp_path / "own_redactor.py").write_text(HIDE)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = command("report", session_file, "-o", "page.html", "--redact", name)
    assert done.exit_code == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_no_content_page_has_no_texts(command, session_file):
    done = command("report", session_file, "-o", "-", "--no-content")
    assert done.exit_code == 0
    for text in ("Why is the build red?", "E501", "app.py", "You fix builds."):
        assert text not in done.stdout
    assert "read_log" in done.stdout
