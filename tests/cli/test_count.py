"""`memman count` says how many tokens, by whom, and how surely."""

from __future__ import annotations

import json


def test_a_text_is_estimated_without_a_model(command):
    result = command("count", "eight ch")
    assert result.stdout == "2 tokens (estimation, low accuracy, estimate:generic/1)\n"


def test_a_model_brings_its_counter(command):
    document = json.loads(command("count", "hello world", "--model", "gpt-4o", "--json").stdout)
    assert (document["memman"], document["version"]) == ("count", 1)
    assert (document["tokens"], document["method"]) == (2, "client")
    assert (document["accuracy"], document["characters"]) == ("high", 11)


def test_the_model_may_come_from_the_environment(command, monkeypatch):
    monkeypatch.setenv("MEMMAN_MODEL", "gpt-4o")
    assert "tiktoken" in command("count", "hello").stdout


def test_a_counter_can_be_named(command):
    assert command("count", "x", "--counter", "chars4").stdout.endswith("chars4)\n")


def test_stdin_is_counted_with_and_without_a_dash(command):
    for args in (["-"], []):
        assert command("count", *args, given="žžžž").stdout.startswith("5 tokens")


def test_an_unknown_counter_is_a_usage_error(command):
    result = command("count", "x", "--counter", "abacus")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "known are " in result.stderr
    assert "bytes4, chars4, estimate" in result.stderr


def test_bytes_that_are_no_text_are_unreadable(command):
    assert command("count", "-", given=b"\xff\xff").exit_code == 3


def test_the_name_of_a_file_is_counted_with_a_note(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my notes.txt").write_text("hello")
    result = command("count", "my notes.txt")
    assert result.stdout.startswith("3 tokens")
    assert "memman count < 'my notes.txt'" in result.stderr
    assert command("count", "other.txt").stderr == ""
    assert command("count", "x" * 9000).stdout.startswith("667 tokens")


def test_a_counter_that_needs_a_model_says_so(command):
    result = command("count", "hi", "--counter", "tiktoken")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "memman: --counter tiktoken needs a model: add --model gpt-4o\n"
    assert command("count", "hi", "--counter", "tiktoken", "--model", "gpt-4o").exit_code == 0


def test_one_token_is_told_as_one(command):
    assert command("count", "hi").stdout.startswith("1 token (")
