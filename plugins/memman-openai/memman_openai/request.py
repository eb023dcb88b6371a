"""A rendered request as arguments of the counting endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memman.protocols import ModelRef
from memman.providers import Tool, read_tools, sent_name


def request_of(rendered: Mapping[str, Any], model: ModelRef | None = None) -> dict[str, Any]:
    """Return the arguments of `responses.input_tokens.count`; `rendered` is not changed.

    The messages are the items of a Responses request; the system prompt becomes its instructions.
    """
    asked: dict[str, Any] = {
        "model": sent_name(rendered["model"], model),
        "input": list(rendered["messages"]),
    }
    if rendered.get("system"):
        asked["instructions"] = rendered["system"]
    if rendered.get("tools"):
        asked["tools"] = [_spelled(tool) for tool in read_tools(rendered["tools"])]
    return asked


def _spelled(tool: Tool) -> Mapping[str, Any]:
    """Return a tool in the Responses API's spelling; its own tools stay unchanged."""
    given = tool.given
    if tool.name is None or (given.get("type") == "function" and "name" in given):
        return given
    spelled: dict[str, Any] = {"type": "function", "name": tool.name, "parameters": tool.schema}
    if tool.description:
        spelled["description"] = tool.description
    inner = given.get("function")
    if isinstance(inner, Mapping) and "strict" in inner:
        spelled["strict"] = inner["strict"]
    return spelled
