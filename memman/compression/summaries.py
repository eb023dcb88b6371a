"""Summaries: which part of the window one replaces, and where it stands.

`summarise` is a generator: it yields requests and problems, and the session that drives it does the
waiting. Nothing changes until a valid summary is in hand.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import msgspec

from memman.compression.composition import SMALLEST_SUMMARY, Composer
from memman.compression.prompts import NoSummary
from memman.compression.requests import (
    Answer,
    OriginalsWanted,
    Request,
    SummaryFailed,
    SummaryOptions,
    SummaryProblem,
    asked,
)
from memman.compression.view import EntryFactory, Goal, View
from memman.entries import Entry, TokenCount
from memman.records import ReplacementMethod
from memman.window import WindowItem

Asking = Generator[Request, Answer, View | None]


def summarise(view: View, goal: Goal, make_entry: EntryFactory, options: SummaryOptions) -> Asking:
    """Replaces the old part by one summary; the previous summary folds in.

    As many of the oldest exchanges as the target needs. If these have fewer entries than
    `min_entries_to_compress`, an automatic compression leaves them to the other stages, and one by
    hand writes a digest of them beside the previous summary. If a fixed exchange splits the old
    part, the summary stands at its beginning and speaks for all pieces.
    """
    if not (options.ask or options.write):
        return None
    chosen = _oldest(view, goal)
    if options.by_hand and not options.insist and _are_few(view, chosen, goal):
        chosen = [number for number in chosen if not view.groups[number].is_summary]
        options = msgspec.structs.replace(options, ask=False)
    run = [item for number in chosen for item in view.groups[number].window_items]
    # What it replaces is the run as it was, before an earlier stage cleared something in it.
    replaced = sum(item.tokens for item in run)
    cap = min(int(goal.budget.compression_ratio * replaced), goal.budget.summary_tokens)
    if options.by_hand:
        if all(view.groups[number].is_summary for number in chosen):
            return None
        if options.insist and replaced > SMALLEST_SUMMARY:
            cap = max(cap, SMALLEST_SUMMARY)
    elif _are_few(view, chosen, goal):
        return None
    if cap < SMALLEST_SUMMARY:
        return None
    if options.dry_run:
        originals = [item.entry for item in run]
        summary, method = _planned(originals, cap, make_entry), _method(options.ask)
    else:
        exchanges = yield from _in_full([view.groups[number].window_items for number in chosen])
        if options.redact is not None:
            exchanges = [[options.redact(entry) for entry in entries] for entries in exchanges]
        summary, method = yield from _written(exchanges, cap, make_entry, options)
    return view.with_summary(chosen, summary, method)


def _are_few(view: View, chosen: Sequence[int], goal: Goal) -> bool:
    """Whether these groups have too few entries for a summarizer."""
    return sum(view.groups[number].entries for number in chosen) < goal.budget.min_entries


def _oldest(view: View, goal: Goal) -> list[int]:
    """The oldest groups that must go so that the rest and a summary are at the target; all old ones if
    the goal is thorough.

    At least `min_entries_to_compress` entries where so many are old: a few large ones are better
    summarised with their neighbours than dropped.
    """
    chosen: list[int] = []
    tokens = view.tokens + goal.budget.summary_tokens
    entries = view.entries + 1
    for number, group in enumerate(view.groups):
        if group.status != "old":
            continue
        enough = goal.holds(tokens, entries) and not goal.thorough
        if enough and view.entries + 1 - entries >= goal.budget.min_entries:
            break
        chosen.append(number)
        tokens -= group.tokens
        entries -= group.entries
    return chosen


def _in_full(
    exchanges: Sequence[Sequence[WindowItem]],
) -> Generator[Request, Answer, list[list[Entry]]]:
    """The entries of exchanges, with what stubs and clips stand for in their place."""
    cut = [
        item
        for slots in exchanges
        for item in slots
        if item.compression is not None and item.entry.type != "summary"
    ]
    answer = (yield OriginalsWanted(tuple(cut))) if cut else ()
    found = dict(zip(cut, answer, strict=True)) if isinstance(answer, Sequence) else {}
    return [
        [entry for item in slots for entry in found.get(item) or (item.entry,)]
        for slots in exchanges
    ]


def _written(
    exchanges: Sequence[Sequence[Entry]],
    cap: int,
    make_entry: EntryFactory,
    options: SummaryOptions,
) -> Generator[Request, Answer, tuple[Entry, ReplacementMethod]]:
    """A summary of at most `cap` tokens, and what it had no room for is told."""
    composer = Composer([entry for exchange in exchanges for entry in exchange], make_entry)
    if lost := composer.left_out(cap):
        yield SummaryProblem(
            f"{len(lost)} of the declared constraints do not fit a summary of {cap} tokens: pin them",
            "they were left out",
            failed=False,
        )
    made = yield from _asked_for(exchanges, cap, options, composer)
    summary = made or composer.digest(cap)
    if composer.forgotten:
        yield SummaryProblem(
            f"{len(composer.forgotten)} of the constraints that summaries told do not fit {cap} tokens",
            "they were left out",
            failed=False,
        )
    return summary, _method(made is not None)


def _asked_for(
    exchanges: Sequence[Sequence[Entry]], cap: int, options: SummaryOptions, composer: Composer
) -> Generator[Request, Answer, Entry | None]:
    """The summarizer's summary; None where a text of ours is to take its place."""
    if not options.ask:
        return None
    try:
        return (yield from asked(exchanges, cap, options, composer))
    except NoSummary as error:
        falls_back = options.on_failure == "fallback"
        instead = "digest" if falls_back else "nothing was changed"
        yield SummaryProblem(str(error), instead, failed=not error.unasked, unasked=error.unasked)
        if not falls_back:
            raise SummaryFailed(str(error)) from error
        return None


def _planned(originals: Sequence[Entry], cap: int, make_entry: EntryFactory) -> Entry:
    """A stand-in for the summary that a real run would write: as large as it may be."""
    stand_in = Composer(originals, make_entry).entry("(the summary)")
    return msgspec.structs.replace(
        stand_in, token_count=TokenCount(cap, "estimation", "low", "planned")
    )


def _method(asked: bool) -> ReplacementMethod:
    return "summary" if asked else "digest"
