"""A rendered request as the `converse` input of Bedrock's CountTokens.

The service or boto3 require three things: bytes instead of base64, no empty system prompt, and tools if
messages have tool calls or results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from memman.errors import InvalidInput
from memman.formats.bedrock import sdk_messages
from memman.providers import Tool, read_tools, safe_repr

_OWN_TOOLS: Final = ("toolSpec", "systemTool", "cachePoint")


def converse_input(rendered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `input` of `count_tokens`. Raises `InvalidInput` if it has no Converse form."""
    given = rendered["messages"]
    if not given:
        raise InvalidInput(
            "a request without messages cannot be counted: Bedrock needs one at least"
        )
    if not all(
        isinstance(each, Mapping) and isinstance(each.get("content"), list) for each in given
    ):
        raise InvalidInput("a message of Bedrock's is an object with a list as its content")
    messages = sdk_messages(given)
    converse: dict[str, Any] = {"messages": messages}
    if rendered.get("system"):
        converse["system"] = [{"text": rendered["system"]}]
    tools = converse_tools(rendered.get("tools") or ()) or _tools_used(messages)
    if tools:
        converse["toolConfig"] = {"tools": tools}
    return {"converse": converse}


def converse_tools(tools: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return tools of any provider in Converse's shape.

    Raises `InvalidInput` for another provider's own tool, such as its web search.
    """
    if not isinstance(tools, list | tuple):
        raise InvalidInput(f"tools must be a list, not {type(tools).__name__}")
    return [_converse_tool(tool) for tool in read_tools(tools)]


def _converse_tool(tool: Tool) -> Mapping[str, Any]:
    if any(key in tool.given for key in _OWN_TOOLS):
        return tool.given
    if tool.name is None:
        raise InvalidInput(f"Bedrock has no tool such as {safe_repr(dict(tool.given), 80)}")
    return _spec(tool.name, tool.description, tool.schema)


def _spec(name: str, description: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    spec = {"name": name, "inputSchema": {"json": dict(schema)}}
    # Bedrock refuses an empty description.
    return {"toolSpec": spec | ({"description": description} if description else {})}


def _tools_used(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Return tools with the names that the messages call; Bedrock refuses calls without tools."""
    blocks = [block for each in messages for block in each["content"] if isinstance(block, Mapping)]
    calls = (block["toolUse"] for block in blocks if isinstance(block.get("toolUse"), Mapping))
    names = dict.fromkeys(call["name"] for call in calls if isinstance(call.get("name"), str))
    if not names and any("toolResult" in block for block in blocks):
        names = {"tool": None}
    return [_spec(name, None, {"type": "object"}) for name in names]
