"""Runs the scenarios of `@modelcontextprotocol/conformance` against a server over HTTP.

The program sends no token, so its requests go through a proxy that adds one.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from socket import SHUT_WR, create_connection, create_server, socket
from urllib.parse import urlsplit

import pytest
from mcp_clients import TOKEN

from tests.docs.pages import DOCS, code, table

PAGE = "how-to/search-from-an-mcp-client.md"
# The program needs Node 22, which distributions do not have yet.
PROGRAM = ["npx", "--yes", "-p", "node@22"]
PROGRAM += ["-p", "@modelcontextprotocol/conformance@0.1.16", "conformance"]
END = b"\r\n\r\n"


def _copy(source: socket, target: socket) -> None:
    with suppress(OSError):
        while data := source.recv(2**16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(SHUT_WR)


def _forward(client: socket, port: int) -> None:
    """Send one request with the token, and its answer back."""
    with client, create_connection(("127.0.0.1", port)) as server:
        data = b""
        while END not in data:
            if not (more := client.recv(2**16)):
                return
            data += more
        head, _, body = data.partition(END)
        lines = [
            each for each in head.split(b"\r\n") if not each.lower().startswith(b"connection:")
        ]
        own = [b"Connection: close", b"Authorization: Bearer " + TOKEN.encode()]
        server.sendall(b"\r\n".join([*lines, *own]) + END + body)
        upward = threading.Thread(target=_copy, args=(client, server), daemon=True)
        upward.start()
        _copy(server, client)


@pytest.fixture
def proxy(http: str) -> Iterator[str]:
    """The URL of the proxy."""
    port = urlsplit(http).port
    assert port is not None
    with create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):  # the end of the test closes the listener
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=_forward, args=(client, port), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"


def _passing() -> set[str]:
    """Return the scenarios that pass according to the page."""
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    return set(code(text.partition("These scenarios pass:")[2].partition("The others")[0]))


@pytest.mark.npm
def test_scenarios_without_fixtures_pass(proxy: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "server", "--url", proxy],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    results = re.findall(r"^(\S) ([\w-]+): (\d+) passed, (\d+) failed", done.stdout, re.MULTILINE)
    passed = {name for sign, name, good, _ in results if sign == "\u2713" and int(good)}
    failed = {name for sign, name, _, _ in results if sign != "\u2713"}
    assert passed == _passing(), done.stdout + done.stderr
    excused = {name for row in table(PAGE, "scenarios") for name in code(row["scenarios"])}
    assert failed <= excused
