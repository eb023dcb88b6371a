"""What every measured subject is handed: a counter and a summarizer that count their own calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.tokens import Count

# About 130 tokens, always the same and without delay: what is measured is the memory, not a model.
SUMMARY = (
    "Summary: the user and the assistant worked on the service; files were read, tests were run, "
    "two errors were fixed, the open question is the cache invalidation policy. "
) * 4


class Instruments:
    """A counter and a scripted summarizer; how often and for how much text they were asked."""

    def __init__(self, count: Count, summary: str = SUMMARY) -> None:
        self._count = count
        self._summary = summary
        self._shared: dict[str, Any] = {}
        self.counted = 0
        self.counted_chars = 0
        self.summarized = 0

    def count(self, text: str) -> int:
        """Tokens of a text."""
        self.counted += 1
        self.counted_chars += len(text)
        return self._count(text)

    def summarize(self, prompt: str) -> str:
        """The same summary for every prompt."""
        self.summarized += 1
        return self._summary

    def shared(self, what: str, make: Callable[[], Any]) -> Any:
        """What all sessions of one system share, such as a manager, a model or an event loop."""
        if what not in self._shared:
            self._shared[what] = make()
        return self._shared[what]
