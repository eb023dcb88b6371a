"""Tests of `memman why`: the state of a text, and the command that restores it."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.explain.conversation import ORDER, manager, orders, talk


@pytest.fixture
def saved(tmp_path):
    def save(*summaries, clear=False, state_ratio=0):
        memory = manager(*summaries, state_ratio=state_ratio)
        orders(memory)
        for number in range(len(summaries)):
            talk(memory, first=10 * number)
            memory.compress("s", target_tokens=700)
        if clear:
            memory.clear_session("s")
        path = tmp_path / "the session.json"
        path.write_text(memory.export_session("s").to_json())
        return path

    return save


def line_of(result, beginning):
    [line] = [line for line in result.stdout.splitlines() if line.strip().startswith(beginning)]
    return line.strip()


def test_forgotten_text_has_its_replacement(command, saved):
    result = command("why", saved("It left."), ORDER)
    assert result.exit_code == 0
    assert result.stdout.startswith(
        f'"{ORDER}" is in 1 entry\nin the window: nowhere, the model does not see it\n'
    )
    assert f"#5 tool_result get_order: order {ORDER} left the hub" in result.stdout
    assert "summary by compression #27, 2026-01-01 00:00: " in result.stdout
    assert "#27.1 replaces it in the window" in result.stdout


def test_value_in_the_outline_has_its_compression(command, saved):
    path = saved("It left.", "It left long ago.", state_ratio=0.1)
    assert "in the window: kept in the outline since #27\n" in command("why", path, ORDER).stdout
    assert f"the outline keeps {ORDER}\n" in command("why", path, "#5").stdout


def test_sent_line_counts_requests(command, saved):
    result = command("why", saved("It left."), ORDER)
    assert line_of(result, "sent") == (
        "sent to the model in 11 of 11 requests, the last 2026-01-01 00:00"
    )
    result = command("why", saved("It left.", "It left long ago."), ORDER)
    assert line_of(result, "sent") == (
        "sent to the model in 11 of 21 requests, the last 2026-01-01 00:00; since it left, in 0 of 10"
    )


def test_unanswered_text_was_not_sent(command, tmp_path):
    memory = manager()
    memory.add_user_message("s", "Where is it?")
    path = tmp_path / "s.json"
    path.write_text(memory.export_session("s").to_json())
    assert "not sent yet: the model has not answered since" in command("why", path, "where").stdout


def test_suggested_undo_restores_the_entry(command, saved):
    path = saved("one", "two", "three")
    line = line_of(command("why", path, ORDER), "restore:")
    args = shlex.split(line.removeprefix("restore: memman "))
    assert args == ["undo", str(path), "27", "--outer", "--in-place"]
    assert command(*args).exit_code == 0
    after = command("why", path, ORDER)
    assert "in the window: #5 tool_result has it" in after.stdout
    assert "active: the model sees it" in after.stdout


def test_suggested_show_prints_the_entry(command, saved):
    line = line_of(command("why", saved("It left."), ORDER), "read:")
    args = shlex.split(line.removeprefix("read:    memman "))
    assert command(*args).stdout.startswith(f"order {ORDER} left the hub")


def test_surviving_text_has_its_place(command, saved):
    result = command("why", saved(f"Order {ORDER} left."), ORDER)
    assert "in the window: #27.1 summary has it" in result.stdout


def test_unknown_text_is_a_finding(command, saved):
    result = command("why", saved("It left."), "zebra")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "memman: 'zebra' was never in this session: none of 25 entries has it\n"


def test_text_of_a_summary_only_is_found(command, saved):
    result = command("why", saved("It is in Lisbon."), "lisbon")
    assert result.exit_code == 0
    assert '"lisbon" is in no added entry' in result.stdout
    assert "#27.1 summary has it" in result.stdout


def test_cleared_entry_is_shown_by_id_and_not_restored(command, saved):
    path = saved("It left.", clear=True)
    result = command("why", path, ORDER)
    assert "cleared: a clear" in result.stdout
    assert "restore:" not in result.stdout
    args = shlex.split(line_of(result, "read:").removeprefix("read:    memman "))
    assert command(*args).stdout.startswith(f"order {ORDER}")


def test_long_answer_is_cut_and_json_is_complete(command, demo_file):
    result = command("why", demo_file, "the")
    assert len(result.stdout.splitlines()) < 60
    assert "--json has all" in result.stderr
    found = json.loads(command("why", demo_file, "the", "--json").stdout)["trace"]["found"]
    assert len(found) > 100


def test_json_has_the_state_and_the_undo(command, saved):
    document = json.loads(command("why", saved("one", "two"), ORDER, "--json").stdout)
    assert (document["memman"], document["session_id"]) == ("why", "s")
    [found] = document["trace"]["found"]
    assert (found["status"]["state"], found["method"]) == ("summarised", "summary")
    assert found["undo"] == found["replaced_by"][::-1]
    assert document["trace"]["survives"] == []


def test_json_of_an_unknown_text_is_a_finding(command, saved):
    result = command("why", saved("It left."), "zebra", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["trace"]["found"] == []


@pytest.mark.parametrize("text", ["", "  "])
def test_blank_text_is_a_usage_error(command, saved, text):
    assert command("why", saved("It left."), text).exit_code == 2


def test_commands_for_stdin_have_a_placeholder(command, saved):
    result = command("why", "-", ORDER, given=saved("It left.").read_bytes())
    assert line_of(result, "restore:") == "restore: memman undo S 27 -o FILE"


def test_address_names_an_entry(command, saved):
    by_text = json.loads(command("why", saved("It left."), ORDER, "--json").stdout)
    [entry] = [found["entry"] for found in by_text["trace"]["found"]]
    result = command("why", saved("It left."), f"#{entry['seq']}", "--json")
    [found] = json.loads(result.stdout)["trace"]["found"]
    assert found["entry"]["id"] == entry["id"]


def test_address_of_a_replacement_names_its_originals(command, saved):
    path = saved("It left.", "It left long ago.")
    by_text = json.loads(command("why", path, ORDER, "--json").stdout)["trace"]["found"]
    [address] = {found["status"]["shown_address"] for found in by_text}
    found = json.loads(command("why", path, address, "--json").stdout)["trace"]
    assert {each["entry"]["id"] for each in by_text} < {
        each["entry"]["id"] for each in found["found"]
    }
    assert [each["address"] for each in found["survives"]] == [address]


def test_address_of_nothing_is_a_text(command, saved):
    result = command("why", saved("It left."), "#4711")
    assert result.exit_code == 1
    assert "was never in this session" in result.stderr


def test_retracted_text_has_the_reason(command, tmp_path):
    memory = manager()
    orders(memory)
    memory.retract("s", ["result"], reason="wrong order")
    path = tmp_path / "s.json"
    path.write_text(memory.export_session("s").to_json())
    result = command("why", path, ORDER)
    assert "retracted: wrong order, by record #7, 2026-01-01 00:00" in result.stdout
    line = line_of(result, "restore:")
    assert command(*shlex.split(line.removeprefix("restore: memman "))).exit_code == 0
    assert "active: the model sees it" in command("why", path, ORDER).stdout
