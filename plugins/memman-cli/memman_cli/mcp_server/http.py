"""Streamable HTTP on the loopback interface, for clients that have the token."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from memman_cli.errors import UnusableError
from memman_cli.mcp_server.server import server_of
from memman_cli.mcp_server.tools import ToolCalls

HOST: Final = "127.0.0.1"
PATH: Final = "/mcp"
LEAST_TOKEN: Final = 16
"""The fewest characters of a token."""
_GRACE: Final = 1  # seconds for open requests at the end

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def listening(port: int) -> socket.socket:
    """Return a socket that listens on the loopback interface; port 0 is any free one.

    Raises `UnusableError` if the port is taken.
    """
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise UnusableError(
            f"cannot listen on port {port}: {error.strerror or error}; choose another with --http PORT, or "
            "any free one with --http 0"
        ) from None


def serve_http(calls: ToolCalls, port: socket.socket, token: str) -> None:
    """Serve any number of clients until the process is interrupted or terminated.

    A request without `Authorization: Bearer TOKEN` is refused, as is one whose `Host` or `Origin` is
    not this machine: a web page could make a browser send it.
    """
    import uvicorn

    app = server_of(calls).streamable_http_app(streamable_http_path=PATH, host=HOST)
    config = uvicorn.Config(
        with_token(app, token),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
    )
    uvicorn.Server(config).run([port])


def with_token(app: _App, token: str) -> _App:
    """Return the application for requests that have the token; others get the status 401."""
    wanted = token.encode()

    async def checked(scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http" or hmac.compare_digest(_given(scope), wanted):
            await app(scope, receive, send)
            return
        body = b'{"error": "this server needs its token: send Authorization: Bearer TOKEN"}'
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"www-authenticate", b"Bearer"),
        ]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return checked


def _given(scope: _Scope) -> bytes:
    """Return the token of a request, b"" without one."""
    found = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
    if len(found) != 1:
        return b""
    scheme, _, token = bytes(found[0]).partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""
