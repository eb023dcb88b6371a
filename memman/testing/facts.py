"""Facts that survive in a context: a quality gate for compression."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from memman.async_manager import AsyncMemoryManager
from memman.compression.words import stands_alone
from memman.manager import MemoryManager
from memman.testing.laws import finished_answer


class Survival(msgspec.Struct, frozen=True):
    """The facts that the context has, and those that it lacks, in the order given."""

    kept: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """Return the share of facts that is kept; 1.0 for no facts."""
        total = len(self.kept) + len(self.lost)
        return len(self.kept) / total if total else 1.0


def survival(
    manager: MemoryManager | AsyncMemoryManager, session_id: str, facts: Iterable[str]
) -> Survival:
    """Return which strings the current context contains word for word.

    `8841` is not found in `18841`. An `AsyncMemoryManager` runs in a loop of its own, so not inside a
    running one. Raises the errors of `get_context_for_llm`.
    """
    text = finished_answer(manager.get_context_for_llm(session_id))
    listed = dict.fromkeys(facts)
    kept = tuple(fact for fact in listed if stands_alone(fact, text))
    return Survival(kept, tuple(fact for fact in listed if fact not in kept))
