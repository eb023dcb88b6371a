"""Validation of a summarizer's reply, without interpreting its prose.

A reply is rejected only if it is certainly not a summary: a wrong rejection costs one call, but a wrong
acceptance costs the conversation.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from memman.compression.prompt import CONVERSATION
from memman.entries import is_encodable, json_or
from memman.protocols import SummaryReply, SummaryRequest

_ECHO_CHARS: Final = 200
_TOOL_MARKUP: Final = re.compile(
    r"(?:```\w*\s*)?(?:<(?:\w+:)?(?:tool_call|tool_use|tool_code|function_calls?|invoke|function=|tool\b)"
    r"|<\|(?:tool|python_tag|channel\|>\s*commentary)|<\uff5ctool|\[TOOL_CALLS?\]|\[TOOL_REQUEST\]|```tool_(?:code|call))",
    re.IGNORECASE,
)
_FENCE: Final = "```"
_THINKING: Final = re.compile(
    r"\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE
)
_NAME_KEYS: Final = ("name", "tool", "tool_name", "function", "recipient_name", "action")
_ARGUMENT_KEYS: Final = ("arguments", "parameters", "input", "args", "tool_input", "action_input")
_REFUSAL_CHARS: Final = 200
_WORD: Final = re.compile(r"[^\W_]+")

_Groups = list[list[str]]


def answer_of(text: str) -> str:
    """Return a reply without leading thinking, which some servers leave in the text."""
    thinking = _THINKING.match(text)
    return text[thinking.end() :].strip() if thinking else text.strip()


def fault_of(reply: SummaryReply, request: SummaryRequest) -> str:
    """Return why a reply is not a summary, regardless of its length; "" if it may be one."""
    text = reply.text.strip()
    if reply.refused:
        return "the summarizer refused"
    if reply.calls_tool:
        return "the summarizer called a tool"
    if not any(map(str.isalnum, text)):
        return "the summary was empty"
    if not is_encodable(text):
        return "the summary held a lone surrogate"
    if reply.truncated:
        return "the summary was cut off by the provider"
    if is_refusal(text):
        return "the summarizer refused in its reply"
    if _is_tool_syntax(text):
        return "the summary was a tool call"
    # It contains our delimiters, or begins as the prompt does.
    begin = (request.instruction or request.prompt).strip()[:_ECHO_CHARS]
    if CONVERSATION in text or text.startswith(begin):
        return "the summary was the prompt itself"
    return ""


def _is_tool_syntax(text: str) -> bool:
    """Return True if a reply begins like a tool call, as markup or as JSON."""
    if _TOOL_MARKUP.match(text):
        return True
    if text.startswith(_FENCE) and text.endswith(_FENCE):
        text = re.sub(r"\w*", "", text[len(_FENCE) : -len(_FENCE)], count=1).strip()
    return text.startswith(("{", "[")) and _is_call(json_or(None, text))


def _is_call(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_call, value))
    if not isinstance(value, dict):
        return False
    if "tool_calls" in value or "tool_call" in value or "function_call" in value:
        return True
    if value.get("type") in ("tool_use", "function_call"):
        return True
    return not value.keys().isdisjoint(_NAME_KEYS) and not value.keys().isdisjoint(_ARGUMENT_KEYS)


# ---------------------------------------------------------------- refusals in words


@cache
def _languages() -> tuple[list[_Groups], list[_Groups]]:
    """Return for each language its groups of words: a refusal has one of each group but the last.

    The same for a request to send the conversation. English, German, French, Spanish, Portuguese,
    Italian, Dutch, Russian; Chinese, Japanese, Korean.
    """
    table = (Path(__file__).parent / "refusals.txt").read_bytes().decode()
    spaced, _, unspaced = table.partition("\n\n")
    return _groups(spaced), _groups(unspaced)


def _groups(lines: str) -> list[_Groups]:
    return [[group.split() for group in line.split("|")] for line in lines.splitlines()]


def is_refusal(text: str) -> bool:
    """Return True if a short reply has only words of a refusal, or asks for the conversation."""
    if len(text) > _REFUSAL_CHARS:
        return False
    text = text.lower()
    words = set(_WORD.findall(text))
    spaced, unspaced = _languages()
    return any(_refuses(words, groups) for groups in spaced) or any(
        _refuses(_split(text, groups), groups) for groups in unspaced
    )


def _refuses(words: set[str], groups: _Groups) -> bool:
    known = {word for group in groups for word in group}
    return words <= known and not any(words.isdisjoint(group) for group in groups[:-1])


def _split(text: str, groups: _Groups) -> set[str]:
    """Return the known words of a text without spaces, longest first, and its other words."""
    known = sorted((word for group in groups for word in group), key=len, reverse=True)
    pattern = re.compile("|".join(known))
    return {*pattern.findall(text), *_WORD.findall(pattern.sub(" ", text))}
