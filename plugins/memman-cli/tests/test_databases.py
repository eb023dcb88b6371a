"""Databases of sessions: commands read them, and write to them only with `--in-place`."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_fixtures import Command

from memman import MemoryConfig, MemoryManager
from tests.stores.test_sqlite_faults import as_somebody_else

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def filled(path: Path, *session_ids: str) -> None:
    with MemoryManager(path, config=MemoryConfig(auto_compress=False)) as memory:
        for session_id in session_ids:
            memory.add_user_message(session_id, f"What is in {session_id}?")
            for number in range(30):
                memory.add_tool_call(session_id, "ls", {"n": number}, call_id=f"c{number}")
                memory.add_tool_result(session_id, "ls", "word " * 60, call_id=f"c{number}")


@pytest.fixture
def one(tmp_path: Path) -> Path:
    filled(tmp_path / "one.db", "trip")
    return tmp_path / "one.db"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    filled(tmp_path / "two.db", "trip", "work")
    return tmp_path / "two.db"


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user can open; pytest's own is private."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def entries_in(path: Path, session_id: str) -> int:
    with MemoryManager(path) as memory:
        return len(memory.get_active_entries(session_id))


@pytest.mark.parametrize(
    "arguments", [["stats"], ["show"], ["export", "-t", "anthropic"], ["compress", "--dry-run"]]
)
def test_reading_commands_do_not_change_a_database(
    one: Path, command: Command, arguments: list[str]
) -> None:
    name, *options = arguments
    before = MemoryManager(one).export_session("trip")
    result = command(name, one, *options)
    assert result.exit_code == 0, result.stderr
    assert MemoryManager(one).export_session("trip") == before


def test_model_option_is_not_written_to_the_database(one: Path, command: Command) -> None:
    assert command("stats", one, "--model", "gpt-4o").exit_code == 0
    assert MemoryManager(one).export_session("trip").settings == {}


def test_session_option_selects_a_session(two: Path, command: Command) -> None:
    assert "What is in work?" in command("show", two, "--session", "work").stdout
    shown = command("show", two)
    assert shown.exit_code == 2
    assert "with --session ID; there are 2: trip, work" in shown.stderr
    wrong = command("show", two, "--session", "nowhere")
    assert wrong.exit_code == 2
    assert "no session 'nowhere'; there are 2: trip, work" in wrong.stderr


def test_in_place_changes_the_database(two: Path, command: Command) -> None:
    done = command("compress", two, "--session", "work", "--budget", "2k", "--in-place", "--json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert result["tokens_after"] < result["tokens_before"]
    with MemoryManager(two) as memory:
        assert len(memory.get_entries("work")) == 61
        assert memory.get_stats("work").active_tokens <= 2_000
    assert entries_in(two, "trip") == 61
    compressed = entries_in(two, "work")
    undone = command("undo", two, "--session", "work", "--in-place")
    assert undone.exit_code == 0, undone.stderr
    assert entries_in(two, "work") == 61 >= compressed


def test_commands_suggested_by_why_run_on_a_database(two: Path, command: Command) -> None:
    command("compress", two, "--session", "work", "--budget", "1k", "--in-place")
    with MemoryManager(two) as memory:
        [text] = [entry.text for entry in memory.get_entries("work") if entry.call_id == "c0"][:1]
    output = command("why", two, text, "--session", "work").stdout
    [restore] = [line.split("memman ")[1] for line in output.splitlines() if "restore:" in line]
    assert "--session work" in restore
    assert command(*restore.split()).exit_code == 0
    assert text in command("show", two, "--session", "work", "--active").stdout


def test_output_file_leaves_the_database_unchanged(
    one: Path, command: Command, tmp_path: Path
) -> None:
    made = tmp_path / "small.json"
    result = command("compress", one, "--budget", "2k", "-o", made)
    assert result.exit_code == 0, result.stderr
    assert json.loads(made.read_text())["session_id"] == "trip"
    assert entries_in(one, "trip") == 61


def test_database_is_not_overwritten_with_a_document(
    one: Path, session_file: Path, command: Command
) -> None:
    before = one.read_bytes()
    result = command("compress", session_file, "-o", one, "--force")
    assert result.exit_code == 2
    assert "is a database" in result.stderr
    assert one.read_bytes() == before


def test_foreign_database_is_refused(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE notes (text)")
    other.commit()
    other.close()
    for name in ("stats", "sessions"):
        result = command(name, path)
        assert result.exit_code == 3
        assert "is not a memman database" in result.stderr


def test_session_option_for_a_file_is_refused(session_file: Path, command: Command) -> None:
    listed = command("sessions", session_file)
    assert listed.exit_code == 3
    assert "`memman stats S`" in listed.stderr
    chosen = command("stats", session_file, "--session", "x")
    assert chosen.exit_code == 2
    assert "selects a session of a database" in chosen.stderr


@pytest.mark.parametrize("name", ["sessions", "follow", "stats --session x"])
def test_path_without_a_database_is_explained(tmp_path: Path, command: Command, name: str) -> None:
    (tmp_path / "empty.db").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for given, message in (
        (tmp_path / "none.db", "cannot read {}: No such file or directory"),
        (tmp_path / "folder", "cannot read {}: Is a directory"),
        (tmp_path / "empty.db", "{} is empty, and not a database yet"),
        (tmp_path / "pipe", "{} is a pipe: name the file of a database"),
        ("-", "a database cannot be read from stdin: name its file"),
    ):
        first, *options = name.split()
        result = command(first, given, *options)
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr == f"memman: {message.format(given)}\n"


@pytest.mark.parametrize("given", ["s.json", "closed/s.json", "closed/chat.db", "URL"])
@pytest.mark.parametrize("name", ["sessions", "follow", "stats", "show", "export", "report -o x"])
def test_unreadable_file_error_names_permission(
    reachable: Path, command: Command, name: str, given: str
) -> None:
    (reachable / "s.json").touch(0o000)
    (reachable / "closed").mkdir(0o700)
    for name_inside in ("s.json", "chat.db"):
        (reachable / "closed" / name_inside).write_text("hello")
    path = str(reachable / ("closed/chat.db" if given == "URL" else given))
    first, *options = name.split()

    def work() -> None:
        result = command(first, url_of(Path(path)) if given == "URL" else path, *options)
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr == f"memman: cannot read {path}: Permission denied\n"

    command("formats")  # later imports may be unreadable for that user
    assert as_somebody_else(work)


def test_read_only_database_is_read(reachable: Path, command: Command) -> None:
    filled(reachable / "chat.db", "trip")
    (reachable / "chat.db").chmod(0o644)  # a new database is private
    arguments: list[list[str]] = [["sessions"], ["stats"], ["show"], ["follow", "--timeout", "0"]]
    outputs = [command(*words, reachable / "chat.db").stdout for words in arguments]

    def work() -> None:
        for words, before in zip(arguments, outputs, strict=True):
            result = command(*words, reachable / "chat.db")
            assert (result.exit_code, result.stdout) == (0, before), result.stderr
        result = command("compress", reachable / "chat.db", "--in-place")
        assert result.exit_code != 0
        assert "may only be read; nothing was changed" in result.stderr

    assert as_somebody_else(work)
    assert [file.name for file in reachable.iterdir()] == ["chat.db"]


def test_empty_database_is_reported(tmp_path: Path, command: Command) -> None:
    MemoryManager(tmp_path / "empty.db").close()
    result = command("stats", tmp_path / "empty.db")
    assert (result.exit_code, "has no sessions" in result.stderr) == (2, True)
    assert command("sessions", tmp_path / "empty.db").exit_code == 0


# ---------------------------------------------------------------- URLs


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.mark.parametrize("arguments", [["stats"], ["show"], ["plan"], ["export"], ["diff"]])
def test_store_url_is_a_database(one: Path, command: Command, arguments: list[str]) -> None:
    named = command(*arguments, url_of(one))
    assert named.exit_code == command(*arguments, one).exit_code
    assert named.stdout == command(*arguments, one).stdout


def test_sessions_of_a_url_are_listed_and_changed(one: Path, command: Command) -> None:
    assert command("sessions", url_of(one)).stdout == command("sessions", one).stdout
    before = entries_in(one, "trip")
    assert command("compress", url_of(one), "--target", "1k", "--in-place").exit_code == 0
    assert entries_in(one, "trip") < before


def test_reading_a_url_creates_no_database(tmp_path: Path, command: Command) -> None:
    for name in ("sessions", "stats", "export"):
        result = command(name, url_of(tmp_path / "none.db"))
        assert result.exit_code == 3
        assert "there is no database at" in result.stderr
    assert not list(tmp_path.iterdir())


def test_unknown_url_error_names_the_plugin(command: Command) -> None:
    result = command("stats", "redis://ada:secret@db/0")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no installed plugin opens a store of the scheme 'redis'" in result.stderr
    assert "secret" not in result.stderr


@pytest.mark.parametrize("name", ["import", "verify", "check"])
def test_database_in_place_of_a_file_is_refused(one: Path, command: Command, name: str) -> None:
    for given in (str(one), "postgresql://ada:secret@db/chat"):
        result = command(name, given)
        assert (result.exit_code, result.stdout) == (3, "")
        assert "is a database, and a file is needed" in result.stderr
        assert "secret" not in result.stderr


@pytest.mark.parametrize("url", ["postgresql://ada:secret@db/chat", "sqlite:////tmp/x.db"])
def test_session_does_not_overwrite_a_database(one: Path, command: Command, url: str) -> None:
    result = command("compress", one, "--target", "1k", "-o", url)
    assert result.exit_code == 2
    assert "is a database" in result.stderr
    assert "secret" not in result.stderr
