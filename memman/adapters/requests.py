"""The requests of a framework's agent. Budget, refusals and usage follow the model of each request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Protocol, TypeVar

from cachetools import LRUCache, cached

from memman.core.methods import AsyncMethods
from memman.errors import ConfigError, InvalidInput, SessionNotFound
from memman.manager import MemoryManager
from memman.results import Context

_logger: Final = logging.getLogger("memman")
_MOST_REFUSALS: Final = 10  # in a row: each makes the next attempt at least a quarter shorter
_MOST_SESSIONS: Final = 1_000

T = TypeVar("T")


def methods_of(memory: object) -> AsyncMethods:
    """Return the methods of a manager to await, `memory.aio`.

    Raises:
        InvalidInput: `memory` has no such methods.
    """
    found = getattr(memory, "aio", None)
    if not isinstance(found, AsyncMethods):
        raise InvalidInput(f"memory must be a MemoryManager, not {type(memory).__name__}")
    return found


class Run(Protocol):
    """Runs a coroutine over the methods of a manager in the caller's thread, without an event loop."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


def blocking(memory: object) -> tuple[AsyncMethods, Run]:
    """Return a manager's async methods, and a function that runs their coroutines in this thread.

    A framework without async writes `run(ModelRequests(methods, session_id).build(...))`.

    Returns:
        The methods, and the function `run`.

    Raises:
        InvalidInput: `memory` is not a `MemoryManager`.
    """
    if not isinstance(memory, MemoryManager):
        raise InvalidInput(f"memory must be a MemoryManager, not {type(memory).__name__}")
    return memory._methods, memory._runtime.run  # noqa: SLF001 - adapters alone need both


def kept_by_session(make: Callable[[str], T]) -> Callable[[str], T]:
    """Return a function of a session's id that makes an object once, and keeps those of the newest ones.

    A tool `recall` must be kept, since notices name it as long as it exists.

    Args:
        make: makes the object of a session, as `recall_tool` of a manager does.
    """
    return cached(LRUCache[Any, T](_MOST_SESSIONS), lock=Lock())(make)


@dataclass
class ModelRequests:
    """The requests of one session, one after the other.

    A refusal or a usage belongs to the last request's model.

    Args:
        memory: the methods of a manager, `memory.aio`.
        session_id: the session; "" for requests that no session has, whose usage is not recorded.
        model: the model of the last request.
        tokens: the tokens of the last request, 0 before the first.
    """

    memory: AsyncMethods
    session_id: str
    model: str | None = None
    tokens: int = 0
    _refusals: int = field(default=0, init=False)  # of this model, since it accepted a request

    async def build(self, model: object, *, window: object = None, **options: Any) -> Context:
        """Return the context of a request: the session's, or with `messages` that of these alone.

        Args:
            model: the name that the framework sends; anything but a text counts as no name.
            window: the tokens of the model's window, if the framework knows them; anything but a number
                above 1 counts as unknown.
            options: other arguments of `build_context`, or with `messages` of `fit_messages`.

        Returns:
            The context; an empty one if the session does not exist yet.

        Raises:
            BudgetExceeded: the shortest context exceeds the budget.
            InvalidInput: an option is invalid, or there is neither a session nor `messages`.
        """
        asked, self.model = self.model, model if isinstance(model, str) and model else None
        self._refusals = self._refusals if asked == self.model else 0
        options["model"] = self.model
        options["window"] = window if isinstance(window, int) and window > 1 else None  # no bool
        if "messages" in options:
            context = await self.memory.fit_messages(**options)
        else:
            context = await self.memory.build_context(self.session_id, missing_ok=True, **options)
        self.tokens = int(context.tokens)
        return context

    async def is_too_long(self, error: BaseException | str, *, is_known: bool = False) -> bool:
        """Learn from the refusal of the last request; return whether to build and send it again, shorter.

        Args:
            error: the framework's or the provider's.
            is_known: whether the framework itself has classified it as a refusal for length.
        """
        said = f"context_length_exceeded: {error}" if is_known else error
        self._refusals += 1
        try:
            found = await self.memory.record_overflow(
                said, model=self.model, tokens=self.tokens or None
            )
        except ConfigError as fault:
            _logger.warning("the limit in a refusal cannot be kept: %s", fault)
            return False
        return found.limits is not None and self._refusals <= _MOST_REFUSALS

    async def record_usage(self, usage: Any = None, **tokens: int | None) -> None:
        """Record the usage of the last request, as the manager's method does; never fail because of it."""
        self._refusals = 0
        try:
            if self.session_id:
                await self.memory.record_usage(self.session_id, usage, model=self.model, **tokens)
        except (InvalidInput, SessionNotFound) as error:  # the run matters more
            _logger.warning("the usage of a response was not recorded: %s", error)
