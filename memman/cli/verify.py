"""`memman verify`: whether an archive or a session document is what was written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import click

from memman.archive import verify as verify_archive
from memman.cli.archives import FORMAT, archived_session, spooled
from memman.cli.databases import quiet_manager
from memman.cli.display import counted, harmless
from memman.cli.options import answer, json_option
from memman.cli.problems import UNREADABLE
from memman.cli.reading import STDIN, read_bytes
from memman.cli.session_files import document_of
from memman.errors import MemmanError, StateError


@click.command()
@click.argument("file", metavar="FILE")
@json_option
def verify(file: str, as_json: bool) -> None:
    """Checks FILE, an archive or a session document, to its end; "-" reads stdin. Changes nothing.

    Every fault of an archive is told with its line. Exit code 3 where there is one.
    """
    name = "stdin" if file == STDIN else file
    path = spooled(file)
    try:
        found = _checked(path, name)
    except StateError as error:
        _tell(name, error.problems, as_json)
    except MemmanError as error:
        _tell(name, [str(error)], as_json)
    else:
        if as_json:
            answer("verify", file=name, ok=True, problems=[], **found)
        else:
            records, entries = (
                counted(found["records"], "record"),
                counted(found["entries"], "entry", "entries"),
            )
            session = harmless(repr(found["session_id"]))
            click.echo(f"{name}: OK, {found['format']} of session {session}, {records}, {entries}")
            click.echo(f"SHA-256 {found['sha256']}")


def _checked(path: str, name: str) -> dict[str, Any]:
    """What a sound file holds."""
    if archived_session(path) is not None:
        info = verify_archive(path)
        return {
            "format": FORMAT, "session_id": info.session_id, "records": info.records,
            "entries": info.entries, "sha256": info.sha256,
        }  # fmt: skip
    data = read_bytes(path)
    state = document_of(data, name)
    memory = quiet_manager()
    memory.import_session(state)
    return {
        "format": state.format, "session_id": state.session_id, "records": len(state.log),
        "entries": len(state.entries), "sha256": hashlib.sha256(data).hexdigest(),
    }  # fmt: skip


def _tell(name: str, problems: Sequence[str], as_json: bool) -> None:
    if as_json:
        empty = {
            "format": None,
            "session_id": None,
            "records": None,
            "entries": None,
            "sha256": None,
        }
        answer("verify", file=name, ok=False, problems=problems, **empty)
    click.echo(f"memman: {name} is not sound: {counted(len(problems), 'fault')}", err=True)
    for problem in problems:
        click.echo(harmless(f"  - {problem}"), err=True)
    click.get_current_context().exit(UNREADABLE)
