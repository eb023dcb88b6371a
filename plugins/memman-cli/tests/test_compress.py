"""Tests of `memman compress`."""

from __future__ import annotations

import json
import shlex
import shutil
import sys

import pytest

from memman import MemoryConfig, MemoryManager, SessionState


@pytest.fixture
def session(demo_file, tmp_path):
    path = tmp_path / "s.json"
    shutil.copy(demo_file, path)
    return path


def test_result_fits_the_budget_and_has_every_entry(command, session, tmp_path):
    out = tmp_path / "small.json"
    result = command("compress", session, "--budget", "2k", "-o", out)
    assert (result.exit_code, result.stdout) == (0, "")
    before = SessionState.from_json(session.read_bytes())
    after = SessionState.from_json(out.read_bytes())
    assert after.totals.active_tokens <= 2000 < before.totals.active_tokens
    assert [entry.id for entry in after.entries] == [entry.id for entry in before.entries]
    assert after.settings["max_tokens"] == 2000


def test_target_goes_lower(command, session, tmp_path):
    out = tmp_path / "small.json"
    command("compress", session, "--target", "1500", "-o", out)
    assert SessionState.from_json(out.read_bytes()).totals.active_tokens <= 1500


def test_dry_run_has_every_entry_and_writes_nothing(command, session):
    before = session.read_bytes()
    result = command("compress", session, "--budget", "4k", "--dry-run", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert document["memman"] == "plan"
    plan = document["plan"]
    assert len(plan["entries"]) == plan["entries_before"] - 1  # without the outline
    assert plan["tokens_after"] < plan["tokens_before"]
    assert session.read_bytes() == before


def test_dry_run_is_a_table(command, session):
    result = command("compress", session, "--budget", "4k", "--dry-run")
    assert "outline" in result.stdout
    assert "nothing was changed" in result.stderr


def test_json_has_the_result(command, session, tmp_path):
    result = command("compress", session, "--budget", "4k", "-o", tmp_path / "o.json", "--json")
    document = json.loads(result.stdout)
    assert document["memman"] == "compress"
    assert document["result"]["tokens_after"] < document["result"]["tokens_before"]


def test_compress_without_a_target_is_refused(command, session):
    before = session.read_bytes()
    result = command("compress", session, "--budget", "4k")
    assert result.exit_code == 2
    assert "--in-place" in result.stderr
    assert session.read_bytes() == before


def test_in_place_writes_back(command, session):
    assert command("compress", session, "--budget", "4k", "--in-place").exit_code == 0
    assert SessionState.from_json(session.read_bytes()).totals.active_tokens <= 4000


def test_in_place_keeps_the_permissions(command, session):
    session.chmod(0o600)
    command("compress", session, "--budget", "4k", "--in-place")
    assert session.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in session.parent.iterdir()] == ["s.json"]


def test_in_place_keeps_a_link(command, session, tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to(session)
    command("compress", link, "--budget", "4k", "--in-place")
    assert link.is_symlink()
    assert SessionState.from_json(session.read_bytes()).totals.active_tokens <= 4000


def test_in_place_and_output_contradict(command, session, tmp_path):
    result = command("compress", session, "--in-place", "-o", tmp_path / "o.json")
    assert result.exit_code == 2
    assert "give one of the two" in result.stderr


def test_foreign_file_is_not_overwritten(command, session, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    result = command("compress", session, "--budget", "4k", "-o", tmp_path / "mine.txt")
    assert (result.exit_code, (tmp_path / "mine.txt").read_text()) == (2, "mine")


def test_pipes_work_as_input_and_output(command, session):
    result = command("compress", "-", "--budget", "4k", "-o", "-", given=session.read_bytes())
    assert SessionState.from_json(result.stdout).totals.active_tokens <= 4000


@pytest.mark.parametrize("options", [["--in-place"], ["-o", "-", "--json"]])
def test_stdout_conflict_is_a_usage_error(command, session, options):
    result = command("compress", "-", *options, given=session.read_bytes())
    assert (result.exit_code, result.stdout) == (2, "")


def test_budget_below_the_protected_part_is_a_finding(command, session, tmp_path):
    result = command("compress", session, "--budget", "100", "-o", tmp_path / "o.json")
    assert result.exit_code == 1
    assert "over its budget" in result.stderr


def test_unneeded_compression_is_noted(command, session_file, tmp_path):
    result = command("compress", session_file, "-o", tmp_path / "o.json")
    assert result.exit_code == 0
    assert "every entry is recent or protected" in result.stderr


def test_other_session_is_overwritten_only_with_force(command, session, session_file):
    before = session_file.read_bytes()
    result = command("compress", session, "--budget", "4k", "-o", session_file)
    assert result.exit_code == 2
    assert "holds session 'log'; choose another name, or --force" in result.stderr
    assert session_file.read_bytes() == before
    assert (
        command("compress", session, "--budget", "4k", "-o", session_file, "--force").exit_code == 0
    )
    assert SessionState.from_json(session_file.read_bytes()).session_id == "demo"


def test_missed_target_is_a_finding(command, session, tmp_path):
    result = command("compress", session, "--target", "10", "-o", tmp_path / "o.json")
    assert result.exit_code == 1
    assert "over the target of 10" in result.stderr
    assert (tmp_path / "o.json").exists()


def test_target_above_the_budget_is_a_usage_error(command, session, tmp_path):
    options = ["--budget", "2k", "--target", "3k", "-o", tmp_path / "o.json"]
    result = command("compress", session, *options)
    assert result.exit_code == 2
    assert "--target 3,000 is above the budget of 2,000 tokens" in result.stderr
    assert not (tmp_path / "o.json").exists()


@pytest.mark.parametrize("options", [["-o", "o.json"], ["--in-place"]])
def test_dry_run_with_a_target_file_is_refused(command, session, options):
    result = command("compress", session, "--dry-run", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--dry-run writes nothing" in result.stderr


@pytest.mark.parametrize(
    ("budget", "message"),
    [("0", "less than one token"), ("9" * 400, "maximum of 9,0"), ("x", "is not a number")],
)
def test_invalid_budget_error_has_the_reason(command, session, budget, message):
    assert message in command("compress", session, "--dry-run", "--budget", budget).stderr


def test_missing_folder_is_a_usage_error(command, session, tmp_path):
    result = command("compress", session, "-o", tmp_path / "none" / "o.json")
    assert result.exit_code == 2
    assert "cannot write" in result.stderr


# ---------------------------------------------------------------- summarizers

FIRST_WORDS = "import sys; print('They said:', ' '.join(sys.stdin.read().split()[:30]))"
COMMAND = f"cmd:{shlex.quote(sys.executable)} -c {shlex.quote(FIRST_WORDS)}"


def summaries(path):
    return [entry.content for entry in SessionState.from_json(path.read_bytes()).summaries]


def test_program_writes_the_summaries(command, session, tmp_path):
    out = tmp_path / "o.json"
    arguments = ("compress", session, "--budget", "2k", "-o", out, "--summarizer", COMMAND)
    result = command(*arguments)
    assert result.exit_code == 0
    assert "by summary" in result.stderr
    assert any("They said:" in summary for summary in summaries(out))
    assert "summarizer" not in SessionState.from_json(out.read_bytes()).settings


def test_environment_names_the_summarizer(command, session, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMMAN_SUMMARIZER", COMMAND)
    out = tmp_path / "o.json"
    command("compress", session, "--budget", "2k", "-o", out)
    assert any("They said:" in summary for summary in summaries(out))


def test_answer_has_the_cost(command, session, tmp_path):
    arguments = ("compress", session, "--budget", "2k", "-o", tmp_path / "o.json", "--json")
    document = json.loads(command(*arguments, "--summarizer", COMMAND).stdout)
    assert document["result"]["cost"]["calls"] >= 1


def test_failed_summarizer_is_noted_and_the_outline_is_used(command, session, tmp_path):
    out = tmp_path / "o.json"
    arguments = ("compress", session, "--budget", "2k", "-o", out, "--summarizer", "cmd:false")
    done = command(*arguments)
    assert done.exit_code == 0
    failed, compressed = done.stderr.splitlines()
    assert failed.startswith("no summary: ")
    assert "false ended with status 1" in failed
    assert "by outline" in compressed
    assert summaries(out)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nope", "anthropic:MODEL"),
        ("cmd:", "write cmd:PROGRAM ARGS"),
        ("cmd:no-such-program-anywhere", "not on PATH"),
        ("openai:", "write openai:MODEL"),
    ],
)
def test_unknown_summarizer_is_refused_before_writing(command, session, tmp_path, name, reason):
    out = tmp_path / "o.json"
    result = command("compress", session, "-o", out, "--summarizer", name)
    assert result.exit_code != 0
    assert reason in str(result.stderr) + str(result.exception)
    assert not out.exists()


@pytest.mark.parametrize("named", ["acme:not-installed", "cmd:touch ran"])
def test_summarizer_named_by_a_document_is_not_used(command, session, tmp_path, named, monkeypatch):
    monkeypatch.chdir(tmp_path)
    memory = MemoryManager(config=MemoryConfig(auto_compress=False), summarizer="outline")
    name = memory.import_session(SessionState.from_json(session.read_bytes()))
    memory.update_config(name, summarizer=named)
    session.write_text(memory.export_session(name).to_json())
    assert command("stats", session).exit_code == 0
    out = tmp_path / "o.json"
    assert command("compress", session, "--budget", "2k", "-o", out).exit_code == 0
    assert SessionState.from_json(out.read_bytes()).settings["summarizer"] == named
    assert summaries(out)
    assert not (tmp_path / "ran").exists()


# ---------------------------------------------------------------- strictly


BROKEN = f"cmd:{shlex.quote(sys.executable)} -c {shlex.quote('raise SystemExit(7)')}"


def test_strict_compression_ends_at_a_failed_summarizer(command, session, tmp_path):
    out = tmp_path / "o.json"
    options = ["--budget", "2k", "--summarizer", BROKEN, "-o", out]
    result = command("compress", session, *options, "--strict")
    assert (result.exit_code, result.stdout, out.exists()) == (4, "", False)
    assert "ended with status 7" in result.stderr
    assert command("compress", session, *options).exit_code == 0
    assert out.exists()


def test_failed_strict_compression_changes_nothing(command, session, tmp_path):
    database = tmp_path / "chat.db"
    assert command("import", session, "--into", database).exit_code == 0
    before = json.loads(command("show", database, "--active", "--json").stdout)
    options = ["--budget", "2k", "--summarizer", BROKEN, "--strict", "--in-place"]
    assert command("compress", database, *options).exit_code == 4
    assert json.loads(command("show", database, "--active", "--json").stdout) == before


def test_strict_compression_refuses_a_configured_fallback(command, session, tmp_path):
    """The session's own `on_failure` does not hide a failure."""
    memory = MemoryManager()
    session_id = memory.import_session(SessionState.from_json(session.read_bytes()))
    memory.update_config(session_id, on_failure="fallback")
    session.write_text(memory.export_session(session_id).to_json())
    out = tmp_path / "o.json"
    options = ["--budget", "2k", "--summarizer", BROKEN, "--strict", "-o", out]
    assert command("compress", session, *options).exit_code == 4
    assert not out.exists()
