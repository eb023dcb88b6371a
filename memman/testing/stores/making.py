"""How the store under test is made."""

from __future__ import annotations

from typing import ClassVar

from memman.protocols import Store


class Making:
    """What every law begins with: a new and empty store.

    The laws stand in classes of one idea each, which `StoreConformance` puts together.
    """

    # Random lives of a session that are played; fewer where calls take long.
    lives: ClassVar[int] = 12
    # Whether the records are kept in this process, so that holding them is the point.
    in_process: ClassVar[bool] = False

    def make_store(self) -> Store:
        """A new and empty store."""
        raise NotImplementedError

    def reopen(self, store: Store) -> Store:
        """Another opening of the same data; the store itself where nothing survives the process."""
        return store
