"""Agent transcripts from a seed: the same everywhere, and made in memory.

Half the user's turns lead to one to three tool calls with results of 200 to 20,000 characters
(log-uniform; code or log lines): of the entries 52 % are messages, 24 % calls and 24 % results,
with 1,158 characters on average. The draws and their order are fixed: changing one changes every
figure.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Literal

import msgspec

SEED = 20261121
_WORDS = (  # noqa: SIM905 - two hundred words in quotes and commas are harder to read
    "the a to of in and is for on that with as it this be are from at by or an not can we "
    "you i have if will has was but error file test build cache index token memory session "
    "user request response timeout retry deploy server client update function class module "
    "import return value string number list dict config option default version release "
    "branch commit merge review change fix issue please could should would why how what "
    "when where which make add remove check run show find explain refactor compare between "
    "before after pipeline latency throughput schema query table column row transaction "
    "lock thread process queue worker event handler callback stream parse encode decode "
    "serialize validate assert raise exception traceback warning debug log level trace "
    "metric gauge counter histogram "
).split()
_FOREIGN = ["café", "naïve", "→", "✓", "日本語のログ", "größer", "Привет", "🙂"]
_TOOLS = ["shell", "read_file", "write_file", "search_code", "http_get", "run_tests", "sql_query"]
_LEVELS = ["INFO", "WARN", "ERROR", "DEBUG"]
_RESULT_CHARS = (200, 20_000)


class Item(msgspec.Struct, frozen=True):
    """The next item of an agent. `content` of a call is its name and arguments as JSON."""

    kind: Literal["message", "tool_call", "tool_result"]
    role: Literal["user", "assistant", "tool"]
    content: str
    name: str = ""
    arguments: dict[str, Any] = {}
    call_id: str = ""


def items(number: int, seed: int = SEED) -> list[Item]:
    """Return the first `number` items of the transcript of this seed."""
    return list(islice(_endless(random.Random(seed)), number))


def transcripts(sessions: int, each: int) -> list[list[Item]]:
    """Return the first `each` items of so many transcripts, each with its own seed."""
    return [items(each, SEED + number) for number in range(sessions)]


def _endless(draw: random.Random) -> Iterator[Item]:
    calls = 0
    while True:
        yield Item("message", "user", sentence(draw, draw.randint(15, 220)))
        if draw.random() < 0.5:
            for _ in range(draw.choice((1, 1, 2, 2, 3))):
                calls += 1
                yield from _call_and_result(draw, f"call_e{calls:06d}")
        yield Item("message", "assistant", sentence(draw, draw.randint(200, 400)))


def _call_and_result(draw: random.Random, call_id: str) -> Iterator[Item]:
    name = draw.choice(_TOOLS)
    arguments = {
        "path": f"src/{draw.choice(_WORDS)}/{draw.choice(_WORDS)}.py",
        "query": sentence(draw, draw.randint(10, 60)),
        "limit": draw.randint(1, 500),
    }
    text = json.dumps({"name": name, "arguments": arguments})
    yield Item("tool_call", "assistant", text, name, arguments, call_id)
    smallest, largest = map(math.log, _RESULT_CHARS)
    size = int(math.exp(draw.uniform(smallest, largest)))
    line_of = _Code() if draw.random() < 0.5 else _Log(draw)
    yield Item("tool_result", "tool", _lines(draw, size, line_of), name, {}, call_id)


def sentence(draw: random.Random, chars: int) -> str:
    """Return words with some punctuation, `chars` characters of them or one less."""
    words: list[str] = []
    length = 0
    while length < chars:
        word = draw.choice(_WORDS) if draw.random() > 0.01 else draw.choice(_FOREIGN)
        if draw.random() < 0.06:
            word += draw.choice(".,;:?!")
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[: max(1, chars)]


def _lines(draw: random.Random, chars: int, line_of: Callable[[random.Random], str]) -> str:
    lines: list[str] = []
    length = 0
    while length < chars:
        lines.append(line_of(draw))
        length += len(lines[-1]) + 1
    return "\n".join(lines)[:chars]


class _Code:
    """Lines that look like Python; the indentation follows them."""

    def __init__(self) -> None:
        self._depth = 0

    def __call__(self, draw: random.Random) -> str:
        word = _word(draw)
        indent = "    " * self._depth
        kind = draw.random()
        if kind < 0.15:
            self._depth = 1
            return f"def {word()}_{word()}(self, {word()}, {word()}=None):"
        if kind < 0.3:
            self._depth = min(self._depth + 1, 4)
            return f"{indent}if {word()}.{word()} >= {draw.randint(0, 9999)}:"
        if kind < 0.4:
            self._depth = max(self._depth - 1, 0)
            return f"{indent}return {word()}[{draw.randint(0, 99)}]"
        if kind < 0.5:
            return f"{indent}# {sentence(draw, 40)}"
        if kind < 0.55:
            return ""
        return f"{indent}self.{word()}_{word()} = {word()}({word()!r}, {draw.random():.4f})"


class _Log:
    """Log lines with a clock that runs on."""

    def __init__(self, draw: random.Random) -> None:
        self._clock = draw.randint(0, 10**7)

    def __call__(self, draw: random.Random) -> str:
        word = _word(draw)
        self._clock += draw.randint(1, 900)
        seconds, milliseconds = divmod(self._clock, 1_000)
        at = f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        return (
            f"2026-11-21T{at}.{milliseconds:03d}Z {draw.choice(_LEVELS)} [{word()}.{word()}] "
            f"req={draw.getrandbits(64):016x} {sentence(draw, draw.randint(20, 90))} "
            f"took={draw.random() * 500:.2f}ms"
        )


def _word(draw: random.Random) -> Callable[[], str]:
    return lambda: draw.choice(_WORDS)
