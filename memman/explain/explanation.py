"""The reasons why a session was or was not compressed, the next step, and the status of each entry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from memman.events import CompressionPlan
from memman.explain.cache_state import CacheState
from memman.explain.history import CompressionStatus, EntryStatus
from memman.explain.shares import Shares
from memman.explain.state_block import StateBlock
from memman.results import EntryState, Recalled

_MOST_STRETCHES = 6  # of entries in a line
_MOST_SHARES = 5  # of tools, and of sources
_LEFT_OUT = "thoughts left out of requests: {:,}, since something before them has changed"


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """The size of the window, the limits that start a compression, and its target.

    A compression is due (`over`) if `tokens` and `overhead_tokens`, which are not in any entry, together
    exceed `max_tokens`, or if `entries` exceed `max_entries` (None: unlimited). An automatic one starts
    above
    `starts_at_tokens` or `starts_at_entries`: the same, or less if it is prepared in the background.
    `compresses` is false if the strategy has no stages. `pinned_tokens` can be neither compressed nor
    trimmed.
    """

    tokens: int
    overhead_tokens: int
    max_tokens: int
    target_tokens: int
    starts_at_tokens: int
    entries: int
    max_entries: int | None
    target_entries: int | None
    starts_at_entries: int | None
    over: bool
    auto_compress: bool
    compresses: bool = True
    pinned_tokens: int = 0


class SummarizerState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there is a summarizer, whether an automatic compression may call it now, and why.

    `holds_up` is true if that compression waits for it, because `on_failure` excludes to do without a
    summary.
    """

    configured: bool
    may_be_asked: bool
    reason: str
    holds_up: bool = False


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of compression on a session, and its next step.

    `reason` is why the window is not compressed further, and `next` what the next add or `compress` would
    do.
    `running` is true during a compression. `last_attempt` is the reason of the last one in this process (""
    before the first). `entries` and `compressions` have the status of each entry and compression since the
    last clear, in log order. `shares` has the largest parts of the window, and `state` its outline or
    None. `cache` is None if no request is known, or without a provider's cache. `thoughts_left_out` are the
    ids of the entries whose thoughts the next context leaves out: they were made before the last
    compression, undo, retraction, deletion or reply to a trimmed request, and the model refuses a thought
    if something before it has changed. `recalled` are the texts that the next
    context quotes. `str()` returns a text for people, `msgspec.to_builtins` plain data for JSON.
    """

    session_id: str
    reason: str
    next: str
    running: bool
    last_attempt: str
    trigger: Trigger
    summarizer: SummarizerState
    compressions: tuple[CompressionStatus, ...]
    entries: tuple[EntryStatus, ...]
    shares: Shares
    state: StateBlock | None = None
    cache: CacheState | None = None
    thoughts_left_out: tuple[str, ...] = ()
    recalled: tuple[Recalled, ...] = ()

    def __str__(self) -> str:
        compressions = [each for each in self.compressions if "retract" not in each.replaced]
        last = compressions[-1] if compressions else None
        failed = self.last_attempt and (last is None or last.reason != self.last_attempt)
        lines = [
            f"session {self.session_id}: {_size(self.trigger)}",
            f"now: {self.reason}",
            f"next: {self.next}",
            f"summarizer: {self.summarizer.reason}",
            *([f"cache: {self.cache}"] if self.cache else []),
            f"last compression: {_compression(last) if last else 'none'}",
            *([f"last attempt: {self.last_attempt}"] if failed else []),
            *_by_state(self.entries),
            *([f"outline: {self.state}"] if self.state else []),
            *([_LEFT_OUT.format(len(self.thoughts_left_out))] if self.thoughts_left_out else []),
            *(f"recalled: {text}" for text in self.recalled),
            *_filled(self.shares),
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        counts = f"{len(self.entries):,} entries, {len(self.compressions):,} compressions"
        return f"<Explanation {self.session_id}: {_size(self.trigger)}; {counts}; {self.reason}>"


def explained(
    session_id: str,
    trigger: Trigger,
    summarizer: SummarizerState,
    running: bool,
    last_attempt: str,
    waits: str,
    plan: CompressionPlan | None,
    compressions: Iterable[CompressionStatus],
    entries: Iterable[EntryStatus],
    shares: Shares,
    state: StateBlock | None,
    cache: CacheState | None,
    thoughts_left_out: tuple[str, ...],
    recalled: Sequence[Recalled],
) -> Explanation:
    """Return the explanation.

    `waits` is the reason why a compression that is due does not start; if it is "", `plan` is its plan.
    """
    reason, then = _prospect(trigger, running, waits, plan, cache)
    return Explanation(
        session_id=session_id,
        reason=reason,
        next=then,
        running=running,
        last_attempt=last_attempt,
        trigger=trigger,
        summarizer=summarizer,
        compressions=tuple(compressions),
        entries=tuple(entries),
        shares=shares,
        state=state,
        cache=cache,
        thoughts_left_out=thoughts_left_out,
        recalled=tuple(recalled),
    )


def _prospect(
    trigger: Trigger,
    running: bool,
    waits: str,
    plan: CompressionPlan | None,
    cache: CacheState | None,
) -> tuple[str, str]:
    """Return why the window is not compressed further, and the next step."""
    if running:
        then = "it is committed when it is done; entries can be added in the meantime"
        return "a compression is under way", then
    if not trigger.over:
        if cache is None or not cache.compresses_next or plan is None:
            return "within the limits", _until(trigger)
        reason = "within the limits, and the provider's cache has expired"
        return reason, f"the next add compresses: {_would(plan)}"
    if not trigger.compresses:
        refused = "nothing by itself: build_context raises BudgetExceeded"
        return "over the limits, and the strategy never compresses", refused
    if waits or plan is None:
        return f"over the limits, and {waits}", f"nothing until then; {_context(trigger)}"
    if plan.tokens_after == plan.tokens_before and plan.entries_after == plan.entries_before:
        reason = (
            "over the limits, and nothing can be compressed: "
            "the rest is pinned, recent, without a result, or too small"
        )
        return reason, f"nothing until other entries come; {_context(trigger)}"
    if trigger.auto_compress:
        reason = "over the limits, and not compressed yet"
        return reason, f"the next add compresses: {_would(plan)}"
    reason = "over the limits, and auto_compress is off"
    return reason, f"nothing by itself; compress would: {_would(plan)}"


def _would(plan: CompressionPlan) -> str:
    tokens = f"about {plan.tokens_before:,} -> {plan.tokens_after:,} tokens"
    return f"{tokens} and {plan.entries_before:,} -> {plan.entries_after:,} entries"


def _context(trigger: Trigger) -> str:
    """Describe a context of a window that stays over its limits."""
    if trigger.pinned_tokens + trigger.overhead_tokens > trigger.max_tokens:
        return (
            "build_context raises BudgetExceeded, since pinned entries alone exceed the limit: unpin "
            "some of it, or raise max_tokens"
        )
    room = " if pinned entries leave room for it" if trigger.pinned_tokens else ""
    return f"a context is cut to fit as it is built{room}"


def _until(trigger: Trigger) -> str:
    if not trigger.compresses:
        return "nothing by itself: the strategy never compresses"
    if not trigger.auto_compress:
        return "nothing by itself: auto_compress is off"
    left = max(0, trigger.starts_at_tokens - trigger.tokens - trigger.overhead_tokens)
    start, goal = f"{left:,} tokens", f"{trigger.target_tokens:,} tokens"
    if trigger.starts_at_entries is not None:
        start += f" or {max(0, trigger.starts_at_entries - trigger.entries):,} entries"
        goal += f" and {trigger.target_entries:,} entries"
    return f"more than {start} beyond these start a compression, down to {goal}"


def _size(trigger: Trigger) -> str:
    used = trigger.tokens + trigger.overhead_tokens
    overhead = f", {trigger.overhead_tokens:,} of them overhead" if trigger.overhead_tokens else ""
    most = "" if trigger.max_entries is None else f" of {trigger.max_entries:,}"
    return f"{used:,} of {trigger.max_tokens:,} tokens{overhead}; {trigger.entries:,}{most} entries"


def _compression(last: CompressionStatus) -> str:
    change = f"{last.tokens_before:,} -> {last.tokens_after:,} tokens"
    state = "" if last.state == "in force" else f", {last.state} since"
    kept = f", {last.values_kept:,} of {last.values:,} exact values kept" if last.values else ""
    return f"#{last.seq}, {last.at:%Y-%m-%d %H:%M}, {change}{kept}{state} ({last.reason})"


def _filled(shares: Shares) -> list[str]:
    """Return lines with the largest tools, sources and entries, and the advice."""
    if not shares.largest:
        return []
    lines = [
        f"{what}: " + ", ".join(f"{share.name} {share.tokens:,}" for share in found[:_MOST_SHARES])
        for what, found in (("tools", shares.tools), ("sources", shares.sources))
        if found
    ]
    large = ", ".join(f"{each.address} {each.tokens:,}" for each in shares.largest)
    return [*lines, f"largest entries: {large}", f"advice: {shares.advice}"]


def _by_state(entries: Sequence[EntryStatus]) -> list[str]:
    """Return a line for each state, and for each summary, with its entries."""
    places: dict[tuple[EntryState, str | None], list[int]] = {}
    for place, status in enumerate(entries):
        spoken = status.shown_address if status.state == "summarised" else None
        places.setdefault((status.state, spoken), []).append(place)
    lines = []
    for (state, shown_by), held in places.items():
        statuses = [entries[place] for place in held]
        by = "" if shown_by is None else f" in {shown_by}"
        tokens = sum(status.tokens for status in statuses)
        noun = "entry" if len(held) == 1 else "entries"
        stretches = _stretches(statuses, held)
        lines.append(f"{state}{by}: {len(held):,} {noun}, {tokens:,} tokens: {stretches}")
    return lines


def _stretches(statuses: Sequence[EntryStatus], places: Sequence[int]) -> str:
    """Return the entries with neighbours joined, such as `#3-#9`."""
    found: list[tuple[int, int]] = []
    before = -2
    for status, place in zip(statuses, places, strict=True):
        if place == before + 1:
            found[-1] = found[-1][0], status.seq
        else:
            found.append((status.seq, status.seq))
        before = place
    named = [f"#{a}" if a == b else f"#{a}-#{b}" for a, b in found[:_MOST_STRETCHES]]
    more = len(found) - len(named)
    return ", ".join(named) + (f", and {more:,} more" if more else "")
