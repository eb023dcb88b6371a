"""One session's log: its window and totals in this process, kept equal to the store's."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from itertools import takewhile

import msgspec

from memman import events
from memman.display import did_you_mean
from memman.errors import IdConflict, MemmanError, SessionNotFound, StoreConflict
from memman.log import LogState, Unfolding, places_for_commit
from memman.protocols import Appended
from memman.records import (
    NO_COST,
    Cleared,
    Compressed,
    Configured,
    Cost,
    Deleted,
    Opened,
    Record,
    SessionTotals,
    UsageReported,
    ids_retracted_by,
    tainted_by,
)
from memman.runtime.base import Lock
from memman.session.backoff import Progress
from memman.session.calibration import Calibration
from memman.session.outbox import Outbox
from memman.session.reader import LogReader
from memman.session.shared import ResolvedConfig, Shared
from memman.window import Price, Window, own_count

logger = logging.getLogger("memman")

_STEPS = 8  # of one turn, after which a session follows another model within it
RETRIES = 50  # of a change, after another process was faster; a try costs little


class SessionLog:
    """The window, the totals and the settings of a session, and the only place that writes its log.

    `lock` guards all of it; methods marked "under the lock" need it. Before a record is handed
    to the store the log is marked stale, and in step again once the record is folded. Whatever happens
    in between, the next `refresh` reloads.
    """

    __slots__ = (
        "_earlier", "_inflight", "_models", "_outbox", "_shared", "_state", "_version", "calibration",
        "generation", "id", "lock", "reader", "resolved", "unrecorded",
    )  # fmt: skip

    def __init__(self, session_id: str, shared: Shared, outbox: Outbox) -> None:
        self.id = session_id
        self._shared = shared
        self._outbox = outbox
        self.lock: Lock = shared.runtime.lock()
        self.reader = LogReader(session_id, shared)
        self.calibration = Calibration()
        self.generation = 0  # grows when the window is loaded or priced again
        self._state = LogState()
        self.unrecorded: Cost = NO_COST  # of summarizer calls that are on no record yet
        # Records handed to the store and not folded yet; None while the window equals the store's.
        self._inflight: tuple[Record, ...] | None = ()
        self._earlier: Progress = (0, 0)  # given in this process, and not in the totals
        self._version = shared.version
        # Another model that is asked now, and the one in effect, None for that of the settings.
        self._models: tuple[_Asked | None, str | None] = None, None
        self.resolved = self._resolve()

    # ------------------------------------------------------------ state

    @property
    def window(self) -> Window:
        """The active entries."""
        return self._state.window

    @property
    def totals(self) -> SessionTotals:
        """The session's totals, settings and reports."""
        return self._state.totals

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written or still to be written."""
        return not self._inflight and self.lock.is_free()

    @property
    def progress(self) -> Progress:
        """The tokens and entries that were added in this process; it only grows."""
        tokens, entries = self._earlier
        return self.totals.tokens + tokens, self.totals.entries + entries

    @property
    def is_stale(self) -> bool:
        """Whether `refresh` has something to do even if no other process writes."""
        return self._inflight is not None or self._version != self._shared.version

    def owe(self, cost: Cost) -> None:
        """Add the cost of a summarizer call; the next compression that is recorded includes it."""
        self.unrecorded = self.unrecorded.plus(cost)

    def resume(self, progress: Progress) -> None:
        """Continue counting from the progress of an evicted session."""
        self._earlier = progress[0] - self.totals.tokens, progress[1] - self.totals.entries

    def _replace(self, state: LogState) -> None:
        """Take another state, with the same progress."""
        progress = self.progress
        self._state = state
        self.resume(progress)

    # ------------------------------------------------------------ settings

    def _resolve(self) -> ResolvedConfig:
        """Return the manager's settings with the session's own, as they are now."""
        shared, model = self._shared, self._models[-1]
        try:
            return shared.resolved(self.totals.settings, self.totals.untrusted, model)
        except MemmanError as error:
            # Settings of the session that contradict the manager's must not make reading fail.
            logger.warning("settings of session %s are ignored: %s", self.id, error)
            return shared.resolved({}, frozenset(), model)

    def _reconfigure(self) -> None:
        """Take the settings as they are now, and price the window by the counter in use.

        It is priced in this process only: records keep their count.
        """
        before, self.resolved = self.resolved.counter, self._resolve()
        counter = self.resolved.counter
        known = (counter.fingerprint, "")
        other = before.fingerprint != counter.fingerprint  # the window is priced by that one
        counters = (item.entry.token_count.counter for item in self.window.stored_items)
        if other or any(name not in known for name in counters):
            self._state = self._state.priced(counter.recount)
            self.generation += 1

    def follow_model(self, model: str | None) -> str | None:
        """Take the budget and the counter of the model that requests are made to. Under the lock.

        That is the model of the first request if the settings name none, and else one that is asked in two
        turns in a row, or often in one: a model that is asked now and then leaves the window to the others.

        Return the model of a request that names `model`; None for that of the settings in effect.
        Raises `ConfigError` if the settings contradict the model's limits; nothing was changed.
        """
        shared, (asked, used) = self._shared, self._models
        settings, untrusted = self.totals.settings, self.totals.untrusted
        own = self.resolved.config.model
        if used is not None:
            own = shared.effective(settings, untrusted).get("model", shared.config.model)
        wanted = model or own
        if wanted is None:
            return None  # the request may be to any model
        other = None if wanted == own else wanted
        if other == used:
            self._models = None, used
            return None
        asked = _Asked(other, self.window) if asked is None or asked.model != other else asked
        self._models = asked, used
        if asked.is_settled(self.window) or self.resolved.config.model is None:
            shared.warn_unknown(shared.resolved(settings, untrusted, other).config)
            self._models = None, other
            self._reconfigure()
        return None if wanted == self.resolved.config.model else wanted

    # ------------------------------------------------------------ in step with the store

    async def refresh(self) -> None:
        """Bring window and totals in step with the store. Under the lock, before everything else."""
        version = self._shared.version  # read first: another thread may change settings
        if self._version != version:
            self._reconfigure()
            self._version = version
        if self._inflight is not None:
            await self._reload()
        elif not self._shared.exclusive:
            head, epoch = await self.reader.state() or (0, 0)
            if (head, epoch) != (self.window.head, self.window.epoch):
                await self._follow(epoch)

    async def require(self) -> None:
        """Refresh, and raise `SessionNotFound` unless something was ever recorded. Under the lock."""
        await self.refresh()
        if not self.window.head:
            raise no_session(self.id)

    @asynccontextmanager
    async def required(self) -> AsyncIterator[None]:
        """Hold the lock, and `require` the session first."""
        async with self.lock:
            await self.require()
            yield

    async def prepare(self, *, reads_window: bool) -> None:
        """Refresh before new entries are made. Under the lock.

        Unless the window decides something about them, news of other writers can wait: the answer to the
        append reports those.
        """
        if self.is_stale or (reads_window and not self._shared.exclusive):
            await self.refresh()

    async def catch_up(self) -> None:
        """Enqueue the events of a call that failed or was interrupted, and take changed settings."""
        if self._inflight or self._version != self._shared.version:
            async with self.lock:
                await self.refresh()

    async def era(self) -> list[tuple[int, Record]]:
        """Return the records since the last clear, up to the window's head. Under the lock, refreshed."""
        log = await self.reader.records(self.totals.era)
        # A later record would be both in a commit's window and after its floor.
        return [record for record in log if record[0] <= self.window.head]

    async def _follow(self, epoch: int, before: int | None = None) -> None:
        """Take the new records of the log, which is at `epoch`; only the tail if that is enough.

        Our own records that were handed over just now have a seq above `before`.
        """
        if not await self._caught_up(epoch, before):
            await self._reload(before)

    async def _caught_up(self, epoch: int, before: int | None) -> bool:
        """Fold the tail of the log; return False if the window changed its shape or began again.

        An epoch never returns, so an equal one after the tail was read rules out both.
        """
        window = self.window
        if not window.head or epoch != window.epoch:
            return False
        tail = await self.reader.records(window.head)
        _, epoch = await self.reader.state() or (0, -1)
        if epoch != window.epoch:
            return False
        own = {record.id for record in self._inflight or ()}
        self._inflight = self._inflight or ()
        for seq, record in tail:
            if record.id in own and seq > (before or 0):
                self._outbox.enqueue(seq, record)
            self._fold(seq, record, self.resolved.price)
        self._inflight = None
        return True

    def _fold(self, seq: int, record: Record, price: Price) -> None:
        """Take the next record of the log, which leaves the window's shape as it was."""
        self._state.apply(seq, record, price)
        if isinstance(record, Configured):
            self._reconfigure()
        elif isinstance(record, UsageReported):
            self.calibration.add(record, self.window.epoch)
        self._outbox.skip_to(seq)

    async def _reload(self, before: int | None = None) -> None:
        """Load window and totals from the store, and enqueue the events of our records above `before`.

        By default, when the outcome of a write is unknown, that is above the window as it was.
        """
        inflight, self._inflight = self._inflight, self._inflight or ()
        seen = self._outbox.emitted if before is None else before
        snapshot = await self._shared.store.load(self.id)
        if snapshot is None:
            self.forget()
            return
        self._replace(LogState.from_snapshot(snapshot))
        self.generation += 1
        self.calibration.load(snapshot.totals.learned)
        self._reconfigure()
        if inflight:
            times = {record.id: record.at for record in inflight}
            for seq, record in await self.reader.get(list(times)):
                if record.at != times.get(record.id):
                    continue  # another writer's, under the same id of the caller's
                self._settle_cost(record)
                if seq > seen:  # else a retry of a record whose event is out
                    self._outbox.enqueue(seq, record)
        self._outbox.skip_to(snapshot.head)  # records of others have no event here
        self._inflight = None

    def forget(self) -> None:
        """Become a session in which nothing was ever recorded."""
        self._replace(LogState())
        self.generation += 1
        self.calibration.forget()
        self.unrecorded = NO_COST
        self._outbox.skip_to(0)
        self.resolved = self._resolve()
        self._inflight = ()  # another manager of the store may begin it again

    # ------------------------------------------------------------ writing

    def append(
        self, records: tuple[Record, ...], *, named: bool = False, exact: bool = False
    ) -> Awaitable[Appended]:
        """Append records that leave the window's shape as it is. Under the lock, refreshed.

        With `named` their ids are the caller's and may be in the log already. With `exact` another writer
        may not have appended since the refresh: raises `StoreConflict`.
        """
        return self._shared.runtime.complete(self._append_opened(records, named, exact))

    async def _append_opened(
        self, records: tuple[Record, ...], named: bool, exact: bool
    ) -> Appended:
        """Append records, the first ones of a session behind its opening."""
        while not self.totals.nonce:
            opening = Opened(
                id=self._shared.new_id(),
                at=records[0].at,
                nonce=self._shared.new_nonce(),
                settings=self.resolved.observed,
            )
            if opening.id == records[0].id:
                raise repeated_id(opening.id)
            head = self.window.head
            try:
                appended = await self._append((opening, *records), named, expect_head=head)
            except StoreConflict:  # another manager opened it, or an attempt whose answer was lost
                if exact:
                    raise
                await self.refresh()
            else:
                fresh = max(0, appended.fresh - 1)
                return msgspec.structs.replace(appended, seqs=appended.seqs[1:], fresh=fresh)
        return await self._append(records, named, self.window.head if exact else None)

    async def _append(
        self, records: tuple[Record, ...], named: bool, expect_head: int | None = None
    ) -> Appended:
        self._inflight = records
        appended = await self._shared.store.append(self.id, records, expect_head=expect_head)
        window = self.window
        follows = appended.fresh == len(records) and appended.head == window.head + len(records)
        if follows and (not window.head or window.epoch == appended.epoch):
            window.advance(window.head, appended.epoch)
            for seq, record in enumerate(records, window.head + 1):
                self._outbox.enqueue(seq, record)
                self._fold(seq, record, own_count)  # just counted, or estimated on a failure
            self._inflight = None
            return appended
        # Another writer was faster, or some records were in the log: named by the caller, they had their
        # event; else an attempt whose answer was lost wrote them a moment ago.
        fresh_after = appended.head - appended.fresh
        self._outbox.skip_to(min(self._outbox.emitted, fresh_after))
        await self._follow(appended.epoch, fresh_after if named else min(appended.seqs) - 1)
        return appended

    def after(self, record: Record, unfoldings: Iterable[Unfolding] = ()) -> LogState:
        """Return the state with one more record, which changes the window's shape.

        Raises `Refused` or `EntryNotFound` if the record cannot follow.
        """
        state = self._state.copy()
        state.apply(self.window.head + 1, record, self.resolved.counter.recount, unfoldings)
        return state

    async def commit(self, record: Record, state: LogState) -> None:
        """Commit a record and the state `after` it. Under the lock, refreshed.

        Raises `StoreConflict` if the window changed its shape since the last `refresh`.
        """
        await self._shared.runtime.complete(self._commit(record, state))

    async def _commit(self, record: Record, state: LogState) -> None:
        store, head, epoch = self._shared.store, self.window.head, self.window.epoch
        window = places_for_commit(state.window, record)
        if isinstance(record, Deleted):
            log = [each for _, each in await self.reader.records()]
            tainted = tainted_by(log, frozenset(record.ids))
            self._inflight = (record,)
            # In one transaction: the process may die after it.
            appended = await store.erase(self.id, epoch, record, window, head, tainted)
        else:
            # A clear covers all that is in the log before it, so nothing may come in between.
            last = head if isinstance(record, Cleared) else None
            self._inflight = (record,)
            appended = await store.commit(self.id, epoch, (record,), window, head, expect_head=last)
        if appended.head != head + 1:
            await self._reload()
            return
        self._outbox.enqueue(appended.head, record)
        state.window.advance(appended.head, appended.epoch)
        self._replace(state)
        self._settle_cost(record)
        self._outbox.skip_to(appended.head)
        self._inflight = None

    async def delete(self) -> None:
        """Remove the session with its log. Under the lock."""
        self._inflight = self._inflight or ()
        await self._shared.runtime.complete(self._delete())

    async def _delete(self) -> None:
        if not await self._shared.store.delete(self.id):
            raise no_session(self.id)
        self.forget()
        self._outbox.notify(events.SessionDeleted(session_id=self.id))

    def _settle_cost(self, record: Record) -> None:
        """Reset the cost of earlier attempts once it is recorded or its era is over."""
        recorded = isinstance(record, Compressed) and not ids_retracted_by(record)
        if recorded or isinstance(record, Cleared):
            self.unrecorded = NO_COST


class _Asked:
    """A model that is asked in place of the one in effect, since a place in the log."""

    def __init__(self, model: str | None, window: Window) -> None:
        self.model = model
        self._since = self._head = window.head
        self._steps = 1

    def is_settled(self, window: Window) -> bool:
        """Note a request that was not refused, and return whether the session follows its model now."""
        self._steps += window.head > self._head
        self._head = window.head
        if self._steps > _STEPS:
            return True
        later = takewhile(lambda item: item.position > self._since, reversed(window.items))
        roles = [item.entry.role for item in later]  # newest first
        return "user" in roles and "assistant" in roles[roles.index("user") :]


def no_session(session_id: str, known: Iterable[str] = ()) -> SessionNotFound:
    """Return the error for a session in which nothing was ever recorded; `known` are ids to suggest."""
    hint = did_you_mean(session_id, known) or ";"
    return SessionNotFound(
        f"there is no session {session_id!r}{hint} an add_* method or import_session creates one"
    )


def repeated_id(entry_id: str) -> IdConflict:
    """Return the error for an id that `new_id` made twice."""
    return IdConflict(f"new_id gave {entry_id!r} twice; ids must be unique. Nothing was changed")
