"""Messages of other frameworks and messages without content: recognised, named, refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from memman.display import safe_repr

_ROLES: Final = ("system", "user", "assistant", "tool")
_ALL_ROLES: Final = (*_ROLES, "developer", "function", "model")
# An assistant's reply may consist of these alone.
_SAID: Final = (
    "content", "tool_calls", "function_call", "refusal", "audio", "images", "reasoning",
    "reasoning_content", "reasoning_details", "thinking", "thinking_blocks",
)  # fmt: skip
_BY_HAND: Final = (
    "add it with add_user_message, add_assistant_message, add_tool_call, add_tool_result"
)
_LLAMA_INDEX: Final = (
    "LlamaIndex",
    "convert the messages with to_openai_message_dicts of llama_index.llms.openai.utils",
)
_AGENT_FRAMEWORK: Final = ("Agent Framework", _BY_HAND)
_PYDANTIC_AI: Final = ("pydantic-ai", _BY_HAND)
_VERCEL: Final = ("the Vercel AI SDK", _BY_HAND)
_ADK: Final = ("Google ADK", "pass the event's content, in the format gemini")
_AUTOGEN: Final = ("AutoGen", _BY_HAND)
_OF_PARTS: Final = {"part_kind": _PYDANTIC_AI, "toolCallId": _VERCEL}
_BY_PACKAGE: Final = {
    "agent_framework": _AGENT_FRAMEWORK,
    "autogen_agentchat": _AUTOGEN,
    "autogen_core": _AUTOGEN,
    "llama_index": _LLAMA_INDEX,
    "pydantic_ai": _PYDANTIC_AI,
}


def has_content(message: Mapping[str, Any]) -> bool:
    """Return whether a message has a content, or an assistant's has calls or the like instead."""
    if "content" in message:
        return True
    return message.get("role") == "assistant" and any(key in message for key in _SAID)


def fault_of(messages: Sequence[Any]) -> tuple[str, int] | None:
    """Return what is wrong with the first message that belongs to no provider, and its index."""
    for index, message in enumerate(messages):
        if isinstance(message, Mapping) and (fault := fault_in(message)):
            return f"message {index}: {fault}", index
    return None


def advice_for(message: object) -> str:
    """Return what to do with an object of another framework, "" if its package is unknown."""
    module = type(message).__module__
    found = _BY_PACKAGE.get(module.partition(".")[0])
    return f"it is {_advice(*found)}" if found else ""


def fault_in(message: Mapping[str, Any]) -> str:
    """Return why a message is none of a provider's, "" if nothing is wrong with it alone."""
    key, framework = _framework_of(message)
    if framework:
        return f"{key!r} makes it {_advice(*framework)}"
    role = message.get("role")
    if "role" not in message:
        return ""
    if role not in _ALL_ROLES:
        return _wrong_role(role)
    if not has_content(message) and "parts" not in message:
        return f"it has the role {safe_repr(role)} and no content; it needs a 'content'"
    return ""


def _wrong_role(role: object) -> str:
    meant = get_close_matches(role, _ALL_ROLES, 1) if isinstance(role, str) else []
    hint = f"; did you mean {meant[0]!r}?" if meant else ""
    return f"role {safe_repr(role, 40)} is none of {', '.join(_ROLES)}{hint}"


def _advice(framework: str, remedy: str) -> str:
    return f"a message of {framework}, which is not read: {remedy}"


def _framework_of(message: Mapping[str, Any]) -> tuple[str, tuple[str, str] | None]:
    """Return the key by which a message of a framework is known, and that framework."""
    if "role" in message and not message.get("content"):
        if isinstance(message.get("blocks"), list):
            return "blocks", _LLAMA_INDEX
        if isinstance(message.get("contents"), list):
            return "contents", _AGENT_FRAMEWORK
    for part in message["parts"] if isinstance(message.get("parts"), list) else ():
        for key, framework in _OF_PARTS.items():
            if isinstance(part, Mapping) and key in part:
                return key, framework
    if "author" in message and isinstance(message.get("content"), Mapping):
        return "author", _ADK
    kind = message.get("type")
    if "source" in message and isinstance(kind, str) and kind.endswith(("Message", "Event")):
        return "source", _AUTOGEN
    return "", None
