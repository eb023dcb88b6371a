"""`memman report`: a session as one HTML page that shows what happened."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from memman.cli.databases import is_database, quiet_manager
from memman.cli.lines import STDIN, file_of
from memman.cli.logs import MOST_IN_DOCUMENT
from memman.cli.options import FILE, model_option, note, session_argument
from memman.cli.problems import UnusableError
from memman.cli.progress import working
from memman.cli.reading import is_log, read_log
from memman.cli.redacting import redactor
from memman.cli.session_files import Session, is_session, load
from memman.errors import MemmanError
from memman.report import GENERATOR, pieces, write

_HEAD = 2_000  # bytes: where a page says who made it


@click.command()
@session_argument
@click.option("-o", "--output", type=FILE, help='The HTML file to write; "-" is stdout.')
@model_option
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
def report(
    session: str,
    output: str | None,
    model: str | None,
    force: bool,
    redact: str | None,
    no_content: bool,
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
    with working("reading the session"):
        opened = _of_log(session, model) if _holds_log(session) else load(session, model)
    if output == STDIN:
        for piece in pieces(opened.memory, opened.id, **hidden):
            click.echo(piece, nl=False)
        return
    with working("writing the page"):
        _write(opened, output, hidden)
    note(f"wrote {output}; open it in a browser")


def _holds_log(session: str) -> bool:
    """Whether S is a file of messages; what stdin has can be read once only, and is taken for a session."""
    if session == STDIN or is_database(session) or not Path(session).is_file():
        return False
    return not is_session(session) and is_log(file_of(session))


def _of_log(path: str, model: str | None) -> Session:
    """The messages of a log as a session that is kept nowhere; nothing more of it is compressed."""
    log, memory, name = read_log(path), quiet_manager(), Path(path).stem
    log.fill(memory, name, {} if model is None else {"model": model}, MOST_IN_DOCUMENT)
    return Session(memory, name)


def _check_target(output: str, force: bool) -> None:
    """Raises `UnusableError` when the file is there and is no report, or is one and `force` is not said."""
    target = Path(output)
    if output == STDIN or not target.exists():
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
    target = Path(output).resolve()
    part = target.with_name(f".{target.name}.part")
    try:
        write(opened.memory, opened.id, part, **hidden)
        part.replace(target)
    except MemmanError:
        part.unlink(missing_ok=True)
        raise
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise UnusableError(f"cannot write {output}: {error.strerror or error}") from None
