"""The plan of a compression: the stages of a strategy run in order, and a description of the result."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import groupby, zip_longest

from memman.compression.strategies import Stage, Step
from memman.compression.summarize import Answer, Request, SummaryOptions, summarise
from memman.compression.view import EntryFactory, Goal, Group, Item, View
from memman.display import format_error, safe_repr
from memman.errors import CompressionFailed
from memman.events import CompressionPlan, PlannedEntry
from memman.records import Replacement, ReplacementMethod


def make_plan(
    view: View,
    goal: Goal,
    make_entry: EntryFactory,
    stages: Sequence[Step],
    options: SummaryOptions,
) -> Generator[Request, Answer, View]:
    """Run the stages in order until the goal is met.

    Raises:
        CompressionFailed: a stage raised, or returned something else than a valid view.
    """
    for stage in stages:
        if goal.met(view):
            break
        if isinstance(stage, str):
            changed = yield from summarise(view, goal, make_entry, options)
        else:
            changed = _run(stage, view, goal, make_entry)
        view = view if changed is None else changed
    return view


def view_of_plan(plan: Generator[Request, Answer, View]) -> View:
    """Return the view of a plan that makes no requests, such as a dry run."""
    try:
        request = next(plan)
    except StopIteration as end:
        view: View = end.value
        return view
    raise RuntimeError(f"this plan must not request a {type(request).__name__}")


def _run(stage: Stage, view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
    try:
        changed = stage(view, goal, make_entry)
        fault = "" if changed is None else _fault(view, changed)
    except Exception as error:
        raise _failed(stage, f"raised {format_error(error)}") from error
    if fault:
        raise _failed(stage, f"returned {fault}")
    return changed


def _failed(stage: Stage, what: str) -> CompressionFailed:
    name = getattr(stage, "__name__", safe_repr(stage))
    return CompressionFailed(f"nothing was changed: the stage {name} {what}")


def _fault(before: View, after: object) -> str:
    """Return the fault of a stage's result; "" if it is valid.

    Each entry is covered once and in order, exchanges are whole, and protected entries are unchanged.
    """
    if not isinstance(after, View):
        return f"{type(after).__name__}, not a View"
    covered = [item for group in after.groups for item in group.window_items]
    known = [item for group in before.groups for item in group.window_items]
    if covered != known:
        wrong = next(a or b for a, b in zip_longest(known, covered) if a is not b)
        return f"a view that lost, repeated or moved the entry {wrong.entry.id!r}"
    unchanged = {*map(id, before.groups)} & {*map(id, after.groups)}
    changed = [group for group in before.groups if id(group) not in unchanged]
    made = [group for group in after.groups if id(group) not in unchanged]
    kept = {id(item.run[0]): item for g in made for item in g.items if _in_place(item)}
    statuses = {tuple(map(id, group.window_items)): group.status for group in made}
    for group in changed:
        items = [kept.get(id(window_item)) for window_item in group.window_items]
        named = f"the exchange of the entry {group.window_items[0].entry.id!r}"
        if not any(items) and group.status in ("old", "recent"):
            continue
        if not all(items):
            return f"a view that removed {named}, which is {group.status}, or a part of it"
        if statuses.get(tuple(map(id, group.window_items))) != group.status:
            return f"a view that split or joined {named}, or changed its status"
        whole = (i.method is None or (i.method == "clip" and not i.pinned) for i in items if i)
        if group.status == "protected" and not all(whole):
            return f"a view that replaced an entry in {named}, which is protected"
    if after.tokens > before.tokens:
        return f"a view with {after.tokens} tokens, more than the {before.tokens} before"
    return ""


def _in_place(item: Item) -> bool:
    """Return True if the entry shown has the same part in its exchange as the original."""
    entry, original = item.entry, item.run[0].entry
    if len(item.run) != 1 or entry is None:
        return False
    same = (getattr(entry, name) == getattr(original, name) for name in _PLACE)
    return entry is original or all(same)


def replacements_of(view: View) -> tuple[Replacement, ...]:
    """Return the changes of a view as they are recorded; neighbours that the outline covers are one run."""
    items = (item for group in view.groups for item in group.items)
    found: list[Replacement] = []
    for outlined, run in groupby(items, lambda item: item.method == "outline"):
        if outlined:
            ids = tuple(each.entry.id for item in run for each in item.run)
            found.append(Replacement(ids, None, "outline"))
            continue
        for item in run:
            if item.method is not None:
                ids = tuple(each.entry.id for each in item.run)
                found.append(Replacement(ids, item.entry, item.method, item.into))
    return tuple(found)


_STATUS_REASONS = {"newest": "the newest exchange", "recent": "in the recent window"}
_PLACE = ("type", "role", "call_id", "name", "message_id")  # of an entry in its exchange
_METHOD_REASONS = {"clip": "too large to stay whole", "fold": "read again later"}


def _rows(view: View, why_old: str) -> Iterator[PlannedEntry]:
    for group in view.groups:
        reason = _STATUS_REASONS.get(group.status, why_old)
        if group.status == "protected":
            reason = _why_protected(group)
        if group.status == "old" and group.is_summary:
            reason = "the summary of what was before"
        for item in group.items:
            if item.method is None:
                entry, tokens = item.run[0].entry, item.run[0].tokens
                yield PlannedEntry(entry.id, entry.type, tokens, "keep", tokens, reason)
            else:
                yield from _replaced(item, item.method)


def _why_protected(group: Group) -> str:
    if any(item.pinned for item in group.items):
        return "pinned" if len(group.items) == 1 else "its exchange is pinned"
    if any(window_item.unanswered for window_item in group.window_items):
        return "a call in its exchange has no result yet"
    return "the newest user message"


def _replaced(item: Item, method: ReplacementMethod) -> Iterator[PlannedEntry]:
    """Yield a row for each entry of a run; the first has the tokens of the replacement."""
    reason = _METHOD_REASONS.get(method, "old, and the window is over")
    after = item.tokens
    for window_item in item.run:
        entry, tokens = window_item.entry, window_item.tokens
        yield PlannedEntry(entry.id, entry.type, tokens, method, after, reason)
        after = 0


def describe(
    session_id: str,
    before: View,
    after: View,
    tokens: tuple[int, int, int],
    goal: Goal,
    asks: bool,
    why_old: str,
) -> CompressionPlan:
    """Return the difference of two views, entry by entry.

    `tokens` are those of the window before and after, with its outline, and of the planned outline, which
    is an entry too.
    `why_old` is the reason why old entries stay.
    """
    rows = tuple(_rows(after, f"old; {why_old}"))
    return CompressionPlan(
        session_id=session_id,
        tokens_before=tokens[0],
        tokens_after=tokens[1],
        entries_before=before.entries + (tokens[0] > before.tokens),
        entries_after=after.entries + (tokens[2] > 0),
        target_tokens=goal.tokens + goal.state_tokens,
        state_tokens=tokens[2],
        asks_summarizer=asks and any(row.action == "summary" for row in rows),
        entries=rows,
    )
