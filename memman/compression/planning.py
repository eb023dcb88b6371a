"""Running the stages of a strategy until the goal is met, and telling what came of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal

import msgspec

from memman.compression.asking import Answer, Request, SummaryOptions
from memman.compression.stages import clear_tool_results, clip_large, clip_rest, drop_oldest
from memman.compression.summaries import summarise
from memman.compression.view import Craft, Goal, Group, Item, View
from memman.errors import CompressionFailed, ConfigError
from memman.records import Replacement

Stage = Callable[[View, Goal, Craft], View | None]
"""A step of a compression: a pure function that returns a smaller view, or None when it has nothing."""

SUMMARISE: Literal["summarise"] = "summarise"  # the one step that asks somebody

PRESETS: dict[str, tuple[Stage | Literal["summarise"], ...]] = {
    "default": (clear_tool_results, SUMMARISE, clip_large, drop_oldest, clip_rest),
}
TRIM: tuple[Stage, ...] = (clear_tool_results, clip_large, drop_oldest, clip_rest)


def stages_of(strategy: Any) -> tuple[Stage | Literal["summarise"], ...]:
    """The steps of a preset's name, or of a sequence of stages and the word "summarise".

    Raises `ConfigError` for anything else.
    """
    if isinstance(strategy, str):
        if strategy not in PRESETS:
            raise ConfigError(f"strategy={strategy!r} is no preset; known are {', '.join(PRESETS)}")
        return PRESETS[strategy]
    for stage in strategy:
        if stage != SUMMARISE and not callable(stage):
            raise ConfigError(f"strategy has {stage!r}, which is neither a stage nor 'summarise'")
    return tuple(strategy)


def make_plan(
    view: View,
    goal: Goal,
    craft: Craft,
    stages: Sequence[Stage | Literal["summarise"]],
    options: SummaryOptions,
) -> Generator[Request, Answer, View]:
    """Runs the stages in order until the goal is met in both dimensions."""
    for stage in stages:
        if goal.met(view):
            break
        if stage == SUMMARISE:
            changed = yield from summarise(view, goal, craft, options)
        else:
            changed = _taken(stage, view, goal, craft)
        view = view if changed is None else changed
    return view


def _taken(stage: Stage, view: View, goal: Goal, craft: Craft) -> View | None:
    """What a stage makes of a view; one that fails is named, whoever wrote it."""
    name = getattr(stage, "__name__", repr(stage))
    try:
        changed = stage(view, goal, craft)
    except Exception as error:
        failure = f"the stage {name} raised {type(error).__name__}: {error}"
        raise CompressionFailed(f"nothing was changed: {failure}") from error
    if changed is not None and not isinstance(changed, View):
        kind = type(changed).__name__
        raise CompressionFailed(
            f"nothing was changed: the stage {name} returned {kind}, not a View"
        )
    return changed


def replacements_of(view: View) -> tuple[Replacement, ...]:
    """What a view changes, as a record says it."""
    return tuple(
        Replacement(tuple(slot.entry.id for slot in item.run), item.entry, item.method, item.into)
        for group in view.groups
        for item in group.items
        if item.method is not None
    )


class PlannedEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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


_STANDING_REASONS = {
    "fixed": "its exchange is pinned, or a call in it has no result yet",
    "newest": "the newest exchange",
    "recent": "in the recent window",
    "old": "old; the target was met first, or replacing it would save too little",
}


def _reason(group: Group, item: Item) -> str:
    if item.method is None:
        return _STANDING_REASONS[group.standing]
    return "too large for the limit" if item.method == "clip" else "old, and the window is over"


def _rows(view: View) -> list[PlannedEntry]:
    """What becomes of each entry of the window."""
    rows: list[PlannedEntry] = []
    for group in view.groups:
        for item in group.items:
            action, reason = item.method or "keep", _reason(group, item)
            tokens = item.tokens
            for slot in item.run:
                entry = slot.entry
                rows.append(
                    PlannedEntry(
                        entry_id=entry.id,
                        type=entry.type,
                        tokens=slot.tokens,
                        action=action,
                        tokens_after=tokens,
                        reason=reason,
                    )
                )
                tokens = 0  # a summary stands for many: its tokens are told with the first of them
    return rows


def describe(session_id: str, before: View, after: View, goal: Goal, asks: bool) -> CompressionPlan:
    """The difference of two views, entry by entry."""
    rows = _rows(after)
    return CompressionPlan(
        session_id=session_id,
        tokens_before=before.tokens,
        tokens_after=after.tokens,
        entries_before=before.entries,
        entries_after=after.entries,
        target_tokens=goal.tokens,
        asks_summarizer=asks and any([row.action == "summary" for row in rows]),
        entries=tuple(rows),
    )
