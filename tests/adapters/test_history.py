"""`HistoryMirror`: a session follows the history of a framework."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman import MemoryConfig, MemoryManager
from memman.adapters import HistoryMessage, HistoryMirror, message_id, named_by_content

from .counting import CountingStore

PREFIX = "fw-"


def mirror_of(memory: MemoryManager) -> HistoryMirror:
    return HistoryMirror(
        memory.aio, "s", format="openai-chat", prefix=PREFIX, continuing="pass its history"
    )


def said(*texts: str) -> list[HistoryMessage]:
    """Return messages by the user and the assistant in turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    return named_by_content(messages, PREFIX)


def texts_of(memory: MemoryManager) -> list[str]:
    return [str(entry.content) for entry in memory.get_entries("s")]


def test_mirror_adds_only_what_is_new() -> None:
    with MemoryManager() as memory:
        mirror = mirror_of(memory)
        asyncio.run(mirror.sync(said("a", "b")))
        asyncio.run(mirror.sync(said("a", "b", "c")))
        log = memory.export_session("s").log
        asyncio.run(mirror_of(memory).sync(said("a", "b", "c")))
        assert texts_of(memory) == ["a", "b", "c"]
        assert memory.export_session("s").log == log


def test_mirror_retracts_what_is_gone_and_keeps_the_log() -> None:
    with MemoryManager() as memory:
        mirror = mirror_of(memory)
        asyncio.run(mirror.sync(said("a", "b", "c", "d")))
        asyncio.run(mirror.sync(said("a", "b")))
        assert texts_of(memory) == ["a", "b"]
        assert '"d"' in memory.export_session("s").to_json()


def test_mirror_leaves_entries_of_others_alone() -> None:
    with MemoryManager() as memory:
        memory.add_user_message("s", "of the application")
        asyncio.run(mirror_of(memory).sync(said("a")))
        asyncio.run(mirror_of(memory).sync(said("b")))
        assert texts_of(memory) == ["of the application", "b"]


def test_mirror_warns_of_a_history_that_continues_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with MemoryManager() as memory:
        asyncio.run(mirror_of(memory).sync(said("a")))
        asyncio.run(mirror_of(memory).sync(said("b")))
        assert "pass its history" in caplog.text


def test_mirror_notices_what_another_process_added() -> None:
    with MemoryManager() as memory:
        mirror = mirror_of(memory)
        asyncio.run(mirror.sync(said("a")))
        assert not mirror.lacks(memory.build_context("s"))
        asyncio.run(mirror_of(memory).sync(said("a", "b")))
        assert mirror.lacks(memory.build_context("s"))


@pytest.mark.parametrize("is_new", [False, True], ids=["same process", "new process"])
@pytest.mark.parametrize("hide", ["middle", "end", "clear", "delete"])
def test_mirror_adds_nothing_that_was_hidden_by_hand(hide: str, is_new: bool) -> None:
    with MemoryManager() as memory:
        mirror = mirror_of(memory)
        asyncio.run(mirror.sync(said("a", "b", "c", "d")))
        ids = [entry.id for entry in memory.get_entries("s")]
        match hide:
            case "middle":
                memory.retract("s", ids[1:3], reason="by hand")
            case "end":
                memory.retract("s", ids[2:], reason="by hand")
            case "clear":
                memory.clear_session("s")
            case "delete":
                memory.delete_entries("s", ids[2:])
        left = texts_of(memory)
        mirror = mirror_of(memory) if is_new else mirror
        asyncio.run(mirror.sync(said("a", "b", "c", "d", "e")))
        assert texts_of(memory) == [*left, "e"]
        asyncio.run(mirror_of(memory).sync(said("a", "b", "c", "d", "e", "f")))
        assert texts_of(memory) == [*left, "e", "f"]


def test_mirror_adds_again_what_another_process_rewound() -> None:
    with MemoryManager() as memory:
        asyncio.run(mirror_of(memory).sync(said("a", "b", "c")))
        asyncio.run(mirror_of(memory).sync(said("a")))
        asyncio.run(mirror_of(memory).sync(said("a", "b", "c", "d")))
        assert texts_of(memory) == ["a", "b", "c", "d"]


def test_mirror_pins_what_is_pinned() -> None:
    with MemoryManager() as memory:
        pinned = HistoryMessage(f"{PREFIX}1", {"role": "user", "content": "a"}, is_pinned=True)
        asyncio.run(mirror_of(memory).sync([pinned]))
        [item] = memory.get_active_entries("s")
        assert item.pinned


def test_equal_messages_have_different_ids() -> None:
    history = said("a", "b", "a", "b")
    assert len({each.id for each in history}) == 4
    assert [each.id for each in history[:2]] == [each.id for each in said("a", "b")]


def test_mirror_of_the_end_leaves_older_messages_alone() -> None:
    with MemoryManager() as memory:
        asyncio.run(mirror_of(memory).sync(said("a", "b", "c", "d")))
        end = said("a", "b", "c", "d", "e")[2:]
        asyncio.run(mirror_of(memory).sync(end, [each.id for each in end]))
        assert texts_of(memory) == ["a", "b", "c", "d", "e"]
        del end[1]
        asyncio.run(mirror_of(memory).sync(end, [each.id for each in end]))
        assert texts_of(memory) == ["a", "b", "c", "e"]


@pytest.mark.parametrize("hide", ["nothing", "retract", "clear"])
@pytest.mark.parametrize("restored", [0, 20])
def test_mirror_of_the_end_reads_the_end_of_the_log(restored: int, hide: str) -> None:
    for number in (200, 2_000):
        store = CountingStore()
        with MemoryManager(store, config=MemoryConfig(max_tokens=4_000)) as memory:
            history = said(*map(str, range(number)))
            asyncio.run(mirror_of(memory).sync(history))
            if hide == "retract":
                memory.retract("s", [history[-2].id], reason="by hand")
            elif hide == "clear":
                memory.clear_session("s")
            before = store.records_read
            end = said(*map(str, range(number)), "new")[number - restored :]
            asyncio.run(mirror_of(memory).sync(end, [each.id for each in end]))
            assert store.records_read - before <= 2 * restored + 10
            assert texts_of(memory)[-1] == "new"


@given(st.lists(st.lists(st.integers(0, 9), unique=True, max_size=8), min_size=1, max_size=6))
def test_session_equals_any_edited_history(histories: list[list[int]]) -> None:
    def named(history: list[int]) -> list[HistoryMessage]:
        message: Any = {"role": "user"}
        return [
            HistoryMessage(f"{PREFIX}{n}", {**message, "content": f"text {n}"}) for n in history
        ]

    async def follow() -> None:
        mirror = mirror_of(memory)
        for history in histories:
            await mirror.sync(named(history))
            entries = memory.get_entries("s")
            own = [message_id(each.id) for each in entries if each.id.startswith(PREFIX)]
            assert own == [f"{PREFIX}{n}" for n in history]

    with MemoryManager() as memory:
        memory.add_user_message("s", "of the application")
        asyncio.run(follow())
        assert "of the application" in texts_of(memory)
