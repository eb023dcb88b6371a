"""Message formats: one module for each, loaded on first use, and `turns` for the common structure.

`rules` checks any messages against the providers' rules, independently of the renderers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final, Literal

from memman.display import did_you_mean, safe_repr, shape_of
from memman.errors import FormatError, PluginNotFound
from memman.formats.plain import LOGS, fault_of, log_of, plain_items, plain_messages
from memman.formats.renderer import Rendering
from memman.plugins import how_to_install
from memman.protocols import Format

__all__ = [
    "ALIASES",
    "FormatName",
    "Rendering",
    "builtin_format",
    "builtin_formats",
    "candidates",
    "detect_format",
    "format_named",
    "plain_items",
    "plain_messages",
]

FormatName = Literal[
    "openai-chat", "openai-responses", "anthropic", "gemini", "bedrock", "mistral", "langchain", "text",
    "openai", "responses", "claude", "google",
]  # fmt: skip
"""The names of the built-in formats, for type checkers; plugins have others."""
ALIASES: Final = {
    "openai": "openai-chat",
    "responses": "openai-responses",
    "claude": "anthropic",
    "google": "gemini",
}
_IN_THE_COMMAND: Final = f"`memman import FILE` reads it ({how_to_install('memman-cli')})"
_MODULES: Final = {
    "openai-chat": ("openai_chat", "OpenAIChatFormat"),
    "anthropic": ("anthropic", "AnthropicFormat"),
    "text": ("text", "TextFormat"),
    "openai-responses": ("openai_responses", "OpenAIResponsesFormat"),
    "gemini": ("gemini", "GeminiFormat"),
    "bedrock": ("bedrock", "BedrockFormat"),
    "mistral": ("mistral", "MistralFormat"),
    "langchain": ("langchain", "LangChainFormat"),
}


@cache
def builtin_format(name: str) -> Format | None:
    """Return the built-in format of this name, if there is one."""
    if name not in _MODULES:
        return None
    module, cls = _MODULES[name]
    form: Format = getattr(import_module(f"memman.formats.{module}"), cls)()
    return form


def builtin_formats() -> tuple[Format, ...]:
    """Return all built-in formats."""
    return tuple(form for name in _MODULES if (form := builtin_format(name)) is not None)


def format_named(name: str, formats: Iterable[Format] | None = None) -> Format:
    """Return the format of this name or alias, by default a built-in one.

    Raises:
        PluginNotFound: no format has this name; the error lists the known ones.
    """
    known = {form.name: form for form in (builtin_formats() if formats is None else formats)}
    form = (known.get(name) or known.get(ALIASES.get(name, ""))) if isinstance(name, str) else None
    if form is None:
        hint = did_you_mean(name, [*known, *ALIASES]) or ";"
        if isinstance(name, str) and name in LOGS:
            hint = f", but a log: {_IN_THE_COMMAND};"
        raise PluginNotFound(
            f"no message format is called {safe_repr(name)}{hint} known are {', '.join(known)}"
        )
    return form


def candidates(messages: Sequence[Any], formats: Iterable[Format]) -> tuple[int, list[Format]]:
    """Return the highest certainty of the formats for these messages, and the formats that have it."""
    scored = [(form.detect(messages), form) for form in formats]
    best = max((score for score, _ in scored), default=0)
    return best, [form for score, form in scored if score == best and score > 0]


def detect_format(messages: Sequence[Any], formats: Iterable[Format] | None = None) -> Format:
    """Return the format that these messages are most certainly in, by default a built-in one.

    Messages of roles and texts alone have the certainty 1 in several formats and read alike in all; the
    first format takes them.

    Raises:
        FormatError: no format recognises them, or several are equally certain with more than 1.
    """
    known = list(builtin_formats() if formats is None else formats)
    score, found = candidates(messages, known)
    if len(found) > 1 and score > 1:
        names = " or ".join(form.name for form in found)
        raise FormatError(f"these messages may be {names}: name the format")
    fault, index = (fault_of(messages) if score <= 1 else None) or ("", None)
    if fault:
        raise FormatError(fault, index)
    if found:
        return found[0]
    producer, is_read = log_of(messages)
    if producer:
        remedy = _IN_THE_COMMAND if is_read else "no format here reads it; pass the messages in it"
        raise FormatError(f"these items are from a file of {producer}: {remedy}")
    first = shape_of(messages[0]) if messages else "nothing"
    raise FormatError(
        f"unknown message format; known are {', '.join(form.name for form in known)}. "
        f"The first message is {first}. Name the format, or pass whole messages or the response itself."
    )
