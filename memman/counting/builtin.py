"""The estimators that need nothing: `chars4` and `bytes4`.

Both are rules of thumb (four characters, or four UTF-8 bytes, make a token). `bytes4` equals `chars4` on
ASCII and does not halve the count of Chinese or Japanese text, so it is the counter of last resort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memman.ports import CounterSpec, ModelRef


class Estimator:
    """A counter made of one arithmetic rule. It matches every model and cannot fail."""

    def __init__(self, name: str, rule: Callable[[str], int]) -> None:
        self.fingerprint = name
        self._rule = rule

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, 0 for an empty one."""
        return [self._rule(text) for text in texts]


def _bytes4(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    return (size + 3) // 4


CHARS4 = Estimator("chars4", lambda text: (len(text) + 3) // 4)
BYTES4 = Estimator("bytes4", _bytes4)


def builtin_specs() -> list[CounterSpec]:
    """The estimators as ordinary counters; `bytes4` comes last and matches everything."""
    return [_spec(CHARS4, 0), _spec(BYTES4, 1)]


def _spec(counter: Estimator, match: int) -> CounterSpec:
    def matches(_model: ModelRef) -> int:
        return match

    def make(_model: ModelRef) -> Estimator:
        return counter

    return CounterSpec(name=counter.fingerprint, match=matches, factory=make, accuracy="low")
