"""`memman report`: a session as one HTML page."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from runpy import run_path
from typing import Any

import click

from memman.display import format_error
from memman.entries import file_mode
from memman_cli import options
from memman_cli.answers import ReportAnswer, write_answer
from memman_cli.archives import cannot_write
from memman_cli.display import progress
from memman_cli.errors import UnusableError
from memman_cli.files import STDIN, start_of
from memman_cli.output import note, write_data
from memman_cli.report import GENERATOR, PageOptions, pieces, write
from memman_cli.sessions import Session, load, resolved

_HEAD = 2_000  # bytes of a page, which name its generator


@click.command()
@options.session
@click.option("-o", "--output", type=options.FILE, help='The HTML file to write; "-" is stdout.')
@options.model
@options.window
@click.option("--force", is_flag=True, help="Overwrite an existing report.")
@click.option(
    "--redact",
    metavar="FUNCTION",
    envvar="MEMMAN_REDACT",
    show_envvar=True,
    help="MODULE:FUNCTION or FILE.py:FUNCTION, which each entry passes through.",
)
@click.option(
    "--no-content",
    is_flag=True,
    help="Only numbers, times, types and names of tools, without texts.",
)
@options.json
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
    """Write the session S, or a log of messages, as one HTML page.

    It shows tokens over time, every entry and compression, originals next to their replacements, and the
    window that the model saw at any time. The page holds the whole conversation, and uses no network.
    """
    if output is None:
        raise UnusableError("name the file for the page: -o FILE, or -o - for stdout")
    _check_target(output, force)
    redactor = _redactor(redact) if redact else None
    if output == STDIN and as_json:
        raise UnusableError("-o - and --json both want stdout; name a file for the page")
    with progress("reading the session"):
        opened = load(session, model, budget)
    settings = opened.effective
    shown: PageOptions = {
        "redact": redactor,
        "content": not no_content,
        "undo": _undo_command(session, opened),
        "model": settings.model,
        "limited": settings.max_tokens is not None,
    }
    if output == STDIN:
        for piece in pieces(opened.memory, opened.id, **shown):
            write_data(piece)
        return
    try:
        with progress("writing the page"):
            write(opened.memory, opened.id, resolved(output), **shown)
    except OSError as error:
        raise cannot_write(output, error) from None
    note(f"wrote {output}; open it in a browser")
    if as_json:
        size, held = Path(output).stat().st_size, opened.memory.get_stats(opened.id).total_entries
        answer = ReportAnswer(session_id=opened.id, report_file=output, bytes=size, entries=held)
        write_answer(answer)


def _undo_command(session: str, opened: Session) -> str:
    """Return the command that undoes a compression, without the compression; "" for a log."""
    if opened.is_log:
        return ""
    named = options.named(Path(session).name, options.chosen_session())
    return f"{options.own_command()} undo {named}"


def _check_target(output: str, force: bool) -> None:
    """Raise `UnusableError` if the file exists, unless it is a report and `force` is given."""
    if output == STDIN or not file_mode(output):
        return
    if GENERATOR.encode() not in start_of(output, _HEAD):
        raise UnusableError(
            f"{output} exists and is not a memman report, so it is not overwritten; choose another "
            "name with -o"
        )
    if not force:
        raise UnusableError(f"{output} exists; choose another name, or --force")


def _redactor(name: str) -> Any:
    """Return the function `MODULE:FUNCTION` or `FILE.py:FUNCTION`. Raises `UnusableError`."""
    where, _, function = name.rpartition(":")
    if not where or not function:
        raise UnusableError(f"--redact {name!r} names no function; write MODULE:FUNCTION")
    try:
        names = run_path(where) if where.endswith(".py") else _module_names(where)
    except Exception as error:
        fault = format_error(error)
        raise UnusableError(f"--redact: {where} cannot be loaded: {fault}") from error
    if not callable(names.get(function)):
        raise UnusableError(f"--redact: {where} has no function {function!r}")
    return names[function]


def _module_names(name: str) -> dict[str, Any]:
    folder = str(Path.cwd())  # as `python -m` does
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return vars(import_module(name))
