"""Tests of `memman undo`."""

from __future__ import annotations

import json

import pytest

from memman import MemoryManager, SessionState
from tests.explain.conversation import manager, orders, talk


@pytest.fixture
def saved(tmp_path):
    """A session file with compressions at #27 and #48; the second folds the first."""
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


def test_undo_of_the_newest_restores_the_earlier_summary(command, saved):
    before = SessionState.from_json(saved.read_bytes())
    result = command("undo", saved, "--in-place")
    assert (result.exit_code, result.stdout) == (0, "")
    after = SessionState.from_json(saved.read_bytes())
    assert len(after.log) == len(before.log) + 1
    assert after.summaries[0].content == "one"
    assert "two" not in [summary.content for summary in after.summaries]
    assert "#48" in result.stderr
    assert "(limit 50,000)" in result.stderr


def test_outer_undoes_a_folded_compression(command, saved):
    result = command("undo", saved, "#27", "--outer", "--in-place")
    assert result.exit_code == 0
    assert active(saved) == added(saved)
    assert result.stderr.startswith("undone: #48, #27\n")
    assert "entries in the window again" in result.stderr


def test_undo_of_a_folded_compression_is_refused(command, saved):
    before = saved.read_bytes()
    result = command("undo", saved, "27", "--in-place")
    assert result.exit_code == 1
    assert "compression #27 was folded by 1 later one: undo #48 first" in result.stderr
    assert "--outer" in result.stderr
    assert saved.read_bytes() == before
    assert command("undo", saved, "48", "--in-place").exit_code == 0
    assert command("undo", saved, "27", "--in-place").exit_code == 0


def test_second_undo_is_refused(command, saved):
    command("undo", saved, "--in-place")
    before = saved.read_bytes()
    result = command("undo", saved, "48", "--in-place")
    assert result.exit_code == 1
    assert "was undone already, by record 49" in result.stderr
    assert saved.read_bytes() == before


def test_nothing_to_undo_is_a_finding(command, saved):
    command("undo", saved, "27", "--outer", "--in-place")
    result = command("undo", saved, "--in-place")
    assert result.exit_code == 1
    assert "no compression is in force" in result.stderr


def test_undone_entries_can_be_compressed_again(command, saved, tmp_path):
    command("undo", saved, "27", "--outer", "--in-place")
    assert command("compress", saved, "--target", "500", "--in-place").exit_code == 0
    assert command("undo", saved, "-o", tmp_path / "o.json").exit_code == 0
    assert active(tmp_path / "o.json") == added(saved)


def test_pinned_summary_cannot_be_undone(command, saved):
    memory = MemoryManager()
    memory.import_session(saved.read_bytes())
    memory.pin("s", memory.get_summaries("s")[0].id)
    saved.write_text(memory.export_session("s").to_json())
    result = command("undo", saved, "--in-place")
    assert result.exit_code == 1
    assert "unpin it before the undo" in result.stderr


def test_undo_into_another_file_keeps_the_session(command, saved, tmp_path):
    before = saved.read_bytes()
    assert command("undo", saved, "-o", tmp_path / "o.json").exit_code == 0
    assert saved.read_bytes() == before
    assert active(tmp_path / "o.json") != active(saved)


def test_json_has_the_undone_compressions(command, saved, tmp_path):
    result = command("undo", saved, "27", "--outer", "-o", tmp_path / "o.json", "--json")
    document = json.loads(result.stdout)
    log = SessionState.from_json(saved.read_bytes()).log
    assert document["undone"] == [log[47].id, log[26].id]
    assert document["stats"]["compressed_entries"] == 0


@pytest.mark.parametrize(
    "options", [[], ["--in-place", "-o", "o.json"], ["-o", "-", "--json"]], ids=str
)
def test_undo_needs_exactly_one_target(command, saved, options):
    before = saved.read_bytes()
    assert command("undo", saved, *options).exit_code == 2
    assert saved.read_bytes() == before


def test_pipes_work_as_input_and_output(command, saved):
    result = command("undo", "-", "-o", "-", given=saved.read_bytes())
    assert SessionState.from_json(result.stdout).summaries[0].content == "one"


def test_retraction_is_undone_by_its_place(command, saved):
    memory = MemoryManager()
    memory.import_session(saved.read_bytes())
    newest = added(saved)[-2:]
    memory.retract("s", newest, reason="edited")
    saved.write_text(memory.export_session("s").to_json())
    assert "#48" in command("undo", saved, "-o", "-").stderr, "the newest compression is another"
    result = command("undo", saved, "#49", "--in-place")
    assert result.exit_code == 0
    assert "2 entries in the window again" in result.stderr
    assert active(saved)[-2:] == newest
