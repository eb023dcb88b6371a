"""Counting with a `tokenizer.json`: what the model's own tokenizer makes of a text."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from memman.errors import CounterUnavailable

_DIGEST_CHARACTERS: Final = 16


class TokenizerCounter:
    """Counts texts as the tokenizer in a file does. Any thread may use it.

    A special token that is spelled in a text (`<|endoftext|>`) counts as the ordinary text it is; the
    tokens that a chat template or a post-processor puts around a text are not in it, and not counted.
    Truncation and padding that the file asks for are switched off. Lone surrogates count as the
    replacement character. The fingerprint has the digest of the file, not its path.

    Raises `CounterUnavailable`, naming the file, when it is missing or no tokenizer.
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
        """Tokens of each text. Raises `CounterUnavailable` when the tokenizer fails at one."""
        try:
            return [self._count(_repaired(text)) for text in texts]
        except BaseException as error:
            if isinstance(error, TypeError) or not _of_the_library(error):
                raise
            raise CounterUnavailable(f"{self.fingerprint} failed at a text: {error}") from error

    def _count(self, text: str) -> int:
        # Some tokenizers put a mark where a text begins, even where there is no text.
        return len(self._tokenizer.encode(text, add_special_tokens=False)) if text else 0


def _of_the_library(error: BaseException) -> bool:
    """Whether an error may be the library's: it raises plain ones, and panics are BaseExceptions."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _repaired(text: str) -> str:
    """The text with its surrogates paired or replaced."""
    if not isinstance(text, str):
        raise TypeError(f"a text to count must be a string, not {type(text).__name__}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
