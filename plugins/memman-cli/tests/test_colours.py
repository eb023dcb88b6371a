"""Colours are shown on a terminal, unless NO_COLOR or `--no-color` is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from memman_cli.app import COMMANDS
from terminals import on_a_terminal

from memman import MemoryManager

ESCAPE = "\x1b["
LINES = [
    "demo --file log.json --budget 2k -o played.json --force",
    "import log.json -o s.json --force",
    "sessions chat.db",
    "follow chat.db --timeout 0",
    "stats s.json",
    "show s.json",
    "search s.json ORD-3",
    "compress s.json --budget 1k -o small.json --force",
    "plan s.json --budget 1k",
    "diff small.json",
    "why small.json ORD-3",
    "undo small.json -o undone.json --force",
    "export s.json",
    "verify s.json",
    "report small.json -o s.html --force",
    "check log.json",
    "formats",
    "mcp --help",
    "count hello",
    "counters",
    "models gpt-4o",
    "plugins",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("colours")
    log = [
        {"role": role, "content": f"ORD-{number} is on its way. " * 12}
        for number in range(12)
        for role in ("user", "assistant")
    ]
    (path / "log.json").write_text(json.dumps(log))
    with MemoryManager(str(path / "chat.db")) as memory:
        memory.add_user_message("s", "Hello")
    return path


def test_every_command_is_tried() -> None:
    assert [line.split()[0] for line in LINES] == [command.name for command in COMMANDS]


def test_terminal_has_colours(folder: Path) -> None:
    lines = ["import log.json -o s.json --force", "stats s.json"]
    assert ESCAPE in "".join(on_a_terminal(*lines, folder=folder))


@pytest.mark.long
def test_no_color_applies_to_every_command(folder: Path) -> None:
    shown = on_a_terminal(*LINES, folder=folder, codes="01", NO_COLOR="1")
    assert "\x1b[3" not in "".join(shown)


def test_no_color_option_applies_to_one_run(folder: Path) -> None:
    lines = [f"--no-color {line}" for line in LINES if line.startswith(("import", "stats", "show"))]
    assert ESCAPE not in "".join(on_a_terminal(*lines, folder=folder))
