"""Commands show the settings that a program ran with, and read logs directly."""

from __future__ import annotations

import json

import pytest

from memman import MemoryConfig, MemoryManager

BUDGET = 6_000
READERS = (["stats"], ["show"], ["plan"], ["why", "app.py"], ["compress", "-o", "-"])


def fill(memory, turns):
    for number in range(turns):
        memory.add_user_message("chat", f"question {number} about ORD-{number} " * 12)
        memory.add_assistant_message("chat", f"answer {number} " * 20)


@pytest.fixture
def database(tmp_path):
    """A database that a program with its own limits has written."""
    path = tmp_path / "chat.db"
    config = MemoryConfig(max_tokens=BUDGET)
    with MemoryManager(path, model="gpt-4o", config=config) as memory:
        fill(memory, 20)
        counter = memory.get_stats("chat").counter
    return path, counter


@pytest.mark.parametrize("name", ["stats", "plan", "why"])
def test_settings_of_the_program_are_shown(command, database, name):
    path, counter = database
    args = [name, path, *(["question 1"] if name == "why" else [])]
    settings = json.loads(command(*args, "--json").stdout)["settings"]
    assert settings == {
        "model": "gpt-4o",
        "max_tokens": BUDGET,
        "max_entries": None,
        "target_tokens": BUDGET // 2,
        "counter": counter,
        "source": "observed",
    }
    result = command(*args)
    assert "6,000 tokens (as the program ran)" in result.stdout + result.stderr
    assert "gpt-4o" in result.stdout + result.stderr


def test_settings_of_the_last_compression_are_shown(command, tmp_path):
    path = tmp_path / "chat.db"
    with MemoryManager(path, config=MemoryConfig(max_tokens=4_000)) as memory:
        fill(memory, 3)
    with MemoryManager(path, config=MemoryConfig(max_tokens=2_000)) as memory:
        fill(memory, 30)
        assert memory.explain("chat").compressions
    assert "2,000 tokens (as the program ran)" in command("stats", path).stdout


def test_fail_over_uses_the_limit_of_the_program(command, database):
    path, _ = database
    used = json.loads(command("stats", path, "--json").stdout)["usage"]
    share = 100 * used["used"] / BUDGET
    assert command("stats", path, "--fail-over", str(share - 1)).exit_code == 1
    assert command("stats", path, "--fail-over", str(share + 1)).exit_code == 0


def test_options_override_observed_settings(command, database):
    path, _ = database
    settings = json.loads(command("stats", path, "--budget", "9k", "--json").stdout)["settings"]
    assert (settings["max_tokens"], settings["source"]) == (9_000, "option")
    shown = command("stats", path, "--model", "gpt-4.1-mini", "--json").stdout
    settings = json.loads(shown)["settings"]
    assert (settings["model"], settings["source"]) == ("gpt-4.1-mini", "model")
    assert settings["max_tokens"] > 100_000


def test_session_settings_override_observed_ones(command, tmp_path):
    path = tmp_path / "chat.db"
    with MemoryManager(path, config=MemoryConfig(max_tokens=4_000)) as memory:
        fill(memory, 1)
        memory.update_config("chat", max_tokens=3_000)
    for options, limit in (((), 3_000), (("--budget", "5k"), 5_000)):
        settings = json.loads(command("stats", path, *options, "--json").stdout)["settings"]
        assert settings["max_tokens"] == limit


def test_report_shows_the_settings_of_the_program(command, database, tmp_path):
    path, _ = database
    page = tmp_path / "page.html"
    assert command("report", path, "-o", page).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert f'"trigger":{BUDGET}' in text
    assert '"model":"gpt-4o"' in text
    assert '"kind":"configured"' not in text  # `stats` changes no record
    command("report", path, "-o", page, "--force", "--budget", "9k", "--model", "gpt-4.1")
    text = page.read_text(encoding="utf-8")
    assert '"trigger":9000' in text
    assert '"model":"gpt-4.1"' in text


@pytest.mark.parametrize("args", READERS, ids=lambda args: args[0])
def test_log_is_read_without_import(command, log_file, args):
    for options in ((), ("--model", "gpt-4o")):
        result = command(args[0], log_file, *args[1:], *options)
        assert result.exit_code == 0, result.stderr
    assert json.loads(log_file.read_bytes())[0]["role"] == "system"  # as it was


def test_log_on_stdin_is_read(command, log_file):
    assert "5 added" in command("stats", "-", given=log_file.read_bytes()).stdout
    assert "5 added" in command("stats", "-", given=b"User: one\n\nUser: two").stdout.replace(
        "2 added", "5 added"
    )


def test_log_is_never_overwritten(command, log_file):
    before = log_file.read_bytes()
    result = command("compress", log_file, "--in-place", "--budget", "2k")
    assert result.exit_code == 2
    assert "is a log and stays as it is" in result.stderr
    assert log_file.read_bytes() == before


def test_unknown_limit_is_not_shown(command, session_file, tmp_path):
    result = command("stats", session_file)
    assert "no limit is known" in result.stdout
    assert "none known (--budget or --model give one)" in result.stdout
    document = json.loads(command("stats", session_file, "--json").stdout)
    assert (document["usage"]["window"], document["settings"]["max_tokens"]) == (None, None)
    planned = command("plan", session_file)
    command("report", session_file, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '"trigger":null' in page
    for text in (result.stdout, planned.stdout + planned.stderr):
        assert "50,000" not in text
        assert "25,000" not in text


def test_fail_over_without_a_limit_is_a_usage_error(command, session_file):
    result = command("stats", session_file, "--fail-over", "50")
    assert result.exit_code == 2
    assert "give --budget or --model" in result.stderr


def test_exact_model_name_comes_first(command):
    models = json.loads(command("models", "gpt-5", "--json").stdout)["models"]
    assert models[0]["model"] == "gpt-5"
    assert len(models) > 1


@pytest.mark.parametrize("args", [["plan", "--budget", "4k"], ["show"], ["stats"]])
def test_piped_table_keeps_to_columns(command, demo_file, monkeypatch, args):
    monkeypatch.setenv("COLUMNS", "70")
    lines = command(args[0], demo_file, *args[1:]).stdout.splitlines()
    assert max(map(len, lines)) <= 70


def test_piped_table_is_not_cut_without_columns(command, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    log = [{"role": "user", "content": "word " * 23 + "end."}]
    (tmp_path / "log.json").write_text(json.dumps(log))
    assert "end." in command("show", tmp_path / "log.json").stdout


def test_plan_has_the_reason_that_protects_an_exchange(command, tmp_path):
    memory = MemoryManager(config=MemoryConfig(auto_compress=False))
    memory.add_system_message("s", "Be brief.")
    memory.add_user_message("s", "Look into it.")
    memory.add_tool_call("s", "read", "{}", call_id="c1")
    path = tmp_path / "s.json"
    path.write_text(memory.export_session("s").to_json())
    plan = json.loads(command("plan", path, "--json").stdout)["plan"]
    why = {entry["type"]: entry["reason"] for entry in plan["entries"]}
    assert why["tool_call"] == "a call in its exchange has no result yet"
    assert plan["entries"][0]["reason"] == "pinned"
