"""The sessions that are in this process: few enough, and of the others the store has everything."""

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

_LOOK_EVERY = 32  # openings: the windows grow in between, and adding up their sizes takes a while
_ROOM = 10  # a tenth below a limit: sorting by last use is not done for each one that comes
_MOST_BACKOFFS = 1_000  # some hundred bytes each, of sessions whose summarizer was asked


class SessionCache:
    """Live sessions by id, the least recently used unloaded where they are too many or too large.

    Unloading deletes nothing: the next verb loads the session again, and a summarizer that failed is left
    alone for as long as if the session had stayed. One that is in the middle of something stays. One that a
    thread was given and has not begun with is what the next one is given too, though it was unloaded
    meanwhile: of two at once neither would know what the other writes. The limits are the manager's
    settings, looked at when a session is opened.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._openings = 0
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin without live sessions: in a child, threads of the parent may have held their locks."""
        self._live: dict[str, Session] = {}
        # Unloaded, and in use.
        self._left: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._moving = threading.Lock()  # from one to the other
        self._backoffs: OrderedDict[str, Backoff] = OrderedDict()  # of sessions that were unloaded

    def forget(self) -> None:
        """Gives out none of those that are live any more; who is in the middle of something has his own."""
        self._live = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._live.values()))

    def in_use(self) -> list[Session]:
        """Those that are live, and those that were unloaded while somebody had them."""
        return [*self, *self._left.values()]

    def find(self, session_id: str) -> Session | None:
        """The session if it is live."""
        try:
            session = self._live[session_id]
        except (KeyError, TypeError):  # what cannot be a key is no id, which is said elsewhere
            return None
        session.touch(self._shared.moment())
        return session

    def named(self, session_id: str) -> Session:
        """The session of this id, opened where it is not live; it need not exist yet.

        Raises `InvalidInput` for what is no id, `WrongEventLoop` in another event loop, and as `open` does.
        """
        self._shared.runtime.enter()
        return self.find(session_id) or self.open(check_id(session_id, "session_id"))

    async def known(self, session_id: str) -> Session:
        """Return the session of this id, with the events of all that was committed emitted.

        Raises `SessionNotFound` if there is none, which leaves nothing behind, and as `named` does.
        """
        self._shared.runtime.enter()
        session = self.find(session_id)
        if session is not None:
            await session.catch_up()
            return session
        session_id, shared = check_id(session_id, "session_id"), self._shared
        if await shared.store.state(session_id) is None:
            raise no_session(session_id, list(self._live))
        return self.named(session_id)

    async def catch_up(self, session_id: str | None) -> None:
        """Emit what was committed and not emitted yet: of one session, or of every live one."""
        for session in self:
            if session_id in (None, session.id):
                await session.catch_up()

    def open(self, session_id: str) -> Session:
        """The live session, made where there is none; others may be unloaded for it.

        Raises `StoreError` after the manager's `close`.
        """
        if self._shared.closed:
            raise StoreError(CLOSED)
        session = self._entered(session_id)
        self._openings += 1
        session.touch(self._shared.moment())
        self._make_room(session)
        return session

    def _entered(self, session_id: str) -> Session:
        with self._moving:
            session = self._live.get(session_id) or self._left.get(session_id)
            backoff = self._backoffs.pop(session_id, None)
            if session is None:
                session = Session(session_id, self._shared)
                if backoff is not None:
                    session.resume(backoff)
            self._live[session_id] = session
            self._left.pop(session_id, None)
        return session

    def _make_room(self, opened: Session) -> None:
        config = self._shared.config
        most = config.max_sessions
        too_many = most is not None and len(self._live) > most
        if not too_many and self._openings % _LOOK_EVERY:
            return
        ranked = sorted(self, key=lambda session: session.used_at)
        surplus = len(ranked) - most + most // _ROOM if most is not None and too_many else 0
        excess = _excess(sum(session.log.held_bytes for session in ranked), config.max_live_bytes)
        ttl = config.session_ttl
        for session in ranked:
            stale = ttl is not None and opened.used_at - session.used_at > ttl
            if surplus <= 0 and excess <= 0 and not stale:
                break
            if session is opened or not session.is_idle:
                continue
            surplus, excess = surplus - 1, excess - session.log.held_bytes
            self._unload(session, opened)

    def _unload(self, session: Session, opened: Session) -> None:
        with self._moving:
            self._left[session.id] = session
            self._live.pop(session.id, None)
        self._backoffs[session.id] = session.leave()
        if len(self._backoffs) > _MOST_BACKOFFS:
            self._backoffs.popitem(last=False)
        opened.outbox.notify(events.SessionEvicted(session_id=session.id))


def _excess(held: int, most: int | None) -> int:
    """The bytes that are to go so that there is room again; 0 where there is room."""
    return held - most + most // _ROOM if most is not None and held > most else 0
