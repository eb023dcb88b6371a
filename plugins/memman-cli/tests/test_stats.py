"""Tests of `memman stats`."""

from __future__ import annotations

import json
import re

from report_bills import BILLED, billed

from memman.spend import dollars


def test_shares_and_totals_are_shown(command, demo_file):
    result = command("stats", demo_file)
    assert result.exit_code == 0
    for shown in ("Context window", "of 8,000 tokens", "message", "framing", "free"):
        assert shown in result.stdout
    assert "337 added" in result.stdout
    assert re.search(r"o outline +[\d,]+ .* of what left the window", result.stdout)
    assert re.search(r"outline +#\d+, [\d,]+ tokens", result.stdout)


def test_json_has_the_statistics_and_the_usage(command, demo_file):
    document = json.loads(command("stats", demo_file, "--json").stdout)
    assert (document["memman"], document["version"]) == ("stats", 1)
    assert document["stats"]["max_tokens"] == document["usage"]["window"] == 8000
    assert document["stats"]["total_entries"] == 337


def test_window_over_its_budget_has_the_excess(command, tmp_path):
    log = [{"role": "user", "content": "word " * 80_000}]
    (tmp_path / "log.json").write_text(json.dumps(log))
    command("import", tmp_path / "log.json", "-o", tmp_path / "s.json")
    result = command("stats", tmp_path / "s.json", "--budget", "8k")
    assert result.exit_code == 0
    assert "over by" in result.stdout


def test_another_model_counts_again(command, session_file):
    plain = json.loads(command("stats", session_file, "--json").stdout)
    other = json.loads(command("stats", session_file, "--json", "--model", "gpt-4o").stdout)
    assert plain["stats"]["counter"] == "estimate:generic/1"
    assert "tiktoken" in other["stats"]["counter"]


def test_bar_has_one_length_for_any_parts(command, session_file, demo_file):
    bars = [command("stats", path).stdout.splitlines()[1] for path in (session_file, demo_file)]
    assert {len(bar) for bar in bars} == {68}


def test_window_line_adds_up_its_kinds(command, demo_file):
    shown = command("stats", demo_file).stdout
    found = re.search(r"^window +(\d+)(?: of \d+)? entries \((.*)\)$", shown, re.MULTILINE)
    assert sum(int(part.split()[0]) for part in found[2].split(", ")) == int(found[1])
    listed = json.loads(command("show", demo_file, "--active", "--json").stdout)["entries"]
    assert len(listed) == int(found[1])


def test_small_window_has_its_kinds(command, session_file):
    assert "window     5 entries (5 originals)" in command("stats", session_file).stdout


def test_empty_part_has_no_line(command, session_file):
    options = ("stats", session_file, "--budget", "8k")
    document = json.loads(command(*options, "--json").stdout)
    shown = command(*options).stdout
    for part, tokens in document["usage"]["parts"].items():
        assert (f" {part} " in shown) == (tokens > 0)
    assert " free " in shown


def test_uncounted_model_is_marked_estimated(command, session_file):
    shown = command("stats", session_file, "--model", "unheard-of").stdout
    assert "estimated: no plugin counts unheard-of" in shown


def test_use_above_fail_over_is_a_finding(command, demo_file):
    result = command("stats", demo_file, "--fail-over", "30")
    assert result.exit_code == 1
    assert "of the window is used, more than 30 %" in result.stderr
    assert command("stats", demo_file, "--fail-over", "100").exit_code == 0


def test_tools_and_largest_entries_are_listed_with_advice(command, demo_file):
    shares = json.loads(command("stats", demo_file, "--json").stdout)["shares"]
    assert len(shares["largest"]) == 10
    shown = command("stats", demo_file).stdout.splitlines()
    largest = shares["largest"][0]
    assert any(
        line.split()[0] == f"{largest['tokens']:,}" and largest["address"] in line
        for line in shown
        if line.strip()
    )
    for tool in shares["tools"]:
        assert any(line.split()[-1:] == [tool["name"]] for line in shown)
    assert shown[-1] == shares["advice"] != ""


def test_bill_has_requests_cache_and_money(command, tmp_path):
    memory = billed()
    (tmp_path / "s.json").write_text(memory.export_session(BILLED).to_json())
    shown = command("stats", tmp_path / "s.json").stdout
    stats = memory.get_stats(BILLED)
    assert f"requests   60, {stats.reported.input:,} tokens in, 12,000 out" in shown
    ratio = f"{100 * stats.reported.hit_ratio:.1f} % of the input read from it"
    assert f"cache      {ratio}, " in shown
    assert f"lost {stats.reported.breaks} times" in shown
    assert f"spend      {dollars(stats.spend.total)} (cached $" in shown
    saved = dollars(stats.spend.uncompressed - stats.spend.total)
    assert f"saved      {saved} less than the {dollars(stats.spend.uncompressed)}" in shown
    document = json.loads(command("stats", tmp_path / "s.json", "--json").stdout)["stats"]
    assert document["spend"]["cached"] == stats.spend.cached
    assert document["reported"]["cached"] == stats.reported.cached


def test_bill_without_prices_has_no_money(command, tmp_path):
    (tmp_path / "s.json").write_text(billed(prices=None).export_session(BILLED).to_json())
    shown = command("stats", tmp_path / "s.json").stdout
    assert "requests   60, " in shown
    assert "$" not in shown


def test_bill_without_compressions_saved_nothing(command, tmp_path):
    memory = billed(turns=3)
    assert memory.get_stats(BILLED).compressed_entries == 0
    (tmp_path / "s.json").write_text(memory.export_session(BILLED).to_json())
    shown = command("stats", tmp_path / "s.json").stdout
    assert "spend      $" in shown
    assert "uncompressed" not in shown
