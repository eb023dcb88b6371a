"""`ConversationSummaryBufferMemory` of langchain-classic, by entries and by turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from benchmarks.instruments import Instruments
from benchmarks.subjects import Shown
from benchmarks.workload import Item


def load() -> type[SummaryBuffer]:
    """Return the subject. Raises `ImportError` if langchain-classic is not installed."""
    import_module("langchain_classic.memory")
    return SummaryBuffer


def load_turns() -> type[SummaryBufferByTurns]:
    """Return the subject that takes turns. Raises `ImportError` if langchain-classic is not installed."""
    import_module("langchain_classic.memory")
    return SummaryBufferByTurns


class SummaryBuffer:
    """Keeps messages up to a limit of tokens and folds the older ones into a summary."""

    def __init__(self, instruments: Instruments, budget: int, _session: str = "") -> None:
        self._added = 0
        memory = import_module("langchain_classic.memory").ConversationSummaryBufferMemory
        model = scripted_model(instruments)
        self._memory = memory(llm=model, max_token_limit=budget, return_messages=True)

    def append(self, item: Item) -> None:
        """Adds a message and prunes, as its `save_context` does for each exchange."""
        self._memory.chat_memory.add_message(message_of(item, f"m{self._added}"))
        self._added += 1
        self._memory.prune()

    def context(self) -> Any:
        """Return the messages that a chain would send."""
        return self._memory.load_memory_variables({})["history"]

    def shown(self, context: Any) -> list[Shown]:
        """Return the items of the messages."""
        return shown_in(context)


class SummaryBufferByTurns(SummaryBuffer):
    """The same by the documented method `save_context`: a question and its answer at a time."""

    _asked: Item | None = None

    def append(self, item: Item) -> None:
        """Keeps a question until its answer is added."""
        if self._asked is None:
            self._asked = item
            return
        self._memory.save_context({"input": self._asked.content}, {"output": item.content})
        self._asked = None


def message_of(item: Item, message_id: str) -> Any:
    """Convert an item to LangChain's message."""
    messages = import_module("langchain_core.messages")
    if item.kind == "tool_call":
        call = {"name": item.name, "args": item.arguments, "id": item.call_id}
        return messages.AIMessage(item.content, id=message_id, tool_calls=[call])
    if item.kind == "tool_result":
        return messages.ToolMessage(
            item.content, id=message_id, tool_call_id=item.call_id, name=item.name
        )
    of_role = messages.HumanMessage if item.role == "user" else messages.AIMessage
    return of_role(item.content, id=message_id)


def shown_in(messages: Sequence[Any]) -> list[Shown]:
    """Return the items of LangChain's messages."""
    return [_shown(message) for message in messages]


def _shown(message: Any) -> Shown:
    if message.type == "tool":
        return Shown("tool_result", message.content, message.tool_call_id)
    if calls := getattr(message, "tool_calls", None):
        return Shown("tool_call", message.content, calls[0]["id"])
    return Shown("message", message.content)


def _content(message: Any) -> str:
    return str(message.content)


def scripted_model(instruments: Instruments, text_of: Callable[[Any], str] = _content) -> Any:
    """A chat model that answers with the scripted summary and counts with the given counter.

    `text_of` returns what the summarizer reads of a message.
    """
    return instruments.shared("langchain model", lambda: _scripted_model(instruments, text_of))


def _scripted_model(instruments: Instruments, text_of: Callable[[Any], str]) -> Any:
    base = import_module("langchain_core.language_models.chat_models").BaseChatModel
    outputs = import_module("langchain_core.outputs")
    message_types = import_module("langchain_core.messages")

    def answer(
        _self: Any, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any
    ) -> Any:
        prompt = "".join(map(text_of, messages))
        reply = message_types.AIMessage(instruments.summarize(prompt))
        return outputs.ChatResult(generations=[outputs.ChatGeneration(message=reply)])

    methods = {
        "__module__": __name__,
        "_generate": answer,
        "_llm_type": property(lambda _self: "scripted"),
        "get_num_tokens": lambda _self, text: instruments.count(text),
    }
    return type(base)("ScriptedModel", (base,), methods)()
