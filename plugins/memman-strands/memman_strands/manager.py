"""`MemmanConversationManager`: fits each request of an agent into its model's context window."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final, Literal

from strands import Agent
from strands.agent.conversation_manager import ConversationManager
from strands.hooks import (
    AfterInvocationEvent,
    AfterModelCallEvent,
    AgentInitializedEvent,
    BeforeInvocationEvent,
    HookRegistry,
)
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.models import Model
from strands.tools import PythonAgentTool
from strands.types.content import ContentBlock, Message, SystemPrompt, split_system_prompt
from strands.types.events import TypedEvent
from strands.types.exceptions import ContextWindowOverflowException
from strands.types.tools import ToolResult, ToolSpec, ToolUse

from memman import AsyncRecallTool, BudgetExceeded, Context, InvalidInput, Memory, valid_id
from memman.adapters import ModelRequests, methods_of, streamed
from memman.formats.plain import field_of
from memman_strands.history import FORMAT, AgentHistory, shown_from

_MARKING: Final = ("strands.models.bedrock", "strands.models.anthropic")  # take cache points
_OF_INPUT: Final = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")  # of a usage
_OWN_CACHE: Final = ("cache_config", "cache_prompt", "cache_tools")


class MemmanConversationManager(ConversationManager):
    """Keep an agent's requests inside the context window, and its conversation in a memman session.

    Before each model call, also inside the tool loop, the session gets what is new in `agent.messages`, and
    the request gets the session's context. After a run, messages that left the context leave
    `agent.messages` too, as with Strands' own managers: the session keeps all of them.

    Args:
        memory: a `MemoryManager` or an `AsyncMemoryManager`, with the agent's model or with `max_tokens`.
        session_id: the memman session, for one agent. Text that is no valid id becomes a digest. A new
            agent continues the session where the last one left it.
        count_tools: whether the definitions of the tools are a part of the budget.
        recall: whether the agent gets the tool `recall`, which returns entries that left the context.
        cache: "auto" places cache points for models of Bedrock and Anthropic. With cache settings or cache
            points of your own nothing is added.
        stream: whether a run's stream has `{"memman": ...}` for each event of the context before a model
            call, and for those after the last answer of the run before.
    """

    def __init__(
        self,
        memory: Memory,
        session_id: str,
        *,
        count_tools: bool = True,
        recall: bool = False,
        cache: Literal["auto"] | None = None,
        stream: bool = True,
    ) -> None:
        super().__init__()
        methods = methods_of(memory)
        self.memory = memory
        self.session_id = valid_id(session_id)
        self._count_tools = count_tools
        self._cache = cache
        self._tool = methods.recall_tool(self.session_id) if recall else None
        self._history = AgentHistory(methods, self.session_id)
        self._gone: list[Message] = []  # the first of the agent's messages, which left the context
        self._requests = ModelRequests(methods, self.session_id)
        self._refused: Exception | None = None
        self._stream = stream
        self._events: list[dict[str, Any]] = []  # that the stream has not yet

    # ------------------------------------------------------------ hooks of Strands

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Register what this manager does for an agent."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._begin)
        registry.add_callback(BeforeInvocationEvent, self._recognise)
        registry.add_callback(AfterModelCallEvent, self._record_usage)
        registry.add_callback(AfterInvocationEvent, self._log_answer)

    def apply_management(self, agent: Agent, **kwargs: Any) -> None:
        """Drop the messages that left the context; the session has them."""
        gone, self._gone = self._gone, []
        if all(a is b for a, b in zip(gone, agent.messages, strict=False)):
            del agent.messages[: len(gone)]
            self._history.trim(len(gone))
            self.removed_message_count += len(gone)

    def reduce_context(self, agent: Agent, e: Exception | None = None, **kwargs: Any) -> None:
        """Make the next request shorter than the one that the model refused.

        Without an error nothing is done: each request is fitted before it is sent.

        Raises:
            Exception: `e`, if no request of this manager was refused, or none can be shorter.
        """
        if e is None:
            return
        refused, self._refused = self._refused, e
        is_final = e is refused  # `_fit` has raised it again
        if is_final or not self._requests.tokens or isinstance(e.__cause__, BudgetExceeded):
            self._refused = None
            raise e

    def get_state(self) -> dict[str, Any]:
        """Return what a session manager stores."""
        return {**super().get_state(), "session_id": self.session_id}

    def restore_from_session(self, state: dict[str, Any]) -> list[Message] | None:
        """Restore the state; after another conversation manager, log all messages that are stored."""
        if state.get("__name__") == type(self).__name__:
            super().restore_from_session(state)
            self._history.origin = state.get("session_id")
        return None

    def _begin(self, event: AgentInitializedEvent) -> None:
        """Take part in the model calls of an agent."""
        agent = event.agent
        if not isinstance(agent, Agent):
            raise InvalidInput(f"{type(agent).__name__} has no conversation manager")
        agent.add_middleware(InvokeModelStage.Input, self._fit)
        agent.add_middleware(InvokeModelStage, self._tell)
        if self._tool is not None:
            agent.tool_registry.process_tools([_strands_tool(self._tool)])

    async def _recognise(self, event: BeforeInvocationEvent) -> None:
        """Recognise messages that were given to the agent, before Strands gives them ids."""
        await self._history.recognise(event.agent.messages)

    async def _tell(
        self,
        request: InvokeModelContext,
        next_fn: Callable[[InvokeModelContext], AsyncGenerator[Any, None]],
    ) -> AsyncGenerator[Any, None]:
        """Put what happened to the context into the stream, before the model's answer."""
        events, self._events = self._events, []
        for event in events:
            yield TypedEvent({"memman": event})
        async for each in next_fn(request):
            yield each

    async def _sync(self, messages: Sequence[Message]) -> list[str]:
        """Make the session equal to the agent's messages; note the events for the stream."""
        with streamed(self._events.append if self._stream else None):
            return await self._history.sync(messages)

    async def _fit(self, request: InvokeModelContext) -> InvokeModelContext:
        """Log what is new, and replace the messages of a request by the session's context."""
        messages = list(request.agent.messages)
        ids = await self._sync(messages)
        if self._refused and not await self._requests.is_too_long(self._refused, is_known=True):
            raise self._refused
        self._refused = None
        try:
            with streamed(self._events.append if self._stream else None):
                context = await self._context(request)
        except BudgetExceeded as error:
            raise ContextWindowOverflowException(str(error)) from error
        start = shown_from(context, ids) if context.compacted else 0
        self._gone = messages[: _turn_before(messages, start)]
        own = request.messages if len(request.messages) == len(messages) else messages
        found = self._history.messages_of(context, ids, own)
        injected = _injected(request)
        if injected and found[-1] is not own[-1]:
            found[-1] = {**found[-1], "content": [*found[-1]["content"], *injected]}
        system = _marked_system(request.system_prompt, context)
        return request.replace(messages=found, system_prompt=system)

    async def _record_usage(self, event: AfterModelCallEvent) -> None:
        """Record the usage of a request, which calibrates the counts."""
        if event.stop_response is None:
            return
        usage: Any = (event.stop_response.message.get("metadata") or {}).get("usage") or {}
        if any(usage.get(key) for key in _OF_INPUT):
            await self._requests.record_usage(usage)

    async def _log_answer(self, event: AfterInvocationEvent) -> None:
        """Log the last messages of a run."""
        await self._sync(event.agent.messages)

    # ------------------------------------------------------------ parts

    async def _context(self, request: InvokeModelContext) -> Context:
        """Return the session's context, with what else is in the request priced."""
        prompt, _ = split_system_prompt(request.system_prompt)
        injected = [block["text"] for block in _injected(request) if "text" in block]
        tools = [{"toolSpec": spec} for spec in request.tool_specs] if self._count_tools else None
        # A model of the application's own may have no configuration.
        config: object = getattr(request.model, "get_config", dict)()
        return await self._requests.build(
            field_of(config, "model_id"),
            window=field_of(config, "context_window_limit"),
            format=FORMAT,
            system="\n\n".join(filter(None, [prompt, *injected])) or None,
            tools=tools or None,
            system_inline=False,
            cache=self._cache if _takes_marks(request.model, request.system_prompt) else None,
        )


def _turn_before(messages: Sequence[Message], end: int) -> int:
    """Return the index of the last message up to `end` that begins a turn; 0 if there is none."""
    begins = (
        index
        for index in range(min(end, len(messages) - 1), 0, -1)
        if messages[index]["role"] == "user"
        and not any("toolResult" in block for block in messages[index]["content"])
    )
    return next(begins, 0)


def _injected(request: InvokeModelContext) -> list[ContentBlock]:
    """Return the blocks that a plugin added to the last message for this request alone."""
    count = request.dynamic_trailing_blocks
    return request.messages[-1]["content"][-count:] if count else []


def _takes_marks(model: Model, system: SystemPrompt) -> bool:
    """Return whether a model takes cache points, and the application places none itself."""
    modules = {kind.__module__ for kind in type(model).__mro__}
    if modules.isdisjoint(_MARKING):
        return False
    own = isinstance(system, list) and any("cachePoint" in block for block in system)
    return not own and not any(model.get_config().get(name) for name in _OWN_CACHE)


def _marked_system(system: SystemPrompt, context: Context) -> SystemPrompt:
    """Return the system prompt with the cache point that a context has behind the tools.

    A request has the tools first, so the point keeps both.
    """
    mark = context.tools[-1].get("cachePoint") if context.tools else None
    if not mark or not system:
        return system
    blocks = [{"text": system}] if isinstance(system, str) else system
    return [*blocks, {"cachePoint": mark}]


def _strands_tool(recall: AsyncRecallTool) -> PythonAgentTool:
    """Return the tool `recall` as Strands calls it."""

    async def answer(tool_use: ToolUse, **_: Any) -> ToolResult:
        text = await recall(tool_use["input"])
        return {
            "toolUseId": tool_use["toolUseId"],
            "status": "success",
            "content": [{"text": text}],
        }

    spec: ToolSpec = {
        "name": recall.name,
        "description": recall.description,
        "inputSchema": {"json": recall.parameters},
    }
    return PythonAgentTool(recall.name, spec, answer)
