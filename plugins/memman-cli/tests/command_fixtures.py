"""Fixtures: a session of the demo, a small log, and a function that runs the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from memman_cli.app import memman

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


def make_plain(patch: pytest.MonkeyPatch) -> None:
    """Remove what changes the output of commands from the environment."""
    for name in (
        "MEMMAN_MODEL", "MEMMAN_SUMMARIZER", "MEMMAN_PLUGINS", "UV_RUN_RECURSION_DEPTH", "FORCE_COLOR",
        "COLUMNS",
    ):  # fmt: skip
        patch.delenv(name, raising=False)
    patch.setattr("sys.argv", ["memman"])  # suggested commands begin with it


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_plain(monkeypatch)
    monkeypatch.chdir(tmp_path)  # where a command writes without -o


@pytest.fixture
def command() -> Command:
    """Run `memman` in this process: `command("stats", path, given=b"...")`."""

    def run(*args: object, given: bytes | str | None = None) -> Result:
        return CliRunner().invoke(memman, [str(arg) for arg in args], input=given)

    return run


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The session file and the output of one run of the demo."""
    path = tmp_path_factory.mktemp("demo") / "demo.json"
    with pytest.MonkeyPatch.context() as patch:
        make_plain(patch)
        result = CliRunner().invoke(memman, ["demo", "-o", str(path)])
    assert result.exit_code == 0, result.stderr
    return path, result


@pytest.fixture(scope="session")
def demo_file(demo_run: tuple[Path, Result]) -> Path:
    """The session file of one run of the demo."""
    return demo_run[0]


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    """A small OpenAI chat log as a JSON list."""
    path = tmp_path / "log.json"
    path.write_text(json.dumps(LOG))
    return path


@pytest.fixture
def long_log(tmp_path: Path) -> Path:
    """A log of 24 messages, which a window of 1,000 tokens cannot hold."""
    path = tmp_path / "long.json"
    log = [
        {"role": role, "content": f"ORD-{number} is on its way. " * 12}
        for number in range(12)
        for role in ("user", "assistant")
    ]
    path.write_text(json.dumps(log))
    return path


@pytest.fixture
def session_file(log_file: Path, tmp_path: Path, command: Command) -> Path:
    """The small log as a session file."""
    path = tmp_path / "session.json"
    assert command("import", log_file, "-o", path).exit_code == 0
    return path
