"""`ChatSummaryMemoryBuffer` of llama-index-core: `put` an entry, and `get`, which summarizes."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.instruments import Instruments
from benchmarks.subjects import Shown
from benchmarks.tokens import o200k
from benchmarks.workload import Item

_CONTEXT_WINDOW = 128_000


def load() -> type[SummaryBuffer]:
    """Return the subject. Raises `ImportError` if llama-index-core is not installed."""
    import_module("llama_index.core.memory")
    return SummaryBuffer


class SummaryBuffer:
    """Keeps the newest messages in full, up to a limit of tokens, below a summary of the others."""

    def __init__(self, instruments: Instruments, budget: int, _session: str = "") -> None:
        self._types = import_module("llama_index.core.llms")
        buffer = import_module("llama_index.core.memory").ChatSummaryMemoryBuffer
        self._memory = buffer.from_defaults(
            llm=instruments.shared("llama model", lambda: _scripted_model(instruments)),
            token_limit=budget,
            # It calls the function for tokens and takes their number.
            tokenizer_fn=lambda text: range(instruments.count(text)),
        )

    def append(self, item: Item) -> None:
        """Adds a message; the work is done at the next context."""
        known: dict[str, Any] = {}
        if item.kind == "tool_call":
            known = {"tool_calls": [{"id": item.call_id}]}
        elif item.kind == "tool_result":
            known = {"tool_call_id": item.call_id}
        message = self._types.ChatMessage(
            role=item.role, content=item.content, additional_kwargs=known
        )
        self._memory.put(message)

    def context(self) -> Any:
        """Return the messages that a chat engine would send."""
        return self._memory.get()

    def shown(self, context: Any) -> list[Shown]:
        """Return the items of the messages."""
        return [_shown(message) for message in context]


def _shown(message: Any) -> Shown:
    known = message.additional_kwargs
    text = message.content or ""
    if "tool_calls" in known:
        return Shown("tool_call", text, known["tool_calls"][0]["id"])
    if "tool_call_id" in known:
        return Shown("tool_result", text, known["tool_call_id"])
    return Shown("message", text)


def _scripted_model(instruments: Instruments) -> Any:
    """Make a model that answers with the scripted summary."""
    types = import_module("llama_index.core.llms")
    base = types.CustomLLM

    def complete(_self: Any, prompt: str, *_: Any, **__: Any) -> Any:
        return types.CompletionResponse(text=instruments.summarize(prompt))

    def limits(_self: Any) -> Any:
        return types.LLMMetadata(context_window=_CONTEXT_WINDOW, model_name="scripted")

    methods = {
        "__module__": __name__,
        "complete": complete,
        "stream_complete": complete,
        "metadata": property(limits),
    }
    return type(base)("ScriptedModel", (base,), methods)()


def load_kept() -> type[KeptMemory]:
    """Return the memory in a file. Raises `ImportError` if llama-index-core is not installed."""
    import_module("llama_index.core.memory")
    import_module("aiosqlite")
    return KeptMemory


class KeptMemory:
    """`Memory` on aiosqlite, with tiktoken for its limit of tokens."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)  # it uses the thread's loop
        self._message = import_module("llama_index.core.llms").ChatMessage
        self._memory = import_module("llama_index.core.memory").Memory.from_defaults(
            session_id="s",
            token_limit=10**9,
            chat_history_token_ratio=1.0,
            tokenizer_fn=o200k(),
            async_database_uri=f"sqlite+aiosqlite:///{folder / 'm.db'}",
        )

    def append(self, item: Item) -> None:
        """Puts a message."""
        role = "user" if item.role == "user" else "assistant"
        message = self._message(role=role, content=item.content)
        self._loop.run_until_complete(self._memory.aput(message))

    def found(self) -> int:
        """Count all messages."""
        return len(self._loop.run_until_complete(self._memory.aget_all(status=None)))

    def close(self) -> None:
        """Closes the loop; its engine has no method for it."""
        asyncio.set_event_loop(None)
