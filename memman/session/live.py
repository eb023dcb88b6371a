"""One live session: its window kept in step with the store, and what is written.

Data flows down once (record, store) and up once (window, event), under the session's lock; telling
(`memman.session.outbox`) comes after, outside of it.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from memman import events
from memman.config import MANAGER_SETTINGS
from memman.counting import model_key, predicted
from memman.display import did_you_mean
from memman.entries import Entry, TokenCount, json_bytes
from memman.errors import InvalidInput, MemmanError, SessionNotFound, StoreConflict, StoreError
from memman.log import LogState, Unfolding, own_count, places_for_commit
from memman.protocols import Appended
from memman.records import (
    NO_COST,
    Cleared,
    Compressed,
    Configured,
    Deleted,
    Learned,
    Opened,
    Record,
    SessionTotals,
    UsageReported,
    tainted_by,
)
from memman.runtime import Lock, SyncLock
from memman.session.backoff import Backoff, Progress
from memman.session.context import ContextBuilder
from memman.session.outbox import Telling
from memman.session.shared import Shared
from memman.window import Price, Window

logger = logging.getLogger("memman")
T = TypeVar("T")

_PAGE = 1_000
_ENTRY_BYTES = 1_000  # an entry's objects beside its text, in its window's slot and exchange
_NO_ANCHORS: dict[str, CalibrationPoint] = {}
_STORED_AS_TEXT = {"strategy": "a preset's name", "summary_prompt": "a template"}


class ProviderCount(msgspec.Struct, frozen=True):
    """A provider's count of a request that was built at this place in the log."""

    model: str | None
    head: int
    epoch: int
    beside: tuple[str | None, bytes | None]  # the system prompt and the tools that it was about
    count: TokenCount
    learned: Learned


class CalibrationPoint(msgspec.Struct, frozen=True, gc=False):
    """A model's last report: the window that it was about, what was reported, and our own count."""

    epoch: int
    reported: int
    counted: int


class LiveWindow(Telling):
    """A session in this process: its window, its settings, and what is still to be told."""

    __slots__ = (
        "__weakref__",
        "_anchors",
        "_budget",
        "_compress_lock",
        "_config",
        "_confirmed",
        "_contexts",
        "_fell_back",
        "_inflight",
        "_lock",
        "_meter",
        "_owed",
        "_pace",
        "_past_entries",
        "_past_tokens",
        "_preparing",
        "_run",
        "_settled",
        "_spent",
        "_state",
        "_trigger",
        "_version",
        "used",
    )  # fmt: skip

    def __init__(self, session_id: str, shared: Shared) -> None:
        # Where an append never suspends, one thread lock serves both doors.
        own = SyncLock()
        super().__init__(session_id, shared, own.thread)
        self._lock: Lock = own if shared.direct else shared.runtime.lock()
        self.used = 0.0  # when; in the measure of whoever keeps the live sessions
        # Made when first needed: most sessions are never compressed and have nobody to tell.
        self._compress_lock: Lock | None = None
        self._state = LogState()
        # Records handed to the store whose effect on the window is not sure. () asks for a reload, as where
        # nothing was ever recorded.
        self._inflight: tuple[Record, ...] | None = ()
        self._version = -1
        # On no record yet: what the compression under way, or the last one, took, and what those took
        # that came to nothing. The next that lands has it all.
        self._spent = self._owed = NO_COST
        self._past_entries = self._past_tokens = 0  # given before what the totals count
        self._anchors = _NO_ANCHORS
        self._confirmed: ProviderCount | None = None
        self._run: object | None = None
        self._preparing = False  # a compression in the background
        self._fell_back = ""  # the kind of failure of a remote count that was told last
        self._pace: Backoff | None = None
        self._contexts: ContextBuilder | None = None
        self._configure()

    @property
    def _window(self) -> Window:
        return self._state.window

    @property
    def _totals(self) -> SessionTotals:
        return self._state.totals

    @property
    def _learned(self) -> dict[str, Learned]:
        """What the reports have taught of each model, by its key."""
        return {model_key(model): each for model, each in self._totals.learned.items()}

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nothing is still to be told, so that it may be unloaded."""
        busy = self._outbox or self._inflight or self._preparing or self._run
        locks = (self._lock, self._compress_lock, self._drain_lock)
        return not busy and all(lock is None or lock.is_free() for lock in locks)

    @property
    def held_bytes(self) -> int:
        """About how much memory the window takes: four bytes a token, and the objects around it."""
        return 4 * self._window.tokens + _ENTRY_BYTES * len(self._window.items)

    # ------------------------------------------------------------ settings

    def _configure(self) -> None:
        """Takes in the manager's and the session's settings."""
        shared = self._shared
        version = shared.version  # before them: another thread may change them meanwhile
        try:
            settled = shared.settled(self._totals.settings, self._totals.untrusted)
        except MemmanError as error:
            # The session's own settings do not go with the manager's: reading must not fail on that.
            logger.warning("settings of session %s are left aside: %s", self.id, error)
            settled = shared.settled({}, frozenset())
        self._version = version
        self._settled = settled
        self._config, self._budget, self._meter = settled.config, settled.budget, settled.counter
        self._trigger = settled.trigger
        if self._contexts is not None:
            self._contexts.outdate()

    @property
    def settings(self) -> Mapping[str, Any]:
        """What this session has settled for itself."""
        return self._totals.settings

    async def configure(self, changes: Mapping[str, Any]) -> None:
        """Changes settings of this session alone; they persist with it."""
        plain = _plain_settings(changes)
        shared = self._shared
        if not shared.trust_settings:
            raise InvalidInput(
                "this manager ignores settings of its sessions (trust_settings=False): give it to the "
                "manager's config, or to update_config without a session_id"
            )
        async with self._lock:
            await self._refresh()
            # Together, so that what is set may repair what was stored.
            totals = self._totals
            together = {**shared.effective(totals.settings, totals.untrusted), **plain}
            shared.check_change(self._config, shared.config.updated(together))
            as_stored = msgspec.json.decode(json_bytes(plain, "what is set"))
            record = Configured(id=shared.new_id(), at=shared.clock(), changes=as_stored)
            await self._append((record,))
        await self._drain()

    async def _follow_settings(self) -> None:
        """Takes in settings of the manager that have changed, before anything is counted."""
        if self._version != self._shared.version:
            async with self._lock:
                await self._refresh()

    @property
    def overhead(self) -> int:
        """Tokens of a request that are in no entry: set, known from the last build, or reported.

        What the last build measured counts in full, what was reported beyond it up to `room`.
        """
        window, least = self._window, self._config.overhead_tokens
        around = sum(self._contexts_of().around(window, self._meter))
        if not (self._learned or self._confirmed):
            return max(least, around)
        unseen = max(0, least - around)
        beyond = self._beyond(window.tokens + around, unseen, None)
        return max(around + min(beyond, max(unseen, self._settled.room)), -window.tokens)

    def _contexts_of(self) -> ContextBuilder:
        if self._contexts is None:
            self._contexts = ContextBuilder(self._shared, self._totals.nonce)
        return self._contexts

    def _beyond(self, counted: int, unseen: int, model: str | None) -> int:
        """What the provider of a model, None for the session's, will count beyond a request that we count
        as this.

        `unseen` is what is set aside for what memman never sees. Reports have that in them; a count of
        the very request has not, and may also be below our own figure.
        """
        epoch = self._window.epoch
        asked = self._config.model if model is None else model
        key = model_key(asked)
        known = self._learned.get(key)
        if known is not None:
            anchor = self._anchors.get(key)
            anchored = anchor is not None and anchor.epoch == epoch
            reported = predicted(known, counted, anchored=anchored)
            return max(unseen, min(reported - counted, self._settled.room))
        told = self._confirmed
        if told is None or told.epoch != epoch or told.model != asked:
            return unseen
        return unseen + predicted(told.learned, counted, anchored=True) - counted

    # ------------------------------------------------------------ staying in step with the store

    def _unsure(self) -> bool:
        """Whether the window may not be what the store has, or the settings not the manager's."""
        return not self._shared.exclusive or self._stale()

    def _stale(self) -> bool:
        """Whether there is something to be done before the window can be worked with, whoever writes."""
        return self._inflight is not None or self._version != self._shared.version

    async def _refresh(self) -> None:
        """Makes the window what the store has. Called under the lock, before everything else."""
        shared = self._shared
        if self._version != shared.version:
            self._configure()
            self._recount()
        if self._inflight is not None:
            await self._reload()
        elif not shared.exclusive:
            head, epoch = await self._stored() or (0, 0)
            if (head, epoch) != (self._window.head, self._window.epoch):
                await self._follow(epoch)

    async def _stored(self) -> tuple[int, int] | None:
        """(head, epoch) of the session in the store; None where there is none."""
        shared = self._shared
        return await shared.store.state(self.id)

    async def _follow(self, epoch: int, before: int | None = None) -> None:
        """Takes in what came into the log, which is at `epoch`: its tail alone where that will do.

        Behind `before` stand the records that were handed over just now.
        """
        if not await self._caught_up(epoch, before):
            await self._reload(before)

    async def _caught_up(self, epoch: int, before: int | None) -> bool:
        """Whether what is new in the log could be put behind the window as it is.

        Not where the window has changed its shape since, nor where the session was begun anew: none of
        that was, if the epoch is the same after the tail was read, for no epoch comes twice.
        """
        window = self._window
        if not window.head or epoch != window.epoch:
            return False
        tail = await self._log(window.head)
        _, epoch = await self._stored() or (0, -1)
        if epoch != window.epoch:
            return False
        own = {record.id for record in self._inflight or ()}
        self._inflight = self._inflight or ()  # until all of it is in the window
        for seq, record in tail:
            if record.id in own and seq > (before or 0):
                self._queue(seq, record)
            self._apply(seq, record, self._price)
        self._inflight = None
        return True

    def _apply(self, seq: int, record: Record, price: Price = own_count) -> None:
        """Takes the next record of the log, which leaves the window's shape as it was, whoever wrote it."""
        self._state.apply(seq, record, price)
        match record:
            case Opened():
                self._contexts = None  # they have another nonce
            case Configured():
                self._configure()
                self._recount()
            case UsageReported() if record.learned is not None:
                anchor = CalibrationPoint(self._window.epoch, record.input_tokens, record.counted)
                self._anchors = {**self._anchors, model_key(record.model): anchor}
        self._told = seq

    def _price(self, entry: Entry) -> int:
        """What an entry costs by the counter in use, whichever counted it first."""
        count = entry.token_count
        known = count.counter in (self._meter.fingerprint, "")
        return count.tokens if known else self._meter.recount(entry)

    async def _reload(self, before: int | None = None) -> None:
        """Loads the window. What was handed over to the store is told where it stands behind `before`; by
        default, where nobody knows what became of it, behind the window as it was.
        """
        shared = self._shared
        inflight, self._inflight = self._inflight, self._inflight or ()
        seen = self._told if before is None else before
        snapshot = await shared.store.load(self.id)
        if snapshot is None:
            self._forget()
            return
        before_totals = self._totals
        self._become(LogState.from_snapshot(snapshot))
        if self._contexts is not None:
            self._contexts.forget()
        totals = self._totals
        if totals.nonce != before_totals.nonce:
            self._contexts = None
        if (totals.settings, totals.untrusted) != (
            before_totals.settings,
            before_totals.untrusted,
        ):
            self._configure()
        self._recount()
        if inflight:
            ids = [record.id for record in inflight]
            for seq, record in await self._get(ids):
                self._paid(record)
                if seq > seen:  # what was there before is a retry, told in its time
                    self._queue(seq, record)
        self._told = snapshot.head  # nothing of what others wrote, nor of a log that was begun anew
        self._inflight = None

    def _forget(self) -> None:
        """Becomes the session that nothing was ever recorded in."""
        configured = bool(self._totals.settings)
        self._become(LogState())
        self._contexts = self._pace = None
        self._told = 0
        self._spent = self._owed = NO_COST
        self._anchors, self._confirmed = _NO_ANCHORS, None
        if configured:
            self._configure()
        self._inflight = ()  # another manager of the store may begin it

    def _recount(self) -> None:
        """Prices the window with the counter in use, in this process only: records keep their count."""
        fingerprint = self._meter.fingerprint
        window = self._window
        if all(item.entry.token_count.counter in (fingerprint, "") for item in window.items):
            return
        if self._contexts is not None:
            self._contexts.forget()
        self._state = self._state.priced(self._meter.recount)

    async def require(self) -> None:
        """Raises `SessionNotFound` unless something was ever recorded. Under the lock, refreshed."""
        await self._refresh()
        if not self._window.head:
            raise no_session(self.id)

    async def _log(self, after: int) -> list[tuple[int, Record]]:
        """The records after a seq, all of them."""
        shared = self._shared
        records: list[tuple[int, Record]] = []
        while True:
            page = await shared.store.read(self.id, after, _PAGE)
            records += page
            if len(page) < _PAGE:
                return records
            after = page[-1][0]

    async def _get(self, names: Sequence[str]) -> Sequence[tuple[int, Record]]:
        """The records that the store has under these names, in log order."""
        shared = self._shared
        return await shared.store.get(self.id, names)

    # ------------------------------------------------------------ writing

    async def _append(self, records: tuple[Record, ...], named: bool = False) -> Appended:
        """Appends records that do not change the window's shape. Under the lock, refreshed.

        With `named` their ids are the caller's, and may have been there before; our own are not.
        """
        if self._totals.nonce:
            return await self._appended(records, named)
        try:
            appended = await self._appended(
                (self._opening(records[0]), *records), named, expect_head=self._window.head
            )
        except StoreConflict:  # another manager opened it, or an attempt whose answer was lost
            await self._refresh()
            return await self._append(records, named)
        return msgspec.structs.replace(
            appended, seqs=appended.seqs[1:], fresh=max(0, appended.fresh - 1)
        )

    def _opening(self, first: Record) -> Opened:
        """Return the record that opens the session, for the append of its first other record."""
        shared = self._shared
        return Opened(
            id=shared.new_id(),
            at=first.at,
            nonce=shared.new_nonce(),
            settings=self._settled.observed,
        )

    async def _appended(
        self, records: tuple[Record, ...], named: bool, expect_head: int | None = None
    ) -> Appended:
        self._inflight = records
        return await self._write(self._append_slowly(records, named, expect_head))

    async def _append_slowly(
        self, records: tuple[Record, ...], named: bool, expect_head: int | None
    ) -> Appended:
        shared = self._shared
        appended = await shared.store.append(self.id, records, expect_head=expect_head)
        return await self._appended_as(records, named, appended)

    async def _appended_as(
        self, records: tuple[Record, ...], named: bool, appended: Appended
    ) -> Appended:
        """Takes appended records into the window and notes their events."""
        if not self._taken(records, appended):
            # Another writer came between, or some of it was there already: named by the caller it was told
            # in its time, else it was written a moment ago by an attempt whose answer was lost.
            fresh_after = appended.head - appended.fresh
            self._told = min(self._told, fresh_after)  # more, where the log was begun anew
            before = fresh_after if named else min(appended.seqs) - 1
            await self._follow(appended.epoch, before)
        return appended

    def _taken(self, records: tuple[Record, ...], appended: Appended) -> bool:
        """Whether the records are the log's next, and so could be taken into the window as they are."""
        window = self._window
        seq = window.head
        if appended.fresh != len(records) or appended.head != seq + len(records):
            return False
        if not seq:
            window.advance(0, appended.epoch)
        elif window.epoch != appended.epoch:
            return False  # as long as the one we know, and another
        for record in records:
            seq += 1
            if events.LOG_SIGNALS[type(record)].receivers:
                self._queue(seq, record)
            self._apply(seq, record)  # its entry was counted just now
        self._inflight = None
        return True

    def _after(self, record: Record, unfoldings: Iterable[Unfolding] = ()) -> LogState:
        """The state with one more record, apart from the session's own.

        Raises `Refused` or `EntryNotFound` for a record that cannot follow.
        """
        state = self._state.copy()
        state.apply(self._window.head + 1, record, self._meter.recount, unfoldings)
        return state

    async def _commit(self, record: Record, state: LogState) -> None:
        """Commits a change of shape and what it makes of the session's state.

        Under the lock, refreshed. Raises `StoreConflict`.
        """
        shared = self._shared
        head, epoch = self._window.head, self._window.epoch
        window, store = places_for_commit(state.window, record), shared.store
        if isinstance(record, Deleted):
            # With the deletion, or a process that dies between the two would leave what was deleted.
            doomed = await self._doomed(record)
            self._inflight = (record,)
            appended = await store.erase(self.id, epoch, record, window, head, doomed)
        else:
            self._inflight = (record,)
            # A clear covers all that is in the log before it, so nothing may come between.
            expected = head if isinstance(record, Cleared) else None
            appended = await store.commit(
                self.id, epoch, (record,), window, head, expect_head=expected
            )
        if appended.head == head + 1:
            self._queue(appended.head, record)
            state.window.advance(appended.head, appended.epoch)
            self._become(state)
            self._paid(record)
            self._told = appended.head
            self._inflight = None
        else:
            await self._reload()

    def _become(self, state: LogState) -> None:
        """Takes another state; how much the session was given so far stays what it was."""
        progress = self._progress
        self._state = state
        self._go_on(progress)

    @property
    def _progress(self) -> Progress:
        """How much the session was given in this process: it only grows."""
        totals = self._totals
        return totals.tokens + self._past_tokens, totals.entries + self._past_entries

    def _go_on(self, progress: Progress) -> None:
        """Goes on counting from there."""
        tokens, entries = progress
        self._past_tokens = tokens - self._totals.tokens
        self._past_entries = entries - self._totals.entries

    def _paid(self, record: Record) -> None:
        """Lets go of what earlier attempts cost and said, where that is on record or over."""
        if isinstance(record, Compressed | Cleared):
            self._spent = self._owed = NO_COST
        if self._pace is not None and isinstance(record, Compressed | Cleared | Deleted):
            self._pace.parts.clear()  # they were used, or tell of what is gone

    async def _write(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a write to its end, cancellation or not."""
        return await (work if self._shared.quick else self._shared.runtime.to_the_end(work))

    async def _doomed(self, record: Deleted) -> frozenset[str]:
        """What a deletion erases, by the log as it is now."""
        return tainted_by([each for _, each in await self._log(0)], frozenset(record.ids))

    # ------------------------------------------------------------ around it

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
        self._preparing = False  # at worst a second one is started, and steps back

    async def settle(self) -> None:
        """Wait for a write under way, and emit the events of everything that was committed."""
        if self._run is not None:
            async with self._lock:
                pass
        try:
            await self.catch_up()
        except StoreError as error:
            logger.warning(
                "events of session %s may be missing, the store does not answer: %s", self.id, error
            )

    async def catch_up(self) -> None:
        """Emit what was committed by a call that failed or was interrupted after the commit."""
        if self._inflight:
            async with self._lock:
                await self._refresh()
        await self._drain()


def no_session(session_id: str, known: Iterable[str] = ()) -> SessionNotFound:
    """The error for a session that nothing was ever recorded in; `known` are ids to suggest."""
    hint = did_you_mean(session_id, known) or ";"
    return SessionNotFound(
        f"there is no session {session_id!r}{hint} an add_* verb or import_session creates one"
    )


def _plain_settings(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON takes them; a strategy made of functions belongs to the manager."""
    for name, what in _STORED_AS_TEXT.items():
        if not isinstance(changes.get(name), str | None):
            raise InvalidInput(
                f"a session's {name} must be {what}: it is stored with the session. "
                "Give functions to the manager's config instead"
            )
    if of_manager := changes.keys() & MANAGER_SETTINGS:
        raise InvalidInput(
            f"{min(of_manager)} is a setting of the manager, not of a session: give it to the "
            "manager's config, or to update_config without a session_id"
        )
    if any(value is msgspec.UNSET for value in changes.values()):
        raise InvalidInput(
            "a session's setting cannot be UNSET: give it a value, or None where it may be"
        )
    return dict(changes)
