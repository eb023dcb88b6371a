"""`summarize_messages` of langmem over the whole list, with its running summary."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from benchmarks.instruments import Instruments
from benchmarks.peers.langchain import message_of, scripted_model, shown_in
from benchmarks.subjects import Shown
from benchmarks.workload import Item

_SUMMARY_TOKENS = 256


def load() -> type[RunningSummary]:
    """Return the subject. Raises `ImportError` if langmem is not installed."""
    import_module("langmem.short_term")
    return RunningSummary


class RunningSummary:
    """Passes the whole history each time and gets the messages to send."""

    def __init__(self, instruments: Instruments, budget: int, _session: str = "") -> None:
        self._summarize = import_module("langmem.short_term").summarize_messages
        self._instruments = instruments
        self._budget = budget
        self._model = scripted_model(instruments)
        self._history: list[Any] = []
        self._summary: Any = None

    def append(self, item: Item) -> None:
        """Adds a message; the work is done at the next context."""
        self._history.append(message_of(item, f"m{len(self._history)}"))

    def context(self) -> Any:
        """Return the messages, summarized if that was due."""
        result = self._summarize(
            self._history,
            running_summary=self._summary,
            model=self._model,
            max_tokens=self._budget,
            max_summary_tokens=_SUMMARY_TOKENS,
            token_counter=self._count,
        )
        self._summary = result.running_summary
        return result.messages

    def shown(self, context: Any) -> list[Shown]:
        """Return the items of the messages."""
        return shown_in(context)

    def _count(self, messages: Sequence[Any]) -> int:
        return sum(self._instruments.count(message.content) for message in messages)
