"""Reading a session: its window, its history, its numbers, and the contexts built of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from memman import events
from memman.about import CREATED_BY
from memman.archive import (
    ArchiveInfo,
    ArchiveWriter,
    Header,
    Packing,
    SessionState,
    Target,
    state_of,
)
from memman.counting import CountFailure, learn, model_key
from memman.entries import Entry, parse_address
from memman.errors import EntryNotFound, StoreConflict
from memman.log import History
from memman.records import Added, Compressed, Deleted, Record, deleted_in
from memman.results import Context, SessionStats, Summary, summary_of
from memman.session.context import ContextRequest
from memman.session.live import ProviderCount, no_session
from memman.session.past import Past
from memman.session.shared import Remote
from memman.window import WindowItem

_STRETCH = 200  # records of a long log that are held at a time; entries may be large


class Reading(Past):
    """Answers from the window; the history is read from the log when somebody asks for the past."""

    __slots__ = ()

    async def _history(self) -> History:
        """The fold of the current era."""
        return History.of(await self._era_log())

    async def _era_log(self) -> list[tuple[int, Record]]:
        """The records since the last clear, as far as the window knows them: no further.

        What was added since would be in a commit's window and once more after its floor.
        """
        shared = self._shared
        snapshot = await shared.store.load(self.id)
        log = await self._log(snapshot.totals.era if snapshot else 0)
        return [record for record in log if record[0] <= self._window.head]

    async def active_entries(self) -> list[Entry]:
        """The window in order."""
        async with self._lock:
            await self.require()
            return [_shown(slot) for slot in self._window.items]

    async def entries(self) -> list[Entry]:
        """Every added entry of the era."""
        async with self._lock:
            await self.require()
            return (await self._history()).entries()

    async def entry(self, wanted: str) -> Entry:
        """One entry or replacement by id or address, active or not, of this era or an earlier one."""
        async with self._lock:
            await self.require()
            entry_id = await self._id_of(wanted)
            slot = self._window.find(entry_id)
            if slot is not None:
                return _shown(slot)
            found = await self._hidden_entry(entry_id) or await self._entry_in_log(entry_id)
        if found is None:
            raise EntryNotFound(f"no entry {wanted!r} in session {self.id!r}")
        return found

    async def _id_of(self, wanted: str) -> str:
        """The id of the entry at an address; what is no address, or is an entry's id, is an id itself."""
        address = parse_address(wanted)
        if address is None or self._window.find(wanted) or await self._get([wanted]):
            return wanted
        seq, number = address
        found = await self._shared.store.read(self.id, seq - 1, 1)
        record = found[0][1] if found else None
        if isinstance(record, Added):
            return record.id if not number else wanted
        if not isinstance(record, Compressed):
            return wanted
        made = [item.entry for item in record.replacements]
        if number:
            entry = made[number - 1] if number <= len(made) else None
        else:
            numbers = [at for at, each in enumerate(made, 1) if each is not None]
            if len(numbers) > 1:
                raise EntryNotFound(
                    f"#{seq} is a compression that made {len(numbers)} entries, "
                    f"#{seq}.{numbers[0]} to #{seq}.{numbers[-1]}: name one of them"
                )
            entry = made[numbers[0] - 1] if numbers else None
        return wanted if entry is None else entry.id

    async def _entry_in_log(self, entry_id: str) -> Entry | None:
        history = await self._history()
        for entry in (*history.entries(), *history.replaced_entries()):
            if entry.id == entry_id:
                return entry
        found: Entry | None = None
        for seq, record in await self._log(0):  # of an earlier era, or deleted
            if isinstance(record, Added) and record.id == entry_id:
                found = msgspec.structs.replace(record.entry, seq=seq)
            elif isinstance(record, Deleted) and entry_id in record.ids:
                found = None
        return found

    async def summaries(self) -> list[Summary]:
        """The summaries in force, in order."""
        async with self._lock:
            await self.require()
            made = [slot for slot in self._window.items if slot.entry.type == "summary"]
            if not made:
                return []
            history = await self._history()
            return [summary_of(slot, history.originals([slot.entry.id])) for slot in made]

    async def stats(self) -> SessionStats:
        """Where the session stands; costs the window, not the history."""
        async with self._lock:
            await self.require()
            window = self._window
            originals = sum(slot.compression is None for slot in window.items)
            totals = self._totals
            usage = totals.usage
            return SessionStats(
                session_id=self.id,
                total_entries=totals.entries,
                active_entries=len(window.items),
                compressed_entries=totals.entries - originals,
                summaries=sum(slot.entry.type == "summary" for slot in window.items),
                total_tokens=totals.tokens,
                active_tokens=window.tokens,
                max_tokens=self._budget.max_tokens,
                max_entries=self._budget.max_entries,
                overhead_tokens=self.overhead,
                counter=self._meter.fingerprint,
                last_counted_at=totals.last_counted_at,
                drift=round(usage.input_tokens / usage.estimated - 1, 4)
                if usage and usage.estimated
                else None,
                cost=totals.cost.plus(self._owed).plus(self._spent),
            )

    async def export(self) -> SessionState:
        """The session as a document."""
        async with self._lock:
            await self.require()
            return state_of(self.id, await self._log(0), self._totals.settings)

    async def export_archive(self, to: Target, packing: Packing | None) -> ArchiveInfo:
        """Writes the log as an archive, a page at a time; appends go on meanwhile and are not in it."""
        shared = self._shared
        runtime = shared.runtime
        head, epoch = await self._stored() or (0, 0)  # of the log alone: the window may be as long
        if not head:
            raise no_session(self.id)
        gone = await self._named_by_deletions(head) if epoch else frozenset()
        writer = ArchiveWriter(to, packing, gone)
        header = Header(session_id=self.id, head=head, created_by=CREATED_BY)
        try:
            await runtime.to_the_end(runtime.call(writer, writer.begin, header))
            await self._write_pages(writer, head)
            await self._check_kept(head, epoch)
            info: ArchiveInfo = await runtime.to_the_end(runtime.call(writer, writer.finish))
        except BaseException:
            await runtime.to_the_end(runtime.call(writer, writer.abandon))
            raise
        return info

    async def _write_pages(self, writer: ArchiveWriter, head: int) -> None:
        runtime, after = self._shared.runtime, 0
        while after < head:
            page = await self._page(after, head)
            await runtime.to_the_end(runtime.call(writer, writer.write, page))
            after = page[-1][0]

    async def holds(self, records: Sequence[Record]) -> bool:
        """Whether the log begins with these records, deleted ones as they are now; reads them in step."""
        coming, after, head = iter(records), 0, len(records)
        if (await self._stored() or (0, 0))[0] < head:
            return False
        while after < head:
            page = await self._page(after, head)
            if not all(_same(record, next(coming)) for _, record in page):
                return False
            after = page[-1][0]
        return True

    async def _page(self, after: int, head: int) -> Sequence[tuple[int, Record]]:
        """The next records of the log, none behind a place."""
        page = await self._shared.store.read(self.id, after, min(_STRETCH, head - after))
        if not page:
            raise StoreConflict(f"session {self.id!r} was deleted while it was read")
        return page

    async def _named_by_deletions(self, head: int) -> frozenset[str]:
        """What deletions name; a store may not have come to erasing it."""
        gone: set[str] = set()
        after = 0
        while after < head:
            page = await self._page(after, head)
            gone |= deleted_in([record for _, record in page])
            after = page[-1][0]
        return frozenset(gone)

    async def _check_kept(self, head: int, epoch: int) -> None:
        """Raises `StoreConflict` where what was exported was deleted meanwhile, perhaps in part."""
        stored = await self._stored() or (0, 0)
        if stored[1] == epoch and stored[0] >= head:
            return
        later = await self._log(head) if stored[0] >= head else ()
        if not later or any(isinstance(record, Deleted) for _, record in later):
            raise StoreConflict(
                f"entries of session {self.id!r} were deleted while it was exported: export it again"
            )

    def build_empty(self, asked: ContextRequest) -> Context:
        """Return the context of a session that nothing was added to."""
        return self._contexts_of().build(asked, self._window, self._settled)

    async def build(self, asked: ContextRequest) -> Context:
        """A context of the window as it is; trims a copy where it does not fit."""
        if self._settled.remote is not None:
            await self._confirm(asked, self._settled.remote)
        async with self._lock:
            if self._unsure():
                await self._refresh()
            if not self._window.head:
                await self.require()
            context = self._built(asked)
            left_out = self._contexts_of().take_left_out()
        if left_out is not None:
            await self.tell(_trimmed(self.id, *left_out))
        return context

    def _built(self, asked: ContextRequest) -> Context:
        contexts = self._contexts_of()
        told = self._confirmed
        beyond = self._beyond if self._learned or told is not None else None
        context = contexts.build(asked, self._window, self._settled, beyond)
        if told is None or context.trimmed:
            return context
        if (told.head, told.epoch) != (self._window.head, self._window.epoch):
            return context
        if asked.model not in (None, told.model) or told.beside != (asked.system, asked.tools):
            return context
        count = msgspec.structs.replace(told.count, tokens=context.tokens.tokens)
        return msgspec.structs.replace(context, tokens=count)

    async def _confirm(self, asked: ContextRequest, remote: Remote) -> None:
        """Has the provider count a request, once at a place in the log, where that may decide something."""
        async with self._lock:
            await self.require()
            window, told = self._window, self._confirmed
            if told is not None and (told.head, told.epoch) == (window.head, window.epoch):
                return
            # Reports have what a request hides.
            known = model_key(self._config.model) in self._learned
            if known or asked.model not in (None, self._config.model):
                return
            contexts = self._contexts_of()
            beyond = self._beyond if self._learned or told is not None else None
            doubt = contexts.doubt(asked, window, self._settled, beyond, remote.format)
            place = window.head, window.epoch
        if doubt is None:
            return
        answer = await self._shared.runtime.price(remote.counter, doubt.request)
        if isinstance(answer, CountFailure):
            if answer.cached and answer.kind == self._fell_back:
                return  # a failure is remembered so that nobody asks, or is told, again
            self._fell_back = answer.kind
            notice = events.CountFellBack(
                session_id=self.id, counter=remote.counter.fingerprint, reason=answer.reason
            )
            await self.tell(notice)
            return
        async with self._lock:
            self._fell_back = ""
            learned = learn(None, answer.tokens, doubt.counted, None)
            beside = asked.system, asked.tools
            self._confirmed = ProviderCount(self._config.model, *place, beside, answer, learned)
            contexts.reprice()


def _trimmed(session_id: str, context: Context, tokens: int) -> events.ContextTrimmed:
    """The event for a context that had to leave entries out."""
    return events.ContextTrimmed(
        session_id=session_id,
        entries=tuple(entry_id for item in context.trimmed for entry_id in item.ids),
        tokens=tokens,
        budget=context.budget,
        format=context.format,
    )


def _same(stored: Record, coming: Record) -> bool:
    """Whether a record is that of a log, or what a deletion left of it."""
    if type(stored) is not type(coming) or stored.id != coming.id:
        return False
    if isinstance(stored, Added) and isinstance(coming, Added):
        return stored.entry.content in (coming.entry.content, "")
    return True


def _shown(slot: WindowItem) -> Entry:
    """A slot's entry with its pin and its count as they are now."""
    entry = slot.entry
    if entry.pinned == slot.pinned:
        return entry
    return msgspec.structs.replace(entry, pinned=slot.pinned)
