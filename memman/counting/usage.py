"""Usage reports of providers, as one record.

The input total of OpenAI and Gemini includes cached tokens, that of Anthropic and Bedrock Converse does
not. Here it always does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, astuple, replace

from memman.display import safe_repr, warn_once
from memman.entries import MOST_TOKENS, check_model
from memman.errors import InvalidInput
from memman.records import UsageReported
from memman.spend import BilledTokens

_MOST_CALLS = 1_000  # of a provider for one request
_DEEPEST = 8  # levels of a usage
_OTHERS = ("output", "total", "read", "written", "written_5m", "written_1h")  # than the input
_REQUESTS: Final = ("message", "fallback_message")  # Anthropic's calls with the conversation


class UsageShape(msgspec.Struct, frozen=True):
    """A provider's usage, from `usage_shapes.json`.

    `counts` has the meaning of each key that is counted, `left` the keys that are not, and why. A key in
    another has a dot before it; one of a list's items, which have a `ttl`, has that in brackets. `apart` is
    whether cached tokens are beside the input total, unless the total of all tells otherwise.
    """

    name: str
    mark: str
    counts: dict[str, str]
    left: dict[str, str]
    apart: bool = False


@cache
def usage_shapes() -> tuple[UsageShape, ...]:
    """Return all shapes. A usage is read by the first shape whose mark is one of its keys."""
    data = Path(__file__).with_name("usage_shapes.json").read_bytes()
    return msgspec.json.decode(data, type=tuple[UsageShape, ...])


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
        others=tuple(replace(call, model=call.model or model) for call in others),
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
    return (_with_whole_input(replace(BilledTokens(), **found), total, apart=False),)


def billed_tokens(usage: Any) -> tuple[BilledTokens, ...]:
    """Return the calls of a usage object or dict of any provider, or of a number of input tokens.

    The first is the request of the conversation; it has no tokens if none is. The others are further calls
    for its sake, such as a compaction. A number that is unknown is reported by a warning.

    Raises `InvalidInput` if it has no input tokens.
    """
    if isinstance(usage, int) and not isinstance(usage, bool):
        return (BilledTokens(input_tokens=int.__index__(usage)),)
    plain = _plain(usage)
    shape = next((shape for shape in usage_shapes() if shape.mark in plain), usage_shapes()[0])
    whole = _read(plain, shape)
    parts = plain.get("iterations") if shape.name == "Anthropic" else None
    return (whole,) if parts is None or parts == [] else _calls(whole, parts, shape)


def _calls(whole: BilledTokens, parts: Any, shape: UsageShape) -> tuple[BilledTokens, ...]:
    """Return the calls that Anthropic lists for a request: tool loops, compactions, other models.

    The totals are the sum of its requests alone. A first request has the model that was asked for; only
    other models are named. https://platform.claude.com/docs/en/build-with-claude/compaction
    """
    if not isinstance(parts, list | tuple) or len(parts) > _MOST_CALLS:
        raise InvalidInput(
            f"usage has iterations={safe_repr(parts, 40)}, which is no list of at most {_MOST_CALLS} calls"
        )
    listed = [(part.get("type"), _named(part, shape)) for part in map(_plain, parts)]
    asked = next((call.model for kind, call in listed if kind == "message"), None)
    calls = [replace(call, model=None if call.model == asked else call.model) for _, call in listed]
    requests = [number for number, (kind, _) in enumerate(listed) if kind in _REQUESTS]
    first = calls.pop(requests[-1]) if requests else whole  # a request that is not listed, if any
    return first, *calls


def _named(part: Mapping[str, Any], shape: UsageShape) -> BilledTokens:
    model = part.get("model")
    return replace(_read(part, shape), model=None if model is None else check_model(model))


def _plain(usage: Any) -> Mapping[str, Any]:
    if isinstance(usage, Mapping):
        return usage
    dump = getattr(usage, "model_dump", None)
    if callable(dump):
        return dict(dump())
    raise InvalidInput(f"usage must be a response's usage or a number, not {type(usage).__name__}")


def _read(usage: Mapping[str, Any], shape: UsageShape) -> BilledTokens:
    """Return the tokens of one call, and warn of numbers that are unknown."""
    found = dict.fromkeys(_OTHERS, 0)
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
    """Return a call with the cached tokens in its input: added if they are `apart`, or by the `total`.

    Providers differ in it, servers that copy their formats do too.
    """
    read, given = call.cached_tokens, call.input_tokens
    cached = read + call.cache_written_tokens
    beside = total - given - call.output_tokens  # what the total has besides
    if total and beside == 0:  # a total of the uncached tokens alone, if more were cached
        beside = cached if cached > given else 0
    elif not total or beside not in (read, cached):
        beside = cached if apart else 0
    return replace(call, input_tokens=given + beside)


def _number(key: str, value: Any) -> int:
    """Return a number of tokens. Raises `InvalidInput` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInput(f"usage has {key}={safe_repr(value)}, which is not a number of tokens")
    return int.__index__(value)  # a plain int, from any subclass of a library
