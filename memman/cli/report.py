"""`memman report`: a session as one HTML page that shows what happened."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from memman.cli.answers import ReportAnswer, answer
from memman.cli.databases import chosen
from memman.cli.lines import STDIN
from memman.cli.options import (
    FILE,
    json_option,
    model_option,
    note,
    own_command,
    session_argument,
    show_budget_option,
)
from memman.cli.output import write_data
from memman.cli.problems import UnusableError
from memman.cli.progress import working
from memman.cli.redacting import redactor
from memman.cli.session_files import Session, behind_links, load
from memman.entries import file_mode
from memman.report import GENERATOR, pieces, write

_HEAD = 2_000  # bytes: where a page says who made it


@click.command()
@session_argument
@click.option("-o", "--output", type=FILE, help='The HTML file to write; "-" is stdout.')
@model_option
@show_budget_option
@click.option("--force", is_flag=True, help="Overwrite a report that is there.")
@click.option(
    "--redact",
    metavar="FUNCTION",
    envvar="MEMMAN_REDACT",
    show_envvar=True,
    help="MODULE:FUNCTION or FILE.py:FUNCTION, which each entry goes through before it is shown.",
)
@click.option(
    "--no-content",
    is_flag=True,
    help="Numbers, times, types and names of tools; nothing that was said.",
)
@json_option
def report(
    session: str,
    output: str | None,
    model: str | None,
    budget: int | None,
    force: bool,
    redact: str | None,
    no_content: bool,
    as_json: bool,
) -> None:
    """Writes the session S, or a log of messages, as one HTML page to look at and to pass on.

    Tokens over time, every entry and compression, originals beside what replaced them, and the window as
    the model saw it at any moment. The page holds the whole conversation; it loads and sends nothing.
    """
    if output is None:
        raise UnusableError("say where the page goes: -o FILE, or -o - for stdout")
    _check_target(output, force)
    hidden: dict[str, Any] = {
        "redact": redactor(redact) if redact else None,
        "content": not no_content,
    }
    if output == STDIN and as_json:
        raise UnusableError("-o - and --json both want stdout; name a file for the page")
    with working("reading the session"):
        opened = load(session, model, budget)
    shown = opened.effective
    hidden |= {
        "undo": _undo(session, opened),
        "model": shown.model,
        "limited": shown.max_tokens is not None,
    }
    if output == STDIN:
        for piece in pieces(opened.memory, opened.id, **hidden):
            write_data(piece)
        return
    with working("writing the page"):
        _write(opened, output, hidden)
    note(f"wrote {output}; open it in a browser")
    if as_json:
        size, held = Path(output).stat().st_size, opened.memory.get_stats(opened.id).total_entries
        answer(ReportAnswer(session_id=opened.id, report_file=output, bytes=size, entries=held))


def _undo(session: str, opened: Session) -> str:
    """The command that undoes a compression of S, without the compression; "" for a log, which has none."""
    if opened.is_log:
        return ""
    file = "S" if session == STDIN else quote(Path(session).name)
    named = chosen()
    return f"{own_command()} undo {file}" + ("" if named is None else f" --session {quote(named)}")


def _check_target(output: str, force: bool) -> None:
    """Raises `UnusableError` when the file is there and is no report, or is one and `force` is not said."""
    target = Path(output)
    if output == STDIN or not file_mode(target):
        return
    if not _is_report(target):
        raise UnusableError(
            f"{output} exists and is not a memman report, so it is not overwritten; choose another "
            "name with -o"
        )
    if not force:
        raise UnusableError(f"{output} is there; choose another name, or --force")


def _is_report(target: Path) -> bool:
    try:
        if not target.is_file():  # a pipe would be waited for
            return False
        with target.open("rb") as file:
            return GENERATOR.encode() in file.read(_HEAD)
    except OSError:
        return False


def _write(opened: Session, output: str, hidden: dict[str, Any]) -> None:
    """Writes the whole page or none of it."""
    try:
        write(opened.memory, opened.id, behind_links(output), **hidden)
    except OSError as error:
        raise UnusableError(f"cannot write {output}: {error.strerror or error}") from None
