"""Exact local token counts for Mistral's models, without the network.

A plugin of memman: install it, and the models whose tokenizer mistral-common carries are counted with it.
Importing it loads neither mistral-common nor a tokenizer; making a counter does, once in a process.
"""

from __future__ import annotations

from memman import hookimpl
from memman.errors import CounterUnavailable
from memman.protocols import CounterSpec, ModelRef
from memman_mistral.counter import MistralCounter
from memman_mistral.models import vocabulary_of

__all__ = ["MistralCounter", "memman_token_counters"]


def _match(model: ModelRef) -> int:
    """How surely the vocabulary of `model` is known: 20 published or measured, 10 assumed, 0 not."""
    known = vocabulary_of(model.name)
    return known.certainty if known else 0


def _make(model: ModelRef) -> MistralCounter:
    """The counter for `model`, with its vocabulary loaded.

    Raises `CounterUnavailable` for a model whose tokenizer mistral-common does not carry.
    """
    # It imports numpy and pydantic: more than a list of counters should have to.
    from memman_mistral.tokenizers import loaded

    known = vocabulary_of(model.name)
    if known is None:
        raise CounterUnavailable(
            f"mistral-common carries no tokenizer for the model {model.name!r}: give the name of a "
            "Mistral model that it has, or map this one to it with the hook `memman_resolve_model`"
        )
    return loaded(known.vocabulary)


@hookimpl
def memman_token_counters() -> list[CounterSpec]:
    """One local counter, `mistral`."""
    return [CounterSpec(name="mistral", match=_match, factory=_make, accuracy="high")]
