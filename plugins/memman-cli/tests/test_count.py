"""Tests of `memman count`: the tokens, the counter and its accuracy."""

from __future__ import annotations

import json

import pytest

from memman import CounterSpec, hookimpl
from memman.plugins import shared_plugins


def test_text_without_a_model_is_estimated(command):
    result = command("count", "eight ch")
    assert result.stdout == "2 tokens (estimation, low accuracy, estimate:generic/1)\n"


def test_model_selects_its_counter(command):
    document = json.loads(command("count", "hello world", "--model", "gpt-4o", "--json").stdout)
    assert (document["memman"], document["version"]) == ("count", 1)
    assert (document["tokens"], document["method"]) == (2, "client")
    assert (document["accuracy"], document["characters"]) == ("high", 11)


def test_environment_names_the_model(command, monkeypatch):
    monkeypatch.setenv("MEMMAN_MODEL", "gpt-4o")
    assert "tiktoken" in command("count", "hello").stdout


@pytest.mark.parametrize("blank", ["", " "])
def test_blank_model_is_ignored(command, monkeypatch, blank):
    without = command("count", "hello world").stdout
    assert command("count", "hello world", "--model", blank).stdout == without
    monkeypatch.setenv("MEMMAN_MODEL", blank)
    assert command("count", "hello world").stdout == without


def test_counter_is_named(command):
    assert command("count", "x", "--counter", "chars4").stdout.endswith("chars4)\n")


def test_stdin_is_counted_with_and_without_a_dash(command):
    for args in (["-"], []):
        assert command("count", *args, given="žžžž").stdout.startswith("5 tokens")


def test_unknown_counter_is_a_usage_error(command):
    result = command("count", "x", "--counter", "abacus")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "known are " in result.stderr
    assert "bytes4, chars4, estimate" in result.stderr


def test_bytes_that_are_not_text_are_unreadable(command):
    assert command("count", "-", given=b"\xff\xff").exit_code == 3


def test_file_name_is_counted_with_a_note(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my notes.txt").write_text("hello")
    result = command("count", "my notes.txt")
    assert result.stdout.startswith("3 tokens")
    assert "memman count < 'my notes.txt'" in result.stderr
    assert command("count", "other.txt").stderr == ""
    assert command("count", "x" * 9000).stdout.startswith("667 tokens")


def test_counter_without_its_model_is_refused(command):
    result = command("count", "hi", "--counter", "tiktoken")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "memman: --counter tiktoken needs a model: add --model gpt-4o\n"
    assert command("count", "hi", "--counter", "tiktoken", "--model", "gpt-4o").exit_code == 0


def test_all_counters_lists_each_count(command):
    result = command("count", "hello world", "--all-counters", "--model", "gpt-4o", "--json")
    counts = json.loads(result.stdout)["counts"]
    by = {count["counter"]: count["tokens"] for count in counts}
    assert by["tiktoken:o200k_base"] == 2
    assert {"chars4", "bytes4", "estimate:o200k/1"} < by.keys()
    assert len(command("count", "hello world", "--all-counters").stdout.splitlines()) > 3


def test_counter_and_all_counters_contradict(command):
    result = command("count", "x", "--all-counters", "--counter", "chars4")
    assert (result.exit_code, result.stdout) == (2, "")


class Unreadable:
    """A counter without its vocabulary."""

    fingerprint = "unreadable:1"

    def count_texts(self, texts):
        raise OSError("no vocabulary")


class Plugin:
    @hookimpl
    def memman_token_counters(self):
        return [
            CounterSpec(name="unreadable", match=lambda _: 1000, factory=lambda _: Unreadable())
        ]


@pytest.fixture
def plugin():
    shared_plugins().register(Plugin(), "of-the-test")
    yield
    shared_plugins()._manager.unregister(name="of-the-test")


def test_failed_counter_is_an_error_only_with_strict(command, plugin):
    assert "estimate:" in command("count", "hello", "--model", "gpt-4o").stdout
    result = command("count", "hello", "--model", "gpt-4o", "--strict")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "counter unreadable failed" in result.stderr


def test_strict_all_counters_fails_with_one(command, plugin):
    assert command("count", "hello", "--model", "gpt-4o", "--all-counters").exit_code == 0
    result = command("count", "hello", "--model", "gpt-4o", "--all-counters", "--strict")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "counter unreadable failed" in result.stderr


def test_strict_ignores_counters_of_other_models(command):
    for model in ([], ["--model", "gpt-4o"], ["--model", "nobody-knows"]):
        assert command("count", "hello", *model, "--all-counters", "--strict").exit_code == 0


def test_requested_estimate_is_not_a_failure(command):
    assert command("count", "hello", "--counter", "estimate", "--strict").exit_code == 0
    assert command("count", "hello", "--strict").exit_code == 0


def test_strict_import_refuses_a_failed_count(command, plugin, log_file, tmp_path):
    out = tmp_path / "o.json"
    options = [log_file, "--model", "gpt-4o", "-o", out]
    result = command("import", *options, "--strict")
    assert (result.exit_code, out.exists()) == (4, False)
    assert "no vocabulary" in result.stderr
    assert command("import", *options).exit_code == 0
