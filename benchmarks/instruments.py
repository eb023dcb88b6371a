"""The counter and the summarizer for every measured system, which count their own calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.tokens import Count

# About 130 tokens, always the same and without delay: the measurement is about the memory, not a model.
SUMMARY = (
    "Summary: the user and the assistant worked on the service; files were read, tests were run, "
    "two errors were fixed, the open question is the cache invalidation policy. "
) * 4


class Instruments:
    """A counter and a scripted summarizer, with the number of their calls and the length of the texts."""

    def __init__(self, count: Count, summary: str = SUMMARY) -> None:
        self._count = count
        self._summary = summary
        self._shared: dict[str, Any] = {}
        self.counted = 0
        self.counted_chars = 0
        self.summarized = 0

    def count(self, text: str) -> int:
        """Count the tokens of a text."""
        self.counted += 1
        self.counted_chars += len(text)
        return self._count(text)

    def summarize(self, prompt: str) -> str:
        """Return the same summary for every prompt."""
        self.summarized += 1
        return self._summary

    def shared(self, what: str, make: Callable[[], Any]) -> Any:
        """Return an object that all sessions of a system share: a manager, a model or an event loop."""
        if what not in self._shared:
            self._shared[what] = make()
        return self._shared[what]
