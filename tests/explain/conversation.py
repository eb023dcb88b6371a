"""A conversation with exact values, compressed step by step."""

from __future__ import annotations

from typing import Any

from memman import MemoryConfig, MemoryManager
from memman.archive.document import records_of
from memman.compression import EntryFactory, Goal, View
from memman.compression.strategies import Stage
from memman.explain.history import LogHistory
from memman.summary_metadata import summary_draft
from memman.testing import FakeClock, sequential_ids

ORDER = "ORD-8841"
PATH = "/srv/app/config.toml"


def manager(*summaries: str, **settings: Any) -> MemoryManager:
    """Return a manager without automatic compression; with texts, its summaries are these."""
    given = {"auto_compress": False, "max_entries": None, "recent_window": 2, **settings}
    if summaries:
        given["strategy"] = (written(*summaries),)
    return MemoryManager(
        counter="chars4",
        config=MemoryConfig(**given),
        clock=FakeClock(),
        new_id=sequential_ids(),
    )


def written(*texts: str) -> Stage:
    """Return a stage that replaces the old part by a summary with the next of these texts."""
    left = iter(texts)

    def stage(view: View, _goal: Goal, make_entry: EntryFactory) -> View:
        old = [number for number, group in enumerate(view.groups) if group.status == "old"]
        summary = make_entry(summary_draft(next(left), []))
        return view.with_summary(old, summary)

    return stage


def talk(memory: MemoryManager, turns: int = 10, first: int = 0) -> None:
    """Add questions and answers without exact values."""
    for number in range(first, first + turns):
        memory.add_user_message("s", "please go on with the next part " * 6, id=f"q{number}")
        memory.add_assistant_message("s", "this part is done as well " * 6, id=f"a{number}")


def orders(memory: MemoryManager) -> None:
    """Add an order's number in a tool result and a path in a message, to be compressed later."""
    memory.add_system_message("s", "Be brief.", id="head")
    memory.add_user_message("s", "Where is my parcel?", id="ask")
    memory.add_tool_call("s", "get_order", {"which": "newest"}, call_id="c1", id="call")
    memory.add_tool_result(
        "s", "get_order", f"order {ORDER} left the hub " + "step " * 200, call_id="c1", id="result"
    )
    memory.add_assistant_message("s", f"It left. The hub is set in {PATH} here.", id="answer")


def history(memory: MemoryManager) -> LogHistory:
    """Return the history of the session's whole log."""
    return LogHistory(list(enumerate(records_of(memory.export_session("s")), 1)))
