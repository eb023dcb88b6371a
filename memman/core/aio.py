"""`memory.aio`: the methods of a `MemoryManager`, awaited in any event loop.

Each call runs on a thread of its own. A pool could run out of threads, since the receiver of an event may
await the memory again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, Concatenate, ParamSpec, TypeVar

from memman.core.core import Core
from memman.core.methods import AsyncMethods
from memman.errors import WrongEventLoop
from memman.protocols import FeedItem
from memman.recall import AsyncRecallTool
from memman.runtime import SyncRuntime
from memman.runtime.port_loop import calling_loop
from memman.runtime.threads import start_in_thread

logger = logging.getLogger("memman")
P = ParamSpec("P")
T = TypeVar("T")
_NO_LOOP = (
    "memory.aio needs a running event loop of asyncio (or uvloop): under trio, and without a loop, call "
    "the methods of the MemoryManager itself, for example by trio.to_thread.run_sync"
)


class ThreadedMethods(AsyncMethods):
    """The methods of a `MemoryManager`, for any number of event loops and threads.

    A call whose task is cancelled goes on in its thread, to its end.
    """

    def __init__(self, core: Core, runtime: SyncRuntime) -> None:
        super().__init__(core)
        self._methods = AsyncMethods(core)
        self._runtime = runtime

    def follow(
        self,
        session_id: str | None = None,
        *,
        after: int | str = "",
        poll: tuple[float, float] = (0.05, 2.0),
        timeout: float | None = None,
    ) -> AsyncGenerator[FeedItem, None]:
        """Iterate over records as `MemoryManager.follow` does; a pause holds no thread."""
        from memman.session.feed import LoopFollower

        shared = self._core.shared
        return LoopFollower(self._run, shared, session_id, after, poll, timeout).items()

    def recall_tool(
        self, session_id: str, *, name: str = "recall", max_tokens: int = 2_000
    ) -> AsyncRecallTool:
        """Return a tool as `MemoryManager.recall_tool` does, with calls to await."""
        tool = self._methods.recall_tool(session_id, name=name, max_tokens=max_tokens)
        return AsyncRecallTool.over(tool, self._run)

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine over the sync runtime on a thread, in the context of the caller."""
        import asyncio

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            work.close()
            raise WrongEventLoop(_NO_LOOP) from None
        context = copy_context()
        context.run(calling_loop.set, loop)  # receivers are awaited there
        result = context.run(start_in_thread, partial(self._runtime.run, work), "memman-aio")
        try:
            return await asyncio.wrap_future(result, loop=loop)
        except asyncio.CancelledError:
            result.add_done_callback(_log_failure)
            raise


def _log_failure(result: Future[Any]) -> None:
    """Log the error of a call whose caller was cancelled."""
    error = result.exception()
    if error is not None:
        logger.warning("a call failed after its caller was cancelled", exc_info=error)


def _threaded(
    method: Callable[Concatenate[AsyncMethods, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[ThreadedMethods, P], Coroutine[Any, Any, T]]:
    """Return a method that runs the same one of `AsyncMethods` on a thread."""

    @wraps(method)
    async def call(self: ThreadedMethods, /, *args: P.args, **kw: P.kwargs) -> T:
        return await self._run(method(self._methods, *args, **kw))

    return call


for _name, _method in vars(AsyncMethods).items():
    if iscoroutinefunction(_method) and not _name.startswith("_"):
        setattr(ThreadedMethods, _name, _threaded(_method))
