"""Tools as OpenAI's models read them: a namespace of TypeScript types.

OpenAI does not publish the rendering. It shows in the models' answers and in the format of its open
models (harmony, https://cookbook.openai.com/articles/openai-harmony, 2025-08). Counts made with it agree
with reported usage; `docs/explanation/counts.md` has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from memman.counting.tools import Tool, compact

_DEEPEST: Final = 32  # a schema nested deeper is shown as `any`


def namespace(tools: Sequence[Tool]) -> str:
    """Return all tools as one text."""
    return "\n".join(
        ("namespace functions {\n", *map(_function, tools), "} // namespace functions")
    )


def _function(tool: Tool) -> str:
    lines = [f"// {line}" for line in tool.description.splitlines()] if tool.description else []
    fields = list(_fields(tool.schema, 0))
    if fields:
        lines += [f"type {tool.name} = (_: {{", *fields, "}) => any;\n"]
    else:
        lines.append(f"type {tool.name} = () => any;\n")
    return "\n".join(lines)


def _fields(schema: Mapping[str, Any], depth: int) -> Iterator[str]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    required = schema.get("required")
    needed = set(map(str, required)) if isinstance(required, Sequence) else set()
    for name, field in properties.items():
        known = field if isinstance(field, Mapping) else {}
        description = known.get("description")
        if isinstance(description, str) and description and depth < 2:
            yield from (f"// {line}" for line in description.splitlines())
        mark = "" if name in needed else "?"
        default = known.get("default")
        tail = f" // default: {compact(default)}" if default is not None else ""
        yield f"{name}{mark}: {_type(known, depth + 1)},{tail}"


def _type(schema: Mapping[str, Any], depth: int) -> str:
    if depth > _DEEPEST:
        return "any"
    choices = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
    if isinstance(choices, Sequence) and choices:
        return " | ".join(map(compact, choices))
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), Sequence):
            inner = (each for each in schema[key] if isinstance(each, Mapping))
            return " | ".join(_type(each, depth + 1) for each in inner)
    kind = schema.get("type")
    if isinstance(kind, Sequence) and not isinstance(kind, str):
        return " | ".join(_type({**schema, "type": each}, depth + 1) for each in kind)
    if kind == "array":
        items = schema.get("items")
        return f"{_type(items, depth + 1)}[]" if isinstance(items, Mapping) else "any[]"
    if kind == "object" or "properties" in schema:
        fields = list(_fields(schema, depth))
        return "\n".join(("{", *fields, "}")) if fields else "object"
    return "number" if kind == "integer" else str(kind or "any")
