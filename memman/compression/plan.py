"""Running the stages of a strategy until the goal is met, and telling what came of it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Literal

import msgspec

from memman.compression.requests import Answer, Request, SummaryOptions
from memman.compression.stages import ClearToolResults
from memman.compression.strategies import PRESETS, Stage, Step
from memman.compression.summaries import summarise
from memman.compression.validation import WatchedFactory, fault_of
from memman.compression.view import EntryFactory, Goal, Group, Item, View
from memman.display import format_error, safe_repr
from memman.errors import CompressionFailed
from memman.records import Replacement, ReplacementMethod
from memman.window import WindowItem

_OWN = frozenset(id(step) for steps in PRESETS.values() for step in steps)


def make_plan(
    view: View,
    goal: Goal,
    make_entry: EntryFactory,
    stages: Sequence[Step],
    options: SummaryOptions,
) -> Generator[Request, Answer, View]:
    """Runs the stages in order until the goal is met in both dimensions."""
    for stage in stages:
        if goal.met(view):
            break
        if isinstance(stage, str):
            changed = yield from summarise(view, goal, make_entry, options)
        else:
            changed = _taken(stage, view, goal, make_entry)
        view = view if changed is None else changed
    return view


def _taken(stage: Stage, view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
    """What a stage makes of a view; one that fails is named, whoever wrote it."""
    own = id(stage) in _OWN or type(stage) is ClearToolResults
    watched = None if own else WatchedFactory(make_entry)
    try:
        changed = stage(view, goal, watched or make_entry)
        fault = fault_of(view, changed, watched) if watched and changed is not None else ""
    except Exception as error:
        raise _failed(stage, f"raised {format_error(error)}") from error
    if fault:
        raise _failed(stage, f"returned {fault}")
    return changed


def _failed(stage: Stage, what: str) -> CompressionFailed:
    name = getattr(stage, "__name__", safe_repr(stage))
    return CompressionFailed(f"nothing was changed: the stage {name} {what}")


def replacements_of(view: View) -> tuple[Replacement, ...]:
    """What a view changes, as a record says it."""
    return tuple(
        Replacement(tuple(slot.entry.id for slot in item.run), item.entry, method, item.into)
        for group in view.groups
        if group.made is not None
        for item in group.made
        if (method := item.method) is not None
    )


class PlannedEntry(msgspec.Struct, frozen=True, gc=False):
    """What a compression would do with one entry of the window, and why."""

    entry_id: str
    type: str
    tokens: int
    action: Literal["keep", "summary", "digest", "stub", "fold", "clip", "drop"]
    tokens_after: int
    reason: str


class CompressionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A compression that was thought through and not carried out."""

    session_id: str
    tokens_before: int
    tokens_after: int
    entries_before: int
    entries_after: int
    target_tokens: int
    asks_summarizer: bool
    entries: tuple[PlannedEntry, ...]

    def __repr__(self) -> str:
        return (
            f"<CompressionPlan {self.session_id}: {self.tokens_before:,} -> {self.tokens_after:,} tokens, "
            f"{self.entries_before:,} -> {self.entries_after:,} entries>"
        )


_STANDING_REASONS = {
    "newest": "the newest exchange",
    "recent": "in the recent window",
}
_METHOD_REASONS = {"clip": "too large for the limit", "fold": "read again later"}


def _rows(view: View, why_old: str) -> Iterator[PlannedEntry]:
    """What becomes of each entry of the window."""
    for group in view.groups:
        reason = _STANDING_REASONS.get(group.standing, why_old)
        if group.standing == "fixed":
            reason = _why_fixed(group)
        if group.standing == "old" and group.is_summary:
            reason = "the summary of what was before"
        if group.made is None:
            for slot in group.window_items:
                yield _kept(slot, reason)
            continue
        for item in group.made:
            if item.method is None:
                yield _kept(item.run[0], reason)
            else:
                yield from _replaced(item, item.method)


def _why_fixed(group: Group) -> str:
    if any(slot.pinned for slot in group.window_items):
        return "pinned" if len(group.window_items) == 1 else "its exchange is pinned"
    if any(slot.unanswered for slot in group.window_items):
        return "a call in its exchange has no result yet"
    return "the newest user message"


def _kept(slot: WindowItem, reason: str) -> PlannedEntry:
    entry, tokens = slot.entry, slot.tokens
    return PlannedEntry(entry.id, entry.type, tokens, "keep", tokens, reason)


def _replaced(item: Item, method: ReplacementMethod) -> Iterator[PlannedEntry]:
    """The rows of a run; a summary stands for many: its tokens are told with the first of them."""
    reason = _METHOD_REASONS.get(method, "old, and the window is over")
    after = item.tokens
    for slot in item.run:
        entry = slot.entry
        yield PlannedEntry(entry.id, entry.type, slot.tokens, method, after, reason)
        after = 0


def describe(
    session_id: str, before: View, after: View, goal: Goal, asks: bool, why_old: str
) -> CompressionPlan:
    """The difference of two views, entry by entry; `why_old` says why old entries stay that do."""
    rows = tuple(_rows(after, f"old; {why_old}"))
    return CompressionPlan(
        session_id=session_id,
        tokens_before=before.tokens,
        tokens_after=after.tokens,
        entries_before=before.entries,
        entries_after=after.entries,
        target_tokens=goal.tokens,
        asks_summarizer=asks and any(row.action == "summary" for row in rows),
        entries=rows,
    )
