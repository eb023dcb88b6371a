"""A graph of one step with `SqliteSaver`, which keeps a checkpoint for each message."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.workload import Item


def load_kept() -> type[KeptGraph]:
    """The graph; raises `ImportError` where langgraph or its saver is not installed."""
    import_module("langgraph.graph")
    import_module("langgraph.checkpoint.sqlite")
    return KeptGraph


class KeptGraph:
    """`invoke` with `durability="sync"` for each message; it counts no tokens."""

    def __init__(self, folder: Path) -> None:
        graphs = import_module("langgraph.graph")
        saver = import_module("langgraph.checkpoint.sqlite").SqliteSaver
        self._messages = import_module("langchain_core.messages")
        self._db = sqlite3.connect(folder / "c.db", check_same_thread=False)
        steps = graphs.StateGraph(graphs.MessagesState)
        steps.add_node("step", _nothing)
        steps.add_edge(graphs.START, "step")
        steps.add_edge("step", graphs.END)
        self._graph = steps.compile(checkpointer=saver(self._db))
        self._thread: Any = {"configurable": {"thread_id": "s"}}

    def append(self, item: Item) -> None:
        """Runs the graph with a message."""
        kind = "HumanMessage" if item.role == "user" else "AIMessage"
        message = getattr(self._messages, kind)(item.content)
        self._graph.invoke({"messages": [message]}, self._thread, durability="sync")

    def found(self) -> int:
        """The messages of the newest checkpoint."""
        return len(self._graph.get_state(self._thread).values.get("messages", []))

    def close(self) -> None:
        """Closes the file."""
        self._db.close()


def _nothing(_state: Any) -> dict[str, Any]:
    return {}
