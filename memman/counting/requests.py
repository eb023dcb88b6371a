"""What a whole request costs: its texts by a counter, and what its provider bills around them.

The request is plain JSON in the provider's own shape, as it would be sent. Nothing is rounded before the
sum, and thoughts of earlier turns are left out as providers leave them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from memman.counting.bodies import Body, compact, read_body, tools_of
from memman.counting.framing import Billing, Rendering, framing_of
from memman.counting.images import image_tokens, size_of
from memman.counting.tools import Tool
from memman.counting.typescript import namespace
from memman.protocols import ModelRef

CountTexts = Callable[[Sequence[str]], Sequence[int]]
_NOT_FORCED: Final = ("", "auto", "none", "validated")
_ANY: Final = ("any", "function", "tool")


def price_request(request: Mapping[str, Any], ref: ModelRef, count_texts: CountTexts) -> int:
    """Input tokens of a request: chat completions, Responses, Anthropic, Gemini or Converse.

    Args:
        request: the body as plain JSON.
        ref: the model that is asked.
        count_texts: tokens of each text, as the model's local counter says.

    Raises `FormatError` for what is none of these. Links to images cost the stated default size.
    """
    body = read_body(request)
    billing = framing_of(ref, body.api)
    texts = conversation_texts(body, ref)
    texts += body.hosted
    texts += [compact(body.schema)] if body.schema is not None else []
    calls = sum(len(message.calls) for message in body.messages)
    results = sum(message.results for message in body.messages)
    # Observed for gpt-4o: a name that only repeats its role does not cost the usual token of a name.
    names = sum(
        1 for each in body.messages if each.name not in ("", each.role) and not each.results
    )
    tokens = billing.request + billing.message * len(body.messages) + names
    tokens += billing.call * calls + billing.result * results
    tokens += sum(count_texts(texts)) + _price_images(body, ref)
    return max(0, round(tokens + _price_tools(body, billing, count_texts)))


def price_tools(tools: Any, ref: ModelRef, count_texts: CountTexts, *, api: str = "") -> int:
    """What tools add to a request, in any provider's shape; 0 where there are none.

    Raises `FormatError` for tools that are no list of JSON objects.
    """
    found, hosted = tools_of(tools)
    billing = framing_of(ref, api)
    body = Body(api=api, messages=(), tools=found, hosted=hosted)
    return max(0, round(sum(count_texts(hosted)) + _price_tools(body, billing, count_texts)))


def render_tools(tools: Sequence[Tool], rendering: Rendering) -> str:
    """Tools as the text that a family is billed for, or as what its factor was fitted to."""
    if rendering == "typescript":
        return namespace(tools)
    if rendering == "words":
        return " ".join(word for tool in tools for word in _words(tool))
    if rendering == "spaced":
        wrapped = [{"type": "function", "function": _plain(tool)} for tool in tools]
        return msgspec.json.format(compact(wrapped), indent=0)  # on one line, with spaces
    return "\n".join(compact(_plain(tool)) for tool in tools)


def conversation_texts(body: Body, ref: ModelRef) -> list[str]:
    """Every text of the messages that counts: contents, calls, names, and the thoughts of the last turn."""
    messages = body.messages
    asked = [n for n, each in enumerate(messages) if each.role == "user" and not each.results]
    turn = asked[-1] if asked else 0
    found: list[str] = []
    for place, message in enumerate(messages):
        found += message.texts
        found += (part for call in message.calls for part in call)
        # A reasoning model reads its thoughts again only while it works on the same turn.
        found += message.thoughts if place >= turn and ref.family in _READS_THOUGHTS else ()
        if message.name and not message.results:
            found.append(message.name)
    return [text for text in found if text]


_READS_THOUGHTS: Final = ("claude-4", "claude-4.7", "deepseek", "glm", "qwen")


def _price_tools(body: Body, billing: Billing, count_texts: CountTexts) -> float:
    if not body.tools and not body.hosted:
        return 0.0
    forms = tool_forms(body)
    tokens: float = sum(getattr(billing, name) * times for name, times in forms.items())
    if not body.tools:
        return tokens
    [rendered] = count_texts((render_tools(body.tools, billing.rendering),))
    return tokens + billing.tools * rendered + billing.tool * len(body.tools)


def tool_forms(body: Body) -> dict[str, float]:
    """How often each figure of a `Billing` that goes with tools as a whole is charged."""
    given = bool(body.tools or body.hosted)
    must = given and body.choice not in _NOT_FORCED
    return {
        "preamble": given,
        "forced": must and body.choice in _ANY,
        "named": must and body.choice not in _ANY,
        "headed": given and any(each.role in _HEADS for each in body.messages),
    }


_HEADS: Final = ("system", "developer")


def _price_images(body: Body, ref: ModelRef) -> int:
    images = (image for message in body.messages for image in message.images)
    return sum(image_tokens(ref, *size_of(image.source), detail=image.detail) for image in images)


def _plain(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description or "",
        "parameters": dict(tool.schema),
    }


def _words(tool: Tool) -> list[str]:
    return [word for word in (tool.name, tool.description, *_described(tool.schema)) if word]


def _described(schema: Any) -> list[str]:
    """What stands in a schema beside its own keywords, at any depth that JSON has."""
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
