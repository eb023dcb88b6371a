"""Sessions on disk: in documents, which are written whole or not at all, and in databases."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from memman.archive import FORMAT, SessionState, document_bytes, records_of
from memman.cli.archives import (
    archived_session,
    is_archive_name,
    limits,
    read_archive,
    spooled,
    write_archive,
)
from memman.cli.databases import check_readable, chosen, copied, is_database, opened, quiet_manager
from memman.cli.effective import Effective, Wanted, effective, settle
from memman.cli.lines import STDIN, File, decode, read_bytes, text_of
from memman.cli.logs import MOST_IN_DOCUMENT
from memman.cli.output import write_json
from memman.cli.problems import UnreadableError, UnusableError
from memman.cli.reading import is_log, log_in
from memman.entries import Entry, file_mode
from memman.explain import LogHistory
from memman.files import replacing
from memman.manager import MemoryManager
from memman.protocols import Store
from memman.stores import without_password


class Session:
    """A session that was read, in a manager of its own; `is_log` if it was read from a plain log.

    `model` and `budget` are what the command was asked to show it with.
    """

    def __init__(
        self,
        memory: MemoryManager,
        store: Store,
        session_id: str,
        wanted: Wanted,
        is_log: bool = False,
    ) -> None:
        self.memory = memory
        self.id = session_id
        self.is_log = is_log
        self._settled = settle(memory, store, session_id, wanted)

    @property
    def effective(self) -> Effective:
        """The settings that it is shown with."""
        return effective(self.memory, self.id, self._settled)

    @cached_property
    def places(self) -> dict[str, Entry]:
        """The window's entries by id: what may stand for a compressed one."""
        return {entry.id: entry for entry in self.memory.get_active_entries(self.id)}

    @property
    def history(self) -> LogHistory:
        """What its log tells of entries and compressions, as it is now."""
        return LogHistory(list(enumerate(records_of(self.state), 1)))

    @property
    def state(self) -> SessionState:
        """The document as it is now."""
        return self.memory.export_session(self.id)


def load(
    path: str, model: str | None = None, budget: int | None = None, *, to: str | None = None
) -> Session:
    """The session in a file, or on stdin for "-": a document's, the chosen one of a database, or a log.

    It is a copy, unless the result goes `to` the very database: then what is done is done in it.
    It is shown with the limits and the counter of `model` and with `budget`; without these as `settle`
    finds them. Raises `UnreadableError`, `StateError`, or `UnusableError` for a log that is to be changed
    in its place.
    """
    wanted = Wanted(model, budget)
    if path != STDIN and is_database(path):
        memory, store, session_id = opened(path)
        if to == path:
            return Session(memory, store, session_id, wanted)
        return _imported(memory.export_session(session_id), wanted)
    if chosen() is not None:
        check_readable(path)
        raise UnusableError("--session chooses among the sessions of a database, and S is none")
    local, name = spooled(path), "stdin" if path == STDIN else path
    if archived_session(local) is not None:
        return Session(*copied(lambda memory: read_archive(memory, local)), wanted)
    if is_session(local):
        return _imported(document_of(read_bytes(local), name), wanted)
    file = File(name, Path(local))
    if not is_log(file):
        return _imported(document_of(file.read(), name), wanted)
    if to == path:
        raise UnusableError(f"{name} is a log and stays as it is: name a session file with -o")
    return _of_log(file, wanted)


def _imported(state: SessionState, wanted: Wanted) -> Session:
    return Session(*copied(lambda memory: memory.import_session(state)), wanted)


def _of_log(file: File, wanted: Wanted) -> Session:
    """The messages of a log as a session that is kept nowhere."""
    name = session_name(file.name)

    def filled(memory: MemoryManager) -> str:
        log_in(file).fill(memory, name, {}, MOST_IN_DOCUMENT)
        return name

    return Session(*copied(filled), wanted, is_log=True)


def session_name(log: str) -> str:
    """A session's name from its log's, whose bytes need be no text."""
    return os.fsencode(Path(log).stem).decode(errors="replace")


def is_session(path: str) -> bool:
    """Whether a file is an archive or a session document, sound or not."""
    if archived_session(path) is not None:
        return True
    found = _document(Path(path))
    return isinstance(found, dict) and found.get("format") == FORMAT


def document_of(data: bytes, name: str) -> SessionState:
    """The document in some bytes; `name` says in errors where they came from."""
    if len(data) > (most := limits().document_bytes):
        what = f"{name} has {len(data):,} bytes"
        raise UnreadableError(f"{what}, and a document at most {most:,}; ask for an archive of it")
    text = text_of(data, name)
    document = decode(text, name)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UnreadableError(
            f"{name} is not a memman session; `memman import LOG -o S.json` makes one of a log"
        )
    return SessionState.from_json(document, limits=limits())


def write(opened: Session, source: str, to: str, force: bool = False) -> None:
    """Saves a session that was changed; in a database it was written as it changed."""
    if to != source or not is_database(source):
        save(opened.state, to, force)


def save(state: SessionState, path: str, force: bool = False) -> int:
    """Writes the document to a file, or to stdout for "-"; returns its size in bytes.

    Raises `UnusableError` when the file must not be overwritten (see `check_target`) or written.
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
        with replacing(behind_links(path)) as file:
            file.write(data)
    except OSError as error:
        raise UnusableError(f"cannot write {path}: {error.strerror or error}") from None
    return len(data)


def behind_links(path: str) -> Path:
    """The checked file that a link leads to; a link to nothing is itself what is replaced."""
    target = Path(path)
    return target.resolve() if file_mode(target) else target


def target_of(session: str, output: str | None, in_place: bool, as_json: bool) -> str:
    """The file that a changed session goes to, "-" for stdout. Raises `UnusableError` unless it is said."""
    if in_place and output is not None:
        raise UnusableError("-o and --in-place contradict each other: give one of the two")
    to = session if in_place else output
    if to is None:
        raise UnusableError("say where the result goes: -o FILE, or --in-place for S itself")
    if to == STDIN and in_place:
        raise UnusableError("stdin cannot be written back to; use -o FILE, or -o - for stdout")
    if to == STDIN and as_json:
        raise UnusableError("-o - and --json both want stdout; name a file for the session")
    return to


def check_target(path: str, session_id: str, force: bool = False) -> None:
    """Raises `UnusableError` when the file exists and is something else than this session.

    `force` allows another session, never a file that is none.
    """
    if path == STDIN:
        return
    if is_database(path):
        raise UnusableError(
            f"{without_password(path)} is a database: a session of its own is changed with "
            "--in-place, another one goes into a session file"
        )
    target = Path(path)
    if not file_mode(target):
        return
    held = archived_session(path)
    document = _document(target) if target.is_file() and held is None else None
    if isinstance(document, dict) and document.get("format") == FORMAT:
        held = document.get("session_id")
    elif held is None:
        raise UnusableError(
            f"{path} exists and is not a memman session, so it is not overwritten; choose another "
            "name with -o"
        )
    if held != session_id and not force:
        raise UnusableError(f"{path} holds session {held!r}; choose another name, or --force")


def _document(target: Path) -> Any:
    try:
        if not File(str(target), target).may_be_document():  # a log, which may be long
            return None
        return msgspec.json.decode(target.read_bytes())
    except (OSError, UnreadableError, msgspec.DecodeError, UnicodeError, RecursionError):
        return None
