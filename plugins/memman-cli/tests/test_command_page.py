"""`docs/reference/command.md` matches the command: its commands, options and JSON documents."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from memman_cli import errors
from memman_cli.app import COMMANDS, memman
from memman_cli.commands.mcp import TOKEN

from memman import MemoryManager
from tests.docs.pages import DOCS, code, table

PAGE = "reference/command.md"
GROUPS = ("session", "compression", "file", "server", "installation")
NO_JSON = "none"
SHAPES = {
    code(row[f"{group} command"])[0]: row["JSON fields"]
    for group in GROUPS
    for row in table(PAGE, f"{group} command")
}
LOG = (
    '{"role": "user", "content": "Hello"}\n'
    '{"role": "assistant", "content": "Good morning. %s"}\n' % ("word " * 200)
)
ARGUMENTS = {
    "demo": ["--file", "log.jsonl"],
    "import": ["log.jsonl", "-o", "other.json"],
    "sessions": ["chat.db"],
    "follow": ["chat.db", "--session", "trip", "--after", "1", "--timeout", "0"],
    "stats": ["s.json"],
    "show": ["s.json"],
    "search": ["s.json", "Hello"],
    "compress": ["s.json", "--in-place"],
    "plan": ["s.json"],
    "diff": ["compressed.json"],
    "why": ["s.json", "Hello"],
    "undo": ["compressed.json", "-o", "other.json"],
    "export": ["s.json"],
    "verify": ["s.json"],
    "report": ["s.json", "-o", "page.html"],
    "check": ["log.jsonl"],
    "formats": [],
    "count": ["Hello"],
    "counters": [],
    "models": ["gpt-4o"],
    "plugins": [],
}


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    Path("log.jsonl").write_text(LOG, encoding="utf-8")
    with MemoryManager("chat.db") as memory:
        memory.add_user_message("trip", "Hello")
    runner = CliRunner()
    assert runner.invoke(memman, ["import", "log.jsonl", "-o", "s.json"]).exit_code == 0
    shorter = ["compress", "s.json", "--budget", "110", "-o", "compressed.json"]
    assert runner.invoke(memman, shorter).exit_code == 0
    return runner


def test_command_page_has_every_command_in_order() -> None:
    assert [command.name for command in COMMANDS] == list(SHAPES)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.name))
def test_command_page_marks_json_commands(command: click.Command) -> None:
    answers = any("--json" in option.opts for option in command.params)
    assert answers == (SHAPES[str(command.name)] != NO_JSON)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.name))
def test_command_page_has_every_option(command: click.Command) -> None:
    title = f"option of {command.name}"
    options = [option for option in command.params if isinstance(option, click.Option)]
    expected = sorted({name for option in options for name in option.opts} - {"--json"})
    shared = [
        row["shared option"]
        for row in table(PAGE, "shared option")
        if command.name in code(row["commands"])
    ]
    has_own = f"| {title} |" in (DOCS / PAGE).read_text(encoding="utf-8")
    own = [row[title] for row in table(PAGE, title)] if has_own else []
    assert sorted(each.split()[0] for cell in (*shared, *own) for each in code(cell)) == expected


@pytest.mark.parametrize("name", [name for name, fields in SHAPES.items() if fields != NO_JSON])
def test_command_page_names_the_fields_of_each_document(name: str, runner: CliRunner) -> None:
    answered = runner.invoke(memman, [name, *ARGUMENTS[name], "--json"], standalone_mode=False)
    document = json.loads(answered.stdout)
    always = SHAPES[name].partition(";")[0]
    assert set(code(always)) | {"memman", "version"} == set(document)
    assert document["memman"] == name


def test_command_page_has_every_exit_code() -> None:
    shown = [int(row["code"]) for row in table(PAGE, "code")]
    codes = [errors.FINDING, errors.USAGE, errors.UNREADABLE, errors.FAILED]
    assert shown == [0, *codes, 130]


def test_command_page_has_every_variable() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    listed = text.partition("## Environment")[2].partition("The settings'")[0]
    options = [option for command in COMMANDS for option in command.params]
    read = {str(option.envvar) for option in options if option.envvar} | {"MEMMAN_PLUGINS", TOKEN}
    assert {name for name in code(listed) if name.startswith("MEMMAN_")} == read
