"""Changing a session by hand: undo, pins, deletion, clear, and what a provider reported."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from memman import events
from memman.counting import learn, model_key
from memman.errors import EntryNotFound, StoreConflict
from memman.log import LogState
from memman.records import (
    Added,
    Cleared,
    Deleted,
    Pinned,
    Record,
    Undone,
    UsageReported,
    deleted_in,
)
from memman.session.live import no_session
from memman.session.reading import Reading

_REPLANS = 50  # how often a change is decided again after another was faster; it costs little


class Changing(Reading):
    """Changes the window's shape when somebody asks for it."""

    __slots__ = ()

    async def undo(self, compression_id: str | None) -> str:
        """Takes a compression back, the latest by default."""

        async def changed() -> tuple[Record, LogState]:
            history = await self._history()
            record = Undone(
                id=self._shared.new_id(),
                at=self._shared.clock(),
                compression_id=compression_id or history.latest(),
            )
            return record, self._after(record, history.unfoldings(record))

        record = await self._retried(changed)
        assert isinstance(record, Undone)  # noqa: S101 - `changed` made it
        return record.compression_id

    async def pin(self, entry_id: str, on: bool) -> None:
        """Pins or unpins an active entry."""
        async with self._lock:
            await self.require()
            item = self._window.find(entry_id)
            if item is not None and item.pinned == on:
                return
        record = Pinned(id=self._shared.new_id(), at=self._shared.clock(), entry_id=entry_id, on=on)
        await self._change(record)

    async def clear(self) -> None:
        """Empties the window and begins a new era."""
        record = Cleared(id=self._shared.new_id(), at=self._shared.clock())
        await self._change(record)

    async def delete(self, ids: Sequence[str]) -> None:
        """Removes entries for good, with everything that was made of them."""
        shared = self._shared
        wanted = tuple(dict.fromkeys(ids))

        async def changed() -> tuple[Record, LogState]:
            history = await self._history()
            entries, tokens = history.lost(wanted)
            record = Deleted(
                id=shared.new_id(), at=shared.clock(), ids=wanted, entries=entries, tokens=tokens
            )
            return record, self._after(record, history.unfoldings(record))

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
        gone = deleted_in(log)
        wanted = tuple(name for name in wanted if name not in gone)
        if wanted:
            await self._retried(changed)

    async def delete_all(self) -> None:
        """Removes the session with its log; a compression under way will find nothing to replace."""
        async with self._lock:
            self._inflight = self._inflight or ()
            await self._write(self._deleted())
        await self._drain()

    async def _deleted(self) -> None:
        shared = self._shared
        if not await shared.store.delete(self.id):
            raise no_session(self.id)
        self._forget()
        self.notice(events.SessionDeleted(session_id=self.id))

    async def _change(self, record: Record) -> None:
        async def changed() -> tuple[Record, LogState]:
            return record, self._after(record)

        await self._retried(changed)

    async def _retried(
        self, change: Callable[[], Coroutine[Any, Any, tuple[Record, LogState]]]
    ) -> Record:
        """Commits a change of shape; when another process was faster, decides again on what is there."""
        for attempt in range(1 + _REPLANS):
            async with self._lock:
                await self.require()
                record, state = await change()
                try:
                    await self._write(self._commit(record, state))
                    break
                except StoreConflict:
                    if attempt == _REPLANS:
                        raise
        await self._drain()
        return record

    async def record_usage(self, usage: UsageReported) -> None:
        """Keeps what a provider reported and learns from it what memman cannot count."""
        async with self._lock:
            await self.require()
            record = self._judged(usage)
            await self._append((record,))
        await self._drain()

    def _judged(self, usage: UsageReported) -> UsageReported:
        """The report beside our own figures for the same request, and what it teaches."""
        window, known = self._window, self._contexts
        model = usage.model or self._config.model
        last = known.priced(model) if known is not None else None
        estimated = last.estimated if last is not None else window.tokens
        counted = last.counted if last is not None else window.tokens
        record = msgspec.structs.replace(usage, model=model, estimated=estimated, counted=counted)
        if last is not None and not last.whole:
            return record  # not what the report is about: it teaches nothing
        key = model_key(model)
        before, step = self._anchors.get(key), None
        if before is not None and before.epoch == window.epoch:
            step = before.reported, before.counted
        learned = learn(self._learned.get(key), usage.input_tokens, counted, step)
        return msgspec.structs.replace(record, learned=learned)
