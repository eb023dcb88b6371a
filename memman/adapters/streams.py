"""memman's events in the stream that a framework's user interface reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Final

from memman import events

_STREAMED: Final = (events.compressing, events.compressed, events.context_trimmed)
_receiver: ContextVar[object] = ContextVar("memman_stream", default=None)  # of this block


@contextmanager
def streamed(write: Callable[[dict[str, Any]], object] | None) -> Iterator[None]:
    """Write what memman does to the context within this block into a framework's stream.

    These are the events `compressing`, `compressed` and `context_trimmed` that calls inside the block
    cause, as `memman.events.as_ag_ui` returns them. The first precedes a pause. A block inside another one
    adds nothing. A block must not contain a `yield`, and threads that it starts need its context
    (`contextvars.copy_context`), as those of `asyncio.to_thread` have it.

    Args:
        write: takes an event; maybe in another thread. None: nothing is written.
    """

    def pass_on(_sender: object, event: events.Event) -> None:
        if write is not None and _receiver.get() is pass_on:  # not that of another thread's block
            write(events.as_ag_ui(event))

    with ExitStack() as stack:
        if write is not None and _receiver.get() is None:
            for signal in _STREAMED:
                stack.enter_context(signal.connected_to(pass_on))
            stack.callback(_receiver.reset, _receiver.set(pass_on))
        yield
