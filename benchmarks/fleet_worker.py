"""One worker of `benchmarks.fleet`: makes calls in many sessions until its process is killed.

It writes one line outside the store for each call that returned: its kind, its milliseconds, the session,
and the marks of the added entries. The mark of an entry is its text's first word: the worker's name and a
number that only grows.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from benchmarks.workload import sentence
from memman import MemmanError, MemoryConfig, MemoryManager, NotFound, Refused

_SUMMARY = "They spoke of tests and of the cache; its invalidation is still open."
CONFIG = MemoryConfig(max_tokens=800, recent_window=4)
_WEIGHTS = {
    "add": 50,
    "exchange": 10,
    "context": 30,
    "compress": 5,
    "undo": 3,
    "clear": 1,
    "stats": 1,
}


class Worker:
    """A manager on the shared database, and a file of notes."""

    def __init__(self, url: str, name: str, notes: Path, sessions: int) -> None:
        self.memory = MemoryManager(
            url, model="gpt-4o", config=CONFIG, summarizer=lambda _prompt: _SUMMARY
        )
        self.name = name
        self.sessions = sessions
        self.draw = random.Random(name)
        self.number = 0
        self._notes = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def run(self) -> None:
        """Makes calls without end."""
        kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
        while True:
            [kind] = self.draw.choices(kinds, weights)
            # Some sessions are busier than others: every fifth call is in one of a hundred.
            self.step(kind, f"s{int(self.sessions * self.draw.random() ** 3)}")

    def step(self, kind: str, session: str) -> None:
        """Makes one call and notes it."""
        steps: dict[str, Callable[[str], list[str]]] = {
            "add": self._add,
            "exchange": self._exchange,
            "context": self._context,
            "compress": self._compress,
            "undo": self._undo,
            "clear": self._clear,
            "stats": self._stats,
        }
        began = perf_counter()
        try:
            marks = steps[kind](session)
        except (NotFound, Refused):  # the session is empty, or has nothing to undo
            return
        except MemmanError as error:
            self._note("failed", began, session, [f"{kind}:{type(error).__name__}:{error}"])
            return
        self._note(kind, began, session, marks)

    def _note(self, kind: str, began: float, session: str, marks: list[str]) -> None:
        spent = 1_000 * (perf_counter() - began)
        line = "\t".join([kind, f"{spent:.3f}", session, *marks])
        os.write(self._notes, line.replace("\n", " ").encode() + b"\n")

    def _text(self) -> tuple[str, str]:
        """Return a new mark, and a text that begins with it."""
        self.number += 1
        mark = f"{self.name}.{self.number}"
        return mark, f"{mark} {sentence(self.draw, self.draw.randint(20, 600))}"

    def _add(self, session: str) -> list[str]:
        mark, text = self._text()
        if self.draw.random() < 0.5:
            self.memory.add_user_message(session, text)
        else:
            self.memory.add_assistant_message(session, text)
        return [mark]

    def _exchange(self, session: str) -> list[str]:
        """Adds a question, a call and its result: all three or none."""
        (mark, question), (found, result) = self._text(), self._text()
        call = {"id": f"call_{found}", "type": "function",
                "function": {"name": "search", "arguments": "{}"}}  # fmt: skip
        self.memory.add_messages(
            session,
            [
                {"role": "user", "content": question},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"call_{found}", "content": result},
            ],
            format="openai-chat",
        )
        return [mark, found]

    def _context(self, session: str) -> list[str]:
        self.memory.build_context(session)
        return []

    def _compress(self, session: str) -> list[str]:
        self.memory.compress(session)
        return []

    def _undo(self, session: str) -> list[str]:
        self.memory.undo_compression(session)
        return []

    def _clear(self, session: str) -> list[str]:
        self.memory.clear_session(session)
        return []

    def _stats(self, session: str) -> list[str]:
        self.memory.get_stats(session)
        return []


def main() -> None:
    """Run the command; its arguments are URL, name, file of notes, number of sessions."""
    url, name, notes, sessions = sys.argv[1:]
    Worker(url, name, Path(notes), int(sessions)).run()


if __name__ == "__main__":
    main()
