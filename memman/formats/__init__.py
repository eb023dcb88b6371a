"""Message formats: one module each to parse and render, `turns` for what is valid in all of them.

`rules` checks anybody's messages against what the providers enforce; it knows nothing of the renderers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from memman.display import did_you_mean, safe_repr, shape_of
from memman.errors import FormatError, PluginNotFound
from memman.formats.anthropic import AnthropicFormat
from memman.formats.bedrock import BedrockFormat
from memman.formats.foreign import fault_of
from memman.formats.gemini import GeminiFormat
from memman.formats.langchain import LangChainFormat
from memman.formats.mistral import MistralFormat
from memman.formats.openai_chat import OpenAIChatFormat
from memman.formats.openai_responses import OpenAIResponsesFormat
from memman.formats.plain import plain_items, plain_messages
from memman.formats.renderer import Rendering, prompt_in
from memman.formats.text import TextFormat
from memman.protocols import Format

__all__ = [
    "ALIASES",
    "BUILTIN_FORMATS",
    "AnthropicFormat",
    "BedrockFormat",
    "GeminiFormat",
    "LangChainFormat",
    "MistralFormat",
    "OpenAIChatFormat",
    "OpenAIResponsesFormat",
    "FormatName",
    "Rendering",
    "TextFormat",
    "candidates",
    "detect_format",
    "format_named",
    "plain_items",
    "plain_messages",
    "prompt_in",
]

FormatName = Literal[
    "openai-chat", "openai-responses", "anthropic", "gemini", "bedrock", "mistral", "langchain", "text",
    "openai", "responses", "claude", "google",
]  # fmt: skip
"""The names of memman's own formats, for type checkers; plugins have others."""
ALIASES: Final = {
    "openai": "openai-chat",
    "responses": "openai-responses",
    "claude": "anthropic",
    "google": "gemini",
}
BUILTIN_FORMATS: tuple[Format, ...] = (
    OpenAIChatFormat(),
    AnthropicFormat(),
    TextFormat(),
    OpenAIResponsesFormat(),
    GeminiFormat(),
    BedrockFormat(),
    MistralFormat(),
    LangChainFormat(),
)


def format_named(name: str, formats: Iterable[Format] = BUILTIN_FORMATS) -> Format:
    """Return the format of this name or alias. Raises `PluginNotFound` that lists the known ones."""
    known = {known.name: known for known in formats}
    form = (known.get(name) or known.get(ALIASES.get(name, ""))) if isinstance(name, str) else None
    if form is None:
        hint = did_you_mean(name, [*known, *ALIASES]) or ";"
        raise PluginNotFound(
            f"no message format is called {safe_repr(name)}{hint} known are {', '.join(known)}"
        )
    return form


def candidates(
    messages: Sequence[Any], formats: Iterable[Format] = BUILTIN_FORMATS
) -> tuple[int, list[Format]]:
    """How sure the surest formats are of these messages, and which they are, in the order given."""
    scored = [(form.detect(messages), form) for form in formats]
    best = max((score for score, _ in scored), default=0)
    return best, [form for score, form in scored if score == best and score > 0]


def detect_format(messages: Sequence[Any], formats: Iterable[Format] = BUILTIN_FORMATS) -> Format:
    """The format that these messages are most surely in.

    Messages of roles and texts, of which no format is surer than 1, read alike in all; the first takes
    them.
    Raises `FormatError` when none takes them, or when several are equally sure for reasons of their own.
    """
    known = list(formats)
    score, found = candidates(messages, known)
    if len(found) > 1 and score > 1:
        names = " or ".join(form.name for form in found)
        raise FormatError(f"these messages may be {names}: name the format")
    fault, index = (fault_of(messages) if score <= 1 else None) or ("", None)
    if fault:
        raise FormatError(fault, index)
    if found:
        return found[0]
    first = shape_of(messages[0]) if messages else "nothing"
    raise FormatError(
        f"these messages are in no known format ({', '.join(form.name for form in known)}); "
        f"the first is {first}. Name the format, or give whole messages or the response itself."
    )
