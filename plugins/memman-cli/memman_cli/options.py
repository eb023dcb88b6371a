"""Options that several commands share, and the values they accept."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from memman.archive.limits import ArchiveLimits
from memman.entries import MOST_TOKENS, is_blank

F = TypeVar("F", bound=Callable[..., Any])

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([km]?)")
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}
_AGO = re.compile(r"(\d{1,6})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SESSION, _LIMITS = "memman_cli.session", "memman_cli.limits"  # keys of a click context's `meta`

FILE = click.Path(allow_dash=True, readable=False)
"""A name that shells complete. Its reader checks it, because it may be the URL of a store."""


def tokens(text: str | int) -> int:
    """Parse a number of tokens: 8000, 8_000, 8,000, 8k or 1.5M."""
    written = str(text).strip().lower().replace(",", "").replace("_", "")
    found = _NUMBER.fullmatch(written)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a number of tokens; write it as 8000 or 8k.")
    # `min` keeps a number that is too long for a float out of `int`.
    number = int(min(float(found[1]) * _FACTORS[found[2]], 2.0 * MOST_TOKENS))
    if number < 1:
        raise click.BadParameter(f"{text!r} is less than one token; write it as 8000 or 8k.")
    if number > MOST_TOKENS:
        raise click.BadParameter(f"{text!r} is more than the maximum of {MOST_TOKENS:,} tokens.")
    return number


def ratio(text: str | float) -> float:
    """Parse a share from 0 to 1, such as 0.8."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:  # nor for NaN
        raise click.BadParameter(f"{text!r} is not a share from 0 to 1; write it as 0.8.")
    return share


def moment(text: str) -> datetime:
    """Parse a time: 2026-01-31, 2026-01-31T09:30, both UTC without a zone, or 30m, 12h, 7d or 2w ago."""
    written = text.strip()
    try:
        if ago := _AGO.fullmatch(written):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        parsed = datetime.fromisoformat(written)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a time; write it as 2026-01-31, 2026-01-31T09:30, 12h or 7d (ago)."
        ) from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _name(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    """Return the given name; None for blanks, which an unset variable may leave."""
    return None if name is None or is_blank(name) else name


def _by_name(option: str, variable: str, text: str) -> Callable[[F], F]:
    """Return an option for a name, which a variable of the environment may give."""
    return click.option(
        option, metavar="NAME", envvar=variable, show_envvar=True, callback=_name, help=text
    )


def _note_session(context: click.Context, _option: click.Parameter, name: str | None) -> None:
    context.meta[_SESSION] = name


def chosen_session() -> str | None:
    """Return the id that `--session` gives to the running command, None without one."""
    name: str | None = click.get_current_context().meta.get(_SESSION)
    return name


def _note_limits(context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> None:
    known = ArchiveLimits.__struct_fields__
    wanted: dict[str, int] = {}
    for each in given:
        name, _, number = each.partition("=")
        if name not in known or not number.replace("_", "").isdecimal():
            names = ", ".join(known)
            raise click.BadParameter(f"{each!r} is not NAME=NUMBER; NAME is one of {names}.")
        wanted[name] = int(number)
    context.meta[_LIMITS] = ArchiveLimits(**wanted)


def archive_limits() -> ArchiveLimits:
    """Return the limits that `--limit` gives to the running command, else the defaults."""
    limits: ArchiveLimits = click.get_current_context().meta.get(_LIMITS, ArchiveLimits())
    return limits


def _with_session(command: F, text: str) -> F:
    option = click.option(
        "--session", "chosen", metavar="ID", expose_value=False, callback=_note_session, help=text
    )
    return click.argument("session", metavar="S", type=FILE)(option(command))


def session(command: F) -> F:
    """Add the argument S, a session file, a database or a log, and `--session`."""
    return _with_session(command, "The session to use if S is a database with several.")


def sessions(command: F) -> F:
    """Add the argument S, and `--session` for one or several sessions of a database."""
    return _with_session(command, "Only this session of a database, or those of 'customer-7/*'.")


json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
model = _by_name("--model", "MEMMAN_MODEL", "The model whose token counter and limits apply.")
output = click.option("-o", "--output", help='The session file to write; "-" is stdout.')
in_place = click.option("--in-place", is_flag=True, help="Write back to S.")
force = click.option("--force", is_flag=True, help="Overwrite a file that holds another session.")
summarizer = _by_name(
    "--summarizer",
    "MEMMAN_SUMMARIZER",
    'The summarizer: "anthropic:MODEL" or "cmd:PROGRAM ARGS"; without it, the outline alone.',
)
strict = click.option(
    "--strict",
    is_flag=True,
    help="Exit with 4 and write nothing if a counter or the summarizer fails.",
)
target = click.option(
    "--target", type=tokens, help="Compress to this many tokens; default: half the budget."
)
keep = click.option(
    "--keep",
    type=click.IntRange(min=0),
    metavar="ENTRIES",
    help="Keep this many of the newest entries; default: the session's own number.",
)
limit = click.option(
    "--limit",
    metavar="NAME=NUMBER",
    multiple=True,
    expose_value=False,
    callback=_note_limits,
    help="A limit of archives, such as entries=5_000_000; may be repeated.",
)


def budget(text: str, default: str | None = None) -> Callable[[F], F]:
    """Return the option `--budget`, a number of tokens such as 8000 or 8k."""
    return click.option(
        "--budget", type=tokens, default=default, show_default=default is not None, help=text
    )


window = budget("The window in tokens; default: that of the session or of its program.")


def message_format(text: str) -> Callable[[F], F]:
    """Return the option `-f`, the name of a message format."""
    return click.option(
        "-f", "--format", "message_format", default="auto", show_default=True, metavar="NAME",
        help=text,
    )  # fmt: skip


def named(session: str, name: str | None) -> str:
    """Return the arguments that name S, and a session in it, in a suggested command."""
    file = "S" if session == "-" else shlex.quote(session)
    return file if name is None else f"{file} --session {shlex.quote(name)}"


def own_command() -> str:
    """Return the command line that started memman, so that suggested commands run as printed."""
    if "UV_RUN_RECURSION_DEPTH" in os.environ:  # set by `uv run` for its child processes
        return "uv run memman"
    if Path(sys.argv[0]).name == "__main__.py":
        return "python -m memman"
    return "memman"
