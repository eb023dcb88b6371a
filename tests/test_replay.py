"""Replayed events reach the same receivers with the same guards, and are marked as remote."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memman import AsyncMemoryManager, InvalidInput, MemoryConfig, MemoryManager, events
from memman.testing import record_events

LOG = tuple(
    kind for kind, signal in events.SIGNALS.items() if signal in events.LOG_SIGNALS.values()
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "chat.db")


def live(memory: MemoryManager) -> None:
    """Fill a session with every kind of record."""
    for number in range(12):
        memory.add_user_message("s", f"m{number} " + "word " * 9)
    first = memory.get_active_entries("s")[-1]
    memory.pin("s", first.id)
    memory.compress("s")
    memory.undo_compression("s")
    memory.update_config("s", max_entries=80)
    memory.update_session("s", metadata={"user": "ada"})
    memory.record_usage("s", {"prompt_tokens": 90, "completion_tokens": 2})
    memory.delete_entries("s", [memory.add_user_message("s", "secret").id])
    memory.clear_session("s")


@pytest.fixture
def writer(path: str) -> Iterator[MemoryManager]:
    config = MemoryConfig(max_tokens=100, min_entries_to_compress=1, auto_compress=False)
    with MemoryManager(path, counter="chars4", config=config) as memory:
        yield memory


def test_replayed_events_equal_the_emitted_ones(path: str, writer: MemoryManager) -> None:
    with record_events(writer, LOG) as emitted:
        live(writer)
    with MemoryManager(path) as reader, record_events(reader, LOG) as heard:
        cursor = events.replay(reader.feed(), sender=reader)
        assert cursor == reader.feed()[-1].cursor
    emitted, heard = list(emitted), list(heard)
    assert {type(event) for event in heard} == set(LOG)
    assert all(event.remote for event in heard)
    assert not any(event.remote for event in emitted)
    assert [type(event) for event in heard] == [type(event) for event in emitted]
    added = [event.entry for event in heard if isinstance(event, events.EntryAdded)]
    assert [entry.seq for entry in added[:12]] == list(range(2, 14))
    assert "secret" not in repr(heard), "what was deleted is a tombstone"


def test_nothing_to_replay_leaves_no_cursor(writer: MemoryManager) -> None:
    assert events.replay(writer.feed()) is None


def test_receivers_of_another_sender_do_not_hear(writer: MemoryManager) -> None:
    writer.add_user_message("s", "one")
    heard: list[Any] = []

    def hear(sender: Any, event: Any) -> None:
        heard.append(sender)

    with events.entry_added.connected_to(hear, sender=writer):
        events.replay(writer.feed())
        events.replay(writer.feed(), sender="somebody")
        assert heard == []
        events.replay(writer.feed(), sender=writer)
    assert heard == [writer]


def test_raising_receiver_does_not_stop_a_replay(
    writer: MemoryManager, caplog: pytest.LogCaptureFixture
) -> None:
    writer.add_messages("s", [{"role": "user", "content": "x"}] * 3)
    heard: list[int] = []

    def broken(sender: Any, event: Any) -> None:
        raise RuntimeError("broken")

    def hear(sender: Any, event: Any) -> None:
        heard.append(event.entry.seq)

    with events.entry_added.connected_to(broken), events.entry_added.connected_to(hear):
        assert events.replay(writer.feed()) is not None
    assert heard == [2, 3, 4]
    assert caplog.text.count("RuntimeError: broken") == 3


def test_areplay_awaits_async_receivers_and_replay_skips_them(
    path: str, writer: MemoryManager, caplog: pytest.LogCaptureFixture
) -> None:
    writer.add_messages("s", [{"role": "user", "content": "x"}] * 2)
    heard: list[int] = []

    async def hear(sender: Any, event: Any) -> None:
        await asyncio.sleep(0)
        heard.append(event.entry.seq)

    async def replayed() -> list[str | None]:
        async with AsyncMemoryManager(path) as memory:
            items = await memory.feed()
            return [
                await events.areplay(items, sender=memory),
                await events.areplay(memory.follow(after=items[1].cursor, timeout=0)),
            ]

    with events.entry_added.connected_to(hear):
        with caplog.at_level(logging.WARNING, "memman.events"):
            events.replay(writer.feed())
        assert "is async and was skipped" in caplog.text
        assert heard == []
        cursors = asyncio.run(replayed())
    assert heard == [2, 3, 3]
    assert cursors == [writer.feed()[-1].cursor] * 2


def test_non_item_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="items of a feed, not str"):
        events.replay(["x"])  # type: ignore[list-item]


def test_replay_does_not_wake_a_follower_of_its_session(writer: MemoryManager) -> None:
    writer.add_user_message("s", "one")
    items = writer.follow(timeout=0.05)
    assert events.replay(items, sender=writer) is not None
