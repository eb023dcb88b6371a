"""`MemmanHistory`: a capability that fits each request of an agent into its model's context window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, durable_operation
from pydantic_ai.exceptions import ModelContextWindowExceededError, RetryModelRequest
from pydantic_ai.messages import InstructionPart, ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RequestUsage

from memman import AsyncRecallTool, Context, Memory, valid_id
from memman.adapters import kept_by_session, methods_of
from memman_pydantic_ai.messages import NAME
from memman_pydantic_ai.mirror import Mirror

_ESTIMATING: Final = ("function", "test")  # pydantic-ai estimates the usage of these models
_MARKED: Final = ("anthropic", "bedrock")  # these cache what a request marks
_PARTS: Final = ("tool_definitions", "instructions", "messages")
_HOUR: Final = 3_600  # seconds


@dataclass
class MemmanHistory(AbstractCapability[Any]):
    """Keep an agent's requests inside the context window, and its conversation in a memman session.

    Before each request the session gets what is new in the history, and the request gets the session's
    context. The history stays as it is: `all_messages()` has every message.

    Args:
        memory: a `MemoryManager` or an `AsyncMemoryManager`, with the agent's model or with `max_tokens`.
        session_id: the memman session, for one conversation at a time; None for the id of the
            conversation, so that one capability serves all conversations.
        recall: whether the agent gets the tool `recall`, which returns entries that left the context.
        cache: "auto" has the provider keep the unchanged beginning of each request: pydantic-ai's settings
            for Anthropic and Bedrock place marks, and OpenAI gets a key. With caching settings of your own
            nothing is added.
        id: the name of the capability in durable execution.
    """

    memory: Memory
    session_id: str | None = None
    _: KW_ONLY
    recall: bool = False
    cache: Literal["auto"] | None = None
    id: str | None = "memman"

    def __post_init__(self) -> None:
        methods_of(self.memory)  # raises for anything else

    @cached_property
    def _tool_of(self) -> Callable[[str], AsyncRecallTool]:
        return kept_by_session(self.memory.aio.recall_tool)

    @cached_property
    def _mirror_of(self) -> Callable[[str], Mirror]:
        return kept_by_session(partial(Mirror, self.memory.aio))

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: a memory cannot be part of an agent's specification."""
        return None

    # ------------------------------------------------------------ hooks of pydantic-ai

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """Return the tool `recall` if the agent is to have it."""
        if not self.recall:
            return None
        tool = self.memory.aio.recall_tool("any")  # the definition is the same for each session
        schema = (tool.name, tool.description, tool.parameters)
        return FunctionToolset(
            [Tool.from_schema(self._recall, *schema, takes_ctx=True)], id=self.id
        )

    @durable_operation(name="prepare_model_request")
    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Log what is new, and replace the messages of this attempt by the session's context."""
        history = request_context.messages
        mirror = self._mirror(ctx)
        await mirror.sync(history)
        context = await self._context(mirror, request_context)
        if mirror.lacks(context):  # another process has continued the session
            await mirror.resync(history)
            context = await self._context(mirror, request_context)
        settings = self._settings(request_context, context) if self.cache else {}
        return replace(request_context, messages=mirror.messages_of(context, history), **settings)

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
        """Send a request that was too long for the model again, shorter."""
        is_known = isinstance(error, ModelContextWindowExceededError)
        if await self.learn_limit(ctx, str(error), is_known):
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
        await self._mirror(ctx).requests.record_usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cache_read_tokens,
            cache_written_tokens=usage.cache_write_tokens,
        )

    @durable_operation(name="learn_limit")
    async def learn_limit(self, ctx: RunContext[Any], error: str, is_known: bool) -> bool:
        """Learn the model's limit from an error, and return whether to send a shorter request.

        `is_known`: pydantic-ai takes it for an error about the length.
        """
        return await self._mirror(ctx).requests.is_too_long(error, is_known=is_known)

    @durable_operation(name="answer_recall")
    async def answer_recall(self, ctx: RunContext[Any], arguments: dict[str, Any]) -> str:
        """Return the answer to a call of the tool `recall`."""
        return await self._tool_of(self._session(ctx))(arguments)

    # ------------------------------------------------------------ parts

    async def _recall(self, ctx: RunContext[Any], /, **arguments: Any) -> str:
        return await self.answer_recall(ctx, arguments)

    def _session(self, ctx: RunContext[Any]) -> str:
        return valid_id(self.session_id or ctx.conversation_id or "")

    def _mirror(self, ctx: RunContext[Any]) -> Mirror:
        session_id = self._session(ctx)
        if self.recall:
            self._tool_of(session_id)
        return self._mirror_of(session_id)

    def _settings(self, request: ModelRequestContext, context: Context) -> dict[str, Any]:
        """Return the settings of a request by which its provider caches the prompt, where it has some.

        None if the run, the agent or the model has settings of its own: some exclude each other.
        """
        model, ttl = request.model, context.cache_ttl
        given = {**(model.settings or {}), **(request.model_settings or {})}
        own: dict[str, Any] = {}
        if model.system == "openai" and _is_openai(model.base_url):
            own = {"openai_prompt_cache_key": context.prompt_cache_key}
        elif model.system in _MARKED and ttl is not None:
            lifetime = "1h" if ttl >= _HOUR else "5m"
            own = {f"{model.system}_cache_{part}": lifetime for part in _PARTS}
        names = {*own, "cache", f"{model.system}_cache"}
        if not own or names & given.keys():
            return {}
        return {"model_settings": {**own, **(request.model_settings or {})}}

    async def _context(self, mirror: Mirror, request: ModelRequestContext) -> Context:
        """Return the session's context, with what else is in the request priced."""
        parameters = request.model_request_parameters
        prompts = [*mirror.standing, InstructionPart.join(parameters.instruction_parts or [])]
        model = request.model
        return await mirror.requests.build(
            model.model_name,
            window=model.profile.get("context_window"),
            format=NAME,
            system="\n\n".join(filter(None, prompts)) or None,
            tools=list(_tools(parameters)) or None,
            system_inline=False,
            cache=self.cache,
        )


def _is_openai(base_url: str | None) -> bool:
    """Return whether a URL is OpenAI's: other servers may refuse a field that they do not know."""
    host = urlsplit(base_url or "").hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")


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
