"""Usage reports of providers, as one record.

The input total of OpenAI and Gemini includes cached tokens, that of Anthropic and Bedrock Converse does
not. Here it always does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from memman.display import safe_repr
from memman.entries import MOST_TOKENS
from memman.errors import InvalidInput
from memman.records import UsageReported

_TOTALS = ("prompt_tokens", "input_tokens", "inputTokens", "prompt_token_count", "promptTokenCount")
# Gemini's candidates, and a live session's response, exclude thoughts, which are billed with
# them. Its prompt excludes the pages that its own tools fetched, which were not sent.
_GEMINI = (
    (
        "prompt_token_count",
        "candidates_token_count",
        "response_token_count",
        "thoughts_token_count",
        "cached_content_token_count",
    ),
    (
        "promptTokenCount",
        "candidatesTokenCount",
        "responseTokenCount",
        "thoughtsTokenCount",
        "cachedContentTokenCount",
    ),
)


def usage_of(usage: Any, record_id: str, at: datetime, model: str | None) -> UsageReported:
    """Return the record of a usage object or dict of any provider, or of a number of input tokens.

    Raises `InvalidInput` if it has no input tokens, or more cached tokens than input tokens.
    """
    if isinstance(usage, int) and not isinstance(usage, bool):
        total, output, cached = int.__index__(usage), 0, 0
    else:
        total, output, cached = billed_tokens(usage)
    for number in (total, output, cached):
        if not 0 <= number <= MOST_TOKENS:
            raise InvalidInput(f"usage has {safe_repr(number)}, which is not a number of tokens")
    if cached > total:
        raise InvalidInput(
            f"usage has {cached} cached tokens of {total} input tokens: the input's total counts the "
            "cached ones too; pass a total that does"
        )
    return UsageReported(
        id=record_id,
        at=at,
        model=model,
        input_tokens=total,
        output_tokens=output,
        cached_tokens=cached,
    )


def billed_tokens(usage: Any) -> tuple[int, int, int]:
    """Return (input, output, cached) of a usage object or dict; the input includes cached tokens.

    Raises `InvalidInput` if it has no input tokens.
    """
    return _read(_plain(usage))


def _plain(usage: Any) -> Mapping[str, Any]:
    if isinstance(usage, Mapping):
        return usage
    dump = getattr(usage, "model_dump", None)
    if callable(dump):
        return dict(dump())
    raise InvalidInput(f"usage must be a response's usage or a number, not {type(usage).__name__}")


def _read(usage: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return (input total, output, cached) in any provider's spelling."""
    if "prompt_tokens" in usage:
        return _chat_completion(usage)
    if "input_tokens_details" in usage:
        cached = _number(usage.get("input_tokens_details") or {}, "cached_tokens")
        return _number(usage, "input_tokens"), _number(usage, "output_tokens"), cached
    if "input_token_details" in usage:  # LangChain's, whose total has the cached ones in it
        cached = _number(usage.get("input_token_details") or {}, "cache_read")
        return _number(usage, "input_tokens"), _number(usage, "output_tokens"), cached
    if "input_tokens" in usage:
        cached = _number(usage, "cache_read_input_tokens")
        written = _number(usage, "cache_creation_input_tokens")
        total = _number(usage, "input_tokens") + cached + written
        return total, _number(usage, "output_tokens"), cached
    if "inputTokens" in usage:
        cached = _number(usage, "cacheReadInputTokens")
        total = _number(usage, "inputTokens") + cached + _number(usage, "cacheWriteInputTokens")
        return total, _number(usage, "outputTokens"), cached
    for prompt, reply, live, thoughts, kept in _GEMINI:
        if prompt in usage:
            said = _number(usage, reply) or _number(usage, live)
            output = said + _number(usage, thoughts)
            return _number(usage, prompt), output, _number(usage, kept)
    raise InvalidInput(
        f"usage names no input tokens: it has {', '.join(map(str, usage)) or 'nothing'}"
    )


def _chat_completion(usage: Mapping[str, Any]) -> tuple[int, int, int]:
    """Read OpenAI's usage, and that of servers which copy it.

    Some of them leave cached tokens out of the prompt's; then the total is the sum of all three.
    """
    cached = _number(usage.get("prompt_tokens_details") or {}, "cached_tokens")
    prompt, reply = _number(usage, "prompt_tokens"), _number(usage, "completion_tokens")
    apart = cached > 0 and usage.get("total_tokens") == prompt + cached + reply
    return prompt + cached if apart else prompt, reply, cached


def _number(usage: Any, key: str) -> int:
    """Return a count of tokens: 0 if absent, except for the input total."""
    if not isinstance(usage, Mapping):
        raise InvalidInput(f"usage has {safe_repr(usage, 40)} where its {key} should be")
    value = usage.get(key)
    if value is None and key not in _TOTALS:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInput(f"usage has {key}={safe_repr(value)}, which is not a number of tokens")
    return int.__index__(value)  # a plain int, from any subclass of a library
