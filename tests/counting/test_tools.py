"""Tool definitions are read in every provider's spelling."""

from typing import Any

import pytest

from memman.counting.tools import read_tools
from memman.errors import FormatError

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
SAID = {"name": "f", "description": "d"}
SPELLINGS: dict[str, dict[str, Any]] = {
    "openai chat": {"type": "function", "function": {**SAID, "parameters": SCHEMA}},
    "openai responses": {"type": "function", **SAID, "parameters": SCHEMA},
    "anthropic": {**SAID, "input_schema": SCHEMA},
    "anthropic custom": {"type": "custom", **SAID, "input_schema": SCHEMA},
    "gemini": {"functionDeclarations": [{**SAID, "parameters": SCHEMA}]},
    "gemini SDK": {"function_declarations": [{**SAID, "parameters": SCHEMA}]},
    "gemini JSON schema": {"functionDeclarations": [{**SAID, "parametersJsonSchema": SCHEMA}]},
    "bedrock": {"toolSpec": {**SAID, "inputSchema": {"json": SCHEMA}}},
    "MCP": {**SAID, "inputSchema": SCHEMA},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_equivalent(spelling: str) -> None:
    [tool] = read_tools([SPELLINGS[spelling]])
    assert (tool.name, tool.description, tool.schema) == ("f", "d", SCHEMA)


def test_several_declarations_are_several_tools_in_order() -> None:
    declared = {"functionDeclarations": [{"name": "a"}, {"name": "b"}]}
    assert [tool.name for tool in read_tools([declared, {"name": "c"}])] == ["a", "b", "c"]


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    [tool] = read_tools([{"type": "function", "function": {"name": "now"}}])
    assert tool.schema == {"type": "object", "properties": {}}
    assert tool.description is None


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "file_search", "vector_store_ids": ["v"]},
        {"googleSearch": {}},
        {"cachePoint": {"type": "default"}},
    ],
)
def test_a_providers_own_tool_has_no_name_and_stays_as_it_is(tool: dict[str, Any]) -> None:
    [found] = read_tools([tool])
    assert found.name is None
    assert found.given == tool


@pytest.mark.parametrize("tool", ["read_file", None, 7, ["f"]])
def test_invalid_tool_is_refused(tool: Any) -> None:
    with pytest.raises(FormatError, match="a tool must be a JSON object"):
        read_tools([tool])
