"""Restoring a session from a document or an archive: checked first, then stored in one commit."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from memman import events
from memman.archive.document import Imported, SessionState, checked
from memman.archive.importer import ArchiveImport
from memman.archive.info import OnConflict, Source
from memman.archive.limits import ArchiveLimits
from memman.archive.redaction import Redactor
from memman.archive.validation import with_sound_state
from memman.entries import Entry, TokenCount
from memman.errors import MemmanError, SessionExists, StateError, StoreConflict
from memman.records import trusting
from memman.session.cache import SessionCache
from memman.session.exporter import begins_with
from memman.session.session import Session
from memman.session.shared import Shared

logger = logging.getLogger("memman.imports")
_EXISTS = (
    "session {!r} exists; nothing was changed. Delete it first, or pass "
    "on_conflict='skip' or 'new_session'"
)


class Importer:
    """Imports sessions; each method returns the id of the session."""

    def __init__(self, shared: Shared, sessions: SessionCache) -> None:
        self._shared = shared
        self._sessions = sessions

    async def document(self, state: SessionState, on_conflict: OnConflict, trust: bool) -> str:
        """Import a document. Raises `StateError` and `SessionExists`."""
        shared, counter = self._shared, _ImportCounter(self._shared)
        sound = checked(state, counter)
        records = tuple(trusting(record, trust) for record in sound.records)
        untrusted = self._without_effect(state.settings, trust)
        if shared.redact is not None:
            redactor = Redactor(self._redacted)
            records = tuple(
                with_sound_state(redactor.record(record), counter) for record in records
            )
        sound = msgspec.structs.replace(sound, records=records)
        session_id, exists = await self._name_for(state.session_id, on_conflict)
        if not exists:
            await self._begin(session_id, sound, counter, untrusted)
        elif on_conflict == "fail":
            raise SessionExists(_EXISTS.format(session_id))
        return session_id

    async def archive(
        self, source: Source, on_conflict: OnConflict, limits: ArchiveLimits | None, trust: bool
    ) -> str:
        """Import an archive. Raises `StateError`, `SessionExists` and `OSError`."""
        shared, counter = self._shared, _ImportCounter(self._shared)
        redact = self._redacted if shared.redact is not None else None
        archive = ArchiveImport(source, limits, counter, redact, trusted=trust)
        try:
            info = await shared.runtime.complete(shared.runtime.call(archive, archive.check))
            untrusted = self._without_effect(archive.settings, trust)
            session_id, exists = await self._name_for(info.session_id, on_conflict)
            if not exists:
                await self._begin(session_id, archive, counter, untrusted)
            elif on_conflict == "fail":
                session = self._sessions.get(session_id)
                if not await begins_with(archive.records, session.log.reader):
                    raise SessionExists(_EXISTS.format(session_id))
        finally:
            archive.records.close()
        return session_id

    def _redacted(self, entry: Entry) -> Entry:
        clean = self._shared.redacted(entry, "nothing was stored")
        counter = self._shared.counter(self._shared.config)
        return msgspec.structs.replace(clean, token_count=counter.count_entry(clean))

    def _without_effect(self, settings: Mapping[str, Any], trust: bool) -> tuple[str, ...]:
        """Return the names of an import's settings that have no effect until they are trusted.

        Raises `StateError` if the others do not work with this manager.
        """
        shared = self._shared
        untrusted = frozenset() if trust else frozenset(settings)
        try:
            effective = shared.effective(settings, untrusted)
            shared.check(shared.config.updated(effective))
        except MemmanError as error:
            raise StateError([f"its settings do not work here: {error}"]) from error
        return () if trust else tuple(sorted(settings.keys() - effective.keys()))

    async def _name_for(self, session_id: str, on_conflict: OnConflict) -> tuple[str, bool]:
        """Return the id for an import, and whether that session exists."""
        shared = self._shared
        exists = await shared.store.state(session_id) is not None
        if not exists or on_conflict != "new_session":
            return session_id, exists
        room = session_id.encode()[:200].decode(errors="ignore")
        return f"{room}-{shared.new_id()}", False

    async def _begin(
        self,
        session_id: str,
        sound: Imported | ArchiveImport,
        counter: _ImportCounter,
        untrusted: tuple[str, ...],
    ) -> None:
        """Store an imported session, and emit its event and that of a counter that failed."""
        shared, store, records = self._shared, self._shared.store, sound.records

        async def commit() -> Session:
            await store.commit(session_id, 0, records, sound.window, sound.floor, expect_head=0)
            session = self._sessions.get(session_id)
            imported = events.SessionImported(
                session_id=session_id, records=len(records), untrusted=untrusted
            )
            session.outbox.notify(imported)
            if counter.failure:
                session.outbox.notify_fallback(counter.fingerprint, counter.failure)
            return session

        try:
            session = await shared.runtime.complete(commit())
        except StoreConflict as error:
            raise SessionExists(f"session {session_id!r} was created during the import") from error
        if untrusted:
            logger.warning(
                "settings that session %s brought have no effect: %s (import it with "
                "trust_settings=True, or set them yourself with update_config)",
                session_id,
                ", ".join(untrusted),
            )
        await session.outbox.flush()


class _ImportCounter:
    """Recounts imported entries. `failure` is the reason if the estimator counted one."""

    def __init__(self, shared: Shared) -> None:
        self._given = shared.counter(shared.config)
        self.fingerprint = self._given.fingerprint
        self.failure = ""

    def count_entry(self, entry: Entry) -> TokenCount:
        count = self._given.count_entry(entry)
        if count.counter != self.fingerprint:
            self.failure = self._given.failure
        return count
