"""The tokenizers in mistral-common, each loaded once in a process, never over a network."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final

from memman.errors import CounterUnavailable
from memman.providers import renew_in_child
from memman_mistral.counter import MistralCounter
from memman_mistral.models import SENTENCEPIECE

# One file of each vocabulary: the other versions differ in control tokens, which text never counts as.
_FILES: Final = {
    SENTENCEPIECE: "mistral_instruct_tokenizer_240323.model.v3",
    "tekken": "tekken_240718.json",
}
_lock = threading.Lock()
_loaded: dict[str, MistralCounter] = {}


def _renew() -> None:
    """Begin with a free lock: a thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()


renew_in_child(_renew)


def loaded(vocabulary: str) -> MistralCounter:
    """Return the shared counter of a vocabulary.

    Raises `CounterUnavailable` if this release of mistral-common lacks it.
    """
    with _lock:
        known = _loaded.get(vocabulary)
        if known is None:
            known = _loaded[vocabulary] = counter_of(_FILES[vocabulary], vocabulary)
        return known


def counter_of(file_name: str, vocabulary: str) -> MistralCounter:
    """Return a counter with one file of mistral-common's data folder."""
    import mistral_common

    path = Path(mistral_common.__path__[0]) / "data" / file_name
    if not path.is_file():
        raise CounterUnavailable(
            f"this release of mistral-common does not carry {file_name}: install the one that "
            "memman-mistral was made for (1.13)"
        )
    tokenizer: Any
    if vocabulary == SENTENCEPIECE:
        from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer

        tokenizer = SentencePieceTokenizer(str(path))
    else:
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        tokenizer = Tekkenizer.from_file(str(path))

    def encode(text: str) -> list[int]:
        tokens: list[int] = tokenizer.encode(text, bos=False, eos=False)
        return tokens

    return MistralCounter(vocabulary, encode, whole=vocabulary == SENTENCEPIECE)
