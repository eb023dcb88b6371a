"""A process that runs turns of one framework's agent with memman, as the lines of its input ask.

    python -m tests.adapters.leg NAME

A line is a JSON object with these keys. The answer is a line, too: what the model was sent and what it
answered.

    store, session, budget: a path, an id, and tokens
    holds: the number of the tool call that waits until it is cancelled, from 1; 0 for none
    text: the question of the turn
    is_cut: whether the turn is cancelled in the call that waits
    small: the window of a second model, which answers every other turn; 0 for one model
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memman import MemoryManager
from memman.testing import AdapterConformance, AdapterDriver, FakeModel

ROOT = Path(__file__).parents[2]
PLAIN = "plain"
_NUMBERS = itertools.count(os.getpid() * 1_000)  # of calls, unique as a provider's ids are
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


class PlainLoop(AdapterDriver):
    """A loop around a provider's SDK, without a framework."""

    def __init__(self, memory: MemoryManager, session_id: str, model: FakeModel) -> None:
        self.session_id = session_id
        self._memory = memory
        self._model = model

    async def run(self, text: str, *, stream: bool = False) -> str:
        """Run a turn."""
        self._memory.add_user_message(self.session_id, text)
        while True:
            sent = self._memory.build_context(self.session_id, format="openai-chat", tools=TOOLS)
            reply = self._model.reply(sent.messages, tools=TOOLS)
            if reply.text:
                self._memory.add_assistant_message(self.session_id, reply.text)
            if not reply.calls:
                return reply.text
            for call in reply.calls:
                self._memory.add_tool_call(
                    self.session_id, call.name, call.arguments, call_id=call.call_id
                )
            for call in reply.calls:
                result = await self._model.read(**call.arguments)
                self._memory.add_tool_result(
                    self.session_id, call.name, result, call_id=call.call_id
                )

    async def history(self) -> Sequence[Any]:
        """Return the log: there is no other."""
        return self._memory.get_messages(self.session_id)


class _Plain(AdapterConformance):
    def start(self, memory: MemoryManager, session_id: str, model: FakeModel) -> AdapterDriver:
        """Return a loop."""
        return PlainLoop(memory, session_id, model)


def kit_of(name: str) -> AdapterConformance:
    """Return the conformance tests of an adapter, which know how to start an agent."""
    if name == PLAIN:
        return _Plain()
    folder = ROOT / "plugins" / f"memman-{name}" / "tests"
    sys.path[:0] = [str(ROOT), str(folder)]
    for path in sorted(folder.glob("test_*.py")):
        if "(AdapterConformance)" in path.read_text(encoding="utf-8"):
            module = importlib.import_module(f"plugins.memman-{name}.tests.{path.stem}")
            kits = [each for each in vars(module).values() if _is_kit(each)]
            kit: AdapterConformance = kits[0]()
            return kit
    raise SystemExit(f"no AdapterConformance in {folder}")


def _is_kit(value: object) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, AdapterConformance)
        and value is not AdapterConformance
    )


class Conversation:
    """One session as this framework's agent has it."""

    def __init__(
        self, kit: AdapterConformance, store: str, session: str, budget: int, holds: int, small: int
    ) -> None:
        self._memory = kit.make_memory(budget, store)
        self._model = FakeModel(self._memory, kit.format, holds=holds, numbers=_NUMBERS)
        self._models = [self._model]
        if small:
            self._models += [
                FakeModel(self._memory, kit.format, limit=small, name="small", numbers=_NUMBERS)
            ]
        self._turn = 0
        self._asked = 0  # how often a question was given
        self._driver = kit.start(self._memory, session, self._model)

    def run(self, text: str, is_cut: bool) -> dict[str, Any]:
        """Run a turn, and return what the model was sent in it."""
        model = self._models[self._turn % len(self._models)]
        self._turn, self._asked = self._turn + 1, 1
        if len(self._models) > 1:
            self._driver.switch(model)
        first, refused = len(model.requests), model.overflows
        answer = asyncio.run(self._cut(text) if is_cut else self._answer(model, text, refused))
        requests = model.requests[first:]
        return {
            "answer": answer,
            "model": model.name,
            "refused": model.overflows - refused,
            "asked": self._asked,
            "results": [result for each in self._models for result in each.results],
            "requests": len(requests),
            "request": json.dumps(requests[-1].messages, default=str, ensure_ascii=False),
            "violations": [str(each) for request in requests for each in request.violations],
            "tokens": max(request.tokens for request in requests),
            "session": self._driver.session_id,
        }

    async def _answer(self, model: FakeModel, text: str, refused: int) -> str:
        """Run a turn, and run it again if a refusal ended it, as the framework's page tells users."""
        try:
            return await self._driver.run(text)
        except Exception as error:
            if model.overflows == refused:
                raise
            self._memory.record_overflow(error, model=model.name, tokens=model.requests[-1].tokens)
            self._asked += 1
            return await self._driver.retry(text)

    async def _cut(self, text: str) -> None:
        """Run a turn that is cancelled in the tool call that waits."""
        run = asyncio.ensure_future(self._driver.run(text))
        held = asyncio.ensure_future(self._model.holding.wait())
        await asyncio.wait([run, held], return_when=asyncio.FIRST_COMPLETED)
        assert not run.done(), f"the run ended before its tool did: {run}"
        run.cancel()
        await asyncio.wait([run])


def main() -> None:
    """Answer the lines of the input until it ends."""
    logging.disable(logging.CRITICAL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what frameworks print is no answer
    kit = kit_of(sys.argv[1])
    talks: dict[tuple[str, str], Conversation] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        key = (asked["store"], asked["session"])
        if key not in talks:
            own = (asked[name] for name in ("budget", "holds", "small"))
            talks[key] = Conversation(kit, *key, *own)
        print(json.dumps(talks[key].run(asked["text"], asked["is_cut"])), file=answers, flush=True)


if __name__ == "__main__":
    main()
