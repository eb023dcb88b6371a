"""Archives on the command line: written, verified, imported, and read like documents."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from command_fixtures import Command
from test_databases import filled

from memman import MemoryManager, SessionState
from memman.archive.importer import verify

NAMES = ("s.jsonl", "s.jsonl.gz", "s.jsonl.zst")


@pytest.fixture(params=NAMES)
def archive(request: pytest.FixtureRequest, tmp_path: Path, command: Command) -> Path:
    """An archive of one session of a database."""
    filled(tmp_path / "chat.db", "trip", "work")
    path = tmp_path / request.param
    done = command(
        "export", tmp_path / "chat.db", "--session", "work", "--format", "memman-jsonl", "-o", path
    )
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr
    assert "61 entries" in done.stderr
    return path


def test_archive_is_verified(archive: Path, command: Command) -> None:
    done = command("verify", archive)
    assert done.exit_code == 0
    assert "OK, memman-jsonl of session 'work', 62 records, 61 entries" in done.stdout
    assert verify(archive).sha256 in done.stdout
    assert json.loads(command("verify", archive, "--json").stdout)["ok"] is True


def test_corrupt_archive_has_every_fault_listed(archive: Path, command: Command) -> None:
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 0xFF
    archive.write_bytes(data)
    done = command("verify", archive)
    assert (done.exit_code, done.stdout) == (3, "")
    assert "  - line " in done.stderr
    answered = json.loads(command("verify", archive, "--json").stdout)
    assert answered["ok"] is False
    assert answered["problems"][0].startswith("line ")


def test_repeated_import_of_an_archive_is_harmless(
    archive: Path, command: Command, tmp_path: Path
) -> None:
    into = tmp_path / "new.db"
    for _ in range(2):
        done = command("import", archive, "--into", into)
        assert done.exit_code == 0, done.stderr
    copied = json.loads(
        command("import", archive, "--into", into, "--on-conflict", "new_session", "--json").stdout
    )
    assert copied["session_id"].startswith("work-")
    assert copied["database"] == str(into)
    with MemoryManager(into) as memory, MemoryManager(tmp_path / "chat.db") as first:
        assert sorted(info.session_id for info in memory.list_sessions()) == sorted(
            ["work", copied["session_id"]]
        )
        assert memory.export_session("work") == first.export_session("work")


@pytest.mark.parametrize("arguments", [["stats"], ["show"], ["export"], ["compress", "--dry-run"]])
def test_commands_read_an_archive_like_a_document(
    archive: Path, command: Command, arguments: list[str]
) -> None:
    name, *options = arguments
    before = archive.read_bytes()
    done = command(name, archive, *options)
    assert done.exit_code == 0, done.stderr
    assert archive.read_bytes() == before


def test_archive_changed_in_place_stays_an_archive(archive: Path, command: Command) -> None:
    packing = verify(archive).packing
    done = command("compress", archive, "--budget", "2k", "--in-place")
    assert done.exit_code == 0, done.stderr
    info = verify(archive)
    assert (info.packing, info.session_id) == (packing, "work")
    assert info.records > 61
    assert command("undo", archive, "--in-place").exit_code == 0


def test_archive_is_piped_between_databases(command: Command, tmp_path: Path) -> None:
    filled(tmp_path / "one.db", "trip")
    sent = command("export", tmp_path / "one.db", "--format", "memman-jsonl", "--packing", "gzip")
    assert sent.exit_code == 0
    assert gzip.decompress(sent.stdout_bytes).startswith(b'{"crc":"')
    taken = command("import", "-", "--into", tmp_path / "two.db", given=sent.stdout_bytes)
    assert taken.exit_code == 0, taken.stderr
    assert command("verify", "-", given=sent.stdout_bytes).exit_code == 0
    assert command("stats", "-", given=sent.stdout_bytes).exit_code == 0


def test_documents_and_logs_go_into_a_database(
    session_file: Path, log_file: Path, command: Command, tmp_path: Path
) -> None:
    into = tmp_path / "new.db"
    assert command("import", session_file, "--into", into).exit_code == 0
    done = command("import", log_file, "--into", into, "--session", "other", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["session_id"] == "other"
    with MemoryManager(into) as memory:
        assert [info.session_id for info in memory.list_sessions()] == ["log", "other"]
    again = command("import", session_file, "--into", into)
    assert again.exit_code == 2
    assert "session 'log' exists" in again.stderr
    assert command("import", session_file, "--into", into, "--on-conflict", "skip").exit_code == 0


def test_archive_becomes_a_document_and_back(
    archive: Path, command: Command, tmp_path: Path
) -> None:
    document = tmp_path / "work.json"
    assert command("import", archive, "-o", document).exit_code == 0
    assert SessionState.from_json(document.read_bytes()).session_id == "work"
    assert command("verify", document).exit_code == 0
    back = tmp_path / "back.jsonl"
    assert command("import", document, "-o", back).exit_code == 0
    assert verify(back).sha256 != ""
    assert verify(back).records == verify(archive).records


def test_other_session_and_foreign_file_are_not_overwritten(
    archive: Path, command: Command, tmp_path: Path
) -> None:
    export = ["export", tmp_path / "chat.db", "--session", "trip", "--format", "memman-jsonl", "-o"]
    before = archive.read_bytes()
    refused = command(*export, archive)
    assert refused.exit_code == 2
    assert "holds session 'work'" in refused.stderr
    assert archive.read_bytes() == before
    assert command(*export, archive, "--force").exit_code == 0
    (tmp_path / "notes.jsonl").write_text("mine")
    assert command(*export, tmp_path / "notes.jsonl", "--force").exit_code == 2
    assert (tmp_path / "notes.jsonl").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["verify", "nowhere.jsonl"], 3, "cannot read nowhere.jsonl"),
        (["verify", "log.json"], 3, "is not a memman session"),
        (["import", "s.jsonl", "--into", "a.db", "-o", "b.json"], 2, "contradict"),
        (["import", "s.jsonl", "--budget", "8k"], 2, "are for logs"),
        (["import", "s.jsonl", "--into", "log.json"], 2, "not a memman database"),
        (["export", "s.jsonl", "-o", "x.json"], 2, "go with --format memman-jsonl"),
        (["export", "s.jsonl", "--format", "memman-jsonl", "--json"], 2, "both want stdout"),
        (["export", "s.jsonl", "--format", "memman-jsonl", "-o", "no/x.jsonl"], 2, "cannot write"),
    ],
)
def test_wrong_use_of_archives_is_refused(
    arguments: list[str],
    code: int,
    message: str,
    log_file: Path,
    session_file: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(log_file.parent)
    made = command("export", session_file, "--format", "memman-jsonl", "-o", "s.jsonl")
    assert made.exit_code == 0, made.stderr
    done = command(*arguments)
    assert done.exit_code == code, done.stderr
    assert message in done.stderr


def test_archive_limits_are_given_by_name(archive: Path, tmp_path: Path, command: Command) -> None:
    into = ("import", archive, "--into", tmp_path / "other.db")
    for arguments in (("verify", archive), into):
        done = command(*arguments, "--limit", "entries=60", "--limit", "depth=9")
        assert done.exit_code == 3
        assert "60" in done.stderr
        done = command(*arguments, "--limit", "entries=61", "--limit", "string_bytes=1_000_000")
        assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("given", ["entries", "entries=many", "pages=3", "entries=-1", "entries=0"])
def test_invalid_limit_is_refused(archive: Path, command: Command, given: str) -> None:
    done = command("verify", archive, "--limit", given)
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) <= 4
    assert "Traceback" not in done.stderr
