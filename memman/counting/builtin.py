"""Built-in counters: `estimate`, and the rules of thumb `chars4` and `bytes4`.

`estimate` (see `estimator.py`) matches every model and is the counter of last resort. The rules of thumb
(four characters, or four UTF-8 bytes, are a token) are common elsewhere; they are used only by name.
"""

from __future__ import annotations

from memman.counting.counter import CallableCounter
from memman.counting.estimator import ESTIMATE
from memman.protocols import CounterSpec


def _bytes4(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    return (size + 3) // 4


CHARS4 = CallableCounter(lambda text: (len(text) + 3) // 4, "chars4")
BYTES4 = CallableCounter(_bytes4, "bytes4")


def builtin_specs() -> list[CounterSpec]:
    """Return the built-in counters: `estimate` for every model, and the rules of thumb by name."""
    return [ESTIMATE, _spec(CHARS4), _spec(BYTES4)]


def _spec(counter: CallableCounter) -> CounterSpec:
    return CounterSpec(
        name=counter.fingerprint,
        match=lambda _model: 0,
        factory=lambda _model: counter,
        accuracy="low",
    )
