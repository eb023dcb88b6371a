"""A store with the six required methods only: derived capabilities and refused calls."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memman import MemoryConfig, MemoryManager, StoreError
from memman.protocols import Appended, Snapshot, StoredItem
from memman.records import Record
from memman.stores import MemoryStore

CONFIG = MemoryConfig(auto_compress=False)


class SixMethods:
    """The required part of a store in memory."""

    blocking = False

    def __init__(self) -> None:
        self._inner = MemoryStore()

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        return self._inner.append(session_id, records, expect_head=expect_head)

    def commit(
        self,
        session_id: str,
        epoch: int,
        records: Sequence[Record],
        window: Sequence[StoredItem],
        floor: int,
        *,
        expect_head: int | None = None,
    ) -> Appended:
        return self._inner.commit(
            session_id, epoch, records, window, floor, expect_head=expect_head
        )

    def load(self, session_id: str) -> Snapshot | None:
        return self._inner.load(session_id)

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        return self._inner.read(session_id, after, limit)

    def delete(self, session_id: str) -> bool:
        return self._inner.delete(session_id)

    def close(self) -> None:
        self._inner.close()


def life(memory: MemoryManager) -> list[object]:
    """Return the results of a session's life that needs every derived capability."""
    seen: list[object] = []
    for number in range(12):
        memory.add_user_message("s", f"message {number}: " + "word " * 50, id=f"m{number}")
    memory.compress("s", target_tokens=300)
    memory.compress("s", target_tokens=200)
    seen += [memory.get_entry("s", "m1").text, memory.get_entry("s", "m1").compressed]
    seen.append(memory.add_user_message("s", memory.get_entry("s", "m1").text, id="m1").id)
    memory.undo_compression("s")
    seen += [entry.text for entry in memory.get_active_entries("s") if entry.type != "summary"]
    seen += [memory.get_context_for_llm("s") != "", len(memory.feed("s"))]
    return seen


@pytest.mark.parametrize("exclusive", [True, False])
def test_six_methods_suffice_for_a_session(exclusive: bool) -> None:
    one = MemoryManager(SixMethods(), config=CONFIG, counter="chars4", exclusive=exclusive)
    other = MemoryManager(MemoryStore(), config=CONFIG, counter="chars4", exclusive=exclusive)
    assert life(one) == life(other)
    one.delete_session("s")
    one.close()
    with pytest.raises(StoreError, match="closed"):
        one.get_entries("s")


def test_error_names_the_method_that_a_store_lacks() -> None:
    memory = MemoryManager(SixMethods())
    memory.add_user_message("s", "text", id="a")
    with pytest.raises(StoreError, match="SixMethods has no method `sessions`"):
        memory.list_sessions()
    with pytest.raises(StoreError, match="SixMethods has no method `feed`"):
        memory.feed()
    with pytest.raises(StoreError, match="SixMethods has no method `erase`"):
        memory.delete_entries("s", ["a"])
    assert memory.get_entry("s", "a").text == "text"
