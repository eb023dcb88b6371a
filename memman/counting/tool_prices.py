"""The price of tool definitions in a request, as the model's provider bills them.

OpenAI's models read tools as a namespace of TypeScript types. OpenAI does not publish the rendering. It
shows in the models' answers and in the format of its open models (harmony,
https://cookbook.openai.com/articles/openai-harmony, 2025-08). Counts made with it agree with reported
usage; `docs/explanation/counts.md` has the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from memman.counting.framing import Billing, Rendering, framing_of
from memman.counting.tools import Tool, compact, split_tools
from memman.protocols import ModelRef

CountTexts = Callable[[Sequence[str]], Sequence[int]]
_NESTED: Final = ("items", "anyOf", "oneOf", "allOf", "$defs")
_DEEPEST: Final = 32  # a schema nested deeper is shown as `any`


def price_tools(tools: Any, ref: ModelRef, count_texts: CountTexts, *, api: str = "") -> int:
    """Return the tokens that tools, in any provider's shape, add to a request.

    Raises `FormatError` if `tools` is not a list of JSON objects.
    """
    functions, hosted = split_tools(tools)
    if not functions and not hosted:
        return 0
    billing = framing_of(ref, api)
    tokens = billing.preamble + price_functions(functions, billing, count_texts)
    return max(0, round(sum(count_texts(hosted)) + tokens))


def price_functions(functions: Sequence[Tool], billing: Billing, count_texts: CountTexts) -> float:
    """Return the tokens of function definitions alone."""
    if not functions:
        return 0.0
    [rendered] = count_texts((render_tools(functions, billing.rendering),))
    return billing.tools * rendered + billing.tool * len(functions)


def render_tools(tools: Sequence[Tool], rendering: Rendering) -> str:
    """Return tools as the text that a family is billed for, or that its factor was fitted to."""
    if rendering == "typescript":
        types = map(_function, tools)
        return "\n".join(("namespace functions {\n", *types, "} // namespace functions"))
    if rendering == "words":
        words = ((tool.name, tool.description, *_described(tool.schema)) for tool in tools)
        return " ".join(word for texts in words for word in texts if word)
    if rendering == "spaced":
        wrapped = [{"type": "function", "function": _plain(tool)} for tool in tools]
        return msgspec.json.format(compact(wrapped), indent=0)  # on one line, with spaces
    return "\n".join(compact(_plain(tool)) for tool in tools)


def _plain(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description or "",
        "parameters": dict(tool.schema),
    }


def _described(schema: Any) -> list[str]:
    """Return the words of a schema except its own keywords, at any depth."""
    found: list[str] = []
    left = [schema]
    while left:
        each = left.pop(0)
        if isinstance(each, list | tuple):
            left += each
        elif isinstance(each, Mapping):
            found += (value for value in (each.get("description"),) if isinstance(value, str))
            found += map(str, (*_listed(each, "type"), *_listed(each, "enum")))
            found += map(str, _listed(each, "required"))
            properties = each.get("properties")
            if isinstance(properties, Mapping):
                found += map(str, properties)
                left += properties.values()
            left += (each[key] for key in _NESTED if key in each)
    return found


def _listed(schema: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = schema.get(key)
    if isinstance(value, list | tuple):
        return value
    return (value,) if isinstance(value, str) else ()


# ---------------------------------------------------------------- TypeScript


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
