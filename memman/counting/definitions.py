"""A tool's definition, told from whichever provider's shape it has.

A request is rendered in one provider's shape, but its tools are as the caller gave them: a counter that
must send them in its own shape reads them here.
"""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any, Final

import msgspec

from memman.errors import InvalidInput

_SCHEMAS: Final = (
    "parameters",  # OpenAI, Gemini
    "parametersJsonSchema",  # Gemini
    "parameters_json_schema",
    "input_schema",  # Anthropic
    "inputSchema",  # Bedrock Converse, MCP
)


class ToolDefinition(msgspec.Struct, frozen=True):
    """A function that a model may call; `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


def definitions_of(tool: Any) -> list[ToolDefinition]:
    """The functions that one element of a request's `tools` defines.

    Takes the shapes of OpenAI (chat completions and Responses), Anthropic, Gemini (which defines several
    at once) and Bedrock Converse. Raises `InvalidInput` for what defines no function: a provider's own
    tool, such as its web search, has no shape at another.
    """
    if isinstance(tool, Mapping):
        several = tool.get("functionDeclarations", tool.get("function_declarations"))
        if isinstance(several, list):
            return [_definition(each) for each in several]
        for wrapper in ("function", "toolSpec"):
            if isinstance(tool.get(wrapper), Mapping):
                return [_definition(tool[wrapper])]
    return [_definition(tool)]


def _definition(said: Any) -> ToolDefinition:
    name = said.get("name") if isinstance(said, Mapping) else None
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            f"a tool is {shortened(said)}, which defines no function: it needs a name, a description "
            "and a schema, in the shape of OpenAI, Anthropic, Gemini or Bedrock"
        )
    found = (said[key] for key in _SCHEMAS if isinstance(said.get(key), Mapping))
    schema = next(found, {"type": "object"})
    inner = schema.get("json")
    description = said.get("description")
    return ToolDefinition(
        name=name,
        description=description if isinstance(description, str) else "",
        schema=inner if isinstance(inner, Mapping) else schema,
    )
