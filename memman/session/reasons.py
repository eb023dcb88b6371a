"""The reason of a compression: its trigger, a clause for each step, and the entries that stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from memman.compression import Goal, Step, View
from memman.config import SUMMARISE, Budget
from memman.records import Replacement

_STANDING = {
    "recent": "in the recent window",
    "newest": "in the newest exchange",
    "protected": "pinned, the newest user message, or waiting for a result",
}


class Unasked(msgspec.Struct, frozen=True):
    """The reason not to call a summarizer; `why` is "" if it may be called, or none `is_set`."""

    is_set: bool
    why: str = ""


def why_due(tokens: int, entries: int, budget: Budget, trigger: Budget) -> str:
    """Return which limit triggered an automatic compression, with the figures."""
    if budget.over(tokens, entries):
        if tokens > budget.trigger_tokens:
            less = f" less {budget.recall_tokens} for recall" if budget.recall_tokens else ""
            return f"{tokens} tokens are over max_tokens ({budget.max_tokens}{less})"
        return f"{entries} entries are over max_entries ({budget.max_entries})"
    early = f"{tokens} tokens are over {trigger.max_tokens}, near max_tokens ({budget.max_tokens})"
    if tokens <= trigger.max_tokens:
        near = f"near max_entries ({budget.max_entries})"
        early = f"{entries} entries are over {trigger.max_entries}, {near}"
    return f"prepared in the background: {early}"


def why_early(tokens: int, budget: Budget, trigger: Budget, expired: timedelta) -> str:
    """Return why an automatic compression within the limits came: the cache expired so long ago."""
    limits = f"over {trigger.max_tokens}, near max_tokens ({budget.max_tokens})"
    return f"the provider's cache expired {_ago(expired)} ago; {tokens} tokens are {limits}"


def _ago(time: timedelta) -> str:
    """Return a time in its largest whole unit."""
    seconds = int(time.total_seconds())
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60))
    unit, size = next((each for each in units if seconds >= each[1]), ("second", 1))
    return _counted(seconds // size, unit)


def what_was_done(replacements: Sequence[Replacement]) -> list[str]:
    """Return one clause for each step that changed something."""
    times = Counter[str](item.method for item in replacements)
    entries = Counter[str](item.method for item in replacements for _ in item.ids)
    stubs = [item.entry for item in replacements if item.method == "stub"]
    results = all(stub is not None and stub.type == "tool_result" for stub in stubs)
    clauses = {
        "stub": f"cleared {_counted(times['stub'], 'tool result' if results else 'entry')}",
        "fold": f"folded {_counted(times['fold'], 'repeated read')}",
        "summary": f"summarized {_counted(entries['summary'], 'entry')}",
        "outline": f"outlined {_counted(entries['outline'], 'entry')}",
        "clip": f"cut {_counted(times['clip'], 'entry')}",
        "drop": f"dropped {_counted(entries['drop'], 'entry')}",
    }
    return [clause for method, clause in clauses.items() if times[method]]


def _counted(number: int, what: str) -> str:
    if number == 1:
        return f"1 {what}"
    return f"{number} {what[:-1]}ies" if what.endswith("ry") else f"{number} {what}s"


def why_summarizer(
    methods: Sequence[str], calls: int, problem: str, unasked: Unasked, few: str
) -> str:
    """Return whether a summarizer was called, and why; "" if none is set and none was needed."""
    written = "summary" in methods or "outline" in methods
    if not unasked.is_set:
        return "no summarizer is set" if written else ""
    if calls:
        called = "the summarizer was called " + ("once" if calls == 1 else f"{calls} times")
        return called if "summary" in methods else f"{called} and failed: {problem}"
    why = unasked.why or problem or few or "the other steps reached the target"
    return f"the summarizer was not called: {why}"


def why_few(before: View, goal: Goal) -> str:
    """Return why there are too few old entries for a summarizer; "" if there are enough."""
    old, least = before.old_entries, goal.budget.min_entries
    if old >= least:
        return ""
    return f"too few old entries for a summary ({old}, min_entries_to_compress={least})"


def why_short(after: View, goal: Goal, stages: Sequence[Step]) -> str:
    """Return how far the result stays above the target; "" if the target was reached.

    The tokens include those of the outline.
    """
    if goal.holds(after.tokens, after.entries):
        return ""
    tokens, target = after.tokens + goal.state_tokens, goal.tokens + goal.state_tokens
    above = f"{tokens} tokens stay, above the target of {target}"
    if after.tokens <= goal.tokens:
        above = f"{after.entries} entries stay, above the target of {goal.entries}"
    return f"{above}: {what_stays(after, goal, stages)}"


def what_stays(after: View, goal: Goal, stages: Sequence[Step]) -> str:
    """Return the entries of a view with their tokens, by the reason why they stay."""
    entries: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for group in after.groups:
        kind = _STANDING.get(group.status, "old")
        kind = "in summaries" if kind == "old" and group.is_summary else kind
        entries[kind] += group.entries
        tokens[kind] += group.tokens
    clauses = [
        f"{_counted(entries[kind], 'entry')} {kind} ({tokens[kind]} tokens)"
        for kind in sorted(entries, key=lambda kind: -tokens[kind])
        if entries[kind] and kind != "old"
    ]
    if old := why_old_stay(after, goal, stages):
        clauses.append(old)
    return ", ".join(clauses)


def why_kept(after: View, goal: Goal, stages: Sequence[Step]) -> str:
    """Return why a plan leaves old entries."""
    return "the target was met first" if goal.met(after) else why_old_stay(after, goal, stages)


def why_old_stay(after: View, goal: Goal, stages: Sequence[Step]) -> str:
    """Return why old entries are left; "" if there are none."""
    old = after.old_entries
    if not old:
        return ""
    if SUMMARISE in stages and (few := why_few(after, goal)):
        return few + (", and they fit" if goal.within_limits(after) else "")
    return f"the strategy leaves {_counted(old, 'old entry')}"


def why_hopeless(pinned: int, goal: Goal) -> str:
    """Return why no compression can help (pinned tokens are over the limit); "" if one can."""
    if pinned <= goal.limit:
        return ""
    return f"pinned entries alone take {pinned} of {goal.limit} tokens: unpin some, or raise max_tokens"
