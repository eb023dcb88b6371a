"""Compare our prices of whole requests with the usage that providers reported, without a network.

    uv run python -m benchmarks.accuracy [--quick] [--json]
    uv run --with langchain-core --with litellm python -m benchmarks.accuracy      # with the peers' columns

Each recorded request is priced by `price_request` with the counter that memman resolves for its model, and
by chars/4, raw o200k_base, LangChain's `count_tokens_approximately` and litellm's `token_counter` if
installed. The report covers the half of the records that the fit never used (`usage.py` divides them).
Text-only requests of the models with an exact formula are counted over both halves, because their formula
was not fitted. The error of a request is |priced - reported| / reported; bias is the sum of prices over
the sum of reports, minus one.
Exit codes: 0 goals met, 1 not, 2 no data.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from statistics import median
from typing import Any, Final

import msgspec
from memman_tiktoken import memman_token_counters
from memman_tiktoken.vocabulary import encoding

from benchmarks.goals import Goal, any_failed, report
from benchmarks.request_prices import price_request
from benchmarks.tables import table
from benchmarks.usage import FULL, QUICK, SHARED, Sample, read_samples
from memman.counting.builtin import builtin_specs
from memman.counting.resolution import resolve
from memman.counting.tool_prices import render_tools
from memman.counting.tools import compact
from memman.protocols import ModelRef

Priced = Callable[[Sample], int]
# Median absolute error in percent, on chat completions and messages.
GOALS: Final[dict[str, float]] = {
    "claude-4": 5, "gpt-4.1": 1, "gpt-4o": 2, "gpt-5": 5, "glm": 3, "kimi": 5, "mistral": 11,
    "gemini-2": 11,
}  # fmt: skip
_FEWEST: Final = 30  # requests; a median of fewer gives no verdict
# Not the search and audio previews: they are separate models with hidden prompts.
_EXACT: Final = re.compile(r"gpt-4o(-mini)?(-20[\d-]+)?|gpt-4\.1(-mini|-nano)?(-20[\d-]+)?")
_LEAST_EXACT: Final = 99.0


class Errors(msgspec.Struct, frozen=True):
    """The differences between prices and reports, in percent."""

    n: int
    median: float
    p90: float
    bias: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]]) -> Errors:
        """Compute the errors of (priced, reported) pairs."""
        errors = sorted(abs(priced - reported) / reported for priced, reported in pairs)
        priced, reported = (sum(side) for side in zip(*pairs, strict=True))
        return cls(
            n=len(errors),
            median=100 * median(errors),
            p90=100 * errors[int(0.9 * len(errors))],
            bias=100 * (priced / reported - 1),
        )


# ---------------------------------------------------------------- prices


class Ours:
    """memman: each model's resolved counter, every text counted once."""

    def __init__(self) -> None:
        self._specs = [*memman_token_counters(), *builtin_specs()]
        self._known: dict[tuple[str, str], int] = {}
        self._counter = cache(self._resolved)

    def _resolved(self, model: ModelRef) -> Any:
        return resolve(model, self._specs).counter

    def __call__(self, sample: Sample) -> int:
        """Count the input tokens of a recorded request."""
        counter = self._counter(sample.ref)

        def count(texts: Sequence[str]) -> list[int]:
            return [self._once(counter, text) for text in texts]

        return price_request(sample.request, sample.ref, count)

    def _once(self, counter: Any, text: str) -> int:
        key = counter.fingerprint, text
        known = self._known.get(key)
        if known is None:
            [known] = counter.count_texts((text,))
            self._known[key] = known
        return known


def _everything(sample: Sample) -> Iterable[str]:
    """Yield all texts of a request, and its calls and tools as compact JSON."""
    for message in sample.body.messages:
        yield from message.texts
        for call in message.calls:
            yield from call
    yield render_tools(sample.body.tools, "json")


def chars4(sample: Sample) -> int:
    """Count one token for each four characters."""
    return sum(len(text) for text in _everything(sample)) // 4


@cache
def _o200k(text: str) -> int:
    return len(encoding("o200k_base").encode_ordinary(text))


def raw_o200k(sample: Sample) -> int:
    """Count o200k_base tokens of all texts, with nothing around them."""
    return sum(map(_o200k, _everything(sample)))


def langchain() -> Priced | None:
    """LangChain's approximation over its own messages, with tools; None if it is not installed."""
    try:
        from langchain_core.messages import convert_to_messages  # type: ignore[import-not-found,unused-ignore]  # need not be installed
        from langchain_core.messages.utils import (  # type: ignore[import-not-found,unused-ignore]  # need not be installed
            count_tokens_approximately,
        )
    except ImportError:
        return None

    def price(sample: Sample) -> int:
        return int(
            count_tokens_approximately(convert_to_messages(_chat(sample)), tools=[*_tools(sample)])
        )

    return price


def litellm() -> Priced | None:
    """litellm's offline counter by model name; None if it is not installed."""
    # At the first use of some models it looks for tokenizers on a hub, and retries for a minute.
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        from litellm import token_counter  # type: ignore[import-not-found,unused-ignore]  # need not be installed
    except ImportError:
        return None

    def price(sample: Sample) -> int:
        return int(
            token_counter(
                model=sample.ref.name, messages=_chat(sample), tools=_tools(sample) or None
            )
        )

    return price


def _chat(sample: Sample) -> list[dict[str, Any]]:
    """Return the conversation in the shape of chat completions, which the peers read."""
    messages: list[dict[str, Any]] = []
    pending: list[str] = []
    for at, each in enumerate(sample.body.messages):
        if each.results:
            for n in range(each.results):
                text = each.texts[n] if n < len(each.texts) else ""
                call = pending.pop(0) if pending else f"call_{at}_{n}"
                messages.append({"role": "tool", "content": text, "tool_call_id": call})
            continue
        role = {"model": "assistant", "developer": "system"}.get(each.role, each.role)
        message: dict[str, Any] = {"role": role, "content": "\n".join(each.texts)}
        if each.calls:
            pending = [f"call_{at}_{n}" for n in range(len(each.calls))]
            message["tool_calls"] = [
                {
                    "id": call,
                    "type": "function",
                    "function": {"name": name, "arguments": _object(arguments)},
                }
                for call, (name, arguments) in zip(pending, each.calls, strict=True)
            ]
        messages.append(message)
    return messages


def _object(arguments: str) -> str:
    """Return arguments that the peers can parse: broken ones as a string in an object."""
    try:
        parsed = json.loads(arguments or "{}")
    except ValueError:
        parsed = None
    return arguments or "{}" if isinstance(parsed, Mapping) else compact({"arguments": arguments})


def _tools(sample: Sample) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description or "",
                "parameters": dict(tool.schema),
            },
        }
        for tool in sample.body.tools
    ]


# ---------------------------------------------------------------- report


class Line(msgspec.Struct, frozen=True):
    """A family on an endpoint: our errors, and the median error of each of the others."""

    family: str
    endpoint: str
    ours: Errors
    others: dict[str, float | None]


def lines_of(
    prices: Mapping[str, list[tuple[Sample, int]]],
    key: Callable[[Sample], tuple[str, str] | None],
) -> list[Line]:
    """Return a line for each key, the largest first."""
    ours: defaultdict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    others: dict[str, defaultdict[tuple[str, str], list[tuple[int, int]]]] = {}
    for name, priced in prices.items():
        into = ours if name == "memman" else others.setdefault(name, defaultdict(list))
        for sample, tokens in priced:
            where = key(sample)
            if where is not None:
                into[where].append((tokens, sample.reported))
    return [
        Line(
            family=where[0] or "other",
            endpoint=where[1],
            ours=Errors.of(pairs),
            others={
                name: Errors.of(found[where]).median if found[where] else None
                for name, found in others.items()
            },
        )
        for where, pairs in sorted(ours.items(), key=lambda item: (item[0][0], -len(item[1])))
    ]


def shown(lines: Sequence[Line]) -> str:
    """Format lines as a table."""
    names = list(lines[0].others) if lines else []
    head = ("family", "requests", "n", "median %", "p90 %", "bias %", *names)
    return table(
        head,
        [
            (
                line.family,
                line.endpoint,
                line.ours.n,
                f"{line.ours.median:.1f}",
                f"{line.ours.p90:.1f}",
                f"{line.ours.bias:+.1f}",
                *(_cell(line.others[name]) for name in names),
            )
            for line in lines
        ],
    )


def _cell(error: float | None) -> str:
    return "-" if error is None else f"{error:.1f}"


class Result(msgspec.Struct, frozen=True):
    """All results of a run: the goals' lines, those with redactions, every endpoint, and the exact ones."""

    goal: list[Line]
    redacted: list[Line]
    endpoints: list[Line]
    exact: int
    text_only: int
    goals: list[Goal]


def measure(samples: Sequence[Sample]) -> Result:
    """Price every sample with every installed counter."""
    ours = Ours()
    pricers: dict[str, Priced | None] = {
        "memman": ours,
        "chars/4": chars4,
        "raw o200k": raw_o200k,
        "LangChain": langchain(),
        "litellm": litellm(),
    }
    evaluated = [sample for sample in samples if sample.evaluates]
    prices = {
        name: _priced(price, evaluated) for name, price in pricers.items() if price is not None
    }
    goal = lines_of(
        prices, lambda each: (each.ref.family, "chat and messages") if each.of_goal else None
    )
    redacted = lines_of(
        prices,
        lambda each: (
            (each.ref.family, "with redactions")
            if each.endpoint in ("chat completions", "messages")
            else None
        ),
    )
    endpoints = lines_of(
        prices, lambda each: (each.ref.family, each.endpoint) if each.plain else None
    )
    formula = [sample for sample in samples if _by_formula(sample)]
    exact = sum(ours(sample) == sample.reported for sample in formula)
    return Result(goal, redacted, endpoints, exact, len(formula), _goals(goal, exact, len(formula)))


def _priced(price: Priced, samples: Sequence[Sample]) -> list[tuple[Sample, int]]:
    """Return each sample with its price, without the samples at which a peer raises."""
    found = []
    for sample in samples:
        try:
            found.append((sample, price(sample)))
        except (TypeError, ValueError, KeyError, NotImplementedError) as error:
            if isinstance(price, Ours):
                raise
            print(f"left out: {sample.ref.name}: {type(error).__name__}", file=sys.stderr)
    return found


def _by_formula(sample: Sample) -> bool:
    """Whether OpenAI's published formula alone gives the price: text-only chat completions."""
    messages = sample.body.messages
    return (
        sample.plain
        and sample.endpoint == "chat completions"
        and _EXACT.fullmatch(sample.ref.name) is not None
        and not sample.body.tools
        and not any(message.calls or message.results for message in messages)
    )


def _goals(lines: Sequence[Line], exact: int, text_only: int) -> list[Goal]:
    found = {line.family: line.ours.median for line in lines if line.ours.n >= _FEWEST}
    goals = [
        Goal(f"median error, {family}", found[family], limit, unit="%")
        for family, limit in GOALS.items()
        if family in found
    ]
    if text_only:
        inexact = 100 - 100 * exact / text_only
        goals.append(Goal("text-only requests not exact", inexact, 100 - _LEAST_EXACT, unit="%"))
    return goals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="the small file, below 30 s")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    options = parser.parse_args(arguments)
    paths = [SHARED / name for name in (QUICK if options.quick else FULL)]
    if not all(path.is_file() for path in paths):
        print(f"{SHARED} does not exist: recorded requests are not part of the project")
        return 2
    result = measure(list(read_samples(paths)))
    if options.json:
        print(msgspec.json.encode(result).decode())
        return int(any_failed(result.goals))
    print("Chat completions and messages, flags within tools and cache_control\n")
    print(shown(result.goal))
    print("\nThe same with the records in which paths and addresses were redacted\n")
    print(shown(result.redacted))
    print("\nEvery endpoint, flags within tools and cache_control\n")
    print(shown(result.endpoints))
    exact = f"{result.exact} of {result.text_only} exact"
    print(f"\nText-only chat completions of gpt-4o and gpt-4.1: {exact}\n")
    peers = (("langchain-core", langchain()), ("litellm", litellm()))
    missing = [name for name, found in peers if not found]
    if missing:
        print(f"Columns left out, not installed: {', '.join(missing)}\n")
    print(report(result.goals))
    return int(any_failed(result.goals))


if __name__ == "__main__":
    sys.exit(main())
