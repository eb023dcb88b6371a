"""`memman stats`: how a session fills its window, and its totals."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

import click

from memman.cli.answers import StatsAnswer, answer
from memman.cli.display import (
    Row,
    console,
    counted,
    has_colours,
    percent,
    print_lines,
    table,
    usage_block,
)
from memman.cli.options import json_option, model_option, session_argument, show_budget_option
from memman.cli.problems import FindingError, UnusableError
from memman.cli.session_files import Session, load
from memman.counting.estimator import NAME
from memman.report.usage import usage_of

if TYPE_CHECKING:
    from rich.console import Console

    from memman.cli.effective import Effective
    from memman.explain import LargeEntry, Share, Shares
    from memman.results import SessionStats

_MOST_SHARES = 10  # of tools, and of sources


@click.command()
@session_argument
@model_option
@show_budget_option
@click.option(
    "--fail-over",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Exit with 1 if more of the window is used.",
)
@json_option
def stats(
    session: str,
    model: str | None,
    budget: int | None,
    fail_over: float | None,
    as_json: bool,
) -> None:
    """Shows how the session S, or a log, fills its context window, and what fills it."""
    opened = load(session, model, budget)
    settings = opened.effective
    numbers = opened.memory.get_stats(opened.id)
    usage = usage_of(opened.memory, opened.id, limited=settings.max_tokens is not None)
    if fail_over is not None and usage.window is None:
        raise UnusableError(
            "--fail-over needs a limit, and none is known: give --budget or --model"
        )
    shares = opened.memory.explain(opened.id).shares
    if as_json:
        answer(StatsAnswer(settings=settings, stats=numbers, usage=usage, shares=shares))
    else:
        shown_on = console()
        colours = has_colours(shown_on)
        print_lines(shown_on, usage_block(usage, colours, shown_on.width, zeros=False))
        print_lines(shown_on, ["", *_totals(opened, numbers, settings)])
        _show_shares(shown_on, shares)
    if fail_over is not None and usage.window is not None:
        used = 100 * usage.used / usage.window
        if used > fail_over:
            raise FindingError(f"{used:.1f} % of the window is used, more than {fail_over:g} %")


def _totals(opened: Session, numbers: SessionStats, settings: Effective) -> list[str]:
    summaries = opened.memory.get_summaries(opened.id)
    behind = sum(len(summary.original_entry_ids) for summary in summaries)
    stands = f", standing for {counted(behind, 'entry', 'entries')}" if summaries else ""
    rows = {
        "session": numbers.session_id,
        "entries": f"{numbers.total_entries:,} added, {numbers.compressed_entries:,} compressed",
        "window": _window(numbers, settings),
        "tokens": f"{numbers.total_tokens:,} added, {numbers.active_tokens:,} in the window",
        "summaries": f"{numbers.summaries:,}{stands}",
        "limits": settings.limits,
        "model": settings.model or "not known",
        "counter": _counter(numbers, settings),
    }
    if numbers.drift is not None:
        rows["drift"] = f"{100 * numbers.drift:+.1f} % reported over estimated"
    return [f"{name:<10} {said}" for name, said in rows.items()]


def _show_shares(shown_on: Console, shares: Shares) -> None:
    """The tokens by tool and by source, the largest entries, and the advice."""
    for head, found in (("tool", shares.tools), ("source", shares.sources)):
        if found:
            print_lines(shown_on, [""])
            rows = [_share_row(share, shares.tokens) for share in found[:_MOST_SHARES]]
            table(shown_on, (">tokens", ">share", ">entries", head), rows)
            if len(found) > _MOST_SHARES:
                print_lines(shown_on, [f"and {len(found) - _MOST_SHARES:,} more"])
    if shares.largest:
        print_lines(shown_on, [""])
        rows = [_large_row(each, shares.tokens) for each in shares.largest]
        table(shown_on, (">tokens", ">share", ">largest", "entry"), rows)
        print_lines(shown_on, ["", *wrap(shares.advice, shown_on.width)])


def _share_row(share: Share, whole: int) -> Row:
    return Row(
        (f"{share.tokens:,}", percent(share.tokens, whole), f"{share.entries:,}", share.name)
    )


def _large_row(each: LargeEntry, whole: int) -> Row:
    kind = each.role if each.type == "message" else each.type
    what = f"{kind} {each.name}" if each.name else kind
    return Row(
        (f"{each.tokens:,}", percent(each.tokens, whole), each.address, f"{what}: {each.text}")
    )


def _window(numbers: SessionStats, settings: Effective) -> str:
    """How many entries the window has, and what they are."""
    active, originals = numbers.active_entries, numbers.total_entries - numbers.compressed_entries
    stubs = active - originals - numbers.summaries
    kinds = [counted(originals, "original")]
    if numbers.summaries:
        kinds.append(counted(numbers.summaries, "summary", "summaries"))
    if stubs:
        kinds.append(counted(stubs, "stub"))
    most = "" if settings.max_entries is None else f" of {settings.max_entries:,}"
    noun = "entry" if active == 1 and not most else "entries"
    return f"{active:,}{most} {noun} ({', '.join(kinds)})"


def _counter(numbers: SessionStats, settings: Effective) -> str:
    """The counter, and for an estimate what would count better."""
    model = settings.model
    if model is None or not numbers.counter.startswith(f"{NAME}:"):
        return numbers.counter
    return f"{numbers.counter}, estimated: no plugin counts {model}"
