"""What a session tells: each event once, in the order of the log, outside of every lock but its own."""

from __future__ import annotations

import threading

from memman import events
from memman.records import Record
from memman.runtime import SyncLock
from memman.session.shared import Shared


class Telling:
    """A session's outbox: events are noted where they arise, and told when nothing is held any more."""

    __slots__ = ("_drain_lock", "_emission", "_outbox", "_shared", "_thread_lock", "_told", "id")

    def __init__(self, session_id: str, shared: Shared, thread_lock: threading.Lock) -> None:
        self.id = session_id
        self._shared = shared
        self._thread_lock = thread_lock
        self._outbox: list[events.Event] = []  # what is being told comes first
        self._emission: events.Emission | None = None
        self._drain_lock: SyncLock | None = None  # made when first needed
        # The seq of the last record that is to be told no more: its event was noted, or is not ours.
        self._told = 0

    def _queue(self, seq: int, record: Record) -> None:
        """Notes the event of a committed record, once, in log order."""
        if seq > self._told and events.LOG_SIGNALS[type(record)].receivers:
            self._note_event(seq, events.event_of(self.id, seq, record))

    def _note_event(self, seq: int, event: events.Event) -> None:
        """Notes the event of the record at a place, which is told no more."""
        self._told = seq  # one step with the next, in which no signal strikes
        self._outbox.append(event)

    def notice(self, event: events.Event) -> None:
        """Notes something that is not in the log."""
        if events.SIGNALS[type(event)].receivers:
            self._outbox.append(event)

    async def tell(self, event: events.Event | None = None) -> None:
        """Tells of something that is not in the log, and of what is still to be told."""
        if event is not None:
            self.notice(event)
        await self._drain()

    async def _drain(self) -> None:
        """Tells what is noted, to the end, whether or not this task is cancelled meanwhile."""
        if self._outbox:
            await self._shared.runtime.apart(self._tell_noted())

    async def _tell_noted(self) -> None:
        """Tells what is noted; one thread or task at a time, so that order is commit order."""
        while self._outbox:
            lock = self._telling()
            if not await lock.try_enter():
                return  # whoever is at it, perhaps this very task further up, goes on with ours
            try:
                await self._tell_each()
            finally:
                lock.heal()

    async def _tell_each(self) -> None:
        # An interruption, and a verb that a receiver calls, may leave an emission for another frame.
        while self._outbox:
            event, emission = self._outbox[0], self._emission
            if emission is None or emission.event is not event:
                emission = self._emission = events.Emission(self._shared.sender, event)
            await emission.go_on(self._shared.runtime.settle)
            if self._outbox and self._outbox[0] is event:
                del self._outbox[0]
                self._emission = None

    def _telling(self) -> SyncLock:
        if self._drain_lock is None:
            with self._thread_lock:
                self._drain_lock = self._drain_lock or SyncLock()
        return self._drain_lock
