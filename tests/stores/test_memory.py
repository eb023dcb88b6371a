"""The store in memory keeps every law, and the kit finds stores that break one."""

from collections.abc import Sequence
from typing import Any

import msgspec

from memman.errors import InvalidInput
from memman.protocols import Appended, Candidates, FeedItem, SearchRequest, StoredItem
from memman.records import Record, StateSetter
from memman.stores import MemoryStore
from memman.testing import StoreConformance, broken_laws, laws_of
from memman.window import STATE_INDEX


class TestMemoryStore(StoreConformance):
    in_process = True

    def make_store(self) -> MemoryStore:
        return MemoryStore()


class WithoutEpochCheck(MemoryStore):
    """A store that accepts a commit on any epoch."""

    def commit(self, session_id: str, epoch: int, *given: Any, **named: Any) -> Appended:
        state = self.state(session_id)
        current = epoch if state is None else state[1]
        return super().commit(session_id, current, *given, **named)


class WithoutRecordIdCheck(MemoryStore):
    """A store that appends a retried record a second time."""

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        log = self._logs.get(session_id)
        for record in records if log is not None else ():
            log.made.pop(record.id, None)
        return super().append(session_id, records, expect_head=expect_head)


class WithFeedInSessionOrder(MemoryStore):
    """A store whose feed lists sessions in turn, so a later record may precede a cursor."""

    def feed(self, after: str = "", limit: int = 1_000) -> list[FeedItem]:
        places = [
            (info.session_id, seq, record)
            for info in self.sessions()
            for seq, record in self.read(info.session_id, 0, 100_000)
        ]
        begin = int(after or 0)
        if not 0 <= begin <= len(places):
            raise InvalidInput("no such place")
        page = enumerate(places[begin : begin + limit], begin + 1)
        return [FeedItem(*place, str(at)) for at, place in page]


class WithLeaseForEverybody(MemoryStore):
    """A store that gives a lease to every worker."""

    def lease(self, session_id: str, holder: str, seconds: float) -> bool:
        return super().lease(session_id, "everybody", seconds)


class WithoutStateBlocks(MemoryStore):
    """A store that keeps only the items of entries."""

    def commit(
        self,
        session_id: str,
        epoch: int,
        records: Sequence[Record],
        window: Sequence[StoredItem],
        *given: Any,
        **named: Any,
    ) -> Appended:
        shown = [item for item in window if item.index != STATE_INDEX]
        return super().commit(session_id, epoch, records, shown, *given, **named)


class WithStateBlocksLeft(MemoryStore):
    """A store whose erasures reach entries and replacements, but no outline."""

    def erase(self, session_id: str, *given: Any) -> Appended:
        states = {
            each.id: each.state
            for _, each in self.read(session_id, 0, 100_000)
            if isinstance(each, StateSetter)
        }
        erased = super().erase(session_id, *given)
        log = self._logs[session_id]
        kept = [
            msgspec.structs.replace(each, state=states.get(each.id, each.state))
            if isinstance(each, StateSetter)
            else each
            for each in log.records
        ]
        log.content = (kept, *log.content[1:])
        return erased


class WithSearchInEverySession(MemoryStore):
    """A store whose searches ignore their scope."""

    def search(self, request: SearchRequest) -> Candidates:
        return super().search(msgspec.structs.replace(request, session_id=None, prefix=""))


class WithIndexThatForgetsNothing(MemoryStore):
    """A store whose deletions do not reach its index."""

    def _commit(self, *given: Any) -> Appended:
        kept = self._index
        committed = super()._commit(*given)
        self._index = kept
        return committed


def kit_for(store: type[MemoryStore]) -> type[StoreConformance]:
    class Kit(StoreConformance):
        in_process = True

        def make_store(self) -> MemoryStore:
            return store()

    return Kit


def test_kit_passes_a_store_that_conforms():
    assert broken_laws(kit_for(MemoryStore)) == []


def test_kit_catches_missing_epoch_check():
    broken = broken_laws(kit_for(WithoutEpochCheck))
    assert "test_commit_on_an_old_epoch_is_refused" in broken
    assert len(broken) < len(laws_of(StoreConformance)) / 2, "it breaks other laws, not this one"


def test_kit_catches_missing_id_check():
    broken = broken_laws(kit_for(WithoutRecordIdCheck))
    assert "test_retried_record_keeps_its_seq_and_adds_nothing" in broken
    assert len(broken) < len(laws_of(StoreConformance)) / 2, "it breaks other laws, not this one"


def test_kit_catches_later_records_before_a_cursor():
    broken = broken_laws(kit_for(WithFeedInSessionOrder))
    assert "test_later_commits_come_behind_every_returned_cursor" in broken
    assert all("feed" in law or "follower" in law or "cursor" in law for law in broken)


def test_kit_catches_a_lease_with_two_holders():
    broken = broken_laws(kit_for(WithLeaseForEverybody))
    assert "test_lease_has_one_holder" in broken
    assert all("lease" in law for law in broken)


def test_kit_catches_a_lost_state_block():
    broken = broken_laws(kit_for(WithoutStateBlocks))
    assert "test_state_block_has_an_item_of_its_own" in broken
    assert len(broken) <= 2, broken


def test_kit_catches_a_state_block_that_is_not_erased():
    broken = broken_laws(kit_for(WithStateBlocksLeft))
    assert "test_erase_reaches_every_state_block" in broken
    assert len(broken) <= 2, broken


def test_kit_catches_search_in_other_sessions():
    broken = broken_laws(kit_for(WithSearchInEverySession))
    assert "test_search_of_a_session_finds_nothing_of_others" in broken
    assert all("search" in law for law in broken)


def test_kit_catches_an_index_with_erased_entries():
    broken = broken_laws(kit_for(WithIndexThatForgetsNothing))
    assert "test_search_never_finds_an_erased_entry" in broken
    assert all("search" in law for law in broken)
