"""`MemmanHistory`: a capability that fits each request of an agent into its model's context window."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from threading import Lock
from typing import Any, Final

from cachetools import LRUCache
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, durable_operation
from pydantic_ai.exceptions import ModelContextWindowExceededError, RetryModelRequest
from pydantic_ai.messages import InstructionPart, ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.run import AgentRunResult
from pydantic_ai.usage import RequestUsage

from memman import Context, InvalidInput, Memory, SessionNotFound, valid_id
from memman_pydantic_ai.messages import NAME
from memman_pydantic_ai.mirror import Mirror

logger = logging.getLogger("memman")
_MOST_SESSIONS: Final = 256  # known without reading their logs again
_ESTIMATING: Final = ("function", "test")  # pydantic-ai estimates the usage of these models
_SHORTER: Final = 0.75  # of the refused context, if the provider named no limit


@dataclass
class MemmanHistory(AbstractCapability[Any]):
    """Keep an agent's requests inside the context window, and its conversation in a memman session.

    Before each request the session gets what is new in the history, and the request gets the session's
    context. The history stays as it is: `all_messages()` has every message.

    Args:
        memory: a `MemoryManager` or an `AsyncMemoryManager`, with the agent's model or with `max_tokens`.
        session_id: the memman session, for one conversation at a time; None for the id of the
            conversation, so that one capability serves all conversations.
        id: the name of the capability in durable execution.
    """

    memory: Memory
    session_id: str | None = None
    _: KW_ONLY
    id: str | None = "memman"
    _mirrors: LRUCache[str, Mirror] = field(
        default_factory=lambda: LRUCache(_MOST_SESSIONS), init=False, repr=False, compare=False
    )
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: a memory cannot be part of an agent's specification."""
        return None

    # ------------------------------------------------------------ hooks of pydantic-ai

    @durable_operation(name="prepare_model_request")
    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Log what is new, and replace the messages of this attempt by the session's context."""
        history = request_context.messages
        if isinstance(history[-1], ModelResponse):
            return request_context  # a suspended response: the provider continues it
        mirror = self._mirror(ctx)
        await mirror.sync(history)
        context = await self._context(ctx, mirror, request_context)
        if mirror.lacks(context):  # another process has continued the session
            await mirror.resync(history)
            context = await self._context(ctx, mirror, request_context)
        return replace(request_context, messages=mirror.messages_of(context, history))

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Record the usage of a request, which calibrates the counts."""
        usage = response.usage
        if usage.input_tokens and request_context.model.system not in _ESTIMATING:
            await self.record_usage(ctx, usage)
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Send a request that was too long for the model once more, shorter."""
        if request_context.attempt == 1:
            refused = isinstance(error, ModelContextWindowExceededError)
            if await self.learn_limit(ctx, str(error), refused):
                raise RetryModelRequest from error
        raise error

    async def after_run(
        self, ctx: RunContext[Any], *, result: AgentRunResult[Any]
    ) -> AgentRunResult[Any]:
        """Log the last messages of a run."""
        await self.log(ctx, result.all_messages())
        return result

    # ------------------------------------------------------------ operations on the memory

    @durable_operation(name="log")
    async def log(self, ctx: RunContext[Any], history: list[ModelMessage]) -> None:
        """Make the session's log equal to the history of a conversation."""
        await self._mirror(ctx).sync(history)

    @durable_operation(name="record_usage")
    async def record_usage(self, ctx: RunContext[Any], usage: RequestUsage) -> None:
        """Record the usage that a provider reported for the last request of a conversation."""
        try:
            await self.memory.aio.record_usage(
                self._session(ctx),
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cache_read_tokens,
                cache_written_tokens=usage.cache_write_tokens,
            )
        except (InvalidInput, SessionNotFound) as error:  # the run matters more
            logger.warning("the usage of a response was not recorded: %s", error)

    @durable_operation(name="learn_limit")
    async def learn_limit(self, ctx: RunContext[Any], error: str, refused: bool) -> bool:
        """Learn the model's limit from an error, and return whether a shorter request may succeed.

        `refused`: pydantic-ai takes it for an error about the length.
        """
        learned = False
        try:
            found = await self.memory.aio.record_overflow(error)
            refused, learned = refused or found.overflow, found.limits is not None
        except InvalidInput:
            pass  # the memory has no model whose limit it could be
        if refused and not learned:
            return self._mirror(ctx).shorten(_SHORTER)
        return refused

    # ------------------------------------------------------------ parts

    def _session(self, ctx: RunContext[Any]) -> str:
        return valid_id(self.session_id or ctx.conversation_id or "")

    def _mirror(self, ctx: RunContext[Any]) -> Mirror:
        session_id = self._session(ctx)
        with self._lock:
            mirror = self._mirrors.get(session_id)
            if mirror is None:
                mirror = self._mirrors[session_id] = Mirror(self.memory.aio, session_id)
        return mirror

    async def _context(
        self, ctx: RunContext[Any], mirror: Mirror, request: ModelRequestContext
    ) -> Context:
        """Return the session's context, with what else is in the request priced."""
        parameters = request.model_request_parameters
        prompts = [*mirror.standing, InstructionPart.join(parameters.instruction_parts or [])]
        return await self.memory.aio.build_context(
            self._session(ctx),
            format=NAME,
            budget=mirror.budget,
            system="\n\n".join(filter(None, prompts)) or None,
            tools=list(_tools(parameters)) or None,
            system_inline=False,
            missing_ok=True,
        )


def _tools(parameters: ModelRequestParameters) -> Iterator[dict[str, Any]]:
    """Yield the definitions of the tools and outputs that the model sees."""
    for tool in [*parameters.function_tools, *parameters.output_tools]:
        if not tool.defer_loading or tool.name in parameters.revealed_tool_names:
            yield _function(tool.name, tool.description, tool.parameters_json_schema)
    output = parameters.output_object
    if output is not None and parameters.output_mode in ("native", "prompted"):
        yield _function(output.name or "output", output.description, output.json_schema)


def _function(name: str, description: str | None, schema: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "description": description or "", "parameters": schema}
    return {"type": "function", "function": function}
