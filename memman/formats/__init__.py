"""Message formats: one module each to parse and render, `turns` for what is valid in all of them.

`rules` checks anybody's messages against what the providers enforce; it knows nothing of the renderers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from memman.errors import FormatError, PluginNotFound
from memman.formats.anthropic import AnthropicFormat
from memman.formats.bedrock import BedrockFormat
from memman.formats.gemini import GeminiFormat
from memman.formats.langchain import LangChainFormat
from memman.formats.mistral import MistralFormat
from memman.formats.openai_chat import OpenAIChatFormat
from memman.formats.openai_responses import OpenAIResponsesFormat
from memman.formats.plain import plain_messages
from memman.formats.rendering import Rendering
from memman.formats.text import TextFormat
from memman.ports import Format

__all__ = [
    "BUILTIN_FORMATS",
    "AnthropicFormat",
    "BedrockFormat",
    "GeminiFormat",
    "LangChainFormat",
    "MistralFormat",
    "OpenAIChatFormat",
    "OpenAIResponsesFormat",
    "Rendering",
    "TextFormat",
    "detect_format",
    "format_named",
    "plain_messages",
]

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
    """The format of this name. Raises `PluginNotFound` that lists the known ones."""
    known = {known.name: known for known in formats}
    if not isinstance(name, str) or name not in known:
        raise PluginNotFound(f"no message format is called {name!r}; known are {', '.join(known)}")
    return known[name]


def detect_format(messages: Sequence[Any], formats: Iterable[Format] = BUILTIN_FORMATS) -> Format:
    """The format that these messages are most surely in; a tie goes to the first registered.

    Raises `FormatError` when none takes them.
    """
    known = list(formats)
    sure, _, best = max(
        ((form.detect(messages), -number, form) for number, form in enumerate(known)),
        key=lambda found: found[:2],
    )
    if sure > 0:
        return best
    first = repr(messages[0])[:80] if messages else "nothing"
    raise FormatError(
        f"these messages are in no known format ({', '.join(form.name for form in known)}); "
        f"the first is {first}. Name the format, or check what is given."
    )
