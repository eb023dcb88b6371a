"""The price of tool definitions in a request, as the model's provider bills them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from memman.counting.framing import Billing, Rendering, framing_of
from memman.counting.tools import Tool, compact, split_tools
from memman.counting.typescript import namespace
from memman.protocols import ModelRef

CountTexts = Callable[[Sequence[str]], Sequence[int]]


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
        return namespace(tools)
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


_NESTED: Final = ("items", "anyOf", "oneOf", "allOf", "$defs")
