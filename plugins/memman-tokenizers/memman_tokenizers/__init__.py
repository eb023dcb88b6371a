"""Exact local token counts from a Hugging Face `tokenizer.json` on this machine.

A plugin of memman. The variable `MEMMAN_TOKENIZERS` says which models have which file; a counter can
also be made by hand, `TokenizerCounter(path)`, and given to a manager. Nothing is ever downloaded.
Importing it does not load the library `tokenizers`; making a counter does.
"""

from __future__ import annotations

from memman import hookimpl
from memman.errors import CounterUnavailable
from memman.protocols import CounterSpec, ModelRef
from memman_tokenizers.counter import TokenizerCounter
from memman_tokenizers.settings import VARIABLE, file_for

__all__ = ["TokenizerCounter", "memman_token_counters"]

# A file that the user named for a model goes before what any plugin knows of it (20 at most).
_NAMED = 30


def _match(model: ModelRef) -> int:
    """30 for a model that the setting names, and for every model where the setting cannot be read.

    So what is wrong with the setting is said by `_make`, where people look for reasons.
    """
    try:
        return _NAMED if file_for(model.name) else 0
    except CounterUnavailable:
        return _NAMED


def _make(model: ModelRef) -> TokenizerCounter:
    """The counter with the file for `model`.

    Raises `CounterUnavailable` when the setting cannot be read or names none for the model, and
    when its file is missing or no tokenizer.
    """
    path = file_for(model.name)
    if path is None:
        raise CounterUnavailable(
            f"{VARIABLE} names no file for the model {model.name!r}: "
            f"set it to {model.name}=/path/to/tokenizer.json"
        )
    return TokenizerCounter(path)


@hookimpl
def memman_token_counters() -> list[CounterSpec]:
    """One local counter, `tokenizers`."""
    return [CounterSpec(name="tokenizers", match=_match, factory=_make, accuracy="high")]
