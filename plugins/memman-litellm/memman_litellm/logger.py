"""`MemmanLogger`: fits each chat request of LiteLLM into its model's context window."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.types.utils import CallTypes

from memman import Memory, valid_id
from memman.adapters import ModelRequests, methods_of
from memman.formats.lenient import read_messages
from memman.providers import limits_of, model_ref
from memman_litellm.history import FORMAT, ClientHistory, messages_of, named, prompt_of

SessionOf: TypeAlias = Callable[[Mapping[str, Any]], str | None]
_NUMBERS: Final = count(1)
_logger: Final = logging.getLogger("memman")
_MOST: Final = 1_000  # sessions whose ids are remembered; others are compared with the log
_PATIENCE: Final = 100  # times 10 ms, for LiteLLM to log a stream that has ended


def session_of(request: Mapping[str, Any]) -> str | None:
    """Return the session that a request names, None without a name.

    It is `session_id` in the request's metadata, where the proxy puts the header `x-litellm-session-id`.
    On the proxy a session belongs to the caller's key: no other key reads it.

    Args:
        request: the arguments of `litellm.acompletion`.
    """
    metadata = request.get("metadata") or {}
    name, owner = metadata.get("session_id"), metadata.get("user_api_key_hash")
    if not name or metadata.get("litellm_session_id_generated"):
        return None
    return f"{name} {owner}" if owner else str(name)


@dataclass
class _Call:
    history: ClientHistory
    requests: ModelRequests
    has_ended: bool = False  # its stream; LiteLLM logs it a little later


class MemmanLogger(CustomLogger):
    """Keep requests of LiteLLM's clients inside the context window, and their conversations in sessions.

    A client sends its whole conversation with each request, as it does without memman. The session gets
    what is new in it, and the model gets the session's context. A request that names no session passes
    unaltered, and so does one that memman cannot fit: a warning of the logger `memman` says why.

    Args:
        memory: a `MemoryManager` or an `AsyncMemoryManager`. Each request's model decides its budget.
        session_of: returns the name of a request's session from the arguments of `litellm.acompletion`.
            Text that is no valid id becomes a digest.
    """

    def __init__(self, memory: Memory, *, session_of: SessionOf = session_of) -> None:
        super().__init__()
        # LiteLLM tells the callbacks of a class apart by their public numbers, and ignores equal ones.
        self.number = next(_NUMBERS)
        self._memory = methods_of(memory)
        self._session_of = session_of
        self._history = lru_cache(_MOST)(partial(ClientHistory, self._memory))
        self._calls = WeakValueDictionary[str, _Call]()

    # ------------------------------------------------------------ hooks of LiteLLM

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: CallTypes | None
    ) -> dict[str, Any] | None:
        """Log what is new, and replace the messages of a request by the session's context."""
        # With fallbacks, LiteLLM calls itself for each model.
        if call_type is not CallTypes.acompletion or kwargs.get("fallbacks"):
            return None
        try:
            name = self._session_of(kwargs)
            return None if name is None else await self._fitted(kwargs, valid_id(name))
        except Exception:
            _logger.warning("a request of LiteLLM is sent as it came", exc_info=True)
            return None

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: CallTypes | None
    ) -> None:
        """Log a reply and its usage."""
        await self.async_log_success_event(request_data, response, None, None)

    async def async_post_call_streaming_deployment_hook(
        self, request_data: dict[str, Any], response_chunk: object, call_type: CallTypes | None
    ) -> None:
        """Note that a stream has ended: its last chunk has come."""
        if (call := self._calls.get(request_data["litellm_call_id"])) is not None:
            call.has_ended = True

    async def async_log_success_event(
        self, kwargs: Mapping[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Log a reply and its usage, once: that of a stream comes here alone."""
        if (call := self._calls.get(call_id := kwargs["litellm_call_id"])) is None:
            return
        try:
            if not kwargs.get("cache_hit"):  # LiteLLM's own cache: nobody billed it
                await call.requests.record_usage(response_obj.usage.model_dump())
            if len(response_obj.choices) == 1:  # of several, the client takes one
                await call.history.add_reply(call_id, response_obj.choices[0].message)
        except Exception:
            _logger.warning("a response of LiteLLM is not logged", exc_info=True)
        finally:
            self._calls.pop(call_id, None)

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, *_: Any, **__: Any
    ) -> None:
        """Learn from a request that was too long. If LiteLLM sends it again, it is fitted again."""
        if (call := self._calls.get(request_data["litellm_call_id"])) is not None:
            await call.requests.is_too_long(exception)

    # ------------------------------------------------------------ parts

    async def _fitted(self, request: dict[str, Any], session_id: str) -> dict[str, Any]:
        """Return a request with the session's context as its messages."""
        own, call_id = request["messages"], request["litellm_call_id"]
        plain = [each.message for each in read_messages(list(own), keep=True)]
        start, prompt = prompt_of(plain)
        known = named(plain[start:], own[start:])
        history = self._history(session_id, asyncio.get_running_loop())
        for _ in range(_PATIENCE):
            if not ((last := self._calls.get(history.last_call)) and last.has_ended):
                break
            await asyncio.sleep(0.01)
        async with history.lock:
            await history.sync(call_id, known)
            # The same call again is another attempt of the Router's.
            requests = ModelRequests(self._memory, session_id)
            call = self._calls.setdefault(call_id, _Call(history, requests))
            request["litellm_logging_obj"].memman_call = call  # as long as the request lives
            model, window = _model_of(request)
            tools = request.get("tools")
            context = await call.requests.build(
                model, window=window, format=FORMAT, system=prompt, tools=tools, system_inline=False
            )
        return {**request, "messages": own[:start] + messages_of(context, known)}


def _model_of(request: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return the model of a request, and its window if the deployment or LiteLLM alone knows it."""
    info = request.get("model_info") or {}
    model = info.get("base_model") or request.get("model") or request["litellm_logging_obj"].model
    if "max_input_tokens" not in info and limits_of(model_ref(model)) is None:
        info = litellm.model_cost.get(model, {})
    return model, info.get("max_input_tokens")
