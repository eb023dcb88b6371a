"""`memman compress`: a session made smaller, its originals kept in its log."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
import msgspec

from memman import events
from memman.cli.display import Row, console, counted, first_line, table
from memman.cli.fitting import check_fit
from memman.cli.options import (
    answer,
    budget_option,
    force_option,
    json_option,
    note,
    output_options,
    session_argument,
    summarizer_option,
    tokens,
)
from memman.cli.problems import UnusableError
from memman.cli.session_files import Session, check_target, load, target_of, write
from memman.compression import CompressionPlan, PlannedEntry
from memman.entries import Entry
from memman.events import CompressionResult


@click.command()
@session_argument
@budget_option("The window in tokens; the session's own if none. It becomes the session's.")
@click.option("--target", type=tokens, help="Go down to this many tokens; half the budget if none.")
@summarizer_option
@click.option("--dry-run", is_flag=True, help="Only say what would happen to each entry.")
@output_options
@force_option
@json_option
def compress(
    session: str,
    budget: int | None,
    target: int | None,
    summarizer: str | None,
    dry_run: bool,
    output: str | None,
    in_place: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Compresses the session S now.

    Without --summarizer no model is asked, whatever S itself names: summaries are digests, offline.
    """
    to = _target(session, output, in_place, dry_run, as_json)
    opened = load(session, to=to)
    if summarizer is not None:
        opened.memory.set_summarize_callback(summarizer)
    if to not in (None, session):
        check_target(to, opened.id, force)
    if budget is not None:
        opened.memory.update_config(opened.id, max_tokens=budget)
    _check_target_tokens(opened, target)
    if to is None:
        _show_plan(opened, opened.memory.plan_compression(opened.id, target_tokens=target), as_json)
        return
    with events.compression_failed.connected_to(_tell_failure, sender=opened.memory):
        done = opened.memory.compress(opened.id, target_tokens=target)
    write(opened, session, to, force)
    if as_json:
        answer("compress", session_file=to, result=done)
    else:
        note(_told(done))
    check_fit(opened.memory, opened.id, target)


def _target(
    session: str, output: str | None, in_place: bool, dry_run: bool, as_json: bool
) -> str | None:
    """Where the result goes, None for a dry run."""
    if not dry_run:
        return target_of(session, output, in_place, as_json)
    if in_place or output is not None:
        raise UnusableError("--dry-run writes nothing: leave out -o and --in-place")
    return None


def _check_target_tokens(opened: Session, target: int | None) -> None:
    budget = opened.memory.get_stats(opened.id).max_tokens
    if target is not None and target > budget:
        raise UnusableError(f"--target {target:,} is above the budget of {budget:,} tokens")


def _tell_failure(_sender: Any, event: events.CompressionFailedNotice) -> None:
    note(f"no summary: {event.reason}")


def _told(done: CompressionResult) -> str:
    if done.compression_id is None:
        return f"nothing was compressed: {done.reason}"
    methods = Counter[str]()
    for item in done.replacements:
        methods[item.method] += len(item.ids)
    did = ", ".join(f"{count:,} by {method}" for method, count in methods.items())
    return f"{done.tokens_before:,} -> {done.tokens_after:,} tokens, entries replaced: {did}"


def _show_plan(opened: Session, plan: CompressionPlan, as_json: bool) -> None:
    """What would happen, entry by entry, and in one line."""
    if as_json:
        answer("compress", dry_run=True, plan=msgspec.to_builtins(plan))
        return
    entries = {entry.id: entry for entry in opened.memory.get_active_entries(opened.id)}
    rows = [_row(planned, entries[planned.entry_id]) for planned in plan.entries]
    table(
        console(),
        (">seq", ">tokens", ">after", "action", "type", "why", "text"),
        rows,
        spare=("why", "type"),
    )
    after = counted(plan.entries_after, "entry", "entries")
    note(
        f"would go from {plan.tokens_before:,} to {plan.tokens_after:,} tokens and from "
        f"{plan.entries_before:,} to {after} (target {plan.target_tokens:,} tokens); nothing was "
        "changed"
    )


def _row(planned: PlannedEntry, entry: Entry) -> Row:
    return Row(
        (
            f"#{entry.seq}",
            f"{planned.tokens:,}",
            f"{planned.tokens_after:,}",
            planned.action,
            planned.type,
            planned.reason,
            first_line(entry.text),
        ),
        "dim" if planned.action == "keep" else "",
    )
