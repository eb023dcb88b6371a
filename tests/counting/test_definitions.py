"""A tool in any provider's shape is the same function."""

from __future__ import annotations

from typing import Any

import pytest

from memman import InvalidInput
from memman.counting.definitions import ToolDefinition, definitions_of

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
FUNCTION = {"name": "ls", "description": "lists"}
LS = ToolDefinition("ls", "lists", SCHEMA)


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": FUNCTION | {"parameters": SCHEMA}},
        {"type": "function", "strict": True, **FUNCTION, "parameters": SCHEMA},
        FUNCTION | {"input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
        {"functionDeclarations": [FUNCTION | {"parameters": SCHEMA}]},
        {"function_declarations": [FUNCTION | {"parameters_json_schema": SCHEMA}]},
        {"toolSpec": FUNCTION | {"inputSchema": {"json": SCHEMA}}},
        FUNCTION | {"inputSchema": SCHEMA},
    ],
    ids=["chat", "responses", "anthropic", "gemini", "gemini-json", "bedrock", "mcp"],
)
def test_each_shape_is_read(tool: Any) -> None:
    assert definitions_of(tool) == [LS]


def test_gemini_defines_several_at_once() -> None:
    tool = {"functionDeclarations": [{"name": "a"}, {"name": "b"}]}
    assert [each.name for each in definitions_of(tool)] == ["a", "b"]


def test_what_is_not_said_is_empty() -> None:
    assert definitions_of({"name": "now"}) == [ToolDefinition("now", "", {"type": "object"})]


@pytest.mark.parametrize(
    "tool",
    [None, 7, "ls", [], {}, {"name": ""}, {"googleSearch": {}}, {"functionDeclarations": [7]}],
)
def test_what_defines_no_function_is_refused(tool: Any) -> None:
    with pytest.raises(InvalidInput, match="defines no function"):
        definitions_of(tool)
