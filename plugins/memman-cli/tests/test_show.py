"""Tests of `memman show`."""

from __future__ import annotations

import json

import pytest

from memman import MemoryConfig, MemoryManager


def rows(result):
    return [line for line in result.stdout.splitlines() if line.lstrip().startswith("#")]


def test_every_entry_is_listed_with_its_state(command, demo_file):
    result = command("show", demo_file)
    assert (result.exit_code, len(rows(result))) == (0, 337)
    assert "in outline #" in result.stdout
    assert "pinned" in rows(result)[0]
    assert "337 of 337 entries" in result.stderr


def test_active_lists_the_window(command, demo_file):
    listed = rows(command("show", demo_file, "--active"))
    assert any("summary" in line for line in listed)
    assert not any("in outline" in line for line in listed)


def test_active_has_one_row_for_the_outline(command, demo_file):
    listed = rows(command("show", demo_file, "--active"))
    [place] = [at for at, line in enumerate(listed) if line.split()[1:3] == ["summary", "outline"]]
    assert "pinned" in listed[place - 1]
    [only] = rows(command("show", demo_file, "--active", "--type", "summary"))
    assert only.split()[:4] == listed[place].split()[:4]


def test_outline_is_printed_and_is_the_entry_at_its_address(command, demo_file):
    result = command("show", demo_file, "--outline")
    assert "Never tag and never push" in result.stdout
    assert "outline of #" in result.stderr
    block = json.loads(command("show", demo_file, "--outline", "--json").stdout)["state"]
    assert result.stdout == f"{block['text']}\n"
    entry = command("show", demo_file, "--entry", block["seq"])
    assert entry.stdout == result.stdout
    assert f"#{block['seq']} summary outline, " in entry.stderr


def test_missing_outline_is_a_finding(command, session_file):
    result = command("show", session_file, "--outline")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has no outline" in result.stderr


def test_table_has_one_unpadded_line_per_entry(command, demo_file):
    lines = command("show", demo_file).stdout.splitlines()
    assert len(lines) == 338
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("kind", ["message", "tool_call", "tool_result"])
def test_type_filters_entries(command, session_file, kind):
    document = json.loads(command("show", session_file, "--type", kind, "--json").stdout)
    assert {entry["type"] for entry in document["entries"]} == {kind}


def test_grep_filters_entries(command, session_file):
    assert len(rows(command("show", session_file, "--grep", r"E5\d1"))) == 1


def test_no_match_is_a_finding(command, session_file):
    result = command("show", session_file, "--grep", "zebra")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "memman: none of 5 entries matches\n"


def test_invalid_regex_is_a_usage_error(command, session_file):
    assert command("show", session_file, "--grep", "(").exit_code == 2


def test_entry_is_shown_by_its_address(command, session_file):
    listed = json.loads(command("show", session_file, "--json").stdout)["entries"]
    result = command("show", session_file, "--entry", f"#{listed[3]['seq']}")
    assert result.stdout == "E501 in app.py\nline two\n"
    assert "tool_result" in result.stderr


def test_entry_is_shown_by_its_id(command, session_file):
    listed = json.loads(command("show", session_file, "--json").stdout)["entries"]
    one = command("show", session_file, "--entry", listed[1]["id"], "--json")
    assert json.loads(one.stdout)["entry"]["content"] == "Why is the build red?"


def test_compressed_entry_and_summary_are_shown_in_full(command, demo_file):
    document = json.loads(command("show", demo_file, "--active", "--json").stdout)
    [summary] = [entry for entry in document["entries"] if entry["type"] == "summary"]
    shown = command("show", demo_file, "--entry", summary["id"])
    assert shown.stdout.strip() == summary["content"].strip()
    first = json.loads(command("show", demo_file, "--json").stdout)["entries"][1]
    assert first["compressed"] is True
    assert command("show", demo_file, "--entry", first["id"]).stdout.startswith("Morning.")


def test_address_needs_no_hash(command, session_file):
    with_hash, plain = (command("show", session_file, "--entry", at) for at in ("#2", "2"))
    assert plain.exit_code == 0
    assert plain.output == with_hash.output


@pytest.mark.parametrize("wanted", ["nobody", "#99999", "99999", "²"])
def test_missing_entry_is_a_finding(command, session_file, wanted):
    result = command("show", session_file, "--entry", wanted)
    assert (result.exit_code, result.stdout) == (1, "")


def test_table_escapes_control_characters(command, tmp_path):
    log = [{"role": "user", "content": "a\x1b[2Jb\x00c [bold]d[/bold]"}]
    (tmp_path / "log.json").write_text(json.dumps(log))
    command("import", tmp_path / "log.json", "-o", tmp_path / "s.json")
    shown = command("show", tmp_path / "s.json").stdout
    assert "\x1b" not in shown
    assert r"a\x1b[2Jb\x00c [bold]d[/bold]" in shown


@pytest.mark.parametrize("role", ["system", "user", "tool"])
def test_role_filters_entries(command, session_file, role):
    document = json.loads(command("show", session_file, "--role", role, "--json").stdout)
    assert {entry["role"] for entry in document["entries"]} == {role}


def test_replacement_has_its_own_address(command, tmp_path):
    memory = MemoryManager(config=MemoryConfig(auto_compress=False))
    for number in range(12):
        memory.add_tool_call("s", "read", "{}", call_id=f"c{number}")
        memory.add_tool_result("s", "read", f"file {number} " * 200, call_id=f"c{number}")
        memory.add_user_message("s", f"question {number}")
    memory.compress("s", target_tokens=3_000)
    path = tmp_path / "s.json"
    path.write_text(memory.export_session("s").to_json())
    first, second = [entry for entry in memory.get_active_entries("s") if entry.replacement][:2]
    listed = command("show", path, "--active").stdout
    assert first.address in listed
    assert second.address in listed
    for spelling in (second.address, second.address.removeprefix("#"), second.id):
        shown = command("show", path, "--entry", spelling)
        assert shown.stdout.rstrip("\n") == second.text
        assert f"{second.address} tool_result read" in shown.stderr
        assert command("diff", path, spelling).exit_code == 0
        assert command("undo", path, spelling, "-o", "-").exit_code == 0
    assert command("diff", path, f"{second.seq}.99").exit_code == 1
