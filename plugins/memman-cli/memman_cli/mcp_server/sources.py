"""The sources of a server: databases, and files whose sessions are copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from tempfile import TemporaryDirectory
from typing import Final, Self

import msgspec

from memman.display import did_you_mean
from memman.errors import InvalidInput
from memman.manager import MemoryManager
from memman.protocols import SessionInfo
from memman.stores import is_url, without_password
from memman_cli.databases import existing_store, quiet_manager
from memman_cli.errors import UnreadableError
from memman_cli.files import cannot_read, is_database
from memman_cli.mcp_server.copies import Copies
from memman_cli.mcp_server.files import stem

ALL: Final = "*"
_PATIENCE: Final = 20.0  # seconds; clients give up on a call after 60


class Scope(msgspec.Struct, frozen=True):
    """Sessions of one manager: those whose ids begin with `prefix`, or the one with the id `session_id`.

    `label` begins their names, before a slash; "" for none.
    """

    memory: MemoryManager
    label: str
    session_id: str | None = None
    prefix: str = ""

    @property
    def pattern(self) -> str | None:
        """The argument `sessions` of `MemoryManager.search` for these sessions."""
        if self.session_id is not None:
            return self.session_id
        return f"{self.prefix}{ALL}" if self.prefix else None

    def name_of(self, session_id: str) -> str:
        """Return the name of one of the sessions."""
        return f"{self.label}/{session_id}" if self.label else session_id

    def sessions(self) -> list[SessionInfo]:
        """Return the sessions that the scope has."""
        found = self.memory.list_sessions(prefix=self.session_id or self.prefix)
        return [info for info in found if self.session_id in (None, info.session_id)]


class Sources:
    """The sessions of databases, files and folders, by name.

    Args:
        paths: databases (paths or URLs), session documents, archives, logs, and folders of these two.

    The name of a session is its id in a database, and for files the name of the file. If there are several
    sources it begins with that of the source, as in `chat.db/trip`.

    Raises:
        UnreadableError: a path does not exist, or a database cannot be read.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._stack = ExitStack()
        self._databases: list[Scope] = []
        files: dict[str, Path] = {}
        try:
            for label, path in _labelled(paths):
                if is_database(path):
                    self._databases.append(Scope(self._opened(path), label))
                else:
                    _check_readable(path)
                    files[label] = Path(path)
            self._copies = self._copied(files) if files else None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the databases and remove the copies."""
        self._stack.close()

    def count(self, text: str) -> int:
        """Return the estimated tokens of a text."""
        return self._managers()[0].memory.count_tokens(text).tokens

    @contextmanager
    def reading(self, name: str = "") -> Iterator[None]:
        """Bring the copies up to date, and keep them unchanged inside the context.

        `name` is the session that is needed; "" for all. A long time without an end is not waited for: see
        `unread`.
        """
        if self._copies is None:
            yield
            return
        self._copies.refresh(_PATIENCE, name)
        with self._copies.writing:
            yield

    @property
    def unread(self) -> int:
        """The number of files that have not been read yet."""
        return 0 if self._copies is None else self._copies.unread

    @property
    def faults(self) -> dict[str, str]:
        """The reasons why files cannot be read, by path."""
        return {} if self._copies is None else self._copies.faults

    def sessions(self, wanted: str = ALL) -> list[tuple[str, Scope, SessionInfo]]:
        """Return the sessions of a name or a pattern, each with its name, the most recent first."""
        found = [
            (scope.name_of(info.session_id), scope, info)
            for scope in self.scopes(wanted)
            for info in scope.sessions()
        ]
        return sorted(found, key=lambda each: each[2].last_active_at, reverse=True)

    def scopes(self, wanted: str = ALL) -> list[Scope]:
        """Return the sessions of a name, or of the beginning of a name and `*`, by their managers.

        Raises `InvalidInput` if there are none.
        """
        begin, star, rest = wanted.partition(ALL)
        if rest:
            raise InvalidInput(f"session {wanted!r}: a * may only be the last character")
        found = []
        for scope in self._managers():
            inside = f"{scope.label}/" if scope.label else ""
            if begin.startswith(inside):
                selected = {"prefix" if star else "session_id": begin.removeprefix(inside)}
                found.append(msgspec.structs.replace(scope, **selected))
            elif star and inside.startswith(begin):
                found.append(scope)
        found = [scope for scope in found if scope.sessions()]
        if not found and wanted != ALL:
            raise InvalidInput(self._unknown(wanted))
        return found

    def one(self, wanted: str) -> Scope:
        """Return the session of a name; "" is the only one. Raises `InvalidInput`."""
        if not wanted:
            names = [name for name, _, _ in self.sessions()]
            if len(names) != 1:
                raise InvalidInput(
                    f"name the session: there are {len(names):,}, and the tool stats lists them"
                )
            wanted = names[0]
        if ALL in wanted:
            raise InvalidInput(f"{wanted!r} may be several sessions: give the name of one")
        return self.scopes(wanted)[0]

    def _managers(self) -> list[Scope]:
        copies = [] if self._copies is None else [Scope(self._copies.memory, "")]
        return [*self._databases, *copies]

    def _unknown(self, wanted: str) -> str:
        names = [name for name, _, _ in self.sessions()]
        hint = did_you_mean(wanted.rstrip(ALL), names) or "; the tool stats lists them"
        unread = f" ({self.unread:,} files are not read yet)" if self.unread else ""
        return f"there is no session {wanted!r}{unread}{hint}"

    def _opened(self, path: str) -> MemoryManager:
        memory = quiet_manager(existing_store(path))
        self._stack.callback(memory.close)
        return memory

    def _copied(self, files: dict[str, Path]) -> Copies:
        folder = TemporaryDirectory(prefix="memman-", ignore_cleanup_errors=True)
        self._stack.callback(folder.cleanup)
        copies = Copies(files, Path(folder.name))
        self._stack.callback(copies.close)
        return copies


def _labelled(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each path with the beginning of its sessions' names, which is "" for a single source."""
    if len(paths) == 1:
        yield "", paths[0]
        return
    used: set[str] = set()
    for path in paths:
        shown = without_password(path).partition("?")[0] if is_url(path) else path
        name = Path(shown).name or Path(shown).resolve().name
        own = name = name if Path(path).is_dir() or is_database(path) else stem(name)
        number = 1
        while own in used:
            number += 1
            own = f"{name}-{number}"
        used.add(own)
        yield own, path


def _check_readable(path: str) -> None:
    try:
        mode = Path(path).stat().st_mode
        if S_ISREG(mode):
            Path(path).open("rb").close()
        elif not S_ISDIR(mode):
            raise UnreadableError(f"{path} is neither a file nor a folder")
    except OSError as error:
        raise cannot_read(path, error) from None
