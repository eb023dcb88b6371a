"""`memman compress`: a session made smaller, its originals kept in its log."""

from __future__ import annotations

from collections import Counter

import click
import msgspec

from memman.cli.display import Row, console, first_line, table
from memman.cli.options import answer, budget_option, json_option, note, session_argument, tokens
from memman.cli.problems import FindingError, UnusableError
from memman.cli.reading import STDIN
from memman.cli.session_files import Session, check_target, load, save
from memman.compression import CompressionPlan, PlannedEntry
from memman.entries import Entry
from memman.events import CompressionResult


@click.command()
@session_argument
@budget_option("The window in tokens; the session's own if none. It becomes the session's.")
@click.option("--target", type=tokens, help="Go down to this many tokens; half the budget if none.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen to each entry.")
@click.option("-o", "--output", help='The session file to write; "-" is stdout.')
@click.option("--in-place", is_flag=True, help="Write back to S.")
@json_option
def compress(
    session: str,
    budget: int | None,
    target: int | None,
    dry_run: bool,
    output: str | None,
    in_place: bool,
    as_json: bool,
) -> None:
    """Compresses the session S now. No model is asked: summaries are digests, offline."""
    to = None if dry_run else _target(session, output, in_place, as_json)
    opened = load(session)
    if budget is not None:
        opened.memory.update_config(opened.id, max_tokens=budget)
    if to is None:
        _show_plan(opened, opened.memory.plan_compression(opened.id, target_tokens=target), as_json)
        return
    done = opened.memory.compress(opened.id, target_tokens=target)
    save(opened.state, to)
    if as_json:
        answer("compress", session_file=to, result=done)
    else:
        note(_told(done))
    _check_fit(opened)


def _target(session: str, output: str | None, in_place: bool, as_json: bool) -> str:
    """Where the result goes. Writing over S has to be asked for."""
    if in_place == (output is not None):
        raise UnusableError("say where the result goes: -o FILE, or --in-place for S itself")
    to = session if output is None else output
    if to == STDIN and in_place:
        raise UnusableError("stdin cannot be written back to; use -o FILE, or -o - for stdout")
    if to == STDIN and as_json:
        raise UnusableError("-o - and --json both want stdout; name a file for the session")
    check_target(to)
    return to


def _told(done: CompressionResult) -> str:
    if done.compression_id is None:
        return f"nothing was compressed: {done.reason}"
    methods = Counter[str]()
    for item in done.replacements:
        methods[item.method] += len(item.ids)
    did = ", ".join(f"{count} by {method}" for method, count in methods.items())
    return f"{done.tokens_before:,} -> {done.tokens_after:,} tokens, entries replaced: {did}"


def _check_fit(opened: Session) -> None:
    stats = opened.memory.get_stats(opened.id)
    if stats.active_tokens + stats.overhead_tokens > stats.max_tokens:
        raise FindingError(
            f"the window still has {stats.active_tokens:,} tokens, over its budget of "
            f"{stats.max_tokens:,}: the rest is pinned or recent (a context is cut to fit)"
        )


def _show_plan(opened: Session, plan: CompressionPlan, as_json: bool) -> None:
    """What would happen, entry by entry, and in one line."""
    if as_json:
        answer("compress", dry_run=True, plan=msgspec.to_builtins(plan))
        return
    entries = {entry.id: entry for entry in opened.memory.get_active_entries(opened.id)}
    rows = [_row(planned, entries[planned.entry_id]) for planned in plan.entries]
    table(console(), (">seq", ">tokens", ">after", "action", "type", "why", "text"), rows)
    note(
        f"would go from {plan.tokens_before:,} to {plan.tokens_after:,} tokens and from "
        f"{plan.entries_before} to {plan.entries_after} entries (target {plan.target_tokens:,} "
        "tokens); nothing was changed"
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
