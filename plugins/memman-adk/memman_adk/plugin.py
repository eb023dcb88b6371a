"""`MemmanPlugin`: fits each request of an application's agents into their models' context windows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any, Final, TypeAlias

from cachetools import LRUCache
from google.adk.agents import BaseAgent, InvocationContext, LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.events import Event
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.sessions import Session
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from memman import AsyncRecallTool, Memory, valid_id
from memman.adapters import ModelRequests, methods_of, streamed
from memman_adk.contents import FORMAT, Contents, Transients, message_of
from memman_adk.events import AgentLog, View

_Owner: TypeAlias = tuple[str, str]  # the user, and the memman session of the root agent
_logger: Final = logging.getLogger("memman")
_MOST_CONVERSATIONS: Final = 256  # known without reading their logs again


class MemmanPlugin(BasePlugin):
    """Keep the requests of all agents of an application inside their models' context windows.

    Each agent has a memman session, since each sees the events of an ADK session in its own way. Before a
    model call the session gets the new events, and the request gets the session's context. ADK's session
    service stays as it is.

    Args:
        memory: a `MemoryManager` or an `AsyncMemoryManager`, with the agents' model or with `max_tokens`.
        name: the plugin's name in ADK.
        session_id: returns the memman session of the root agent for a session of ADK; by default the
            session's id. Another agent's has its name behind it: `user-17/researcher`. Text that is no
            valid id becomes a digest.
        count_tools: whether the definitions of the tools are a part of the budget.
        recall: whether the agents get the tool `recall`, which returns entries that left the context.
        stream: whether an agent's event lists memman's events since the agent's previous one, in
            `custom_metadata["memman"]`.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        name: str = "memman",
        session_id: Callable[[Session], str] | None = None,
        count_tools: bool = True,
        recall: bool = False,
        stream: bool = True,
    ) -> None:
        super().__init__(name=name)
        self._aio = methods_of(memory)
        self.memory = memory
        self._base = session_id or _id_of
        self._count_tools = count_tools
        self._recall = recall
        self._stream = stream
        self._conversations: LRUCache[tuple[_Owner, View], _Conversation] = LRUCache(
            _MOST_CONVERSATIONS
        )
        self._lock = Lock()

    # ------------------------------------------------------------ callbacks of ADK

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Log what is new, and replace the contents of a request by the session's context."""
        context = callback_context.get_invocation_context()
        if not _has_history(context.agent, llm_request):
            await self._fit_alone(llm_request)
            return None
        conversation = self._conversation(
            context.session, context.agent, _view(context), _is_root(context)
        )
        with streamed(conversation.events.append if self._stream else None):
            await conversation.log.begin_task(llm_request.contents)
            await conversation.log.sync(context.session.events)
        if conversation.recall is not None:
            llm_request.append_tools([_RecallTool(conversation.recall)])
        conversation.begin(context.invocation_id, llm_request.contents)
        await self._fit(conversation, llm_request)
        return None

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Record the usage of a request, which calibrates the counts."""
        context = callback_context.get_invocation_context()
        conversation = self._find(context.session, _view(context))
        usage = llm_response.usage_metadata
        if not conversation or llm_response.partial or not usage or not usage.prompt_token_count:
            return None
        if conversation.is_waiting:  # a model may report a request more than once
            conversation.is_waiting = False
            await conversation.requests.record_usage(usage)
        return None

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """Send a request that was too long for the model once more, shorter."""
        context = callback_context.get_invocation_context()
        conversation = self._find(context.session, _view(context))
        if conversation is None or not isinstance(context.agent, LlmAgent):
            return None
        while await conversation.requests.is_too_long(error):
            context.increment_llm_call_count()
            try:
                await self._fit(conversation, llm_request)
                answers = context.agent.canonical_model.generate_content_async(llm_request)
                found = [answer async for answer in answers]
                return found[-1] if found else None
            except Exception as refused:  # noqa: BLE001 - of any model; ADK raises the first one
                error = refused
        _logger.warning("no shorter request was accepted", exc_info=error)
        return None

    async def on_event_callback(
        self, *, invocation_context: InvocationContext, event: Event
    ) -> Event | None:
        """Log an agent's event at once."""
        session = invocation_context.session
        conversation = self._find(session, View(event.author, event.branch, event.isolation_scope))
        if conversation and not event.partial and invocation_context.live_request_queue is None:
            with streamed(conversation.events.append if self._stream else None):
                await conversation.log.sync(session.events)
                await conversation.log.add_early(event)
            if conversation.events:
                told = {"memman": list(conversation.events)}
                event.custom_metadata = {**(event.custom_metadata or {}), **told}
                conversation.events.clear()
        return None

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Log the last events of a run, also for the root agent, which other agents may have replaced."""
        session = invocation_context.session
        with self._lock:
            own = self._owner(session)
            known = [each for (owner, _), each in self._conversations.items() if owner == own]
        invocation_id = invocation_context.invocation_id
        found = [each for each in known if each.invocation_id == invocation_id]
        agent = invocation_context.agent
        root = agent.root_agent if isinstance(agent, BaseAgent) else None
        if isinstance(root, LlmAgent) and found:
            found.append(
                self._conversation(session, root, View(root.name, None, None), is_root=True)
            )
        for conversation in found:
            await conversation.log.sync(session.events)

    async def delete(self, session: Session) -> None:
        """Delete the memman sessions of all agents of a session, for good, but none of another user."""
        own = self._owner(session)
        with self._lock:
            for key in [key for key in self._conversations if key[0] == own]:
                del self._conversations[key]
        root = valid_id(self._base(session))
        for info in await self._aio.list_sessions(prefix=root):
            id_ = info.session_id
            if f"{id_}/".startswith(f"{root}/") and await self._is_of(id_, session):
                await self._aio.delete_session(id_, missing_ok=True)

    async def _is_of(self, id_: str, session: Session) -> bool:
        """Return whether the events in a memman session are those of a session of ADK."""
        entries = await self._aio.get_entries(id_)
        origins = [each.metadata["adk"] for each in entries if "adk" in each.metadata]
        owners = {(origin["user_id"], origin["session_id"]) for origin in origins}
        return owners == {(session.user_id, session.id)}

    # ------------------------------------------------------------ parts

    def _owner(self, session: Session) -> _Owner:
        return session.user_id, self._base(session)

    def _find(self, session: Session, view: View) -> _Conversation | None:
        with self._lock:
            return self._conversations.get((self._owner(session), view))

    def _conversation(
        self, session: Session, agent: Any, view: View, is_root: bool
    ) -> _Conversation:
        key = self._owner(session), view
        with self._lock:
            conversation = self._conversations.get(key)
            if conversation is None:
                names = [view.scope or view.branch, view.agent]
                inner = "/".join(filter(None, names))
                root = valid_id(self._base(session))
                id_ = root if is_root else valid_id(inner, prefix=f"{root}/")
                log = AgentLog(self._aio, id_, session, agent, view)
                tool = self._aio.recall_tool(id_) if self._recall else None
                requests = ModelRequests(self._aio, id_)
                conversation = self._conversations[key] = _Conversation(log, requests, tool)
        return conversation

    async def _fit(self, conversation: _Conversation, request: LlmRequest) -> None:
        """Replace the contents of a request by the session's context."""
        with streamed(conversation.events.append if self._stream else None):
            context = await conversation.requests.build(
                request.model,
                pending=[message_of(content) for _, content in conversation.transients] or None,
                **self._options(request),
            )
        request.contents = conversation.contents.of(
            context, conversation.transients, conversation.given
        )

    async def _fit_alone(self, request: LlmRequest) -> None:
        """Fit a request that is of no conversation."""
        messages = [message_of(content) for content in request.contents]
        requests = ModelRequests(self._aio, "")
        context = await requests.build(request.model, messages=messages, **self._options(request))
        request.contents = Contents().of(context, (), request.contents)

    def _options(self, request: LlmRequest) -> dict[str, Any]:
        """Return what else is in a request."""
        config = request.config
        tools = [_definition(tool) for tool in config.tools or ()] if self._count_tools else []
        return {
            "format": FORMAT,
            "system": "\n\n".join(_texts(config.system_instruction)) or None,
            "tools": tools or None,
        }


class _Conversation:
    """The log of an agent, and its last request."""

    def __init__(
        self, log: AgentLog, requests: ModelRequests, recall: AsyncRecallTool | None
    ) -> None:
        self.log = log
        self.requests = requests
        self.recall = recall  # notices name the tool as long as it exists
        self.contents = Contents()
        self.invocation_id = ""
        self.is_waiting = False  # for the usage
        self.given: list[types.Content] = []
        self.transients: Transients = ()
        self.events: list[dict[str, Any]] = []  # for the next event of the agent

    def begin(self, invocation_id: str, contents: list[types.Content]) -> None:
        """Begin a request with the contents that ADK made for it."""
        self.invocation_id = invocation_id
        self.is_waiting = True
        self.given = list(contents)
        self.transients = self.log.transients(contents)


class _RecallTool(BaseTool):
    """memman's tool `recall` as a tool of ADK."""

    def __init__(self, recall: AsyncRecallTool) -> None:
        super().__init__(name=recall.name, description=recall.description)
        self._recall = recall

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._recall.parameters,
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Return the answer to a call."""
        return await self._recall(args)


def _id_of(session: Session) -> str:
    return session.id


def _has_history(agent: Any, request: LlmRequest) -> bool:
    """Return whether an agent has a conversation, and a request has all of it."""
    once = getattr(agent, "mode", None) == "single_turn" or request.previous_interaction_id
    return not once and getattr(agent, "include_contents", "default") == "default"


def _view(context: InvocationContext) -> View:
    agent: Any = context.agent
    return View(agent.name, context.branch, context.isolation_scope)


def _is_root(context: InvocationContext) -> bool:
    agent: Any = context.agent
    is_inner = context.branch or context.isolation_scope or "/" in (context.node_path or "")
    return agent.parent_agent is None and not is_inner


def _texts(instruction: Any) -> Iterator[str]:
    """Yield the texts of a system instruction in any of its types."""
    if isinstance(instruction, str):
        yield instruction
    elif isinstance(instruction, types.Part):
        yield instruction.text or ""
    elif isinstance(instruction, types.Content):
        yield from _texts(instruction.parts)
    elif isinstance(instruction, list):
        for each in instruction:
            yield from _texts(each)


def _definition(tool: Any) -> dict[str, Any]:
    """Return a tool as JSON; a server or a function that the model's SDK calls itself has none."""
    if not isinstance(tool, types.Tool):
        return {}
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)
