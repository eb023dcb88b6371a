"""Fixtures: a session of the demo, a small log, and a function that runs the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from memman.cli.app import memman

Command = Callable[..., Result]

LOG = [
    {"role": "system", "content": "You fix builds."},
    {"role": "user", "content": "Why is the build red?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "read_log", "arguments": '{"build": 7}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "E501 in app.py\nline two"},
    {"role": "assistant", "content": "A line in app.py is too long."},
]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "MEMMAN_MODEL", "MEMMAN_SUMMARIZER", "MEMMAN_PLUGINS", "UV_RUN_RECURSION_DEPTH", "FORCE_COLOR",
        "COLUMNS",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.argv", ["memman"])  # suggested commands begin with it


@pytest.fixture
def command() -> Command:
    """Run `memman` in this process: `command("stats", path, given=b"...")`."""

    def run(*args: object, given: bytes | str | None = None) -> Result:
        return CliRunner().invoke(memman, [str(arg) for arg in args], input=given)

    return run


@pytest.fixture(scope="session")
def demo_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The session file of one run of the demo."""
    path = tmp_path_factory.mktemp("demo") / "demo.json"
    result = CliRunner().invoke(memman, ["demo", "-o", str(path)])
    assert result.exit_code == 0, result.stderr
    return path


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    """A small OpenAI chat log as a JSON list."""
    path = tmp_path / "log.json"
    path.write_text(json.dumps(LOG))
    return path


@pytest.fixture
def session_file(log_file: Path, tmp_path: Path, command: Command) -> Path:
    """The small log as a session file."""
    path = tmp_path / "session.json"
    assert command("import", log_file, "-o", path).exit_code == 0
    return path
