"""`trim_messages` of langchain-core, which cuts a list of messages to a number of tokens."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.tokens import chars4

Message = dict[str, Any]
Trim = Callable[[list[Message], int], list[Message]]
# With no options, and as its documentation advises for chat models: a valid beginning, the system message.
WAYS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "as documented": {
        "strategy": "last",
        "include_system": True,
        "start_on": "human",
        "end_on": ("human", "tool"),
    },
}


def load() -> dict[str, Trim]:
    """Return each way to trim OpenAI messages. Raises `ImportError` if langchain-core is not installed."""
    return {name: _trim(options) for name, options in WAYS.items()}


def _trim(options: dict[str, Any]) -> Trim:
    core = import_module("langchain_core.messages")

    def trim(messages: list[Message], budget: int) -> list[Message]:
        given = core.convert_to_messages(messages)
        kept = core.trim_messages(given, max_tokens=budget, token_counter=_count, **options)
        found: list[Message] = core.convert_to_openai_messages(kept)
        return found

    return trim


def _count(messages: list[Any]) -> int:
    """Count texts and calls by the same rule of thumb as memman in the same benchmark."""
    return sum(
        chars4(message.text if isinstance(message.text, str) else message.text())
        + sum(
            chars4(f"{call['name']}{call['args']}") for call in getattr(message, "tool_calls", ())
        )
        for message in messages
    )
