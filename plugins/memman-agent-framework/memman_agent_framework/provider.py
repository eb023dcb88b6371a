"""`MemmanHistoryProvider`: keeps the history of agents, and fits each of their model calls."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from agent_framework import (
    AgentSession,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    FunctionTool,
    HistoryProvider,
    Message,
    MiddlewareTermination,
    ResponseStream,
    SessionContext,
    SupportsAgentRun,
)
from pydantic import BaseModel

from memman import AsyncRecallTool, Context, Memory, SessionNotFound, valid_id
from memman.adapters import ModelRequests, kept_by_session, methods_of, streamed
from memman_agent_framework.messages import NAME
from memman_agent_framework.run import (
    Run,
    dumped_message,
    fitted_inputs,
    loaded_messages,
    message_of,
)

_Next: TypeAlias = Callable[[], Awaitable[None]]
_Stream: TypeAlias = ResponseStream[ChatResponseUpdate, ChatResponse[Any]]
_Events: TypeAlias = deque[dict[str, Any]]
_LOADED: Final = "memman_loaded"
_RUN: Final = "memman_run"
_HOUR: Final = 3_600  # seconds
_OPENAI: Final = "agent_framework_openai"
_ANTHROPIC: Final = "agent_framework_anthropic._chat_client"
_MOST_EVENTS: Final = 100  # of a session, while no run streams
_UNMARKED: Final = ("bedrock", "vertex")  # these hosts place no marks themselves


class MemmanHistoryProvider(HistoryProvider):
    """Keep the sessions of agents in memman, and each model call inside the context window.

    It is the agent's memory: `Agent(client, context_providers=[provider])`. It brings its own chat
    middleware, so that the model calls inside the tool loop fit too. One provider serves any number of
    agents and sessions; a memman session has the id of the `AgentSession`.

    Args:
        memory: a `MemoryManager` or an `AsyncMemoryManager`, with the agent's model or with `max_tokens`.
        source_id: the provider's name in the framework.
        recall: whether agents get the tool `recall`, which returns entries that left the context.
        cache: "auto" has OpenAI and Anthropic keep the unchanged beginning of each request. With caching
            options of your own nothing is added.
        stream: whether a streamed run has an update for each event of the context before a model call, and
            for those after the last answer of the run before: it has no contents, and
            `additional_properties["memman"]`.
        load_messages, store_inputs, store_context_messages, store_context_from, store_outputs: those of
            every `HistoryProvider`.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        source_id: str = "memman",
        recall: bool = False,
        cache: Literal["auto"] | None = None,
        stream: bool = True,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
    ) -> None:
        super().__init__(
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self._tool_of = kept_by_session(methods_of(memory).recall_tool)
        self.events_of: Callable[[str], _Events] = kept_by_session(
            lambda _: deque(maxlen=_MOST_EVENTS)
        )
        self.memory = memory
        self.recall = recall
        self.cache = cache
        self.stream = stream

    # ------------------------------------------------------------ the log

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Return all messages of a session as they were saved."""
        if state and _LOADED in state:
            return cast("list[Message]", state[_LOADED])
        try:
            stored = await self.memory.aio.get_messages(_valid(session_id), format=NAME)
        except SessionNotFound:
            return []
        return list(map(message_of, stored))

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add those messages to the log that it has not yet."""
        run = (state or {}).get(_RUN) or Run(self.memory.aio, _valid(session_id))
        with streamed(self.events_of(run.session_id).append if self.stream else None):
            await run.log(messages)

    # ------------------------------------------------------------ hooks of the framework

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Give the run the session's context, and take part in its model calls."""
        session_id = _valid(context.session_id)
        # Else the log lacks messages of the model calls, or the framework has no middleware for them.
        fits = self.store_inputs and self.store_outputs and not _persists_per_call(agent)
        if self.recall:
            context.extend_tools(self.source_id, [_function_tool(self._tool_of(session_id))])
        options = {**getattr(agent, "default_options", {}), **context.options}
        if context.service_session_id or _stored_by_service(options):
            return  # the service sends the conversation to the model
        requests = ModelRequests(self.memory.aio, session_id)
        built = await self.context(
            requests,
            _model_of(options, getattr(agent, "client", None)),
            {**options, "tools": [*_listed(options.get("tools")), *context.tools]},
            context.instructions,
            # If it takes no part, a request is what is loaded here and the run's input.
            pending=[] if fits else [dumped_message(each) for each in context.input_messages],
            complete=not fits,
        )
        loaded, run, given = loaded_messages(built), None, context.input_messages
        if fits:
            said = [*self._get_context_messages_to_store(context), *given]
            run = Run(self.memory.aio, session_id, said, loaded)
            context.extend_middleware(self.source_id, _Fit(self, run, requests))
        else:
            first, context.input_messages = fitted_inputs(built, given)
            loaded = loaded[:first]
        context.metadata[self.source_id] = requests, run, given
        # The base class leaves out approvals that are settled.
        own = {**state, _LOADED: loaded}
        await super().before_run(agent=agent, session=session, context=context, state=own)

    async def after_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Log what the run has said that the log has not yet."""
        nothing = None, None, context.input_messages
        known = context.metadata.pop(self.source_id, nothing)
        requests, run, context.input_messages = known  # the run's own input, not as it was sent
        own = {**state, _RUN: run}
        await super().after_run(agent=agent, session=session, context=context, state=own)
        if requests and _persists_per_call(agent) and context.response is not None:
            await record_usage(requests, context.response.usage_details)

    # ------------------------------------------------------------ operations on the memory

    async def context(
        self,
        requests: ModelRequests,
        model: str | None,
        options: Mapping[str, Any],
        others: Iterable[str],
        **more: Any,
    ) -> Context:
        """Return a session's context with what else is in a request priced.

        Args:
            requests: those of the session.
            model: the name of the model that is asked.
            options: the options of the request.
            others: texts of the request besides its instructions and the session's messages.
            more: arguments of `build_context`.
        """
        prompt = "\n\n".join(filter(None, [_text(options.get("instructions")), *others]))
        return await requests.build(
            model,
            format=NAME,
            system=prompt or None,
            tools=_tools(options) or None,
            system_inline=False,
            cache=self.cache,
            **more,
        )


class _Fit(ChatMiddleware):
    """Sends the session's context in place of the messages of each model call of a run."""

    def __init__(self, provider: MemmanHistoryProvider, run: Run, requests: ModelRequests) -> None:
        self.run = run
        self._requests = requests
        self._provider = provider
        self._events = provider.events_of(run.session_id)  # that the stream has not yet

    async def process(self, context: ChatContext, call_next: _Next) -> None:
        """Fit a model call, and record its usage."""
        if _stored_by_service(context.options or {}):
            await call_next()
            return
        given, finished = context.messages, list[ChatResponse[Any]]()
        try:
            await self._fit(context, given)
            await self._call(context, call_next, given)
        except MiddlewareTermination:
            raise
        except Exception:
            await self.run.retract()
            raise
        if isinstance(context.result, ResponseStream):
            updates = self._updates(context.result, context, call_next, given, finished)
            context.result = ResponseStream(updates, finalizer=lambda _: finished[0])
        elif context.result is not None:
            await record_usage(self._requests, context.result.usage_details)

    async def _updates(
        self,
        stream: _Stream,
        context: ChatContext,
        call_next: _Next,
        given: Sequence[Message],
        finished: list[ChatResponse[Any]],
    ) -> AsyncIterator[ChatResponseUpdate]:
        """Yield the updates of a streamed model call, and add its response to `finished`."""
        has_begun = False
        try:
            while not finished:
                while self._events:
                    told = {"memman": self._events.popleft()}
                    yield ChatResponseUpdate(role="assistant", additional_properties=told)
                try:
                    async for update in stream:
                        has_begun = True
                        yield update
                    finished.append(await stream.get_final_response())
                except Exception as error:
                    if has_begun or not await self._shorten(context, given, error):
                        raise
                    await self._call(context, call_next, given)
                    stream = cast(_Stream, context.result)
        except Exception:
            await self.run.retract()
            raise
        finally:
            await stream.close()  # the caller may have left it early
        await record_usage(self._requests, finished[0].usage_details)

    async def _call(self, context: ChatContext, call_next: _Next, given: Sequence[Message]) -> None:
        """Make a model call; if it is refused for its length, make it again, shorter."""
        while True:
            try:
                return await call_next()
            except MiddlewareTermination:
                raise
            except Exception as error:
                if not await self._shorten(context, given, error):
                    raise

    async def _fit(self, context: ChatContext, messages: Sequence[Message]) -> None:
        """Log what is new in a request, and replace its messages by the session's context."""
        if not context.stream:
            self._events.clear()  # a run without a stream has no place for them
        with streamed(self._events.append if self._provider.stream and context.stream else None):
            named = await self.run.follow(messages)
            options = context.options or {}
            others = [message.text for id_, message in named if id_ is None]
            model = _model_of(options, context.client)
            built = await self._provider.context(self._requests, model, options, others)
        context.messages = self.run.request(named, built)
        # Else the service would keep the conversation too, and get only what is new.
        store = {"store": False} if getattr(context.client, "STORES_BY_DEFAULT", False) else {}
        context.options = {**store, **_cache_options(context.client, built), **options}

    async def _shorten(
        self, context: ChatContext, messages: Sequence[Message], error: Exception
    ) -> bool:
        """Fit a request again, shorter, if it was refused for its length; return whether it was."""
        is_too_long = await self._requests.is_too_long(error)
        if is_too_long:
            await self._fit(context, messages)
        return is_too_long


async def record_usage(requests: ModelRequests, usage: Mapping[str, Any] | None) -> None:
    """Record the usage of a request, which calibrates the counts."""
    counts = {name: count for name, count in (usage or {}).items() if isinstance(count, int)}
    given, said = counts.get("input_token_count", 0), counts.get("output_token_count", 0)
    read = counts.get("cache_read_input_token_count", 0)
    written = counts.get("cache_creation_input_token_count", 0)
    total = counts.get("total_token_count")  # tells whether the input has cached tokens
    if total is None and any(name.startswith("anthropic.") for name in counts):
        total = given + said + read + written
    if given + read + written:
        await requests.record_usage(
            input_tokens=given,
            output_tokens=said,
            cached_tokens=read,
            cache_written_tokens=written,
            total_tokens=total,
        )


def _model_of(options: Mapping[str, Any], client: Any) -> str | None:
    """Return the name of the model that a client asks."""
    names = (options.get("model"), *(getattr(client, name, None) for name in ("model", "model_id")))
    return next((name for name in names if isinstance(name, str) and name), None)


def _valid(session_id: str | None) -> str:
    return valid_id(session_id or "default")


def _persists_per_call(agent: SupportsAgentRun) -> bool:
    """Return whether an agent loads and stores its history for each model call, without middleware."""
    return getattr(agent, "require_per_service_call_history_persistence", False) is True


def _stored_by_service(options: Mapping[str, Any]) -> bool:
    return bool(options.get("conversation_id") or options.get("store"))


def _text(instructions: Any) -> str:
    """Return instructions as text; some clients take them in blocks."""
    if isinstance(instructions, str) or instructions is None:
        return instructions or ""
    blocks = instructions if isinstance(instructions, Sequence) else [instructions]
    texts = (block.get("text") if isinstance(block, Mapping) else block for block in blocks)
    return "\n".join(text for text in texts if isinstance(text, str))


def _tools(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the definitions of the tools and of a structured response."""
    found = list(map(_definition, _listed(options.get("tools"))))
    output = options.get("response_format")
    if isinstance(output, type) and issubclass(output, BaseModel):
        output = output.model_json_schema()
    if isinstance(output, Mapping):
        found.append(_definition({"name": "response_format", "parameters": output}))
    return found


def _listed(tools: Any) -> Sequence[Any]:
    return tools if isinstance(tools, Sequence) else [] if tools is None else [tools]


def _definition(tool: Any) -> dict[str, Any]:
    if isinstance(tool, FunctionTool):
        return tool.to_json_schema_spec()
    if not isinstance(tool, Mapping):  # a tool of the provider
        return {"type": str(getattr(tool, "name", type(tool).__name__))}
    plain: dict[str, Any] = json.loads(json.dumps(dict(tool), default=repr))
    return plain


def _function_tool(recall: AsyncRecallTool) -> FunctionTool:
    """Return the tool `recall` as the framework calls it."""

    async def answer(**arguments: Any) -> str:
        return await recall(arguments)

    return FunctionTool(
        name=recall.name,
        description=recall.description,
        func=answer,
        input_model=recall.parameters,
        approval_mode="never_require",
    )


def _cache_options(client: Any, context: Context) -> dict[str, Any]:
    """Return the options by which a client has its provider cache the prompt, where it has some."""
    if context.cache_ttl is None:
        return {}
    modules = {cls.__module__ for cls in type(client).__mro__}
    if any(module.startswith(_OPENAI) for module in modules):
        sdk = getattr(client, "client", None)
        host = urlsplit(str(getattr(sdk, "base_url", ""))).hostname or ""
        known = host.endswith((".openai.com", ".azure.com"))  # other servers may refuse the field
        return {"prompt_cache_key": context.prompt_cache_key} if known else {}
    if _ANTHROPIC not in modules:
        return {}
    if any(host in module for module in modules for host in _UNMARKED):
        return {}
    ttl = "1h" if context.cache_ttl >= _HOUR else "5m"
    return {"cache_control": {"type": "ephemeral", "ttl": ttl}}
