"""`MemmanEngine`: compacts the conversations of a Hermes agent, and keeps each whole in memman."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from threading import get_ident
from typing import Any, Final
from weakref import WeakValueDictionary

from agent.context_engine import ContextEngine  # type: ignore[import-untyped]

from memman import (
    BudgetExceeded,
    Context,
    MemoryManager,
    RecallTool,
    SessionNotFound,
    valid_id,
)
from memman.adapters import ModelRequests, blocking
from memman_hermes.conversation import FORMAT, Conversation, Message, session_of

_logger: Final = logging.getLogger("memman")
_TRIGGER: Final = 0.75  # of the budget: a request from which on Hermes asks for a compaction
_TARGET: Final = 0.5  # of the budget, after a compaction
_LEAST_RATIO: Final = 0.5
_MOST_RATIO: Final = 2.0


class MemmanEngine(ContextEngine):  # type: ignore[misc]
    """Compact an agent's messages when its next request comes near the budget.

    Hermes asks before each request. A compaction replaces the agent's messages by the session's context:
    summaries, stubs and the messages that are still whole. The session keeps every message.

    Args:
        memory: a `MemoryManager`, shared by the copies of the engine that Hermes makes for its agents.
        max_tokens: the most tokens of a request. By default those of `memory`, or the context length of
            the model if that is smaller.
        recall: whether the agent gets the tool `recall`, which returns entries that left the context.
    """

    threshold_percent = _TRIGGER
    protect_first_n = 0  # Hermes asks from the first message on
    protect_last_n = -1

    def __init__(
        self, memory: MemoryManager, *, max_tokens: int | None = None, recall: bool = True
    ) -> None:
        self._methods, self._run = blocking(memory)
        self.memory = memory
        self._max_tokens = max_tokens
        self._recall = recall
        self._engines: WeakValueDictionary[str, MemmanEngine] = WeakValueDictionary()
        self._session_id = ""  # of Hermes, which compares it with its own
        self._model: str | None = None  # of the agent
        self._begin("hermes")

    def __deepcopy__(self, memo: dict[int, Any]) -> MemmanEngine:
        """Return an engine for another agent."""
        other = MemmanEngine(self.memory, max_tokens=self._max_tokens, recall=self._recall)
        other._engines = self._engines
        return other

    def _begin(self, session_id: str) -> None:
        """Take a memman session."""
        self.session_id = session_id
        self._conversation = Conversation(self.memory, session_id)
        self._tool: RecallTool | None = None
        if self._recall:
            self._tool = self.memory.recall_tool(session_id)
        self.thread = 0  # that runs the agent
        self._asked = 0  # tokens of the next request, as Hermes estimates them
        self._ratio = 1.0  # of memman's count to that estimate
        self._system: str | None = None
        self._tools: list[Any] | None = None

    # ------------------------------------------------------------ called by Hermes

    @property
    def name(self) -> str:
        """Return the name for `context.engine` in Hermes' configuration."""
        return "memman"

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """Take the session of this id, or go on with the present one after a compaction."""
        if kwargs.get("boundary_reason") != "compression":
            self._take(session_id)
            return
        self._engines[session_id] = self
        if session_id != self._session_id:  # `compression.in_place` is off
            self._conversation.continue_as(session_id)
            self._session_id = session_id

    def bind_session_state(self, session_db: Any = None, session_id: str = "") -> None:
        """Take the session of this id: `/resume` and `/branch` only reset an engine."""
        if session_id != self._session_id:
            self._take(session_id)

    def _take(self, session_id: str) -> None:
        """Take the session of Hermes with this id."""
        self._session_id = session_id
        self._engines[session_id] = self
        self._begin(session_of(self.memory, session_id, default=valid_id(session_id)))
        self._set_threshold()

    def on_session_end(self, session_id: str, messages: list[Message]) -> None:
        """Log the last messages of a session, unless they are those of before a compaction."""
        if session_id == self._session_id and self._conversation.is_continued_by(messages):
            self._conversation.sync(messages)

    def update_model(self, model: str, context_length: int, *args: Any, **kwargs: Any) -> None:
        """Take the name and the context length of a model."""
        self._model = model or None
        self.context_length = context_length
        self._set_threshold()

    def update_from_response(self, usage: Mapping[str, Any]) -> None:
        """Record the usage of a request."""
        self.last_prompt_tokens = tokens = usage.get("prompt_tokens") or 0
        self.last_completion_tokens = said = usage.get("completion_tokens") or 0
        self.last_total_tokens = usage.get("total_tokens") or 0
        if not tokens:
            return
        requests = ModelRequests(self._methods, self.session_id, self._model)
        self._run(
            requests.record_usage(
                input_tokens=tokens,
                output_tokens=said,
                cached_tokens=usage.get("cache_read_tokens"),
                cache_written_tokens=usage.get("cache_write_tokens"),
            )
        )

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return whether a request of so many tokens is too long, or the session was changed elsewhere."""
        self.thread = get_ident()
        self._asked = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        if self._conversation.is_changed():
            return True
        return self._is_long(self._asked * self._ratio)

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",
    ) -> list[Message]:
        """Return the session's context in the place of the agent's messages."""
        if not messages:
            return messages
        self._conversation.sync(messages)
        self._set_threshold()
        try:
            context = self._context(self.context_length or None)
            tokens = max(int(context.tokens), (current_tokens or 0) * self._ratio)
            if force or self._is_long(tokens):
                self._compact(focus_topic or None, everything=force)
                context = self._context(self._budget() or None)
        except BudgetExceeded as error:  # the model may take the request nevertheless
            _logger.warning("session %s: %s", self.session_id, error)
            return messages
        found = self._conversation.show(context, messages)
        self.compression_count += found is not messages
        return found

    def get_tool_schemas(self) -> list[Message]:
        """Return the tool `recall`."""
        return [] if self._tool is None else [self._tool.openai_chat["function"]]

    def handle_tool_call(self, name: str, args: Mapping[str, Any], **kwargs: Any) -> str:
        """Return the answer of the tool `recall`."""
        return f"there is no tool {name}" if self._tool is None else self._tool(args)

    # ------------------------------------------------------------ for the plugin's hooks

    def running(self, session_id: str) -> MemmanEngine | None:
        """Return the engine of the agent that runs a session in this thread.

        Hermes reviews a conversation in a fork with the same session id, in a thread of its own.
        """
        engine = self._engines.get(session_id)
        return engine if engine is not None and engine.thread == get_ident() else None

    def log(self, messages: Sequence[Message]) -> None:
        """Log what is new in an agent's messages."""
        self._conversation.sync(messages)

    def price(self, body: Mapping[str, Any]) -> None:
        """Count a request of the logged messages, to compare it with its usage and Hermes' estimates."""
        self._system = _system_of(body)
        self._tools = body.get("tools") or None
        self._set_threshold()
        try:
            tokens = int(self._context(self.context_length or None).tokens)
        except BudgetExceeded:
            return
        if self._asked:
            self._ratio = min(_MOST_RATIO, max(_LEAST_RATIO, tokens / self._asked))

    # ------------------------------------------------------------ parts

    def _context(self, budget: int | None) -> Context:
        return self.memory.build_context(
            self.session_id,
            format=FORMAT,
            model=self._model,
            budget=budget,
            system=self._system,
            tools=self._tools,
            system_inline=False,
            recall=False,  # Hermes keeps the list until the next compression
        )

    def _compact(self, focus: str | None, *, everything: bool) -> None:
        """Compress everything but the recent window, or as much as the budget asks for."""
        target = None
        if not everything:
            fixed = self.memory.count_tokens([], system=self._system, tools=self._tools).tokens
            most = self.memory.get_stats(self.session_id).max_tokens
            target = min(max(1, int(self._budget() * _TARGET) - fixed), most)
        self.memory.compress(self.session_id, target_tokens=target, focus=focus)

    def _is_long(self, tokens: float) -> bool:
        return bool(self.threshold_tokens) and tokens >= self.threshold_tokens

    def _set_threshold(self) -> None:
        self.threshold_tokens = int(self._budget() * _TRIGGER)

    def _budget(self) -> int:
        """Return the most tokens of a request, 0 if that is not known yet."""
        own = self._max_tokens
        if own is None:
            try:
                own = self.memory.get_stats(self.session_id).max_tokens
            except SessionNotFound:
                own = 0
        return min((limit for limit in (own, self.context_length) if limit), default=0)


def _system_of(body: Mapping[str, Any]) -> str | None:
    """Return the system prompt of a request to any API that Hermes has."""
    system = body.get("system") or body.get("instructions")
    first: Mapping[str, Any] = next(iter(body.get("messages") or ()), {})
    if system is None and first.get("role") == "system":
        system = first.get("content")
    if isinstance(system, list):
        system = "\n\n".join(block.get("text", "") for block in system)
    return system or None
