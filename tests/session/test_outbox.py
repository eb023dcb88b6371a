"""Each committed record has one event, even if the answer of the store was lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memman import MemoryManager, StoreBusy, StoreConflict, StoreError, events
from memman.protocols import Appended
from memman.records import Added
from memman.stores import MemoryStore


class Unreliable(MemoryStore):
    """A store whose next call loses its answer, is refused or is interrupted."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: list[str] = []  # the methods whose next answer is lost
        self.refused: list[str] = []  # the methods that refuse once
        self.interrupted: list[str] = []

    def append(self, *args: Any, **keywords: Any) -> Appended:
        return self._once("append", super().append, *args, **keywords)

    def commit(self, *args: Any, **keywords: Any) -> Appended:
        return self._once("commit", super().commit, *args, **keywords)

    def delete(self, session_id: str) -> bool:
        return bool(self._once("delete", super().delete, session_id))

    def _once(self, name: str, method: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        for names, error in ((self.refused, StoreBusy), (self.interrupted, KeyboardInterrupt)):
            if name in names:
                names.remove(name)
                raise error(name)
        answer = method(*args, **keywords)
        if name in self.lost:
            self.lost.remove(name)
            raise StoreConflict(name) if name == "commit" else StoreError(name)
        return answer

    def texts(self) -> list[str]:
        """Return the texts of the added entries of the log."""
        log = [record for _, record in self.read("s", 0, 1_000)]
        return [record.entry.text for record in log if isinstance(record, Added)]


class Scene:
    """Return a session with one entry, and a second one whose answer was lost."""

    def __init__(self, exclusive: bool = True) -> None:
        self.store = Unreliable()
        self.memory = MemoryManager(self.store, exclusive=exclusive)
        self.heard: list[str] = []
        self.memory.on(events.EntryAdded, lambda event: self.heard.append(event.entry.text))
        self.first = self.memory.add_user_message("s", "one")
        self.store.lost.append("append")
        with pytest.raises(StoreError):
            self.memory.add_user_message("s", "two")


METHODS: dict[str, Callable[[MemoryManager], Any]] = {
    "get_stats": lambda memory: memory.get_stats("s"),
    "get_entries": lambda memory: memory.get_entries("s"),
    "get_entry": lambda memory: memory.get_entry("s", memory.get_entries("s")[0].id),
    "get_active_entries": lambda memory: memory.get_active_entries("s"),
    "get_summaries": lambda memory: memory.get_summaries("s"),
    "build_context": lambda memory: memory.build_context("s"),
    "feed": lambda memory: memory.feed("s"),
    "feed of every session": lambda memory: memory.feed(),
    "get_context_for_llm": lambda memory: memory.get_context_for_llm("s"),
    "explain": lambda memory: memory.explain("s"),
    "export_session": lambda memory: memory.export_session("s"),
    "plan_compression": lambda memory: memory.plan_compression("s"),
    "compress": lambda memory: memory.compress("s"),
    "pin": lambda memory: memory.pin("s", memory.get_entries("s")[0].id),
    "update_config": lambda memory: memory.update_config("s", recent_window=3),
    "clear_session": lambda memory: memory.clear_session("s"),
    "delete_session": lambda memory: memory.delete_session("s"),
    "close": lambda memory: memory.close(),
}


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_next_method_emits_an_entry_whose_answer_was_lost(method: str, exclusive: bool) -> None:
    scene = Scene(exclusive)
    assert scene.heard == ["one"]
    METHODS[method](scene.memory)
    assert scene.heard == ["one", "two"]


def test_refused_delete_costs_no_event() -> None:
    scene = Scene()
    scene.store.refused.append("delete")
    with pytest.raises(StoreBusy):
        scene.memory.delete_session("s")
    scene.memory.add_user_message("s", "three")
    assert scene.heard == scene.store.texts() == ["one", "two", "three"]


def test_commit_reported_as_conflict_is_emitted_once() -> None:
    scene = Scene()
    pins: list[events.EntryPinned] = []
    scene.memory.on(events.EntryPinned, pins.append)
    scene.store.lost.append("commit")
    scene.memory.pin("s", scene.first.id)
    scene.memory.get_stats("s")
    log = scene.memory.export_session("s").log
    assert len(pins) == sum(type(record).__name__ == "Pinned" for record in log)


def test_close_ends_if_the_store_cannot_answer_for_a_lost_write() -> None:
    scene = Scene()

    def load(session_id: str) -> None:
        raise StoreError("it is away")

    scene.store.load = load  # type: ignore[assignment, method-assign]
    scene.memory.close()
    with pytest.raises(StoreError, match="closed"):
        scene.memory.get_stats("s")


@pytest.mark.parametrize("later", [True, False])
def test_interrupted_nested_add_costs_no_event_and_no_error(later: bool) -> None:
    store = Unreliable()
    memory = MemoryManager(store)
    heard: list[str] = []

    def nested(event: events.EntryAdded) -> None:
        if event.entry.text == "one":
            store.interrupted.append("append")
            with pytest.raises(KeyboardInterrupt):
                memory.add_user_message("s", "interrupted")
            memory.add_user_message("s", "nested")

    callbacks = [nested, lambda event: heard.append(event.entry.text)]
    for callback in callbacks if later else callbacks[::-1]:
        memory.on(events.EntryAdded, callback)
    memory.add_user_message("s", "one")
    memory.add_user_message("s", "two")
    assert heard == store.texts() == ["one", "nested", "two"]
