"""Usage reports of providers, as one record.

The input total of OpenAI and Gemini includes cached tokens, that of Anthropic and Bedrock Converse does
not. Here it always does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import asdict, astuple
from msgspec.structs import replace as _with

from memman.display import safe_repr, warn_once
from memman.entries import MOST_TOKENS, check_model
from memman.errors import InvalidInput
from memman.records import UsageReported
from memman.spend import BilledTokens

_MOST_CALLS = 1_000  # of a provider for one request
_DEEPEST = 8  # levels of a usage
_COUNTED = ("input", "output", "total", "read", "written", "written_5m", "written_1h")
_OF_INPUT = "a part of the input total"
_OF_OUTPUT = "a part of the output total"
_MONEY = "money by the gateway's own prices"
_TOOLS = "calls of server tools"
_FETCHED = "pages that the provider's own tools fetched, which were not sent"


class UsageShape(NamedTuple):
    """A provider's usage: which key has what.

    `counts` has the meaning of each key that is counted, `left` the keys that are not. A key inside another
    has a dot before it; one of a list's items, which have a `ttl`, has that in brackets. `apart` is whether
    cached tokens are beside the input total, unless the total of all tells otherwise.
    """

    name: str
    mark: str
    counts: Mapping[str, str]
    left: frozenset[str]
    apart: bool = False


def _shape(name: str, mark: str, keys: Mapping[str, str], apart: bool = False) -> UsageShape:
    """Return a shape of the keys that have each meaning; any other word is why keys are left."""
    words = {key: word for word, listed in keys.items() for key in listed.split()}
    counts = {key: word for key, word in words.items() if word in _COUNTED}
    return UsageShape(name, mark, counts, frozenset(words.keys() - counts), apart)


def _in_camel_case(keys: Mapping[str, str]) -> dict[str, str]:
    """Return the same keys as they are spelled on the wire."""
    return {word: re.sub("_(.)", lambda m: m[1].upper(), listed) for word, listed in keys.items()}


_CHAT: Final = _shape(  # and of the many servers which copy it
    "OpenAI chat",
    "prompt_tokens",
    {
        "input": "prompt_tokens",
        "output": "completion_tokens",
        "total": "total_tokens",
        # LiteLLM's, DeepSeek's, Moonshot's and Mistral's keys say the same once more, or instead.
        "read": "prompt_tokens_details.cached_tokens cache_read_input_tokens prompt_cache_hit_tokens "
        "cached_tokens num_cached_tokens",
        "written": "prompt_tokens_details.cache_write_tokens cache_creation_input_tokens "
        "prompt_tokens_details.cache_creation_tokens",
        _OF_OUTPUT: "completion_tokens_details reasoning_tokens",
        _OF_INPUT: "prompt_tokens_details.audio_tokens prompt_tokens_details.image_tokens "
        "prompt_tokens_details.text_tokens prompt_tokens_details.video_tokens prompt_cache_miss_tokens",
        "seconds": "prompt_audio_seconds queue_time prompt_time completion_time total_time",
        _TOOLS: "server_tool_use.web_search_requests num_sources_used num_search_queries",
        _MONEY: "cost cost_details cost_in_usd_ticks",
    },
)
_RESPONSES: Final = _shape(
    "OpenAI responses",
    "input_tokens_details",
    {
        "input": "input_tokens",
        "output": "output_tokens",
        "total": "total_tokens",
        "read": "input_tokens_details.cached_tokens",
        "written": "input_tokens_details.cache_write_tokens",
        _OF_OUTPUT: "output_tokens_details",
        _OF_INPUT: "input_tokens_details.cache_write_tokens_details input_tokens_details.audio_tokens "
        "input_tokens_details.image_tokens input_tokens_details.text_tokens",
        _TOOLS: "num_sources_used num_server_side_tools_used",
        _MONEY: "cost cost_details cost_in_usd_ticks",
    },
)
_LANGCHAIN: Final = _shape(
    "LangChain",
    "input_token_details",
    {
        "input": "input_tokens",
        "output": "output_tokens",
        "total": "total_tokens",
        "read": "input_token_details.cache_read input_token_details.flex_cache_read "
        "input_token_details.priority_cache_read",
        "written": "input_token_details.cache_creation",  # 0 if one of the next two is not
        "written_5m": "input_token_details.ephemeral_5m_input_tokens",
        "written_1h": "input_token_details.ephemeral_1h_input_tokens",
        _OF_OUTPUT: "output_token_details",
        _OF_INPUT: "input_token_details.audio input_token_details.flex input_token_details.priority",
    },
)
_ANTHROPIC: Final = _shape(
    "Anthropic",
    "input_tokens",
    {
        "input": "input_tokens",
        "output": "output_tokens",
        "total": "total_tokens",  # of servers which copy it
        "read": "cache_read_input_tokens",
        "written": "cache_creation_input_tokens",
        "written_5m": "cache_creation.ephemeral_5m_input_tokens",
        "written_1h": "cache_creation.ephemeral_1h_input_tokens",
        _OF_OUTPUT: "output_tokens_details",
        "calls, which are read one by one": "iterations",
        _TOOLS: "server_tool_use.web_search_requests server_tool_use.web_fetch_requests",
    },
    apart=True,
)
_CONVERSE: Final = _shape(
    "Bedrock Converse",
    "inputTokens",
    {
        "input": "inputTokens",
        "output": "outputTokens",
        "total": "totalTokens",
        "read": "cacheReadInputTokens",
        "written": "cacheWriteInputTokens",
        "written_5m": "cacheDetails[5m].inputTokens",
        "written_1h": "cacheDetails[1h].inputTokens",
    },
    apart=True,
)
_OF_GEMINI: Final = {
    "input": "prompt_token_count",
    # The second is a live session's. Both exclude thoughts, which are billed with them.
    "output": "candidates_token_count response_token_count thoughts_token_count",
    "read": "cached_content_token_count",
    _FETCHED: "tool_use_prompt_token_count tool_use_prompt_tokens_details",
    "the sum of the others": "total_token_count",
    _OF_INPUT: "prompt_tokens_details cache_tokens_details",
    _OF_OUTPUT: "candidates_tokens_details response_tokens_details",
}
# The first whose mark is a key of a usage reads it.
SHAPES: Final = (
    _CHAT,
    _RESPONSES,
    _LANGCHAIN,
    _ANTHROPIC,
    _CONVERSE,
    _shape("Gemini", "prompt_token_count", _OF_GEMINI),
    _shape("Gemini", "promptTokenCount", _in_camel_case(_OF_GEMINI)),
)
_REQUESTS: Final = ("message", "fallback_message")  # Anthropic's calls with the conversation


def usage_of(
    calls: tuple[BilledTokens, ...],
    record_id: str,
    at: datetime,
    model: str | None,
    cleared: int = 0,
    response: str = "",
) -> UsageReported:
    """Return the record of a request's tokens; the provider `cleared` others itself.

    The first of the `calls` is the request itself; it has no tokens if none is. `response` is its id.

    Raises `InvalidInput` for a number out of range, or for more cached tokens than input tokens.
    """
    for call in calls:
        _check(call)
    first, *others = calls
    return UsageReported(
        id=record_id,
        at=at,
        **asdict(first) | {"model": first.model or model},
        cleared_tokens=cleared,
        response=response,
        others=tuple(_with(call, model=call.model or model) for call in others),
    )


def _check(call: BilledTokens) -> None:
    for number in astuple(call)[1:]:
        if not 0 <= number <= MOST_TOKENS:
            raise InvalidInput(f"usage has {safe_repr(number)}, which is not a number of tokens")
    cached = call.cached_tokens + call.cache_written_tokens
    if cached > call.input_tokens:
        raise InvalidInput(
            f"usage has {cached} cached tokens of {call.input_tokens} input tokens: the input's total "
            "counts those read from a cache and written to it too; pass a total that does"
        )
    if call.cache_written_1h_tokens > call.cache_written_tokens:
        raise InvalidInput(
            f"usage has {call.cache_written_1h_tokens} tokens written for an hour of "
            f"{call.cache_written_tokens} written in all: the total counts them too"
        )


def given_tokens(usage: Any, **numbers: int | None) -> tuple[BilledTokens, ...]:
    """Return the calls of `usage`, or without it that of `numbers`: `input_tokens` and the like.

    Raises `InvalidInput` if both are given, or neither.
    """
    given = {name: value for name, value in numbers.items() if value is not None}
    if (usage is None) != ("input_tokens" in given) or (usage is not None and given):
        raise InvalidInput(
            "pass a response's usage, or the numbers of its tokens with input_tokens among them; not both"
        )
    if usage is not None:
        return billed_tokens(usage)
    found = {name: _number(name, value) for name, value in given.items()}
    total = found.pop("total_tokens", 0)
    return (_with_whole_input(_with(BilledTokens(), **found), total, apart=False),)


def billed_tokens(usage: Any) -> tuple[BilledTokens, ...]:
    """Return the calls of a usage object or dict of any provider, or of a number of input tokens.

    The first is the request of the conversation; it has no tokens if none is. The others are further calls
    for its sake, such as a compaction. A number that is unknown is reported by a warning.

    Raises `InvalidInput` if it has no input tokens.
    """
    if isinstance(usage, int) and not isinstance(usage, bool):
        return (BilledTokens(input_tokens=int.__index__(usage)),)
    plain = _plain(usage)
    shape = next((shape for shape in SHAPES if shape.mark in plain), _ANTHROPIC)
    whole = _read(plain, shape)
    parts = plain.get("iterations") if shape is _ANTHROPIC else None
    return (whole,) if parts is None or parts == [] else _calls(whole, parts)


def _calls(whole: BilledTokens, parts: Any) -> tuple[BilledTokens, ...]:
    """Return the calls that Anthropic lists for a request: tool loops, compactions, other models.

    The totals are the sum of its requests alone. A first request has the model that was asked for; only
    other models are named. https://platform.claude.com/docs/en/build-with-claude/compaction
    """
    if not isinstance(parts, list | tuple) or len(parts) > _MOST_CALLS:
        raise InvalidInput(
            f"usage has iterations={safe_repr(parts, 40)}, which is no list of at most {_MOST_CALLS} calls"
        )
    listed = [(part.get("type"), _named(part)) for part in map(_plain, parts)]
    asked = next((call.model for kind, call in listed if kind == "message"), None)
    calls = [_with(call, model=None if call.model == asked else call.model) for _, call in listed]
    requests = [number for number, (kind, _) in enumerate(listed) if kind in _REQUESTS]
    first = calls.pop(requests[-1]) if requests else whole  # a request that is not listed, if any
    return first, *calls


def _named(part: Mapping[str, Any]) -> BilledTokens:
    model = part.get("model")
    return _with(_read(part, _ANTHROPIC), model=None if model is None else check_model(model))


def _plain(usage: Any) -> Mapping[str, Any]:
    if isinstance(usage, Mapping):
        return usage
    dump = getattr(usage, "model_dump", None)
    if callable(dump):
        return dict(dump())
    raise InvalidInput(f"usage must be a response's usage or a number, not {type(usage).__name__}")


def _read(usage: Mapping[str, Any], shape: UsageShape) -> BilledTokens:
    """Return the tokens of one call, and warn of numbers that are unknown."""
    found = dict.fromkeys(_COUNTED[1:], 0)
    for path, value in _numbers(usage, shape, "", 1):
        meaning = shape.counts.get(path)
        if meaning is None:
            warn_once(
                "memman",
                f"a usage of {shape.name} has the unknown number {safe_repr(path, 80)}: it is not counted",
            )
        elif value is not None or meaning == "input":
            number = _number(path, value)
            known = found.get(meaning, 0)  # other keys of what is cached say the same once more
            is_same = meaning in ("read", "written")
            found[meaning] = max(known, number) if is_same else known + number
    if "input" not in found:
        raise InvalidInput(
            f"usage names no input tokens: it has {', '.join(map(str, usage)) or 'nothing'}"
        )
    by_time = found["written_5m"] + found["written_1h"]
    call = BilledTokens(
        input_tokens=found["input"],
        output_tokens=found["output"],
        cached_tokens=found["read"],
        cache_written_tokens=max(found["written"], by_time),
        cache_written_1h_tokens=found["written_1h"],
    )
    return _with_whole_input(call, found["total"], shape.apart)


def _numbers(
    usage: Mapping[str, Any], shape: UsageShape, within: str, depth: int
) -> Iterator[tuple[str, Any]]:
    """Yield the keys that are counted with their values, and those of unknown numbers."""
    for key, value in usage.items():
        path = f"{within}{key}"
        if path in shape.left:
            continue
        inner = {key[len(path)] for key in shape.counts if key.startswith((f"{path}.", f"{path}["))}
        kind = list | tuple if "[" in inner else Mapping
        if inner and value is not None and not isinstance(value, kind):
            raise InvalidInput(
                f"usage has {path}={safe_repr(value, 40)}, which has no tokens in it"
            )
        if path in shape.counts or (isinstance(value, int | float) and value and value is not True):
            yield path, value
        elif depth < _DEEPEST:
            if isinstance(value, Mapping):
                yield from _numbers(value, shape, f"{path}.", depth + 1)
            for item in value if isinstance(value, list | tuple) else ():
                if isinstance(item, Mapping):
                    yield from _numbers(item, shape, f"{path}[{item.get('ttl')}].", depth + 1)


def _with_whole_input(call: BilledTokens, total: int, apart: bool) -> BilledTokens:
    """Return a call whose input has the cached tokens, if they are `apart` or the `total` of all shows it.

    Providers differ in it, servers that copy their formats do too.
    """
    read, given = call.cached_tokens, call.input_tokens
    cached = read + call.cache_written_tokens
    beside = total - given - call.output_tokens  # what the total has besides
    if total and beside == 0:  # a total of the uncached tokens alone, if more were cached
        beside = cached if cached > given else 0
    elif not total or beside not in (read, cached):
        beside = cached if apart else 0
    return _with(call, input_tokens=given + beside)


def _number(key: str, value: Any) -> int:
    """Return a number of tokens. Raises `InvalidInput` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInput(f"usage has {key}={safe_repr(value)}, which is not a number of tokens")
    return int.__index__(value)  # a plain int, from any subclass of a library
