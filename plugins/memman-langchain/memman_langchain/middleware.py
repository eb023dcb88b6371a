"""memman as the memory of a LangChain agent, or in place of the summarization of deepagents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from itertools import takewhile
from typing import Annotated, Any, Literal, NotRequired, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.internal_call_transformer import InternalCallTransformer
from langchain.agents.middleware.types import ExtendedModelResponse, PrivateStateAttr
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolRuntime
from langgraph.runtime import Runtime, get_runtime

from memman import BudgetExceeded, MemoryManager, valid_id
from memman.adapters import ModelRequests, blocking, kept_by_session, streamed
from memman_langchain.caching import cached as with_cache
from memman_langchain.log import (
    FORMAT,
    MessageLog,
    ids_of,
    native_messages,
    native_of_fitted,
    session_key,
    tool_schemas,
)
from memman_langchain.models import model_name

_NO_THREAD = (
    "[memman: nothing can be recalled: this run has no thread id, so its messages are not stored]"
)

_Request = ModelRequest[Any]
_Answer = ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]


class MemmanState(AgentState[Any]):
    """The agent's state with the session in force: `{"thread": ..., "session": ...}`."""

    memman: Annotated[NotRequired[dict[str, str]], PrivateStateAttr]


class MemmanMiddleware(AgentMiddleware[MemmanState, Any, Any]):
    """Keeps each request of an agent within its budget, and every message in memman's log.

        agent = create_agent(model, tools, middleware=[MemmanMiddleware(MemoryManager("chat.db"))])

    Put it last, so that it sees the changes that other middleware makes. Without a thread nothing is
    stored: each request is fitted by itself.

    Args:
        memory: the manager. Its settings and its model decide when and how to compress.
        budget: the most tokens of a request; the manager's own limit by default.
        trim_state: whether messages that left the window are removed from the graph's state as well. The
            log keeps them.
        session_id: the session, or a function of the runtime that returns it; by default the id of the
            thread, with `/NODE` for an agent inside a node of another graph.
        recall: whether the agent gets the tool `recall`, which returns entries that left the context.
        cache: "auto" has the provider keep the unchanged beginning of each request: the caching middleware
            of langchain-anthropic and langchain-aws places marks, and OpenAI gets a key. Leave theirs out.
        stream: whether LangGraph's custom stream (`stream_mode="custom"`) has an event before and after
            each compression, and one for each trimmed context.
    """

    state_schema = MemmanState
    transformers = (InternalCallTransformer,)

    def __init__(
        self,
        memory: MemoryManager,
        *,
        budget: int | None = None,
        trim_state: bool = False,
        session_id: str | Callable[[Runtime[Any]], str] | None = None,
        recall: bool = False,
        cache: Literal["auto"] | None = None,
        stream: bool = True,
    ) -> None:
        super().__init__()
        self.memory = memory
        self._methods, self._run = blocking(memory)
        self.log = MessageLog(memory)
        self._budget = budget
        self._trim_state = trim_state
        self._session_id = session_id
        self._cache = cache
        self._stream = stream
        self._recall_of = kept_by_session(memory.recall_tool)
        self.tools: list[BaseTool] = [self._recall_tool()] if recall else []

    def _recall_tool(self) -> BaseTool:
        """Return the agent's tool, which serves the sessions of all threads."""

        def recall(runtime: ToolRuntime[Any, Any], **arguments: Any) -> str:
            thread, branch = self._session(runtime.state, get_runtime())
            if thread is None:
                return _NO_THREAD
            return self._recall_of(branch or valid_id(thread))(arguments)

        tool = self.memory.recall_tool("any")  # the definition is the same for each session
        return StructuredTool(
            name=tool.name, description=tool.description, args_schema=tool.parameters, func=recall
        )

    def before_model(self, state: MemmanState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Add the new messages to the log; name the session in the state."""
        return self._follow(state, runtime)

    async def abefore_model(
        self, state: MemmanState, runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """Do the same on a thread."""
        return await asyncio.to_thread(self._follow, state, runtime)

    def after_agent(self, state: MemmanState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Add the answer to the log."""
        return self._follow(state, runtime)

    async def aafter_agent(
        self, state: MemmanState, runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """Do the same on a thread."""
        return await asyncio.to_thread(self._follow, state, runtime)

    def wrap_model_call(
        self, request: _Request, handler: Callable[[_Request], ModelResponse[Any]]
    ) -> _Answer:
        """Send memman's context; after an overflow again, with less. Record the usage."""
        requests = self._requests(request)
        sent = self._fit(request, requests)
        while True:
            try:
                answer = handler(sent)
                break
            except ContextOverflowError as error:
                sent = self._fit_again(request, requests, error)
        self._record_usage(requests, answer)
        return answer

    async def awrap_model_call(
        self, request: _Request, handler: Callable[[_Request], Awaitable[ModelResponse[Any]]]
    ) -> _Answer:
        """Do the same, with memman's part on a thread."""
        requests = self._requests(request)
        sent = await asyncio.to_thread(self._fit, request, requests)
        while True:
            try:
                answer = await handler(sent)
                break
            except ContextOverflowError as error:
                sent = await asyncio.to_thread(self._fit_again, request, requests, error)
        await asyncio.to_thread(self._record_usage, requests, answer)
        return answer

    def _follow(self, state: MemmanState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        thread, branch = self._session(state, runtime)
        if thread is None or not state["messages"]:
            return None
        if self.tools:
            self._recall_of(branch or valid_id(thread))
        with self._streamed(runtime):
            session = self.log.follow(thread, state["messages"], branch=branch)
        update: dict[str, Any] = {}
        if session != branch:
            update["memman"] = {"thread": thread, "session": session}
        if self._trim_state and (removal := self._trim(session, state["messages"])):
            update["messages"] = removal
        return update or None

    def _trim(self, session: str, messages: list[AnyMessage]) -> list[Any]:
        """Return the update that removes the messages before those that the window has whole."""
        active, ids = self.memory.get_active_entries(session), ids_of(messages)
        whole = {entry.id for entry in active}
        first = max((n for n, one in enumerate(messages) if one.type in ("human", "ai")), default=0)
        while first and valid_id(ids[first - 1]) in whole:
            first -= 1
        while first and messages[first].type == "tool":  # its call is not in the window
            first += 1
        if not first:
            return []
        if all(message.id for message in messages):
            return [RemoveMessage(id=name) for name in ids[:first]]
        kept = zip(messages[first:], ids[first:], strict=True)
        named = [message.model_copy(update={"id": name}) for message, name in kept]
        return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *named]

    def _requests(self, request: _Request) -> ModelRequests:
        """Return the attempts of a model call: without a thread, or without a history, of no session."""
        thread, session = self._session(request.state, request.runtime)
        if thread is None or not request.state["messages"]:
            return ModelRequests(self._methods, "")
        return ModelRequests(self._methods, session or valid_id(thread))

    def _fit(self, request: _Request, requests: ModelRequests) -> _Request:
        """Return the request with memman's context in place of its messages."""
        if not request.state["messages"]:
            return request
        profile = getattr(request.model, "profile", None) or {}
        options = {
            **_price(request),
            "budget": self._budget,
            "window": profile.get("max_input_tokens"),
            "system_inline": False,
            "format": FORMAT,
        }
        own = {message.id for message in request.state["messages"]}
        pending = [message for message in request.messages if message.id not in own]
        lead = list(takewhile(lambda message: message.id not in own, request.messages))
        if requests.session_id:
            options |= {"pending": pending or None, "cache": self._cache}
        else:
            options["messages"] = request.messages
        try:
            with self._streamed(request.runtime):
                context = self._run(requests.build(**options))
        except BudgetExceeded as error:
            raise ContextOverflowError(str(error)) from error
        if requests.session_id:
            messages = native_messages(context, request.messages, pending)
            rest = [each for each in messages if all(each is not first for first in lead)]
            messages = [*lead, *rest]
        else:
            messages = native_of_fitted(context, request.messages)
        sent = request.override(messages=cast("list[AnyMessage]", messages))
        return with_cache(sent, context) if requests.session_id and self._cache else sent

    def _fit_again(
        self, request: _Request, requests: ModelRequests, error: ContextOverflowError
    ) -> _Request:
        """Return a shorter request than the refused one. Raises the error if there is none."""
        if not self._run(requests.is_too_long(error, is_known=True)):
            raise error
        return self._fit(request, requests)

    def _record_usage(self, requests: ModelRequests, answer: _Answer) -> None:
        response = answer.model_response if isinstance(answer, ExtendedModelResponse) else answer
        messages = response.result if isinstance(response, ModelResponse) else [response]
        usages = (message.usage_metadata for message in messages if isinstance(message, AIMessage))
        usage = next((usage for usage in usages if usage), None)
        if usage:
            self._run(requests.record_usage(dict(usage)))

    def _streamed(self, runtime: Runtime[Any]) -> AbstractContextManager[None]:
        """Write memman's events into the custom stream of a run."""
        return streamed(runtime.stream_writer if self._stream else None)

    def _session(
        self, state: Mapping[str, Any], runtime: Runtime[Any]
    ) -> tuple[str | None, str | None]:
        """Return the thread's session, None without a thread, and the branch of it in this state."""
        info = getattr(runtime, "execution_info", None)
        thread: str | None
        if self._session_id is not None:
            named = self._session_id
            thread = named(runtime) if callable(named) else named
        elif info is not None and info.thread_id:
            thread = session_key(info.thread_id, info.checkpoint_ns)
        else:
            return None, None
        branch = state.get("memman") or {}
        return thread, branch.get("session") if branch.get("thread") == thread else None


class MemmanSummarization(MemmanMiddleware):
    """`MemmanMiddleware` by the name of the summarization that it replaces.

    `create_deep_agent(middleware=[MemmanSummarization(memory)])` puts it in the place of deepagents' own.
    In `create_agent` it cannot be combined with LangChain's `SummarizationMiddleware`.
    """

    @property
    def name(self) -> str:
        """The name of the middleware that it replaces."""
        return "SummarizationMiddleware"


def _price(request: _Request) -> dict[str, Any]:
    """Return what a request has besides its messages, as arguments of memman's methods."""
    return {
        "model": model_name(request.model),
        "system": request.system_prompt or None,
        "tools": tool_schemas([*request.tools, *_formats(request.response_format)]) or None,
    }


def _formats(asked: Any) -> list[dict[str, Any]]:
    """Return the schemas of a structured answer as the tools that LangChain makes of them."""
    if asked is None:
        return []
    if isinstance(asked, ProviderStrategy):
        specs = [asked.schema_spec]
    else:
        schema = asked.schema if isinstance(asked, AutoStrategy) else asked
        strategy = asked if isinstance(asked, ToolStrategy) else ToolStrategy(schema)
        specs = strategy.schema_specs
    return [
        {"name": spec.name, "description": spec.description, "parameters": spec.json_schema}
        for spec in specs
    ]
