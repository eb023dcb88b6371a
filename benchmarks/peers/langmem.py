"""`summarize_messages` of langmem over the whole list, with its running summary."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any
from warnings import catch_warnings, simplefilter

from benchmarks.instruments import Instruments
from benchmarks.peers import sumy
from benchmarks.peers.langchain import message_of, scripted_model, shown_in
from benchmarks.subjects import Shown
from benchmarks.tokens import chars4
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


def load_summaries() -> type[Summaries]:
    """Return the same for recorded messages. Raises `ImportError` if langmem or sumy is not installed."""
    import_module("langmem.short_term")
    sumy.load()
    return Summaries


class Refused(Exception):
    """`summarize_messages` raised for a recorded conversation."""


class Summaries:
    """OpenAI messages through `summarize_messages`, whose model is sumy's extract of its prompt (Luhn)."""

    def __init__(self, budget: int, summary_tokens: int) -> None:
        self._summarize = import_module("langmem.short_term").summarize_messages
        self._convert = import_module("langchain_core.messages").convert_to_messages
        self._limits = {"max_tokens": budget, "max_summary_tokens": summary_tokens}
        self._model = _extracting_model(summary_tokens)
        self._originals: dict[str, Any] = {}
        self._history: list[Any] = []
        self._summary: Any = None

    def append(self, message: Any) -> None:
        """Add a message; the work is done at the next context."""
        name = f"m{len(self._history)}"
        self._originals[name] = message
        self._history += self._convert([{**message, "id": name}])

    def context(self) -> list[dict[str, Any]]:
        """Return the messages, summarized if that was due: the recorded ones as they were.

        Raises `Refused` for a history that `summarize_messages` refuses, as one where another message
        stands between a call and its result.
        """
        with catch_warnings():
            simplefilter("ignore", RuntimeWarning)  # a prompt that is longer than the budget
            try:
                result = self._summarize(
                    self._history, running_summary=self._summary, model=self._model, **self._limits
                )
            except ValueError as error:
                raise Refused(str(error)) from error
        self._summary = result.running_summary
        return [self._originals.get(each.id) or _as_sent(each) for each in result.messages]


def _as_sent(message: Any) -> dict[str, Any]:
    return {"role": "system", "content": message.content}


def _extracting_model(tokens: int) -> Any:
    """Make a chat model whose answer is sumy's extract of what it is sent."""
    extract = sumy.load()["Luhn"]

    class Extracting(Instruments):
        def summarize(self, prompt: str) -> str:
            return extract(prompt, tokens, chars4)

    return scripted_model(Extracting(chars4), _with_calls)


def _with_calls(message: Any) -> str:
    calls = (f"{call['name']} {call['args']}" for call in getattr(message, "tool_calls", ()))
    return "\n".join([str(message.content), *calls, ""])
