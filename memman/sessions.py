"""One live session: the only place that awaits.

Data flows down once (draft, count, record, store) and up once (window, event). What is decided is decided
by pure functions elsewhere; here it is carried out, under the session's lock, and told afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from memman import events
from memman.archive import SessionState, state_of
from memman.compression import (
    CompressionPlan,
    Goal,
    OriginalsWanted,
    SummaryFailed,
    SummaryOptions,
    SummaryProblem,
    View,
    describe,
    make_plan,
    replacements_of,
    stages_of,
    view_of,
)
from memman.compression.summaries import SummaryFailure
from memman.config import resolve_budget
from memman.contexts import Asked, Contexts, recounted
from memman.doors import Lock, SyncLock
from memman.entries import (
    NO_JSON,
    Draft,
    Entry,
    TokenCount,
    check_draft,
    check_id,
    entry_of,
)
from memman.errors import (
    CompressionFailed,
    EntryNotFound,
    IdConflict,
    InvalidInput,
    MemmanError,
    Refused,
    SessionNotFound,
    StoreConflict,
)
from memman.history import History, pin_slots
from memman.ports import Appended, Place, SummaryReply, SummaryRequest
from memman.records import (
    Added,
    Cleared,
    Compressed,
    Configured,
    Cost,
    Deleted,
    Pinned,
    Record,
    Undone,
    UsageReported,
    tainted_by,
)
from memman.results import Context, SessionStats, Summary, summary_of
from memman.shared import Shared
from memman.window import Slot, Window, compress_slots

logger = logging.getLogger("memman")
T = TypeVar("T")

_REPLANS = 2  # how often a compression plans again after the window changed shape meanwhile
_TRIM_ROUNDS = 6
_PAGE = 1_000
_NO_SETTINGS: dict[str, Any] = {}  # never changed: a session's settings are replaced, not edited
_ANOTHER_RUNS = "another compression of this session is running"
# The compressions that this thread or task is part of. A task made by a summarizer inherits them, and
# is free again once they have ended: a run is known by an object of its own.
_compressing: ContextVar[frozenset[object]] = ContextVar("compressing", default=frozenset())
_ASK_SHARE = 0.8  # of the room between low and high water must be new before a summarizer is asked


class Session:
    """A conversation in this process: its window, its settings, and what is still to be told."""

    __slots__ = (
        "_added_entries",
        "_added_tokens",
        "_asked_at",
        "_budget",
        "_compress_lock",
        "_config",
        "_contexts",
        "_drain_lock",
        "_entries",
        "_erasing",
        "_failed",
        "_inflight",
        "_last_counted",
        "_lock",
        "_meter",
        "_outbox",
        "_queued",
        "_run",
        "_settings",
        "_settled",
        "_shared",
        "_thread_lock",
        "_tokens",
        "_told",
        "_unseen",
        "_usage",
        "_version",
        "_window",
        "id",
    )  # fmt: skip

    def __init__(self, session_id: str, shared: Shared) -> None:
        self.id = session_id
        self._shared = shared
        # With a store that never suspends, one thread lock serves both doors.
        own = SyncLock()
        self._lock: Lock = own if shared.quick else shared.door.lock()
        self._thread_lock = own.thread
        # Made when first needed: most sessions are never compressed and have nobody to tell.
        self._compress_lock: Lock | None = None
        self._window = Window()
        # Records handed to the store whose effect on the window is not sure: () asks for a reload.
        self._inflight: tuple[Record, ...] | None = ()
        self._outbox: list[events.Event] = []
        self._drain_lock: SyncLock | None = None
        self._told = 0
        self._settings = _NO_SETTINGS
        self._version = -1
        self._entries = self._tokens = 0
        self._last_counted: datetime | None = None
        self._usage: UsageReported | None = None
        self._added_tokens = self._added_entries = 0
        self._asked_at: tuple[int, int] | None = None
        self._unseen = 0
        self._run: object | None = None
        self._queued = False  # a background compression that has not begun yet
        self._erasing: frozenset[str] | None = None
        self._failed = False  # the summarizer, when it was asked last
        self._contexts: Contexts | None = None
        self._configure()

    # ------------------------------------------------------------ settings

    def _configure(self) -> None:
        """Takes in the manager's and the session's settings."""
        shared = self._shared
        try:
            settled = shared.settled(self._settings)
        except MemmanError as error:
            # The session's own settings do not go with the manager's: reading must not fail on that.
            logger.warning("settings of session %s are left aside: %s", self.id, error)
            settled = shared.settled({})
        self._version = shared.version
        self._settled = settled
        self._config, self._budget, self._meter = settled.config, settled.budget, settled.meter
        if self._contexts is not None:
            self._contexts.outdate()

    @property
    def settings(self) -> Mapping[str, Any]:
        """What this session has settled for itself."""
        return self._settings

    async def configure(self, changes: Mapping[str, Any]) -> None:
        """Changes settings of this session alone; they persist with it."""
        plain = _plain_settings(changes)
        self._shared.check(self._shared.config.updated(self._settings).updated(plain))
        encoded = msgspec.json.encode(plain)
        record = Configured(
            id=self._shared.new_id(),
            at=self._shared.clock(),
            changes=msgspec.json.decode(encoded),
        )
        async with self._lock:
            await self._refresh()
            await self._append((record,))
            self._settings = self._settings | record.changes
            self._configure()
            self._recount()
        await self._drain()

    # ------------------------------------------------------------ staying in step with the store

    async def _refresh(self) -> None:
        """Makes the window what the store has. Called under the lock, before everything else."""
        shared = self._shared
        if self._version != shared.version:
            self._configure()
            self._recount()
        if self._erasing is not None:
            await self._erase()
        if self._inflight is not None:
            await self._reload()
        elif not shared.exclusive:
            state = await shared.door.call(shared.store, shared.store.state, self.id)
            if (state or (0, 0)) != (self._window.head, self._window.epoch):
                await self._reload()
        elif not self._window.head:
            await self._reload()

    async def _reload(self) -> None:
        shared = self._shared
        inflight, self._inflight = self._inflight, self._inflight or ()
        seen = self._window.head
        snapshot = await shared.door.call(shared.store, shared.store.load, self.id)
        if snapshot is None:
            self._forget()
            return
        self._window = Window.from_snapshot(snapshot)
        if self._contexts is not None:
            self._contexts.forget()
        ledger = snapshot.ledger
        self._entries, self._tokens = ledger.entries, ledger.tokens
        self._last_counted, self._usage = ledger.last_counted_at, ledger.usage
        if ledger.settings != self._settings:
            self._settings = dict(ledger.settings)
            self._configure()
        self._recount()
        if inflight:
            ids = [record.id for record in inflight]
            for seq, record in await shared.door.call(shared.store, shared.store.get, self.id, ids):
                if seq > seen:  # what was there before is a retry, told in its time
                    self._queue(seq, record)
        self._inflight = None

    def _forget(self) -> None:
        """Becomes the session that nothing was ever recorded in."""
        self._window = Window()
        self._contexts = self._usage = self._last_counted = self._asked_at = None
        self._entries = self._tokens = self._told = self._unseen = 0
        if self._settings:
            self._settings = _NO_SETTINGS
            self._configure()
        self._inflight = None

    def _recount(self) -> None:
        """Prices the window with the counter in use, in this process only: records keep their count."""
        fingerprint = self._meter.fingerprint
        window = self._window
        if all(slot.entry.token_count.counter in (fingerprint, "") for slot in window.slots):
            return
        if self._contexts is not None:
            self._contexts.forget()
        # Into a new window and then in one step, so that an interruption leaves the old one.
        self._window = recounted(window, self._meter)

    async def require(self) -> None:
        """Raises `SessionNotFound` unless something was ever recorded. Under the lock, refreshed."""
        await self._refresh()
        if not self._window.head:
            raise no_session(self.id)

    # ------------------------------------------------------------ writing

    async def _append(self, records: tuple[Record, ...]) -> Appended:
        """Appends records that do not change the window's shape. Under the lock, refreshed."""
        shared = self._shared
        self._inflight = records
        if shared.quick:
            return await self._appended_as(records, shared.store.append(self.id, records))
        return await shared.door.to_the_end(self._appended(records))

    async def _appended(self, records: tuple[Record, ...]) -> Appended:
        shared = self._shared
        appended = await shared.door.call(shared.store, shared.store.append, self.id, records)
        return await self._appended_as(records, appended)

    async def _appended_as(self, records: tuple[Record, ...], appended: Appended) -> Appended:
        """Takes appended records into the window and notes their events."""
        if not self._taken(records, appended):
            # Another writer came between, or some of it was there already.
            await self._reload()
        return appended

    def _taken(self, records: tuple[Record, ...], appended: Appended) -> bool:
        """Whether the records are the log's next, and so could be taken into the window as they are."""
        window = self._window
        seq = window.head
        if appended.fresh != len(records) or appended.head != seq + len(records):
            return False
        for record in records:
            seq += 1
            if type(record) is Added:
                self._take(msgspec.structs.replace(record.entry, seq=seq))
            if events.LOG_SIGNALS[type(record)].receivers:
                self._queue(seq, record)
        window.head = self._told = seq
        self._inflight = None
        return True

    def _take(self, entry: Entry) -> None:
        """Puts an added entry into the window."""
        tokens = entry.token_count.tokens
        self._window.add(entry, entry.pinned)
        self._entries += 1
        self._tokens += tokens
        self._added_entries += 1
        self._added_tokens += tokens
        self._last_counted = entry.timestamp

    async def _commit(self, record: Record, slots: Sequence[Slot]) -> None:
        """Commits a change of shape. Under the lock, refreshed. Raises `StoreConflict`."""
        shared = self._shared
        window = self._window
        head, epoch = window.head, window.epoch
        places = [
            slot.place() if slot.compression != record.id else _own_place(slot) for slot in slots
        ]
        self._inflight = (record,)
        try:
            appended: Appended = await shared.door.call(
                shared.store,
                shared.store.commit,
                self.id,
                epoch,
                (record,),
                places,
                head,
                # A clear covers all that is in the log before it, so nothing may come between.
                expect_head=head if isinstance(record, Cleared) else None,
            )
        except StoreConflict:
            self._inflight = ()
            raise
        if appended.head == head + 1:
            window.reshape(slots, appended.head, appended.epoch)
            self._account(record)
            self._queue(appended.seqs[0], record)
            self._inflight = None
        else:
            await self._reload()

    def _account(self, record: Record) -> None:
        """What a change of shape does to the era's totals."""
        if isinstance(record, Cleared):
            self._entries = self._tokens = 0
        elif isinstance(record, Deleted):
            self._entries -= record.entries
            self._tokens -= record.tokens

    async def _write(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a write to its end, cancellation or not."""
        return await (work if self._shared.quick else self._shared.door.to_the_end(work))

    # ------------------------------------------------------------ telling

    def _queue(self, seq: int, record: Record) -> None:
        """Notes the event of a committed record, once, in log order."""
        if seq <= self._told:
            return
        self._told = seq
        if events.LOG_SIGNALS[type(record)].receivers:
            self._outbox.append(events.event_of(self.id, seq, record))

    def notice(self, event: events.Event) -> None:
        """Notes something that is not in the log."""
        if events.SIGNALS[type(event)].receivers:
            self._outbox.append(event)

    async def tell(self, event: events.Event | None = None) -> None:
        """Tells of something that is not in the log, and of what is still to be told."""
        if event is not None:
            self.notice(event)
        await self._drain()

    def _check_counter(self, count: TokenCount) -> None:
        """Tells where the estimator answered for the counter."""
        meter = self._meter
        if count.counter != meter.fingerprint:
            self.notice(
                events.CountFellBack(
                    session_id=self.id, counter=meter.fingerprint, reason=meter.failure
                )
            )

    def heal(self) -> None:
        """Frees what this thread still holds after an interruption."""
        for lock in (self._lock, self._compress_lock, self._drain_lock):
            if lock is not None:
                lock.heal()

    async def _drain(self) -> None:
        """Tells what is noted; one thread or task at a time, so that order is commit order."""
        while self._outbox:
            lock = self._telling()
            if not await lock.try_enter():
                return  # whoever is at it, perhaps this very task further up, goes on with ours
            try:
                while self._outbox:
                    event = self._outbox.pop(0)
                    await events.emit(self._shared.sender, event, self._shared.door.settle)
            finally:
                lock.heal()

    def _telling(self) -> SyncLock:
        with self._thread_lock:
            if self._drain_lock is None:
                self._drain_lock = SyncLock()
            return self._drain_lock

    # ------------------------------------------------------------ adding

    async def add(
        self,
        draft: Draft,
        entry_id: str | None,
        pinned: bool,
        metadata: msgspec.Raw,
        compress: bool | None,
    ) -> Entry:
        """Adds one entry; compresses after the commit where that is due."""
        entry = None
        if entry_id is None and self._shared.quick:
            entry = self._add_here(draft, pinned, metadata)
        if entry is None:
            entry = await self._add_anywhere(draft, entry_id, pinned, metadata)
        if self._outbox:
            await self._drain()
        if self._over() and (self._config.auto_compress if compress is None else compress):
            await self._compress_after_add()
        return entry

    def _add_here(self, draft: Draft, pinned: bool, metadata: msgspec.Raw) -> Entry | None:
        """The way of nearly every add: a store in this process, and nothing to look into first.

        None where there is something, and the way that handles everything must be taken.
        """
        shared = self._shared
        role = draft.role
        if shared.redact is not None or role == "system" or (draft.name is None and role == "tool"):
            return None
        if self._unsure():
            return None
        count = self._meter.count_draft(draft)
        with self._thread_lock:
            window = self._window
            seq = window.head + 1
            if self._unsure():
                return None  # since the look without the lock, another thread was here
            entry = Entry(
                id=shared.new_id(),
                type=draft.type,
                role=role,
                content=draft.content,
                timestamp=shared.clock(),
                token_count=count,
                seq=seq,
                call_id=draft.call_id,
                name=draft.name,
                message_id=draft.message_id,
                is_error=draft.is_error,
                pinned=pinned,
                metadata_json=metadata,
                raw_json=draft.raw_json,
            )
            record = Added(entry)
            self._inflight = (record,)
            appended = shared.store.append(self.id, (record,))
            if not appended.fresh:
                self._inflight = None
                raise _same_id_again(entry.id)
            if appended.head != seq:
                # Somebody else writes to a store that was said to be ours: reload at the next step.
                return msgspec.structs.replace(entry, seq=appended.seqs[0])
            self._take(entry)
            self._told = seq
            if events.entry_added.receivers:
                self._outbox.append(events.EntryAdded(session_id=self.id, entry=entry))
            self._inflight = None
        self._check_counter(count)
        return entry

    async def _add_anywhere(
        self, draft: Draft, entry_id: str | None, pinned: bool, metadata: msgspec.Raw
    ) -> Entry:
        await self._follow_settings()
        entry = self._entry(draft, entry_id, pinned, metadata)
        async with self._lock:
            if self._unsure():
                await self._refresh()
            records = self._added((entry,))
            appended = await self._append(records)
            if appended.fresh:
                return self._as_added(records[0], appended.seqs[0])
            if entry_id is None:
                raise _same_id_again(entry.id)
            return await self._as_added_before(records[0].entry)

    async def add_all(self, drafts: Sequence[Draft], labels: Mapping[str, str]) -> list[Entry]:
        """Adds several entries atomically: all or none. `labels` maps parse labels to message ids."""
        await self._follow_settings()
        entries = [self._entry(_labelled(draft, labels), None, False, NO_JSON) for draft in drafts]
        if not entries:
            return []
        async with self._lock:
            if self._unsure():
                await self._refresh()
            records = self._added(entries)
            if len({record.id for record in records}) < len(records):
                raise _same_id_again(records[0].id)
            appended = await self._append(records)
            if appended.fresh < len(records):
                raise _same_id_again(records[0].id)
            added = [
                self._as_added(record, seq)
                for record, seq in zip(records, appended.seqs, strict=True)
            ]
        if self._outbox:
            await self._drain()
        if self._over() and self._config.auto_compress:
            await self._compress_after_add()
        return added

    async def _follow_settings(self) -> None:
        """Takes in settings of the manager that have changed, before anything is counted."""
        if self._version != self._shared.version:
            async with self._lock:
                await self._refresh()

    def _as_added(self, record: Added, seq: int) -> Entry:
        """The entry with its place in the log."""
        slot = self._window.entries.get(record.entry.id)
        return slot.entry if slot else msgspec.structs.replace(record.entry, seq=seq)

    def _unsure(self) -> bool:
        """Whether the window may not be what the store has, or the settings not the manager's."""
        shared = self._shared
        return (
            self._inflight is not None
            or self._erasing is not None
            or not shared.exclusive
            or self._version != shared.version
            or not self._window.head
        )

    def _entry(
        self, draft: Draft, entry_id: str | None, pinned: bool, metadata: msgspec.Raw
    ) -> Entry:
        """An entry of a draft: identity, time, redaction, count."""
        shared = self._shared
        redact = shared.redact
        count = self._meter.count_draft(draft) if redact is None else TokenCount(0)
        identity = entry_id or shared.new_id()
        entry = entry_of(draft, identity, shared.clock(), count, pinned, metadata)
        if entry_id is None:
            check_id(entry.id, "what new_id returned")
        if not isinstance(entry.timestamp, datetime) or entry.timestamp.tzinfo is None:
            raise InvalidInput(f"clock must return an aware datetime, not {entry.timestamp!r}")
        if redact is not None:
            entry = self.redacted(entry, redact)
        self._check_counter(entry.token_count)
        return entry

    def redacted(self, entry: Entry, redact: Callable[[Entry], Entry]) -> Entry:
        """The entry as `redact` leaves it, counted after. What it hides is never stored."""
        try:
            clean = redact(entry)
        except Exception as error:
            raise InvalidInput(
                f"redact raised {type(error).__name__} for a {entry.type}; nothing was stored"
            ) from error
        if not isinstance(clean, Entry) or (clean.id, clean.type) != (entry.id, entry.type):
            raise InvalidInput("redact must return the entry with its id and type kept")
        try:
            check_draft(clean)
        except InvalidInput as error:
            raise InvalidInput(f"redact returned what cannot be stored: {error}") from error
        # The provider's own copy may hold what is to be hidden, and nobody can look into it for us.
        clean = msgspec.structs.replace(clean, raw_json=NO_JSON)
        return msgspec.structs.replace(clean, token_count=self._meter.count_entry(clean))

    def _added(self, entries: Sequence[Entry]) -> tuple[Added, ...]:
        """The records of new entries: the head's system messages pinned, results named."""
        first = entries[0]
        at_head = first.role == "system" and self._window.only_system()
        records = []
        for entry in entries:
            at_head = at_head and entry.role == "system" and entry.type == "message"
            if at_head:
                entry = msgspec.structs.replace(entry, pinned=True)
            elif entry.name is None and entry.type == "tool_result":
                call = self._window.open_call(entry.call_id, None)
                entry = msgspec.structs.replace(entry, name=call.entry.name if call else None)
            records.append(Added(entry))
        return tuple(records)

    async def _as_added_before(self, entry: Entry) -> Entry:
        """The entry that was added under this id, if it is the same; the retry was a no-op."""
        shared = self._shared
        found = await shared.door.call(shared.store, shared.store.get, self.id, [entry.id])
        for seq, record in found:
            if isinstance(record, Added) and _same(record.entry, entry):
                return msgspec.structs.replace(record.entry, seq=seq)
        raise IdConflict(
            f"the id {entry.id!r} was added before with other content; nothing was changed. "
            "Give each entry its own id, or leave ids to memman"
        )

    # ------------------------------------------------------------ compressing

    @property
    def overhead(self) -> int:
        """Tokens of a request that are in no entry: set, learned from the last build, or reported."""
        known = self._contexts
        learned = known.fixed + int(known.framing * len(self._window.slots)) if known else 0
        # What was learned from one request takes at most the room between the water marks.
        most = self._budget.max_tokens - self._budget.target_tokens
        return max(self._config.overhead_tokens, min(learned + self._unseen, most))

    def _over(self) -> bool:
        window = self._window
        budget = self._budget
        entries = len(window.slots)
        # The first test is enough nearly always: half the trigger leaves room for any overhead.
        return (
            2 * window.tokens > budget.max_tokens
            or (budget.max_entries is not None and entries > budget.max_entries)
            or 2 * self.overhead > budget.max_tokens
        ) and budget.over(window.tokens + self.overhead, entries)

    async def _compress_after_add(self) -> None:
        """An automatic compression: nothing that goes wrong in it reaches the caller of `add`."""
        if self._config.background:
            if not self._queued:
                self._queued = True
                self._shared.door.start(self._compress_quietly)
        else:
            await self._compress_quietly()

    async def _compress_quietly(self) -> None:
        self._queued = False
        try:
            await self.compress(automatic=True)
        except MemmanError as error:
            logger.warning("the automatic compression of session %s failed: %s", self.id, error)
            await self.tell(
                events.CompressionFailedNotice(
                    session_id=self.id, reason=str(error), fallback="nothing was changed"
                )
            )
        except Exception:  # of a store: it comes again at the next verb, to somebody who can act
            logger.exception("the automatic compression of session %s failed", self.id)

    async def compress(
        self,
        *,
        target_tokens: int | None = None,
        focus: str | None = None,
        automatic: bool = False,
    ) -> events.CompressionResult:
        """Brings the window down to low water, one compression at a time per session."""
        running = _compressing.get()
        # Asked for by the summarizer or a receiver of this very compression.
        if self._run in running:
            return self._nothing(_ANOTHER_RUNS)
        lock = self._compression_lock()
        if automatic:
            if not await lock.try_enter():
                return self._nothing(_ANOTHER_RUNS)
        else:
            await lock.__aenter__()
        self._run = object()
        token = _compressing.set(running | {self._run})
        try:
            result = await self._compress_alone(target_tokens, focus, automatic)
        finally:
            self._run = None
            _compressing.reset(token)
            await lock.__aexit__(None, None, None)
        await self._drain()
        return result

    def _compression_lock(self) -> Lock:
        with self._thread_lock:
            if self._compress_lock is None:
                self._compress_lock = self._shared.door.lock()
            return self._compress_lock

    async def _compress_alone(
        self, target_tokens: int | None, focus: str | None, automatic: bool
    ) -> events.CompressionResult:
        for _ in range(1 + _REPLANS):
            async with self._lock:
                await self.require()
                if automatic and not self._over():
                    return self._nothing("within the limits")
                options = self._options(focus, automatic)
                if self._failed and not options.ask and not options.write:
                    return self._nothing(
                        "the summarizer failed lately; on_failure keeps everything"
                    )
                configured = self._shared.summarizer(self._config) is not None
                view, goal = self._view(target_tokens, spare=configured and not options.ask)
            try:
                after, cost = await self._carried_out(view, goal, options)
            except SummaryFailed as error:
                self._failed = True
                if self._config.on_failure == "raise" and not automatic:
                    raise CompressionFailed(f"nothing was changed: {error}") from error
                return self._nothing(f"the summary failed and nothing was changed: {error}")
            if not after.changed:
                return self._nothing(self._why_nothing(view, goal))
            record = Compressed(
                id=self._shared.new_id(),
                at=self._shared.clock(),
                replacements=replacements_of(after),
                reason="manual" if not automatic else self._why_over(view),
                tokens_before=view.tokens,
                tokens_after=after.tokens,
                cost=cost,
            )
            if await self._land(record):
                if not goal.within_limit(after):
                    self.notice(_over_budget(self.id, after.tokens, goal.limit))
                return events.result_of(self.id, record)
        return self._nothing("the window changed shape each time; try again")

    async def _land(self, record: Compressed) -> bool:
        """Commits the replacements if every run is still active, unpinned and contiguous."""
        while True:
            async with self._lock:
                await self._refresh()
                try:
                    slots = compress_slots(self._window.slots, record, self._window.head + 1)
                except Refused:
                    return False
                try:
                    await self._write(self._commit(record, slots))
                except StoreConflict:
                    continue  # another process was faster: the same plan, on what there is now
                return True

    def _view(self, target_tokens: int | None, spare: bool = False) -> tuple[View, Goal]:
        """The window as stages see it, and where to get it: to low water, or with `spare` just below
        the limits, so that a summary is not spent while its summarizer may not be asked again.
        """
        window = self._window
        budget = self._budget
        overhead = self.overhead
        if target_tokens is not None:
            budget = resolve_budget(
                self._config, self._shared.limits(self._config.model), target_tokens=target_tokens
            )
        limit = max(0, budget.max_tokens - overhead)
        goal = Goal(
            # Not below half of low water, for what another request may not have around it.
            tokens=min(limit, max(budget.target_tokens - overhead, budget.target_tokens // 2)),
            entries=budget.target_entries,
            limit=limit,
            budget=budget,
        )
        if spare:
            goal = msgspec.structs.replace(goal, tokens=goal.limit, entries=budget.max_entries)
        return view_of(list(window.slots), list(window.starts), goal), goal

    def _options(self, focus: str | None, automatic: bool) -> SummaryOptions:
        """Whether a summarizer may be asked now: by hand always, else once per room that was filled."""
        configured = self._shared.summarizer(self._config) is not None
        ask = configured and not (automatic and self._asked_recently())
        # With "keep" or "raise" no text of ours takes a summarizer's place while it may not be asked.
        write = ask or not configured or self._config.on_failure == "fallback"
        on_failure = self._config.on_failure
        return SummaryOptions(ask=ask, write=write, on_failure=on_failure, focus=focus)

    def _asked_recently(self) -> bool:
        """Whether less was added since the summarizer was asked than lies between the water marks."""
        if self._asked_at is None:
            return False
        tokens, entries = self._asked_at
        budget = self._budget
        if self._added_tokens - tokens >= _ASK_SHARE * (budget.max_tokens - budget.target_tokens):
            return False
        if budget.max_entries is None or budget.target_entries is None:
            return True
        room = budget.max_entries - budget.target_entries
        return self._added_entries - entries < _ASK_SHARE * room

    async def _carried_out(
        self, view: View, goal: Goal, options: SummaryOptions
    ) -> tuple[View, Cost]:
        """Drives the plan: waits for summaries, tells of problems."""
        plan = make_plan(
            view, goal, self._shared.craft(self._meter), stages_of(self._config.strategy), options
        )
        calls, seconds = 0, 0.0
        answer: Any = None
        while True:
            try:
                wanted = plan.send(answer)
            except StopIteration as end:
                return end.value, Cost(calls, seconds)
            if isinstance(wanted, SummaryProblem):
                self.notice(
                    events.CompressionFailedNotice(
                        session_id=self.id, reason=wanted.reason, fallback=wanted.fallback
                    )
                )
                logger.warning("summary of session %s: %s", self.id, wanted.reason)
                await self._drain()
                answer = None
            elif isinstance(wanted, OriginalsWanted):
                answer = [await self._originals(slot) for slot in wanted.slots]
            else:
                began = self._shared.clock()
                answer = await self._summary(wanted)
                calls += 1
                seconds += (self._shared.clock() - began).total_seconds()

    async def _originals(self, slot: Slot) -> tuple[Entry, ...]:
        """The added entries that a stub or a clipped entry stands for, as the store has them."""
        shared = self._shared
        found: list[Entry] = []
        asked = [slot.entry.id]
        while asked:
            wanted = set(asked)
            records = await shared.door.call(shared.store, shared.store.get, self.id, asked)
            asked = []
            for seq, record in records:
                if isinstance(record, Added):
                    found.append(msgspec.structs.replace(record.entry, seq=seq))
                elif isinstance(record, Compressed):
                    asked += [
                        name
                        for item in record.replacements
                        if item.entry is not None and item.entry.id in wanted
                        for name in item.ids
                    ]
        return tuple(found)

    async def _summary(self, request: SummaryRequest) -> SummaryReply | SummaryFailure:
        """Asks the summarizer, outside every lock and transaction."""
        summarizer = self._shared.summarizer(self._config)
        self._asked_at = (self._added_tokens, self._added_entries)
        self._failed = True  # until there is an answer
        try:
            reply = await self._shared.door.ask(
                lambda: summarizer.summarize(request),
                self._config.summarize_timeout,
                summarizer.is_async,
            )
        except Exception as error:
            logger.debug("summarizer failed", exc_info=True)
            return SummaryFailure(f"{type(error).__name__}: {error}")
        if not isinstance(reply, SummaryReply) or not isinstance(reply.text, str):
            return SummaryFailure(f"the summarizer returned {type(reply).__name__}, not text")
        self._failed = False
        return reply

    async def plan(self, target_tokens: int | None, focus: str | None) -> CompressionPlan:
        """What `compress` would do now. Asks nobody, changes nothing."""
        async with self._lock:
            await self.require()
            view, goal = self._view(target_tokens)
        options = msgspec.structs.replace(self._options(focus, False), dry_run=True)
        after, _ = await self._carried_out(view, goal, options)
        return describe(self.id, view, after, goal, options.ask)

    def _nothing(self, reason: str) -> events.CompressionResult:
        tokens = self._window.tokens
        return events.CompressionResult(
            session_id=self.id,
            compression_id=None,
            tokens_before=tokens,
            tokens_after=tokens,
            reason=reason,
        )

    def _why_nothing(self, view: View, goal: Goal) -> str:
        if goal.met(view):
            return f"already at low water ({view.tokens} of {goal.tokens} tokens)"
        if not goal.within_limit(view):
            self.notice(_over_budget(self.id, view.tokens, goal.limit))
        return "nothing may go: all that is left is pinned, recent, or too little to be worth it"

    def _why_over(self, view: View) -> str:
        tokens = view.tokens + self.overhead
        if tokens > self._budget.max_tokens:
            return f"{tokens} tokens are over {self._budget.max_tokens}"
        return f"{view.entries} entries are over {self._budget.max_entries}"

    # ------------------------------------------------------------ changing shape by hand

    async def undo(self, compression_id: str | None) -> str:
        """Takes a compression back, the latest by default."""

        def change(history: History) -> tuple[Record, Sequence[Slot]]:
            wanted = compression_id or history.latest()
            record = Undone(
                id=self._shared.new_id(), at=self._shared.clock(), compression_id=wanted
            )
            return record, history.undo(wanted)

        record = await self._change_with_history(change)
        assert isinstance(record, Undone)  # noqa: S101 - `change` made it
        return record.compression_id

    async def pin(self, entry_id: str, on: bool) -> None:
        """Pins or unpins an active entry."""
        async with self._lock:
            await self.require()
            slot = self._window.entries.get(entry_id)
            if slot is not None and slot.pinned == on:
                return
        record = Pinned(id=self._shared.new_id(), at=self._shared.clock(), entry_id=entry_id, on=on)
        await self._change(lambda: (record, pin_slots(list(self._window.slots), entry_id, on)))

    async def delete_all(self) -> None:
        """Removes the session with its log; a compression under way will find nothing to replace."""
        async with self._lock:
            self._inflight = ()
            await self._write(self._deleted())
        await self.tell(events.SessionDeleted(session_id=self.id))

    async def _deleted(self) -> None:
        shared = self._shared
        if not await shared.door.call(shared.store, shared.store.delete, self.id):
            raise no_session(self.id)
        self._forget()

    async def clear(self) -> None:
        """Empties the window and begins a new era."""
        record = Cleared(id=self._shared.new_id(), at=self._shared.clock())
        await self._change(lambda: (record, []))

    async def delete(self, ids: Sequence[str]) -> None:
        """Removes entries for good, with everything that was made of them."""
        shared = self._shared
        wanted = tuple(dict.fromkeys(ids))

        def change(history: History) -> tuple[Record, Sequence[Slot]]:
            self._erasing = frozenset(ids)  # due from the commit on, whatever comes between
            slots, entries, tokens = history.without(wanted)
            record = Deleted(
                id=shared.new_id(), at=shared.clock(), ids=wanted, entries=entries, tokens=tokens
            )
            return record, slots

        async with self._lock:
            await self.require()
            log = [record for _, record in await self._log(0)]
        added = {record.id for record in log if isinstance(record, Added)}
        for name in wanted:
            if name not in added:
                raise EntryNotFound(
                    f"no entry {name!r} to delete in session {self.id!r} "
                    "(a replacement is taken back with undo_compression)"
                )
        gone = {name for record in log if isinstance(record, Deleted) for name in record.ids}
        wanted = tuple(name for name in wanted if name not in gone)
        if wanted:
            await self._change_with_history(change)
        async with self._lock:
            self._erasing = frozenset(ids)
            await self._write(self._erase())

    async def _erase(self) -> None:
        """Overwrites what deletions left to be erased. Under the lock.

        From the log as it is now: a compression may have landed before the deletion did. What an
        interrupted deletion left is erased at the next verb; erasing again is harmless.
        """
        shared = self._shared
        log = [record for _, record in await self._log(0)]
        gone = {name for record in log if isinstance(record, Deleted) for name in record.ids}
        tainted = tainted_by(log, (self._erasing or frozenset()) & gone)
        if tainted:
            await shared.door.call(shared.store, shared.store.erase, self.id, tainted)
        self._erasing = None

    async def _change_with_history(
        self, change: Callable[[History], tuple[Record, Sequence[Slot]]]
    ) -> Record:
        async def changed() -> tuple[Record, Sequence[Slot]]:
            record, slots = change(await self._history())
            for slot in slots:
                slot.tokens = self._meter.recount(slot.entry)
            return record, slots

        return await self._retried(changed)

    async def _change(self, change: Callable[[], tuple[Record, Sequence[Slot]]]) -> Record:
        async def changed() -> tuple[Record, Sequence[Slot]]:
            return change()

        return await self._retried(changed)

    async def _retried(
        self, change: Callable[[], Coroutine[Any, Any, tuple[Record, Sequence[Slot]]]]
    ) -> Record:
        """Commits a change of shape; when another process was faster, decides again on what is there."""
        for attempt in range(1 + _REPLANS):
            async with self._lock:
                await self.require()
                record, slots = await change()
                try:
                    await self._write(self._commit(record, slots))
                    break
                except StoreConflict:
                    if attempt == _REPLANS:
                        raise
        await self._drain()
        return record

    # ------------------------------------------------------------ reading

    async def _log(self, after: int) -> list[tuple[int, Record]]:
        """The records after a seq, all of them."""
        shared = self._shared
        records: list[tuple[int, Record]] = []
        while True:
            page = await shared.door.call(shared.store, shared.store.read, self.id, after, _PAGE)
            records += page
            if len(page) < _PAGE:
                return records
            after = page[-1][0]

    async def _history(self) -> History:
        """The fold of the current era."""
        shared = self._shared
        snapshot = await shared.door.call(shared.store, shared.store.load, self.id)
        return History.of(await self._log(snapshot.ledger.era if snapshot else 0))

    async def active_entries(self) -> list[Entry]:
        """The window in order."""
        async with self._lock:
            await self.require()
            return [_shown(slot) for slot in self._window.slots]

    async def entries(self) -> list[Entry]:
        """Every added entry of the era."""
        async with self._lock:
            await self.require()
            return (await self._history()).entries()

    async def entry(self, entry_id: str) -> Entry:
        """One entry, active or not, of this era or an earlier one; a replacement too."""
        async with self._lock:
            await self.require()
            slot = self._window.entries.get(entry_id)
            if slot is not None:
                return _shown(slot)
            history = await self._history()
            for entry in history.entries():
                if entry.id == entry_id:
                    return entry
            for entry in history.replaced_entries():
                if entry.id == entry_id:
                    return entry
            found: Entry | None = None
            for seq, record in await self._log(0):  # of an earlier era, or deleted
                if isinstance(record, Added) and record.id == entry_id:
                    found = msgspec.structs.replace(record.entry, seq=seq)
                elif isinstance(record, Deleted) and entry_id in record.ids:
                    found = None
            if found is not None:
                return found
        raise EntryNotFound(f"no entry {entry_id!r} in session {self.id!r}")

    async def summaries(self) -> list[Summary]:
        """The summaries in force, in order."""
        async with self._lock:
            await self.require()
            made = [slot for slot in self._window.slots if slot.entry.type == "summary"]
            if not made:
                return []
            history = await self._history()
            return [summary_of(slot, history.originals(slot.entry.id)) for slot in made]

    async def stats(self) -> SessionStats:
        """Where the session stands; costs the window, not the history."""
        async with self._lock:
            await self.require()
            window = self._window
            active = sum(slot.compression is None for slot in window.slots)
            usage = self._usage
            return SessionStats(
                session_id=self.id,
                total_entries=self._entries,
                active_entries=active,
                compressed_entries=self._entries - active,
                summaries=sum(slot.entry.type == "summary" for slot in window.slots),
                total_tokens=self._tokens,
                active_tokens=window.tokens,
                max_tokens=self._budget.max_tokens,
                max_entries=self._budget.max_entries,
                overhead_tokens=self.overhead,
                counter=self._meter.fingerprint,
                last_counted_at=self._last_counted,
                drift=round(usage.input_tokens / usage.estimated - 1, 4)
                if usage and usage.estimated
                else None,
            )

    async def export(self) -> SessionState:
        """The session as a document."""
        async with self._lock:
            await self.require()
            return state_of(self.id, await self._log(0), self._settings)

    async def record_usage(self, usage: UsageReported) -> None:
        """Keeps what a provider reported and learns from it what memman never sees."""
        async with self._lock:
            await self.require()
            last = self._contexts.last if self._contexts else None
            estimated = last.tokens.tokens if last else self._window.tokens
            record = msgspec.structs.replace(usage, estimated=estimated)
            await self._append((record,))
            self._usage = record
            # A trimmed or a text context is not what the report is about.
            if last is not None and not last.trimmed and last.format != "text":
                self._unseen = max(0, record.input_tokens - estimated)
        await self._drain()

    # ------------------------------------------------------------ building contexts

    async def build(self, asked: Asked) -> Context:
        """A context of the window as it is; trims a copy where it does not fit."""
        if self._shared.quick:
            with self._thread_lock:
                if not self._unsure():
                    return self._built(asked)
        async with self._lock:
            if self._unsure():
                await self._refresh()
            if not self._window.head:
                await self.require()
            return self._built(asked)

    def _built(self, asked: Asked) -> Context:
        contexts = self._contexts
        if contexts is None:
            contexts = self._contexts = Contexts(self._shared)
        return contexts.build(asked, self._window, self._settled)


# ---------------------------------------------------------------- small pure helpers


def _own_place(slot: Slot) -> Place:
    """The place of a slot that the record being committed brings (0: the first of the commit)."""
    return Place(0, slot.index, slot.position, slot.pinned)


def no_session(session_id: str) -> SessionNotFound:
    """The error for a session that nothing was ever recorded in."""
    return SessionNotFound(
        f"there is no session {session_id!r}; an add_* verb or import_session creates one"
    )


def _same_id_again(entry_id: str) -> IdConflict:
    return IdConflict(f"new_id gave {entry_id!r} twice; ids must be unique. Nothing was changed")


def _labelled(draft: Draft, labels: Mapping[str, str]) -> Draft:
    """A parsed draft with a real message id in place of its label."""
    if draft.message_id is None:
        return draft
    return msgspec.structs.replace(draft, message_id=labels[draft.message_id])


def _shown(slot: Slot) -> Entry:
    """A slot's entry with its pin and its count as they are now."""
    entry = slot.entry
    if entry.pinned == slot.pinned:
        return entry
    return msgspec.structs.replace(entry, pinned=slot.pinned)


def _same(stored: Entry, given: Entry) -> bool:
    """Whether two entries say the same, whenever and however they were counted."""
    if stored.name != given.name and given.name is not None:
        return False  # a result's name may have been filled in from its call
    return stored.metadata == given.metadata and all(
        getattr(stored, name) == getattr(given, name)
        for name in ("type", "role", "content", "call_id", "message_id", "is_error")
    )


def _over_budget(session_id: str, tokens: int, limit: int) -> events.OverBudget:
    return events.OverBudget(
        session_id=session_id,
        tokens=tokens,
        max_tokens=limit,
        reason="what is left is pinned or the newest exchange",
    )


def _plain_settings(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON takes them; a strategy made of functions belongs to the manager."""
    strategy = changes.get("strategy")
    if strategy is not None and not isinstance(strategy, str):
        raise InvalidInput(
            "a session's strategy must be a preset's name: it is stored with the session. "
            "Give functions to the manager's config instead"
        )
    if any(value is msgspec.UNSET for value in changes.values()):
        raise InvalidInput(
            "a session's setting cannot be UNSET: give it a value, or None where it may be"
        )
    return dict(changes)
