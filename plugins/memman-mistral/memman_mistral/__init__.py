"""Exact local token counts for Mistral's models, without the network.

mistral-common's tokenizers count the models that it carries them for. Importing this plugin loads neither
mistral-common nor a tokenizer; making a counter does, once in a process.
"""

from __future__ import annotations

from memman import hookimpl
from memman.errors import CounterUnavailable
from memman.protocols import CounterSpec, ModelRef
from memman_mistral.counter import MistralCounter
from memman_mistral.models import vocabulary_of

__all__ = ["MistralCounter", "memman_token_counters"]


def _match(model: ModelRef) -> int:
    """Return 20 if the vocabulary of `model` is published or measured, 10 if assumed, else 0."""
    known = vocabulary_of(model.name)
    return known.certainty if known else 0


def _make(model: ModelRef) -> MistralCounter:
    """Return the counter for `model`, with its vocabulary loaded.

    Raises `CounterUnavailable` if mistral-common has no tokenizer for it.
    """
    # It imports numpy and pydantic, which listing counters must not.
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
    """List one local counter, `mistral`."""
    return [CounterSpec(name="mistral", match=_match, factory=_make, accuracy="high")]
