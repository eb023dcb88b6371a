"""A model from any spelling, and the family whose tokenizer and framing it shares."""

from __future__ import annotations

import re
from typing import Final

from memman.ports import ModelRef

# The first pattern that a name begins with decides.
_FAMILIES: Final = tuple(
    (re.compile(pattern), family)
    for pattern, family in (
        (r"(chatgpt-|gpt-)4o", "gpt-4o"),
        (r"gpt-4\.[1-9]", "gpt-4.1"),
        (r"(gpt-[5-9]|gpt-oss|codex)", "gpt-5"),
        (r"o\d", "o-series"),
        (r"gpt-4", "gpt-4"),
        (r"gpt-3\.?5", "gpt-3.5"),
        (r"claude-(instant|v?[12]\b|3)", "claude-3"),
        (r"claude-(opus|sonnet|haiku)-(4[-.][789]|[5-9])", "claude-4.7"),
        (r"claude-(opus-|sonnet-|haiku-)?4", "claude-4"),
        (r"claude-[5-9]", "claude-4.7"),
        (r"gemini-(2|1)", "gemini-2"),
        (r"gemini-[3-9]", "gemini-3"),
        (r"glm", "glm"),
        (r"kimi|moonshot", "kimi"),
        (r"(open-)?(mi[sx]tral|magistral|codestral|devstral|ministral|pixtral)", "mistral"),
        (r"deepseek", "deepseek"),
        (r"qw(en|q)", "qwen"),
        (r"grok", "grok"),
        (r"command", "command"),
        (r"llama", "llama"),
        (r"nova", "nova"),
    )
)
FAMILIES: Final = tuple(dict.fromkeys(family for _, family in _FAMILIES))


def model_ref(model: str) -> ModelRef:
    """A model from any spelling: lower case, and what stands before the last `/` as its provider."""
    name = model.strip().lower()
    provider, _, bare = name.rpartition("/")
    name = bare or name
    return ModelRef(name=name, provider=provider or None, given=model, family=family_of(name))


def family_of(name: str) -> str:
    """The family of a normalised name, "" where it is unknown."""
    return next((family for pattern, family in _FAMILIES if pattern.match(name)), "")
