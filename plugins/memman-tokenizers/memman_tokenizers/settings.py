"""The files of models, by the variable `MEMMAN_TOKENIZERS`.

    MEMMAN_TOKENIZERS="qwen3=/models/qwen3/tokenizer.json,llama-3*=/models/llama3/tokenizer.json"

Entries are separated by commas. A pattern is the start of a model's name, in lower case and without its
provider; with `*`, `?` or `[` in it, it is a pattern for the whole name. The longest match decides.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from memman.errors import CounterUnavailable

VARIABLE: Final = "MEMMAN_TOKENIZERS"


def file_for(model: str) -> Path | None:
    """Return the file that the setting names for a model, None if there is none.

    Raises `CounterUnavailable` for an entry that is not `pattern=path`.
    """
    setting = os.environ.get(VARIABLE, "")
    entries = [_parsed(entry) for entry in setting.split(",") if entry.strip()]
    fitting = [entry for entry in entries if _fits(entry[0], model)]
    if not fitting:
        return None
    return max(fitting, key=lambda entry: len(entry[0]))[1]


def _parsed(entry: str) -> tuple[str, Path]:
    pattern, equals, path = (part.strip() for part in entry.partition("="))
    if not (equals and pattern and path):
        raise CounterUnavailable(
            f"{VARIABLE} has the entry {entry.strip()!r}: each has to be pattern=path, "
            "as in qwen3=/models/qwen3/tokenizer.json, and they are divided by commas"
        )
    return pattern.lower(), Path(path).expanduser()


def _fits(pattern: str, model: str) -> bool:
    if any(sign in pattern for sign in "*?["):
        return fnmatchcase(model, pattern)
    return model.startswith(pattern)
