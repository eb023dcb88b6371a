"""Run one test through either API; `await` calls of the async one."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from memman import AsyncMemoryManager, MemoryConfig, MemoryManager
from memman.core.core import Core
from memman.testing import AsyncScriptedSummarizer, FakeClock, ScriptedSummarizer
from tests.patience import PATIENCE

SESSION = "s"
SMALL = {
    "max_tokens": 100, "max_entries": None, "recent_window": 2, "min_entries_to_compress": 1,
    "compression_ratio": 0.9, "max_summary_ratio": 0.4,
}  # fmt: skip


def words(text: str) -> int:
    """A counter for these tests: a word is a token."""
    return len(text.split())


class SyncUse:
    """A `MemoryManager` with a fixed clock and a scripted summarizer."""

    manager: Any = MemoryManager
    script: Any = ScriptedSummarizer

    def __init__(
        self,
        *replies: Any,
        store: Any = None,
        counter: Any = words,
        exclusive: bool = False,
        **settings: Any,
    ) -> None:
        self.clock = FakeClock()
        self.gates: list[threading.Event] = []
        self.scripted = self.script(*replies)
        self.memory = self.manager(
            store, config=MemoryConfig(**SMALL | settings), counter=counter, clock=self.clock,
            summarizer=self.scripted, exclusive=exclusive,
        )  # fmt: skip

    @property
    def core(self) -> Core:
        """The core of the manager."""
        return self.memory._core

    @property
    def asked(self) -> int:
        """The number of the summarizer's calls."""
        return len(self.scripted.requests)

    def gate(self) -> Any:
        """Return an event that a `Delayed` of this API waits for; `end` sets it."""
        self.gates.append(threading.Event())
        return self.gates[-1]

    def do(self, verb: str, *args: Any, session: str = SESSION, **keywords: Any) -> Any:
        """Call a method of the manager."""
        return getattr(self.memory, verb)(session, *args, **keywords)

    def begin(self, verb: str, *args: Any, **keywords: Any) -> Callable[[], Any]:
        """Call a method in the background; return a function for its result or error."""
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append(self.do(verb, *args, **keywords))
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def answer() -> Any:
            thread.join(PATIENCE)
            assert outcome, f"{verb} hangs"
            if isinstance(outcome[0], BaseException):
                raise outcome[0]
            return outcome[0]

        return answer

    def until(self, met: Callable[[], bool]) -> None:
        """Let other workers run until a condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not met():
            assert time.monotonic() < deadline, "the condition did not hold in time"
            time.sleep(0.001)

    def a_while(self) -> None:
        """Let other workers run that should have no work."""
        time.sleep(0.02)

    def swap(self, summarizer: Any) -> None:
        """Replace the manager's summarizer."""
        self.memory.set_summarize_callback(summarizer)

    def close(self) -> None:
        """Close the manager."""
        self.memory.close()

    def end(self) -> None:
        """Free the resources of the API."""
        for gate in self.gates:
            gate.set()


class AsyncUse(SyncUse):
    """An `AsyncMemoryManager` in its own event loop."""

    manager = AsyncMemoryManager
    script = AsyncScriptedSummarizer

    def __init__(self, *replies: Any, **settings: Any) -> None:
        self.loop = asyncio.new_event_loop()
        super().__init__(*replies, **settings)

    def gate(self) -> Any:
        return asyncio.Event()

    def _run(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, PATIENCE))

    def do(self, verb: str, *args: Any, session: str = SESSION, **keywords: Any) -> Any:
        work = getattr(self.memory.aio, verb)(session, *args, **keywords)
        self.task = self.loop.create_task(work)
        return self._run(self.task)

    def begin(self, verb: str, *args: Any, **keywords: Any) -> Callable[[], Any]:
        work = getattr(self.memory.aio, verb)(SESSION, *args, **keywords)
        task = self.loop.create_task(work)
        return lambda: self._run(task)

    def until(self, met: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not met():
            assert time.monotonic() < deadline, "the condition did not hold in time"
            self._run(asyncio.sleep(0))

    def a_while(self) -> None:
        self._run(asyncio.sleep(0.01))

    def swap(self, summarizer: Any) -> None:
        self._run(self.memory.aio.set_summarize_callback(summarizer))

    def close(self) -> None:
        self._run(self.memory.aio.close())

    def end(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self._run(asyncio.sleep(0))
        self.loop.close()


class Gate(asyncio.Event):
    """An event of the loop that waits for it, which any thread may set."""

    _loop_of_wait: asyncio.AbstractEventLoop | None = None

    async def wait(self) -> Any:
        self._loop_of_wait = asyncio.get_running_loop()
        return await super().wait()

    def set(self) -> None:
        if self._loop_of_wait is None:
            super().set()
        elif not self._loop_of_wait.is_closed():
            self._loop_of_wait.call_soon_threadsafe(super().set)


class AioUse(AsyncUse):
    """The `aio` of a `MemoryManager`, in an event loop, with async ports."""

    manager = staticmethod(functools.partial(MemoryManager, async_ports=True))

    def gate(self) -> Any:
        return Gate()

    def end(self) -> None:
        super().end()
        self.core.runtime.end()


APIS = {"sync": SyncUse, "async": AsyncUse, "aio": AioUse}
