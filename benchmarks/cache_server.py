"""A provider's prompt cache: what a request reads from it, writes to it, and pays in full.

    python -m benchmarks.cache_server [--folder FOLDER]

Two kinds of rules. With marks (Anthropic, Bedrock): an entry ends at a mark, a request reads the longest
live entry at one of the last 20 blocks up to a mark, and a prefix below a least length is not cached.
Automatic (OpenAI, Gemini): the longest common prefix with a live request is read, in steps of tokens.
Sources: platform.claude.com/docs/en/build-with-claude/prompt-caching,
platform.openai.com/docs/guides/prompt-caching, ai.google.dev/gemini-api/docs/caching (November 2026).

`PromptCache` charges a request in process; `serving` runs it as a provider on the loopback interface, for
the SDKs of Anthropic and OpenAI. The command predicts the cache reads of recorded requests and compares
them with those that the providers reported. Exit codes: 0 within the goal, 1 not, 2 no data.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import msgspec

from benchmarks.goals import Goal, any_failed, report
from benchmarks.tables import table
from benchmarks.tokens import chars4, o200k
from benchmarks.usage import SHARED, read_records
from memman.testing.loopback import Answer, LoopbackServer, Received

Count = Callable[[str], int]
HOUR = 3_600.0
_BLOCK = 4  # tokens around a block
_MOST_MARKS = 4
_OUTPUT = 12  # tokens of the server's reply
# Keys whose values are no text of the model's input.
_FRAMING = {
    "type",
    "role",
    "id",
    "tool_use_id",
    "tool_call_id",
    "call_id",
    "toolUseId",
    "media_type",
}
_MARKS = ("cache_control", "cachePoint")


class Rules(msgspec.Struct, frozen=True):
    """A provider's cache: least tokens, seconds of life, and `step` tokens if it needs no marks."""

    least: int = 1_024
    lifetime: float = 300.0
    look_back: int = 20
    step: int = 0


ANTHROPIC = Rules()
OPENAI = Rules(step=128, lifetime=600.0)
GEMINI = Rules(step=1, least=4_096, lifetime=300.0)
# The least lengths of Anthropic's models, by the beginning of their names.
_LEAST = {
    "claude-opus-4-5": 4_096, "claude-opus-4-6": 4_096, "claude-haiku-4-5": 4_096,
    "claude-sonnet-4-6": 2_048, "claude-3-5-haiku": 2_048, "claude-3-haiku": 2_048,
}  # fmt: skip


def rules_of(model: str) -> Rules:
    """Return the rules of an Anthropic model."""
    least = next((size for name, size in _LEAST.items() if model.startswith(name)), 1_024)
    return msgspec.structs.replace(ANTHROPIC, least=least)


# ---------------------------------------------------------------- requests as pieces


class Piece(NamedTuple):
    """A block of a request: a hash of its content, its tokens, and the seconds that its mark asks for."""

    digest: int
    tokens: float
    mark: float | None = None


def pieces_of(request: Mapping[str, Any], count: Count) -> list[Piece]:
    """Return the blocks of a request in the cache's order: tools, system, messages.

    Messages may be those of Anthropic, Bedrock, OpenAI or Gemini.
    """
    found: list[Piece] = []
    for tool in request.get("tools") or ():
        _add(found, "tool", tool, count)
    _add_all(found, "system", request.get("system") or request.get("systemInstruction"), count)
    for message in request.get("messages") or request.get("contents") or request.get("input") or ():
        role = message.get("role", "item")
        if role == "item":
            _add(found, role, message, count)
            continue
        _add_all(found, role, message.get("content") or message.get("parts"), count)
        for call in message.get("tool_calls") or ():
            _add(found, role, call, count)
        if "cache_control" in message and found:
            found[-1] = found[-1]._replace(mark=_seconds(message["cache_control"]))
    return found


def _add_all(found: list[Piece], role: str, content: Any, count: Count) -> None:
    blocks = [content] if isinstance(content, str | dict) else content or ()
    for block in blocks:
        _add(found, role, block, count)


def _add(found: list[Piece], role: str, block: Any, count: Count) -> None:
    """Add a block; a block that only marks marks the one before it."""
    mark = None
    if isinstance(block, dict):
        marks = [block[key] for key in _MARKS if key in block]
        mark = _seconds(marks[0]) if marks else None
        block = {key: value for key, value in block.items() if key not in _MARKS}
        if mark and not block and found:
            found[-1] = found[-1]._replace(mark=mark)
            return
    elif isinstance(block, str):
        block = {"type": "text", "text": block}  # the same as a list with one text
    encoded = msgspec.json.encode(block)
    found.append(Piece(hash((role, encoded)), _priced(encoded, count), mark))


@lru_cache(maxsize=100_000)
def _priced(encoded: bytes, count: Count) -> int:
    return count(text_of(msgspec.json.decode(encoded))) + _BLOCK


def _seconds(mark: Any) -> float:
    return HOUR if isinstance(mark, dict) and mark.get("ttl") == "1h" else ANTHROPIC.lifetime


def text_of(value: Any) -> str:
    """Return the texts of a message or block, arguments as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(map(text_of, value))
    if not isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    parts = (
        msgspec.json.encode(each).decode()
        if key in _ARGUMENTS and isinstance(each, dict)
        else text_of(each)
        for key, each in value.items()
        if key not in _FRAMING and key not in _MARKS and each is not None
    )
    return "\n".join(parts)


_ARGUMENTS = {"input", "args", "input_schema", "parameters"}


# ---------------------------------------------------------------- the cache


class Charge(msgspec.Struct, frozen=True):
    """The input tokens of a request by price: in full, read, written for 5 minutes and for an hour."""

    input: float = 0
    read: float = 0
    written: float = 0
    written_1h: float = 0

    @property
    def total(self) -> float:
        """All input tokens."""
        return self.input + self.read + self.written + self.written_1h

    def __add__(self, other: Charge) -> Charge:
        return Charge(*map(sum, zip(*map(msgspec.structs.astuple, (self, other)), strict=True)))


class PromptCache:
    """The cache of one account and model. Times are seconds that never go back."""

    def __init__(self, rules: Rules = ANTHROPIC) -> None:
        self._rules = rules
        self._ends: dict[int, float] = {}  # by the hash of a prefix, when its entry dies

    def charge(self, pieces: Sequence[Piece], now: float) -> Charge:
        """Return the tokens of a request, and keep what it writes."""
        prefixes = list(accumulate((piece.digest for piece in pieces), _chained, initial=0))[1:]
        ends = list(accumulate(piece.tokens for piece in pieces))
        return (
            self._automatic(prefixes, ends, now)
            if self._rules.step
            else self._marked(pieces, prefixes, ends, now)
        )

    def _automatic(self, prefixes: Sequence[int], ends: Sequence[float], now: float) -> Charge:
        total = ends[-1] if ends else 0
        common = 0.0
        for prefix, end in zip(prefixes, ends, strict=True):
            if not self._lives(prefix, now):
                break
            common = end
        read = common // self._rules.step * self._rules.step
        read = read if read >= self._rules.least else 0
        self._ends.update(dict.fromkeys(prefixes, now + self._rules.lifetime))
        return Charge(input=total - read, read=read)

    def _marked(
        self, pieces: Sequence[Piece], prefixes: Sequence[int], ends: Sequence[float], now: float
    ) -> Charge:
        marks = {at: piece.mark for at, piece in enumerate(pieces) if piece.mark}
        found = -1
        for mark in marks:
            first = max(-1, mark - self._rules.look_back)
            live = (at for at in range(mark, first, -1) if self._lives(prefixes[at], now))
            found = max(found, next(live, -1))
        read = at = ends[found] if found >= 0 else 0
        written = {ANTHROPIC.lifetime: 0.0, HOUR: 0.0}
        for mark, seconds in marks.items():
            if ends[mark] < self._rules.least:
                continue
            self._ends[prefixes[mark]] = max(now + seconds, self._ends.get(prefixes[mark], 0))
            if ends[mark] > at:
                written[seconds] += ends[mark] - at
                at = ends[mark]
        if found >= 0:
            self._ends[prefixes[found]] = max(now + ANTHROPIC.lifetime, self._ends[prefixes[found]])
        five, hour = written.values()
        return Charge((ends[-1] if ends else 0) - at, read, five, hour)

    def _lives(self, prefix: int, now: float) -> bool:
        return self._ends.get(prefix, -1.0) > now


def _chained(before: int, digest: int) -> int:
    return hash((before, digest))


# ---------------------------------------------------------------- the server


class CacheServer(LoopbackServer):
    """Anthropic's `messages` and OpenAI's `chat.completions` with a prompt cache; `charges` are in order.

    A fifth mark is refused, as Anthropic does. `reply` is the text of each answer.
    """

    def __init__(self, count: Count = chars4, clock: Callable[[], float] = monotonic) -> None:
        super().__init__("", [])
        self.charges: list[Charge] = []
        self.reply = "It is fine."
        self._count, self._clock = count, clock
        self._caches: dict[tuple[str, str], PromptCache] = {}
        self._charging = threading.Lock()

    def answer_to(self, request: Received) -> Answer:
        """Return the answer of the provider that a path belongs to."""
        body = request.body
        marked = request.path.endswith("/messages")
        if not marked and not request.path.endswith("/chat/completions"):
            self.astray.append(request.path)
            return Answer(404, {"error": {"message": f"nothing is served at {request.path}"}})
        pieces = pieces_of(body, self._count)
        if sum(piece.mark is not None for piece in pieces) > _MOST_MARKS:
            return Answer(400, {"type": "error", "error": {
                "type": "invalid_request_error",
                "message": f"A maximum of {_MOST_MARKS} blocks with cache_control may be provided.",
            }})  # fmt: skip
        with self._charging:
            self.received.append(request)
            rules = rules_of(body["model"]) if marked else OPENAI
            key = body["model"], body.get("prompt_cache_key", "")
            charge = self._caches.setdefault(key, PromptCache(rules)).charge(pieces, self._clock())
            self.charges.append(charge)
        return Answer(body=(self._message if marked else self._completion)(body["model"], charge))

    def _message(self, model: str, charge: Charge) -> dict[str, Any]:
        five, hour = int(charge.written), int(charge.written_1h)
        return {
            "id": f"msg_{len(self.charges)}", "type": "message", "role": "assistant", "model": model,
            "content": [{"type": "text", "text": self.reply}], "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": int(charge.input), "output_tokens": _OUTPUT,
                "cache_read_input_tokens": int(charge.read),
                "cache_creation_input_tokens": five + hour,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": five, "ephemeral_1h_input_tokens": hour,
                },
            },
        }  # fmt: skip

    def _completion(self, model: str, charge: Charge) -> dict[str, Any]:
        total = int(charge.total)
        message = {"role": "assistant", "content": self.reply, "refusal": None}
        return {
            "id": f"chatcmpl-{len(self.charges)}", "object": "chat.completion", "created": 1_750_000_000,
            "model": model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": total, "completion_tokens": _OUTPUT, "total_tokens": total + _OUTPUT,
                "prompt_tokens_details": {"cached_tokens": int(charge.read)},
            },
        }  # fmt: skip


def serving(
    count: Count = chars4, clock: Callable[[], float] = monotonic
) -> AbstractContextManager[CacheServer]:
    """Run a server for the length of the block."""
    return CacheServer(count, clock).running()


@cache
def tokens(text: str) -> int:
    """Count the tokens of a text (o200k_base)."""
    return len(o200k()(text))


# ---------------------------------------------------------------- recorded requests

_RECORDED = "usage_crush.public.jsonl.gz"
_WITHIN = 0.05  # of the reported reads, in sum
_APART = 2.0  # seconds between requests: the records have no times


class Reads(msgspec.Struct, frozen=True):
    """Requests with their predicted and reported cache reads."""

    requests: int = 0
    predicted: float = 0
    reported: int = 0

    @property
    def error(self) -> float:
        """How far the sum of the predictions is from the reports."""
        return abs(self.predicted / self.reported - 1) if self.reported else 1.0


def recorded(path: Path, provider: str) -> list[dict[str, Any]]:
    """Return the requests with tools that a provider answered: cassette by cassette, in order."""
    found = (one for one in read_records(path) if one["provider"] == provider)
    return sorted(
        (one for one in found if one["request"].get("tools")),
        key=lambda one: (*_cassette(one), one["interaction"]),
    )


def predict(
    records: Sequence[Mapping[str, Any]], rules: Rules, *, follow_ups: bool, hits: bool = False
) -> Reads:
    """Return the predicted reads: of each cassette's requests after its first, or of all of a model.

    A request's tokens are scaled to the reported sum, since Anthropic publishes no vocabulary. With
    `hits`, requests are left out if less than half of the prediction was read.
    """
    caches: dict[Any, PromptCache] = {}
    sums = Reads()
    for at, one in enumerate(records):
        key = (*_cassette(one), one["model"]) if follow_ups else one["model"]
        first = follow_ups and key not in caches
        pieces = pieces_of(one["request"], tokens)
        scale = one["reported_input_tokens"] / sum(piece.tokens for piece in pieces)
        scaled = [piece._replace(tokens=piece.tokens * scale) for piece in pieces]
        charge = caches.setdefault(key, PromptCache(rules)).charge(scaled, at * _APART)
        reads = _reported(one["usage"])
        if not first and not (hits and reads < charge.read / 2):
            sums = Reads(sums.requests + 1, sums.predicted + charge.read, sums.reported + reads)
    return sums


def _cassette(record: Mapping[str, Any]) -> tuple[str, str]:
    return record["source_path"], record["source_blob"]


def _reported(usage: Mapping[str, Any]) -> int:
    details = usage.get("prompt_tokens_details") or {}
    return usage.get("cache_read_input_tokens") or details.get("cached_tokens") or 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cache_server", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--folder", type=Path, default=SHARED, help="folder of the records")
    path = parser.parse_args(arguments).folder / _RECORDED
    if not path.is_file():
        print(f"{path} does not exist", file=sys.stderr)
        return 2
    claude, gpt = recorded(path, "anthropic"), recorded(path, "openai")
    found = {
        "Anthropic, later requests of a cassette": predict(claude, ANTHROPIC, follow_ups=True),
        "Anthropic, all requests, one cache a model": predict(claude, ANTHROPIC, follow_ups=False),
        "OpenAI, later requests that hit": predict(gpt, OPENAI, follow_ups=True, hits=True),
        "OpenAI, later requests of a cassette": predict(gpt, OPENAI, follow_ups=True),
    }
    rows = [
        [
            name,
            one.requests,
            int(one.predicted),
            one.reported,
            f"{one.predicted / one.reported - 1:+.1%}",
        ]
        for name, one in found.items()
    ]
    print(table(("", "requests", "predicted reads", "reported reads", "error"), rows))
    found.popitem()  # OpenAI routes some requests to a machine without the prefix: no rule predicts it
    goals = [Goal(f"{name}: error", one.error, _WITHIN) for name, one in found.items()]
    print(f"\n{report(goals)}")
    return int(any_failed(goals))


if __name__ == "__main__":
    sys.exit(main())
