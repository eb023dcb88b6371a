"""Reading a session: its window, its history, its numbers, and the contexts built of it."""

from __future__ import annotations

import msgspec

from memman import events
from memman.archive import SessionState, state_of
from memman.contexts import Asked, Contexts
from memman.counting import Fallen, learn
from memman.entries import Entry
from memman.errors import EntryNotFound
from memman.history import History
from memman.records import Added, Deleted, Record
from memman.results import Context, SessionStats, Summary, summary_of
from memman.sessions.live import Confirmed, LiveWindow
from memman.shared import Remote
from memman.window import Slot


class Reading(LiveWindow):
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
        snapshot = await shared.door.call(shared.store, shared.store.load, self.id)
        log = await self._log(snapshot.ledger.era if snapshot else 0)
        return [record for record in log if record[0] <= self._window.head]

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
            slot = self._window.find(entry_id)
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
                cost=self._cost,
            )

    async def export(self) -> SessionState:
        """The session as a document."""
        async with self._lock:
            await self.require()
            return state_of(self.id, await self._log(0), self._settings)

    async def build(self, asked: Asked) -> Context:
        """A context of the window as it is; trims a copy where it does not fit."""
        if self._settled.remote is not None:
            await self._confirm(asked, self._settled.remote)
        elif self._shared.quick:
            with self._thread_lock:
                if not self._unsure():
                    return self._built(asked)
        async with self._lock:
            if self._unsure():
                await self._refresh()
            if not self._window.head:
                await self.require()
            return self._built(asked)

    def _contexts_of(self) -> Contexts:
        if self._contexts is None:
            self._contexts = Contexts(self._shared)
        return self._contexts

    def _built(self, asked: Asked) -> Context:
        contexts = self._contexts or self._contexts_of()
        beyond = self._beyond if self._knows_better else None
        context = contexts.build(asked, self._window, self._settled, beyond)
        told = self._confirmed
        if told is None or context.trimmed:
            return context
        if (told.head, told.epoch) != (self._window.head, self._window.epoch):
            return context
        count = msgspec.structs.replace(told.count, tokens=context.tokens.tokens)
        return msgspec.structs.replace(context, tokens=count)

    async def _confirm(self, asked: Asked, remote: Remote) -> None:
        """Has the provider count a request, once at a place in the log, where that may decide something."""
        async with self._lock:
            await self.require()
            window, told = self._window, self._confirmed
            if told is not None and (told.head, told.epoch) == (window.head, window.epoch):
                return
            known = self._config.model in self._learned  # reports have what a request hides
            if known or asked.model not in (None, self._config.model):
                return
            contexts = self._contexts_of()
            beyond = self._beyond if self._knows_better else None
            doubt = contexts.doubt(asked, window, self._settled, beyond, remote.format)
            place = window.head, window.epoch
        if doubt is None:
            return
        answer = await self._shared.door.price(remote.meter, doubt.request)
        if isinstance(answer, Fallen):
            if answer.cached and answer.kind == self._fell_back:
                return  # a failure is remembered so that nobody asks, or is told, again
            self._fell_back = answer.kind
            notice = events.CountFellBack(
                session_id=self.id, counter=remote.meter.fingerprint, reason=answer.reason
            )
            await self.tell(notice)
            return
        async with self._lock:
            self._fell_back = ""
            learned = learn(None, answer.tokens, doubt.counted, None)
            self._confirmed = Confirmed(self._config.model, *place, answer, learned)
            contexts.reprice()


def _shown(slot: Slot) -> Entry:
    """A slot's entry with its pin and its count as they are now."""
    entry = slot.entry
    if entry.pinned == slot.pinned:
        return entry
    return msgspec.structs.replace(entry, pinned=slot.pinned)
