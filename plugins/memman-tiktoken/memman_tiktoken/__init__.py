"""Exact local token counts for OpenAI models, without the network.

OpenAI's models are counted with their own vocabularies. Importing this plugin loads no tokenizer and no
vocabulary; making a counter does, once in a process.
"""

from __future__ import annotations

from memman import hookimpl
from memman.errors import CounterUnavailable
from memman.protocols import CounterSpec, ModelRef
from memman.providers import framing_of
from memman_tiktoken.backends import backend_for
from memman_tiktoken.counter import FastCounter, TiktokenCounter
from memman_tiktoken.models import ASSUMED, PUBLISHED, encoding_of
from memman_tiktoken.scaled import ScaledCounter, match

__all__ = [
    "FastCounter",
    "ScaledCounter",
    "TiktokenCounter",
    "counter_in",
    "memman_token_counters",
]


def _match(model: ModelRef) -> int:
    """Return 20 for a model with a published encoding, else 0."""
    return _certain(model, PUBLISHED)


def _match_assumed(model: ModelRef) -> int:
    """Return 10 for a model that is assumed to use its predecessors' encoding, else 0."""
    return _certain(model, ASSUMED)


def _certain(model: ModelRef, certainty: int) -> int:
    known = encoding_of(model.name)
    return certainty if known and known.certainty == certainty else 0


def _make(model: ModelRef) -> FastCounter | TiktokenCounter:
    """Return the counter for `model`, loaded and checked: the fastest exact one that is installed.

    Raises `CounterUnavailable` for a model without a known encoding, and if its vocabulary is missing.
    """
    known = encoding_of(model.name)
    if known is None:
        raise CounterUnavailable(
            f"tiktoken has no encoding for the model {model.name!r}: give the name of an OpenAI "
            "model, or map this one to it with the hook `memman_resolve_model`"
        )
    return counter_in(known.encoding)


def counter_in(encoding: str, backend: str | None = None) -> FastCounter | TiktokenCounter:
    """Return the counter of an encoding (`o200k_base`, `cl100k_base`, `p50k_base`, `r50k_base`).

    `backend` is `toktok`, `quicktok` or `tiktoken` for this one only, "" for the best one; by default it
    is `MEMMAN_TIKTOKEN_BACKEND`. Raises `CounterUnavailable` if that backend is missing.
    """
    found = backend_for(encoding, backend)
    if found.function is not None:
        return FastCounter(encoding, found.name, found.function, found.note)
    # It reads files and starts threads: more than a list of counters should have to import.
    from memman_tiktoken import vocabulary

    return TiktokenCounter(vocabulary.encoding(encoding), found.note)


def _make_scaled(model: ModelRef) -> ScaledCounter:
    """Return the counter of another vendor's model. Raises `CounterUnavailable` without a vocabulary."""
    return ScaledCounter(counter_in("o200k_base"), framing_of(model).text)


@hookimpl
def memman_token_counters() -> list[CounterSpec]:
    """List `tiktoken` and `tiktoken-assumed` for OpenAI's models, `tiktoken-scaled` for others."""
    return [
        CounterSpec(name="tiktoken", match=_match, factory=_make, accuracy="high"),
        CounterSpec(
            name="tiktoken-assumed", match=_match_assumed, factory=_make, accuracy="medium"
        ),
        CounterSpec(name="tiktoken-scaled", match=match, factory=_make_scaled, accuracy="medium"),
    ]
