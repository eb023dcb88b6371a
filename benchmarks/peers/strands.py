"""`SummarizingConversationManager` of strands-agents, driven as its agent drives it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.instruments import Instruments
from benchmarks.subjects import Shown
from benchmarks.workload import Item

_RECENT = 4
_MOST_REDUCTIONS = 8


def load() -> type[Summarizing]:
    """Return the subject. Raises `ImportError` if strands-agents is not installed."""
    import_module("strands.agent.conversation_manager")
    return Summarizing


class Summarizing:
    """Reduces when the projected request, counted over every message, is above the budget."""

    def __init__(self, instruments: Instruments, budget: int, _session: str = "") -> None:
        managers = import_module("strands.agent.conversation_manager")
        exceptions = import_module("strands.types.exceptions")
        self._overflow = exceptions.ContextWindowOverflowException
        self._manager = managers.SummarizingConversationManager(
            summary_ratio=0.3, preserve_recent_messages=_RECENT
        )
        self._instruments = instruments
        self._budget = budget
        self._agent = _Agent(
            instruments.shared("strands model", lambda: _scripted_model(instruments))
        )

    def append(self, item: Item) -> None:
        """Adds a message and reduces the list to the budget, unless the manager refuses to."""
        self._agent.messages.append(_message(item))
        for _ in range(_MOST_REDUCTIONS):
            if self._projected() <= self._budget:
                return
            try:
                self._manager.reduce_context(self._agent, self._overflow("over the budget"))
            except self._overflow:
                return

    def context(self) -> Any:
        """Return the agent's own list of messages."""
        return self._agent.messages

    def shown(self, context: Any) -> list[Shown]:
        """Return the items of the messages, block by block."""
        return [_shown(block) for message in context for block in message["content"]]

    def _projected(self) -> int:
        return sum(self._instruments.count(_text(message)) for message in self._agent.messages)


class _Agent:
    """The part of an agent that conversation managers use."""

    def __init__(self, model: Any) -> None:
        self.messages: list[dict[str, Any]] = []
        self.model = self.aux_model = model
        self.system_prompt = None
        self.tool_registry = None


def _scripted_model(instruments: Instruments) -> Any:
    """Make a model whose stream is the scripted summary."""
    base = import_module("strands.models.model").Model

    async def stream(
        _self: Any, messages: list[dict[str, Any]], *_: Any, **__: Any
    ) -> AsyncIterator[dict[str, Any]]:
        reply = instruments.summarize("".join(map(_text, messages)))
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": reply}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}

    def nothing(_self: Any, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    methods = dict.fromkeys(("update_config", "get_config", "structured_output"), nothing)
    return type(base)("ScriptedModel", (base,), {**methods, "stream": stream})()


def _message(item: Item) -> dict[str, Any]:
    if item.kind == "tool_call":
        use = {"toolUseId": item.call_id, "name": item.name, "input": item.arguments}
        return {"role": "assistant", "content": [{"toolUse": use}]}
    if item.kind == "tool_result":
        content = [{"text": item.content}]
        result = {"toolUseId": item.call_id, "status": "success", "content": content}
        return {"role": "user", "content": [{"toolResult": result}]}
    return {"role": item.role, "content": [{"text": item.content}]}


def _text(message: dict[str, Any]) -> str:
    return "".join(map(_block_text, message["content"]))


def _block_text(block: dict[str, Any]) -> str:
    if "toolUse" in block:
        return str(block["toolUse"]["input"])
    if "toolResult" in block:
        return "".join(part.get("text", "") for part in block["toolResult"]["content"])
    return str(block.get("text", ""))


def _shown(block: dict[str, Any]) -> Shown:
    if "toolUse" in block:
        return Shown("tool_call", _block_text(block), block["toolUse"]["toolUseId"])
    if "toolResult" in block:
        return Shown("tool_result", _block_text(block), block["toolResult"]["toolUseId"])
    return Shown("message", _block_text(block))


def load_kept() -> type[KeptFiles]:
    """Return the session in files. Raises `ImportError` if strands-agents is not installed."""
    import_module("strands.session.file_session_manager")
    return KeptFiles


class KeptFiles:
    """`FileSessionManager`: a file for each message; it counts no tokens and waits for no disk."""

    def __init__(self, folder: Path) -> None:
        managers = import_module("strands.session.file_session_manager")
        self._types = import_module("strands.types.session")
        self._files = managers.FileSessionManager(session_id="s", storage_dir=str(folder))
        self._number = 0
        if self._files.read_agent("s", "a") is None:
            agent = self._types.SessionAgent(agent_id="a", state={}, conversation_manager_state={})
            self._files.create_agent("s", agent)

    def append(self, item: Item) -> None:
        """Creates a message."""
        message = self._types.SessionMessage.from_message(_message(item), self._number)
        self._files.create_message("s", "a", message)
        self._number += 1

    def found(self) -> int:
        """Count all messages."""
        return len(self._files.list_messages("s", "a"))

    def close(self) -> None:
        """Does nothing: no file is open."""
