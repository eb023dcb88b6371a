"""Copies of the sessions in files: a temporary database that a thread keeps up to date."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from memman.archive.document import SessionState
from memman.archive.limits import ArchiveLimits
from memman.entries import check_id
from memman.errors import MemmanError
from memman.manager import MemoryManager
from memman.stores import SQLiteStore
from memman_cli.archives import archived_records, archived_session, import_own_archive
from memman_cli.conversion import counter_for, records_of_log
from memman_cli.databases import quiet_manager, silent
from memman_cli.errors import UnreadableError
from memman_cli.files import File
from memman_cli.logs import log_in
from memman_cli.mcp_server.files import Version, files_under, stem, version_of, whole_lines
from memman_cli.sessions import is_session

T = TypeVar("T")
_PAUSE: Final = 4.0
"""A changed file is read again after this many times the seconds that reading it took."""

_PATIENCE: Final = 2.0

logger = logging.getLogger("memman.mcp_server")


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a file: the version that was read, and the reason why it could not be read."""

    path: Path
    version: Version | None = None
    fault: str = ""
    again_at: float = 0.0


class Copies:
    """The sessions of files and folders, copied into a temporary database.

    Args:
        roots: a file or a folder by its label, with which the names of its sessions begin; "" for none.
        folder: an empty private folder for the database. The caller removes it after `close`.

    A thread reads new and changed files, the newest first. The files themselves are never changed.
    """

    def __init__(self, roots: Mapping[str, Path], folder: Path) -> None:
        self.memory: MemoryManager = quiet_manager(SQLiteStore(str(folder / "sessions.db")))
        self._roots = dict(roots)
        self._folder = folder
        self._copies: dict[str, Copy] = {}
        self._due: list[str] = []  # names of files to be read, the next one last
        self._reading = ""
        self._change = threading.Condition()
        self._closed = False
        self.writing = threading.Lock()
        """Held while a session is replaced, and by readers of several of them."""
        self._thread = threading.Thread(target=self._read_all, name="memman-mcp", daemon=True)
        self._thread.start()

    def refresh(self, seconds: float, name: str = "") -> None:
        """Find new and changed files, and wait until they are read, at most this long.

        `name` is a session that is read first; then only its file is waited for.
        """
        found = self._found()
        now = time.monotonic()
        with self._change:
            for gone in self._copies.keys() - found.keys():
                del self._copies[gone]
                self._due = [each for each in self._due if each != gone]
                with self.writing:
                    self.memory.delete_session(gone, missing_ok=True)
            due = {each for each, path in found.items() if self._is_due(each, path, now)}
            due.update(self._due)
            self._due = sorted(due, key=lambda each: (each == name, _changed(found[each])))
            self._change.notify_all()

            def is_done() -> bool:
                left = {*self._due, self._reading} - {""}
                return self._closed or (name not in left if name in found else not left)

            self._change.wait_for(is_done, seconds)

    @property
    def unread(self) -> int:
        """The number of files that have not been read yet."""
        with self._change:
            return sum(not copy.version for copy in self._copies.values())

    @property
    def faults(self) -> dict[str, str]:
        """The reasons why files cannot be read, by path."""
        with self._change:
            return {str(copy.path): copy.fault for copy in self._copies.values() if copy.fault}

    def close(self) -> None:
        """Stop reading, and close the database."""
        with self._change:
            self._closed = True
            self._due.clear()
            self._change.notify_all()
        # An import of a large file may go on; it fails when the store closes.
        self._thread.join(_PATIENCE)
        self.memory.close()

    # ------------------------------------------------------------ files

    def _found(self) -> dict[str, Path]:
        """Return the files by the names of their sessions."""
        found: dict[str, Path] = {}
        for label, root in self._roots.items():
            if not root.is_dir():
                found[label or stem(root.name)] = root
                continue
            for path in files_under(root):
                parts = [label, *path.relative_to(root).parts[:-1]]
                begin = "".join(f"{part}/" for part in parts if part)
                # Two files may differ in their suffixes only.
                name = begin + stem(path.name)
                name = begin + path.name if name in found else name
                # A file's name is bytes that need not be text.
                found[name.encode(errors="surrogateescape").decode(errors="replace")] = path
        return found

    def _is_due(self, name: str, path: Path, now: float) -> bool:
        """Return whether a file must be read: it is new or another version, and not too soon."""
        copy = self._copies.setdefault(name, Copy(path=path))
        return copy.version is None or (copy.version != version_of(path) and now >= copy.again_at)

    # ------------------------------------------------------------ the thread

    def _read_all(self) -> None:
        while (name := self._next()) is not None:
            with self._change:
                copy = self._copies.get(name)
            if copy is None:
                continue
            began = time.monotonic()
            version, fault = version_of(copy.path), ""
            try:
                if version is None:
                    fault = "it is not a regular file, or cannot be read"
                elif version.size:
                    self._copy(name, copy.path, version)
            except _ClosedError:
                return
            except (MemmanError, OSError) as error:
                fault = str(error)
            except Exception as error:
                logger.exception("cannot read %s", copy.path)
                fault = f"reading it failed with {type(error).__name__}"
            now = time.monotonic()
            again_at = now + _PAUSE * (now - began)
            version = version or Version(0, 0, 0)
            with self._change:
                if name in self._copies:
                    self._copies[name] = Copy(
                        path=copy.path, version=version, fault=fault, again_at=again_at
                    )

    def _next(self) -> str | None:
        """Wait for a file to read and return its name, None at the end."""
        with self._change:
            self._reading = ""
            self._change.notify_all()
            self._change.wait_for(lambda: self._due or self._closed)
            if self._closed:
                return None
            self._reading = self._due.pop()
            return self._reading

    def _copy(self, name: str, path: Path, version: Version) -> None:
        """Replace the copy of a file's session. The old one stays if the file cannot be read."""
        check_id(name, "the name of a session")
        if archived_session(str(path)) is not None:
            self._copy_archive(name, path)
        elif is_session(str(path)):
            self._copy_document(name, path)
        else:
            self._copy_log(name, whole_lines(path, version.size))

    def _copy_log(self, name: str, file: File) -> None:
        log = log_in(file)
        records = records_of_log(log.read(), counter_for(log, self.memory))
        archived = archived_records(name, self._until_closed(records), self._folder)
        with archived as (archive, _), self.writing:
            self.memory.delete_session(name, missing_ok=True)
            import_own_archive(self.memory, archive, "fail")

    def _copy_document(self, name: str, path: Path) -> None:
        limits = ArchiveLimits()
        if (size := path.stat().st_size) > limits.document_bytes:
            raise UnreadableError(
                f"{path} has {size:,} bytes, a document at most {limits.document_bytes:,}; use an archive"
            )
        state = SessionState.from_json(path.read_bytes(), limits=limits)
        with self.writing, silent("memman.imports"):
            self.memory.delete_session(name, missing_ok=True)
            self.memory.import_session(msgspec.structs.replace(state, session_id=name))

    def _copy_archive(self, name: str, path: Path) -> None:
        with self.writing, silent("memman.imports"):
            found = self.memory.import_archive(path, on_conflict="new_session")
            if found != name:
                self.memory.delete_session(name, missing_ok=True)
                self.memory.fork_session(found, name)
                self.memory.delete_session(found)

    def _until_closed(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            if self._closed:
                raise _ClosedError
            yield item


class _ClosedError(Exception):
    """The copies are closed while a file is read."""


def _changed(path: Path) -> int:
    version = version_of(path)
    return 0 if version is None else version.changed
