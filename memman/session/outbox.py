"""The events of one session on their way to the receivers."""

from __future__ import annotations

from memman import events
from memman.records import Record
from memman.session.shared import Shared

_NOT_LOGGED = 0  # the seq of an event that is not in the log


class Outbox:
    """Emits each event of a session once, in log order, outside the session's other locks."""

    __slots__ = ("_emission", "_lock", "_pending", "_session_id", "_shared", "emitted")

    def __init__(self, session_id: str, shared: Shared) -> None:
        self._session_id = session_id
        self._shared = shared
        self._pending: list[tuple[int, events.Event]] = []  # with the record's seq
        self._emission: events.Emission | None = None  # of the first pending event
        self.emitted = 0  # the newest seq whose event was enqueued, or needs no event here
        self._lock = shared.runtime.lock()

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is pending and nothing is being emitted."""
        return not self._pending and self._lock.is_free()

    def enqueue(self, seq: int, record: Record) -> None:
        """Add the event of a committed record, unless it was added before."""
        if seq <= self.emitted or not events.LOG_SIGNALS[type(record)].receivers:
            return
        if all(seq != known for known, _ in self._pending):
            self._pending.append((seq, events.event_of(self._session_id, seq, record)))

    def skip_to(self, seq: int) -> None:
        """Take the events of all records up to `seq` as enqueued; `seq` may go back after a deletion."""
        self.emitted = seq

    def notify(self, event: events.Event) -> None:
        """Add an event that is not in the log."""
        if events.SIGNALS[type(event)].receivers:
            self._pending.append((_NOT_LOGGED, event))

    def notify_fallback(self, counter: str, reason: str) -> None:
        """Add the event that the estimator counted in place of a counter, for a reason."""
        self.notify(
            events.CountFellBack(session_id=self._session_id, counter=counter, reason=reason)
        )

    async def emit(self, event: events.Event) -> None:
        """Emit an event that is not in the log, after those that are pending."""
        self.notify(event)
        await self.flush()

    async def flush(self) -> None:
        """Emit all pending events, even if this task is cancelled."""
        if self._pending:
            await self._shared.runtime.shield(self._flush())

    async def _flush(self) -> None:
        """Emit the pending events in order; one thread or task at a time."""
        while self._pending:
            if not await self._lock.try_enter():
                return  # the current holder, perhaps this task further up, emits ours too
            try:
                # A receiver that calls the manager, or an interruption, may leave an emission to
                # another frame.
                while self._pending:
                    first = self._pending[0]
                    event, emission = first[1], self._emission
                    if emission is None or emission.event is not event:
                        emission = self._emission = events.Emission(self._shared.sender, event)
                    await emission.go_on(self._shared.runtime.await_receiver)
                    if self._pending and self._pending[0] is first:
                        self.emitted = max(self.emitted, first[0])
                        del self._pending[0]
                        self._emission = None
            finally:
                self._lock.release()
