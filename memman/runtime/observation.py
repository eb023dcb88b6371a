"""The operations of a manager, as `memman-otel` observes them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

logger = logging.getLogger("memman")
T = TypeVar("T")


class Operation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An operation that is about to begin.

    Attributes:
        kind: "build" of a context, "fit" of messages, "compress", "summarize", "count" by a remote
            counter, or a "store" call.
        session_id: None if the operation concerns no single session.
        method: that of the store; of a compression "automatic" or "manual".
        model: of the session, the summarizer or the request; None if unknown.
        port: the store, the summarizer or the remote counter.
        request: the `SummaryRequest`, or the rendered request that is counted. It has text of the session.
    """

    kind: Literal["build", "fit", "compress", "summarize", "count", "store"]
    session_id: str | None = None
    method: str = ""
    model: str | None = None
    port: object = None
    request: object = None


End: TypeAlias = Callable[[Any, BaseException | None], object]
"""Takes the answer of an operation or the error that it raised, in the context of its beginning."""
Observer: TypeAlias = Callable[[Operation], End | None]
"""Called before an operation. It returns a function to call after it, or None."""


def observed(observer: Observer | None, operation: Operation, work: Awaitable[T]) -> Awaitable[T]:
    """Call the observer, and return `work` with the call of its `end`; to be awaited at once.

    Errors of the observer are logged.
    """
    if observer is None:
        return work
    try:
        end = observer(operation)
    except Exception:
        logger.exception("the observer failed before an operation")
        return work
    return work if end is None else _ended(work, end)


async def _ended(work: Awaitable[T], end: End) -> T:
    try:
        answer = await work
    except BaseException as error:
        _end(end, None, error)
        raise
    _end(end, answer, None)
    return answer


def _end(end: End, answer: object, error: BaseException | None) -> None:
    try:
        end(answer, error)
    except Exception:
        logger.exception("the observer failed after an operation")
