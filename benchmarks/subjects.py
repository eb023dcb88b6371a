"""What is measured: memman by its public methods, and the reference design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from benchmarks.instruments import Instruments
from benchmarks.workload import Item
from memman import Context, MemoryConfig, MemoryManager

SESSION = "measured"


class Subject(Protocol):
    """One conversation in one memory system. `context` gives what would be sent to the model.

    It is made with the instruments, a budget in tokens, and a session's name where there are several.
    """

    def append(self, item: Item) -> None: ...
    def context(self) -> Any: ...


class Shown(NamedTuple):
    """One thing that stands in a context, in whatever shape its system sends it."""

    kind: Literal["message", "tool_call", "tool_result"]
    text: str
    call_id: str = ""


class Showing(Subject, Protocol):
    """A subject whose contexts can be checked: `shown` says what stands in one."""

    def shown(self, context: Any) -> Sequence[Shown]: ...


class Memman:
    """memman in memory with its defaults. What the agent has is translated within the measure.

    Sessions with the same instruments are sessions of one manager.
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
        """One `add_*` verb."""
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
        """The context, rendered as OpenAI chat and priced."""
        return self.memory.build_context(self.session)

    def shown(self, context: Context) -> list[Shown]:
        """What stands in its messages."""
        return openai_chat_shown(context.messages)


class MemmanRead(Memman):
    """The same with `Context.messages` read each time, which copies each message of it."""

    def context(self) -> Any:
        """The messages, as fresh dicts that the caller may change."""
        return super().context().messages

    def shown(self, context: Any) -> list[Shown]:
        """What stands in the messages."""
        return openai_chat_shown(context)


def openai_chat_shown(messages: Sequence[Mapping[str, Any]]) -> list[Shown]:
    """What stands in messages of chat completions."""
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
    """The least that a correct design does: it is the target, not a library.

    Each text is counted once, a running total decides, a cut goes down to half and writes one
    summary, a call stays with its result, and the context is the list itself until it changes. It
    renders nothing, tells nobody and cannot undo.
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
        """Counts once; cuts when the total is over the budget."""
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
        """The summary and what is after it; the same list until something is appended."""
        if self._context is None:
            window = self._log[self._start :]
            self._context = [self._summary, *window] if self._summary else window
        return self._context

    def shown(self, context: Sequence[str | Item]) -> list[Shown]:
        """The summary as a message, and the items."""
        return [
            Shown("message", one)
            if isinstance(one, str)
            else Shown(one.kind, one.content, one.call_id)
            for one in context
        ]
