"""Tests of `memman mcp --http`: the token, hosts and origins, and a real client."""

from __future__ import annotations

import os
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_clients import COMMAND, TOKEN, answer


def _status(url: str, headers: dict[str, str]) -> int:
    request = urllib.request.Request(  # noqa: S310 - the server of the test
        url, data=b"{}", headers={"Content-Type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_client_with_the_token_calls_tools(http: str) -> None:
    async def run() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as connection,
            Client(streamable_http_client(http, http_client=connection)) as client,
        ):
            assert "8841" in await answer(client, "search", query="GATEWAY_TIMEOUT")
            assert "8841" in await answer(client, "read", entries="#5")

    anyio.run(run)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong-token-of-the-tests-012345"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"X-Token": TOKEN},
    ],
)
def test_requests_without_the_token_are_refused(headers: dict[str, str], http: str) -> None:
    assert _status(http, headers) == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:8137"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_other_hosts_and_origins_are_refused(
    headers: dict[str, str], status: int, http: str
) -> None:
    assert _status(http, {"Authorization": f"Bearer {TOKEN}", **headers}) == status


def test_server_listens_on_the_loopback_interface_only(http: str) -> None:
    port = urlsplit(http).port
    own = socket.gethostbyname(socket.gethostname())
    if own.startswith("127."):
        pytest.skip("this machine has no other address")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((own, port), timeout=5)


def test_generated_token_is_printed_once(log: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, str(log), "--http", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "MEMMAN_MCP_TOKEN"},
    )
    assert process.stderr is not None
    url = process.stderr.readline().removeprefix("listening on ").strip()
    header = process.stderr.readline().strip()
    try:
        token = header.rpartition("Bearer ")[2]
        assert len(token) >= 40
        assert _status(url, {"Authorization": f"Bearer {token}"}) == 406
        assert _status(url, {"Authorization": f"Bearer {token[:-1]}"}) == 401
    finally:
        process.terminate()
    assert token not in process.communicate(timeout=30)[1]


@pytest.mark.parametrize("token", ["x7q", "0123456789 abcdef", "0123456789abcdef\u00e9"])
def test_weak_or_unusable_token_is_refused(token: str, log: Path) -> None:
    done = subprocess.run(
        [*COMMAND, str(log), "--http", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "MEMMAN_MCP_TOKEN": token},
    )
    assert done.returncode == 2
    assert "MEMMAN_MCP_TOKEN" in done.stderr
    assert token not in done.stderr


def test_taken_port_is_one_line(log: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*COMMAND, str(log), "--http", port], capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 2
    assert f"cannot listen on port {port}" in done.stderr
    assert done.stderr.count("\n") == 1
