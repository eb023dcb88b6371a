"""Tests of `memman counters` and `memman models`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memman import CounterSpec, CounterUnavailable, ModelInfo, hookimpl
from memman.plugins import shared_plugins


class Plugin:
    """A counter that cannot work here, a broken one, and a model's limits."""

    @hookimpl
    def memman_token_counters(self) -> list[CounterSpec]:
        def no_key(model: Any) -> Any:
            raise CounterUnavailable("no key is set")

        def broken(model: Any) -> int:
            raise ZeroDivisionError("broken")

        return [
            CounterSpec(
                name="faraway",
                match=lambda model: 50 if model.family.startswith("claude") else 0,
                factory=no_key,
                remote=True,
                format="anthropic",
            ),
            CounterSpec(name="broken", match=broken, factory=lambda model: None),
        ]

    @hookimpl
    def memman_model_info(self, model: Any) -> ModelInfo | None:
        return ModelInfo(9_000, 8_000, 1_000, "acme") if model.name == "acme-1" else None


@pytest.fixture
def plugin():
    shared_plugins().register(Plugin(), "of-the-test")
    yield
    shared_plugins()._manager.unregister(name="of-the-test")


def test_every_counter_has_a_line(command):
    shown = command("counters")
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert any(line.startswith("tiktoken") and "gpt-4o" in line for line in lines)
    assert any("every model" in line for line in lines)


def test_broken_counter_has_a_reason(command, plugin):
    shown = command("counters")
    assert shown.exit_code == 0
    assert "cannot work here: no key is set" in shown.stdout
    assert "whole requests, by network" in shown.stdout
    assert "its match() failed: ZeroDivisionError: broken" in shown.stdout
    listed = {
        row["name"]: row for row in json.loads(command("counters", "--json").stdout)["counters"]
    }
    assert listed["faraway"]["missing"] == "no key is set"
    assert listed["faraway"]["remote"] is True
    assert "claude-4" in listed["faraway"]["families"]
    assert listed["tiktoken"]["missing"] == ""


def test_counter_is_tried_on_its_own_service(command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    listed = json.loads(command("counters", "--json").stdout)["counters"]
    [openai] = [row for row in listed if row["name"] == "openai"]
    assert "set OPENAI_API_KEY" in openai["missing"]  # not Azure's key


def test_strict_makes_a_broken_counter_a_finding(command, plugin):
    assert command("counters", "--strict").exit_code != 0
    from memman_cli.app import memman
    from memman_cli.errors import FindingError, exit_code

    with pytest.raises(FindingError, match="faraway, broken") as caught:
        memman.main(["counters", "--strict"], standalone_mode=False)
    assert exit_code(caught.value) == 1


def test_explain_shows_a_model(command):
    shown = command("counters", "explain", "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0")
    assert shown.exit_code == 0
    for fact in ("claude-sonnet-4-5-20250929", "bedrock", "us", "claude-4", "context 200,000"):
        assert fact in shown.stdout
    document = json.loads(command("counters", "explain", "azure/gpt-4o", "--json").stdout)
    assert document["memman"] == "counters explain"
    assert document["model"]["name"] == "gpt-4o"
    assert document["model"]["provider"] == "azure"
    assert document["limits"]["context"] == 128_000
    [chosen] = [row for row in document["candidates"] if row["chosen"]]
    assert chosen["name"] == "tiktoken"
    assert all(row["reason"] for row in document["candidates"] if not row["chosen"])
    matches = [row["match"] for row in document["candidates"] if not row["remote"]]
    assert matches == sorted(matches, reverse=True)


def test_unknown_model_is_estimated_without_limits(command):
    document = json.loads(command("counters", "explain", "acme-9", "--json").stdout)
    assert document["limits"] is None
    assert document["model"]["family"] == ""
    [chosen] = [row for row in document["candidates"] if row["chosen"]]
    assert chosen["accuracy"] == "low"
    assert "unknown" in command("counters", "explain", "acme-9").stdout


def test_remote_counter_is_explained_but_not_called(command, plugin):
    document = json.loads(command("counters", "explain", "claude-sonnet-4-5", "--json").stdout)
    [remote] = [row for row in document["candidates"] if row["name"] == "faraway"]
    assert (remote["remote"], remote["chosen"], remote["reason"]) == (True, False, "no key is set")


@pytest.mark.parametrize(
    ("fails", "message"),
    [(CounterUnavailable("set ACME_KEY"), "set ACME_KEY"), (KeyError("x"), "KeyError: 'x'")],
)
def test_remote_counter_reports_its_missing_part(command, fails, message):
    class Acme:
        fingerprint = "acme"

        def count_request(self, rendered: Any, *, timeout: float) -> int:
            raise AssertionError("no provider may be called")

        def ready(self) -> None:
            raise fails

    class Listing:
        @hookimpl
        def memman_token_counters(self) -> list[CounterSpec]:
            match = {"acme-1": 1}.get
            spec = CounterSpec(
                name="acme",
                match=lambda model: match(model.name, 0),
                factory=lambda model: Acme(),
                remote=True,
                format="anthropic",
            )
            return [spec]

    shared_plugins().register(Listing(), "acme")
    try:
        explained = json.loads(command("counters", "explain", "acme-1", "--json").stdout)
        listed = json.loads(command("counters", "--json").stdout)
    finally:
        shared_plugins()._manager.unregister(name="acme")
    [row] = [row for row in explained["candidates"] if row["name"] == "acme"]
    assert row["reason"] == message
    [row] = [row for row in listed["counters"] if row["name"] == "acme"]
    assert row["missing"] == message


def test_option_before_explain_is_refused(command):
    assert command("counters", "--json", "explain", "gpt-4o").exit_code == 2
    assert command("counters", "explain").exit_code == 2
    assert command("counters", "explain", " ").exit_code == 2


def test_model_is_found_by_a_part_of_its_name(command):
    document = json.loads(command("models", "GPT-4.1", "--json").stdout)
    names = [row["model"] for row in document["models"]]
    assert "openai/gpt-4.1" in names
    assert all("gpt-4.1" in name for name in names)
    assert document["models"][0]["source"]
    shown = command("models", "gpt-4.1")
    assert "1,047,576" in shown.stdout
    assert shown.stderr == f"{len(names)} models\n"


def test_model_is_found_by_any_spelling_and_in_plugins(command, plugin):
    for spelling in (
        "ft:gpt-4.1:org::x",
        "arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-pro-v1:0",
    ):
        [row] = json.loads(command("models", spelling, "--json").stdout)["models"]
        assert row["model"] == spelling
        assert row["context"] > 100_000
    [row] = json.loads(command("models", "acme-1", "--json").stdout)["models"]
    assert (row["context"], row["max_input"], row["source"]) == (9_000, 8_000, "acme")


def test_models_lists_all_without_a_query(command):
    assert len(json.loads(command("models", "--json").stdout)["models"]) > 1_000


def test_unknown_model_is_a_finding(command):
    from memman_cli.app import memman
    from memman_cli.errors import FindingError

    with pytest.raises(FindingError, match="acme-9"):
        memman.main(["models", "acme-9"], standalone_mode=False)
    assert json.loads(command("models", "acme-9", "--json").stdout)["models"] == []


def test_misspelt_model_gets_a_suggestion(command) -> None:
    shown = command("models", "gtp-5")
    assert shown.exit_code == 1
    assert "no limits are known for 'gtp-5', did you mean 'gpt-5'?" in shown.stderr


def test_check_shows_window_and_counter_of_each_name(command, tmp_path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("gpt-4o grok-5\nollama/qwen3:8b\n")
    shown = command("models", "--check", str(names))
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["model", "window", "counter", "source"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["gpt-4o", "128,000"], ["grok-5", "256,000"], ["ollama/qwen3:8b", "4,096"],
    ]  # fmt: skip
    document = json.loads(command("models", "--check", str(names), "--json").stdout)
    first, second, _ = document["checked"]
    assert first["counter"] == "tiktoken:o200k_base"
    assert second["limits"]["source"].startswith("assumed: the smallest of the family grok")


def test_check_of_a_table_shows_its_models(command, tmp_path) -> None:
    table = tmp_path / "models.json"
    table.write_text('{"acme-1": {"context": 9000}, "openai/acme-2": {"context": 8000}}')
    document = json.loads(command("models", "--check", str(table), "--json").stdout)
    assert [(row["model"], row["limits"]["context"]) for row in document["checked"]] == [
        ("acme-1", 9_000), ("openai/acme-2", 8_000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b"gpt-4o acme-9 acme-8", 1, "no limits are known for acme-9, acme-8"),
        (b'{"m": {"contxt": 1}}', 3, "cannot be read as a table of models: "),
        (b"\xff", 3, "is not UTF-8 text (byte 0)"),
        (None, 3, "cannot read"),
    ],
)
def test_check_reports_faults_in_one_line(command, tmp_path, content, code, message) -> None:
    file = tmp_path / "names.txt"
    if content is not None:
        file.write_bytes(content)
    shown = command("models", "--check", str(file))
    assert shown.exit_code == code
    [line] = shown.stderr.splitlines()
    assert message in line


def test_check_with_a_query_is_refused(command) -> None:
    assert command("models", "gpt-4o", "--check", "names.txt").exit_code == 2
