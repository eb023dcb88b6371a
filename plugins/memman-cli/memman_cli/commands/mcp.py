"""`memman mcp`: an MCP server with tools that search and read sessions."""

from __future__ import annotations

import logging
import os
import secrets
from importlib.util import find_spec

import click

from memman.plugins import how_to_install
from memman.recall import LEAST_TOKENS
from memman_cli import options
from memman_cli.errors import UnusableError
from memman_cli.output import NoteHandler, note

TOKEN = "MEMMAN_MCP_TOKEN"  # noqa: S105 - the name of the variable
_PORT = 8137


def _port(text: str | int) -> int:
    """Parse a port; the word after `--http` may be a source by mistake."""
    if not str(text).isdecimal() or int(text) >= 2**16:
        raise click.BadParameter(
            f"{text!r} is not a port; write --http after the sources, or with a port: --http {_PORT}."
        )
    return int(text)


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=options.FILE)
@click.option(
    "--http",
    "port",
    type=_port,
    is_flag=False,
    flag_value=str(_PORT),
    metavar="[PORT]",
    help=f"Serve HTTP on the loopback interface, by default on port {_PORT}; 0 is any free port.",
)
@click.option(
    "--max-tokens",
    type=options.tokens,
    default="4000",
    show_default=True,
    help="The most tokens of an answer, estimated.",
)
def mcp(sources: tuple[str, ...], port: int | None, max_tokens: int) -> None:
    """Serve sessions to an MCP client, with tools that search and read them.

    SOURCE is a database, a session file, a log of Claude Code, Codex or any other format that `import`
    reads, or a folder with logs and archives, such as ~/.claude/projects. Files are read again when they
    change, and are never written.

    The client starts the command and speaks over stdio. With --http it connects to the printed URL, with
    the token of MEMMAN_MCP_TOKEN or, without one, a new token that is printed once.
    """
    if find_spec("mcp") is None:
        raise UnusableError(f"the server needs mcp: {how_to_install('memman-cli[mcp]')}")
    from memman_cli.mcp_server.http import HOST, LEAST_TOKEN, PATH, listening, serve_http
    from memman_cli.mcp_server.server import end_on_sigterm, serve_stdio
    from memman_cli.mcp_server.sources import Sources
    from memman_cli.mcp_server.tools import ToolCalls

    if max_tokens < LEAST_TOKENS:
        raise UnusableError(f"--max-tokens must be at least {LEAST_TOKENS} tokens")
    for name in ("mcp", "uvicorn"):
        logging.getLogger(name).addHandler(NoteHandler(logging.WARNING))
    token = os.environ.get(TOKEN, "")
    if port is not None and 0 < len(token) < LEAST_TOKEN:
        raise UnusableError(f"the token in {TOKEN} is too short: it needs {LEAST_TOKEN} characters")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UnusableError(f"the token in {TOKEN} must be of ASCII characters without spaces")
    end_on_sigterm()
    with Sources(sources) as opened:
        calls = ToolCalls(opened, max_tokens)
        if port is None:
            serve_stdio(calls)
            return
        with listening(port) as bound:
            note(f"listening on http://{HOST}:{bound.getsockname()[1]}{PATH}")
            if not token:
                token = secrets.token_urlsafe(32)
                note(f"clients send the header Authorization: Bearer {token}")
            serve_http(calls, bound, token)
