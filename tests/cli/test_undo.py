"""`memman undo` takes compressions back."""

from __future__ import annotations

import json

import pytest

from memman import MemoryManager, SessionState
from tests.explain.conversation import manager, orders, talk


@pytest.fixture
def saved(tmp_path):
    """A session file that was compressed twice, at #27 and #48, the second folding the first."""
    memory = manager("one", "two")
    orders(memory)
    for number in range(2):
        talk(memory, first=10 * number)
        memory.compress("s", target_tokens=700)
    path = tmp_path / "s.json"
    path.write_text(memory.export_session("s").to_json())
    return path


def active(path):
    memory = MemoryManager()
    memory.import_session(path.read_bytes())
    return [entry.id for entry in memory.get_active_entries("s")]


def added(path):
    return [entry.id for entry in SessionState.from_json(path.read_bytes()).entries]


def test_the_newest_is_taken_back_and_the_summary_that_it_folded_is_there_again(command, saved):
    before = SessionState.from_json(saved.read_bytes())
    result = command("undo", saved, "--in-place")
    assert (result.exit_code, result.stdout) == (0, "")
    after = SessionState.from_json(saved.read_bytes())
    assert len(after.log) == len(before.log) + 1
    assert [summary.content for summary in after.summaries] == ["one"]
    assert "#48" in result.stderr
    assert "(limit 50,000)" in result.stderr


def test_an_inner_one_is_taken_back_with_all_that_folded_it(command, saved):
    result = command("undo", saved, "#27", "--outer", "--in-place")
    assert result.exit_code == 0
    assert active(saved) == added(saved)
    assert result.stderr.startswith("undone: #48, #27\n")
    assert "entries in the window again" in result.stderr


def test_a_folded_one_is_refused_with_what_must_go_first(command, saved):
    before = saved.read_bytes()
    result = command("undo", saved, "27", "--in-place")
    assert result.exit_code == 1
    assert "compression #27 was folded by 1 later one: undo #48 first" in result.stderr
    assert "--outer" in result.stderr
    assert saved.read_bytes() == before
    assert command("undo", saved, "48", "--in-place").exit_code == 0
    assert command("undo", saved, "27", "--in-place").exit_code == 0


def test_one_that_was_undone_is_refused_and_nothing_is_written(command, saved):
    command("undo", saved, "--in-place")
    before = saved.read_bytes()
    result = command("undo", saved, "48", "--in-place")
    assert result.exit_code == 1
    assert "was undone already, by record 49" in result.stderr
    assert saved.read_bytes() == before


def test_nothing_left_to_undo_is_a_finding(command, saved):
    command("undo", saved, "27", "--outer", "--in-place")
    result = command("undo", saved, "--in-place")
    assert result.exit_code == 1
    assert "no compression is in force" in result.stderr


def test_what_was_undone_can_be_compressed_again(command, saved, tmp_path):
    command("undo", saved, "27", "--outer", "--in-place")
    assert command("compress", saved, "--target", "500", "--in-place").exit_code == 0
    assert command("undo", saved, "-o", tmp_path / "o.json").exit_code == 0
    assert active(tmp_path / "o.json") == added(saved)


def test_a_pinned_summary_refuses_until_it_is_unpinned(command, saved):
    memory = MemoryManager()
    memory.import_session(saved.read_bytes())
    memory.pin("s", memory.get_summaries("s")[0].id)
    saved.write_text(memory.export_session("s").to_json())
    result = command("undo", saved, "--in-place")
    assert result.exit_code == 1
    assert "unpin it before the undo" in result.stderr


def test_another_file_is_written_and_the_session_stays(command, saved, tmp_path):
    before = saved.read_bytes()
    assert command("undo", saved, "-o", tmp_path / "o.json").exit_code == 0
    assert saved.read_bytes() == before
    assert active(tmp_path / "o.json") != active(saved)


def test_json_has_what_was_undone(command, saved, tmp_path):
    result = command("undo", saved, "27", "--outer", "-o", tmp_path / "o.json", "--json")
    document = json.loads(result.stdout)
    log = SessionState.from_json(saved.read_bytes()).log
    assert document["undone"] == [log[47].id, log[26].id]
    assert document["stats"]["compressed_entries"] == 0


@pytest.mark.parametrize(
    "options", [[], ["--in-place", "-o", "o.json"], ["-o", "-", "--json"]], ids=str
)
def test_where_it_goes_has_to_be_said_once(command, saved, options):
    before = saved.read_bytes()
    assert command("undo", saved, *options).exit_code == 2
    assert saved.read_bytes() == before


def test_a_pipe_goes_in_and_out(command, saved):
    result = command("undo", "-", "-o", "-", given=saved.read_bytes())
    assert SessionState.from_json(result.stdout).summaries[0].content == "one"


def test_a_foreign_file_is_not_overwritten(command, saved, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    assert command("undo", saved, "-o", tmp_path / "mine.txt").exit_code == 2
    assert (tmp_path / "mine.txt").read_text() == "mine"
