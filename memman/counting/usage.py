"""Usage reports of providers, as one record.

The input total of OpenAI and Gemini includes cached tokens, that of Anthropic and Bedrock Converse does
not. Here it always does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from memman.display import safe_repr
from memman.entries import MOST_TOKENS
from memman.errors import InvalidInput
from memman.records import UsageReported

_HOUR = "ephemeral_1h_input_tokens"
_WRITTEN_BY_LANGCHAIN = (  # the first is 0 if one of the others is not
    "cache_creation",
    "ephemeral_5m_input_tokens",
    _HOUR,
)
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


class BilledTokens(NamedTuple):
    """The tokens of a request; the input includes those read from a cache and written to it.

    `cache_written_1h` of those written are kept for an hour.
    """

    input: int
    output: int = 0
    cached: int = 0
    cache_written: int = 0
    cache_written_1h: int = 0


def usage_of(
    billed: BilledTokens, record_id: str, at: datetime, model: str | None, cleared: int = 0
) -> UsageReported:
    """Return the record of a request's tokens; the provider `cleared` others itself.

    Raises `InvalidInput` for a number out of range, or for more cached tokens than input tokens.
    """
    for number in billed:
        if not 0 <= number <= MOST_TOKENS:
            raise InvalidInput(f"usage has {safe_repr(number)}, which is not a number of tokens")
    cached = billed.cached + billed.cache_written
    if cached > billed.input:
        raise InvalidInput(
            f"usage has {cached} cached tokens of {billed.input} input tokens: the input's total counts "
            "those read from a cache and written to it too; pass a total that does"
        )
    if billed.cache_written_1h > billed.cache_written:
        raise InvalidInput(
            f"usage has {billed.cache_written_1h} tokens written for an hour of "
            f"{billed.cache_written} written in all: the total counts them too"
        )
    return UsageReported(
        id=record_id,
        at=at,
        model=model,
        input_tokens=billed.input,
        output_tokens=billed.output,
        cached_tokens=billed.cached,
        cache_written_tokens=billed.cache_written,
        cache_written_1h_tokens=billed.cache_written_1h,
        cleared_tokens=cleared,
    )


def given_tokens(usage: Any, **numbers: int | None) -> BilledTokens:
    """Return the tokens of `usage`, or without it those of `numbers`: `input_tokens` and the like.

    Raises `InvalidInput` if both are given, or neither.
    """
    given = {name: value for name, value in numbers.items() if value is not None}
    if (usage is None) != ("input_tokens" in given) or (usage is not None and given):
        raise InvalidInput(
            "pass a response's usage, or the numbers of its tokens with input_tokens among them; not both"
        )
    if usage is not None:
        return billed_tokens(usage)
    return BilledTokens(**{name.removesuffix("_tokens"): _number(given, name) for name in given})


def billed_tokens(usage: Any) -> BilledTokens:
    """Return the tokens of a usage object or dict of any provider, or of a number of input tokens.

    Raises `InvalidInput` if it has no input tokens.
    """
    if isinstance(usage, int) and not isinstance(usage, bool):
        return BilledTokens(int.__index__(usage))
    return _read(_plain(usage))


def _plain(usage: Any) -> Mapping[str, Any]:
    if isinstance(usage, Mapping):
        return usage
    dump = getattr(usage, "model_dump", None)
    if callable(dump):
        return dict(dump())
    raise InvalidInput(f"usage must be a response's usage or a number, not {type(usage).__name__}")


def _read(usage: Mapping[str, Any]) -> BilledTokens:
    """Return the tokens in any provider's spelling."""
    if "prompt_tokens" in usage:
        return _chat_completion(usage)
    if "input_tokens_details" in usage:
        details = usage.get("input_tokens_details") or {}
        cached, written = _number(details, "cached_tokens"), _number(details, "cache_write_tokens")
        total, output = _number(usage, "input_tokens"), _number(usage, "output_tokens")
        return BilledTokens(total, output, cached, written)
    if "input_token_details" in usage:  # LangChain's, whose total has the cached ones in it
        details = usage.get("input_token_details") or {}
        written = sum(_number(details, key) for key in _WRITTEN_BY_LANGCHAIN)
        total, output = _number(usage, "input_tokens"), _number(usage, "output_tokens")
        hour = _number(details, _HOUR)
        return BilledTokens(total, output, _number(details, "cache_read"), written, hour)
    if "input_tokens" in usage:
        cached = _number(usage, "cache_read_input_tokens")
        written = _number(usage, "cache_creation_input_tokens")
        total = _number(usage, "input_tokens") + cached + written
        hour = _number(usage.get("cache_creation") or {}, _HOUR)
        return BilledTokens(total, _number(usage, "output_tokens"), cached, written, hour)
    if "inputTokens" in usage:
        cached = _number(usage, "cacheReadInputTokens")
        written = _number(usage, "cacheWriteInputTokens")
        total = _number(usage, "inputTokens") + cached + written
        hour = _hour_of_converse(usage.get("cacheDetails") or ())
        return BilledTokens(total, _number(usage, "outputTokens"), cached, written, hour)
    for prompt, reply, live, thoughts, kept in _GEMINI:
        if prompt in usage:
            said = _number(usage, reply) or _number(usage, live)
            output = said + _number(usage, thoughts)
            return BilledTokens(_number(usage, prompt), output, _number(usage, kept))
    raise InvalidInput(
        f"usage names no input tokens: it has {', '.join(map(str, usage)) or 'nothing'}"
    )


def _hour_of_converse(details: Any) -> int:
    """Return the tokens that Bedrock wrote for an hour."""
    if not isinstance(details, list | tuple):
        raise InvalidInput(f"usage has cacheDetails={safe_repr(details, 40)}, which is no list")
    parts = [part for part in details if isinstance(part, Mapping) and part.get("ttl") == "1h"]
    return sum(_number(part, "inputTokens") for part in parts)


def _chat_completion(usage: Mapping[str, Any]) -> BilledTokens:
    """Read OpenAI's usage, and that of servers which copy it.

    Some of them leave cached tokens out of the prompt's; then the total is the sum of all three.
    """
    details = usage.get("prompt_tokens_details") or {}
    cached, written = _number(details, "cached_tokens"), _number(details, "cache_write_tokens")
    prompt, reply = _number(usage, "prompt_tokens"), _number(usage, "completion_tokens")
    apart = cached > 0 and usage.get("total_tokens") == prompt + cached + reply
    return BilledTokens(prompt + cached if apart else prompt, reply, cached, written)


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
