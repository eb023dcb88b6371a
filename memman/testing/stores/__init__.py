"""The laws of the `Store` protocol, each a test: one class, of a part for each idea."""

from memman.testing.stores.appending import Appending
from memman.testing.stores.committing import Committing
from memman.testing.stores.erasing import Erasing
from memman.testing.stores.feeding import Feeding
from memman.testing.stores.leasing import Leasing
from memman.testing.stores.reading import Reading
from memman.testing.stores.records import AT, added, summary_of
from memman.testing.stores.threads import Threads
from memman.testing.stores.windows import Windows

__all__ = ["AT", "StoreConformance", "added", "summary_of"]


class StoreConformance(Appending, Committing, Windows, Reading, Feeding, Leasing, Erasing, Threads):
    """Derive from it and say how a store is made; every law of the protocol becomes a test.

    A store whose methods are coroutines is handed over behind a facade that runs each to its end.
    """
