"""Colours are shown on a terminal, unless NO_COLOR or `--no-color` is given."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from memman import MemoryManager
from memman.cli.app import COMMANDS

ESCAPE = "\x1b["
# One process for all of them, because each start takes time.
PROGRAM = """
import sys
from memman.cli import main
for line in sys.argv[1:]:
    print("====", line)
    try:
        main(line.split())
    except SystemExit as end:
        if end.code not in (0, 1):
            raise
"""
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


def on_a_terminal(folder: Path, lines: list[str], **settings: str) -> str:
    """Return the output of the commands on a terminal."""
    ours, theirs = pty.openpty()
    kept = {
        key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")
    }
    environment = kept | {"TERM": "xterm-256color", "COLUMNS": "120"} | settings
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *lines],
        stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, cwd=folder, env=environment,
    ) as running:  # fmt: skip
        os.close(theirs)
        shown = b""
        try:
            while some := os.read(ours, 65536):
                shown += some
        except OSError:  # the end of a terminal without writers
            pass
    os.close(ours)
    assert running.returncode == 0, shown.decode()
    return shown.decode()


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
    assert ESCAPE in on_a_terminal(folder, ["import log.json -o s.json --force", "stats s.json"])


@pytest.mark.long
def test_no_color_applies_to_every_command(folder: Path) -> None:
    assert "\x1b[3" not in on_a_terminal(folder, LINES, NO_COLOR="1")


def test_no_color_option_applies_to_one_run(folder: Path) -> None:
    lines = [f"--no-color {line}" for line in LINES if line.startswith(("import", "stats", "show"))]
    assert ESCAPE not in on_a_terminal(folder, lines)
