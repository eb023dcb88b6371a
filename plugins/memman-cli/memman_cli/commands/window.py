"""`memman stats` and `memman show`: how a session fills its window, and its entries."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import TYPE_CHECKING, get_args

import click

from memman.counting.estimator import NAME
from memman.entries import ENTRY_TYPES, Entry, Role, parse_address
from memman.spend import LEAST_SHOWN, dollars
from memman_cli import display, options
from memman_cli.answers import BlockAnswer, EntryAnswer, ShowAnswer, StatsAnswer, write_answer
from memman_cli.errors import FindingError, UnusableError
from memman_cli.output import note, write_data
from memman_cli.report.usage import usage_of
from memman_cli.sessions import Session, load
from memman_cli.words import entries_of, first_line, percent, plural

if TYPE_CHECKING:
    from rich.console import Console

    from memman.explain.shares import LargeEntry, Share, Shares
    from memman.explain.state_block import StateBlock
    from memman.results import SessionStats
    from memman.spend import ReportedTokens, Spend
    from memman_cli.settings import Effective

_MOST_SHARES = 10  # tools, or sources
_WIDE = 80  # columns; below, the state of an entry is shortened
_HEADINGS = (">seq", "type", "role/name", ">tokens", "state", "text")


@click.command()
@options.session
@options.model
@options.window
@click.option(
    "--fail-over",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Exit with 1 if more of the window is used.",
)
@options.json
def stats(
    session: str, model: str | None, budget: int | None, fail_over: float | None, as_json: bool
) -> None:
    """Show how the session S, or a log, fills its context window."""
    opened = load(session, model, budget)
    settings = opened.effective
    numbers = opened.memory.get_stats(opened.id)
    usage = usage_of(opened.memory, opened.id, limited=settings.max_tokens is not None)
    if fail_over is not None and usage.window is None:
        raise UnusableError(
            "--fail-over needs a limit, and none is known: give --budget or --model"
        )
    explanation = opened.memory.explain(opened.id)
    shares, block = explanation.shares, explanation.state
    if as_json:
        write_answer(
            StatsAnswer(settings=settings, stats=numbers, usage=usage, shares=shares, state=block)
        )
    else:
        console = display.open_console()
        display.print_lines(console, display.usage_lines(console, usage, zeros=False))
        display.print_lines(console, ["", *_totals(opened, numbers, settings, block)])
        _show_shares(console, shares)
    if fail_over is not None and usage.window is not None:
        used = 100 * usage.used / usage.window
        if used > fail_over:
            raise FindingError(f"{used:.1f} % of the window is used, more than {fail_over:g} %")


def _totals(
    opened: Session, numbers: SessionStats, settings: Effective, block: StateBlock | None
) -> list[str]:
    summaries = opened.memory.get_summaries(opened.id)
    originals = sum(len(summary.original_entry_ids) for summary in summaries)
    model = settings.model
    counter = numbers.counter
    if model is not None and counter.startswith(f"{NAME}:"):
        counter += f", estimated: no plugin counts {model}"
    replaced = f", in place of {entries_of(originals)}" if summaries else ""
    rows = {
        "session": numbers.session_id,
        "entries": f"{numbers.total_entries:,} added, {numbers.compressed_entries:,} compressed",
        "window": _window(numbers, settings),
        "tokens": f"{numbers.total_tokens:,} added, {numbers.active_tokens:,} in the window",
        "summaries": f"{numbers.summaries:,}{replaced}",
        "outline": f"#{block.seq}, {block.tokens:,} tokens" if block else "none",
        "limits": settings.limits,
        "model": model or "not known",
        "counter": counter,
    }
    if numbers.reported.requests:
        rows |= _bill(numbers.reported, numbers.spend)
    if numbers.drift is not None:
        rows["drift"] = f"{100 * numbers.drift:+.1f} % reported over estimated"
    return [f"{name:<10} {value}" for name, value in rows.items()]


def _bill(reported: ReportedTokens, spend: Spend | None) -> dict[str, str]:
    """Return the rows of what was reported, and of its price if that is known."""
    read, written = (percent(part, reported.input) for part in (reported.cached, reported.written))
    lost = plural(reported.breaks, "time")
    rows = {
        "requests": f"{reported.requests:,}, {plural(reported.input, 'token')} in, {reported.output:,} out",
        "cache": f"{read} of the input read from it, {written} written to it; lost {lost}",
    }
    if spend is not None:
        kinds = ("input", "cached", "written", "output", "summaries")
        parts = [(name, getattr(spend, name)) for name in kinds]
        shown = ", ".join(f"{name} {dollars(amount)}" for name, amount in parts if amount)
        unknown = f"; {spend.unpriced:,} without a known price" if spend.unpriced else ""
        rows["spend"] = f"{dollars(spend.total)} ({shown}){unknown}"
        if abs(spend.uncompressed - spend.total) >= LEAST_SHOWN:
            rows["saved"] = _saved(spend)
    return rows


def _saved(spend: Spend) -> str:
    whole, paid = spend.uncompressed, spend.total
    less = f"{dollars(abs(whole - paid))} {'less' if whole >= paid else 'more'}"
    return f"{less} than the {dollars(whole)} of the same requests uncompressed"


def _window(numbers: SessionStats, settings: Effective) -> str:
    """Return the number of entries in the window, by kind."""
    active, originals = numbers.active_entries, numbers.total_entries - numbers.compressed_entries
    stubs = active - originals - numbers.summaries
    kinds = [plural(originals, "original")]
    if numbers.summaries:
        kinds.append(plural(numbers.summaries, "summary", "summaries"))
    if stubs:
        kinds.append(plural(stubs, "stub"))
    most = "" if settings.max_entries is None else f" of {settings.max_entries:,}"
    noun = "entry" if active == 1 and not most else "entries"
    return f"{active:,}{most} {noun} ({', '.join(kinds)})"


def _show_shares(console: Console, shares: Shares) -> None:
    """Print the tokens by tool and by source, the largest entries, and the advice."""
    for heading, found in (("tool", shares.tools), ("source", shares.sources)):
        if found:
            display.print_lines(console, [""])
            rows = [_share_row(share, shares.tokens) for share in found[:_MOST_SHARES]]
            display.print_table(console, (">tokens", ">share", ">entries", heading), rows)
            if len(found) > _MOST_SHARES:
                display.print_lines(console, [f"and {len(found) - _MOST_SHARES:,} more"])
    if shares.largest:
        display.print_lines(console, [""])
        rows = [_large_row(each, shares.tokens) for each in shares.largest]
        display.print_table(console, (">tokens", ">share", ">largest", "entry"), rows)
        display.print_lines(console, ["", *wrap(shares.advice, console.width)])


def _share_row(share: Share, whole: int) -> display.Row:
    part = percent(share.tokens, whole)
    return display.Row((f"{share.tokens:,}", part, f"{share.entries:,}", share.name))


def _large_row(each: LargeEntry, whole: int) -> display.Row:
    kind = each.role if each.type == "message" else each.type
    what = f"{kind} {each.name}" if each.name else kind
    part = percent(each.tokens, whole)
    return display.Row((f"{each.tokens:,}", part, each.address, f"{what}: {each.text}"))


# ---------------------------------------------------------------- show


@click.command()
@options.session
@options.model
@click.option("--type", "kind", type=click.Choice(ENTRY_TYPES), help="Only entries of this type.")
@click.option("--role", type=click.Choice(get_args(Role)), help="Only entries of this role.")
@click.option("--grep", metavar="REGEX", help="Only entries whose text matches.")
@click.option("--active", is_flag=True, help="The window as the model sees it, with summaries.")
@click.option(
    "--entry", "wanted", metavar="ID|ADDRESS", help="One entry with its full text, as 12 or 556.2."
)
@click.option("--outline", "block", is_flag=True, help="The outline with its full text.")
@options.json
def show(
    session: str,
    model: str | None,
    kind: str | None,
    role: str | None,
    grep: str | None,
    active: bool,
    wanted: str | None,
    block: bool,
    as_json: bool,
) -> None:
    """List the entries of the session S, or of a log.

    All added entries are listed, compressed or not; with --active those that the model sees, with the
    outline.
    """
    try:
        pattern = None if grep is None else re.compile(grep)
    except re.error as error:
        raise click.BadParameter(f"{grep!r} is not a regular expression: {error}") from None
    opened = load(session, model)
    memory = opened.memory
    if wanted is not None:
        address = f"#{wanted.removeprefix('#')}"
        entry = memory.get_entry(opened.id, address if parse_address(address) else wanted)
        _show_entry(entry, opened, as_json)
        return
    if block:
        _show_block(memory.explain(opened.id).state, opened, as_json)
        return
    entries = memory.get_active_entries(opened.id) if active else memory.get_entries(opened.id)
    matching = [
        entry
        for entry in entries
        if kind in (None, entry.type)
        and role in (None, entry.role)
        and (pattern is None or pattern.search(entry.text))
    ]
    if as_json:
        write_answer(ShowAnswer(session_id=opened.id, entries=tuple(matching)))
    elif matching:
        console = display.open_console()
        to = f"{display.arrow(console)} " if console.width < _WIDE else ""
        rows = [_entry_row(entry, opened, to) for entry in matching]
        display.print_table(console, _HEADINGS, rows, spare=("role/name", "type"))
        tokens = sum(entry.token_count.tokens for entry in matching)
        note(f"{len(matching):,} of {entries_of(len(entries))}, {plural(tokens, 'token')}")
    if not matching:
        raise FindingError(f"none of {entries_of(len(entries))} matches")


def _show_entry(entry: Entry, opened: Session, as_json: bool) -> None:
    if as_json:
        write_answer(EntryAnswer(session_id=opened.id, entry=entry))
        return
    tokens = plural(entry.token_count.tokens, "token")
    role = _role(entry, opened)
    note(f"{entry.address} {entry.type} {role}, {tokens}, {_state(entry, opened)}, id {entry.id}")
    write_data(f"{entry.text}\n")


def _show_block(block: StateBlock | None, opened: Session, as_json: bool) -> None:
    if as_json:
        write_answer(BlockAnswer(session_id=opened.id, state=block))
    elif block is not None:
        waiting = f"; {block.waiting:,} more find no room" if block.waiting else ""
        note(f"outline of {block}{waiting}")
        write_data(f"{block.text}\n")
    if block is None:
        raise FindingError("this session has no outline")


def _entry_row(entry: Entry, opened: Session, to: str) -> display.Row:
    tokens, state = f"{entry.token_count.tokens:,}", _state(entry, opened, to)
    role, text = _role(entry, opened), first_line(entry.text)
    cells = (entry.address, entry.type, role, tokens, state, text)
    return display.Row(cells, "dim" if entry.compressed else "")


def _role(entry: Entry, opened: Session) -> str:
    return "outline" if entry.id == opened.outline else entry.name or entry.role


def _state(entry: Entry, opened: Session, to: str = "") -> str:
    """Return an entry's state, or its replacement; `to` is a short form of the replacement's kind."""
    if not entry.compressed:
        return "pinned" if entry.pinned else "active"
    replacement = opened.window.get(entry.summary_id or "")
    if replacement is None:
        return "dropped"
    kind = "summary" if replacement.type == "summary" else "stub"
    kind = "outline" if replacement.id == opened.outline else kind
    return f"{to or f'in {kind} '}{replacement.address}"
