"""`memman verify`: whether an archive or a session document is what was written."""

from __future__ import annotations

import hashlib
from pathlib import Path

import click

from memman.archive import verify as verify_archive
from memman.cli.answers import VerifyAnswer, answer
from memman.cli.archives import FORMAT, archived_session, limits, spooled
from memman.cli.databases import quiet_manager
from memman.cli.display import counted
from memman.cli.lines import STDIN, read_bytes
from memman.cli.options import json_option, limit_option
from memman.cli.output import say
from memman.cli.problems import UNREADABLE
from memman.cli.progress import working
from memman.cli.session_files import document_of
from memman.errors import MemmanError, StateError


@click.command()
@click.argument("file", metavar="FILE")
@limit_option
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
        found = VerifyAnswer(file=name, ok=False, problems=error.problems)
    except MemmanError as error:
        found = VerifyAnswer(file=name, ok=False, problems=(str(error),))
    if as_json:
        answer(found)
    if not found.ok:
        _tell_faults(found)
    elif not as_json:
        _tell(found)


def _checked(path: str, name: str) -> VerifyAnswer:
    """What a sound file holds."""
    if archived_session(path) is not None:
        with working("verifying") as watch, Path(path).open("rb") as source:
            info = verify_archive(watch(source), limits=limits())
        return VerifyAnswer(
            file=name,
            ok=True,
            format=FORMAT,
            session_id=info.session_id,
            records=info.records,
            entries=info.entries,
            sha256=info.sha256,
        )
    data = read_bytes(path)
    state = document_of(data, name)
    quiet_manager().import_session(state)
    return VerifyAnswer(
        file=name,
        ok=True,
        format=state.format,
        session_id=state.session_id,
        records=len(state.log),
        entries=len(state.entries),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _tell(found: VerifyAnswer) -> None:
    records = counted(found.records or 0, "record")
    entries = counted(found.entries or 0, "entry", "entries")
    say(f"{found.file}: OK, {found.format} of session {found.session_id!r}, {records}, {entries}")
    say(f"SHA-256 {found.sha256}")


def _tell_faults(found: VerifyAnswer) -> None:
    faults = counted(len(found.problems), "fault")
    say(f"memman: {found.file} is not sound: {faults}", err=True)
    for problem in found.problems:
        say(f"  - {problem}", err=True)
    click.get_current_context().exit(UNREADABLE)
