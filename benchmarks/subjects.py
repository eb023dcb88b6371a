"""The measured systems: memman through its public methods, and the reference design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from benchmarks.instruments import Instruments
from benchmarks.workload import Item
from memman import Context, MemoryConfig, MemoryManager

SESSION = "measured"


class Subject(Protocol):
    """One conversation in one memory system. `context` returns the request for the model.

    The constructor takes the instruments, a budget in tokens, and a session's name if there are several.
    """

    def append(self, item: Item) -> None: ...
    def context(self) -> Any: ...


class Shown(NamedTuple):
    """One item of a context, independent of its system's format."""

    kind: Literal["message", "tool_call", "tool_result"]
    text: str
    call_id: str = ""


class Showing(Subject, Protocol):
    """A subject whose contexts can be checked: `shown` returns the items of a context."""

    def shown(self, context: Any) -> Sequence[Shown]: ...


class Memman:
    """memman in memory with its defaults. The measured time includes the conversion of the items.

    Subjects with the same instruments share one manager.
    """

    def __init__(
        self, instruments: Instruments, budget: int, session: str = SESSION, **settings: Any
    ) -> None:
        self.session = session
        self.memory: MemoryManager = instruments.shared(
            "memory",
            lambda: MemoryManager(
                counter=instruments.count,
                summarizer=instruments.summarize,
                config=MemoryConfig(max_tokens=budget, **settings),
            ),
        )

    def append(self, item: Item) -> None:
        """Adds the item by its `add_*` method."""
        memory, session = self.memory, self.session
        if item.kind == "tool_call":
            memory.add_tool_call(session, item.name, item.arguments, call_id=item.call_id)
        elif item.kind == "tool_result":
            memory.add_tool_result(session, item.name, item.content, call_id=item.call_id)
        elif item.role == "user":
            memory.add_user_message(session, item.content)
        else:
            memory.add_assistant_message(session, item.content)

    def context(self) -> Any:
        """Return the context, rendered as OpenAI chat and counted."""
        return self.memory.build_context(self.session)

    def shown(self, context: Context) -> list[Shown]:
        """Return the items of the context's messages."""
        return openai_chat_shown(context.messages)


class MemmanRead(Memman):
    """The same, but `Context.messages` is read each time, which copies each message."""

    def context(self) -> Any:
        """Return the messages as fresh dicts that the caller may change."""
        return super().context().messages

    def shown(self, context: Any) -> list[Shown]:
        """Return the items of the messages."""
        return openai_chat_shown(context)


def openai_chat_shown(messages: Sequence[Mapping[str, Any]]) -> list[Shown]:
    """Return the items of chat completions messages."""
    shown = []
    for message in messages:
        content = message.get("content") or ""
        if message["role"] == "tool":
            shown.append(Shown("tool_result", content, message["tool_call_id"]))
        elif content:
            shown.append(Shown("message", content))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            shown.append(Shown("tool_call", function["name"] + function["arguments"], call["id"]))
    return shown


class Reference:
    """The minimum that a correct design does: a target, not a library.

    It counts each text once and compares a running total with the budget. A cut goes down to half and
    writes one summary, and a call stays with its result. The context is the same list until it changes.
    It renders nothing, emits no events and cannot undo.
    """

    def __init__(self, instruments: Instruments, budget: int, _session: str = SESSION) -> None:
        self._instruments = instruments
        self._budget = budget
        self._log: list[Item] = []
        self._tokens: list[int] = []
        self._start = self._total = self._summary_tokens = 0
        self._summary: str | None = None
        self._context: Sequence[Any] | None = None

    def append(self, item: Item) -> None:
        """Counts the item, and cuts if the total is over the budget."""
        tokens = self._instruments.count(item.content)
        self._log.append(item)
        self._tokens.append(tokens)
        self._total += tokens
        self._context = None
        if self._total + self._summary_tokens > self._budget:
            self._cut()

    def _cut(self) -> None:
        log, at, total = self._log, self._start, self._total
        last = len(log) - 1
        while at < last and (total > self._budget // 2 or log[at].kind == "tool_result"):
            if log[at].kind == "tool_call" and at == last - 1 and total <= self._budget:
                break
            total -= self._tokens[at]
            at += 1
        if at > self._start:
            folded = "\n".join(item.content for item in log[self._start : at])
            self._summary = self._instruments.summarize((self._summary or "") + folded)
            self._summary_tokens = self._instruments.count(self._summary)
            self._start, self._total = at, total

    def context(self) -> Sequence[Any]:
        """Return the summary and the items after it; the same list until the next append."""
        if self._context is None:
            window = self._log[self._start :]
            self._context = [self._summary, *window] if self._summary else window
        return self._context

    def shown(self, context: Sequence[str | Item]) -> list[Shown]:
        """Return the summary as a message, and the items."""
        return [
            Shown("message", one)
            if isinstance(one, str)
            else Shown(one.kind, one.content, one.call_id)
            for one in context
        ]
