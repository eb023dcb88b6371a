"""The demo keeps its promises on the bundled conversation and on any other log."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from memman_cli.app import memman

from memman import SessionState

LONG = pytest.mark.long


@pytest.fixture(scope="module")
def bundled(tmp_path_factory):
    """The answer of one run of the demo with `--json`."""
    path = tmp_path_factory.mktemp("bundled") / "s.json"
    result = CliRunner().invoke(memman, ["demo", "--json", "-o", str(path)])
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_bundled_conversation_fits_is_valid_and_complete(bundled):
    report = bundled
    assert (report["memman"], report["version"]) == ("demo", 1)
    assert report["budget"] == 8000
    assert report["messages"] == 233
    assert 310 <= report["entries"] <= 340
    assert report["tokens"] > 5 * report["budget"]
    assert report["over_budget"] == 0
    assert report["largest"] <= 8000
    assert report["violations"] == report["refused"] == report["faults"] == []
    assert report["entries_lost"] == 0
    assert report["import_equals_export"] is True
    assert set(report["contexts"].values()) == {232}


def test_compressions_begin_over_the_budget_and_end_within_it(bundled):
    assert len(bundled["compressions"]) > 3
    for done in bundled["compressions"]:
        assert done["tokens_before"] > done["tokens_after"]
        assert done["tokens_after"] <= 8000
        assert "are over max_tokens (8000)" in done["reason"]
        assert sum(done["replaced"].values()) > 0


@pytest.mark.parametrize("budget", ["1k", pytest.param("2k", marks=LONG)])
def test_compression_line_has_methods_and_shrinking_tokens(command, tmp_path, budget):
    result = command("demo", "--budget", budget, "-o", tmp_path / "s.json")
    lines = [line for line in result.stderr.splitlines() if line.lstrip().startswith("#")]
    assert len(lines) > 3
    expected = [
        re.search(r"([\d,]+) +(?:→|->) +([\d,]+) tokens  (\d.*|.+ of \d.*)", line) for line in lines
    ]
    assert all(expected)
    sizes = [[int(found[part].replace(",", "")) for part in (1, 2)] for found in expected]
    assert all(before > after for before, after in sizes)


def test_entry_count_causes_no_compression(command, tmp_path):
    log = [{"role": "user", "content": f"number {number}"} for number in range(130)]
    (tmp_path / "log.json").write_text(json.dumps(log))
    options = ["--file", tmp_path / "log.json", "--budget", "50k", "--model", "unheard-of"]
    result = command("demo", *options, "-o", tmp_path / "s.json")
    assert "entries are over 100" not in result.stderr


@pytest.mark.parametrize(("own", "budget"), [(True, "5"), pytest.param(False, "100", marks=LONG)])
def test_refused_context_names_a_budget_that_works(command, log_file, tmp_path, own, budget):
    path = tmp_path / "s.json"
    arguments = ["demo", "-o", path, *(["--file", log_file] if own else [])]
    result = command(*arguments, "--budget", budget)
    assert result.exit_code == 1
    assert "✗ contexts built" in result.stdout
    assert "- over budget    not checked" in result.stdout
    last = result.stderr.splitlines()[-1]
    assert not set("()[]'") & set(last)
    needed = re.search(r"a budget of ([\d,]+) is enough", last)[1].replace(",", "")
    assert f" plan {path} --budget {needed}" in result.stdout
    assert command(*arguments, "--budget", needed).exit_code == 0


def test_rules_of_the_user_are_in_every_context(bundled):
    assert bundled["with_rules"] == sum(bundled["contexts"].values())


def test_own_log_has_no_line_for_rules(command, log_file, tmp_path):
    result = command("demo", "--file", log_file, "-o", tmp_path / "s.json")
    assert "user rules" not in result.stdout


def test_usage_adds_up_to_the_window(bundled):
    usage = bundled["usage"]
    assert sum(usage["parts"].values()) == usage["used"]
    assert usage["used"] + usage["free"] == usage["window"] == 8000


def test_compressions_go_to_stderr_and_the_report_to_stdout(demo_run):
    _, result = demo_run
    lines = [line for line in result.stderr.splitlines() if line.lstrip().startswith("#")]
    assert len(lines) > 3
    assert all("tokens" in line and "entry" in line for line in lines)
    for shown in ("Context window", "tool_result", "framing", "free", "entries lost", "Try next"):
        assert shown in result.stdout
    assert "\x1b" not in result.output


def test_suggested_commands_run_as_printed(command, long_log, tmp_path):
    path = tmp_path / "with a space.json"
    output = command("demo", "--file", long_log, "--budget", "2k", "-o", path).stdout
    suggested = [line.split() and shlex.split(line) for line in output.splitlines()]
    commands = [line for line in suggested if str(path) in line]
    verbs = [line[line.index(str(path)) - 1] for line in commands]
    assert verbs[-4:] == ["show", "stats", "plan", "export"]
    for line, verb in zip(commands[-4:], verbs[-4:], strict=True):
        assert command(*line[line.index(verb) :]).exit_code == 0, line


def test_suggestion_under_uv_begins_with_uv_run(command, log_file, tmp_path, monkeypatch):
    monkeypatch.setenv("UV_RUN_RECURSION_DEPTH", "1")
    shown = command("demo", "--file", log_file, "-o", tmp_path / "s.json").stdout
    assert "  uv run memman stats" in shown


def test_session_file_has_all_entries_and_settings(demo_file):
    state = SessionState.from_json(demo_file.read_bytes())
    assert state.settings == {"model": "gpt-4o", "max_tokens": 8000}
    assert state.totals.entries == len(state.entries) > state.totals.active_entries


@pytest.mark.parametrize(
    "budget", ["4k", *(pytest.param(each, marks=LONG) for each in ("16000", "64,000"))]
)
def test_other_budgets_hold(command, tmp_path, budget):
    result = command("demo", "--budget", budget, "--json", "-o", tmp_path / "s.json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["largest"] <= report["budget"]


def test_own_log_is_played(command, log_file, tmp_path):
    result = command("demo", "--file", log_file, "--json", "-o", tmp_path / "s.json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (report["messages"], report["entries"], report["compressions"]) == (5, 5, [])


def test_oversized_log_is_a_finding_and_is_saved(command, log_file, tmp_path):
    path = tmp_path / "s.json"
    result = command("demo", "--file", log_file, "--budget", "5", "--json", "-o", path)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["refused"]
    assert "could not be built" in result.stderr.splitlines()[-1]
    assert SessionState.from_json(path.read_bytes()).totals.entries == 5


def test_demo_overwrites_its_own_file(command, log_file, tmp_path):
    path = tmp_path / "s.json"
    for _ in range(2):
        assert command("demo", "--file", log_file, "-o", path).exit_code == 0


@pytest.mark.parametrize("content", ["notes", "{}", '{"format": "else"}', ""])
def test_foreign_file_is_not_overwritten(command, tmp_path, content):
    path = tmp_path / "mine.json"
    path.write_text(content)
    result = command("demo", "-o", path)
    assert result.exit_code == 2
    assert "not overwritten" in result.stderr
    assert path.read_text() == content


def test_demo_writes_one_file(command, log_file, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
    assert command("demo", "--file", log_file).exit_code == 0
    assert [path.name for path in Path().iterdir()] == ["memman-demo.json"]


def test_session_on_stdout_is_refused(command):
    result = command("demo", "-o", "-")
    assert (result.exit_code, result.stdout) == (2, "")
