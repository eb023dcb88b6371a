"""Small stand-ins for what a test wants to hold still: time, ids, a summarizer, and who is told what."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from blinker import ANY

from memman import events
from memman.ports import SummaryReply, SummaryRequest

Reply = str | SummaryReply | Exception | Callable[[SummaryRequest], "str | SummaryReply"]


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


class ScriptedSummarizer:
    """A summarizer that answers from a list and keeps what it was asked in `requests`.

    A reply is a text, a `SummaryReply`, an exception to raise, or a function of the request. The last
    one is given again when the list is at its end.
    """

    def __init__(self, *replies: Reply) -> None:
        self.replies: tuple[Reply, ...] = replies or ("a summary",)
        self.requests: list[SummaryRequest] = []

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """The next reply."""
        reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
        self.requests.append(request)
        if isinstance(reply, Exception):
            raise reply
        answer = reply(request) if callable(reply) else reply
        return answer if isinstance(answer, SummaryReply) else SummaryReply(text=answer)


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
