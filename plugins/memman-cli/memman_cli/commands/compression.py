"""`memman compress`, `plan` and `undo`, and whether a window fits its budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from memman import events
from memman.entries import Entry, parse_address
from memman.errors import CompressionFailed, CounterUnavailable, EntryNotFound
from memman.events import CompressionResult, PlannedEntry
from memman.explain.history import CompressionStatus, LogHistory
from memman.manager import MemoryManager
from memman.results import SessionStats
from memman.stores import without_password
from memman_cli import display, options
from memman_cli.answers import CompressAnswer, PlanAnswer, UndoAnswer, write_answer
from memman_cli.databases import silent
from memman_cli.errors import FailedError, FindingError, UnusableError
from memman_cli.output import harmless, note
from memman_cli.sessions import Session, check_target, load, save_changed, target_of
from memman_cli.words import entries_of, first_line, plural

_TRIES = 8
_MOST_COMPRESSIONS, _MOST_UNDONE = 5, 12  # of those that are listed

compression_argument = click.argument("compression", metavar="[COMPRESSION]", required=False)


@click.command()
@options.session
@options.model
@options.budget("The window in tokens, kept in the session; default: the session's own.")
@options.target
@options.keep
@options.summarizer
@click.option("--dry-run", is_flag=True, help="Show the plan only, as `memman plan` does.")
@options.output
@options.in_place
@options.force
@options.strict
@options.json
def compress(
    session: str,
    model: str | None,
    budget: int | None,
    target: int | None,
    keep: int | None,
    summarizer: str | None,
    dry_run: bool,
    output: str | None,
    in_place: bool,
    force: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Compress the session S, or a log, now.

    Without --summarizer no model is called, even if S names one: the summary is the outline, made offline.
    """
    if dry_run and (in_place or output is not None):
        raise UnusableError("--dry-run writes nothing: leave out -o and --in-place")
    to = None if dry_run else target_of(session, output, in_place, as_json)
    opened = load(session, model, to=to)
    if to not in (None, session):
        check_target(to, opened.id, force)
    if summarizer is not None:
        opened.memory.set_summarize_callback(summarizer)
    _set_window(opened, budget, target, keep)
    if to is None:
        _show_plan(opened, target, as_json)
        return
    with strictly(opened.memory, strict):
        result = opened.memory.compress(opened.id, target_tokens=target)
    save_changed(opened, session, to, force)
    if as_json:
        write_answer(CompressAnswer(session_file=without_password(to), result=result))
    else:
        note(_result_line(result))
    check_fit(opened.memory, opened.id, target)


def _result_line(result: CompressionResult) -> str:
    if result.compression_id is None:
        return f"nothing was compressed: {result.reason.removeprefix('nothing was changed: ')}"
    methods = Counter[str]()
    for item in result.replacements:
        methods[item.method] += len(item.ids)
    did = ", ".join(f"{count:,} by {method}" for method, count in methods.items())
    kept = (
        f"; {result.values_kept:,} of {result.values:,} exact values kept" if result.values else ""
    )
    return (
        f"{result.tokens_before:,} -> {result.tokens_after:,} tokens, entries replaced: {did}{kept}"
    )


# ---------------------------------------------------------------- plan


@click.command()
@options.session
@options.window
@options.model
@options.target
@options.keep
@options.json
def plan(
    session: str,
    budget: int | None,
    model: str | None,
    target: int | None,
    keep: int | None,
    as_json: bool,
) -> None:
    """Show what `compress` would do to each entry of S, or of a log."""
    opened = load(session, model, budget)
    _set_window(opened, budget, target, keep)
    _show_plan(opened, target, as_json)


def _set_window(opened: Session, budget: int | None, target: int | None, keep: int | None) -> None:
    """Give a session the window that it must fit. Raises `UnusableError` for a target above it."""
    most = budget or opened.memory.get_stats(opened.id).max_tokens
    if target is not None and target > most:
        raise UnusableError(f"--target {target:,} is above the budget of {most:,} tokens")
    given = {"max_tokens": budget, "recent_window": keep}
    settings = {name: value for name, value in given.items() if value is not None}
    if settings:
        opened.memory.update_config(opened.id, **settings)


def _show_plan(opened: Session, target: int | None, as_json: bool) -> None:
    """Print the plan, entry by entry and in one line."""
    plan = opened.memory.plan_compression(opened.id, target_tokens=target)
    settings = opened.effective
    if as_json:
        write_answer(PlanAnswer(settings=settings, plan=plan))
        return
    rows = [_plan_row(planned, opened.window[planned.entry_id]) for planned in plan.entries]
    headings = (">seq", ">tokens", ">after", "action", "type", "why", "text")
    display.print_table(display.open_console(), headings, rows, spare=("why", "type"))
    known = target is not None or settings.max_tokens is not None
    aim = f" (target {plan.target_tokens:,} tokens)" if known else ""
    block = f", {plan.state_tokens:,} of them the outline," if plan.state_tokens else ""
    note(
        f"would go from {plan.tokens_before:,} to {plan.tokens_after:,} tokens{block} and from "
        f"{plan.entries_before:,} to {entries_of(plan.entries_after)}{aim}; nothing was changed. "
        f"{settings}"
    )
    if plan.bill:
        note(plan.bill)


def _plan_row(planned: PlannedEntry, entry: Entry) -> display.Row:
    tokens = (f"{planned.tokens:,}", f"{planned.tokens_after:,}")
    decision = (planned.action, planned.type, planned.reason)
    cells = (entry.address, *tokens, *decision, first_line(entry.text))
    return display.Row(cells, "dim" if planned.action == "keep" else "")


# ---------------------------------------------------------------- undo


@click.command()
@options.session
@compression_argument
@click.option("--outer", is_flag=True, help="First undo the later compressions that folded it.")
@options.output
@options.in_place
@options.force
@options.json
def undo(
    session: str,
    compression: str | None,
    outer: bool,
    output: str | None,
    in_place: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Undo a compression of the session S.

    The originals are in the window again. COMPRESSION is an id, a place in the log such as 120, or the
    id of a summary; default: the newest that is no retraction. The log keeps both, and the originals can be
    compressed again.
    """
    to = target_of(session, output, in_place, as_json)
    opened = load(session, to=to)
    if to != session:
        check_target(to, opened.id, force)
    history, memory = opened.history, opened.memory
    undone = _undo_order(history, find_compression(history, compression), outer)
    before = memory.get_stats(opened.id)
    for name in undone:
        memory.undo_compression(opened.id, name)
    save_changed(opened, session, to, force)
    after = memory.get_stats(opened.id)
    if as_json:
        file = without_password(to)
        write_answer(UndoAnswer(session_file=file, undone=tuple(undone), stats=after))
        return
    addresses = [f"#{history.compressions[name][0]}" for name in undone]
    note(f"undone: {shortened(addresses, _MOST_UNDONE)}")
    back = entries_of(_originals(after) - _originals(before))
    change = f"{before.active_tokens:,} -> {after.active_tokens:,} tokens"
    note(f"{back} in the window again, {change} (limit {after.max_tokens:,})")


def _originals(stats: SessionStats) -> int:
    """Return the number of added entries in the window."""
    return stats.total_entries - stats.compressed_entries


def shortened(names: Sequence[str], most: int) -> str:
    """Return names as a list, and the number of those that are left out."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def _undo_order(history: LogHistory, name: str, outer: bool) -> list[str]:
    """Return the compressions to undo, in order. Raises `FindingError` for several without `outer`."""
    if name not in history.history.compressions:
        return [name]  # no longer in force: the library's error has the reason
    order = history.history.undo_order(name)
    if len(order) > 1 and not outer:
        first, wanted = (history.compressions[each][0] for each in (order[0], order[-1]))
        later = plural(len(order) - 1, "later one")
        raise FindingError(
            f"compression #{wanted} was folded by {later}: undo #{first} first, or add --outer to undo "
            "all of them"
        )
    return order


# ---------------------------------------------------------------- a compression by its name


def find_compression(history: LogHistory, wanted: str | None) -> str:
    """Return the id of a compression: by its id, its place in the log, or an entry that it made.

    None is the newest in force. Raises `FindingError` with the existing ones.
    """
    if wanted is None:
        try:
            return history.history.latest()
        except EntryNotFound:
            raise FindingError(
                f"no compression is in force in this session{_existing(history)}"
            ) from None
    seq, number = parse_address(f"#{wanted.removeprefix('#')}") or (0, 0)
    for name, (place, record) in history.compressions.items():
        made = [item.entry.id for item in record.replacements if item.entry is not None]
        if wanted in (name, *made) or (place == seq and number <= len(record.replacements)):
            return name
    raise FindingError(f"no compression {wanted!r} is in this session{_existing(history)}")


def status_line(status: CompressionStatus) -> str:
    """Return a compression as one line."""
    state = "" if status.state == "in force" else f", {status.state}"
    return (
        f"#{status.seq}, {status.at:%Y-%m-%d %H:%M}: {status.tokens_before:,} -> {status.tokens_after:,} "
        f"tokens ({harmless(status.reason)}){state}"
    )


def _existing(history: LogHistory) -> str:
    statuses = history.compression_statuses()
    if not statuses:
        return ": it was never compressed"
    newest = [f"#{one.seq} ({one.state})" for one in statuses[-_MOST_COMPRESSIONS:]]
    all_shown = len(statuses) == len(newest)
    subject = "there" if all_shown else f"the newest of {plural(len(statuses), 'compression')}"
    return f"; {subject} {'is' if len(newest) == 1 else 'are'} {', '.join(newest)}"


# ---------------------------------------------------------------- budgets and failures


def enough_budget(budget: int, required: int, try_at: Callable[[int], int | None]) -> int | None:
    """Return a budget above `budget` that is enough, found by trying; None if it is not found soon.

    `try_at` returns the tokens that are still required at a budget, None if it is enough. The protected
    part of a context grows a little with the budget, because larger pieces of entries may stay.
    """
    for _ in range(_TRIES):
        budget = max(required, budget + budget // 50 + 1)
        still = try_at(budget)
        if still is None:
            return budget
        required = still
    return None


def check_fit(memory: MemoryManager, session_id: str, target: int | None = None) -> None:
    """Raise `FindingError` if the window is over its budget, or over a `target` in tokens."""
    stats = memory.get_stats(session_id)
    window = stats.active_tokens + stats.overhead_tokens
    if window > stats.max_tokens:
        raise FindingError(
            f"the window still has {window:,} tokens, over its budget of {stats.max_tokens:,}: "
            "the rest is pinned or recent (a context is cut to fit if the pinned entries leave room for it)"
        )
    if target is not None and stats.active_tokens > target:
        raise FindingError(
            f"the window still has {stats.active_tokens:,} tokens, over the target of {target:,}: "
            "the rest is pinned or recent"
        )


@contextmanager
def strictly(memory: MemoryManager, strict: bool) -> Iterator[None]:
    """Note each summary that fails; with `strict` raise `FailedError` for it, or for a failed count."""
    if strict:
        memory.update_config(on_failure="raise")
    failures: list[str] = []

    def summary_failed(_sender: Any, event: events.CompressionFailedNotice) -> None:
        failures.append(f"no summary: {event.reason}")
        if not strict:
            note(failures[-1])

    def count_failed(_sender: Any, event: events.CountFellBack) -> None:
        failures.append(f"{event.counter} failed and its count was estimated: {event.reason}")

    with (
        silent("memman.summaries"),  # it points at an event that is not visible in a terminal
        events.compression_failed.connected_to(summary_failed, sender=memory),
        events.count_fell_back.connected_to(count_failed, sender=memory),
    ):
        try:
            yield
        except (CompressionFailed, CounterUnavailable) as error:
            if strict:
                raise FailedError(str(error)) from error
            raise
    if strict and failures:
        raise FailedError(f"--strict: {failures[0]}")
