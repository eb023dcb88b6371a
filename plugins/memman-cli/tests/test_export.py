"""Tests of `memman export`: contexts in a provider's format, checked against its rules."""

from __future__ import annotations

import json

import pytest
from command_fixtures import LOG

from memman.formats.rules import check


def test_unchanged_conversation_round_trips(command, session_file):
    result = command("export", session_file)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == LOG


@pytest.mark.parametrize("budget", [None, "2k"])
def test_anthropic_export_obeys_the_rules(command, demo_file, budget):
    options = ["--budget", budget] if budget else []
    result = command("export", demo_file, "-t", "anthropic", *options)
    body = json.loads(result.stdout)
    assert result.exit_code == 0
    assert body["system"].startswith("You are a coding agent")
    assert check(body["messages"], "anthropic", system=body["system"]) == []


@pytest.mark.parametrize("target", ["openai-responses", "gemini", "bedrock"])
def test_exported_context_is_imported_again(command, demo_file, tmp_path, target):
    exported = command("export", demo_file, "-t", target)
    assert exported.exit_code == 0
    path = tmp_path / "request.json"
    path.write_text(exported.stdout)
    again = command("import", str(path), "-o", str(tmp_path / "again.json"))
    assert again.exit_code == 0, again.stderr
    back = command("export", str(tmp_path / "again.json"), "-t", target)
    assert json.loads(back.stdout) == json.loads(exported.stdout)


def test_trimmed_entries_are_noted(command, demo_file):
    assert "shortened in this copy" in command("export", demo_file, "--budget", "2k").stderr


def test_text_export_is_a_transcript(command, session_file):
    result = command("export", session_file, "-t", "text")
    assert result.stdout.startswith("=== Recent Conversation ===\nSystem: You fix builds.")
    assert 'Tool call read_log({"build": 7})' in result.stdout


def test_json_has_the_tokens(command, session_file):
    document = json.loads(command("export", session_file, "--json", "--budget", "1k").stdout)
    assert (document["memman"], document["format"]) == ("export", "openai-chat")
    assert document["tokens"]["tokens"] <= document["budget"] == 1000
    assert (document["trimmed"], document["violations"]) == ([], [])


def test_broken_rule_is_a_finding(command, session_file, monkeypatch):
    # A context of memman breaks no rule, so the check is replaced by one that finds a fault.
    broken = [{"role": "assistant", "content": "hi"}, {"role": "user", "content": ""}]
    found = check(broken, "anthropic")
    monkeypatch.setattr("memman_cli.commands.export.check", lambda *_, **__: found)
    result = command("export", session_file, "-t", "anthropic")
    assert result.exit_code == 1
    assert all(fault.rule in result.stderr for fault in found)


def test_too_small_budget_is_a_finding(command, session_file):
    result = command("export", session_file, "--budget", "3")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the budget is 3" in result.stderr
    serves = result.stderr.split("--budget ")[1].strip()
    assert command("export", session_file, "--budget", serves).exit_code == 0


def test_unknown_target_is_a_usage_error(command, session_file):
    result = command("export", session_file, "-t", "morse")
    assert result.exit_code == 2
    assert "known are" in result.stderr
