"""Every file that memman writes is private, and no planted link is followed."""

from __future__ import annotations

import ast
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import memman_cli
import pytest
from click.testing import CliRunner
from command_fixtures import LOG
from memman_cli.app import memman as command
from memman_cli.report import write

import memman
from memman import MemoryManager
from memman.files import NewFile, replacing
from memman.stores import SQLiteStore

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, with the usual mask, under which a new file is readable by all."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    yield tmp_path
    os.umask(before)


def run(*args: str) -> None:
    """Run a command that must succeed."""
    done = CliRunner().invoke(command, list(args))
    assert done.exit_code == 0, done.output


def play(session: str) -> None:
    """Play a small log and write its session."""
    Path("log.json").write_text(json.dumps(LOG))
    run("demo", "--file", "log.json", "-o", session)
    Path("log.json").unlink()


def readable_by_others(folder: Path) -> list[str]:
    """Return the files that other users may open."""
    return [path.name for path in folder.iterdir() if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_files_of_the_library_are_private(folder: Path) -> None:
    """A database with its log, an archive and a report have mode 0600"""
    memory = MemoryManager("chat.db")
    memory.add_user_message("s", "secret")
    memory.export_archive("s", "a.jsonl.gz")
    write(memory, "s", "r.html")
    names = {path.name for path in folder.iterdir()}
    assert names == {"chat.db", "chat.db-wal", "chat.db-shm", "a.jsonl.gz", "r.html"}
    assert readable_by_others(folder) == []
    memory.close()


@pytest.mark.parametrize("driver", ["sqlite3", "apsw"])
def test_database_behind_a_dangling_link_is_private(folder: Path, driver: str) -> None:
    """A database created through a dangling link has mode 0600"""
    (folder / "link.db").symlink_to(folder / "real.db")
    store = SQLiteStore("link.db", driver=driver)  # type: ignore[arg-type]
    store.close()
    assert stat.S_IMODE((folder / "real.db").stat().st_mode) == 0o600


def test_permissions_of_an_existing_database_stay(folder: Path) -> None:
    """A database that its owner shares stays shared"""
    (folder / "chat.db").touch(0o660)
    (folder / "chat.db").chmod(0o660)
    MemoryManager("chat.db").close()
    assert stat.S_IMODE((folder / "chat.db").stat().st_mode) == 0o660


def test_files_of_the_commands_are_private(folder: Path) -> None:
    """Files of the commands have mode 0600"""
    play("demo.json")
    run("report", "demo.json", "-o", "r.html")
    run("compress", "demo.json", "-o", "c.json")
    run("export", "demo.json", "--format", "memman-jsonl", "-o", "e.jsonl")
    run("import", "demo.json", "-o", "i.json")
    run("import", "demo.json", "--into", "x.db")
    assert {path.name for path in folder.iterdir()} >= {"demo.json", "r.html", "c.json", "x.db"}
    assert readable_by_others(folder) == []


def test_report_replaces_a_link_instead_of_its_target(folder: Path) -> None:
    """`report.write` leaves the target of a link as it was"""
    (folder / "victim.txt").write_text("precious")
    (folder / "link.html").symlink_to("victim.txt")
    memory = MemoryManager()
    memory.add_user_message("s", "hi")
    write(memory, "s", "link.html")
    assert (folder / "victim.txt").read_text() == "precious"
    assert not (folder / "link.html").is_symlink()


@pytest.mark.parametrize("args", [("report", "-o", "z.html"), ("compress", "-o", "z.json")])
def test_planted_temporary_name_is_not_written_to(folder: Path, args: tuple[str, ...]) -> None:
    """A link under a guessable name is not followed"""
    play("demo.json")
    (folder / "victim").write_text("precious")
    (folder / f".{args[-1]}.part").symlink_to("victim")
    run(args[0], "demo.json", *args[1:])
    assert (folder / "victim").read_text() == "precious"
    assert not (folder / args[-1]).is_symlink()


def test_dangling_link_is_replaced_by_a_document(folder: Path) -> None:
    """A link to a missing file is replaced, not followed"""
    (folder / "o.json").symlink_to(folder / "elsewhere.json")
    play("o.json")
    assert not (folder / "elsewhere.json").exists()


def test_failed_write_leaves_the_old_file_alone(folder: Path) -> None:
    """A write that fails leaves the old file and no other"""
    (folder / "kept").write_text("old")
    with pytest.raises(TypeError), replacing(folder / "kept") as file:
        file.writelines([b"new", None])  # type: ignore[list-item]
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("kept", "old")]


def test_pipe_is_not_replaced_by_a_file(folder: Path) -> None:
    """A target that is not a regular file is refused"""
    os.mkfifo(folder / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        NewFile(folder / "pipe").open()


# Modules whose files hold no conversation, or are in a private folder.
_OTHERS = {"files.py", "plugins.py"}
_MODES = {"w", "wb", "xb", "x", "a", "ab", "r+b", "w+b"}
_WRITING = {"write_text", "write_bytes"}


def test_files_are_written_by_one_module() -> None:
    """Only `memman.files` opens files for writing"""
    found = {
        path.name
        for package in (memman, memman_cli)
        for path in Path(str(package.__file__)).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _writes(node)
    }
    assert found == _OTHERS


def _writes(call: ast.Call) -> bool:
    """Return whether a call opens a file for writing."""
    name = ast.unparse(call.func).rpartition(".")[2]
    modes = {ast.unparse(value).strip("'") for value in call.args}
    touches = name == "touch" and not call.args  # `Path.touch`; a cache's has an argument
    return touches or name in _WRITING or (name == "open" and bool(modes & _MODES))
