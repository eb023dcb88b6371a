"""Exact local token counts from a Hugging Face `tokenizer.json` on this machine.

The variable `MEMMAN_TOKENIZERS` names the file of each model; a counter can also be made directly,
`TokenizerCounter(path)`, and given to a manager. Nothing is downloaded. Importing this plugin does not
load the library `tokenizers`; making a counter does.
"""

from __future__ import annotations

from memman import hookimpl
from memman.errors import CounterUnavailable
from memman.protocols import CounterSpec, ModelRef
from memman_tokenizers.counter import TokenizerCounter
from memman_tokenizers.settings import VARIABLE, file_for

__all__ = ["TokenizerCounter", "memman_token_counters"]

# A file that the user named for a model precedes every plugin's own match (20 at most).
_NAMED = 30


def _match(model: ModelRef) -> int:
    """Return 30 for a model in the setting, and for every model if the setting is unreadable.

    So `_make` reports the error of the setting, with the reasons for other counters.
    """
    try:
        return _NAMED if file_for(model.name) else 0
    except CounterUnavailable:
        return _NAMED


def _make(model: ModelRef) -> TokenizerCounter:
    """Return the counter with the file for `model`.

    Raises `CounterUnavailable` if the setting is unreadable or has no file for the model, and if its file
    is missing or not a tokenizer.
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
    """List one local counter, `tokenizers`."""
    return [CounterSpec(name="tokenizers", match=_match, factory=_make, accuracy="high")]
