"""Reading the log on from a reader's cursor: of one session, or of every session of a store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from memman import events
from memman.display import safe_repr
from memman.entries import check_id
from memman.errors import InvalidInput, SessionNotFound, StoreError
from memman.protocols import FeedItem
from memman.runtime.async_runtime import LoopFlag
from memman.runtime.base import Flag
from memman.session.log import no_session
from memman.session.shared import Shared
from memman.session.store import CLOSED

_PAGE = 500
_MOST = 1_000_000  # records in one page, whatever limit is given
_DIGITS = 19
_LONGEST_PAUSE = 3_600.0  # seconds
_Run = Callable[[Coroutine[Any, Any, list[FeedItem]]], Awaitable[list[FeedItem]]]


class Feed:
    """The records after a cursor, page by page: of one session if its id is given, else of all."""

    def __init__(self, shared: Shared, session_id: str | None, after: int | str) -> None:
        self._shared = shared
        if session_id is None:
            if not isinstance(after, str):
                raise InvalidInput(
                    f"after must be a cursor of the feed, not {safe_repr(after, 60)}: a number "
                    "is a place in one session's log, so pass its session_id too"
                )
        else:
            session_id = check_id(session_id, "session_id")
            after = _seq(after)
        self.session_id = session_id
        self.after: Any = after  # a seq of one session, or a cursor of all; false at the beginning

    async def page(self, limit: int) -> list[FeedItem]:
        """Return the next records, at most `limit`."""
        limit = min(limit, _MOST)
        if self.session_id is None:
            items = list(await self._shared.store.feed(self.after, limit))
        else:
            items = await self._of_session(self.session_id, limit)
        if items:
            self.after = items[-1].cursor if self.session_id is None else items[-1].seq
        return items

    async def _of_session(self, session_id: str, limit: int) -> list[FeedItem]:
        store = self._shared.store
        state = await store.state(session_id)
        if state is None:
            raise no_session(session_id)
        if self.after > state[0]:
            raise InvalidInput(
                f"session {session_id!r} has {state[0]} records and never had one behind "
                f"{self.after}: it was deleted and created again, or the place is another session's"
            )
        if self.after == state[0]:
            return []
        found = await store.read(session_id, self.after, limit)
        return [FeedItem(session_id, seq, record, str(seq)) for seq, record in found]


class Follower:
    """A feed that waits for new records.

    It reads again after a pause that grows from the least to the most seconds of
    `poll`. Records of this manager end a pause, and so does `close`. A pause holds no lock and no
    connection.
    """

    def __init__(
        self,
        shared: Shared,
        session_id: str | None,
        after: int | str,
        poll: tuple[float, float],
        timeout: float | None,
    ) -> None:
        self._shared = shared
        self._feed = Feed(shared, session_id, after)
        self._least, self._most = _pauses(poll)
        if timeout is not None and not _is_number(timeout, 0, float("inf")):
            raise InvalidInput(f"timeout must be seconds or None, not {safe_repr(timeout, 60)}")
        self._timeout = float("inf") if timeout is None else timeout

    async def items(self) -> AsyncGenerator[FeedItem, None]:
        """Yield each record once, until the timeout or the manager's `close`.

        Raises `StoreError` if the manager was closed before.
        """
        if self._shared.closed:
            raise StoreError(CLOSED)
        with self._woken() as flag:
            pause, last = self._least, monotonic()
            while True:
                if self._shared.closed:
                    return
                page = await self._page()
                for item in page:
                    yield item
                now = monotonic()
                if page:
                    pause, last = self._least, now
                    continue
                left = self._timeout - (now - last)
                if left <= 0:
                    return
                woken = await self._wait(flag, min(pause, left))
                pause = self._least if woken else min(2 * pause, self._most)

    def _flag(self) -> Flag:
        return self._shared.runtime.flag()

    async def _wait(self, flag: Any, seconds: float) -> bool:
        return await self._shared.runtime.wait(flag, seconds)

    async def _page(self) -> list[FeedItem]:
        try:
            return await self._read(_PAGE)
        except SessionNotFound:
            if self._feed.after:
                raise
            return []  # not begun yet
        except StoreError:
            if self._shared.closed:
                return []
            raise

    async def _read(self, limit: int) -> list[FeedItem]:
        return await self._feed.page(limit)

    @contextmanager
    def _woken(self) -> Iterator[Flag]:
        """Return a flag that is set when this manager records something or closes."""
        shared, wanted, flag = self._shared, self._feed.session_id, self._flag()

        def wake(_sender: object, event: events.Event) -> None:
            if not event.remote and wanted in (None, event.session_id):
                flag.set()

        shared.flags.add(flag)
        for signal in events.LOG_SIGNALS.values():
            signal.connect(wake, sender=shared.sender)
        try:
            yield flag
        finally:
            shared.flags.discard(flag)
            for signal in events.LOG_SIGNALS.values():
                signal.disconnect(wake, sender=shared.sender)


class LoopFollower(Follower):
    """A follower over a sync runtime, for an event loop: `run` reads a page on a thread."""

    def __init__(self, run: _Run, *given: Any) -> None:
        super().__init__(*given)
        self._run = run

    def _flag(self) -> LoopFlag:
        return LoopFlag()

    async def _wait(self, flag: LoopFlag, seconds: float) -> bool:
        return await flag.wait(seconds)

    async def _read(self, limit: int) -> list[FeedItem]:
        return await self._run(super()._read(limit))


def _seq(after: int | str) -> int:
    """Return the seq of a place in a session's log, from a seq or a cursor of its feed."""
    if after == "":
        return 0
    if isinstance(after, str) and after.isascii() and after.isdigit() and len(after) < _DIGITS:
        return int(after)
    if isinstance(after, bool) or not isinstance(after, int) or after < 0:
        raise InvalidInput(
            f"after must be the seq of a record of the session, not {safe_repr(after, 60)}"
        )
    return after


def _pauses(poll: object) -> tuple[float, float]:
    if isinstance(poll, tuple | list) and len(poll) == 2:
        least, most = poll
        if _is_number(least, 0.001, _LONGEST_PAUSE) and _is_number(most, least, _LONGEST_PAUSE):
            return float(least), float(most)
    raise InvalidInput(
        "poll must be the shortest and the longest pause in seconds, as in (0.05, 2.0), "
        f"not {safe_repr(poll, 60)}"
    )


def _is_number(value: Any, least: float, most: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and least <= value <= most
