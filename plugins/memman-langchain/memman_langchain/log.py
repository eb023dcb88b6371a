"""A graph's messages in memman's log: in order, each once, and a session for each branch."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from threading import RLock
from typing import Any, NamedTuple

from cachetools import LRUCache
from langchain_core.messages import BaseMessage, HumanMessage, messages_from_dict
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from memman import Context, MemoryManager, SessionExists, SessionNotFound, valid_id
from memman.adapters import blocking, digest_of

FORMAT = "langchain"
_logger = logging.getLogger("memman")
_MOST_THREADS = 1_000
_MOST_BRANCHES = 16  # of one thread

_Mark = tuple[str, int]  # a message: its id, and a hash of its content and calls


class MessageLog:
    """Keeps sessions in step with the messages of a graph's state.

        log = MessageLog(memory)

        def call_model(state: MessagesState, config: RunnableConfig) -> dict:
            session = log.follow(config["configurable"]["thread_id"], state["messages"])
            return {"messages": [model.invoke(log.context(session, state["messages"]))]}

    Messages are told apart by their `id`. If the state leaves the log (an earlier checkpoint, an edited
    message), it continues in a fork of the session. A state may lack the oldest messages of its log.
    """

    def __init__(self, memory: MemoryManager) -> None:
        blocking(memory)  # raises for another manager
        self.memory = memory
        self._threads: LRUCache[str, _Thread] = LRUCache(_MOST_THREADS)
        self._lock = RLock()

    def follow(
        self, session_id: str, messages: Sequence[BaseMessage], *, branch: str | None = None
    ) -> str:
        """Add the new messages, and return the session whose log now ends with all of them.

        Args:
            session_id: the session of the thread. Text that is no valid id becomes a digest.
            messages: the state's messages.
            branch: the session that `follow` returned for this state before; by default the branch is found
                by its messages.
        """
        with self._lock:
            thread = self._threads.setdefault(session_id, _Thread(self.memory, session_id))
        return thread.follow(branch or valid_id(session_id), messages)

    def context(
        self,
        session_id: str,
        messages: Sequence[BaseMessage],
        *,
        pending: Sequence[BaseMessage] = (),
        **build: Any,
    ) -> list[BaseMessage]:
        """Return the messages to send: those of the state where they are unaltered, else memman's.

        Args:
            session_id: the session that `follow` returned.
            messages: the state's messages, perhaps edited for this request.
            pending: messages of this request alone, which are sent last.
            build: arguments of `MemoryManager.build_context`.

        Raises:
            BudgetExceeded: the shortest context exceeds the budget.
        """
        context = self.memory.build_context(
            session_id, format=FORMAT, pending=list(pending) or None, missing_ok=True, **build
        )
        return native_messages(context, messages, pending)


class _Log(NamedTuple):
    """The end of a session's log."""

    last: str  # the id of the newest entry
    marks: list[_Mark]
    whole: bool  # whether `marks` begins with the log


class _Thread:
    """The sessions of one thread: its branches."""

    def __init__(self, memory: MemoryManager, name: str) -> None:
        self._memory = memory
        self._name = name
        self._logs: LRUCache[str, _Log] = LRUCache(_MOST_BRANCHES)
        self._lock = RLock()  # parallel agents of one namespace begin with the same session

    def follow(self, session: str, messages: Sequence[BaseMessage]) -> str:
        """Add the new messages to the session that they continue, and return it."""
        if not messages:
            return session
        marks = [
            _mark_of(name, message.content, getattr(message, "tool_calls", None))
            for name, message in zip(ids_of(messages), messages, strict=True)
        ]
        seen, given = marks, messages
        with self._lock:
            while True:
                log = self._read(session, marks)
                start, same = _compare(log.marks, marks)
                if start + same < len(log.marks) and (gone := self._gone(session, seen, given)):
                    log = log._replace(marks=[mark for mark in log.marks if mark[0] not in gone])
                    kept = [n for n, mark in enumerate(marks) if mark[0] not in gone]
                    marks, messages = [marks[n] for n in kept], [messages[n] for n in kept]
                    start, same = _compare(log.marks, marks)
                if start + same == len(log.marks) or not marks:
                    break
                upto = log.marks[start + same - 1][0] if start + same else None
                session = self._fork(session, upto, marks[: same + 1], messages[: same + 1][-1])
            last = self._add(session, marks[same:], messages[same:]) or log.last
            self._logs[session] = _Log(last, seen, log.whole and not start)
        return session

    def _gone(
        self, session: str, marks: Sequence[_Mark], messages: Sequence[BaseMessage]
    ) -> set[str]:
        """Return the ids of those messages of which entries were deleted or retracted."""
        names: dict[str, str] = {}
        for (id_, _), message in zip(marks, messages, strict=True):
            blocks = message.content if isinstance(message.content, list) else []
            most = len([*blocks, *getattr(message, "tool_calls", ())])  # further entries
            first = valid_id(id_)
            names |= {first: id_, **{f"{first}:{n}": id_ for n in range(1, 1 + most)}}
        found = self._memory.find_ids(session, list(names))
        return {names[entry] for entry, reason in found.items() if reason not in (None, "cleared")}

    def _read(self, session: str, marks: Sequence[_Mark]) -> _Log:
        """Return the log from the first of the messages on, or all of it; read it if it was changed."""
        try:
            newest = self._memory.get_entries(session, last=1)
        except SessionNotFound:
            return _Log("", [], True)
        last, first = newest[-1].id if newest else "", marks[0][0]
        log = self._logs.get(session)
        if log and log.last == last and (log.whole or _index(log.marks, first) is not None):
            return log
        # A state without the oldest messages is the end of its log.
        log = self._read_newest(session, last, len(marks))
        if log.whole or _index(log.marks, first) is not None:
            return log
        return self._read_newest(session, last, None)

    def _read_newest(self, session: str, last: str, most: int | None) -> _Log:
        read = self._memory.get_messages(session, format=FORMAT, last=most)
        data = [message["data"] for message in read]
        marks = [
            _mark_of(each["id"], each["content"], each.get("tool_calls"))
            for each in data
            if each.get("id")  # else it is an entry that the application added
        ]
        return _Log(last, marks, most is None or len(read) < most)

    def _fork(
        self, session: str, upto: str | None, marks: Sequence[_Mark], parting: BaseMessage
    ) -> str:
        """Return the session of the branch that begins with these messages; begin it if it is new."""
        ids = [mark[0] for mark in marks]
        said = f"{session}\n{ids}\n{parting.content!r}\n{getattr(parting, 'tool_calls', None)!r}"
        branch = valid_id(f"{self._name}~{digest_of(said, 6)}")
        if upto is None and branch not in self._logs and "/" not in self._name:  # no sub-agent
            _logger.warning(
                "the state has no message of session %s, so it begins session %s; to continue, an agent "
                "needs its checkpointer",
                session,
                branch,
            )
        if upto is not None:
            with suppress(SessionExists):
                self._memory.fork_session(session, branch, upto=valid_id(upto))
        return branch

    def _add(
        self, session: str, marks: Sequence[_Mark], messages: Sequence[BaseMessage]
    ) -> str | None:
        """Add messages; return the id of the last entry."""
        named = [
            message if message.id else message.model_copy(update={"id": mark[0]})
            for message, mark in zip(messages, marks, strict=True)
        ]
        ids = [valid_id(mark[0]) for mark in marks]
        entries = self._memory.add_messages(session, named, format=FORMAT, ids=ids, unknown="keep")
        return entries[-1].id if entries else None


def session_key(thread_id: object, namespace: str) -> str:
    """Return the session of a thread, or of an agent inside it, by the names of the nodes above."""
    nodes = [task.partition(":")[0] for task in namespace.split("|")[:-1]]
    return "/".join([str(thread_id), *nodes])


def ids_of(messages: Sequence[BaseMessage]) -> list[str]:
    """Return the ids of messages; one without an id is named by its content and the message before it."""
    ids: list[str] = []
    for message in messages:
        name = message.id
        if not name:
            name = f"memman-{digest_of(f'{ids[-1:]}{message.type}{message.content!r}')}"
        ids.append(_plain(name))
    return ids


def native_messages(
    context: Context, messages: Sequence[BaseMessage], pending: Sequence[BaseMessage] = ()
) -> list[BaseMessage]:
    """Return a context's messages; those that memman did not alter are the given objects themselves."""
    own = dict(zip(map(valid_id, ids_of(messages)), messages, strict=True))
    own |= {f"pending:{index}": message for index, message in enumerate(pending)}
    return _native(context, own)


def native_of_fitted(context: Context, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages to send of a run that has no session, as `native_messages` does."""
    return _native(context, {str(index): each for index, each in enumerate(messages)})


def _native(context: Context, own: Mapping[str, BaseMessage]) -> list[BaseMessage]:
    sources = zip(context.messages, context.sources, strict=True)
    return [
        (own.get(source.entries[0]) if source.unaltered else None) or _restored(message)
        for message, source in sources
    ]


def _restored(message: Mapping[str, Any]) -> BaseMessage:
    try:
        return messages_from_dict([message])[0]  # type: ignore[list-item]  # a dict is what it takes
    except ValueError:  # a class of the application's own, which its state no longer has
        return HumanMessage(message["data"]["content"], id=message["data"].get("id"))


def _mark_of(id: str, content: object, calls: Sequence[Mapping[str, Any]] | None) -> _Mark:
    """Return the mark of a message in a state or in the log, without the call ids that memman made."""
    called = [(call["name"], _json(call["args"])) for call in calls or ()]
    return _plain(id), hash((_json(content), *called))


def _json(value: object) -> str:
    """Return a value as text that is the same for the state and for the log."""
    if isinstance(value, str):
        return _plain(value)
    return _plain(json.dumps(value, ensure_ascii=False, default=repr))


def _plain(text: str) -> str:
    """Return text without lone surrogates, for which memman stores U+FFFD and some checkpointers `?`."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode().replace("\ufffd", "?")


def _compare(log: Sequence[_Mark], marks: Sequence[_Mark]) -> tuple[int, int]:
    """Return where the messages begin in the log, and how many from there on are the same."""
    start = _index(log, marks[0][0]) or 0 if marks else 0
    pairs = zip(log[start:], marks, strict=False)
    return start, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _index(marks: Sequence[_Mark], id: str) -> int | None:
    return next((index for index, mark in enumerate(marks) if mark[0] == id), None)


def pre_model_hook(
    memory: MemoryManager,
    *,
    tools: Sequence[BaseTool | dict[str, Any]] = (),
    system: str | None = None,
    **build: Any,
) -> Callable[[Any, RunnableConfig], dict[str, list[BaseMessage]]]:
    """Return a `pre_model_hook` for `langgraph.prebuilt.create_react_agent`.

    The state stays whole; the model receives memman's context. The last answer of a run is added to the log
    when the next run begins.

    Args:
        memory: the manager.
        tools: the agent's tools, which count against the budget.
        system: the agent's prompt, which counts, too.
        build: more arguments of `MemoryManager.build_context`, such as `budget=`.
    """
    log = MessageLog(memory)
    build |= {"system": system, "system_inline": False, "tools": tool_schemas(tools) or None}

    def hook(state: Any, config: RunnableConfig) -> dict[str, list[BaseMessage]]:
        messages = state["messages"] if isinstance(state, Mapping) else state.messages
        where = config.get("configurable", {})
        if not where.get("thread_id"):
            fitted = memory.fit_messages(messages, format=FORMAT, **build)
            return {"llm_input_messages": native_of_fitted(fitted, messages)}
        key = session_key(where["thread_id"], where.get("checkpoint_ns", ""))
        session = log.follow(key, messages)
        return {"llm_input_messages": log.context(session, messages, **build)}

    return hook


def tool_schemas(tools: Iterable[BaseTool | dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tools as the model receives them."""
    return [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in tools]
