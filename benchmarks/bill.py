"""What a conversation costs under a provider's prompt cache: policies, limits and providers.

    python -m benchmarks.bill [--quick] [--grid] [--sessions 40] [--limits 64000] [--policies "NAME; NAME"]

Recorded sessions of coding agents with at least 40,000 tokens are played. A request is sent before each
recorded answer to new messages; `benchmarks.cache_server` charges it. System prompt and tools take 18,000
tokens before the conversation, and the limit is the conversation's. All providers get the same blocks,
counted with o200k_base; output is the same everywhere and left out, except a summarizer's.

- breaks: requests that do not begin with the whole previous request. *head*: those after which the system
  prompt and the tools were not read from the cache.
- needed: the argument values of the agent's calls that the context has (`benchmarks.needed`); *old* ones
  are not among the newest messages that fill the limit.
- The grid has no pauses. The second table has pauses from a fixed seed: log-normal, before an answer to a
  tool with median 8 s and sigma 1, before an answer to the user with median 120 s and sigma 2.25. The
  recordings have only a start and an end; the mean pause of the second kind, 25 minutes, is theirs.
- The third table asks a model for the summaries (1,500 tokens of output), apart or on the cached prefix.

Exit codes: 0 all goals met or held, 1 a goal missed, 2 no data.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import log
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from benchmarks import needed
from benchmarks.cache_server import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    Charge,
    Piece,
    PromptCache,
    Rules,
    pieces_of,
    text_of,
    tokens,
)
from benchmarks.goals import Goal, any_failed, report
from benchmarks.policies import HEAD, LangMem, Make, Memman, Plain, Request, Trimmed, turns
from benchmarks.tables import table
from benchmarks.trajectories import DATA, Trajectory, read_trajectories

LIMITS = (32_000, 64_000, 100_000)
SESSIONS = 40
HEAD_TOKENS = 18_000
_LEAST = 160_000  # characters of a session as JSON: 40,000 tokens
_SUMMARY = 1_500  # tokens of a model's summary
_ASK = 100  # tokens of the instruction on the cached prefix
_NO_DATA = 2


class Provider(msgspec.Struct, frozen=True):
    """A provider's cache and its prices in USD per million tokens."""

    rules: Rules
    input: float
    read: float
    written: float
    output: float

    def cost(self, charge: Charge) -> float:
        """Return the price of a request's input."""
        paid = charge.input * self.input + charge.read * self.read + charge.written * self.written
        return paid / 1e6


# Claude Sonnet 4.5, GPT-5 and Gemini 2.5 Pro (to 200,000 tokens); list prices of 23 November 2026.
PROVIDERS = {
    "Anthropic": Provider(ANTHROPIC, 3.0, 0.3, 3.75, 15.0),
    "OpenAI": Provider(OPENAI, 1.25, 0.125, 1.25, 10.0),
    "Gemini": Provider(GEMINI, 1.25, 0.125, 1.25, 10.0),
}


def _memman(**settings: Any) -> Make:
    return lambda limit: Memman(limit, **settings)


KEEP, SLIDE, TRIM, OURS = "keep everything", "token_buffer", "trimmed at each request", "default"
POLICIES: dict[str, Make] = {
    KEEP: lambda _limit: Plain(),
    TRIM: Trimmed,
    SLIDE: _memman(strategy="token_buffer"),
    "token_buffer, target_ratio=0.5": _memman(strategy="token_buffer", target_ratio=0.5),
    "LangMem's summary": LangMem,
    "summary_buffer": _memman(strategy="summary_buffer"),
    OURS: _memman(),
    "target_ratio=0.2": _memman(target_ratio=0.2),
    "target_ratio=0.3": _memman(target_ratio=0.3),
    "target_ratio=0.35": _memman(target_ratio=0.35),
    "target_ratio=0.4": _memman(target_ratio=0.4),
    "target_ratio=0.5": _memman(target_ratio=0.5),
    "target_ratio=0.7": _memman(target_ratio=0.7),
    "recent_window=0": _memman(recent_window=0),
    "recent_window=30": _memman(recent_window=30),
}
_QUICK = 2
_QUICK_POLICIES = (KEEP, SLIDE, OURS, "target_ratio=0.3")
_SUMMARIZED = {
    "default, a model's summaries": _memman(summarized=True),
    "summary_buffer, a model's summaries": _memman(strategy="summary_buffer", summarized=True),
}
_PAUSED = {
    "compress_when_cold=False": _memman(compress_when_cold=False),
    "compress_when_cold=True": _memman(compress_when_cold=True),
}


# ---------------------------------------------------------------- a session


class Bill(msgspec.Struct, frozen=True):
    """What one policy's requests cost, and what they had; sums of sessions."""

    requests: int = 0
    compressions: int = 0
    breaks: int = 0
    heads: int = 0
    charge: Charge = Charge()
    money: dict[str, float] = {}
    cold: int = 0
    cold_money: float = 0
    summaries: int = 0
    apart: float = 0
    on_prefix: float = 0
    read_share: float = 0
    kept: needed.Score = needed.Score()

    def __add__(self, other: Bill) -> Bill:
        pairs = zip(*map(msgspec.structs.astuple, (self, other)), strict=True)
        return Bill(*(_sum(*pair) for pair in pairs))


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}
    return one + other


class Meter:
    """The caches of all providers over the requests of one session."""

    def __init__(self) -> None:
        self.caches = {name: PromptCache(each.rules) for name, each in PROVIDERS.items()}
        self.bill = Bill()
        self._previous: list[int] = []
        self._asked_at = 0.0
        self._pieces: list[Piece] = []

    def charge(self, request: Request, now: float) -> None:
        """Charge a request."""
        pieces = self._pieces = pieces_of(request, head_count)
        digests = [piece.digest for piece in pieces]
        broken = digests[: len(self._previous)] != self._previous
        charges = {name: cache.charge(pieces, now) for name, cache in self.caches.items()}
        marked = charges["Anthropic"]
        cold = bool(self._previous) and now - self._asked_at > ANTHROPIC.lifetime
        money = {name: PROVIDERS[name].cost(each) for name, each in charges.items()}
        self.bill += Bill(
            requests=1, breaks=int(broken), charge=marked, money=money, cold=int(cold),
            heads=int(broken and not cold and marked.read < HEAD_TOKENS),
            cold_money=money["Anthropic"] if cold else 0.0,
        )  # fmt: skip
        self._previous, self._asked_at = digests, now

    def summarize(self, prompt: str, now: float) -> None:
        """Charge a summary of a model: asked apart, and asked at the end of the last request."""
        claude = PROVIDERS["Anthropic"]
        output = _SUMMARY * claude.output / 1e6
        asked = [*self._pieces, Piece(hash(prompt), _ASK)]
        read = self.caches["Anthropic"].charge(asked, now)
        self.bill += Bill(
            summaries=1,
            apart=claude.cost(Charge(input=tokens(prompt))) + output,
            on_prefix=claude.cost(read) + output,
            read_share=read.read / read.total,
        )


def head_count(text: str) -> int:
    """Count the tokens of a text, for the head those of all the instructions and tools."""
    return HEAD_TOKENS if text == HEAD else tokens(text)


def play(session: Trajectory, make: Make, limit: int, *, pauses: bool = False) -> Bill:
    """Play a session through a policy."""
    policy, meter, now = make(limit), Meter(), 0.0
    random = Random(session.id)
    moments = {moment.at: moment for moment in needed.moments(session.messages)}
    texts = [needed.text_of(message) for message in session.messages]
    sizes = list(map(needed.size_of, texts))
    for at, new, answer in turns(session.messages):
        if pauses:
            now += _pause(random, new)
        policy.add(new, now)
        _summaries(policy.prompts, meter, now)
        if new and (request := policy.request()) is not None:
            meter.charge(request, now)
            if at in moments:
                near = "\n".join(texts[needed.window_start(sizes, at, limit) : at])
                text = "\n".join(map(text_of, request["messages"]))
                sent = needed.Request(text, 0)
                meter.bill += Bill(kept=needed.score(moments[at], near, sent))
        policy.add([answer], now)
        _summaries(policy.prompts, meter, now)
    policy.close()
    return meter.bill + Bill(compressions=policy.compressions)


class Step(msgspec.Struct, frozen=True):
    """A request of a traced session: its charge and Anthropic's price of it."""

    at: int
    broken: bool
    charge: Charge
    money: float


def trace(session: Trajectory, make: Make, limit: int) -> list[Step]:
    """Return each request of a session, without pauses."""
    policy, meter = make(limit), Meter()
    steps: list[Step] = []
    for _, new, answer in turns(session.messages):
        policy.add(new, 0.0)
        if new and (request := policy.request()) is not None:
            before = meter.bill
            meter.bill = Bill()
            meter.charge(request, 0.0)
            one = meter.bill
            steps.append(Step(len(steps) + 1, bool(one.breaks), one.charge, one.money["Anthropic"]))
            meter.bill = before + one
        policy.add([answer], 0.0)
    policy.close()
    return steps


def traced(session: Trajectory, limit: int) -> str:
    """Return a table of the requests around each compression, beside keeping everything."""
    ours, kept = (trace(session, POLICIES[name], limit) for name in (OURS, KEEP))
    broken = {one.at for one in ours if one.broken}
    shown = [one for one in ours if one.at in {1, len(ours)} or {one.at, one.at + 1} & broken]
    lines = []
    for one in shown:
        other = kept[one.at - 1]
        sums = (sum(each.money for each in steps[: one.at]) for steps in (ours, kept))
        lines.append([
            f"{one.at}{', after a compression' if one.broken else ''}", int(one.charge.total),
            int(one.charge.read), int(one.charge.written), f"${one.money:.3f}",
            int(other.charge.total), f"${other.money:.3f}", *(f"${each:.2f}" for each in sums),
        ])  # fmt: skip
    headers = (
        "request",
        "input",
        "read",
        "written",
        "cost",
        "kept: input",
        "cost",
        "sum",
        "kept: sum",
    )
    return f"{session.id} at {limit:,}\n{table(headers, lines)}"


def _summaries(prompts: list[str], meter: Meter, now: float) -> None:
    while prompts:
        meter.summarize(prompts.pop(0), now)


def _pause(random: Random, new: Sequence[Mapping[str, object]]) -> float:
    user = any(message["role"] == "user" for message in new)
    middle, sigma = (120.0, 2.25) if user else (8.0, 1.0)
    return random.lognormvariate(log(middle), sigma)


# ---------------------------------------------------------------- tables

Run = Callable[[Make, int, bool], Bill]
_HEADERS = (
    "", "requests", "compressions", "breaks", "head", "input M", "hit ratio", *PROVIDERS, "x keep",
    "needed", "old",
)  # fmt: skip


def grid(
    run: Run, policies: Mapping[str, Make], limits: Sequence[int]
) -> dict[tuple[int, str], Bill]:
    """Return the bills by limit and policy; keeping everything has no limit."""
    found: dict[tuple[int, str], Bill] = {}
    for limit in limits:
        for name, make in policies.items():
            first = (limits[0], name)
            found[limit, name] = (
                found[first] if name == KEEP and first in found else run(make, limit, False)
            )
            print(".", end="", file=sys.stderr, flush=True)
    return found


def rows(found: Mapping[tuple[int, str], Bill]) -> list[list[object]]:
    """Return a row for each limit and policy."""
    made: list[list[object]] = []
    for (limit, name), one in found.items():
        most = found[limit, KEEP].money["Anthropic"] if (limit, KEEP) in found else 0
        made.append([
            f"{limit // 1000}k: {name}", one.requests, one.compressions, one.breaks, one.heads,
            f"{one.charge.total / 1e6:.1f}", one.charge.read / max(1, one.charge.total),
            *(f"${one.money[each]:.2f}" for each in PROVIDERS),
            one.money["Anthropic"] / most if most else "",
            one.kept.kept / max(1, one.kept.needed), one.kept.old_kept / max(1, one.kept.old),
        ])  # fmt: skip
    return made


def paused(run: Run, limit: int) -> tuple[str, list[Goal]]:
    """Return the bills with pauses, and the goal for requests after a long one."""
    found = {name: run(make, limit, True) for name, make in _PAUSED.items()}
    shown = [
        [
            name,
            one.compressions,
            one.cold,
            f"${one.cold_money:.2f}",
            f"${one.money['Anthropic']:.2f}",
            one.kept.kept / max(1, one.kept.needed),
            one.kept.old_kept / max(1, one.kept.old),
        ]
        for name, one in found.items()
    ]
    before, after = (one.cold_money for one in found.values())
    headers = (
        "with pauses", "compressions", "cold requests", "their cost", "all", "needed", "old"
    )  # fmt: skip
    text = table(headers, shown)
    return text, [Goal("cold requests, over those without", after / before, 0.6, held=0.9)]


def summarized(run: Run, limit: int) -> tuple[str, list[Goal]]:
    """Return the cost of a model's summaries, and the goal for their cached input."""
    found = {name: run(make, limit, False) for name, make in _SUMMARIZED.items()}
    shares = {name: one.read_share / max(1, one.summaries) for name, one in found.items()}
    shown = [
        [name, one.summaries, f"${one.apart:.2f}", f"${one.on_prefix:.2f}", shares[name]]
        for name, one in found.items()
    ]
    text = table(("", "summaries", "asked apart", "on the prefix", "of it read"), shown)
    return text, [Goal("summaries' input that is not read", 1 - min(shares.values()), 0.1)]


def goals(found: Mapping[tuple[int, str], Bill]) -> list[Goal]:
    """Return the goals that the grid has figures for."""
    made = []
    if (key := (64_000, OURS)) in found:
        ours = found[key].money["Anthropic"]
        for name, limit, held in ((KEEP, 0.60, 0.72), (SLIDE, 0.36, 0.41)):
            if (other := (64_000, name)) in found:
                ratio = ours / found[other].money["Anthropic"]
                made.append(Goal(f"64,000: bill over {name}", ratio, limit, held=held))
    ours_all = [one for (_, name), one in found.items() if name == OURS]
    made.append(Goal("heads written again", sum(one.heads for one in ours_all), 0))
    unexplained = sum(max(0, one.breaks - one.compressions) for one in ours_all)
    # One recording begins with a result without its call.
    made.append(Goal("breaks without a compression", unexplained, 0, held=1))
    return made


# ---------------------------------------------------------------- the command


def chosen(path: Path, sessions: int) -> list[Trajectory]:
    """Return the first long coding sessions, by id."""
    found = [
        one
        for one in read_trajectories(path)
        if one.id.startswith("claude-code")
        and sum(len(json.dumps(each)) for each in one.messages) >= _LEAST
    ]
    return sorted(found, key=lambda one: one.id)[:sessions]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    logging.getLogger("memman").addHandler(logging.NullHandler())
    path = options.folder / "trajectories.jsonl.gz"
    if not path.is_file():
        print(f"no recorded conversations in {options.folder}", file=sys.stderr)
        return _NO_DATA
    sessions = chosen(path, options.sessions or (_QUICK if options.quick else SESSIONS))
    limits = options.limits or ((64_000,) if options.quick else LIMITS)
    names = options.policies or (_QUICK_POLICIES if options.quick else POLICIES)
    if options.trace is not None:
        print(traced(sessions[options.trace], (options.limits or LIMITS[1:])[0]))
        return 0
    policies, notes = _available({name: POLICIES[name] for name in names})

    def run(make: Make, limit: int, pauses: bool) -> Bill:
        bills = (play(session, make, limit, pauses=pauses) for session in sessions)
        return reduce(Bill.__add__, bills, Bill())

    found = grid(run, policies, limits)
    print(f"{len(sessions)} sessions\n{table(_HEADERS, rows(found))}\n" + "".join(notes))
    aims = goals(found)
    if not options.grid:
        for part in (paused, summarized):
            text, more = part(run, 64_000)
            print(f"{text}\n")
            aims += more
    print(report(aims))
    return int(any_failed(aims))


def _available(policies: Mapping[str, Make]) -> tuple[dict[str, Make], list[str]]:
    """Return the policies that can be played, and why others cannot."""
    found, notes = {}, []
    for name, make in policies.items():
        try:
            make(LIMITS[0]).close()
        except ImportError as error:
            notes.append(f"note: {name} is skipped: {error}\n")
        else:
            found[name] = make
    return found, notes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bill", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--folder", type=Path, default=DATA, help="folder of the conversations")
    parser.add_argument("--quick", action="store_true", help="two sessions, four policies, 64,000")
    parser.add_argument("--sessions", type=int, help=f"{SESSIONS} by default")
    parser.add_argument("--limits", type=needed.numbers, help="tokens, comma-separated")
    parser.add_argument("--policies", type=needed.names, help="; ".join(POLICIES))
    parser.add_argument("--trace", type=int, help="one session's requests at compressions, from 0")
    parser.add_argument(
        "--grid", action="store_true", help="only the grid: no pauses, no summaries"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
