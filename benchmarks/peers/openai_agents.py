"""`SQLiteSession` of openai-agents: `add_items` and `get_items`; it has no budget of tokens."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.instruments import Instruments
from benchmarks.subjects import Shown
from benchmarks.workload import Item

_NEWEST = 40


def load() -> type[WholeSession]:
    """Return the subject. Raises `ImportError` if openai-agents is not installed."""
    import_module("agents.memory.sqlite_session")
    return WholeSession


def load_newest() -> type[NewestItems]:
    """Return the subject with a limit of items. Raises `ImportError` if openai-agents is not installed."""
    import_module("agents.memory.sqlite_session")
    return NewestItems


class WholeSession:
    """Sends everything that was ever added."""

    _limit: int | None = None

    def __init__(self, instruments: Instruments, _budget: int, session: str = "s") -> None:
        loop = instruments.shared("loop", asyncio.new_event_loop)
        self._run = loop.run_until_complete
        self._session = import_module("agents.memory.sqlite_session").SQLiteSession(session)

    def append(self, item: Item) -> None:
        """Adds an item."""
        self._run(self._session.add_items([_item(item)]))

    def context(self) -> Any:
        """Return the items with which a run would begin."""
        return self._run(self._session.get_items(limit=self._limit))

    def shown(self, context: Any) -> list[Shown]:
        """Return the items in the common form."""
        return [_shown(one) for one in context]


class NewestItems(WholeSession):
    """Sends the newest items, however long, whether or not a result's call is among them."""

    _limit = _NEWEST


def _item(item: Item) -> dict[str, Any]:
    if item.kind == "tool_call":
        return {
            "type": "function_call",
            "call_id": item.call_id,
            "name": item.name,
            "arguments": item.content,
        }
    if item.kind == "tool_result":
        return {"type": "function_call_output", "call_id": item.call_id, "output": item.content}
    return {"role": item.role, "content": item.content}


def _shown(item: dict[str, Any]) -> Shown:
    if item.get("type") == "function_call":
        return Shown("tool_call", item["arguments"], item["call_id"])
    if item.get("type") == "function_call_output":
        return Shown("tool_result", item["output"], item["call_id"])
    return Shown("message", item["content"])


def load_kept() -> type[KeptSession]:
    """Return the session in a file. Raises `ImportError` if openai-agents is not installed."""
    import_module("agents.memory.sqlite_session")
    return KeptSession


class KeptSession:
    """The same session in a file, each item added for good; it counts no tokens."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        made = import_module("agents.memory.sqlite_session").SQLiteSession
        self._session = made("s", folder / "s.db")

    def append(self, item: Item) -> None:
        """Adds an item."""
        self._loop.run_until_complete(self._session.add_items([_item(item)]))

    def found(self) -> int:
        """Count all items."""
        return len(self._loop.run_until_complete(self._session.get_items()))

    def close(self) -> None:
        """Closes the file."""
        self._session.close()
        self._loop.close()
