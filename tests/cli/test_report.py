"""`memman report` writes a page, and over nothing that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from memman import MemoryManager

SAMPLES = Path(__file__).parents[1] / "formats" / "samples"
READ_ONLY = ["claude-code.jsonl", "codex.jsonl", "sharegpt.json", "otel.json"]


def test_a_page_is_written(command, demo_file, tmp_path):
    page = tmp_path / "demo.html"
    done = command("report", demo_file, "-o", page)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"wrote {page}; open it in a browser\n"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["demo.html"]


def test_stdout_has_the_same_page(command, session_file, tmp_path):
    command("report", session_file, "-o", tmp_path / "s.html")
    piped = command("report", "-", "-o", "-", given=session_file.read_bytes())
    assert piped.stdout == (tmp_path / "s.html").read_text(encoding="utf-8")


def test_a_log_has_a_page_without_being_imported(command, log_file, tmp_path):
    done = command("report", log_file, "-o", tmp_path / "log.html", "--model", "gpt-4o")
    assert done.exit_code == 0
    page = (tmp_path / "log.html").read_text(encoding="utf-8")
    assert "<title>log · memman</title>" in page
    assert "Why is the build red?" in page
    assert "tiktoken" in page


def test_without_a_target_it_says_what_to_give(command, session_file):
    done = command("report", session_file)
    assert done.exit_code == 2
    assert "-o FILE" in done.stderr


def test_a_report_is_overwritten_when_that_is_said(command, session_file, tmp_path):
    page = tmp_path / "s.html"
    assert command("report", session_file, "-o", page).exit_code == 0
    again = command("report", session_file, "-o", page)
    assert (again.exit_code, "--force" in again.stderr) == (2, True)
    assert command("report", session_file, "-o", page, "--force").exit_code == 0


def test_another_file_is_never_overwritten(command, session_file, tmp_path):
    held = session_file.read_bytes()
    done = command("report", session_file, "-o", session_file, "--force")
    assert done.exit_code == 2
    assert session_file.read_bytes() == held
    folder = command("report", session_file, "-o", tmp_path)
    assert folder.exit_code == 2


def test_what_cannot_be_written_leaves_nothing(command, session_file, tmp_path):
    done = command("report", session_file, "-o", tmp_path / "nowhere" / "s.html")
    assert done.exit_code == 2
    assert done.stderr.startswith("memman: cannot write ")


def test_what_is_no_session_is_told_before_anything_is_written(command, tmp_path):
    half = tmp_path / "half.json"
    half.write_text('{"format": "memman-session", "version": 1, "log"')
    done = command("report", half, "-o", tmp_path / "s.html")
    assert done.exit_code == 3
    assert not (tmp_path / "s.html").exists()


def test_a_session_of_a_database_is_chosen(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with MemoryManager("chat.db") as memory:
        memory.add_user_message("one", "Hello")
        memory.add_user_message("two", "Good morning")
    assert command("report", "chat.db", "-o", "s.html").exit_code == 2
    done = command("report", "chat.db", "--session", "two", "-o", "s.html")
    assert done.exit_code == 0
    assert "<title>two · memman</title>" in Path("s.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("log", READ_ONLY)
def test_a_log_that_is_only_read_has_a_page_too(command, tmp_path, log):
    done = command("report", SAMPLES / log, "-o", tmp_path / "log.html")
    assert (done.exit_code, done.stdout) == (0, "")
    assert (tmp_path / "log.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("log", READ_ONLY)
def test_a_log_that_is_only_read_goes_through_the_demo(command, log):
    done = command("demo", "--file", SAMPLES / log, "--budget", 4_000)
    assert done.exit_code == 0, done.stderr
