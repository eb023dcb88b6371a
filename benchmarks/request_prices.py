"""The price of a whole request: its texts by a counter, plus the provider's framing.

A request is plain JSON in the provider's own shape. Nothing is rounded before the sum.
Reasoning of earlier turns does not count, because providers leave it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.request_bodies import Body, read_body
from memman.counting.framing import Billing, framing_of
from memman.counting.images import image_tokens, size_of
from memman.counting.tool_prices import CountTexts, price_functions
from memman.counting.tools import compact
from memman.protocols import ModelRef

_NOT_FORCED: Final = ("", "auto", "none", "validated")
_ANY: Final = ("any", "function", "tool")


def price_request(request: Mapping[str, Any], ref: ModelRef, count_texts: CountTexts) -> int:
    """Count the input tokens of a request: chat completions, Responses, Anthropic, Gemini or Converse.

    Args:
        request: the body as plain JSON.
        ref: the model of the request.
        count_texts: the model's local counter, which returns the tokens of each text.

    Raises `FormatError` for any other shape. Links to images cost the stated default size.
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


def conversation_texts(body: Body, ref: ModelRef) -> list[str]:
    """Return the counted texts of messages: contents, calls, names, and the last turn's thoughts."""
    messages = body.messages
    turns = [n for n, each in enumerate(messages) if each.role == "user" and not each.results]
    turn = turns[-1] if turns else 0
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
    tokens: float = sum(getattr(billing, name) * times for name, times in tool_forms(body).items())
    return tokens + price_functions(body.tools, billing, count_texts)


def tool_forms(body: Body) -> dict[str, float]:
    """Return the multiple of each figure of a `Billing` that depends on the tools as a whole."""
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
