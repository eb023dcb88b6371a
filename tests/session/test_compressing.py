"""The event before a compression: receivers may hold it back once, or instruct the summary."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from memman import AsyncMemoryManager, InvalidInput, MemoryConfig, MemoryManager, events
from memman.records import Compressed
from tests.patience import PATIENCE

WORDS = "some words of a turn " * 20


class Summarizer:
    """Answer every prompt with one sentence, and keep the prompts."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return "They build a gateway."


@pytest.fixture
def asked() -> Summarizer:
    return Summarizer()


@pytest.fixture
def memory(asked: Summarizer) -> Iterator[MemoryManager]:
    config = MemoryConfig(max_tokens=1_000)
    with MemoryManager(counter="chars4", config=config, summarizer=asked) as memory:
        yield memory


def fill(memory: MemoryManager, session: str = "s", turns: int = 20) -> None:
    for number in range(turns):
        memory.add_user_message(session, f"{number}: {WORDS}")


def compressions(memory: MemoryManager, session: str = "s") -> int:
    return sum(isinstance(item.record, Compressed) for item in memory.feed(session))


def test_plan_comes_before_and_the_result_after_each_compression(memory):
    heard: list[Any] = []
    memory.on("compressing", heard.append)
    memory.on("compress", heard.append)
    fill(memory)
    before, after = heard[::2], heard[1::2]
    assert len(before) == len(after) == compressions(memory) > 1
    for plan, result in zip(before, after, strict=True):
        assert plan.automatic
        assert plan.plan.asks_summarizer
        replaced = {each.entry_id for each in plan.plan.entries if each.action != "keep"}
        assert set(result.replaced_ids) == replaced
        assert abs(plan.plan.tokens_before - result.tokens_before) <= 100  # with its outline


def test_nothing_is_announced_if_nothing_can_be_compressed(memory):
    heard: list[Any] = []
    memory.on("compressing", heard.append)
    memory.add_user_message("s", "short")
    assert memory.compress("s").compression_id is None
    assert heard == []


def test_receivers_of_another_manager_cost_nothing(memory):
    with MemoryManager() as other:
        other.on("compressing", lambda event: pytest.fail("another manager's"))
        fill(memory)
        assert compressions(memory)


def test_compression_is_held_back_once(memory):
    held: list[str] = []

    def hold(event: events.Compressing) -> None:
        held.append(f"{compressions(memory)}")
        event.hold("a deployment is running")

    memory.on("compressing", hold)
    fill(memory)
    # Each is announced twice: held back, then done at the next add.
    assert held == [str(number // 2) for number in range(len(held))]
    assert compressions(memory) == len(held) // 2 > 0


def test_manual_compression_is_held_back_with_a_reason(memory):
    memory.update_config(auto_compress=False)
    fill(memory)
    memory.on("compressing", lambda event: event.hold("a deployment is running"))
    before = memory.export_session("s")
    result = memory.compress("s")
    assert result.compression_id is None
    assert result.reason.endswith("a receiver of compressing: a deployment is running")
    assert memory.export_session("s") == before
    assert memory.compress("s").compression_id is not None


@pytest.mark.parametrize("background", [False, True])
def test_held_compression_comes_at_the_next_chance(asked, background):
    config = MemoryConfig(max_tokens=1_000, background=background)
    with MemoryManager(counter="chars4", config=config, summarizer=asked) as memory:
        memory.on("compressing", lambda event: event.hold("not now"))
        until = time.monotonic() + PATIENCE
        while not asked.prompts and time.monotonic() < until:
            memory.add_user_message("s", f"Again: {WORDS}")
            time.sleep(0.02 if background else 0)
            assert background or memory.get_stats("s").active_tokens < 1_300
    assert asked.prompts


def test_instructions_reach_the_summary(memory, asked):
    memory.on("compressing", lambda event: event.instruct(focus="ports"))
    memory.on("compressing", lambda event: event.instruct(focus="hosts", keep=["Port 8443."]))
    fill(memory, turns=10)
    assert "special attention to: ports; hosts" in asked.prompts[0]
    summaries = [e.text for e in memory.build_context("s").entries if e.type == "summary"]
    assert "They build a gateway.\nPort 8443." in summaries


def test_texts_that_the_summary_has_are_not_repeated(memory):
    memory.on("compressing", lambda event: event.instruct(keep=["build a gateway"]))
    fill(memory, turns=10)
    summaries = [e.text for e in memory.build_context("s").entries if e.type == "summary"]
    assert "They build a gateway." in summaries


def test_instructions_are_redacted():
    summarizer = Summarizer()
    config = MemoryConfig(max_tokens=1_000)

    def redact(entry: Any) -> Any:
        return msgspec.structs.replace(entry, content=entry.text.replace("hunter2", "[secret]"))

    with MemoryManager(
        counter="chars4", config=config, summarizer=summarizer, redact=redact
    ) as memory:
        memory.on("compressing", lambda event: event.instruct(focus="hunter2", keep=["hunter2!"]))
        fill(memory, turns=10)
        assert summarizer.prompts
        assert "hunter2" not in "".join(summarizer.prompts)
        assert "hunter2" not in str(list(memory.feed("s")))


def test_receiver_may_use_the_manager(memory):
    def save(event: events.Compressing) -> None:
        memory.add_context("s", f"State before {len(event.plan.entries)} entries.", source="app")
        said.append(memory.compress("s").reason)

    said: list[str] = []
    memory.on("compressing", save)
    fill(memory)
    assert compressions(memory)
    assert set(said) == {"another compression of this session is running"}
    assert any("State before" in entry.text for entry in memory.get_entries("s"))


def test_error_of_a_receiver_is_logged_and_nothing_else(memory, caplog):
    def fail(event: events.Compressing) -> None:
        raise ValueError("a fault of the application")

    memory.on("compressing", fail)
    with caplog.at_level(logging.ERROR, logger="memman.events"):
        fill(memory, turns=10)
    assert compressions(memory)
    assert "a fault of the application" in caplog.text


# ---------------------------------------------------------------- async receivers


def test_receiver_runs_in_the_event_loop_of_the_caller(memory):
    loops: list[Any] = []

    async def receive(event: Any) -> None:
        loops.append(asyncio.get_running_loop())
        await memory.aio.get_stats(event.session_id)
        memory.get_stats(event.session_id)  # a plain call in the loop's own thread
        if isinstance(event, events.Compressing):
            event.instruct(keep=["From the loop."])

    async def main() -> Any:
        for name in ("compressing", "compress", "add"):
            memory.on(name, receive)
        for number in range(10):
            await memory.aio.add_user_message("s", f"{number}: {WORDS}")
        return asyncio.get_running_loop()

    loop = asyncio.run(main())
    assert set(loops) == {loop}
    assert "From the loop." in str(memory.build_context("s").messages)


def test_receiver_of_a_loop_that_has_ended_runs_elsewhere(memory):
    heard: list[str] = []

    async def receive(event: Any) -> None:
        heard.append(event.entry.text)

    memory.on("add", receive)
    asyncio.run(memory.aio.add_user_message("s", "in a loop"))
    memory.add_user_message("s", "without one")
    asyncio.run(memory.aio.add_user_message("s", "in another"))
    assert heard == ["in a loop", "without one", "in another"]


def test_async_manager_is_held_back_and_instructed(asked):
    async def main() -> None:
        config = MemoryConfig(max_tokens=1_000)
        async with AsyncMemoryManager(counter="chars4", config=config, summarizer=asked) as memory:

            async def receive(event: events.Compressing) -> None:
                await memory.get_stats("s")
                event.hold("once")
                event.instruct(keep=["Kept."])

            memory.on("compressing", receive)
            for number in range(12):
                await memory.add_user_message("s", f"{number}: {WORDS}")
            assert (await memory.get_stats("s")).summaries == 2  # one is in the other
            assert "Kept." in str((await memory.build_context("s")).messages)

    asyncio.run(main())


# ---------------------------------------------------------------- names and metadata


def test_three_words_are_names(memory):
    heard: list[str] = []
    for name in ("add", "compress", "clear"):
        memory.on(name, lambda event: heard.append(type(event).__name__))
    fill(memory, turns=10)
    memory.clear_session("s")
    assert set(heard) == {"EntryAdded", "CompressionResult", "SessionCleared"}


def test_events_have_the_metadata_of_their_run(memory):
    heard: list[tuple[str, Any]] = []
    memory.on("add", lambda event: heard.append((event.entry.text, event.run)))
    with events.in_run(run_id="r-1"):
        memory.add_user_message("s", "outer")
        with events.in_run(agent="planner"):
            asyncio.run(memory.aio.add_user_message("s", "inner"))
    memory.add_user_message("s", "without")
    assert heard == [
        ("outer", {"run_id": "r-1"}),
        ("inner", {"run_id": "r-1", "agent": "planner"}),
        ("without", {}),
    ]


def test_background_compression_belongs_to_the_run_that_began_it(asked):
    config = MemoryConfig(max_tokens=1_000, background=True)
    heard: list[Any] = []
    with MemoryManager(counter="chars4", config=config, summarizer=asked) as memory:
        memory.on("compress", lambda event: heard.append(event.run))
        with events.in_run(run_id="r-1"):
            fill(memory)
    assert heard
    assert all(run == {"run_id": "r-1"} for run in heard)


def test_replayed_events_belong_to_no_run(memory):
    heard: list[Any] = []
    memory.add_user_message("s", "x")
    memory.on("add", lambda event: heard.append(event.run))
    with events.in_run(run_id="r-1"):
        events.replay(memory.feed(), sender=memory)
    assert heard == [{}]


@pytest.mark.parametrize("signal", ["add", "compressing", "compress", "context_trimmed", "clear"])
def test_event_maps_to_ag_ui(memory, signal):
    heard: list[events.Event] = []
    memory.on(signal, heard.append)
    with events.in_run(run_id="r-1"):
        fill(memory, turns=10)
        memory.build_context("s", budget=200)
        memory.clear_session("s")
    found = json.loads(json.dumps(events.as_ag_ui(heard[0])))
    assert found["type"] == "CUSTOM"
    assert found["name"].startswith("memman.")
    assert found["value"]["session_id"] == "s"
    assert found["value"]["run"] == {"run_id": "r-1"}
    assert len(json.dumps(found)) < 1_500  # without the texts of the window


def test_unknown_word_names_the_near_ones(memory):
    callback: Callable[[Any], None] = print
    with pytest.raises(InvalidInput, match="compressing"):
        memory.on("compresing", callback)
