"""Tool definitions in any provider's spelling.

A request's tools are passed on as the application wrote them. Code that needs them in another provider's
spelling, such as a remote counter, reads them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from memman.display import safe_repr
from memman.errors import FormatError

_NO_ARGUMENTS: Final = {"type": "object", "properties": {}}
_SCHEMAS: Final = (
    "parameters",
    "input_schema",
    "inputSchema",
    "parametersJsonSchema",
    "parameters_json_schema",
)
_DECLARATIONS: Final = ("functionDeclarations", "function_declarations")


class Tool(msgspec.Struct, frozen=True):
    """A function that a model may call: `schema` is the JSON schema of its arguments.

    If `name` is None, it is one of a provider's own tools, unchanged in `given`.
    """

    name: str | None
    description: str | None
    schema: Mapping[str, Any]
    given: Mapping[str, Any]


def read_tools(tools: Iterable[Any]) -> list[Tool]:
    """Return the tools of a request: of OpenAI (chat, responses), Anthropic, Gemini or Bedrock.

    Raises `FormatError` for a tool that is not a JSON object.
    """
    return [found for tool in tools for found in _read(tool)]


def _read(tool: Any) -> Iterator[Tool]:
    if not isinstance(tool, Mapping):
        raise FormatError(
            f"a tool must be a JSON object, not {type(tool).__name__}: {safe_repr(tool, 80)}"
        )
    for key in _DECLARATIONS:
        if isinstance(tool.get(key), list):
            for declared in tool[key]:
                yield from _read(declared)
            return
    inner = tool.get("function") or tool.get("toolSpec") or tool
    name = inner.get("name") if isinstance(inner, Mapping) else None
    schema = _schema(inner) if isinstance(name, str) else None
    # A provider's own tool has a type of its own: web_search_20250305, file_search, ...
    own = schema is None and tool.get("type") not in (None, "function", "custom")
    if not isinstance(name, str) or own:
        yield Tool(None, None, _NO_ARGUMENTS, tool)
        return
    description = inner.get("description")
    said = description if isinstance(description, str) else None
    yield Tool(name, said, schema or _NO_ARGUMENTS, tool)


def _schema(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for key in _SCHEMAS:
        found = tool.get(key)
        if isinstance(found, Mapping):
            inner = found.get("json")
            return inner if key == "inputSchema" and isinstance(inner, Mapping) else found
    return None


def split_tools(tools: Any) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Return the functions among a request's tools, and the provider's own tools as compact JSON.

    Raises `FormatError` if `tools` is not a list of JSON objects.
    """
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        raise FormatError(f"tools are a list of JSON objects, not {type(tools).__name__}")
    found = read_tools(tools)
    hosted = [compact(uncached(each.given)) for each in found if each.name is None and each.given]
    return tuple(each for each in found if each.name is not None), tuple(hosted)


def compact(value: Any) -> str:
    """Return a JSON value as text without spaces. Raises `FormatError` for other values."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise FormatError(f"a request is made of JSON values: {error}") from error


def uncached(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object without its mark for a provider's cache."""
    return {key: value for key, value in block.items() if key != "cache_control"}
