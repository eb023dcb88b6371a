"""Samples of what a measured subject would send, checked like real conversations' contexts."""

from __future__ import annotations

from typing import Any

from benchmarks.subjects import SESSION, Memman, Subject
from benchmarks.tokens import Count, Recount
from benchmarks.workload import Item
from memman.formats import rules

_SUMMARY_HEAD = "[memman summary"
_NEWEST = 3  # the newest call has a placeholder as its result behind it


class Sampler:
    """Counts the faults of sampled OpenAI-chat contexts; to be called right after an append."""

    def __init__(self, count: Count, budget: int) -> None:
        self._recount = Recount(count)
        self._budget = budget
        self.contexts = 0
        self.faults = {"over budget": 0, "rules": 0, "newest missing": 0, "several summaries": 0}

    def __call__(self, subject: Subject, newest: Item) -> None:
        if not isinstance(subject, Memman):
            raise TypeError(f"{type(subject).__name__} renders no messages to check")
        messages = subject.memory.build_context(SESSION).messages
        contents = [message["content"] or "" for message in messages]
        summaries = sum(content.startswith(_SUMMARY_HEAD) for content in contents)
        self.contexts += 1
        self.faults["over budget"] += self._recount.openai_chat(messages) > self._budget
        self.faults["rules"] += len(rules.check(messages, "openai-chat"))
        self.faults["newest missing"] += not any(_shows(m, newest) for m in messages[-_NEWEST:])
        self.faults["several summaries"] += summaries > 1


def _shows(message: dict[str, Any], item: Item) -> bool:
    if item.kind == "tool_call":
        return any(call["id"] == item.call_id for call in message.get("tool_calls") or ())
    if item.kind == "tool_result":
        # Its content may be clipped to fit.
        return bool(message.get("tool_call_id") == item.call_id)
    return bool(message["content"] == item.content)
