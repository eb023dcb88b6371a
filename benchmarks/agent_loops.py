"""Plain agent loops over many turns. Each turn's context is built and checked in all seven targets.

    python -m benchmarks.agent_loops [--quick]

- final answer: each turn ends by an unanswered tool call
- interrupted: every third turn ends before its call is answered
- long turns: 200 tool calls with large results for one question
- large tools: 26,000 tokens of tools in a budget of 32,000
- undo: each automatic compression is undone once

A compression is allowed for each `max_tokens - target_tokens` tokens added, plus one. Large tools
reduce this room. "unreported" counts trimmed contexts without an event `context_trimmed`; "unasked" counts
contexts without the newest user message; "redone" counts compressions too soon after an undo.

Exit codes: 0 no refusal, no invalid context and none of these faults; 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from benchmarks.tables import table
from memman import BudgetExceeded, Context, MemoryConfig, MemoryManager, events
from memman.formats.rules import RULES, check

TARGETS = tuple(RULES)
_S = "loop"
_HEADERS = (
    "loop", "turns", "tokens added", "compressions", "allowed", "refusals", "contexts", "trimmed",
    "unreported", "unasked", "redone", "invalid",
)  # fmt: skip
_FULL, _QUICK = 1_000, 80
_CALLS = 200  # tool calls of one long turn
Turn = Callable[[MemoryManager, int], None]


class Loop(msgspec.Struct, frozen=True):
    """A kind of turn, its budget, and the tokens of its tools."""

    name: str
    turn: Turn
    budget: int = 8_000
    tools: int = 0
    undoes: bool = False


class Outcome(msgspec.Struct):
    """The counts of one loop."""

    turns: int = 0
    added: int = 0
    compressions: int = 0
    allowed: int = 0
    refusals: int = 0
    contexts: int = 0
    trimmed: int = 0
    unreported: int = 0
    unasked: int = 0
    redone: int = 0
    invalid: int = 0

    @property
    def failed(self) -> bool:
        """Whether a promise was broken."""
        broken = self.refusals or self.unreported or self.unasked or self.redone or self.invalid
        return bool(broken) or self.compressions > self.allowed


def _question(turn: int) -> str:
    return f"question {turn} about the report and the data of week {turn}"


def final_answer(memory: MemoryManager, turn: int) -> None:
    """A turn that ends by an unanswered tool call."""
    memory.add_user_message(_S, _question(turn))
    text = f"The answer to question {turn} is that " + "the data show a clear trend " * 20
    memory.add_tool_call(_S, "final_answer", {"text": text}, call_id=f"d{turn}")


def interrupted(memory: MemoryManager, turn: int) -> None:
    """A turn; every third is interrupted before its call is answered."""
    memory.add_user_message(_S, _question(turn))
    memory.add_tool_call(_S, "shell", {"cmd": f"make step-{turn}"}, call_id=f"d{turn}")
    if turn % 3:
        memory.add_tool_result(_S, "shell", f"step {turn} done " * 40, call_id=f"d{turn}")
        memory.add_assistant_message(_S, f"step {turn} is done")


def long_turn(memory: MemoryManager, turn: int) -> None:
    """One call of a turn that has 200 of them."""
    if turn % _CALLS == 0:
        memory.add_user_message(_S, _question(turn))
    memory.add_tool_call(_S, "read", {"path": f"src/f{turn}.py"}, call_id=f"r{turn}")
    size = (40, 300, 2_000)[turn % 3]
    memory.add_tool_result(_S, "read", f"line {turn} of a file " * size, call_id=f"r{turn}")


def chat(memory: MemoryManager, turn: int) -> None:
    """A question and an answer."""
    memory.add_user_message(_S, f"{_question(turn)} " + "word " * 150)
    memory.add_assistant_message(_S, f"answer {turn} " + "word " * 150)


LOOPS = (
    Loop("final answer", final_answer),
    Loop("interrupted", interrupted),
    Loop("long turns", long_turn),
    Loop("large tools", chat, 32_000, 26_000),
    Loop("undo", chat, undoes=True),
)


def tools_of(tokens: int, memory: MemoryManager) -> list[dict[str, Any]]:
    """Return tool definitions of about so many tokens."""
    each = memory.count_tokens(json.dumps(_tool(0))).tokens
    return [_tool(number) for number in range(tokens // each)]


def _tool(number: int) -> dict[str, Any]:
    arguments = {f"a{n}": {"type": "string", "description": "an argument"} for n in range(5)}
    function = {
        "name": f"tool_{number}",
        "description": "does something useful with the thing " * 20,
        "parameters": {"type": "object", "properties": arguments},
    }
    return {"type": "function", "function": function}


class _Run:
    """One loop in one session."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        config = MemoryConfig(max_tokens=loop.budget, max_entries=None)
        self._memory = MemoryManager(config=config)
        self._tools = tools_of(loop.tools, self._memory) or None
        self._outcome = Outcome()
        self._trims = 0
        self._compressed: list[str] = []
        self._undone_at: int | None = None

    def run(self, turns: int) -> Outcome:
        memory, outcome = self._memory, self._outcome
        memory.on("compressed", self._on_compressed)
        memory.on("context_trimmed", self._on_trimmed)
        for turn in range(turns):
            self._loop.turn(memory, turn)
            number = turn - turn % _CALLS if self._loop.turn is long_turn else turn
            self._build(_question(number))
            if self._loop.undoes:
                self._undo()
        outcome.turns, outcome.added = turns, memory.get_stats(_S).total_tokens
        outcome.compressions = len(self._compressed)
        outcome.allowed = 1 + int(outcome.added / self._room()) * (2 if self._loop.undoes else 1)
        return outcome

    def _room(self) -> float:
        budget = self._loop.budget
        return 0.5 * (budget - self._loop.tools) if self._loop.tools else 0.5 * budget

    def _on_compressed(self, event: events.CompressionResult) -> None:
        self._compressed.append(event.compression_id or "")
        if self._undone_at is not None:
            added = self._memory.get_stats(_S).total_tokens - self._undone_at
            self._outcome.redone += added < self._room()

    def _on_trimmed(self, _: events.ContextTrimmed) -> None:
        self._trims += 1

    def _undo(self) -> None:
        """Undoes a compression, but not the first one after an undo."""
        if not self._compressed or len(self._compressed) % 2 == 0:
            self._undone_at = None
        elif self._undone_at is None:
            self._memory.undo_compression(_S)
            self._undone_at = self._memory.get_stats(_S).total_tokens

    def _build(self, question: str) -> None:
        outcome = self._outcome
        for target in TARGETS:
            trims = self._trims
            try:
                context = self._memory.build_context(_S, format=target, tools=self._tools)
            except BudgetExceeded:
                outcome.refusals += 1
                continue
            outcome.contexts += 1
            outcome.trimmed += bool(context.trimmed)
            outcome.unreported += bool(context.trimmed) and self._trims == trims
            outcome.unasked += question not in json.dumps(context.messages)
            outcome.invalid += _is_invalid(context)


def _is_invalid(context: Context) -> bool:
    return bool(check(context.messages, context.format, system=context.system))


def measure(turns: int, loops: Sequence[Loop] = LOOPS) -> dict[str, Outcome]:
    """Run each loop over so many turns."""
    return {loop.name: _Run(loop).run(turns) for loop in loops}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_loops", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK} turns, not {_FULL}")
    options = parser.parse_args(arguments)
    outcomes = measure(_QUICK if options.quick else _FULL)
    print(
        table(_HEADERS, [(name, *msgspec.structs.astuple(one)) for name, one in outcomes.items()])
    )
    return int(any(one.failed for one in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
