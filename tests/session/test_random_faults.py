"""Random calls of failing protocols: no acknowledged entry and no event is lost.

The store fails before or after a write; the summarizer and the counter misbehave; receivers
raise and call the manager. `test_faults` fails at every step of one compression; this driver
finds faults of mixed calls.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from memman import (
    BudgetExceeded,
    Entry,
    MemmanError,
    MemoryConfig,
    MemoryManager,
    StoreBusy,
    StoreError,
    SummaryReply,
    events,
)
from memman.formats.rules import check
from memman.stores import MemoryStore
from tests.apis import APIS, SyncUse, words
from tests.session.test_faults import METHODS

SESSIONS = ("s", "ü/ '; --")
FORMATS = ("openai-chat", "openai-responses", "anthropic", "gemini", "bedrock", "mistral")
STEPS = 50
LOG_EVENTS = [
    kind for kind, signal in events.SIGNALS.items() if signal in events.LOG_SIGNALS.values()
]


class Boom(Exception):
    """An error of a type that memman does not know."""


EXPECTED = (MemmanError, OSError, Boom, MemoryError, KeyboardInterrupt)


class Flaky:
    """A store in memory that fails before or after a call."""

    blocking = False

    def __init__(self, run: Run, errors: list[type[BaseException]]) -> None:
        self.inner = MemoryStore()
        for name in METHODS:
            setattr(self, name, self._faulty(getattr(self.inner, name), run, errors))

    def _faulty(
        self, method: Callable[..., Any], run: Run, errors: list[type[BaseException]]
    ) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            run.strike(errors)
            answer = method(*args, **keywords)
            run.strike(errors)
            return answer

        return call

    def close(self) -> None:
        self.inner.close()


class Run:
    """One manager, random calls of it, and their expected results."""

    def __init__(self, api: str, seed: int) -> None:
        self.random = random.Random(f"{api} {seed}")
        self.failing = False
        self.acknowledged: dict[str, dict[str, Entry]] = defaultdict(dict)
        self.heard: dict[str, list[events.Event]] = defaultdict(list)
        self.nested = 0
        pick = self.random.choice
        self.background = pick([False, False, True])
        errors: list[type[BaseException]] = [StoreError, StoreBusy, OSError, Boom, MemoryError]
        if api == "sync" and not self.background:  # signals strike in the main thread alone
            errors.append(KeyboardInterrupt)
        self.store = Flaky(self, errors)
        self.use: SyncUse = APIS[api](
            self._summary, store=self.store, counter=self._counted, exclusive=pick([True, False]),
            max_tokens=pick([60, 100, 400]), max_entries=pick([None, 12]),
            strategy=pick(["default", "summary", "token_buffer", "window"]),
            on_failure=pick(["fallback", "keep", "raise"]), background=self.background,
            summarize_timeout=None,
        )  # fmt: skip
        for kind in LOG_EVENTS:
            self.use.memory.on(kind, lambda event: self.heard[event.session_id].append(event))
            self.use.memory.on(kind, self._receive)
        self.failing = True

    # ------------------------------------------------------------  protocols

    def strike(self, errors: list[type[BaseException]]) -> None:
        """Raise a random error in some calls."""
        if self.failing and self.random.random() < 0.05:
            raise self.random.choice(errors)("a fault of the test")

    def _counted(self, text: str) -> int:
        self.strike([Boom, MemoryError])
        return words(text)

    def _summary(self, request: Any) -> Any:
        self.strike([Boom, asyncio.CancelledError, OSError])
        replies: list[Any] = [
            "",
            " \n",
            None,
            5,
            "many words " * 900,
            SummaryReply(text="", refused=True),
        ]
        return self.random.choice([*replies, *["a good summary"] * 6])

    def _receive(self, event: events.Event) -> None:
        self.strike([Boom, RecursionError])
        if self.use.manager is not MemoryManager or self.nested or self.random.random() > 0.1:
            return
        self.nested += 1
        try:
            self._step(event.session_id)
        finally:
            self.nested -= 1

    # ------------------------------------------------------------ calls

    def attempt(self, session: str, method: str, *args: Any, **keywords: Any) -> Any:
        """Return the result of a method, or the error that it raised."""
        try:
            return self.use.do(method, *args, session=session, **keywords)
        except EXPECTED as error:
            return error

    def go(self) -> None:
        """Make the calls, then check their results."""
        for _ in range(STEPS):
            self._step(self.random.choice(SESSIONS))
        self.failing = False
        live = list(self.use.core.sessions)
        self.use.until(lambda: not any(session.compressor.is_running for session in live))
        for session in SESSIONS:
            self._check(session)
        self.use.close()
        self.use.end()

    def _step(self, session: str) -> None:
        step = self.random.random()
        ids = list(self.acknowledged[session])
        if step < 0.55:
            self._add(session)
        elif step < 0.67:
            self._build(session)
        elif step < 0.75:
            self.attempt(session, "compress", target_tokens=self.random.choice([None, 20, 50]))
        elif step < 0.80:
            self.attempt(session, "undo_compression")
        elif step < 0.86 and ids:
            self.attempt(session, self.random.choice(["pin", "unpin"]), self.random.choice(ids))
        elif step < 0.89 and ids:
            self._delete(session, self.random.choice(ids))
        elif step < 0.91:
            self.attempt(session, "clear_session")
        elif step < 0.93 and not self.nested and not self.background:
            self._delete_session(session)
        elif step < 0.96:
            self.attempt(session, "record_usage", self.random.randint(1, 300))
        else:
            method = self.random.choice(["get_stats", "explain", "export_session", "get_entries"])
            self.attempt(session, method)

    def _add(self, session: str) -> None:
        role, number = self.random.choice(["user", "assistant"]), self.random.randint(0, 9_999)
        text = f"text {number} " + "word " * self.random.randint(0, 40)
        match self.random.randint(0, 3):
            case 0:
                call = str(self.random.randint(0, 5))
                added = self.attempt(session, "add_tool_call", "read", {"a": text}, call_id=call)
            case 1:
                call = str(self.random.randint(0, 5))
                added = self.attempt(session, "add_tool_result", "read", text, call_id=call)
            case 2:
                pinned = self.random.random() < 0.1
                added = self.attempt(session, f"add_{role}_message", text, pinned=pinned)
            case _:
                messages = [
                    {"role": "user", "content": text},
                    {"role": "assistant", "content": "Yes."},
                ]
                added = self.attempt(session, "add_messages", messages)
        if not isinstance(added, BaseException):
            for entry in added if isinstance(added, list) else [added]:
                self.acknowledged[session][entry.id] = entry

    def _build(self, session: str) -> None:
        form, budget = self.random.choice(FORMATS), self.random.choice([None, 30, 90, 500])
        context = self.attempt(session, "build_context", format=form, budget=budget)
        if isinstance(context, BudgetExceeded):
            assert context.required > context.available
        elif not isinstance(context, BaseException):
            assert context.tokens.tokens <= context.budget
            assert (
                not context.messages or check(context.messages, form, system=context.system) == []
            )

    def _delete(self, session: str, entry_id: str) -> None:
        self.attempt(session, "delete_entries", [entry_id])
        log = self.store.inner.read(session, 0, 10_000)
        deleted = {name for _, record in log for name in getattr(record, "ids", ())}
        if entry_id in deleted:
            self.acknowledged[session].pop(entry_id, None)  # a nested step may have deleted it

    def _delete_session(self, session: str) -> None:
        self.attempt(session, "delete_session")
        if self.store.inner.state(session) is None:
            self.acknowledged[session].clear()
            self.heard[session].clear()

    # ------------------------------------------------------------ checks

    def _check(self, session: str) -> None:
        if self.store.inner.state(session) is None:
            assert not self.acknowledged[session]
            return
        active = self.use.do("get_active_entries", session=session)  # emits pending events
        log = self.store.inner.read(session, 0, 10_000)
        assert [seq for seq, _ in log] == list(range(1, len(log) + 1))
        entries = {entry.id: entry for entry in self._of_log(log)}
        for entry_id, entry in self.acknowledged[session].items():
            assert entries[entry_id].content == entry.content
        emitted = [events.event_of(session, seq, record) for seq, record in log]
        assert [_key(event) for event in self.heard[session]] == [_key(event) for event in emitted]
        fresh = MemoryManager(
            self.store.inner, counter=words, config=MemoryConfig(auto_compress=False)
        )
        assert [e.id for e in fresh.get_active_entries(session)] == [e.id for e in active]

    def _of_log(self, log: Any) -> list[Entry]:
        return [record.entry for _, record in log if hasattr(record, "entry")]


def _key(event: events.Event) -> object:
    """Return the identity of an event, even if its entries were deleted since."""
    match event:
        case events.EntryAdded():
            return event.entry.id
        case events.CompressionResult():
            return event.compression_id
    return event


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 20))]
)
def test_random_calls_over_failing_ports_lose_nothing(api: str, first: int) -> None:
    for seed in range(first * 15, first * 15 + 15):
        try:
            Run(api, seed).go()
        except AssertionError as error:
            error.add_note(f"api {api}, seed {seed}")
            raise
