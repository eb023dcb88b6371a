"""Tests of `memman plan`, which changes nothing."""

from __future__ import annotations

import json

import pytest

from memman import SessionState


def test_plan_has_every_entry_and_changes_nothing(command, demo_file):
    before = demo_file.read_bytes()
    result = command("plan", demo_file, "--budget", "4k", "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["memman"]) == (0, "plan")
    plan = document["plan"]
    assert len(plan["entries"]) == plan["entries_before"] - 1  # without the outline
    assert plan["tokens_after"] < plan["tokens_before"]
    assert demo_file.read_bytes() == before


def test_compress_follows_the_plan(command, demo_file, tmp_path):
    options = ["--budget", "4k", "--target", "1k", "--keep", "3"]
    planned = json.loads(command("plan", demo_file, *options, "--json").stdout)["plan"]
    done = json.loads(
        command("compress", demo_file, *options, "-o", tmp_path / "o.json", "--json").stdout
    )["result"]
    replaced = {one for item in done["replacements"] for one in item["ids"]}
    assert replaced == {
        entry["entry_id"] for entry in planned["entries"] if entry["action"] != "keep"
    }


def test_plan_is_a_table(command, demo_file):
    result = command("plan", demo_file, "--budget", "4k")
    assert "outline" in result.stdout
    assert "nothing was changed" in result.stderr


def test_plan_has_the_price_of_the_settings(command, demo_file):
    priced = "recent_window hardly changes the bill"
    assert priced not in command("plan", demo_file, "--budget", "4k").stderr
    assert priced in command("plan", demo_file, "--budget", "4k", "--keep", "3").stderr


@pytest.mark.parametrize("keep", [0, 1])
def test_keep_protects_the_newest_entries(command, demo_file, keep):
    result = command("plan", demo_file, "--budget", "8k", "--keep", keep, "--json")
    newest = json.loads(result.stdout)["plan"]["entries"][-keep:] if keep else []
    assert all(entry["action"] == "keep" for entry in newest)


def test_keep_becomes_a_setting_of_the_session(command, demo_file, tmp_path):
    command("compress", demo_file, "--keep", "3", "-o", tmp_path / "o.json")
    assert SessionState.from_json((tmp_path / "o.json").read_bytes()).settings["recent_window"] == 3
