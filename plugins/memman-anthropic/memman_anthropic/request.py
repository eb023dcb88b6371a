"""A rendered request as arguments of the counting endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from memman.protocols import ModelRef
from memman.providers import Tool, read_tools, sent_name

# The API refuses an empty request, one that begins with the assistant, and blank text. Renderings are
# valid; a caller's own messages may not be.
_GOES_ON: Final = {"role": "user", "content": "."}


def request_of(rendered: Mapping[str, Any], model: ModelRef | None = None) -> dict[str, Any]:
    """Return the arguments of `messages.count_tokens`; `rendered` is not changed."""
    asked: dict[str, Any] = {
        "model": sent_name(rendered["model"], model),
        "messages": repaired(rendered["messages"]),
    }
    if _said(rendered.get("system")):
        asked["system"] = rendered["system"]
    if rendered.get("tools"):
        asked["tools"] = [_spelled(tool) for tool in read_tools(rendered["tools"])]
    return asked


def repaired(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages without blank text, starting with the user."""
    said = [{**message, "content": _content(message.get("content"))} for message in messages]
    kept = [message for message in said if message["content"]]
    if not kept or kept[0]["role"] == "assistant":
        kept.insert(0, dict(_GOES_ON))
    return kept


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return content if content.strip() else ""
    return [block for block in content or () if not _blank(block)]


def _blank(block: Any) -> bool:
    return (
        isinstance(block, Mapping)
        and block.get("type") == "text"
        and not str(block.get("text") or "").strip()
    )


def _said(system: Any) -> bool:
    return bool(system.strip() if isinstance(system, str) else system)


def _spelled(tool: Tool) -> Mapping[str, Any]:
    """Return a tool in Anthropic's spelling; its own tools stay unchanged."""
    if tool.name is None or "input_schema" in tool.given:
        return tool.given
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": tool.schema}
