"""`memman plan`: what a compression would do to each entry of a session."""

from __future__ import annotations

import click

from memman.cli.answers import PlanAnswer, answer
from memman.cli.display import Row, console, counted, first_line, table
from memman.cli.options import (
    budget_option,
    json_option,
    keep_option,
    model_option,
    note,
    session_argument,
    target_option,
)
from memman.cli.problems import UnusableError
from memman.cli.session_files import Session, load
from memman.compression import PlannedEntry
from memman.entries import Entry


@click.command()
@session_argument
@budget_option("The window in tokens; the session's or its program's own if none.")
@model_option
@target_option
@keep_option
@json_option
def plan(
    session: str,
    budget: int | None,
    model: str | None,
    target: int | None,
    keep: int | None,
    as_json: bool,
) -> None:
    """Says what `memman compress` would do to each entry of the session S, or a log. Nothing is changed."""
    opened = load(session, model, budget)
    aim(opened, budget, target, keep)
    show_plan(opened, target, as_json)


def aim(opened: Session, budget: int | None, target: int | None, keep: int | None) -> None:
    """Gives a session the window that it is to fit. Raises `UnusableError` for a target above it."""
    most = budget or opened.memory.get_stats(opened.id).max_tokens
    if target is not None and target > most:
        raise UnusableError(f"--target {target:,} is above the budget of {most:,} tokens")
    asked = {"max_tokens": budget, "recent_window": keep}
    settings = {name: value for name, value in asked.items() if value is not None}
    if settings:
        opened.memory.update_config(opened.id, **settings)


def show_plan(opened: Session, target: int | None, as_json: bool) -> None:
    """What would happen, entry by entry, and in one line."""
    plan = opened.memory.plan_compression(opened.id, target_tokens=target)
    settings = opened.effective
    if as_json:
        answer(PlanAnswer(settings=settings, plan=plan))
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
    known = target is not None or settings.max_tokens is not None
    aimed = f" (target {plan.target_tokens:,} tokens)" if known else ""
    note(
        f"would go from {plan.tokens_before:,} to {plan.tokens_after:,} tokens and from "
        f"{plan.entries_before:,} to {after}{aimed}; nothing was changed. "
        f"{settings}"
    )


def _row(planned: PlannedEntry, entry: Entry) -> Row:
    return Row(
        (
            entry.address,
            f"{planned.tokens:,}",
            f"{planned.tokens_after:,}",
            planned.action,
            planned.type,
            planned.reason,
            first_line(entry.text),
        ),
        "dim" if planned.action == "keep" else "",
    )
