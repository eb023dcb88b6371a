"""One session, composed of a log, an outbox, a context builder and a compressor."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from memman.archive.document import SessionState, state_of, summaries_of
from memman.config import MANAGER_SETTINGS
from memman.entries import NO_JSON, Entry, NewEntry, json_bytes
from memman.errors import (
    CompressionFailed,
    EntryNotFound,
    InvalidInput,
    MemmanError,
    Refused,
    StoreConflict,
    StoreError,
)
from memman.explain.explanation import Explanation, explained
from memman.explain.history import LogHistory
from memman.explain.shares import shares_of
from memman.explain.state_block import state_block_of
from memman.formats.originals import original_messages
from memman.log import History, LogState
from memman.protocols import Format
from memman.records import (
    Added,
    Cleared,
    Configured,
    Deleted,
    Described,
    Pinned,
    Record,
    Undone,
    UsageReported,
    deleted_in,
)
from memman.results import Context, Hit, SessionStats, Summary
from memman.runtime.observation import Operation, observed
from memman.session import lookup
from memman.session.additions import Additions, is_known_report
from memman.session.backoff import Backoff
from memman.session.compactions import fresh_compaction, made_of
from memman.session.compressor import Compressor
from memman.session.context import ContextBuilder
from memman.session.log import RETRIES, SessionLog
from memman.session.outbox import Outbox
from memman.session.policy import AUTOMATIC, CompressionRequest
from memman.session.recall import Addresses, copies_in, entries_at
from memman.session.requests import ContextRequest
from memman.session.retraction import retraction
from memman.session.shared import Shared
from memman.spend import total_spend

logger = logging.getLogger("memman")
R = TypeVar("R", bound=Record)
_ENTRIES_OF_MESSAGE = 4  # more than most messages have
_STORED_AS_TEXT = {"strategy": "a preset's name", "summary_prompt": "a template"}


class Session:
    """A conversation in this process."""

    __slots__ = (
        "__weakref__", "_additions", "_contexts", "_shared", "compressor", "id", "log", "outbox", "used_at",
    )  # fmt: skip

    def __init__(self, session_id: str, shared: Shared) -> None:
        self.id = session_id
        self._shared = shared
        self.outbox = Outbox(session_id, shared)
        self.log = SessionLog(session_id, shared, self.outbox)
        self._contexts = ContextBuilder(shared, self.log, self.outbox)
        self.compressor = Compressor(shared, self.log, self.outbox, self._contexts)
        self._additions = Additions(shared, self.log, self.outbox, self._contexts)
        self.used_at = 0.0  # by the clock of the session cache

    # ------------------------------------------------------------ in the cache

    def touch(self, moment: float) -> None:
        """Note when the session was used last."""
        self.used_at = moment

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way and no event is pending, so that it may be evicted."""
        return self.outbox.is_idle and self.log.is_idle and self.compressor.is_idle

    def resume(self, backoff: Backoff) -> None:
        """Continue with the failures of the evicted session."""
        self.log.resume(backoff.left_at)
        self.compressor.policy.use(backoff)

    async def settle(self) -> None:
        """Wait for a write under way, and emit the events of everything that was committed."""
        if self.compressor.is_running:
            async with self.log.lock:
                pass
        try:
            await self.catch_up()
        except StoreError as error:
            logger.warning(
                "events of session %s may be missing, the store does not answer: %s", self.id, error
            )

    async def catch_up(self) -> None:
        """Emit the events of a call that failed or was interrupted after its commit."""
        await self.log.catch_up()
        await self.outbox.flush()

    # ------------------------------------------------------------ adding

    async def add(
        self,
        new_entry: NewEntry,
        entry_id: str | None,
        pinned: bool,
        metadata: msgspec.Raw,
        compress: bool | None,
    ) -> Entry:
        """Add one entry, and compress if that makes it due; `compress` overrides `auto_compress`."""
        entry = await self._additions.add(new_entry, entry_id, pinned, metadata)
        await self._after_add(compress)
        return entry

    async def add_messages(
        self,
        new_entries: Sequence[NewEntry],
        ids: Sequence[str | None] | None,
        pinned: bool,
        metadata: msgspec.Raw,
        compress: bool | None,
        usage: UsageReported | None,
        response: str,
    ) -> list[Entry]:
        """Add the entries of messages, all or none, and the usage of a response that is new.

        Nothing is added if the window ends with the `response` of this id.
        Compress if that makes it due; `compress` overrides `auto_compress`.
        """
        entries, new = await self._additions.add_messages(
            new_entries, ids, pinned, metadata, response
        )
        if (compaction := fresh_compaction(entries, new)) is not None:
            try:
                await self.compressor.adopt(compaction, compaction.seq)
            except MemmanError:  # the entries are stored; requests contain the originals
                logger.exception("a provider's compaction of session %s was not adopted", self.id)
        await self._after_add(compress)
        if usage is not None and (new or not entries):
            await self.record_usage(usage, begins=True)
        return entries

    async def record_compression(self, upto: str, new_entry: NewEntry) -> str:
        """Put a provider's compaction in place of the window up to an entry, and return its record's id."""
        entry = await self.entry(upto)
        shown = (await self.place(entry)).shown_by or entry
        async with self.log.lock:
            exchanges = self.log.window.exchanges
            ends = {item.entry.id: each.items[-1] for each in exchanges for item in each.items}
        last = ends.get(shown.id)
        if last is None:
            raise EntryNotFound(f"entry {upto!r} is not active, and nothing represents it")
        if last.entry.id != shown.id:
            raise InvalidInput(
                f"entry {upto!r} belongs together with later ones: use upto={last.entry.id!r}"
            )
        source = await self._additions.add(new_entry, None, False, NO_JSON)
        record = await self.compressor.adopt(source, last.position)
        if record is None:
            raise Refused(f"the window changed meanwhile, so {source.id} stands for nothing")
        return record.id

    async def _after_add(self, compress: bool | None) -> None:
        if self.outbox:
            await self.outbox.flush()
        if request := self.compressor.policy.due():
            automatic = self.log.resolved.config.auto_compress
            if automatic if compress is None else compress:
                await self.compressor.after_add(request)

    async def record_usage(self, report: UsageReported, *, begins: bool = False) -> None:
        """Record a provider's report, and learn the tokens that memman cannot count.

        A response that was reported before is not recorded again. A session that does not exist begins, if
        it may.
        """
        async with self.log.lock:
            await (self.log.refresh() if begins else self.log.require())
            if not is_known_report(report, self.log.totals, self.log.window):
                await self.log.append((self._contexts.compared(report),))
        await self.outbox.flush()

    async def configure(self, changes: Mapping[str, Any]) -> None:
        """Change settings of this session alone; they are stored with it."""
        shared, plain = self._shared, _plain_settings(changes)
        if not shared.trust_settings:
            raise InvalidInput(
                "this manager ignores settings of its sessions (trust_settings=False): give it to the "
                "manager's config, or to update_config without a session_id"
            )
        async with self.log.lock:
            await self.log.refresh()
            # Checked together: a new setting may repair a stored one.
            stored = shared.effective(self.log.totals.settings, self.log.totals.untrusted)
            together = shared.config.updated({**stored, **plain})
            shared.check_change(self.log.resolved.config, together)
            as_stored = msgspec.json.decode(json_bytes(plain, "what is set"))
            record = Configured(id=shared.new_id(), at=shared.clock(), changes=as_stored)
            await self.log.append((record,))
        await self.outbox.flush()

    async def describe(self, metadata: dict[str, Any]) -> None:
        """Replace the caller's metadata, unless it is the same; a session that does not exist begins."""
        async with self.log.lock:
            await self.log.refresh()
            if not self.log.window.head or self.log.totals.metadata != metadata:
                new_id, at = self._shared.new_id(), self._shared.clock()
                await self.log.append((Described(id=new_id, at=at, metadata=metadata),))
        await self.outbox.flush()

    # ------------------------------------------------------------ changing

    async def undo(self, compression_id: str | None) -> str:
        """Take a compression back, the latest by default, and return its id."""

        def undone(history: History) -> Undone:
            name = compression_id or history.latest()
            return Undone(id=self._shared.new_id(), at=self._shared.clock(), compression_id=name)

        return (await self._dissolve(undone)).compression_id

    async def retract(self, ids: Sequence[str], reason: str) -> str:
        """Hide added entries until the retraction is undone; return its compression's id."""
        change = partial(retraction, ids, reason, self.log, self._shared)
        self.compressor.forget_parts()
        return (await self._change(change)).id

    async def pin(self, entry_id: str, on: bool) -> None:
        """Pin or unpin an active entry."""
        async with self.log.required():
            item = self.log.window.find(entry_id)
            if item is not None and item.pinned == on:
                return
        new_id, at = self._shared.new_id(), self._shared.clock()
        await self._commit(Pinned(id=new_id, at=at, entry_id=entry_id, on=on))

    async def clear(self) -> None:
        """Empty the window and begin a new era."""
        await self._commit(Cleared(id=self._shared.new_id(), at=self._shared.clock()))
        self.compressor.forget_parts()

    async def delete(self, ids: Sequence[str]) -> None:
        """Remove entries for good, with everything that was made of them."""
        async with self.log.required():
            read = await self.log.reader.records()
        records = [record for _, record in read]
        added = {record.id for record in records if isinstance(record, Added)}
        for name in ids:
            if name not in added:
                raise EntryNotFound(
                    f"no entry {name!r} to delete in session {self.id!r} "
                    "(a replacement is taken back with undo_compression)"
                )
        gone = deleted_in(records)
        whole = [*ids, *copies_in(read, ids, self.log.totals.nonce)]
        wanted = tuple(
            name for name in dict.fromkeys([*whole, *made_of(records, whole)]) if name not in gone
        )

        def deleted(_history: History) -> Deleted:
            return Deleted(id=self._shared.new_id(), at=self._shared.clock(), ids=wanted)

        self.compressor.forget_parts()
        if wanted:
            await self._dissolve(deleted)

    async def delete_all(self) -> None:
        """Remove the session with its log; a running compression will find nothing to replace."""
        async with self.log.lock:
            await self.log.delete()
            self.compressor.policy.use(Backoff())
        await self.outbox.flush()

    async def _commit(self, record: Record) -> None:
        async def changed() -> tuple[Record, LogState]:
            return record, self.log.after(record)

        await self._change(changed)

    async def _dissolve(self, make: Callable[[History], R]) -> R:
        """Commit the record that `make` returns, which dissolves compressions of the era."""

        async def changed() -> tuple[R, LogState]:
            history = History.of(await self.log.era())
            record = history.completed(make(history))
            return record, self.log.after(record, history.unfoldings(record))

        return await self._change(changed)

    async def _change(self, change: Callable[[], Awaitable[tuple[R, LogState | None]]]) -> R:
        """Commit a change of shape; if another process is faster, decide again on the new window.

        Without a state the record that `change` returns is in the log already.
        """
        for retries in reversed(range(1 + RETRIES)):
            async with self.log.required():
                record, state = await change()
                if state is None:
                    break
                try:
                    await self.log.commit(record, state)
                    break
                except StoreConflict:
                    if not retries:
                        raise
        await self.outbox.flush()
        return record

    # ------------------------------------------------------------ reading

    async def build(self, request: ContextRequest) -> Context:
        """Return a context of the window as it is; a copy is trimmed if it does not fit."""
        model, work = request.model or self.log.resolved.config.model, self._contexts.build(request)
        operation = Operation(kind="build", session_id=self.id, model=model)
        return await observed(self._shared.runtime.observer, operation, work)

    def build_empty(self, request: ContextRequest) -> Context:
        """Return the context of a session that nothing was added to."""
        return self._contexts.build_unlocked(request)

    async def active_entries(self) -> list[Entry]:
        """Return the window in order."""
        async with self.log.required():
            return [item.shown() for item in self.log.window.shown_items]

    async def known_ids(self, ids: Sequence[str]) -> dict[str, str | None]:
        """Return the answer of `find_ids`."""
        async with self.log.required():
            return await lookup.known_ids(ids, self.log)

    async def entries(self, last: int | None, since: Sequence[str] | None = None) -> list[Entry]:
        """Return the added entries of the era that are not retracted: all, or some at the end."""
        async with self.log.required():
            if since is not None:
                return await lookup.entries_since(since, self.log)
            newest = None if last is None else await lookup.newest_entries(last, self.log)
            if newest is not None:
                return newest
            entries = History.of(await self.log.era()).entries()
            return entries if last is None else entries[max(0, len(entries) - last) :]

    async def messages(self, form: Format, last: int | None) -> list[dict[str, Any]]:
        """Return the messages of the era as they were added, all or the newest ones."""
        number = None if last is None else _ENTRIES_OF_MESSAGE * (last + 8)
        while True:
            entries = await self.entries(number)
            found = original_messages(form, entries, self.log.totals.nonce)
            # The first of them may have lost its first entries.
            if number is None or last is None or len(entries) < number or len(found) > last:
                break
            number *= 2
        chosen = found if last is None else found[max(0, len(found) - last) :]
        messages = [message for each in chosen for message in each]
        # A text has no messages: its lines are put together.
        return form.frame(messages) if form.name == "text" else messages

    async def entry(self, wanted: str) -> Entry:
        """Return an entry or replacement by id or address, active or not, of this era or an earlier one."""
        async with self.log.required():
            found = await lookup.find_entry(wanted, self.log)
        if found is None:
            raise EntryNotFound(f"no entry {wanted!r} in session {self.id!r}")
        return found

    async def place(self, entry: Entry) -> lookup.Place:
        """Return the state of an added entry, and the entry that represents it in the window."""
        async with self.log.required():
            return await lookup.place_of(entry, self.log)

    def count_text(self, text: str) -> int:
        """Return the tokens of a text by the session's counter."""
        return self.log.resolved.counter.count_text(text).tokens

    async def entries_at(self, ranges: Sequence[Addresses], most: int) -> list[Hit]:
        """Return the first entries at these addresses, in log order."""
        async with self.log.required():
            return await entries_at(ranges, most, self.log)

    async def summaries(self) -> list[Summary]:
        """Return the summaries in force, in order."""
        async with self.log.required():
            window = self.log.window
            if window.outline is None and not window.shares.get("summary"):
                return []
            return summaries_of(History.of(await self.log.era()))

    async def stats(self) -> SessionStats:
        """Return the session's numbers; the cost is that of the window, not of the history."""
        log = self.log
        async with log.required():
            window, totals, budget = log.window, log.totals, log.resolved.budget
            originals = sum(item.compression is None for item in window.items)
            summaries = sum(item.entry.type == "summary" for item in window.items)
            usage, owed = totals.usage, log.unrecorded  # owed for failed calls of the summarizer
            drift = None
            if usage and usage.estimated:
                drift = round(usage.input_tokens / usage.estimated - 1, 4)
            return SessionStats(
                session_id=self.id,
                total_entries=totals.entries,
                active_entries=len(window.shown_items),
                compressed_entries=totals.entries - originals,
                summaries=summaries + (window.outline is not None),
                total_tokens=totals.tokens,
                active_tokens=window.tokens,
                max_tokens=budget.max_tokens,
                max_entries=budget.max_entries,
                overhead_tokens=self._contexts.overhead(),
                counter=log.resolved.counter.fingerprint,
                last_counted_at=totals.last_counted_at,
                drift=drift,
                cost=totals.cost.plus(owed),
                spend=total_spend([totals.spend.with_summaries(owed.dollars, owed.unpriced)]),
                reported=totals.reported,
            )

    async def export(self) -> SessionState:
        """Return the session as a document."""
        async with self.log.required():
            return state_of(self.id, await self.log.reader.records(), self.log.totals.settings)

    async def explain(self) -> Explanation:
        """Return why the window is as it is; reads the era's log, and changes nothing."""
        log, compressor, policy = self.log, self.compressor, self.compressor.policy
        async with log.required():
            history = LogHistory(await log.era())
            trigger, summarizer = policy.trigger(), policy.summarizer_state()
            shares, block = shares_of(log.window), state_block_of(log.window)
            thoughts = self._contexts.left_out()
            usual = ContextRequest(self._shared.format)
            recalled = await self._contexts.recollections.for_request(usual)
            running = compressor.is_running
        waits = ""
        if trigger.auto_compress:
            waits = summarizer.reason if summarizer.holds_up else str(policy.stages_rest() or "")
            if policy.waits_after_undo():
                waits = "a compression was undone, and too little was added since"
        plan = None
        if (trigger.over or policy.cache_expires_at()) and trigger.compresses and not waits:
            request = (policy.due() or AUTOMATIC) if trigger.auto_compress else CompressionRequest()
            try:
                plan = await compressor.plan(request)
            except CompressionFailed as error:  # of a stage; the explanation names it
                waits = str(error)
        return explained(
            self.id,
            trigger,
            summarizer,
            running,
            policy.backoff.last_reason,
            waits,
            plan,
            history.compression_statuses(),
            history.entry_statuses().values(),
            shares,
            block,
            policy.cache(plan),
            thoughts,
            recalled,
        )


def _plain_settings(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that JSON can express; functions belong to the manager's settings."""
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
