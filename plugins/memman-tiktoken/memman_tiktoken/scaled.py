"""Counts for models of other vendors: o200k_base times a factor of the family.

No vendor but OpenAI publishes a vocabulary for its newest models, and an o200k_base count with one factor
is within a few percent for most of them. The factors are memman's data (`framing.json`), with source
and date.
"""

from __future__ import annotations

from collections.abc import Sequence

from memman.protocols import LocalCounter, ModelRef
from memman.providers import framing_of

# Below every counter that knows a vocabulary, above the counters of last resort (1 and less).
MATCH = 2


class ScaledCounter:
    """Counts texts with OpenAI's vocabulary and scales to another family. Any thread may use it."""

    def __init__(self, counter: LocalCounter, factor: float) -> None:
        self.fingerprint = f"{counter.fingerprint}*{factor:g}"
        self._counter = counter
        self._factor = factor

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens of each text, rounded; a text costs at least one."""
        factor = self._factor
        counts = self._counter.count_texts(texts)
        return [max(round(count * factor), 1) if count else 0 for count in counts]


def match(model: ModelRef) -> int:
    """Return 2 for a model of a known family, 0 for any other."""
    return MATCH if model.family and framing_of(model).key != "other" else 0
