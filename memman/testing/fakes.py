"""Small stand-ins for what a test wants to hold still: time, ids, a summarizer, and who is told what."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from blinker import ANY

from memman import events
from memman.protocols import SummaryReply, SummaryRequest

if TYPE_CHECKING:
    from asyncio import Event as AsyncEvent

Reply: TypeAlias = (
    "str | SummaryReply | BaseException | Callable[[SummaryRequest], str | SummaryReply] | Delayed"
)
"""What a scripted summarizer does when it is asked: answers, raises, works it out, or waits."""
_PATIENCE = 60.0  # seconds
_NEVER_SET = f"the event of a Delayed reply was not set in {_PATIENCE:.0f} s"


class FakeClock:
    """A clock that moves when told: by `tick` at each look, and by `advance`."""

    def __init__(
        self,
        now: datetime = datetime(2026, 1, 1, tzinfo=UTC),
        tick: timedelta = timedelta(),
    ) -> None:
        self.now = now
        self.tick = tick

    def __call__(self) -> datetime:
        """The time now; what `clock=` of a manager takes."""
        self.now += self.tick
        return self.now

    def advance(self, by: timedelta) -> None:
        """Moves on, or back with a negative time."""
        self.now += by


def sequential_ids(prefix: str = "id") -> Callable[[], str]:
    """Ids that a reader can follow: `id-1`, `id-2`, ...; what `new_id=` of a manager takes."""
    numbers = itertools.count(1)
    return lambda: f"{prefix}-{next(numbers)}"


class Delayed:
    """A reply that comes `until` seconds later, or when an event is set.

    An event is `threading.Event` for `ScriptedSummarizer`, `asyncio.Event` for the async one. Who
    waits a minute for it gets `TimeoutError`, so that a forgotten event ends a test.
    """

    def __init__(self, reply: Reply, until: float | Event | AsyncEvent) -> None:
        self.reply = reply
        self.until = until

    def wait(self) -> None:
        """Waits on this thread."""
        if isinstance(self.until, float | int):
            time.sleep(self.until)
        elif not isinstance(self.until, Event):
            raise TypeError("ScriptedSummarizer waits for a threading.Event or for seconds")
        elif not self.until.wait(_PATIENCE):
            raise TimeoutError(_NEVER_SET)

    async def async_wait(self) -> None:
        """Waits in a task."""
        import asyncio

        if isinstance(self.until, float | int):
            await asyncio.sleep(self.until)
        elif not isinstance(self.until, asyncio.Event):
            raise TypeError("AsyncScriptedSummarizer waits for an asyncio.Event or for seconds")
        else:
            await asyncio.wait_for(self.until.wait(), _PATIENCE)


class _Script:
    """Replies in their order, and what was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.replies: tuple[Reply, ...] = replies or ("a summary",)
        self.requests: list[SummaryRequest] = []
        self._numbers = itertools.count()

    def _next(self, request: SummaryRequest) -> Reply:
        number = next(self._numbers)
        self.requests.append(request)
        return self.replies[min(number, len(self.replies) - 1)]

    def _given(self, reply: Reply, request: SummaryRequest) -> SummaryReply:
        if isinstance(reply, BaseException):
            raise reply
        answer = reply(request) if callable(reply) else reply
        return (
            answer if isinstance(answer, SummaryReply) else SummaryReply(text=cast("str", answer))
        )


class ScriptedSummarizer(_Script):
    """A summarizer that answers from a list and keeps what it was asked in `requests`.

    A reply is a text, a `SummaryReply`, an exception to raise (`asyncio.CancelledError()` where the
    call is to be cancelled from within), a function of the request (`lambda request: request.prompt`),
    or one of these in a `Delayed`. The last one is given again when the list is at its end.
    """

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """The next reply."""
        reply = self._next(request)
        if isinstance(reply, Delayed):
            reply.wait()
            reply = reply.reply
        return self._given(reply, request)


class AsyncScriptedSummarizer(_Script):
    """`ScriptedSummarizer` for who awaits it; `cancelled` counts the waits that were called off."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies)
        self.cancelled = 0

    async def summarize(self, request: SummaryRequest) -> SummaryReply:
        """The next reply."""
        reply = self._next(request)
        if isinstance(reply, Delayed):
            answered = False
            try:
                await reply.async_wait()
                answered = True
            finally:
                self.cancelled += not answered
            reply = reply.reply
        return self._given(reply, request)


@contextmanager
def record_events(
    sender: Any = ANY, kinds: Iterable[type[events.Event]] = tuple(events.SIGNALS)
) -> Iterator[list[events.Event]]:
    """The events of `kinds` that `sender` (a manager; any by default) tells inside the block, in order."""
    told: list[events.Event] = []

    def receive(_sender: Any, *, event: events.Event) -> None:
        told.append(event)

    signals = [events.SIGNALS[kind] for kind in kinds]
    for signal in signals:
        signal.connect(receive, sender=sender)
    try:
        yield told
    finally:
        for signal in signals:
            signal.disconnect(receive)  # from every sender: with one, blinker keeps a trace of it
