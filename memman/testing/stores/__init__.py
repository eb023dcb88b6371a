"""The laws of a store, each one a test: those of `Store`, and those of each optional capability."""

from memman.testing.stores.base import erase_entries
from memman.testing.stores.capabilities import (
    EraseLaws,
    FeedLaws,
    FindLaws,
    LeaseLaws,
    SessionsLaws,
    StateLaws,
)
from memman.testing.stores.records import AT, added, retraction, summary_of
from memman.testing.stores.required import AppendLaws, CommitLaws, DeleteLaws, ReadLaws, ThreadLaws
from memman.testing.stores.search import SearchLaws

__all__ = ["AT", "StoreConformance", "added", "erase_entries", "retraction", "summary_of"]


class StoreConformance(
    AppendLaws,
    CommitLaws,
    ReadLaws,
    DeleteLaws,
    ThreadLaws,
    StateLaws,
    FindLaws,
    SessionsLaws,
    FeedLaws,
    LeaseLaws,
    EraseLaws,
    SearchLaws,
):
    """Derive a test class from it and implement `make_store`; every law becomes a test.

    The laws of a capability are skipped if the store lacks its method. To test a store of coroutines,
    return a facade whose methods run each coroutine to its end.
    """
