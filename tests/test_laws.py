"""The laws of a session, on random sequences of operations, through all three APIs at once.

Every operation goes to a `MemoryManager`, to an `AsyncMemoryManager` and to the `aio` of a `MemoryManager`,
with the same clock and ids; each has a store of its own, on which a second writer works too. After each
step the log, the window, the store and the events of all must agree with each other and with a plain second
fold (`oracle`).

During a summary, other callers add, clear, undo, pin and delete through this manager or a second one on
the same store, which compresses too (a second compression of one manager: test_concurrency). The laws,
hold, by name of the rule or invariant:

    each entry is represented once, dropped, retracted   every_acknowledged_entry_is_represented_once
    or deleted
    the log has no gaps                                  Oracle.apply
    a retry adds nothing, unless its id is free          retry
    a list that is sent again adds only its new messages send_list
    a retracted id is free, and known after the undo     add_again, Oracle._restore
    a late commit brings back nothing that was cleared   Oracle._compress
    the window is the fold of the log                    window_store_and_fold_agree
    pinned entries stay as they are, in order            entries_are_verbatim, window_store_and_fold_agree
    the epoch grows with the shape, never by an add      window_store_and_fold_agree
    a call and its result are on one side of every cut   calls_and_results_are_on_one_side
    a compression makes no window larger                 compress
    a fork is a prefix of the log                        a_fork_is_a_prefix_without_what_was_deleted
    a session is listed with the totals of its log       the_list_of_sessions_is_the_plain_fold
    a search finds what a scan of the log finds          a_search_finds_what_a_scan_finds
    each record is emitted once, and nothing else is        every_record_was_told_once_in_log_order

They hold on every kind of store. On persistent ones the two managers have a store each, and a manager
may die at a write, before it reached the store or before the store returned. Its operation is then in the
log once or not at all; a repetition changes that to once.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from itertools import chain
from typing import Any, NamedTuple, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from memman_postgres import AsyncPostgresStore, PostgresStore

from memman import (
    AsyncMemoryManager,
    BudgetExceeded,
    IdConflict,
    MemmanError,
    MemoryConfig,
    MemoryManager,
    Refused,
    SessionInfo,
    StoreError,
    SummaryReply,
    SummaryRequest,
    events,
)
from memman.entries import note_of
from memman.formats.rules import check
from memman.log import History, LogState
from memman.protocols import Appended
from memman.records import Added, Compressed, Record, encode, ids_retracted_by
from memman.results import EntryState
from memman.session.log import SessionLog
from memman.session.policy import CompressionPolicy
from memman.stores import MemoryStore, SQLiteStore
from memman.testing import FakeClock, record_events, sequential_ids
from memman.window import STATE_INDEX, WindowItem
from tests.examples import examples
from tests.kinds import InFile, InMemory, InPostgres, Kind
from tests.oracle import Oracle
from tests.patience import PATIENCE

PROFILE = settings(
    max_examples=examples(400, by_default=10),
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
)
MARK = re.compile(r"mk\d+q")
SESSION, FORK = "s", "fork"

Operation = tuple[str, tuple[Any, ...], dict[str, Any]]


def words(text: str) -> int:
    """A counter of words."""
    return len(text.split())


class Crashed(BaseException):
    """The simulated end of a process, at a write."""


class Racing:
    """A store with a hook before a commit, and a fault at the next write.

    `fault` is raised "before" the write or "after" it; then the caller does not know of the write.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.race: Callable[[], None] | None = None
        self.fault: BaseException | None = None
        self.when = "before"

    def append(self, *given: Any, **named: Any) -> Appended:
        return self._struck(super().append, *given, **named)  # type: ignore[misc]

    def commit(self, *given: Any, **named: Any) -> Appended:
        race, self.race = self.race, None
        if race is not None:
            race()
        return self._struck(super().commit, *given, **named)  # type: ignore[misc]

    def _struck(self, write: Callable[..., Appended], *given: Any, **named: Any) -> Appended:
        fault, self.fault = self.fault, None
        if fault is not None and self.when == "before":
            raise fault
        written = write(*given, **named)
        if fault is not None:
            raise fault
        return written


class RacingAwaited(Racing):
    """The same with awaitable methods."""

    async def append(self, *given: Any, **named: Any) -> Appended:  # type: ignore[override]
        return await self._struck_awaited(super(Racing, self).append, *given, **named)  # type: ignore[misc]

    async def commit(self, *given: Any, **named: Any) -> Appended:  # type: ignore[override]
        race, self.race = self.race, None
        if race is not None:
            race()
        return await self._struck_awaited(super(Racing, self).commit, *given, **named)  # type: ignore[misc]

    async def _struck_awaited(self, write: Callable[..., Any], *given: Any, **named: Any) -> Any:
        fault, self.fault = self.fault, None
        if fault is not None and self.when == "before":
            raise fault
        written = await write(*given, **named)
        if fault is not None:
            raise fault
        return written


class RacingStore(Racing, MemoryStore):
    """A world in memory."""


class RacingFile(Racing, SQLiteStore):
    """A world in a SQLite file."""


class RacingPostgres(Racing, PostgresStore):
    """A world in PostgreSQL."""


class RacingAsyncPostgres(RacingAwaited, AsyncPostgresStore):
    """A world in PostgreSQL, without threads."""


class Summarizer:
    """A summarizer that repeats marks or misbehaves; another operation may run during the call."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.mode = "echo"
        self.calls = 0
        self.meanwhile = meanwhile

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        self.calls += 1
        self.meanwhile()
        match self.mode:
            case "fail":
                raise OSError("429")
            case "slow":
                raise TimeoutError
            case "empty":
                return SummaryReply(text=" \n")
            case "too long":
                return SummaryReply(text=request.prompt)
            case "truncated":
                return SummaryReply(text="mk", truncated=True)
        marks = MARK.findall(request.prompt)
        return SummaryReply(text=" ".join(marks[: request.target_tokens]) or "nothing to say")


class AsyncSummarizer(Summarizer):
    """The same with awaitable methods; the other operation is awaited too."""

    async def summarize(self, request: SummaryRequest) -> SummaryReply:  # type: ignore[override]
        await asyncio.sleep(0)
        pending = self.meanwhile()
        if pending is not None:
            await pending
        real, self.meanwhile = self.meanwhile, lambda: None
        try:
            return super().summarize(request)
        finally:
            self.meanwhile = real


class ManagerUnderTest:
    """One manager with its store, another writer on the same logs, and the events of both.

    `written` is the manager's store, which may fail; `store` reads the same logs.
    """

    def __init__(self, config: MemoryConfig, exclusive: bool, kind: Kind, store: Any) -> None:
        self.kind, self.store_class = kind, store
        self.written = self.opened()
        self.store = kind.open()
        self.exclusive = exclusive
        self.during: list[Operation] = []
        self.waited = False
        tick = timedelta(seconds=1)
        common: dict[str, Any] = {
            "config": config,
            "counter": words,
            "clock": FakeClock(tick=tick),
            "new_id": sequential_ids("a"),
            "new_nonce": lambda: "0a0b0c0d",
            "exclusive": exclusive,
        }
        self.summarizer = self._summarizer()
        self.settings = common | {"summarizer": self.summarizer}
        self.memory = self._manager(self.written, **self.settings)
        self.other = MemoryManager(
            kind.open(), config=config, counter=words, clock=FakeClock(tick=tick),
            new_id=sequential_ids("b"),
        )  # fmt: skip

    def do(self, operation: Operation, session_id: str = SESSION) -> Any:
        """Return the result of the operation, or memman's error."""
        raise NotImplementedError

    def do_elsewhere(self, operation: Operation) -> Any:
        """Do the same through the other writer, which is always sync."""
        name, args, keywords = operation
        try:
            return getattr(self.other, name)(SESSION, *args, **keywords)
        except MemmanError as error:
            return error

    def restart(self) -> None:
        """Replace the manager, as if its process had died."""
        self.shut()
        self.written = self.opened()
        self.memory = self._manager(self.written, **self.settings)

    def opened(self) -> Any:
        """Return a store for the manager."""
        return self.kind.open(self.store_class)

    def shut(self) -> None:
        """Close the manager's store."""
        self.written.close()

    def close(self) -> None:
        """Free the resources of the API."""
        self.shut()
        self.store.close()
        self.other.close()
        self.kind.remove()


class SyncManagerUnderTest(ManagerUnderTest):
    def _summarizer(self) -> Summarizer:
        return Summarizer(self._meanwhile)

    def _manager(self, *args: Any, **keywords: Any) -> Any:
        return MemoryManager(*args, **keywords)

    def _meanwhile(self) -> None:
        """Run another caller's operation during the summary, on another thread."""
        while self.during:
            operation = self.during.pop(0)
            if operation[0] == "compress":
                self.do_elsewhere(operation)
                continue
            thread = threading.Thread(target=self.do, args=(operation,), daemon=True)
            thread.start()
            thread.join(PATIENCE)
            self.waited = thread.is_alive()

    def do(self, operation: Operation, session_id: str = SESSION) -> Any:
        name, args, keywords = operation
        try:
            return getattr(self.memory, name)(session_id, *args, **keywords)
        except (MemmanError, Crashed) as error:
            return error


class AsyncManagerUnderTest(ManagerUnderTest):
    def __init__(self, *args: Any) -> None:
        self.loop = asyncio.new_event_loop()
        super().__init__(*args)

    def _summarizer(self) -> Summarizer:
        return AsyncSummarizer(self._meanwhile)  # type: ignore[arg-type]

    def _manager(self, *args: Any, **keywords: Any) -> Any:
        return AsyncMemoryManager(*args, **keywords)

    def shut(self) -> None:
        closing = self.written.close()
        if closing is not None:
            self.loop.run_until_complete(closing)

    async def _meanwhile(self) -> None:
        while self.during:
            operation = self.during.pop(0)
            if operation[0] == "compress":
                self.do_elsewhere(operation)
                continue
            doing = asyncio.ensure_future(self._done(operation))
            await asyncio.wait([doing], timeout=PATIENCE)
            self.waited = not doing.done()

    def do(self, operation: Operation, session_id: str = SESSION) -> Any:
        return self.loop.run_until_complete(self._done(operation, session_id))

    async def _done(self, operation: Operation, session_id: str = SESSION) -> Any:
        name, args, keywords = operation
        try:
            return await getattr(self.memory.aio, name)(session_id, *args, **keywords)
        except (MemmanError, Crashed) as error:
            return error

    def close(self) -> None:
        super().close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class AioManagerUnderTest(AsyncManagerUnderTest):
    """The `aio` of a sync manager, with async ports."""

    def _manager(self, *args: Any, **keywords: Any) -> Any:
        return MemoryManager(*args, async_ports=True, **keywords)

    def shut(self) -> None:
        closing = self.written.close()
        if closing is not None:
            self.memory._runtime._port_loop.wait(closing)


def comparable(value: Any) -> Any:
    """Return a comparable form of a result, without the seconds of a count."""
    if isinstance(value, BaseException):
        return type(value).__name__, str(value)
    return re.sub(r"latency=[-+.e\d]+|object at 0x[\da-f]+", "", repr(value))


def document(state: Any) -> Any:
    """Return an exported session without the seconds of counts."""
    assert not isinstance(state, Exception), f"the session cannot be exported: {state}"
    return json.loads(re.sub(r',?"latency":[-+.e\d]+', "", state.to_json()))


class OpenCall(NamedTuple):
    """A call without a result; calls of one message or turn have equal turns."""

    id: str
    call_id: str | None
    turn: str | int


class SentMessage(NamedTuple):
    """A message in the list of a framework, and the ids of its entries."""

    message: dict[str, Any]
    ids: list[str]


class Laws(RuleBasedStateMachine):
    """Random operations on one session through all APIs, and the laws after each."""

    kind: Callable[[], Kind] = InMemory
    store: Any = RacingStore
    async_store: Any = None  # of the async API; None for the same

    def __init__(self) -> None:
        super().__init__()
        self.apis: list[ManagerUnderTest] = []
        self.stack = ExitStack()
        self.number = 0
        self.texts: dict[str, str] = {}  # acknowledged entry id -> its mark
        self.earlier: dict[str, str] = {}  # the marks of entries whose id another has now
        self.open_calls: list[OpenCall] = []
        self.pairs: list[tuple[str, str]] = []
        self.last: Operation | None = None
        self.sent: list[SentMessage] = []

    @initialize(
        max_tokens=st.sampled_from([40, 90, 200]),
        max_entries=st.sampled_from([None, 8, 20]),
        recent=st.integers(0, 4),
        on_failure=st.sampled_from(["fallback", "fallback", "keep", "raise"]),
        exclusive=st.booleans(),
    )
    def begin(
        self,
        max_tokens: int,
        max_entries: int | None,
        recent: int,
        on_failure: Any,
        exclusive: bool,
    ) -> None:
        config = MemoryConfig(
            max_tokens=max_tokens,
            max_entries=max_entries,
            recent_window=recent,
            min_entries_to_compress=1,
            compression_ratio=0.9,
            max_summary_ratio=0.9 if max_tokens == 40 else 0.5,
            on_failure=on_failure,
            summarize_timeout=None,
        )
        for api in (SyncManagerUnderTest, AsyncManagerUnderTest, AioManagerUnderTest):
            store = self.store if api is SyncManagerUnderTest else self.async_store or self.store
            self.apis.append(api(config, exclusive, type(self).kind(), store))
        # For each API, the events of each of its managers in turn, and of the other writer.
        self.emitted = [[[self._heard(api.memory)], [self._heard(api.other)]] for api in self.apis]
        self.unemitted = 0  # records whose writer died before it emitted their events
        self._do("add_system_message", f"You are careful. {self._mark()}")

    def teardown(self) -> None:
        self.stack.close()
        for api in self.apis:
            api.close()

    def _heard(self, writer: Any) -> list[events.Event]:
        return self.stack.enter_context(record_events(writer, LOG_EVENTS))

    # ------------------------------------------------------------ doing

    def _mark(self) -> str:
        self.number += 1
        return f"mk{self.number}q"

    def _do(self, name: str, *args: Any, elsewhere: bool = False, **keywords: Any) -> Any:
        """Run one operation through all APIs; the results must be equal."""
        operation = (name, args, keywords)
        answers = [
            api.do_elsewhere(operation) if elsewhere and not api.exclusive else api.do(operation)
            for api in self.apis
        ]
        assert len(set(map(comparable, answers))) == 1, f"the apis disagree about {operation}"
        answer = answers[0]
        if name.startswith("add_") and not isinstance(answer, BaseException):
            for entry in answer if isinstance(answer, list) else [answer]:
                self._acknowledge(entry)
        return answer

    def _acknowledge(self, entry: Any) -> None:
        marks = " ".join(MARK.findall(entry.text))
        known = self.texts.get(entry.id, marks)
        if known != marks:
            self.earlier[entry.id] = f"{self.earlier.get(entry.id, '')} {known}"
        self.texts[entry.id] = marks

    def _log(self) -> list[tuple[int, Record]]:
        return list(self.apis[0].store.read(SESSION, 0, 100_000))

    def _ids(self) -> list[str]:
        """Return the added entries of the era."""
        return list(Oracle.of(self._log()).era)

    def _turn(self) -> int:
        """Return the position of the last message that is not the assistant's."""
        added = [(seq, record.entry) for seq, record in self._log() if isinstance(record, Added)]
        return max(seq for seq, entry in added if entry.role != "assistant")

    def _active(self) -> list[str]:
        return Oracle.of(self._log()).window()

    def _pick(self, data: st.DataObject, ids: list[str]) -> str:
        return data.draw(st.sampled_from(ids))

    # ------------------------------------------------------------ operations

    @rule(
        kind=st.sampled_from(["user", "user", "assistant", "system"]),
        size=st.sampled_from([0, 1, 5, 30]),
        odd=st.sampled_from(["", "", "\u4f60\u597d \U0001f600", "\x00", "[end of memman summary]"]),
        empty=st.sampled_from([False, False, False, True]),
        pinned=st.sampled_from([False, False, False, False, False, True]),
        elsewhere=st.booleans(),
    )
    def add_message(
        self, kind: str, size: int, odd: str, empty: bool, pinned: bool, elsewhere: bool
    ) -> None:
        text = "" if empty else " ".join([self._mark(), odd, *["word"] * size])
        pinned = pinned and size < 5
        self.last = (f"add_{kind}_message", (text,), {"id": f"own{self.number}-{len(self.texts)}",
                                                     "pinned": pinned})  # fmt: skip
        name, args, keywords = self.last
        self._do(name, *args, elsewhere=elsewhere, **keywords)

    @rule(elsewhere=st.booleans(), size=st.sampled_from([1, 10]))
    def add_context(self, elsewhere: bool, size: int) -> None:
        self._do(
            "add_context", f"{self._mark()} " + "word " * size, "notes.txt", elsewhere=elsewhere
        )

    @rule(
        call_ids=st.lists(st.sampled_from([None, "c1", "c2", "c 3"]), min_size=1, max_size=3),
        parallel=st.booleans(),
        joined=st.booleans(),
    )
    def add_calls(self, call_ids: list[str | None], parallel: bool, joined: bool) -> None:
        message_id = f"m{self.number}-{len(self.texts)}" if parallel else None
        if joined:
            self._do("add_assistant_message", self._mark(), message_id=message_id)
        for call_id in call_ids:
            arguments = {"path": self._mark()}
            call = self._do(
                "add_tool_call", "read", arguments, call_id=call_id, message_id=message_id
            )
            self.open_calls.append(OpenCall(call.id, call_id, message_id or self._turn()))

    @rule(
        data=st.data(),
        size=st.sampled_from([0, 3, 40]),
        is_error=st.booleans(),
        elsewhere=st.booleans(),
    )
    @precondition(lambda self: self.open_calls)
    def add_result(self, data: st.DataObject, size: int, is_error: bool, elsewhere: bool) -> None:
        call_id = data.draw(st.sampled_from(self.open_calls)).call_id
        text = " ".join([self._mark(), *["word"] * size])
        oracle = Oracle.of(self._log())
        result = self._do("add_tool_result", "read", text, call_id=call_id, is_error=is_error,
                          elsewhere=elsewhere)  # fmt: skip
        # By id and order; a result without an id goes to a call without one, if any. Open calls of
        # earlier turns come last.
        able = [each for each in self.open_calls if each.call_id == call_id]
        if not all(oracle.shows(each.id) for each in able):
            # A compression took a call from before the newest user message: it waits for no result.
            self.pairs.clear()
            self.open_calls.clear()
            return
        answered = next(each for each in able if each.turn == able[-1].turn)
        self.open_calls.remove(answered)
        if not note_of(
            result, "call"
        ):  # a late result is shown with its call again, wherever that is
            self.pairs.append((answered.id, result.id))

    @rule(call_id=st.sampled_from([None, "gone"]))
    def add_orphan(self, call_id: str | None) -> None:
        self._do("add_tool_result", "lost", self._mark(), call_id=call_id)

    @rule(
        kinds=st.lists(st.sampled_from(["user", "assistant", "calls", "tool"]), max_size=3),
        skipped=st.integers(0, 4),
        edited=st.sampled_from([False, False, False, True]),
        elsewhere=st.booleans(),
    )
    def send_list(self, kinds: list[str], skipped: int, edited: bool, elsewhere: bool) -> None:
        """A framework sends its list again, with more messages at the end or an edited one."""
        self.sent += map(self._message, kinds)
        sent = self.sent[skipped:]
        messages, ids = [each.message for each in sent], [each.ids[0] for each in sent]
        answered, added = self._expected(sent)
        stored = [n for n, each in enumerate(sent) if each.ids[0] in {*answered} - {*added}]
        if edited and stored:
            messages[stored[0]] = {**messages[stored[0]], "role": "user", "content": "edited"}
            head = self.apis[0].store.state(SESSION)
            refused = self._do("add_messages", messages, ids=ids, elsewhere=elsewhere)
            assert isinstance(refused, IdConflict)
            assert self.apis[0].store.state(SESSION) == head
            return
        before = len(self._log())
        found = self._do("add_messages", messages, "openai-chat", ids=ids, elsewhere=elsewhere)
        assert [entry.id for entry in found] == answered
        records = [record for _, record in self._log()[before:] if isinstance(record, Added)]
        assert [record.id for record in records] == added

    def _message(self, kind: str) -> SentMessage:
        """Return a new message of a framework."""
        name = f"sent{len(self.sent)}-{self.number}"
        message: dict[str, Any] = {"role": kind, "content": self._mark()}
        if kind == "tool":
            return SentMessage({**message, "tool_call_id": f"{name}-lost"}, [name])
        if kind != "calls":
            return SentMessage(message, [name])
        calls = [
            {"id": f"{name}-{n}", "type": "function",
             "function": {"name": "read", "arguments": json.dumps({"path": self._mark()})}}
            for n in range(2)
        ]  # fmt: skip
        message = {**message, "role": "assistant", "tool_calls": calls}
        return SentMessage(message, [name, f"{name}:1", f"{name}:2"])

    def _expected(self, sent: list[SentMessage]) -> tuple[list[str], list[str]]:
        """Return the ids of the entries that a list must give, and those that must be new."""
        oracle = Oracle.of(self._log())
        answered: list[str] = []
        added: list[str] = []
        for each in sent:
            stored = [name for name in each.ids if name in oracle.era]
            if not stored and oracle.deleted.isdisjoint(each.ids):
                stored = each.ids
                added += each.ids
            answered += stored
        return answered, added

    @rule(elsewhere=st.booleans())
    @precondition(lambda self: self.last is not None)
    def retry(self, elsewhere: bool) -> None:
        assert self.last is not None
        head, epoch = self.apis[0].store.state(SESSION)
        name, args, keywords = self.last
        oracle = Oracle.of(self._log())
        deleted = keywords["id"] in oracle.deleted
        again = self._do(name, *args, elsewhere=elsewhere, compress=False, **keywords)
        assert deleted or not isinstance(again, Exception)
        if not deleted and keywords["id"] not in oracle.era:
            head += 1  # a clear or a retraction freed the id
        assert self.apis[0].store.state(SESSION) == (head, epoch), "a retry added something"

    @rule(data=st.data(), elsewhere=st.booleans())
    def add_again(self, data: st.DataObject, elsewhere: bool) -> None:
        listed = {name for each in self.sent for name in each.ids}  # send_list adds them again
        if free := sorted(Oracle.of(self._log()).retracted() - listed):
            name, text = self._pick(data, free), self._mark()
            self.last = "add_user_message", (text,), {"id": name}
            entry = self._do("add_user_message", text, id=name, elsewhere=elsewhere, compress=False)
            assert entry.seq == self.apis[0].store.state(SESSION)[0], (
                "an entry was taken for another"
            )

    @rule(
        when=st.sampled_from(["before", "after"]),
        dies=st.booleans(),
        verb=st.sampled_from(["add", "send", "compress", "undo_compression", "clear_session"]),
        elsewhere=st.booleans(),
    )
    def fault_at_a_write(self, when: str, dies: bool, verb: str, elsewhere: bool) -> None:
        adding: Any = f"{self._mark()} again and again"
        identified: dict[str, Any] = {
            "id": f"own{self.number}-{len(self.texts)}",
            "compress": False,
        }
        name = "add_user_message"
        if verb == "send":
            name, adding = "add_messages", [{"role": "user", "content": adding}]
            identified = {"ids": [identified["id"]], "compress": False}
        for api in self.apis:
            api.written.when = when
            api.written.fault = Crashed() if dies else StoreError("the answer did not come")
        if verb in ("add", "send"):
            assert isinstance(self._do(name, adding, **identified), Crashed | StoreError)
        else:
            self._forget_pairs(verb)
            self._do(verb)
        for api in self.apis:
            api.written.fault = None
        if dies:
            self._restart()
        # A repeated operation is done once, by either manager; pending events are emitted then, too.
        self._do(name, adding, elsewhere=elsewhere and dies, **identified)

    def _restart(self) -> None:
        for api, emitted in zip(self.apis, self.emitted, strict=True):
            api.restart()
            emitted[0].append(self._heard(api.memory))
        log, heard = self._log(), sum(len(each) for each in chain(*self.emitted[0]))
        assert 0 <= len(log) - heard - self.unemitted <= 1, (
            "a dead writer has emitted fewer than all but one"
        )
        self.unemitted = len(log) - heard

    @rule(
        mode=st.sampled_from(
            ["echo", "echo", "echo", "fail", "slow", "empty", "too long", "truncated"]
        )
    )
    def summarizer_becomes(self, mode: str) -> None:
        for api in self.apis:
            api.summarizer.mode = mode

    @rule(
        data=st.data(),
        low=st.sampled_from([None, 0, 10, 30]),
        where=st.sampled_from(["alone", "alone", "during", "before the commit"]),
    )
    def compress(self, data: st.DataObject, low: int | None, where: str) -> None:
        if where != "alone":
            self._arrange(data, where)
        answer = self._do("compress", target_tokens=low)
        self._arranged()
        if not isinstance(answer, Exception) and answer.compression_id is not None:
            assert answer.tokens_after <= answer.tokens_before

    @rule(
        data=st.data(),
        name=st.sampled_from(["undo_compression", "clear_session", "delete_entries", "retract"]),
    )
    def change_that_somebody_comes_before(self, data: st.DataObject, name: str) -> None:
        named = name in ("delete_entries", "retract")
        doomed = self._pick(data, self._ids()) if named and self._ids() else None
        if named and doomed is None:
            return
        self._arrange(data, "before the commit")
        self._do(name, *([[doomed]] if doomed else []))
        self._arranged()
        self._forget_pairs(name)

    def _arrange(self, data: st.DataObject, where: str) -> None:
        """Schedule an operation of another caller in the middle of the next one."""
        operations = [self._meddling(data) for _ in range(data.draw(st.integers(1, 2)))]
        for name, _, _ in operations:
            self._forget_pairs(name)
        for api in self.apis:
            if where == "during":
                api.during = list(operations)
            elif not api.exclusive:
                api.written.race = lambda api=api: [  # type: ignore[misc]
                    api.do_elsewhere(operation) for operation in operations
                ]

    def _arranged(self) -> None:
        """Drop an operation that did not run; the log has the others."""
        for api in self.apis:
            assert not api.waited, "an operation waited for a summary"
            api.during = []
            api.written.race = None
        for _, record in self._log():
            if isinstance(record, Added) and record.id not in self.texts:
                self._acknowledge(record.entry)

    def _meddling(self, data: st.DataObject) -> Operation:
        ids, active = self._ids(), self._active()
        name = data.draw(
            st.sampled_from(
                [
                    "add_user_message",
                    "clear_session",
                    "undo_compression",
                    "pin",
                    "delete_entries",
                    "retract",
                    "compress",
                ]
            )
        )
        if name == "pin" and active:
            return name, (self._pick(data, active),), {}
        if name in ("delete_entries", "retract") and ids:
            return name, ([self._pick(data, ids)],), {}
        if name in ("clear_session", "undo_compression"):
            return name, (), {}
        if name == "compress" and not self.apis[0].exclusive:
            return name, (), {"target_tokens": 10}
        automatic = data.draw(st.sampled_from([False, None]))
        return "add_user_message", (f"{self._mark()} meanwhile",), {"compress": automatic}

    def _forget_pairs(self, name: str) -> None:
        """Forget open calls, because a result may now belong to another call, or to none."""
        if name in ("clear_session", "delete_entries", "retract"):
            self.pairs.clear()
            self.open_calls.clear()

    @rule(data=st.data(), elsewhere=st.booleans())
    def undo(self, data: st.DataObject, elsewhere: bool) -> None:
        oracle = Oracle.of(self._log())
        which = data.draw(
            st.sampled_from([None, *sorted([*oracle.compressions, *oracle.retractions])])
        )
        if which in oracle.retractions:
            self._forget_pairs("retract")
        undone = self._do("undo_compression", which, elsewhere=elsewhere)
        assert which not in oracle.retractions or (undone == which) == oracle.restorable(which)

    @rule(data=st.data(), elsewhere=st.booleans())
    def retract(self, data: st.DataObject, elsewhere: bool) -> None:
        oracle = Oracle.of(self._log())
        if ids := [*oracle.era, *sorted(oracle.retracted())]:
            some = data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True))
            self._forget_pairs("retract")
            retraction = self._do("retract", some, reason="edited", elsewhere=elsewhere)
            after = Oracle.of(self._log())
            assert set(some) <= after.retracted()
            assert retraction in after.retractions
            assert after.head == oracle.head + any(name in oracle.era for name in some)

    @rule(data=st.data(), on=st.booleans(), elsewhere=st.booleans())
    def pin(self, data: st.DataObject, on: bool, elsewhere: bool) -> None:
        if active := self._active():
            self._do("pin" if on else "unpin", self._pick(data, active), elsewhere=elsewhere)

    @rule(data=st.data(), elsewhere=st.booleans())
    def delete(self, data: st.DataObject, elsewhere: bool) -> None:
        if ids := self._ids():
            doomed = data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=2, unique=True))
            self._forget_pairs("delete_entries")
            assert self._do("delete_entries", doomed, elsewhere=elsewhere) is None

    @rule(sure=st.sampled_from([False, False, True]), elsewhere=st.booleans())
    def clear(self, sure: bool, elsewhere: bool) -> None:
        if sure:
            self._forget_pairs("clear_session")
            self._do("clear_session", elsewhere=elsewhere)
            assert self._active() == []

    @rule(
        changes=st.sampled_from(
            [
                {"max_tokens": 60},
                {"max_entries": 12},
                {"auto_compress": False},
                {"recent_window": 2},
                {"max_tokens": 150, "auto_compress": True},
            ]
        )
    )
    def configure(self, changes: dict[str, Any]) -> None:
        self._do("update_config", **changes)

    @rule(metadata=st.sampled_from([{}, {"user": "ada"}, {"n": 1}]), elsewhere=st.booleans())
    def describe(self, metadata: dict[str, Any], elsewhere: bool) -> None:
        self._do("update_session", metadata=metadata, elsewhere=elsewhere)
        for api in self.apis:
            [info] = api.store.sessions(SESSION)
            assert info.metadata == metadata

    # ------------------------------------------------------------ invariants

    @rule(
        form=st.sampled_from(
            [
                "openai-chat",
                "anthropic",
                "text",
                "openai-responses",
                "gemini",
                "bedrock",
            ]
        ),
        budget=st.sampled_from([None, 5, 30, 60, 100, 1_000]),
        system=st.sampled_from([None, "Answer in verse."]),
    )
    def a_context_is_valid_and_fits_or_is_refused(
        self, form: str, budget: int | None, system: str | None
    ) -> None:
        context = self._do("build_context", format=form, budget=budget, system=system)
        if isinstance(context, BudgetExceeded):
            assert context.required > context.available
            return
        for api in self.apis:
            context = api.do(
                ("build_context", (), {"format": form, "budget": budget, "system": system})
            )
            messages = context.messages
            assert context.tokens.tokens <= context.budget
            assert recount(messages, context.system, form) <= context.budget
            if form != "text" and messages:
                assert check(messages, form, system=context.system) == []
            named = [name for source in context.sources for name in source.entries]
            assert len(context.sources) == len(messages)
            assert set(named) <= {entry.id for entry in context.entries}
            added = {entry.id for entry in api.do(("get_entries", (), {}))}
            for source in context.sources:
                assert not source.unaltered or added.issuperset(source.entries)

    @rule()
    def reading_changes_nothing(self) -> None:
        for api in self.apis:
            before = api.do(("export_session", (), {}))
            state = api.store.state(SESSION)
            entries = api.do(("get_entries", (), {}))
            for name in ("get_active_entries", "get_summaries", "get_stats", "get_context_for_llm",
                         "plan_compression", "build_context", "explain"):  # fmt: skip
                api.do((name, (), {}))
            for entry in entries:
                assert api.do(("get_entry", (entry.id,), {})) == entry
            messages = api.do(("get_messages", (), {}))
            for last in (1, 3, len(messages)):
                newest = api.do(("get_messages", (), {"last": last}))
                assert newest == messages[max(0, len(messages) - last) :]
            for last in (1, 3, len(entries)):
                newest = api.do(("get_entries", (), {"last": last}))
                assert newest == entries[max(0, len(entries) - last) :]
            assert api.do(("export_session", (), {})) == before
            assert api.store.state(SESSION) == state

    @rule()
    def what_became_of_each_entry_is_what_the_plain_fold_says(self) -> None:
        oracle = Oracle.of(self._log())
        # Through both, because the clock ticks each time the circuit breaker reads it.
        explanation, *_ = (api.do(("explain", (), {})) for api in self.apis)
        statuses = {status.entry_id: status for status in explanation.entries}
        gone = ("deleted", "retracted")
        kept = [name for name, status in statuses.items() if status.state not in gone]
        assert kept == oracle.era
        retracted = {name for name, status in statuses.items() if status.state == "retracted"}
        assert retracted == oracle.retracted()
        assert {name for name in statuses if name not in kept} - retracted <= oracle.deleted
        assert {name for name in kept if statuses[name].state == "dropped"} == oracle.dropped()
        outlined = oracle.outlined()
        for name in kept:
            shower = statuses[name].shown_by
            assert (shower == name) == (statuses[name].state == "active") == (name in oracle.active)
            if name in outlined:
                assert statuses[name].state == "summarised"
                assert shower == (oracle.outline or None)
            else:
                assert shower is None or name in oracle.leaves(shower)
        folded = {one.compression_id for one in explanation.compressions if one.state == "folded"}
        holding = {
            one.compression_id for one in explanation.compressions if one.state == "in force"
        }
        assert folded | holding == {*oracle.compressions, *oracle.retractions}
        # Only a compression in force can be undone directly.
        for name in holding - set(oracle.retractions):
            made = [item.entry for item in oracle.compressions[name].replacements if item.entry]
            assert {entry.id for entry in made} <= oracle.active

    @rule(data=st.data())
    def a_search_finds_what_a_scan_finds(self, data: st.DataObject) -> None:
        mark = f"mk{data.draw(st.integers(1, self.number))}q"
        log = self._log()
        oracle = Oracle.of(log)
        marked = {
            seq: record.id
            for seq, record in log
            if isinstance(record, Added) and mark in MARK.findall(record.entry.text)
        }
        newest = {record.id: seq for seq, record in log if isinstance(record, Added)}
        of_era = {seq for seq, name in marked.items() if name in oracle.era and newest[name] == seq}
        for api in self.apis:
            hits = api.do(("search", (mark,), {"limit": 100}))
            assert {hit.entry.seq for hit in hits} == of_era
            for hit in hits:
                name = hit.entry.id
                assert (hit.state == "active") == (name in oracle.active)
                assert (hit.state == "dropped") == (name in oracle.dropped())
            hits = api.do(("search", (mark,), {"limit": 100, "states": get_args(EntryState)}))
            assert {hit.entry.seq for hit in hits} == set(marked)
            others = {hit.state for hit in hits if hit.entry.seq not in of_era}
            assert others <= {"retracted", "cleared"}

    @rule()
    def an_export_imports_to_the_same_session(self) -> None:
        state = self.apis[0].do(("export_session", (), {}))
        fresh = MemoryManager(counter=words)
        fresh.import_session(state.to_json())
        assert fresh.export_session(SESSION) == state
        assert fresh.get_active_entries(SESSION) == self.apis[0].do(("get_active_entries", (), {}))

    @rule(data=st.data())
    def a_fork_is_a_prefix_without_what_was_deleted(self, data: st.DataObject) -> None:
        upto = data.draw(st.sampled_from([None, *self._ids()]))
        assert self._do("fork_session", FORK, upto=upto) == FORK
        for api in self.apis:
            log = list(api.store.read(SESSION, 0, 100_000))
            (_, opening), *copied = api.store.read(FORK, 0, 100_000)
            end = opening.forked_from.seq
            assert copied[: end - 1] == log[1:end]
            ids = {record.id for _, record in copied}
            late = Oracle.of(log).deleted - Oracle.of(log[:end]).deleted
            assert [set(record.ids) for _, record in copied[end - 1 :]] == (
                [late & ids] if late & ids else []
            )
            oracle, folded = Oracle.of([(1, opening), *copied]), History.of([(1, opening), *copied])
            snapshot = api.store.load(FORK)
            live = api.do(("get_active_entries", (), {}), FORK)
            assert oracle.besides_outline(live) == oracle.window()
            assert [item.place() for item in folded.state.window.stored_items] == [
                place for place, _ in snapshot.window
            ]
            assert snapshot.totals == folded.totals
            assert end == len(log) if upto is None else upto in oracle.era
            api.do(("delete_session", (), {}), FORK)

    @invariant()
    def both_managers_have_the_same_log(self) -> None:
        first, *others = (api.do(("export_session", (), {})) for api in self.apis)
        assert all(document(other) == document(first) for other in others)

    @invariant()
    def window_store_and_fold_agree(self) -> None:
        for api in self.apis:
            log = list(api.store.read(SESSION, 0, 100_000))
            oracle = Oracle.of(log)
            folded = History.of(log)
            snapshot = api.store.load(SESSION)
            live = api.do(("get_active_entries", (), {}))
            places = [place for place, _ in snapshot.window]
            assert oracle.besides_outline(live) == oracle.window()
            assert [entry.id for entry in live if entry.pinned] == [
                name for name in oracle.window() if name in oracle.pins
            ]
            assert [item.place() for item in folded.state.window.stored_items] == places
            assert [item.entry.id for item in folded.items] == oracle.window()
            positions = [place.position for place in places if place.index != STATE_INDEX]
            assert positions == sorted(set(positions)), "positions are not in order"
            assert (snapshot.head, snapshot.epoch) == (oracle.head, oracle.epoch)
            assert snapshot.totals == folded.totals

    @invariant()
    def the_list_of_sessions_is_the_plain_fold(self) -> None:
        for api in self.apis:
            log = [record for _, record in api.store.read(SESSION, 0, 100_000)]
            oracle = Oracle.of(enumerate(log, 1))
            title = oracle.first.text.replace("\x00", "") if oracle.first else ""
            added = [record.at for record in log if isinstance(record, Added)]
            assert list(api.store.sessions(SESSION)) == [
                SessionInfo(
                    SESSION,
                    log[0].at,
                    max(log[0].at, added[-1]),
                    len(oracle.era),
                    api.do(("get_stats", (), {})).total_tokens,
                    oracle.metadata,
                    title.strip()[:200],
                )
            ]

    @invariant()
    def totals_are_sums(self) -> None:
        for api in self.apis:
            stats = api.do(("get_stats", (), {}))
            active = api.do(("get_active_entries", (), {}))
            entries = api.do(("get_entries", (), {}))
            assert stats.active_tokens == sum(entry.token_count.tokens for entry in active)
            assert stats.total_tokens == sum(entry.token_count.tokens for entry in entries)
            assert stats.total_entries == len(entries)
            assert stats.active_entries == len(active)
            originals = {e.id for e in active} & {e.id for e in entries}
            assert stats.compressed_entries == stats.total_entries - len(originals)

    @invariant()
    def every_acknowledged_entry_is_represented_once(self) -> None:
        for api in self.apis:
            log = list(api.store.read(SESSION, 0, 100_000))
            oracle = Oracle.of(log)
            oracle.assert_represented_once()
            logged = {record.id for _, record in log if isinstance(record, Added)}
            assert logged == set(self.texts), "the log is not what was acknowledged"
            shown = [entry.id for entry in api.do(("get_entries", (), {}))]
            assert shown == oracle.era

    @invariant()
    def entries_are_verbatim(self) -> None:
        api = self.apis[0]
        texts = {entry.id: entry for entry in api.do(("get_entries", (), {}))}
        for entry_id, entry in texts.items():
            assert " ".join(MARK.findall(entry.text)) == self.texts[entry_id]
        for entry in api.do(("get_active_entries", (), {})):
            if entry.pinned and entry.id in texts:
                assert entry.content == texts[entry.id].content

    @invariant()
    def nothing_of_a_deleted_entry_is_in_the_store(self) -> None:
        for api in self.apis:
            log = [record for _, record in api.store.read(SESSION, 0, 100_000)]
            deleted = Oracle.of(enumerate(log, 1)).deleted
            stored = set(MARK.findall(" ".join(encode(record).decode() for record in log)))
            for entry_id in deleted:
                marks = {*self.texts[entry_id].split(), *self.earlier.get(entry_id, "").split()}
                assert not marks & stored, f"the text of {entry_id} is still in the store"

    @invariant()
    def calls_and_results_are_on_one_side(self) -> None:
        oracle = Oracle.of(self._log())
        for call, result in self.pairs:
            assert oracle.shows(call) == oracle.shows(result), f"{call} without {result}"

    @invariant()
    def every_record_was_told_once_in_log_order(self) -> None:
        for api, emitted in zip(self.apis, self.emitted, strict=True):
            log = [record for _, record in api.store.read(SESSION, 0, 100_000)]
            for writer, heard in zip(("a", "b"), emitted, strict=True):
                own = [each for each in map(identity, chain(*heard)) if each is not None]
                logged = [(type(record).__name__, named(record)) for record in log]
                at = iter(logged)
                assert all(each in at for each in own), f"{writer}: emitted out of order"
            heard_of = sum(len(each) for each in chain(*emitted))
            assert heard_of == len(log) - self.unemitted, "emitted more or less than the log"


LOG_EVENTS = [
    events.SessionOpened,
    events.EntryAdded,
    events.CompressionResult,
    events.CompressionUndone,
    events.SessionCleared,
    events.EntriesDeleted,
    events.EntryPinned,
    events.SessionConfigured,
    events.SessionDescribed,
]


def identity(event: events.Event) -> tuple[str, Any]:
    """Return an event as (kind of its record, its name)."""
    match event:
        case events.SessionOpened():
            return "Opened", None
        case events.EntryAdded():
            return "Added", event.entry.id
        case events.CompressionResult():
            return "Compressed", event.compression_id
        case events.CompressionUndone():
            return "Undone", event.compression_id
        case events.EntriesDeleted():
            return "Deleted", event.ids
        case events.EntryPinned():
            return "Pinned", (event.entry_id, event.on)
        case events.SessionCleared():
            return "Cleared", None
        case events.SessionDescribed():
            return "Described", json.dumps(event.metadata)
    return "Configured", json.dumps(event.changes)


def named(record: Record) -> Any:
    """Return the name of a record in its event."""
    match type(record).__name__:
        case "Added" | "Compressed":
            return record.id
        case "Undone":
            return record.compression_id
        case "Deleted":
            return record.ids
        case "Pinned":
            return record.entry_id, record.on
        case "Configured":
            return json.dumps(record.changes)
        case "Described":
            return json.dumps(record.metadata)
    return None


def recount(messages: list[dict[str, Any]], system: str | None, form: str) -> int:
    """Return the tokens of a request, counted from its texts and its framing only."""
    framing = {"text": 0, "gemini": 3}.get(form, 4)
    total = words(system or "")
    for message in messages:
        total += framing + sum(words(text) for text in texts_of(message))
    return total


NOT_READ = frozenset(
    ("role", "type", "id", "tool_call_id", "tool_use_id", "call_id", "toolUseId", "status",
     "thoughtSignature")
)  # fmt: skip


def texts_of(value: Any, key: str = "") -> Iterator[str]:
    """Yield every string of a message that a model reads."""
    if isinstance(value, str):
        if key not in NOT_READ:
            yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from ([json.dumps(item)] if name in ("input", "args") else texts_of(item, name))
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item, key)


LawsTest = Laws.TestCase
LawsTest.settings = PROFILE


# ---------------------------------------------------------------- broken stores are found


class WithoutEpochCheck:
    """A store that accepts a commit on any shape."""

    def commit(self, session_id: str, epoch: int, *args: Any, **keywords: Any) -> Appended:
        race, self.race = self.race, None
        if race is not None:
            race()
        state = self.state(session_id)
        current = epoch if state is None else state[1]
        keywords.pop("expect_head", None)
        return super().commit(session_id, current, *args, **keywords)


class WithoutRecordIdCheck:
    """A store that appends a retried record a second time."""

    def append(self, session_id: str, records: Sequence[Record], **keywords: Any) -> Appended:
        self.forget([record.id for record in records])
        return super().append(session_id, records, **keywords)

    def forget(self, ids: Sequence[str]) -> None:
        """Forget the places of these records."""
        if isinstance(self, MemoryStore):
            for log in self._logs.values():
                for name in ids:
                    log.made.pop(name, None)
        elif isinstance(self, SQLiteStore):
            for name in ids:
                self._once(
                    lambda db, name=name: db.execute(
                        "UPDATE record SET id = 'forgotten' WHERE id = ?", (name,)
                    )
                )
        else:
            with self._connect().connection() as connection:
                connection.execute(
                    "UPDATE memman_record SET id = 'forgotten' WHERE id = ANY(%s)", (list(ids),)
                )


_ROOM_TO_SUMMARISE = 100  # tokens: half of it is more than the smallest summary


class MeddledLaws(Laws):
    """Laws of a session with much to summarise, under concurrent changes."""

    @initialize(recent=st.integers(0, 4), on_failure=st.sampled_from(["fallback", "keep"]))
    def begin(self, recent: int, on_failure: Any) -> None:  # type: ignore[override]
        super().begin(200, None, recent, on_failure, False)
        for _ in range(12):
            self._do("add_user_message", f"{self._mark()} " + "word " * 12, compress=False)

    @rule(data=st.data())
    def compress_while_somebody_meddles(self, data: st.DataObject) -> None:
        self._do("add_user_message", f"{self._mark()} " + "word " * 60, compress=False)
        self.compress(data, _ROOM_TO_SUMMARISE, "during")


MeddledLawsTest = MeddledLaws.TestCase
MeddledLawsTest.settings = PROFILE

KEPT = settings(PROFILE, max_examples=examples(10), stateful_step_count=20)
# Each call is a round trip there, and the laws make many.
FAR = settings(PROFILE, max_examples=examples(2), stateful_step_count=12)
# A broken store must be found each time, so the examples are the same.
HUNT = settings(
    PROFILE, max_examples=300, phases=[Phase.generate], derandomize=True, database=None,
    print_blob=False, report_multiple_bugs=False,
)  # fmt: skip


KINDS = [
    pytest.param(InMemory, RacingStore, id="memory"),
    pytest.param(InFile, RacingFile, id="sqlite"),
    pytest.param(InPostgres, RacingPostgres, id="postgres", marks=pytest.mark.service),
]


@pytest.mark.hypothesis
@pytest.mark.parametrize(("where", "store"), KINDS[1:])
@pytest.mark.parametrize("laws", [Laws, MeddledLaws])
def test_laws_hold_on_persistent_stores(laws: Any, where: Any, store: Any) -> None:
    awaited = RacingAsyncPostgres if where is InPostgres else None
    machine = type("Kept", (laws,), {"kind": where, "store": store, "async_store": awaited})
    run_state_machine_as_test(machine, settings=FAR if where is InPostgres else KEPT)


@pytest.mark.parametrize(
    ("where", "store"),
    [
        KINDS[0],
        *(
            pytest.param(*kind.values, id=kind.id, marks=[*kind.marks, pytest.mark.long])
            for kind in KINDS[1:]
        ),
    ],
)
@pytest.mark.parametrize(
    ("laws", "mutant"), [(MeddledLaws, WithoutEpochCheck), (Laws, WithoutRecordIdCheck)]
)
def test_laws_detect_a_broken_store(laws: Any, mutant: Any, where: Any, store: Any) -> None:
    broken = type(mutant.__name__, (mutant, store), {})
    machine = type("Mutated", (laws,), {"kind": where, "store": broken})
    with pytest.raises((AssertionError, MemmanError, IndexError)):
        run_state_machine_as_test(machine, settings=HUNT)


@pytest.mark.long
def test_laws_detect_a_commit_of_a_stale_window(monkeypatch):
    real_input, real_commit = CompressionPolicy.input, SessionLog.commit
    planned: dict[int, LogState] = {}

    def planned_input(policy: CompressionPolicy, *args: Any) -> Any:
        planned[id(policy._log)] = policy._log._state.copy()
        return real_input(policy, *args)

    async def commit(log: SessionLog, record: Record, state: LogState) -> None:
        if isinstance(record, Compressed) and not ids_retracted_by(record):
            state = planned[id(log)]
            state.apply(log.window.head + 1, record)
        await real_commit(log, record, state)

    monkeypatch.setattr(CompressionPolicy, "input", planned_input)
    monkeypatch.setattr(SessionLog, "commit", commit)
    with pytest.raises((AssertionError, MemmanError, IndexError)):
        run_state_machine_as_test(MeddledLaws, settings=HUNT)


@pytest.mark.long
def test_laws_detect_a_summary_of_a_partial_plan(monkeypatch):
    real_after = SessionLog.after

    def landed(log: SessionLog, record: Record, *unfoldings: Any) -> LogState:
        try:
            return real_after(log, record, *unfoldings)
        except Refused:
            assert isinstance(record, Compressed)
        seq, window = log.window.head + 1, log.window.copy()
        window.remove(name for item in record.replacements for name in item.ids)
        made = [
            WindowItem(msgspec.structs.replace(item.entry, seq=seq), number - 1_000,
                 item.entry.token_count.tokens, False, number, record.id)
            for number, item in enumerate(record.replacements)
            if item.entry is not None
        ]  # fmt: skip
        window.replace(0, 0, made)
        return LogState(window, log.totals.after(seq, record))

    monkeypatch.setattr(SessionLog, "after", landed)
    with pytest.raises((AssertionError, MemmanError, IndexError)):
        run_state_machine_as_test(MeddledLaws, settings=HUNT)
