"""Counting with a model's own `tokenizer.json`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from memman.errors import CounterUnavailable

_DIGEST_CHARACTERS: Final = 16


class TokenizerCounter:
    """Counts texts like the tokenizer in a file. Any thread may use it.

    A special token in a text (`<|endoftext|>`) counts as ordinary text. Tokens that a chat template or a
    post-processor adds around a text are not counted. Truncation and padding in the file are switched
    off. Lone surrogates count as the replacement character. The fingerprint has the hash of the file, not
    its path.

    Raises `CounterUnavailable`, naming the file, if it is missing or not a tokenizer.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            contents = Path(path).read_bytes()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise CounterUnavailable(
                f"the tokenizer {os.fspath(path)} could not be read ({reason}): "
                "give the path of a model's tokenizer.json"
            ) from error
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_buffer(contents)
        except BaseException as error:
            if not _of_the_library(error):
                raise
            raise CounterUnavailable(
                f"{os.fspath(path)} is no tokenizer that the library `tokenizers` reads ({error}): "
                "give the path of a model's tokenizer.json"
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        digest = hashlib.sha256(contents).hexdigest()[:_DIGEST_CHARACTERS]
        self.fingerprint = f"tokenizers:{digest}"
        self._tokenizer = tokenizer

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Return the tokens of each text. Raises `CounterUnavailable` if the tokenizer fails."""
        try:
            return [self._count(_repaired(text)) for text in texts]
        except BaseException as error:
            if isinstance(error, TypeError) or not _of_the_library(error):
                raise
            raise CounterUnavailable(f"{self.fingerprint} failed at a text: {error}") from error

    def _count(self, text: str) -> int:
        # Some tokenizers mark the start of a text, even of an empty one.
        return len(self._tokenizer.encode(text, add_special_tokens=False)) if text else 0


def _of_the_library(error: BaseException) -> bool:
    """Return whether an error may be the library's: it raises plain ones, and panics."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _repaired(text: str) -> str:
    """Return the text with its surrogates paired or replaced."""
    if not isinstance(text, str):
        raise TypeError(f"a text to count must be a string, not {type(text).__name__}")
    return (
        text
        if text.isascii()
        else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )
