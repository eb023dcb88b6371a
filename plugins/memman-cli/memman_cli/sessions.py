"""The session S of a command: loaded from a document, an archive, a database or a log, and saved."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from memman.archive.document import FORMAT, SessionState, document_bytes, records_of
from memman.entries import Entry, file_mode
from memman.explain.history import LogHistory
from memman.files import replacing
from memman.manager import MemoryManager
from memman.protocols import Store
from memman.stores import without_password
from memman_cli.archives import (
    archived_session,
    cannot_write,
    import_archive,
    is_archive_name,
    write_archive,
)
from memman_cli.conversion import MOST_IN_DOCUMENT, import_log
from memman_cli.databases import check_readable, copied, quiet_manager, session_of_database
from memman_cli.errors import UnreadableError, UnusableError
from memman_cli.files import STDIN, File, decode, display_name, is_database, on_disk, text_of
from memman_cli.logs import is_log, log_in
from memman_cli.options import archive_limits, chosen_session
from memman_cli.output import write_json
from memman_cli.settings import Effective, apply_settings, effective_settings


class Session:
    """A session in a manager of its own, shown with the options `model` and `budget`.

    `is_log` is true if it was read from a log.
    """

    def __init__(
        self,
        source: tuple[MemoryManager, Store, str],
        model: str | None,
        budget: int | None,
        is_log: bool = False,
    ) -> None:
        self.memory, store, self.id = source
        self.is_log = is_log
        self._shown_with = apply_settings(self.memory, store, self.id, model, budget)

    @property
    def effective(self) -> Effective:
        """The settings that it is shown with."""
        return effective_settings(self.memory, self.id, self._shown_with)

    @cached_property
    def window(self) -> dict[str, Entry]:
        """The window's entries by id."""
        return {entry.id: entry for entry in self.memory.get_active_entries(self.id)}

    @cached_property
    def outline(self) -> str | None:
        """The id of its outline."""
        item = self.history.history.state.window.outline
        return item.entry.id if item else None

    @property
    def history(self) -> LogHistory:
        """The current history of its entries and compressions."""
        return LogHistory(list(enumerate(records_of(self.state), 1)))

    @property
    def state(self) -> SessionState:
        """Its current document."""
        return self.memory.export_session(self.id)


def load(
    path: str, model: str | None = None, budget: int | None = None, *, to: str | None = None
) -> Session:
    """Load the session of a document, an archive, a database or a log, or from stdin for "-".

    The result is a copy, unless changes go `to` the same database: then they are made in it. `model` and
    `budget` are options to show the session with. Raises `UnreadableError`, `StateError`, or
    `UnusableError` for a log that would be changed in place.
    """
    if path != STDIN and is_database(path):
        memory, store, session_id = session_of_database(path)
        if to == path:
            return Session((memory, store, session_id), model, budget)
        return Session(_imported(memory.export_session(session_id)), model, budget)
    if chosen_session() is not None:
        check_readable(path)
        raise UnusableError("--session selects a session of a database, and S is not one")
    local, name = on_disk(path), display_name(path)
    if archived_session(local) is not None:
        return Session(copied(lambda memory: import_archive(memory, local)), model, budget)
    file = File(name, Path(local))
    if is_session(local) or not is_log(file):
        return Session(_imported(parse_document(file.read(), name)), model, budget)
    if to == path:
        raise UnusableError(f"{name} is a log and stays as it is: name a session file with -o")
    return Session(_imported_log(file), model, budget, is_log=True)


def _imported(state: SessionState) -> tuple[MemoryManager, Store, str]:
    return copied(lambda memory: memory.import_session(state))


def _imported_log(file: File) -> tuple[MemoryManager, Store, str]:
    name = session_name(file.name)

    def take(memory: MemoryManager) -> str:
        import_log(memory, log_in(file), name, {}, MOST_IN_DOCUMENT)
        return name

    return copied(take)


def session_name(log: str) -> str:
    """Return a session's name from its log's, whose bytes need not be text."""
    return os.fsencode(Path(log).stem).decode(errors="replace")


def is_session(path: str) -> bool:
    """Return whether a file is an archive or a session document, sound or not."""
    return archived_session(path) is not None or _document_in(path) is not None


def _document_in(path: str) -> dict[str, Any] | None:
    """Return the session document in a file, None for any other file."""
    try:
        file = File(path, Path(path))
        if not file.may_be_document():  # a log, which may be long
            return None
        found = decode(file.read(), path)
    except (OSError, UnreadableError):
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT else None


def parse_document(data: bytes, name: str) -> SessionState:
    """Return the document in some bytes; `name` is their origin in errors."""
    limits = archive_limits()
    if len(data) > (most := limits.document_bytes):
        what = f"{name} has {len(data):,} bytes"
        raise UnreadableError(f"{what}, a document at most {most:,}; use an archive of it")
    document = decode(text_of(data, name), name)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UnreadableError(
            f"{name} is not a memman session; `memman import LOG -o S.json` makes one of a log"
        )
    return SessionState.from_json(document, limits=limits)


def save_changed(opened: Session, source: str, to: str, force: bool = False) -> None:
    """Save a changed session, unless the change was made in its database."""
    if to != source or not is_database(source):
        save(opened.state, to, force)


def save(state: SessionState, path: str, force: bool = False) -> int:
    """Write the document to a file, or to stdout for "-"; return its size in bytes.

    Raises `UnusableError` if the file must not be overwritten (see `check_target`) or cannot be written.
    """
    data = document_bytes(state, indent=2) + b"\n"
    if path == STDIN:
        write_json(data)
        return len(data)
    check_target(path, state.session_id, force)
    if is_archive_name(path) or archived_session(path) is not None:
        memory = quiet_manager()
        return write_archive(memory, memory.import_session(state), path).bytes
    try:
        with replacing(resolved(path)) as file:
            file.write(data)
    except OSError as error:
        raise cannot_write(path, error) from None
    return len(data)


def resolved(path: str) -> Path:
    """Return the file that a link leads to; a link to nothing is replaced itself."""
    target = Path(path)
    return target.resolve() if file_mode(target) else target


def target_of(session: str, output: str | None, in_place: bool, as_json: bool) -> str:
    """Return the file for a changed session, "-" for stdout. Raises `UnusableError`."""
    if in_place and output is not None:
        raise UnusableError("-o and --in-place contradict each other: give one of the two")
    to = session if in_place else output
    if to is None:
        raise UnusableError("name the file for the result: -o FILE, or --in-place for S itself")
    if to == STDIN and in_place:
        raise UnusableError("stdin cannot be written back to; use -o FILE, or -o - for stdout")
    if to == STDIN and as_json:
        raise UnusableError("-o - and --json both want stdout; name a file for the session")
    return to


def check_target(path: str, session_id: str, force: bool = False) -> None:
    """Raise `UnusableError` if the file exists and does not hold this session.

    `force` allows another session, but never a file without a session.
    """
    if path == STDIN:
        return
    if is_database(path):
        raise UnusableError(
            f"{without_password(path)} is a database: its own sessions are changed with "
            "--in-place, another one goes into a session file"
        )
    if not file_mode(path):
        return
    held = archived_session(path)
    if held is None and Path(path).is_file() and (document := _document_in(path)) is not None:
        held = document.get("session_id", "")
    if held is None:
        raise UnusableError(
            f"{path} exists and is not a memman session, so it is not overwritten; choose another "
            "name with -o"
        )
    if held != session_id and not force:
        raise UnusableError(f"{path} holds session {held!r}; choose another name, or --force")
