"""The requests and the streams that adapters share."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from unittest.mock import Mock

import pytest

from memman import AsyncMemoryManager, InvalidInput, MemoryConfig, MemoryManager, events
from memman.adapters import ModelRequests, blocking, methods_of, native_of, streamed

CONFIG = MemoryConfig(max_tokens=500, max_entries=None)
REFUSAL = (
    "This model's maximum context length is 4,096 tokens. However, you requested 9,000 tokens."
)


def fill(memory: MemoryManager, session: str, turns: int = 30) -> None:
    for turn in range(turns):
        memory.add_user_message(session, f"Question {turn}: " + "which port has the host? " * 4)
        memory.add_assistant_message(session, f"Answer {turn}: " + "the port is 8080. " * 4)


def test_methods_of_a_manager_are_those_to_await() -> None:
    memory = AsyncMemoryManager()
    assert methods_of(memory) is memory
    with pytest.raises(InvalidInput, match="not str"):
        methods_of("chat.db")


def test_blocking_refuses_an_async_manager() -> None:
    with pytest.raises(InvalidInput, match="must be a MemoryManager"):
        blocking(AsyncMemoryManager())


def test_blocking_requests_need_no_event_loop() -> None:
    with MemoryManager() as memory:
        fill(memory, "s")
        methods, drive = blocking(memory)
        requests = ModelRequests(methods, "s")
        sent = drive(requests.build("house-model", window=20_000))
        assert (requests.model, requests.tokens) == ("house-model", int(sent.tokens))
        assert drive(requests.is_too_long(REFUSAL))
        assert drive(requests.build("house-model")).budget < 4_096
        assert not drive(requests.is_too_long("no such host"))


def test_blocking_requests_run_inside_a_running_loop() -> None:
    async def run(memory: MemoryManager) -> int:
        methods, drive = blocking(memory)
        return drive(ModelRequests(methods, "s").build(None)).budget

    with MemoryManager(config=CONFIG) as memory:
        memory.add_user_message("s", "Which port?")
        assert asyncio.run(run(memory)) == 500


def test_usage_of_requests_without_a_session_is_not_recorded(caplog: Any) -> None:
    with MemoryManager() as memory, caplog.at_level(logging.WARNING):
        methods, drive = blocking(memory)
        drive(ModelRequests(methods, "").record_usage(input_tokens=10))
        drive(ModelRequests(methods, "gone").record_usage(input_tokens=10))
        assert memory.list_sessions() == []
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the usage of a response was not recorded"
    ]


@pytest.mark.parametrize("model", [None, "", 7, object(), Mock(), ["gpt-5"]])
@pytest.mark.parametrize("window", [None, True, 0, -1, "8192", Mock(), 1.5])
@pytest.mark.parametrize("more", [{}, {"messages": [{"role": "user", "content": "Which port?"}]}])
def test_request_is_built_for_any_model_and_window(
    model: object, window: object, more: dict[str, Any]
) -> None:
    with MemoryManager(config=CONFIG) as memory:
        memory.add_user_message("s", "Which port?")
        methods, drive = blocking(memory)
        requests = ModelRequests(methods, "s")
        context = drive(requests.build(model, window=window, **more))
        assert context.budget == 500
        assert (requests.model, requests.tokens) == (None, int(context.tokens))
        drive(requests.record_usage(input_tokens=20))


@pytest.mark.parametrize("shrink", [1.0, 0.99, 1.01])
def test_endless_refusals_of_one_request_end(shrink: float) -> None:
    with MemoryManager() as memory:
        memory.add_user_message("s", "x" * 400_000)
        methods, drive = blocking(memory)
        requests = ModelRequests(methods, "s", tokens=1_000_000)
        attempts = 0
        while drive(requests.is_too_long("context_length_exceeded")):
            attempts += 1
            requests.tokens = int(requests.tokens * shrink)  # an adapter that does not shorten it
            assert attempts < 30
    assert attempts == 10


def test_refusals_are_forgotten_once_a_request_is_accepted() -> None:
    with MemoryManager() as memory:
        fill(memory, "s")
        methods, drive = blocking(memory)
        requests = ModelRequests(methods, "s")
        for number in range(30):
            drive(requests.build(f"model-{number // 2}", window=200_000))
            assert drive(requests.is_too_long(REFUSAL))
            if number % 2:
                drive(requests.record_usage(input_tokens=1_000))


def test_own_message_comes_back_only_if_it_is_unaltered() -> None:
    with MemoryManager(config=CONFIG) as memory:
        own = {"a": "native a", "b": "native b"}
        memory.add_user_message("s", "Which port?", id="a")
        memory.add_assistant_message("s", "8080. " * 900, id="b")
        context = memory.build_context("s")
        found = [native_of(source, own) for source in context.sources]
        assert found == ["native a", None]  # the answer was cut


# ------------------------------------------------------------ streams


def test_stream_has_the_events_of_the_block_alone() -> None:
    written: list[dict[str, Any]] = []
    with MemoryManager(config=CONFIG) as memory:
        fill(memory, "before")
        with streamed(written.append):
            fill(memory, "inside")
        number = len(written)
        fill(memory, "behind")
    assert number == len(written) > 2
    assert {event["value"]["session_id"] for event in written} == {"inside"}
    names = [event["name"] for event in written]
    assert names == ["memman.compressing", "memman.compressed"] * (number // 2)


def test_streams_of_threads_do_not_mix() -> None:
    begin = Barrier(4)

    def run(memory: MemoryManager, session: str) -> set[str]:
        written: list[dict[str, Any]] = []
        begin.wait(30)
        with streamed(written.append):
            fill(memory, session)
        return {event["value"]["session_id"] for event in written}

    with MemoryManager(config=CONFIG) as memory, ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda name: run(memory, name), "abcd")
        assert list(found) == [{name} for name in "abcd"]


def test_streams_of_tasks_do_not_mix() -> None:
    async def run(memory: MemoryManager, session: str) -> set[str]:
        written: list[dict[str, Any]] = []
        with streamed(written.append):
            for turn in range(30):
                await memory.aio.add_user_message(session, f"{turn}: " + "which port? " * 12)
        return {event["value"]["session_id"] for event in written}

    async def both(memory: MemoryManager) -> list[set[str]]:
        return list(await asyncio.gather(run(memory, "a"), run(memory, "b")))

    with MemoryManager(config=CONFIG) as memory:
        assert asyncio.run(both(memory)) == [{"a"}, {"b"}]


def test_stream_that_raises_breaks_no_add() -> None:
    def write(event: dict[str, Any]) -> None:
        raise ConnectionError(event["name"])

    with MemoryManager(config=CONFIG) as memory, streamed(write):
        fill(memory, "s")
        assert len(memory.get_entries("s")) == 60


def test_inner_stream_adds_nothing() -> None:
    outer: list[dict[str, Any]] = []
    inner: list[dict[str, Any]] = []
    with MemoryManager(config=CONFIG) as memory, streamed(outer.append):
        with streamed(None):
            fill(memory, "s")
        number = len(outer)
        with streamed(inner.append):
            fill(memory, "s")
    assert 0 < number < len(outer)
    assert inner == []


def test_stream_of_none_subscribes_to_nothing() -> None:
    with MemoryManager() as memory, streamed(None):
        assert not list(events.compressing.receivers_for(memory))
