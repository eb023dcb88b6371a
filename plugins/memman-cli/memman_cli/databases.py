"""Databases of sessions, and the managers that read and write them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISFIFO

import click

from memman.config import HARMLESS, MemoryConfig
from memman.entries import file_mode
from memman.errors import StoreError
from memman.manager import MemoryManager
from memman.plugins import shared_plugins
from memman.protocols import Store
from memman.stores import MemoryStore, open_store, without_password
from memman.summarizers import OUTLINE
from memman_cli.errors import UnreadableError, UnusableError
from memman_cli.files import STDIN, cannot_read, is_database
from memman_cli.options import chosen_session

_ADOPTED = ("model", "reserve_output", *HARMLESS)
_MOST_NAMED = 8


def check_database(path: str, otherwise: str) -> None:
    """Raise `UnreadableError` if a path is not a database; `otherwise` is the way out."""
    if not is_database(path):
        check_readable(path)
        raise UnreadableError(f"{path} is not a database; {otherwise}")


def check_readable(path: str) -> None:
    """Raise `UnreadableError` if a path cannot be a database, with the reason."""
    if path == STDIN:
        raise UnreadableError("a database cannot be read from stdin: name its file")
    try:
        if S_ISFIFO(file_mode(path)):
            raise UnreadableError(f"{path} is a pipe: name the file of a database")
        with Path(path).open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise cannot_read(path, error) from None
    if empty:
        raise UnreadableError(f"{path} is empty, and not a database yet")


def quiet_manager(store: Store | None = None, model: str | None = None) -> MemoryManager:
    """Return a manager that neither compresses by itself nor calls a model that a session names.

    `model` selects the token counter.
    """
    config = MemoryConfig(auto_compress=False, model=model)
    return MemoryManager(store, config=config, summarizer=OUTLINE)


def copied(take: Callable[[MemoryManager], str]) -> tuple[MemoryManager, Store, str]:
    """Return a manager with a copy of one session, which `take` imports, its store, and the session's id.

    The session's settings become the manager's, except those that could call a network or a program: its
    model only selects a local counter.
    """
    store = MemoryStore()
    memory = quiet_manager(store)
    with silent("memman.imports"):  # it warns of settings that take effect below
        session_id = take(memory)
    snapshot = store.load(session_id)
    settings = {} if snapshot is None else snapshot.totals.settings
    memory.update_config(**{name: settings[name] for name in _ADOPTED if name in settings})
    return memory, store, session_id


@contextmanager
def silent(name: str) -> Iterator[None]:
    """Drop what a logger logs."""

    def drop(_record: logging.LogRecord) -> bool:
        return False

    logger = logging.getLogger(name)
    logger.addFilter(drop)
    try:
        yield
    finally:
        logger.removeFilter(drop)


def create_database(path: str, model: str | None = None) -> MemoryManager:
    """Return a manager on a database, creating it if necessary. Raises `StoreError`."""
    return _closed_at_end(quiet_manager(open_store(path, shared_plugins), model))


def existing_store(path: str) -> Store:
    """Return the store of a database. Raises `UnreadableError` without one."""
    try:
        return open_store(path, shared_plugins, create=False)
    except StoreError as error:
        raise UnreadableError(str(error)) from error


def existing_database(path: str) -> tuple[MemoryManager, Store]:
    """Return a manager on a database, and its store. Raises `UnreadableError` without one."""
    store = existing_store(path)
    return _closed_at_end(quiet_manager(store)), store


def no_session_with(prefix: str) -> str:
    """Return the message if no session has an id with a prefix."""
    return f"no session id here begins with {prefix!r}"


def session_of_database(path: str) -> tuple[MemoryManager, Store, str]:
    """Return a manager on a database, its store, and its only session or that of `--session`.

    Raises `UnreadableError` for a database that is not memman's, `UnusableError` without such a session.
    """
    memory, store = existing_database(path)
    ids = [each.session_id for each in memory.list_sessions()]
    wanted = chosen_session()
    if wanted is None and len(ids) == 1:
        return memory, store, ids[0]
    if wanted in ids:
        return memory, store, str(wanted)
    raise UnusableError(_which(without_password(path), ids, wanted))


def _closed_at_end(memory: MemoryManager) -> MemoryManager:
    """Close the manager when the command ends."""
    click.get_current_context().call_on_close(memory.close)
    return memory


def _which(path: str, ids: list[str], wanted: str | None) -> str:
    if not ids:
        return f"{path} has no sessions"
    names = ", ".join(ids[:_MOST_NAMED]) + (" ..." if len(ids) > _MOST_NAMED else "")
    there = f"there are {len(ids):,}: {names}" if len(ids) > 1 else f"there is {names}"
    if wanted is None:
        return f"choose a session of {path} with --session ID; {there}"
    return f"{path} has no session {wanted!r}; {there}"
