"""The manager's access to its store: awaited methods, with defaults for the capabilities that it lacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from memman.errors import StoreError
from memman.protocols import (
    AsyncStore,
    Candidates,
    SearchRequest,
    Store,
    SupportsErase,
    SupportsFeed,
    SupportsFind,
    SupportsLease,
    SupportsSearch,
    SupportsSessions,
    SupportsState,
    SupportsVectors,
)
from memman.records import Added, Record, ids_made_by, ids_moved_by
from memman.runtime.base import Runtime
from memman.runtime.observation import Operation, observed
from memman.search import scan
from memman.search.vectors import ProcessVectors, Vector

P = ParamSpec("P")
T = TypeVar("T")
CLOSED = "this manager was closed, and nothing was changed: make another one"
_REQUIRED = ("append", "commit", "load", "read", "delete", "close")
_OPTIONAL = ("state", "find", "sessions", "feed", "lease", "erase", "search", "keep_vectors")
_OF_NO_SESSION = ("close", "sessions", "feed", "search")
_PAGE = 500


def store_methods(store: object) -> list[str]:
    """Return the names of the required methods and of those optional ones that the store has."""
    return [*_REQUIRED, *(name for name in _OPTIONAL if hasattr(store, name))]


class FullStore:
    """A store with every capability; each method is a coroutine that runs on the manager's runtime.

    A capability that the store lacks is derived from `load` and `read` if that is possible. Otherwise its
    method raises a `StoreError` that names it.
    """

    def __init__(self, store: Store | AsyncStore, runtime: Runtime) -> None:
        self.port = store
        self._store = cast("Store", store)  # the runtime awaits the methods of an `AsyncStore`
        self._runtime = runtime
        self._closed = False
        self._states: SupportsState | None = _with(store, "state")
        self._finds: SupportsFind | None = _with(store, "find")
        self._searches: SupportsSearch | None = _with(store, "search")
        self._leases: SupportsLease | None = _with(store, "lease")
        lists: SupportsSessions | None = _with(store, "sessions")
        feeds: SupportsFeed | None = _with(store, "feed")
        self._in_process = ProcessVectors()
        keeps: SupportsVectors = _with(store, "keep_vectors") or self._in_process
        erases: SupportsErase | None = _with(store, "erase")
        # The methods of the store, which a subclass or a caller may have replaced since.
        self.append = self._awaited(lambda: self._store.append)
        self.commit = self._awaited(lambda: self._store.commit)
        self.load = self._awaited(lambda: self._store.load)
        self.read = self._awaited(lambda: self._store.read)
        self.delete = self._awaited(lambda: self._store.delete, deletes=True)
        self.vectors = self._awaited(lambda: keeps.vectors)
        self._keep = self._awaited(lambda: keeps.keep_vectors)
        listing = "list its sessions"
        self.sessions = self._awaited(lambda: self._needed(lists, "sessions", listing).sessions)
        every = "follow all its sessions at once; name a session"
        self.feed = self._awaited(lambda: self._needed(feeds, "feed", every).feed)
        whole = "overwrite entries; delete the whole session"
        self.erase = self._awaited(lambda: self._needed(erases, "erase", whole).erase, deletes=True)

    def _awaited(
        self, method: Callable[[], Callable[P, T | Awaitable[T]]], deletes: bool = False
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return a coroutine function that calls a method of the store, which is found at each call."""

        async def call(*args: P.args, **kw: P.kwargs) -> T:
            try:
                return await self._call(method(), *args, **kw)
            finally:
                if deletes:
                    self._in_process.drop(args[0])

        return call

    def _call(
        self, method: Callable[P, T | Awaitable[T]], *args: P.args, **kw: P.kwargs
    ) -> Awaitable[T]:
        if self._closed:
            raise StoreError(CLOSED)
        call = self._runtime.call(self.port, method, *args, **kw)
        observer = self._runtime.observer
        if observer is None:
            return call
        name = getattr(method, "__name__", "")
        session_id: Any = None if name in _OF_NO_SESSION else args[0]
        operation = Operation(kind="store", session_id=session_id, method=name, port=self.port)
        return observed(observer, operation, call)

    async def close(self) -> None:
        """Close the store; every later call but another `close` raises `StoreError`."""
        if not self._closed:
            await self._call(self._store.close)
            self._closed = True

    # ------------------------------------------------------------ capabilities

    async def state(self, session_id: str) -> tuple[int, int] | None:
        """`SupportsState.state`, by default that of the snapshot."""
        if self._states is not None:
            return await self._call(self._states.state, session_id)
        snapshot = await self.load(session_id)
        return None if snapshot is None else (snapshot.head, snapshot.epoch)

    async def find(self, session_id: str, ids: Collection[str]) -> Sequence[tuple[int, Record]]:
        """`SupportsFind.find`, by default a walk through the log."""
        if self._finds is not None:
            return await self._call(self._finds.find, session_id, list(ids))
        found: list[tuple[int, Record]] = []
        after, wanted = 0, set(ids)
        while page := await self.read(session_id, after, _PAGE):
            found += [(seq, record) for seq, record in page if names_any(record, wanted)]
            after = page[-1][0]
        return found

    async def get(self, session_id: str, ids: Collection[str]) -> list[tuple[int, Record]]:
        """Return the newest record that made each of these ids, in log order."""
        return newest(await self.find(session_id, ids), ids, ids_made_by)

    async def hiding(self, session_id: str, ids: Collection[str]) -> list[tuple[int, Record]]:
        """Return the newest compression or deletion that hid each of these entries, in log order."""
        return newest(await self.find(session_id, ids), ids, ids_moved_by)

    async def lease(self, session_id: str, holder: str, seconds: float) -> bool:
        """`SupportsLease.lease`; by default everybody gets it, and two workers may pay for one summary."""
        if self._leases is not None:
            return await self._call(self._leases.lease, session_id, holder, seconds)
        return await self.state(session_id) is not None

    async def keep_vectors(
        self, session_id: str, embed: str, epoch: int, rows: Sequence[Vector]
    ) -> bool:
        """`SupportsVectors.keep_vectors`, by default in this process."""
        kept = await self._keep(session_id, embed, epoch, rows)
        state = await self.state(session_id)
        if state is None or state[1] != epoch:  # a deletion may have been faster
            self._in_process.drop(session_id, rows)
            return False
        return kept

    async def search(self, request: SearchRequest) -> Candidates:
        """`SupportsSearch.search`, by default a walk through the logs."""
        if self._searches is not None:
            return await self._call(self._searches.search, request)
        names = [request.session_id]
        if request.session_id is None:
            names = [info.session_id for info in await self.sessions(request.prefix)]
        records: list[tuple[str, int, Record]] = []
        for name in filter(None, names):
            after = 0
            while page := await self.read(name, after, _PAGE):
                records += [(name, seq, each) for seq, each in page if isinstance(each, Added)]
                after = page[-1][0]
        return scan(request, records)

    def _needed(self, capability: T | None, method: str, what: str) -> T:
        if capability is None:
            name = type(self.port).__name__
            raise StoreError(f"{name} has no method `{method}` and cannot {what}")
        return capability


def names_any(record: Record, ids: Collection[str]) -> bool:
    """Return whether a record made or hid one of these ids."""
    return any(name in ids for name in (*ids_made_by(record), *ids_moved_by(record)))


def newest(
    found: Iterable[tuple[int, Record]], ids: Collection[str], names: Callable[[Record], list[str]]
) -> list[tuple[int, Record]]:
    """Return, in log order, the last of the found records by each of the ids that `names` returns."""
    last: dict[str, tuple[int, Record]] = {}
    wanted = set(ids)
    for seq, record in found:
        last.update((name, (seq, record)) for name in names(record) if name in wanted)
    return [pair for _, pair in sorted({pair[0]: pair for pair in last.values()}.items())]


def _with(store: Any, method: str) -> Any:
    """Return the store if it has the method, else None."""
    return store if hasattr(store, method) else None
