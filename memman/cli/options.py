"""Options that several commands share."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from memman.cli.archives import limit
from memman.cli.databases import choose
from memman.cli.output import say
from memman.entries import MOST_TOKENS, is_blank

F = TypeVar("F", bound=Callable[..., Any])

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([km]?)")
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}


# A name that shells complete. Whether it can be read is said by who reads it: it may be a store's address.
FILE = click.Path(allow_dash=True, readable=False)


def tokens(text: str | int) -> int:
    """A number of tokens as people write it: 8000, 8_000, 8,000, 8k or 1.5M."""
    written = str(text).strip().lower().replace(",", "").replace("_", "")
    found = _NUMBER.fullmatch(written)
    if found is None:
        raise click.BadParameter(f"{text!r} is no number of tokens; write it as 8000 or 8k.")
    # Of a number that is too long for a float only its being too large matters.
    number = int(min(float(found[1]) * _FACTORS[found[2]], 2.0 * MOST_TOKENS))
    if number < 1:
        raise click.BadParameter(f"{text!r} is less than one token; write it as 8000 or 8k.")
    if number > MOST_TOKENS:
        raise click.BadParameter(
            f"{text!r} is more than {MOST_TOKENS:,} tokens, the most there is."
        )
    return number


def ratio(text: str | float) -> float:
    """A share from 0 to 1, such as 0.8."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise click.BadParameter(f"{text!r} is no share from 0 to 1; write it as 0.8.")
    return share


def _named(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    """A name that was given; blanks, which an unset variable leaves, are none."""
    return None if name is None or is_blank(name) else name


def session_argument(command: F) -> F:
    """S, a session file or a database, and `--session`, which session of a database."""
    option = click.option(
        "--session",
        "chosen",
        metavar="ID",
        expose_value=False,
        callback=choose,
        help="Which session, where S is a database of several.",
    )
    return click.argument("session", metavar="S", type=FILE)(option(command))


def json_option(command: F) -> F:
    """`--json`: one JSON document on stdout instead of something to look at."""
    option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
    return option(command)


def model_option(command: F) -> F:
    """`--model`: whose counter and limits apply."""
    option = click.option(
        "--model",
        metavar="NAME",
        envvar="MEMMAN_MODEL",
        callback=_named,
        show_envvar=True,
        help="The model whose token counter and limits apply.",
    )
    return option(command)


def output_options(command: F) -> F:
    """`-o` and `--in-place`: where a changed session goes. Writing over S has to be asked for."""
    in_place = click.option("--in-place", is_flag=True, help="Write back to S.")
    output = click.option("-o", "--output", help='The session file to write; "-" is stdout.')
    return output(in_place(command))


def summarizer_option(command: F) -> F:
    """`--summarizer`: who writes the summaries."""
    option = click.option(
        "--summarizer",
        metavar="NAME",
        envvar="MEMMAN_SUMMARIZER",
        callback=_named,
        show_envvar=True,
        help='Who writes the summaries: "anthropic:MODEL", "cmd:PROGRAM ARGS"; digests if none.',
    )
    return option(command)


def target_option(command: F) -> F:
    """`--target`: how far a compression goes down."""
    option = click.option(
        "--target", type=tokens, help="Go down to this many tokens; half the budget if none."
    )
    return option(command)


def keep_option(command: F) -> F:
    """`--keep`: how many of the newest entries no summary takes."""
    option = click.option(
        "--keep",
        type=click.IntRange(min=0),
        metavar="ENTRIES",
        help="Keep this many of the newest entries; the session's own number if none.",
    )
    return option(command)


def limit_option(command: F) -> F:
    """`--limit`: how much an archive may ask of who reads it."""
    option = click.option(
        "--limit",
        metavar="NAME=NUMBER",
        multiple=True,
        expose_value=False,
        callback=limit,
        help="What an archive may have at most, as entries=5_000_000; may be given again.",
    )
    return option(command)


def force_option(command: F) -> F:
    """`--force`: whether a file that holds another session may be overwritten."""
    option = click.option("--force", is_flag=True, help="Overwrite a file with another session.")
    return option(command)


def budget_option(text: str, default: str | None = None) -> Callable[[F], F]:
    """`--budget`: tokens, as 8000 or 8k."""
    return click.option(
        "--budget", type=tokens, default=default, show_default=default is not None, help=text
    )


show_budget_option = budget_option(
    "The window in tokens to show it with; what the session or its program had if none."
)


def format_option(text: str) -> Callable[[F], F]:
    """`-f`: the name of a message format."""
    return click.option(
        "-f",
        "--format",
        "message_format",
        default="auto",
        show_default=True,
        metavar="NAME",
        help=text,
    )


def note(text: str) -> None:
    """Writes a note for the person at the terminal to stderr."""
    say(text, err=True)


def own_command() -> str:
    """How memman was started, so that what is suggested can be run as it stands."""
    if "UV_RUN_RECURSION_DEPTH" in os.environ:  # set by `uv run` for what it starts
        return "uv run memman"
    if Path(sys.argv[0]).name == "__main__.py":
        return "python -m memman.cli"
    return "memman"
