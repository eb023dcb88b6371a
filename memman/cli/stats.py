"""`memman stats`: how a session fills its window, and its totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from memman.cli.display import console, has_colours, print_lines, usage_block, usage_of
from memman.cli.options import answer, json_option, model_option, session_argument
from memman.cli.session_files import load

if TYPE_CHECKING:
    from memman.results import SessionStats, Summary


@click.command()
@session_argument
@model_option
@json_option
def stats(session: str, model: str | None, as_json: bool) -> None:
    """Shows how the session S fills its context window."""
    opened = load(session, model)
    numbers = opened.memory.get_stats(opened.id)
    usage = usage_of(opened.memory, opened.id)
    if as_json:
        answer("stats", stats=numbers, usage=usage.as_dict())
        return
    shown_on = console()
    print_lines(shown_on, usage_block(usage, has_colours(shown_on)))
    print_lines(shown_on, ["", *_totals(numbers, opened.memory.get_summaries(opened.id))])


def _totals(numbers: SessionStats, summaries: list[Summary]) -> list[str]:
    entries = (
        f"{numbers.total_entries:,} added, {numbers.active_entries:,} active, "
        f"{numbers.compressed_entries:,} compressed"
    )
    behind = sum(len(summary.original_entry_ids) for summary in summaries)
    stands = f", standing for {behind:,} entries" if summaries else ""
    rows = {
        "session": numbers.session_id,
        "entries": entries,
        "tokens": f"{numbers.total_tokens:,} added, {numbers.active_tokens:,} in the window",
        "summaries": f"{numbers.summaries}{stands}",
        "limits": f"{numbers.max_tokens:,} tokens, {numbers.max_entries or 'unlimited'} entries",
        "counter": numbers.counter,
    }
    if numbers.drift is not None:
        rows["drift"] = f"{100 * numbers.drift:+.1f} % reported over estimated"
    return [f"{name:<10} {said}" for name, said in rows.items()]
