"""What a summarizer's reply must not be, told without reading anybody's prose.

Each check is sure where it says no: a summary that is refused for nothing costs a call, one that is taken
for nothing costs the conversation.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from memman.compression.layout import parts_of_reply
from memman.compression.material import CONVERSATION
from memman.compression.refusals import is_refusal
from memman.entries import is_encodable
from memman.protocols import SummaryReply, SummaryRequest

_ECHO_CHARS: Final = 200
_TOOL_MARKUP: Final = re.compile(
    r"(?:```\w*\s*)?(?:<(?:\w+:)?(?:tool_call|tool_use|tool_code|function_calls?|invoke|function=|tool\b)"
    r"|<\|(?:tool|python_tag|channel\|>\s*commentary)|<\uff5ctool|\[TOOL_CALLS?\]|\[TOOL_REQUEST\]|```tool_(?:code|call))",
    re.IGNORECASE,
)
_FENCE: Final = "```"
_LANGUAGE: Final = re.compile(r"\w*")
_THINKING: Final = re.compile(
    r"\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE
)
_CALLED: Final = ("name", "tool", "tool_name", "function", "recipient_name", "action")
_WITH: Final = ("arguments", "parameters", "input", "args", "tool_input", "action_input")


def answer_of(text: str) -> str:
    """A reply without the thinking that it begins with, where a server does not part the two."""
    thinking = _THINKING.match(text)
    return text[thinking.end() :].strip() if thinking else text.strip()


def fault_of(reply: SummaryReply, request: SummaryRequest) -> str:
    """Why a reply is no summary, however long it is; "" where it may be one."""
    text = reply.text.strip()
    if reply.refused:
        return "the summarizer refused"
    # Nothing that anybody could read, or nothing but what is not its to write.
    if not any(map(str.isalnum, parts_of_reply(text).text)):
        return "the summary was empty"
    if not is_encodable(text):
        return "the summary held a lone surrogate"
    if reply.truncated:
        return "the summary was cut off by the provider"
    if is_refusal(text):
        return "the summarizer refused in words"
    if _is_tool_syntax(text):
        return "the summary was a tool call"
    if _is_echo(text, request.prompt):
        return "the summary was the prompt itself"
    return ""


def _is_tool_syntax(text: str) -> bool:
    """Whether a reply begins like a tool call, as markup or as the JSON of one."""
    if _TOOL_MARKUP.match(text):
        return True
    inside = _without_fence(text)
    if not inside.startswith(("{", "[")):
        return False
    try:
        return _is_call(msgspec.json.decode(inside))
    except (msgspec.DecodeError, RecursionError):
        return False


def _without_fence(text: str) -> str:
    """The text inside a Markdown code fence, or the text itself if it has none."""
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    return _LANGUAGE.sub("", text[len(_FENCE) : -len(_FENCE)], count=1).strip()


def _is_call(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_call, value))
    if not isinstance(value, dict):
        return False
    if "tool_calls" in value or "tool_call" in value or "function_call" in value:
        return True
    if value.get("type") in ("tool_use", "function_call"):
        return True
    return any(key in value for key in _CALLED) and any(key in value for key in _WITH)


def _is_echo(text: str, prompt: str) -> bool:
    """Whether a reply has our delimiters, or begins as the prompt does; the same summary again is one."""
    return CONVERSATION in text or text.startswith(prompt.strip()[:_ECHO_CHARS])
