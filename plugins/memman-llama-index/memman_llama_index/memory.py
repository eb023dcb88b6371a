"""`MemmanMemory`: a LlamaIndex memory that is a session of memman."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any, Final, Literal
from uuid import uuid4
from weakref import WeakValueDictionary

from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    ContentBlock,
    MessageRole,
    TextBlock,
)
from llama_index.core.bridge.pydantic import Field, PrivateAttr, TypeAdapter, ValidationError
from llama_index.core.constants import DEFAULT_CONTEXT_WINDOW
from llama_index.core.llms import LLM
from llama_index.core.memory import BaseMemory

from memman import (
    AsyncMethods,
    BudgetExceeded,
    Context,
    Entry,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
    RecallTool,
    SessionNotFound,
    valid_id,
)
from memman.adapters import ModelRequests, Run, blocking, streamed
from memman.formats.lenient import read_messages
from memman.formats.originals import message_groups, original_messages
from memman.formats.parts import NOT_CARRIED
from memman_llama_index.messages import NAME, LlamaIndexFormat, is_message

_HERE: Final = "process:"  # the store of a manager that no other process finds
_FRAMING: Final = 8  # tokens around the prefix of a chat engine, which counts its text alone
_MOST_EVENTS: Final = 100
_SHARE: Final = 0.75  # of a model's window, as in LlamaIndex's own memories
_UNNAMED: Final = "unknown"  # LlamaIndex's name of a model without a name
_BLOCK: Final[TypeAdapter[Any]] = TypeAdapter(ContentBlock)
_managers: Final[WeakValueDictionary[str, MemoryManager]] = WeakValueDictionary()
_lock: Final = Lock()


class MemmanMemory(BaseMemory):
    """A memory whose `get` fits the model's window, and whose `get_all` has every message.

    It is plain data, so a workflow's `Context` can be saved with it. The manager is found again by `store`.
    """

    session_id: str = Field(description="The memman session.")
    store: str = Field(description="The path or URL of the manager's store.")
    token_limit: int | None = Field(default=None, description="The most tokens of a request.")
    model: str | None = Field(default=None, description="The name of the model.")
    _memory: MemoryManager = PrivateAttr()
    _recall: RecallTool | None = PrivateAttr(default=None)
    _system: str | None = PrivateAttr(default=None)  # what an agent sends with the messages
    _tools: list[Any] | None = PrivateAttr(default=None)
    # The model of the last request, and its window if the model has one.
    _asked: tuple[str | None, int | None] = PrivateAttr(default=(None, None))
    _methods: AsyncMethods = PrivateAttr()
    _run: Run = PrivateAttr()
    _last: ModelRequests | None = PrivateAttr(default=None)
    # Events of compressions outside of an agent's step, for its next one.
    _events: deque[dict[str, Any]] = PrivateAttr(
        default_factory=partial(deque, maxlen=_MOST_EVENTS)
    )
    _fits_session: bool = PrivateAttr(default=True)  # the last request
    # What `get` returned last: the objects of a request, which are converted once.
    _got: tuple[Context, list[ChatMessage]] | None = PrivateAttr(default=None)
    # A message, and the same with the state of the workflow, which all requests of a run have.
    _edit: tuple[ChatMessage, ChatMessage] | None = PrivateAttr(default=None)

    def __init__(self, memory: MemoryManager | None = None, **data: Any) -> None:
        super().__init__(**data)
        if memory is not None:
            blocking(memory)  # raises for another manager
        with _lock:
            found = memory or _managers.get(self.store) or self._opened()
            self._memory = _managers[self.store] = found
        self._methods, self._run = blocking(found)

    def _opened(self) -> MemoryManager:
        if self.store.startswith(_HERE):
            raise InvalidInput(
                "the manager of this memory was in another process, or is gone: give "
                "MemmanMemory.from_defaults a store= to continue in another process"
            )
        return MemoryManager(
            self.store, model=self.model, config=MemoryConfig(max_tokens=self.token_limit)
        )

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes it."""
        return "MemmanMemory"

    @classmethod
    def from_defaults(  # type: ignore[override]  # as the framework's own memories
        cls,
        memory: MemoryManager | None = None,
        session_id: str | None = None,
        chat_history: list[ChatMessage] | None = None,
        store: str | None = None,
        token_limit: int | None = None,
        llm: LLM | None = None,
    ) -> MemmanMemory:
        """Return the memory of a session.

        Args:
            memory: the manager; by default one is opened for `store`, once in a process.
            session_id: the session, a new one by default. Text that is no valid id becomes a digest.
            chat_history: the messages of the session, as `set` takes them.
            store: the path or URL of the store; without one, everything stays in this process. With
                `memory`, the name under which a restored `Context` finds this manager.
            token_limit: the most tokens of a request, if a manager is opened; by default three quarters of
                the window of `llm`.
            llm: the model, if a manager is opened.
        """
        if llm is not None and token_limit is None:
            token_limit = int(llm.metadata.context_window * _SHARE)
        model = None if llm is None else _named(llm)[0]
        if memory is None and store is None:
            memory = MemoryManager(model=model, config=MemoryConfig(max_tokens=token_limit))
        made = cls(
            memory,
            session_id=valid_id(session_id) if session_id is not None else str(uuid4()),
            store=store or f"{_HERE}{uuid4()}",
            token_limit=token_limit,
            model=model,
        )
        if chat_history:
            made.set(chat_history)
        return made

    # ------------------------------------------------------------ LlamaIndex's memory

    def get(
        self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any
    ) -> list[ChatMessage]:
        """Return the messages to send, within the budget.

        Args:
            input: unused.
            initial_token_count: the tokens of what else is sent.
        """
        self._asked = None, None  # the next request may be to another model
        framing = _FRAMING if initial_token_count else 0
        context = self._last_context(initial_token_count + framing)
        messages = chat_messages(context.messages)
        # A workflow may write its state into the last one.
        last = [message.model_copy(deep=True) for message in messages[-1:]]
        self._got = context, [*messages[:-1], *last]
        return messages

    def get_all(self) -> list[ChatMessage]:
        """Return all messages as they were put, since the last `reset`."""
        return chat_messages(self._all())

    def put(self, message: ChatMessage) -> None:
        """Add a message. Once this returns, it is in the log."""
        self.put_messages([message])

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Add messages, all or none."""
        if messages:
            with streamed(self._events.append):
                self._memory.add_messages(self.session_id, messages, NAME, unknown="keep")

    def set(self, messages: list[ChatMessage]) -> None:
        """Make `get_all` return these messages: what is new is added, what is gone is retracted.

        A list that begins with the messages of `get` continues the session, too.
        """
        given = _plain(messages)
        seen = _plain(self.get())
        if seen and given[: len(seen)] == seen:
            return self.put_messages(messages[len(seen) :])
        kept, gone = self._compared(given)
        if gone:
            self._memory.retract(self.session_id, gone, reason="no longer in the chat history")
        return self.put_messages(messages[kept:])

    def reset(self) -> None:
        """Empty the memory; the log stays readable."""
        with suppress(SessionNotFound):
            self._memory.clear_session(self.session_id)

    def tokenizer_fn(self, text: str) -> Sequence[int]:
        """Return something as long as a text has tokens: chat engines count their prefix with it."""
        return range(int(self._memory.count_tokens(text)))

    # ------------------------------------------------------------ for an agent

    def fit(
        self,
        messages: Sequence[ChatMessage],
        tools: list[Any],
        *,
        llm: LLM | None = None,
        recall: bool = False,
        cache: Literal["auto"] | None = None,
    ) -> list[ChatMessage]:
        """Return an agent's next request within the budget, its system prompt and tools included.

        A request that is not made of `get`, because a subclass has changed it, is fitted by itself.

        Args:
            messages: the request that the agent made of `get` and its system prompt.
            tools: the definitions of its tools.
            llm: the model that is asked, with its window.
            recall: whether it has the tool `recall`.
            cache: "auto" places cache points.
        """
        if recall and self._recall is None:
            self._recall = self._memory.recall_tool(self.session_id)
        if llm is not None:
            self._asked = _named(llm)
        if self._got is None:
            self.get()
        got, known = self._got or (None, [])
        extra = max(0, _leading_system(messages) - _leading_system(known))
        prompt, rest = list(messages[:extra]), list(messages[extra:])
        self._system = "\n\n".join(each.content or "" for each in prompt) or None
        self._tools = tools or None
        edited = _is_edited(known, rest)
        self._fits_session = edited or rest == known
        if not self._fits_session:
            options = {**self._options(), "cache": cache}
            context = self._run(self._requests.build(**options, messages=rest))
            return [*prompt, *chat_messages(context.messages)]
        if edited:
            self._edit = known[-1], rest[-1]
        elif not rest or rest[-1].role == MessageRole.USER:  # another run, without a state
            self._edit = None
        stated = self._edit[1].content if self._edit else None
        context = self._context(extra=stated, cache=cache)
        found = known if context is got else chat_messages(context.messages)
        return [*prompt, *(_edited(found, *self._edit) if self._edit else found)]

    def recall(self, arguments: Mapping[str, Any]) -> str:
        """Return the answer to a call of the tool `recall`."""
        tool = self._recall or self._memory.recall_tool(self.session_id)
        return tool(arguments)

    def record_usage(self, usage: Any) -> None:
        """Record the usage of the last request, in a provider's spelling, which calibrates the counts."""
        if self._fits_session:
            self._run(self._requests.record_usage(usage))

    def learn_limit(self, error: Exception) -> bool:
        """Learn the model's limit from an error, and return whether a shorter request may succeed."""
        return self._run(self._requests.is_too_long(error))

    def pop_events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of compressions since the last call that no block of `streamed` wrote."""
        while self._events:
            yield self._events.popleft()

    # ------------------------------------------------------------ parts

    @property
    def _requests(self) -> ModelRequests:
        if (
            self._last is None or self._last.session_id != self.session_id
        ):  # a copy may have another
            self._last = ModelRequests(self._methods, self.session_id)
        return self._last

    def _last_context(self, reserved: int = 0) -> Context:
        """Return the context for the last request's agent, or for none if its prompt is too long now."""
        try:
            return self._context(reserved)
        except BudgetExceeded:
            self._system = self._tools = None
            return self._context(reserved)

    def _context(
        self,
        reserved: int = 0,
        *,
        extra: str | None = None,
        cache: Literal["auto"] | None = None,
    ) -> Context:
        """Return the session's context with what an agent sends besides, and `extra`, priced."""
        options = {**self._options(extra), "cache": cache}
        context = self._run(self._requests.build(**options))
        if int(context.tokens) + reserved > context.budget:
            options["budget"] = max(1, context.budget - reserved)
            context = self._run(self._requests.build(**options))
        return context

    def _options(self, extra: str | None = None) -> dict[str, Any]:
        system = "\n\n".join(filter(None, (self._system, extra)))
        return {
            "format": NAME,
            "system": system or None,
            "tools": self._tools,
            "system_inline": False,
            "model": self._asked[0],
            "window": self._asked[1],
        }

    def _all(self) -> list[Any]:
        try:
            return self._memory.get_messages(self.session_id, format=NAME)
        except SessionNotFound:
            return []

    def _compared(self, given: Sequence[Any]) -> tuple[int, list[str]]:
        """Return how many of the given messages the session has, and the ids of its other entries."""
        kept, gone, stored = 0, list[str](), iter(_plain(self.get_all()))
        for group, size in self._groups():
            ours = list(islice(stored, size))
            if given[kept : kept + size] == ours:
                kept += size
            elif group[0].type != "context":  # the application's own, not of the conversation
                gone += [entry.id for entry in group]
        return kept, gone

    def _groups(self) -> Iterable[tuple[list[Entry], int]]:
        """Return the entries of each message of the log, and the number of messages they are here."""
        try:
            entries = self._memory.get_entries(self.session_id)
        except SessionNotFound:
            return []
        sizes = map(len, original_messages(LlamaIndexFormat(), entries))
        return zip(message_groups(entries), sizes, strict=True)

    # ------------------------------------------------------------ copies

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> MemmanMemory:
        return self.from_dict(dict(self))


def _named(llm: LLM) -> tuple[str | None, int | None]:
    """Return the name and the window of a model; None for what LlamaIndex only assumes."""
    name, window = llm.metadata.model_name, llm.metadata.context_window
    return None if name == _UNNAMED else name, None if window == DEFAULT_CONTEXT_WINDOW else window


def chat_messages(messages: Iterable[Any]) -> list[ChatMessage]:
    """Return messages of the format as LlamaIndex's."""
    return [_chat_message(message) for message in messages]


def _chat_message(message: Any) -> ChatMessage:
    if not is_message(message):  # what was put was none
        return ChatMessage(role="user", content=json.dumps(message, ensure_ascii=False))
    # LlamaIndex would make blocks of these images again.
    more = {key: value for key, value in message["additional_kwargs"].items() if key != "images"}
    try:
        return ChatMessage(**{**message, "additional_kwargs": more})
    except ValidationError:  # a block of another release, or a file that is gone
        blocks = list(map(_block, message["blocks"]))
        return ChatMessage(role=message["role"], blocks=blocks, additional_kwargs=more)


def _block(block: dict[str, Any]) -> Any:
    try:
        return _BLOCK.validate_python(block)
    except ValidationError:
        return TextBlock(text=NOT_CARRIED)


def _plain(messages: Sequence[ChatMessage]) -> list[Any]:
    """Return messages as they are stored, so that they can be compared."""
    return [each.message for each in read_messages(list(messages), keep=True)]


def _leading_system(messages: Sequence[ChatMessage]) -> int:
    """Return the number of system messages at the beginning."""
    roles = [message.role == MessageRole.SYSTEM for message in messages]
    return [*roles, False].index(False)


def _is_edited(known: Sequence[ChatMessage], given: Sequence[ChatMessage]) -> bool:
    """Return whether a workflow wrote its state into the last of these messages."""
    if not given or len(given) != len(known) or given[:-1] != known[:-1]:
        return False
    ours, theirs = known[-1], given[-1]
    return ours != theirs and ours.role == theirs.role and len(ours.blocks) == len(theirs.blocks)


def _edited(
    found: Sequence[ChatMessage], ours: ChatMessage, theirs: ChatMessage
) -> list[ChatMessage]:
    """Return messages with an edited one in place of the newest that equals `ours`, cache point or not."""
    result = list(found)
    for index, message in reversed(list(enumerate(found))):
        marks = [block for block in message.blocks if isinstance(block, CachePoint)]
        bare = [block for block in message.blocks if block not in marks]
        if (message.role, bare) == (ours.role, ours.blocks):
            blocks = [*theirs.blocks, *marks]
            result[index] = theirs.model_copy(update={"blocks": blocks})
            break
    return result
