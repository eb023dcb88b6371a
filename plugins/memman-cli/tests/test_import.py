"""Tests of `memman import`."""

from __future__ import annotations

import json
import os

from memman import MemoryManager, SessionState


def test_session_has_every_message_of_the_log(command, log_file, tmp_path):
    path = tmp_path / "s.json"
    result = command("import", log_file, "-o", path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "openai-chat, 5 messages, 5 entries" in result.stderr
    state = SessionState.from_json(path.read_bytes())
    assert (state.session_id, state.totals.entries, state.summaries) == ("log", 5, ())


def test_import_without_a_budget_does_not_compress(command, tmp_path):
    log = [{"role": "user", "content": f"{number} " + "word " * 500} for number in range(300)]
    (tmp_path / "long.json").write_text(json.dumps(log))
    result = command("import", tmp_path / "long.json", "--json", "-o", tmp_path / "s.json")
    stats = json.loads(result.stdout)["stats"]
    assert stats["active_entries"] == stats["total_entries"] == 300


def test_import_with_a_budget_fits_it(command, tmp_path):
    log = [{"role": "user", "content": f"{number} " + "word " * 100} for number in range(100)]
    (tmp_path / "long.json").write_text(json.dumps(log))
    result = command(
        "import", tmp_path / "long.json", "--budget", "4k", "--json", "-o", tmp_path / "s.json"
    )
    stats = json.loads(result.stdout)["stats"]
    assert stats["total_entries"] == 100
    assert stats["active_tokens"] <= stats["max_tokens"] == 4000
    assert "compressed" in result.stderr


def test_pipes_work_as_input_and_output(command, log_file):
    result = command("import", "-", given=log_file.read_bytes())
    state = SessionState.from_json(result.stdout)
    assert (state.session_id, state.totals.entries) == ("stdin", 5)


def test_json_without_a_file_has_the_session(command, log_file):
    document = json.loads(command("import", log_file, "--json", "--session", "mine").stdout)
    assert (document["memman"], document["format"]) == ("import", "openai-chat")
    assert MemoryManager().import_session(document["session"]) == "mine"


def test_model_is_kept_and_its_counter_used(command, log_file, tmp_path):
    path = tmp_path / "s.json"
    result = command("import", log_file, "-o", path, "--model", "gpt-4o")
    assert "tiktoken" in result.stderr
    assert SessionState.from_json(path.read_bytes()).settings == {"model": "gpt-4o"}


def test_context_exported_for_anthropic_is_imported(command, session_file, tmp_path):
    body = command("export", session_file, "-t", "anthropic").stdout
    (tmp_path / "body.json").write_text(body)
    result = command("import", tmp_path / "body.json", "-o", tmp_path / "s2.json")
    assert "anthropic" in result.stderr
    state = SessionState.from_json((tmp_path / "s2.json").read_bytes())
    assert state.entries[0].text == "You fix builds."


def test_unknown_format_name_is_a_usage_error(command, log_file):
    result = command("import", log_file, "-f", "morse")
    assert result.exit_code == 2
    assert "known are openai-chat, anthropic, text" in result.stderr


def test_log_in_an_unknown_format_is_unreadable(command, tmp_path):
    (tmp_path / "x.json").write_text('[{"von": "human", "value": "x"}]')
    result = command("import", tmp_path / "x.json")
    assert result.exit_code == 3
    assert result.stderr.startswith("memman: ")
    assert len(result.stderr.splitlines()) == 1


def test_broken_message_is_named(command, tmp_path):
    log = [{"role": "user", "content": "a"}, {"role": "user", "content": 7}]
    (tmp_path / "x.json").write_text(json.dumps(log))
    result = command("import", tmp_path / "x.json")
    assert result.exit_code == 3
    assert "1" in result.stderr
    assert "content" in result.stderr


def test_unreachable_budget_is_a_finding(command, log_file, tmp_path):
    result = command("import", log_file, "--budget", "10", "-o", tmp_path / "s.json")
    assert result.exit_code == 1
    assert "over its budget of 10" in result.stderr
    assert (tmp_path / "s.json").exists()


def test_other_session_is_overwritten_only_with_force(command, log_file, tmp_path):
    options = ["import", log_file, "-o", tmp_path / "s.json", "--session"]
    assert command(*options, "one").exit_code == 0
    assert command(*options, "one").exit_code == 0
    refused = command(*options, "two")
    assert refused.exit_code == 2
    assert "holds session 'one'; choose another name, or --force" in refused.stderr
    assert command(*options, "two", "--force").exit_code == 0
    assert SessionState.from_json((tmp_path / "s.json").read_bytes()).session_id == "two"


def test_force_does_not_overwrite_a_foreign_file(command, log_file, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    assert command("import", log_file, "-o", tmp_path / "mine.txt", "--force").exit_code == 2
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_empty_session_id_is_a_usage_error(command, log_file):
    result = command("import", log_file, "--session", "")
    assert (result.exit_code, result.stdout) == (2, "")


def test_single_message_has_a_singular_noun(command, tmp_path):
    (tmp_path / "one.json").write_text('[{"role": "user", "content": "hi"}]')
    assert "1 message, 1 entry, 1 token " in command("import", tmp_path / "one.json").stderr


def test_invalid_session_id_is_a_usage_error(command, log_file):
    assert command("import", log_file, "--session", "a\nb").exit_code == 2


def test_log_name_that_is_not_text_is_replaced(command, tmp_path):
    log = tmp_path / os.fsdecode(b"caf\xe9.json")
    log.write_text(json.dumps([{"role": "user", "content": "hello"}]))
    out = tmp_path / "s.json"
    assert command("import", log, "-o", out).exit_code == 0
    assert json.loads(out.read_text())["session_id"] == "caf\ufffd"
