"""Which facts an agent would still find in its context: a quality gate for compression."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from memman.async_manager import AsyncMemoryManager
from memman.explain.values import stands_alone
from memman.manager import MemoryManager
from memman.testing.laws import settled


class Survival(msgspec.Struct, frozen=True):
    """The facts that stand in the context, and those that do not, in the order given."""

    kept: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """The share that is kept; 1.0 where there were none."""
        total = len(self.kept) + len(self.lost)
        return len(self.kept) / total if total else 1.0


def survival(
    manager: MemoryManager | AsyncMemoryManager, session_id: str, facts: Iterable[str]
) -> Survival:
    """Which of some strings stand, word for word, in the context that a model would get now.

    `8841` is not found in `18841`. An `AsyncMemoryManager` is asked in a loop of its own, so not from
    inside a running one. Raises what `get_context_for_llm` raises.
    """
    text = settled(manager.get_context_for_llm(session_id))
    kept: dict[str, bool] = {fact: stands_alone(fact, text) for fact in facts}
    return Survival(
        tuple(fact for fact, found in kept.items() if found),
        tuple(fact for fact, found in kept.items() if not found),
    )
