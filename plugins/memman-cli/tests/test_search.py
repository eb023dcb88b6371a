"""`memman search` finds entries in databases, session files, archives and logs."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from command_fixtures import Command
from terminals import on_a_terminal

from memman import MemoryConfig, MemoryManager

BEGUN = datetime(2026, 1, 1, 9, 0, tzinfo=UTC)
SESSIONS = ("customer-7/a", "customer-7/b", "customer-8/a")


def filled(memory: MemoryManager, session_id: str) -> None:
    """Add a conversation whose old part is compressed, and which has a retracted entry."""
    memory.add_user_message(session_id, f"Set the retry limit of the gateway for {session_id}.")
    for number in range(8):
        memory.add_tool_call(
            session_id, "read_file", {"path": f"/srv/{number}.toml"}, call_id=f"c{number}"
        )
        found = f"file {number} of the gateway: " + "lorem ipsum " * 60
        memory.add_tool_result(session_id, "read_file", found, call_id=f"c{number}")
    memory.add_assistant_message(session_id, "It retries \x1b[31mfive\x1b[0m times.")
    memory.add_assistant_message(session_id, "A zebra was here.", id="wrong")
    memory.retract(session_id, ["wrong"], reason="wrong")
    memory.compress(session_id, target_tokens=400)
    memory.add_user_message(session_id, "And then?")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with three sessions; each entry is an hour after the one before."""
    path = tmp_path_factory.mktemp("search") / "chat.db"
    moments = (BEGUN + number * timedelta(hours=1) for number in range(10_000))
    config = MemoryConfig(auto_compress=False, recent_window=2)
    with MemoryManager(
        path, clock=lambda: next(moments), counter="chars4", config=config
    ) as memory:
        for session_id in SESSIONS:
            filled(memory, session_id)
    return path


def hits(command: Command, *args: object) -> list[dict[str, Any]]:
    """Return the hits of a search."""
    answer = json.loads(command("search", *args, "--json").stdout)
    assert answer["memman"] == "search"
    found: list[dict[str, Any]] = answer["hits"]
    return found


def test_hit_is_shown_with_its_place_and_state(database: Path, command: Command) -> None:
    result = command(
        "search", database, "retry", "limit", "--session", "customer-7/a", "--limit", "1"
    )
    assert result.exit_code == 0
    first, snippet = result.stdout.splitlines()
    assert first == "#2  user  2026-01-01 09:00  13 tokens  active"
    assert snippet == "  Set the retry limit of the gateway for customer-7/a."
    counted, hint = result.stderr.splitlines()
    assert counted == "1 hit in 1 session, 13 tokens"
    assert hint == f"read: memman show {database} --session customer-7/a --entry 2"
    shown = command(*hint.removeprefix("read: memman ").split())
    assert shown.stdout == "Set the retry limit of the gateway for customer-7/a.\n"


def test_compressed_entry_names_its_replacement(database: Path, command: Command) -> None:
    result = command("search", database, "lorem", "--session", "customer-7/a")
    heads = [line for line in result.stdout.splitlines() if line.startswith("#")]
    assert heads
    with MemoryManager(database) as memory:
        window = {entry.address for entry in memory.get_active_entries("customer-7/a")}
    for head in heads:
        state, _, by = head.rpartition("tokens  ")[2].partition(" by ")
        assert state in ("stubbed", "clipped", "summarised", "active")
        assert not by or by in window
    assert any(" by #" in head for head in heads)


def test_search_covers_all_sessions_of_a_database(database: Path, command: Command) -> None:
    found = hits(command, database, "retry limit")
    assert {hit["session_id"] for hit in found} == set(SESSIONS)
    result = command("search", database, "retry limit")
    assert f"#2  {SESSIONS[0]}  user  " in result.stdout
    assert "in 3 sessions" in result.stderr
    assert f"--session {SESSIONS[0]} --entry 2" in result.stderr


def test_session_option_takes_an_id_or_a_prefix(database: Path, command: Command) -> None:
    one = hits(command, database, "gateway", "--session", "customer-8/a")
    assert {hit["session_id"] for hit in one} == {"customer-8/a"}
    several = hits(command, database, "gateway", "--session", "customer-7/*", "--limit", "50")
    assert {hit["session_id"] for hit in several} == set(SESSIONS[:2])
    for wrong, code, message in (
        ("nowhere", 2, "has no session 'nowhere'; there are 3: customer-7/a"),
        ("nowhere*", 1, "no session id here begins with 'nowhere'"),
    ):
        result = command("search", database, "gateway", "--session", wrong)
        assert (result.exit_code, result.stdout) == (code, "")
        assert message in result.stderr


@pytest.mark.parametrize(
    ("filters", "kinds"),
    [
        (["--type", "message"], {"message"}),
        (["--type", "message", "--type", "tool_call"], {"message", "tool_call"}),
        (["--tool", "read_file"], {"tool_call", "tool_result"}),
        (["--tool", "read_file", "--type", "tool_result"], {"tool_result"}),
        (["--state", "active", "--type", "message"], {"message"}),
    ],
)
def test_types_tools_and_states_select_hits(
    database: Path, command: Command, filters: list[str], kinds: set[str]
) -> None:
    found = hits(command, database, "gateway retry read_file srv", "--limit", "80", *filters)
    assert {hit["entry"]["type"] for hit in found} == kinds
    if "--state" in filters:
        assert {hit["state"] for hit in found} == {"active"}


def test_times_select_hits(database: Path, command: Command) -> None:
    every = hits(command, database, "read_file", "--limit", "100")
    times = sorted(hit["entry"]["timestamp"] for hit in every)
    middle = times[len(times) // 2]
    early = hits(command, database, "read_file", "--limit", "100", "--until", middle)
    late = hits(command, database, "read_file", "--limit", "100", "--since", middle)
    assert sorted(hit["entry"]["timestamp"] for hit in early + late) == times
    assert min(hit["entry"]["timestamp"] for hit in late) == middle
    assert hits(command, database, "read_file", "--since", "2026-01-01", "--limit", "100") == every
    assert command("search", database, "read_file", "--until", "2026-01-01").exit_code == 1


@pytest.mark.parametrize(("ago", "code"), [("30m", 1), ("5h", 0), ("1d", 0), ("2w", 0)])
def test_time_ago_is_counted_from_now(
    tmp_path: Path, command: Command, ago: str, code: int
) -> None:
    then = datetime.now(UTC) - timedelta(hours=4)
    with MemoryManager(tmp_path / "a.db", clock=lambda: then) as memory:
        memory.add_user_message("s", "Hello")
    assert command("search", tmp_path / "a.db", "hello", "--since", ago).exit_code == code


@pytest.mark.parametrize("when", ["yesterday", "7", "9x", "2026-13-01", "999999w", "-1d", ""])
def test_unreadable_time_is_a_usage_error(database: Path, command: Command, when: str) -> None:
    result = command("search", database, "gateway", "--since", when)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not a time; write it as 2026-01-31" in result.output


def test_limit_and_budget_bound_the_hits(database: Path, command: Command) -> None:
    assert len(hits(command, database, "gateway", "--limit", "3")) == 3
    found = hits(command, database, "retry limit", "--budget", "60")
    assert 0 < sum(hit["entry"]["token_count"]["tokens"] for hit in found) <= 60
    assert any(hit["neighbour"] for hit in found)
    shown = command("search", database, "retry limit", "--budget", "60").stdout
    follows = [line for line in shown.splitlines() if line.endswith("  follows")]
    assert len(follows) == sum(hit["neighbour"] for hit in found)


def test_all_adds_retracted_and_cleared_entries(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "a.db"
    with MemoryManager(path, config=MemoryConfig(auto_compress=False)) as memory:
        filled(memory, "s")
        memory.clear_session("s")
        memory.add_user_message("s", "Is there a zebra?")
        memory.add_user_message("s", "No zebra.", id="wrong")
        memory.retract("s", ["wrong"], reason="wrong")
    assert [hit["state"] for hit in hits(command, path, "zebra")] == ["active"]
    states = {hit["state"] for hit in hits(command, path, "zebra", "--all")}
    assert states == {"active", "retracted", "cleared"}
    [cleared] = hits(command, path, "zebra", "--state", "cleared")
    shown = command("show", path, "--entry", cleared["entry"]["seq"])
    assert (shown.exit_code, shown.stdout) == (0, "A zebra was here.\n")
    both = command("search", path, "zebra", "--all", "--state", "cleared")
    assert (both.exit_code, "contradict each other" in both.stderr) == (2, True)


def test_nothing_found_is_a_finding(database: Path, command: Command) -> None:
    result = command("search", database, "zebra")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "memman: no entry found for 'zebra'; --all searches cleared and retracted ones, too\n"
    )
    answered = command("search", database, "quagga", "--all", "--json")
    assert (answered.exit_code, json.loads(answered.stdout)["hits"]) == (1, [])
    assert answered.stderr == "memman: no entry found for 'quagga'\n"


@pytest.mark.parametrize("query", ['"', "NEAR(a b)", "a AND", "*", "'; DROP TABLE record; --", "("])
def test_nothing_in_a_query_is_an_operator(database: Path, command: Command, query: str) -> None:
    result = command("search", database, "--", query)
    assert result.exit_code in (0, 1), result.stderr
    assert not result.stderr.startswith("memman: the")
    assert command("search", database, "retry").exit_code == 0


@pytest.mark.parametrize("words", [[""], ["  ", "\t"], []])
def test_empty_query_is_a_usage_error(database: Path, command: Command, words: list[str]) -> None:
    result = command("search", database, *words)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize("kind", ["document", "archive", "log", "stdin", "url"])
def test_every_kind_of_source_is_searched(
    tmp_path: Path, database: Path, log_file: Path, command: Command, kind: str
) -> None:
    source: object = tmp_path / "s.json"
    given = None
    with MemoryManager(database) as memory:
        Path(str(source)).write_text(memory.export_session("customer-7/a").to_json())
        if kind == "archive":
            source = tmp_path / "s.jsonl"
            memory.export_archive("customer-7/a", source)
    if kind == "stdin":
        given, source = Path(str(source)).read_bytes(), "-"
    if kind == "url":
        source = f"sqlite:///{database}"
    words = "retry limit"
    if kind == "log":
        source, words = log_file, "E501 app.py"
    result = command("search", source, words, "--limit", "1", given=given)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("#")
    hint = result.stderr.splitlines()[-1]
    assert hint.startswith(f"read: memman show {'S' if kind == 'stdin' else source} --")
    if kind != "stdin":
        assert command(*hint.removeprefix("read: memman ").split()).exit_code == 0


def test_session_option_for_a_file_is_refused(session_file: Path, command: Command) -> None:
    result = command("search", session_file, "build", "--session", "x")
    assert result.exit_code == 2
    assert "selects a session of a database" in result.stderr


def test_log_is_searched_without_a_change(log_file: Path, command: Command) -> None:
    before = log_file.read_bytes()
    files = set(log_file.parent.iterdir())
    assert command("search", log_file, "E501").exit_code == 0
    assert log_file.read_bytes() == before
    assert set(log_file.parent.iterdir()) == files


def test_search_adds_no_record_to_a_database(database: Path, command: Command) -> None:
    def records() -> list[Any]:
        connection = sqlite3.connect(database)
        try:
            return connection.execute("SELECT * FROM record").fetchall()
        finally:
            connection.close()

    before = records()
    assert command("search", database, "gateway").exit_code == 0
    assert records() == before


def test_matches_are_emphasised_on_a_terminal(database: Path) -> None:
    line = f"search {database} 'retry five' --session customer-7/a"
    [shown] = on_a_terminal(line, COLUMNS="100")
    assert "\x1b[1;33mretries\x1b[0m" in shown
    assert "\\x1b[31m\x1b[1;33mfive\x1b[0m\\x1b[0m" in shown
    assert "\x1b[31m" not in shown
    [plain] = on_a_terminal(line, COLUMNS="100", NO_COLOR="1")
    assert "retries \\x1b[31mfive\\x1b[0m times." in plain


def test_piped_output_has_two_lines_for_each_hit(database: Path, command: Command) -> None:
    found = hits(command, database, "gateway retry")
    lines = command("search", database, "gateway retry").stdout.splitlines()
    blocks = "\n".join(lines).split("\n\n")
    assert len(blocks) == len(found)
    for block, hit in zip(blocks, found, strict=True):
        head, snippet = block.splitlines()
        assert head.startswith(f"#{hit['entry']['seq']}  {hit['session_id']}  ")
        assert snippet.strip() == hit["snippet"].replace("\x1b", "\\x1b")
