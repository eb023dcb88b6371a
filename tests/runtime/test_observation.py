"""`memory.observe`: what an observer sees of a manager's operations."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from memman import AsyncMemoryManager, CounterSpec, MemoryConfig, MemoryManager, hookimpl, plugins
from memman.errors import AsyncPortRefused, InvalidInput, StoreError
from memman.protocols import SummaryReply, SummaryRequest
from memman.runtime.observation import End, Operation
from memman.stores import MemoryStore

_inside: ContextVar[tuple[str, ...]] = ContextVar("inside", default=())
WORDS = "word " * 200


class Seen:
    """An observer that notes each operation with its path, its answer and its error."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.paths: list[tuple[str, ...]] = []
        self.answers: list[tuple[str, Any, BaseException | None]] = []
        self.threads: set[tuple[int, int]] = set()

    def __call__(self, operation: Operation) -> End:
        self.operations.append(operation)
        path = (*_inside.get(), operation.method if operation.kind == "store" else operation.kind)
        self.paths.append(path)
        token, thread = _inside.set(path), threading.get_ident()

        def end(answer: Any, error: BaseException | None) -> None:
            _inside.reset(token)  # fails in another context
            self.answers.append((operation.kind, answer, error))
            self.threads.add((thread, threading.get_ident()))

        return end

    def of(self, kind: str) -> list[Operation]:
        return [each for each in self.operations if each.kind == kind]


class Writer:
    model = "anthropic/claude-haiku-4-5"

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        assert _inside.get()[-1:] == ("summarize",)
        return SummaryReply(text="They talked.", model="claude-haiku-4-5-20251001")


class AsyncWriter(Writer):
    async def summarize(self, request: SummaryRequest) -> SummaryReply:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().summarize(request)


def settings(**given: Any) -> MemoryConfig:
    return MemoryConfig(max_tokens=4_000, recent_window=2, **given)


def talk(memory: MemoryManager) -> None:
    for _ in range(8):
        memory.add_user_message("s", WORDS)
        memory.add_assistant_message("s", WORDS)
    memory.compress("s", summarize=True)
    memory.build_context("s")


async def atalk(memory: Any) -> None:
    for _ in range(8):
        await memory.add_user_message("s", WORDS)
        await memory.add_assistant_message("s", WORDS)
    await memory.compress("s", summarize=True)
    await memory.build_context("s")


def check(seen: Seen) -> None:
    """Assert that every kind was seen, nested, and ended where it began."""
    assert {("append",), ("compress", "summarize"), ("compress", "commit"), ("build",)} <= {
        *seen.paths
    }
    assert len(seen.answers) == len(seen.operations)
    assert all(begun == ended for begun, ended in seen.threads)
    assert {error for _, _, error in seen.answers} == {None}
    assert {each.session_id for each in seen.operations if each.method != "close"} == {"s"}
    assert {each.method for each in seen.of("compress")} >= {"manual"}
    assert {each.model for each in seen.of("summarize")} == {Writer.model}
    assert all(isinstance(each.request, SummaryRequest) for each in seen.of("summarize"))
    assert {each.model for each in seen.of("build")} == {"gpt-5"}


def test_sync_manager_shows_each_operation() -> None:
    with MemoryManager(model="gpt-5", config=settings(), summarizer=Writer()) as memory:
        seen = Seen()
        memory.observe(seen)
        talk(memory)
    check(seen)
    assert isinstance(seen.of("summarize")[0].port, Writer)
    assert isinstance(seen.of("store")[0].port, MemoryStore)


def test_summarizer_on_a_thread_is_inside_its_compression() -> None:
    with MemoryManager(
        model="gpt-5", config=settings(summarize_timeout=30), summarizer=Writer()
    ) as memory:
        seen = Seen()
        memory.observe(seen)
        talk(memory)
    check(seen)


def test_async_ports_are_inside_their_operations() -> None:
    async def aio() -> None:
        with MemoryManager(model="gpt-5", config=settings(), summarizer=None) as memory:
            await memory.aio.set_summarize_callback(AsyncWriter())
            memory.aio.observe(seen)
            await atalk(memory.aio)

    async def manager() -> None:
        async with AsyncMemoryManager(
            model="gpt-5", config=settings(summarize_timeout=30), summarizer=AsyncWriter()
        ) as memory:
            memory.observe(seen)
            await atalk(memory)

    for run in (aio, manager):
        seen = Seen()
        asyncio.run(run())
        check(seen)


def test_background_compression_is_shown() -> None:
    with MemoryManager(
        model="gpt-5", config=settings(background=True), summarizer=Writer()
    ) as memory:
        seen = Seen()
        memory.observe(seen)
        for _ in range(20):
            memory.add_user_message("s", WORDS)
    assert {each.method for each in seen.of("compress")} == {"automatic"}
    assert ("compress", "summarize") in seen.paths


def test_error_of_an_operation_is_shown_and_raised() -> None:
    class Full(MemoryStore):
        def append(self, *args: Any, **kw: Any) -> Any:
            raise StoreError("the disk is full")

    memory, seen = MemoryManager(Full()), Seen()
    memory.observe(seen)
    with pytest.raises(StoreError, match="disk is full"):
        memory.add_user_message("s", "hello")
    [(kind, answer, error)] = [each for each in seen.answers if each[2] is not None]
    assert (kind, answer) == ("store", None)
    assert isinstance(error, StoreError)


def test_remote_count_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Remote:
        fingerprint = "acme-remote"

        def count_request(self, rendered: Any, *, timeout: float) -> int:
            return 930

        acount_request = count_request  # not called

    class Plugin:
        @hookimpl
        def memman_token_counters(self) -> list[CounterSpec]:
            return [
                CounterSpec(
                    name="acme-remote",
                    match=lambda model: 9,
                    factory=lambda model: Remote(),
                    remote=True,
                    format="anthropic",
                )
            ]

    found = plugins.load_plugins({"MEMMAN_PLUGINS": ""})
    found.register(Plugin(), "acme")
    monkeypatch.setattr(plugins, "_shared", found)
    near = MemoryConfig(count_policy="confirm", max_tokens=1_000, auto_compress=False)
    memory, seen = MemoryManager(model="acme-1", counter="chars4", config=near), Seen()
    memory.observe(seen)
    memory.add_user_message("s", "x" * 3_600)
    memory.build_context("s")
    assert ("build", "count") in seen.paths
    memory.count_tokens("hello", exact=True)
    within, alone = seen.of("count")
    assert (within.session_id, within.model) == ("s", "acme-1")
    assert (alone.session_id, alone.model) == (None, "acme-1")
    assert [int(answer) for kind, answer, _ in seen.answers if kind == "count"] == [930, 930]


@pytest.mark.parametrize("fails", ["before", "after"])
def test_error_of_an_observer_is_logged(fails: str, caplog: pytest.LogCaptureFixture) -> None:
    def end(_answer: object, _error: object) -> None:
        raise ZeroDivisionError

    def observer(_operation: Operation) -> End:
        if fails == "before":
            raise ZeroDivisionError
        return end

    memory = MemoryManager()
    memory.observe(observer)
    with caplog.at_level(logging.ERROR, "memman"):
        entry = memory.add_user_message("s", "hello")
    assert memory.get_entries("s") == [entry]
    assert {record.exc_info[0] for record in caplog.records if record.exc_info} == {
        ZeroDivisionError
    }


def test_observer_that_returns_nothing_is_enough() -> None:
    seen: list[str] = []
    memory = MemoryManager()
    memory.observe(lambda operation: seen.append(operation.method))
    memory.add_user_message("s", "hello")
    assert "append" in seen


def test_a_manager_has_one_observer_until_it_ends() -> None:
    memory, first, second = MemoryManager(), Seen(), Seen()
    memory.observe(first)
    with pytest.raises(InvalidInput, match=r"observe\(None\) first"):
        memory.observe(second)
    memory.observe(None)
    memory.observe(second)
    memory.add_user_message("s", "hello")
    assert (first.operations, bool(second.operations)) == ([], True)


def test_unusable_observer_is_refused() -> None:
    async def observer(_operation: Operation) -> None: ...

    memory = MemoryManager()
    wrong: list[tuple[Any, type[Exception]]] = [(1, InvalidInput), (observer, AsyncPortRefused)]
    for given, error in wrong:
        with pytest.raises(error):
            memory.observe(given)
