"""The requests of a framework's agent. Budget, refusals and usage follow the model of each request."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock
from typing import Any, Final, TypeVar

from cachetools import LRUCache, cached

from memman.core.methods import AsyncMethods
from memman.errors import ConfigError, InvalidInput, SessionNotFound
from memman.results import Context

_logger: Final = logging.getLogger("memman")
MOST_REFUSALS: Final = 10
"""Of one request: each makes the next attempt at least a quarter shorter."""
_MOST_SESSIONS: Final = 1_000

T = TypeVar("T")


def kept_by_session(make: Callable[[str], T]) -> Callable[[str], T]:
    """Return a function of a session's id that makes an object once, and keeps those of the newest ones.

    A tool `recall` must be kept, since notices name it as long as it exists.

    Args:
        make: makes the object of a session, as `recall_tool` of a manager does.
    """
    made: LRUCache[str, T] = LRUCache(_MOST_SESSIONS)
    return cached(made, lock=Lock())(make)


class ModelRequests:
    """The requests of one session, one after the other.

    A refusal or a usage belongs to the last request's model.

    Args:
        memory: the methods of a manager, `memory.aio`.
        session_id: the session.
    """

    def __init__(self, memory: AsyncMethods, session_id: str) -> None:
        self._memory = memory
        self._session_id = session_id
        self.model: str | None = None
        """The model of the last request."""
        self.tokens = 0
        """The tokens of the last request, 0 before the first."""
        self._refused, self._refusals = 0, 0  # the tokens of the last refused request; how often

    async def build(
        self, model: str | None, *, window: int | None = None, **options: Any
    ) -> Context:
        """Return the session's context for a model, an empty one without a session.

        Args:
            model: the name that the framework sends, None if it has none.
            window: the tokens of the model's window, if the framework knows them.
            options: other arguments of `build_context`.
        """
        context = await self._memory.build_context(
            self._session_id, model=model, window=window, missing_ok=True, **options
        )
        self.sent(model, context)
        return context

    def sent(self, model: str | None, context: Context) -> None:
        """Note a request that was built otherwise, as by `fit_messages`."""
        self.model, self.tokens = model, context.tokens.tokens

    async def is_too_long(self, error: BaseException | str, *, is_known: bool = False) -> bool:
        """Learn from the refusal of the last request; return whether to build and send it again, shorter.

        Args:
            error: the framework's or the provider's.
            is_known: whether the framework itself has classified it as a refusal for length.
        """
        said = f"context_length_exceeded: {error}" if is_known else error
        is_again = self.tokens < self._refused  # else it is another request
        self._refused, self._refusals = self.tokens, self._refusals + 1 if is_again else 1
        try:
            found = await self._memory.record_overflow(
                said, model=self.model, tokens=self.tokens or None
            )
        except ConfigError as fault:
            _logger.warning("the limit in a refusal cannot be kept: %s", fault)
            return False
        return found.limits is not None and self._refusals <= MOST_REFUSALS

    async def record_usage(self, usage: Any = None, **tokens: int | None) -> None:
        """Record the usage of the last request, as the manager's method does; never fail because of it."""
        try:
            await self._memory.record_usage(self._session_id, usage, model=self.model, **tokens)
        except (InvalidInput, SessionNotFound) as error:  # the run matters more
            _logger.warning("the usage of a response was not recorded: %s", error)
