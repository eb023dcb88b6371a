"""What is measured: memman through its public verbs, and the reference design below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from benchmarks.instruments import Instruments
from benchmarks.workload import Item
from memman import Context, MemoryConfig, MemoryManager

SESSION = "measured"


class Subject(Protocol):
    """One conversation in one memory system. `context` gives what would be sent to the model."""

    def append(self, item: Item) -> None: ...
    def context(self) -> Any: ...


class Memman:
    """memman in memory with its defaults. What the agent has is translated within the measure."""

    def __init__(self, instruments: Instruments, budget: int, **settings: Any) -> None:
        self.memory = MemoryManager(
            counter=instruments.count,
            summarizer=instruments.summarize,
            config=MemoryConfig(max_tokens=budget, **settings),
        )

    def append(self, item: Item) -> None:
        """One `add_*` verb."""
        memory = self.memory
        if item.kind == "tool_call":
            memory.add_tool_call(SESSION, item.name, item.arguments, call_id=item.call_id)
        elif item.kind == "tool_result":
            memory.add_tool_result(SESSION, item.name, item.content, call_id=item.call_id)
        elif item.role == "user":
            memory.add_user_message(SESSION, item.content)
        else:
            memory.add_assistant_message(SESSION, item.content)

    def context(self) -> Context:
        """The context, rendered as OpenAI chat and priced."""
        return self.memory.build_context(SESSION)


class MemmanRead(Memman):
    """The same with `Context.messages` read each time, which copies each message of it."""

    def context(self) -> Any:
        """The messages, as fresh dicts that the caller may change."""
        return super().context().messages


class Reference:
    """The least that a correct design does: it is the target, not a library.

    Each text is counted once, a running total decides, a cut goes down to half and writes one
    summary, a call stays with its result, and the context is the list itself until it changes. It
    renders nothing, tells nobody and cannot undo.
    """

    def __init__(self, instruments: Instruments, budget: int) -> None:
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
