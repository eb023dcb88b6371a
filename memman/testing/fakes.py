"""Fakes for tests: a clock, ids, summarizers, recorded events."""

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
"""A reply of a scripted summarizer: a text, an error to raise, a function, or a delayed one."""
_PATIENCE = 60.0  # seconds
_NEVER_SET = f"the event of a Delayed reply was not set in {_PATIENCE:.0f} s"


class FakeClock:
    """A clock that moves by `tick` at each call, and by `advance`."""

    def __init__(
        self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC), tick: timedelta = timedelta()
    ) -> None:
        self.now = now
        self.tick = tick

    def __call__(self) -> datetime:
        """Return the time; the manager's `clock=` takes this object."""
        self.now += self.tick
        return self.now

    def advance(self, by: timedelta) -> None:
        """Move the clock forward, or back by a negative time."""
        self.now += by


def sequential_ids(prefix: str = "id") -> Callable[[], str]:
    """Return a function for `new_id=` of a manager that makes readable ids: `id-1`, `id-2`, ..."""
    numbers = itertools.count(1)
    return lambda: f"{prefix}-{next(numbers)}"


class Delayed:
    """A reply that comes after `until` seconds, or when the event `until` is set.

    The event is a `threading.Event` for `ScriptedSummarizer` and an `asyncio.Event` for the async one.
    Waiting a minute raises `TimeoutError`, so that a forgotten event ends a test.
    """

    def __init__(self, reply: Reply, until: float | Event | AsyncEvent) -> None:
        self.reply = reply
        self.until = until

    def wait(self) -> None:
        """Wait on this thread."""
        if isinstance(self.until, float | int):
            time.sleep(self.until)
        elif not isinstance(self.until, Event):
            raise TypeError("ScriptedSummarizer waits for a threading.Event or for seconds")
        elif not self.until.wait(_PATIENCE):
            raise TimeoutError(_NEVER_SET)

    async def async_wait(self) -> None:
        """Wait in a task."""
        import asyncio

        if isinstance(self.until, float | int):
            await asyncio.sleep(self.until)
        elif not isinstance(self.until, asyncio.Event):
            raise TypeError("AsyncScriptedSummarizer waits for an asyncio.Event or for seconds")
        else:
            await asyncio.wait_for(self.until.wait(), _PATIENCE)


class _Script:
    """Replies in order, and the recorded requests."""

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
    """A summarizer that replies from a list and keeps its requests in `requests`.

    A reply is a text, a `SummaryReply`, an exception to raise (`asyncio.CancelledError()` cancels the
    call from within), a function of the request (`lambda request: request.prompt`), or one of these in a
    `Delayed`. The last one is repeated.
    """

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """Return the next reply."""
        reply = self._next(request)
        if isinstance(reply, Delayed):
            reply.wait()
            reply = reply.reply
        return self._given(reply, request)


class AsyncScriptedSummarizer(_Script):
    """The async `ScriptedSummarizer`; `cancelled` counts cancelled waits."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies)
        self.cancelled = 0

    async def summarize(self, request: SummaryRequest) -> SummaryReply:
        """Return the next reply."""
        reply = self._next(request)
        if isinstance(reply, Delayed):
            try:
                await reply.async_wait()
            except BaseException:
                self.cancelled += 1
                raise
            reply = reply.reply
        return self._given(reply, request)


@contextmanager
def record_events(
    sender: Any = ANY,
    kinds: Iterable[type[events.Event]] = tuple(events.SIGNALS.keys() - {events.Compressing}),
) -> Iterator[list[events.Event]]:
    """Yield the list of events of `kinds` that `sender` (any by default) emits inside the block.

    By default these are all but `Compressing`, which makes each compression plan twice.
    """
    received: list[events.Event] = []

    def receive(_sender: Any, *, event: events.Event) -> None:
        received.append(event)

    signals = [events.SIGNALS[kind] for kind in kinds]
    for signal in signals:
        signal.connect(receive, sender=sender)
    try:
        yield received
    finally:
        for signal in signals:
            signal.disconnect(receive)  # from every sender: with one, blinker keeps a trace of it
