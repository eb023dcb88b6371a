"""Databases of sessions: what names one, and which of their sessions a command is about."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from stat import S_ISFIFO

import click

from memman.cli.lines import STDIN
from memman.cli.problems import UnreadableError, UnusableError
from memman.cli.watching import watched
from memman.config import HARMLESS, MemoryConfig
from memman.entries import file_mode
from memman.errors import StoreError
from memman.manager import MemoryManager
from memman.plugins import shared_plugins
from memman.protocols import SessionInfo, Store
from memman.runtime import SyncRuntime, drive
from memman.session.store import FullStore
from memman.stores import MemoryStore, is_url, open_store, without_password
from memman.summarizers import DIGEST

_ADOPTED = ("model", "reserve_output", *HARMLESS)
_MAGIC = b"SQLite format 3\x00"
_CHOSEN = "memman.cli.session"
_MOST_NAMED = 8


def is_database(path: str) -> bool:
    """Whether it is a store's URL, or a SQLite database, of whatever program."""
    if is_url(path):
        return True
    try:
        if not Path(path).is_file():  # to look into a pipe is to wait for it, and to take from it
            return False
        with Path(path).open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def check_database(path: str, otherwise: str) -> None:
    """Raises `UnreadableError` for what is no database, where one is wanted; `otherwise` is the way out."""
    if not is_database(path):
        check_readable(path)
        raise UnreadableError(f"{path} is no database; {otherwise}")


def check_readable(path: str) -> None:
    """Raises `UnreadableError` where there is no file to be a database, and says what there is."""
    if path == STDIN:
        raise UnreadableError("a database is not read from stdin: name its file")
    try:
        if S_ISFIFO(file_mode(path)):
            raise UnreadableError(f"{path} is a pipe, and a database is read from its file")
        with Path(path).open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise UnreadableError(f"cannot read {path}: {error.strerror or error}") from None
    if empty:
        raise UnreadableError(f"{path} is empty, and no database yet")


def check_file(path: str) -> None:
    """Raises `UnreadableError` for a database, where a file is wanted."""
    if is_database(path):
        raise UnreadableError(
            f"{without_password(path)} is a database, and this takes a file: `memman export DB --session "
            "ID -t memman-jsonl -o FILE` makes one of a session"
        )


def choose(context: click.Context, _parameter: click.Parameter, session_id: str | None) -> None:
    """Notes what `--session` says, for whoever loads a session in this run of a command."""
    context.meta[_CHOSEN] = session_id


def chosen() -> str | None:
    """The session that `--session` names, None where it was not given."""
    named: str | None = click.get_current_context().meta.get(_CHOSEN)
    return named


def quiet_manager(store: Store | None = None, model: str | None = None) -> MemoryManager:
    """A manager that changes nothing by itself: the commands compress when they are asked to.

    And no model that a session names is asked, nor needed for reading it. `model` is whose counter counts.
    """
    config = MemoryConfig(auto_compress=False, model=model)
    return MemoryManager(store, config=config, summarizer=DIGEST)


def copied(take: Callable[[MemoryManager], str]) -> tuple[MemoryManager, Store, str]:
    """Return a manager with a copy of one session, which `take` imports, its store, and the session's id.

    The session's settings become the manager's, without those that call anybody: its model only says whose
    local counter counts.
    """
    store = MemoryStore()
    memory = quiet_manager(store)
    imports = logging.getLogger("memman.imports")
    imports.addFilter(_nothing)  # the settings that it warns of take effect here
    try:
        session_id = take(memory)
    finally:
        imports.removeFilter(_nothing)
    snapshot = store.load(session_id)
    settings = {} if snapshot is None else snapshot.totals.settings
    memory.update_config(**{name: settings[name] for name in _ADOPTED if name in settings})
    return memory, store, session_id


def _nothing(_record: logging.LogRecord) -> bool:
    return False


def database(path: str, model: str | None = None) -> MemoryManager:
    """A manager on a database, which is made where there is none. Raises `StoreError`."""
    return _closing(quiet_manager(watched(open_store(path, shared_plugins)), model))


def opened(path: str) -> tuple[MemoryManager, Store, str]:
    """A manager on a database, its store, and the chosen session: the only one, or that of `--session`.

    Raises `UnreadableError` where it is no memman database, `UnusableError` where no session is meant.
    """
    store = watched(_there(path))
    memory = _closing(quiet_manager(store))
    ids = memory.list_sessions()
    wanted = chosen()
    if wanted is None and len(ids) == 1:
        return memory, store, ids[0]
    if wanted in ids:
        return memory, store, str(wanted)
    raise UnusableError(_which(path, ids, wanted))


def there(path: str) -> MemoryManager:
    """A manager on a database that must be there. Raises `UnreadableError`."""
    return _closing(quiet_manager(watched(_there(path))))


def _closing(memory: MemoryManager) -> MemoryManager:
    """The manager, which is closed when the command ends."""
    click.get_current_context().call_on_close(memory.close)
    return memory


def sessions_in(path: str) -> list[SessionInfo]:
    """The sessions of a database, in the order in which they began. Raises `UnreadableError`."""
    store = _there(path)
    try:
        return list(drive(FullStore(store, SyncRuntime()).sessions()))
    finally:
        store.close()


def _there(path: str) -> Store:
    """The store of a path or URL, which must be there. Raises `UnreadableError`."""
    try:
        return open_store(path, shared_plugins, create=False)
    except StoreError as error:
        raise UnreadableError(str(error)) from error


def _which(path: str, ids: list[str], wanted: str | None) -> str:
    path = without_password(path)
    if not ids:
        return f"{path} has no sessions"
    named = ", ".join(ids[:_MOST_NAMED]) + (" ..." if len(ids) > _MOST_NAMED else "")
    there = f"there are {len(ids):,}: {named}" if len(ids) > 1 else f"there is {named}"
    if wanted is None:
        return f"say which session of {path} with --session ID; {there}"
    return f"{path} has no session {wanted!r}; {there}"
