"""Samples of a measured subject's contexts, checked independently of the subject."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.subjects import Memman, Showing, Shown
from benchmarks.tokens import Count, Recount
from benchmarks.workload import Item
from memman import Context
from memman.formats import rules

_SUMMARY_HEAD = "[memman summary"
_NEWEST = 3  # the newest call has a placeholder as its result behind it


class Checker:
    """Counts invalid contexts of any system; to be called right after an append.

    A context is invalid if its texts alone, without any framing, have more tokens than the budget, if it
    has a result without its call before it, or if the newest item is not at its end. Each text is
    counted once.
    """

    def __init__(self, count: Count, budget: int) -> None:
        self._recount = Recount(count)
        self._budget = budget
        self.contexts = 0
        self.invalid = 0
        self.faults = {"over budget": 0, "orphan result": 0, "newest missing": 0}

    def __call__(self, subject: Showing, context: Any, newest: Item) -> None:
        shown = subject.shown(context)
        found = {
            "over budget": sum(self._recount.text(one.text) for one in shown) > self._budget,
            "orphan result": _has_orphan(shown),
            "newest missing": not any(_is(one, newest) for one in shown[-_NEWEST:]),
        }
        self.contexts += 1
        self.invalid += any(found.values())
        for fault, happened in found.items():
            self.faults[fault] += happened


def _has_orphan(shown: Sequence[Shown]) -> bool:
    called: set[str] = set()
    for one in shown:
        if one.kind == "tool_call":
            called.add(one.call_id)
        elif one.kind == "tool_result" and one.call_id not in called:
            return True
    return False


def _is(one: Shown, item: Item) -> bool:
    """Whether this is the item; the content of a call or a result may have been clipped to fit."""
    if item.call_id:
        return one.kind == item.kind and one.call_id == item.call_id
    return item.content in one.text


class Sampler:
    """Counts the faults of memman's sampled OpenAI-chat contexts, by the provider's rules too."""

    def __init__(self, count: Count, budget: int) -> None:
        self._recount = Recount(count)
        self._budget = budget
        self.contexts = 0
        self.faults = {"over budget": 0, "rules": 0, "newest missing": 0, "several summaries": 0}

    def __call__(self, _subject: Memman, context: Context, newest: Item) -> None:
        messages = context.messages
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
