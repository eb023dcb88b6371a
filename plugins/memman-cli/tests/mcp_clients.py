"""Logs of a coding agent, and servers in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from memman_cli.mcp_server.server import server_of
from memman_cli.mcp_server.sources import Sources
from memman_cli.mcp_server.tools import ToolCalls

COMMAND = [sys.executable, "-m", "memman_cli", "mcp"]
TOKEN = "a-token-of-the-tests-0123456789"  # noqa: S105


def _line(number: int, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}" if number > 1 else None,
        "timestamp": f"2026-03-01T10:00:{number:02d}Z",
        "sessionId": "s1",
        "isSidechain": False,
        "message": {"role": kind, "content": content},
        **more,
    }


def lines_of(timeout: int = 8841) -> list[dict[str, Any]]:
    """Return the lines of a session of Claude Code in which a file is read."""
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "src/gateway.py"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": f"GATEWAY_TIMEOUT = {timeout}"}
    return [
        _line(1, "user", "What is the timeout of the gateway?"),
        _line(2, "assistant", [{"type": "text", "text": "I look."}, call]),
        _line(3, "user", [result]),
        _line(4, "assistant", [{"type": "text", "text": f"It is {timeout} ms."}]),
    ]


def write_log(path: Path, lines: list[dict[str, Any]]) -> Path:
    """Write lines to a log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of Claude Code with four messages."""
    return write_log(tmp_path / "work.jsonl", lines_of())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of the processes that a test starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def over_stdio(work: Callable[[Client], Awaitable[None]], *args: object) -> None:
    """Do some work as the client of a server that runs in a process of its own."""

    async def run() -> None:
        server = StdioServerParameters(
            command=COMMAND[0],
            args=[*COMMAND[1:], *map(str, args)],
            env={"TMPDIR": os.environ.get("TMPDIR", "/tmp")},  # noqa: S108 - the system's own
        )
        async with Client(stdio_client(server), read_timeout_seconds=60) as client:
            await work(client)

    anyio.run(run)


def in_process(work: Callable[[Client], Awaitable[None]], *sources: object) -> None:
    """Do some work as the client of a server in this process, which starts much sooner."""

    async def run(calls: ToolCalls) -> None:
        async with Client(server_of(calls), read_timeout_seconds=60) as client:
            await work(client)

    with Sources([str(source) for source in sources]) as opened:
        anyio.run(run, ToolCalls(opened, 4_000))


async def answer(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool and return its text."""
    result = await client.call_tool(tool, arguments)
    text = "".join(block.text for block in result.content if block.type == "text")
    assert not result.is_error, text
    return text


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool in a wrong way and return the text of its error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return "".join(block.text for block in result.content if block.type == "text")


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server over HTTP, which has `TOKEN` and the log; one for all tests of a module."""
    folder = tmp_path_factory.mktemp("http")
    log = write_log(folder / "work.jsonl", lines_of())
    temporary = folder / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [*COMMAND, str(log), "--http", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "MEMMAN_MCP_TOKEN": TOKEN, "TMPDIR": str(temporary)},
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.startswith("listening on "), first + process.stderr.read()
        yield first.removeprefix("listening on ").strip()
    finally:
        process.terminate()
        _, rest = process.communicate(timeout=30)
    assert "Traceback" not in rest
    assert list(temporary.iterdir()) == []
