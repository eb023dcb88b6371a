"""The cache of live sessions; the store has all of the others."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from weakref import WeakValueDictionary

from memman import events
from memman.entries import check_id
from memman.errors import StoreError
from memman.runtime.forks import renew_in_child
from memman.session.backoff import Backoff
from memman.session.log import no_session
from memman.session.session import Session
from memman.session.shared import Shared
from memman.session.store import CLOSED

_CHECK_EVERY = 32  # openings: adding up the sizes of all windows takes time
_SLACK = 10  # a tenth below a limit: so that not every opening sorts all sessions
_MOST_BACKOFFS = 1_000  # of evicted sessions
_ENTRY_BYTES = 1_000  # of the objects around an entry in the window


class SessionCache:
    """Live sessions by id. The least recently used are evicted if there are too many or too large ones.

    Nothing is lost: the next method loads the session again, and keeps the backoff of its summarizer. A
    busy session stays. If a thread still holds an evicted session, the next caller gets the same object:
    two live copies would not see each other's writes. The limits are settings of the manager, checked
    when a session is opened.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._openings = 0
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin without live sessions: in a forked child, threads of the parent may hold their locks."""
        self._live: dict[str, Session] = {}
        # Evicted, and still in use.
        self._evicted: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._moving = threading.Lock()  # between the two
        self._backoffs: OrderedDict[str, Backoff] = OrderedDict()  # of evicted sessions

    def forget(self) -> None:
        """Forget all sessions; calls under way keep theirs."""
        self._live = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._live.values()))

    def find(self, session_id: str) -> Session | None:
        """Return the session if it is live."""
        try:
            session = self._live[session_id]
        except (KeyError, TypeError):  # `check_id` refuses what cannot be a key
            return None
        session.touch(self._shared.moment())
        return session

    def get(self, session_id: str) -> Session:
        """Return the session of this id, opened if it is not live. It need not exist yet.

        Raises `InvalidInput` for an invalid id, `WrongEventLoop` in another event loop, and as `open` does.
        """
        self._shared.runtime.enter()
        return self.find(session_id) or self.open(check_id(session_id, "session_id"))

    async def existing(self, session_id: str) -> Session:
        """Return an existing session, after emitting the events of all its committed records.

        Raises `SessionNotFound` if it does not exist, and as `get` does.
        """
        self._shared.runtime.enter()
        session = self.find(session_id)
        if session is not None:
            await session.catch_up()
            return session
        session_id, shared = check_id(session_id, "session_id"), self._shared
        if await shared.store.state(session_id) is None:
            raise no_session(session_id, list(self._live))
        return self.get(session_id)

    async def catch_up(self, session_id: str | None) -> None:
        """Emit the pending events of one session, or of every live one."""
        for session in self:
            if session_id in (None, session.id):
                await session.catch_up()

    def open(self, session_id: str) -> Session:
        """Return the live session, created if there is none; others may be evicted for it.

        Raises `StoreError` after the manager's `close`.
        """
        if self._shared.closed:
            raise StoreError(CLOSED)
        with self._moving:
            session = self._live.get(session_id) or self._evicted.get(session_id)
            backoff = self._backoffs.pop(session_id, None)
            if session is None:
                session = Session(session_id, self._shared)
                if backoff is not None:
                    session.resume(backoff)
            self._live[session_id] = session
            self._evicted.pop(session_id, None)
        self._openings += 1
        session.touch(self._shared.moment())
        self._make_room(session)
        return session

    def _make_room(self, opened: Session) -> None:
        config = self._shared.config
        surplus = _excess(len(self._live), config.max_sessions)
        if not surplus and self._openings % _CHECK_EVERY:
            return
        ranked = sorted(self, key=lambda session: session.used_at)
        excess = _excess(sum(_held(session) for session in ranked), config.max_live_bytes)
        ttl = config.session_ttl
        for session in ranked:
            stale = ttl is not None and opened.used_at - session.used_at > ttl
            if surplus <= 0 and excess <= 0 and not stale:
                break
            if session is opened or not session.is_idle:
                continue
            surplus, excess = surplus - 1, excess - _held(session)
            self._evict(session, opened)

    def _evict(self, session: Session, opened: Session) -> None:
        with self._moving:
            self._evicted[session.id] = session
            self._live.pop(session.id, None)
        backoff = session.compressor.leave()
        if not backoff.is_new:
            self._backoffs[session.id] = backoff
        if len(self._backoffs) > _MOST_BACKOFFS:
            self._backoffs.popitem(last=False)
        opened.outbox.notify(events.SessionEvicted(session_id=session.id))


def _held(session: Session) -> int:
    """Estimate the bytes of a session's window: four a token, and the objects around its entries."""
    window = session.log.window
    return 4 * window.tokens + _ENTRY_BYTES * len(window.items)


def _excess(held: int, most: int | None) -> int:
    """Return how many sessions to evict, or bytes to free; 0 if the limit is kept."""
    return held - most + most // _SLACK if most is not None and held > most else 0
