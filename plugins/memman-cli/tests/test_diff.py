"""Tests of `memman diff`: originals, replacements and lost values."""

from __future__ import annotations

import json

import pytest

from memman import MemoryManager
from tests.explain.conversation import ORDER, PATH, manager, orders, talk


@pytest.fixture
def saved(tmp_path):
    """Save a session whose summary kept one of two values; `folds` adds compressions."""

    def save(*summaries, folds=0):
        memory = manager(*(summaries or (f"Order {ORDER} left.",)), state_ratio=0)
        orders(memory)
        for number in range(1 + folds):
            talk(memory, first=10 * number)
            memory.compress("s", target_tokens=700)
        path = tmp_path / "s.json"
        path.write_text(memory.export_session("s").to_json())
        return path

    return save


def comparison(command, *args):
    document = json.loads(command("diff", *args, "--json").stdout)
    return document["comparison"]


def test_originals_are_next_to_their_summary(command, saved):
    result = command("diff", saved())
    assert result.exit_code == 0
    [first] = [line for line in result.stdout.splitlines() if "#3 user" in line]
    original, replacement = first.split("│")
    assert original.strip() == "#3 user: Where is my parcel?"
    assert replacement.strip() == f"Order {ORDER} left."
    heads = [line.split("│") for line in result.stdout.splitlines() if "summary #27.1" in line]
    assert [[cell.strip() for cell in line] for line in heads] == [
        ["22 entries, 1,067 tokens", "summary #27.1, 5 tokens"]
    ]


def test_values_are_counted_and_lost_ones_are_named(command, saved):
    out = command("diff", saved()).stdout
    assert "exact values: 1 of 2 kept (50.0 %): 1 in the replacement, 1 lost" in out
    assert f"lost: {PATH} (#6)" in out


def test_each_value_is_listed_with_its_place(command, saved):
    lines = command("diff", saved(), "--values").stdout.splitlines()
    rows = {line.split()[-1]: line.split()[0:-1] for line in lines if line.lstrip().startswith("#")}
    assert rows == {ORDER: ["#5", "in", "the", "replacement"], PATH: ["#6", "lost"]}


def test_fail_under_is_a_finding(command, saved):
    path = saved()
    assert command("diff", path, "--fail-under", "0.5").exit_code == 0
    result = command("diff", path, "--fail-under", "0.51")
    assert result.exit_code == 1
    assert result.stderr == "memman: 50.0 % of the exact values were kept, under 51 %\n"
    assert command("diff", path, "--fail-under", "0.51", "--json").exit_code == 1


@pytest.mark.parametrize("ratio", ["2", "-0.1", "nan", "most", ""])
def test_invalid_share_is_a_usage_error(command, saved, ratio):
    result = command("diff", saved(), f"--fail-under={ratio}")
    assert result.exit_code == 2
    assert "not a share from 0 to 1" in result.stderr


def test_json_has_texts_values_and_numbers(command, saved):
    compared = comparison(command, saved())
    [item] = compared["replacements"]
    assert item["entry"]["content"] == f"Order {ORDER} left."
    assert item["originals"][0]["content"] == "Where is my parcel?"
    assert [(each["value"], each["kept"]) for each in item["values"]] == [
        (ORDER, "replacement"),
        (PATH, None),
    ]
    assert (compared["values"], compared["values_kept"], compared["survival"]) == (2, 1, 0.5)
    assert compared["tokens_before"] > compared["tokens_after"]


def test_compression_is_named_by_id_place_or_summary(command, saved):
    path = saved("one", "two", folds=1)
    newest = comparison(command, path)
    result = command("diff", path)
    [line] = [line for line in result.stderr.splitlines() if line.startswith("other compressions")]
    place = line.split("#")[1]
    older = comparison(command, path, place)
    assert older["seq"] == int(place) < newest["seq"]
    assert older["state"] == "folded"
    by_id = comparison(command, path, older["compression_id"])
    by_summary = comparison(command, path, older["replacements"][0]["entry"]["id"])
    assert older == by_id == by_summary == comparison(command, path, f"#{place}")


def test_unknown_compression_error_names_the_existing_ones(command, saved):
    path = saved("one", "two", folds=1)
    for wanted in ("nobody", "99999", "#1", "²"):
        result = command("diff", path, wanted)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"no compression {wanted!r}" in result.stderr
        assert "(folded)" in result.stderr
        assert "(in force)" in result.stderr


def test_uncompressed_session_is_a_finding(command, session_file):
    result = command("diff", session_file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "it was never compressed" in result.stderr


def test_undone_compression_is_shown_only_by_name(command, saved):
    path = saved()
    place = str(comparison(command, path)["seq"])
    command("undo", path, "--in-place")
    result = command("diff", path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"#{place} (undone)" in result.stderr
    assert comparison(command, path, place)["state"] == "undone"
    assert ", undone" in command("diff", path, place).stdout.splitlines()[0]


def test_control_characters_and_markup_are_escaped(command, saved):
    out = command("diff", saved("a\x1b[2Jb [bold]c[/bold]")).stdout
    assert "\x1b" not in out
    assert r"a\x1b[2Jb [bold]c[/bold]" in out


def test_deleted_original_has_no_text(command, saved):
    memory = MemoryManager()
    memory.import_session(saved().read_bytes())
    memory.delete_entries("s", ["result"])
    path = saved()
    path.write_text(memory.export_session("s").to_json())
    result = command("diff", path, "27")
    assert "#5 tool_result: (no text)" in result.stdout
    assert ", unfolded" in result.stdout.splitlines()[0]
    assert ORDER not in result.stdout


def test_lines_are_unpadded_and_fit_the_width(command, demo_file):
    lines = command("diff", demo_file).stdout.splitlines()
    table = lines[2 : lines.index("", 2)]
    assert all(line == line.rstrip() and len(line) <= 160 for line in table)
    assert any("outline #" in line for line in lines)


def test_stdin_is_read(command, saved):
    path = saved()
    assert command("diff", "-", given=path.read_bytes()).stdout == command("diff", path).stdout


def test_limit_omits_and_counts_originals(command, saved):
    path = saved()
    whole, few = command("diff", path).stdout, command("diff", path, "--limit", "3").stdout
    assert "and 19 more entries" in few
    assert len(few.splitlines()) < len(whole.splitlines())
    assert "#2 user" in few or "user: Where is my parcel?" in few
