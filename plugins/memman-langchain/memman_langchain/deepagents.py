"""memman's log as files of a deep agent, so that it reads again what left its context."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from deepagents.backends.protocol import (
    BackendProtocol,
    EditResult,
    FileData,
    FileInfo,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.utils import (
    compile_grep_include_glob,
    grep_matches_from_files,
    slice_read_response,
)
from langgraph._internal._constants import CONFIG_KEY_READ
from langgraph.config import get_config

from memman import Entry, EntryNotFound, MemoryManager, SessionNotFound, valid_id
from memman_langchain.log import session_key


class MemmanBackend(BackendProtocol):
    """A session's log as read-only files: entry #12, as stubs name it, is `/12.txt`.

        backend = CompositeBackend(
            default=StateBackend(), routes={"/history/": MemmanBackend(memory)}
        )
        agent = create_deep_agent(model, middleware=[MemmanSummarization(memory)], backend=backend)

    Args:
        memory: the manager.
        session_id: the session, or a function that returns it; by default the one of the running agent.
    """

    def __init__(
        self, memory: MemoryManager, session_id: str | Callable[[], str] | None = None
    ) -> None:
        self._memory = memory
        self._session_id = session_id

    def ls(self, path: str) -> LsResult:
        """Return the files; there are no folders."""
        return LsResult(entries=_infos(self._entries()) if path.strip("/") == "" else [])

    def read(self, file_path: str, offset: int = 0, limit: int = 2_000) -> ReadResult:
        """Return lines of an entry's text."""
        try:
            number = file_path.removeprefix("/").removesuffix(".txt")
            entry = self._memory.get_entry(self._session(), f"#{number}")
        except (EntryNotFound, SessionNotFound):
            return ReadResult(error=f"File '{file_path}' not found")
        return slice_read_response(_file(entry), offset, limit)

    def grep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        """Return the lines that contain a text."""
        files = {_path(entry): _file(entry) for entry in self._entries()}
        return grep_matches_from_files(files, pattern, path or "/", glob, max_count=max_count)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Return the files whose names match a pattern."""
        try:
            matches = compile_grep_include_glob(pattern)
        except ValueError as error:  # InvalidGlobPatternError
            return GlobResult(error=str(error))
        found = [entry for entry in self._entries() if matches(_path(entry)[1:])]
        return GlobResult(matches=_infos(found))

    def write(self, file_path: str, content: str) -> WriteResult:
        """Return an error: the log is read-only."""
        return WriteResult(error=_refusal(file_path))

    def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> EditResult:
        """Return an error: the log is read-only."""
        return EditResult(error=_refusal(file_path))

    def _entries(self) -> list[Entry]:
        try:
            return self._memory.get_entries(self._session())
        except SessionNotFound:
            return []

    def _session(self) -> str:
        if self._session_id is not None:
            named = self._session_id
            return named() if callable(named) else named
        where = get_config()["configurable"]
        # As deepagents' own StateBackend reads the state.
        branch = where[CONFIG_KEY_READ]("memman", False) or {}
        if "session" in branch:
            return str(branch["session"])
        if not where.get("thread_id"):
            raise SessionNotFound("a run without a thread has no session")
        return valid_id(session_key(where["thread_id"], where["checkpoint_ns"]))


def _refusal(file_path: str) -> str:
    return f"File '{file_path}' is part of the conversation's log, which cannot be changed"


def _path(entry: Entry) -> str:
    return f"/{entry.seq}.txt"


def _file(entry: Entry) -> FileData:
    return FileData(content=entry.text, encoding="utf-8", modified_at=entry.timestamp.isoformat())


def _infos(entries: Iterable[Entry]) -> list[FileInfo]:
    return [
        FileInfo(
            path=_path(entry),
            is_dir=False,
            size=len(entry.text.encode()),
            modified_at=entry.timestamp.isoformat(),
        )
        for entry in entries
    ]
