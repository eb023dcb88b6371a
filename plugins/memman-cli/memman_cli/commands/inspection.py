"""`memman diff` and `memman why`: what a compression replaced, and what became of a text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from memman.explain.history import CompressionStatus, LogHistory
from memman_cli import display, options
from memman_cli.answers import DiffAnswer, WhyAnswer, write_answer
from memman_cli.commands.compression import (
    compression_argument,
    find_compression,
    status_line,
)
from memman_cli.errors import FindingError
from memman_cli.explain import (
    ComparedReplacement,
    ComparedValue,
    Comparison,
    Found,
    KeptIn,
    Trace,
    compare,
    trace,
)
from memman_cli.files import STDIN
from memman_cli.output import harmless, note
from memman_cli.sessions import load
from memman_cli.trace_lines import (
    MOST_GROUPS,
    MOST_SHOWN,
    excerpt_of,
    group_lines,
    groups_of,
    head_of,
    left_of,
    statuses_of,
)
from memman_cli.words import entries_of, first_line, plural, speaker

if TYPE_CHECKING:
    from rich.console import Console

_EXCERPT, _LINE = 240, 72  # characters of a single original, and of one of many
_MOST_LOST, _MOST_LISTED = 6, 12
_NO_TEXT = "(no text)"
_PLACES: dict[KeptIn | None, str] = {
    "replacement": "in the replacement",
    "state": "in the outline",
    "elsewhere": "elsewhere in the window",
    None: "lost",
}


@click.command()
@options.session
@compression_argument
@options.model
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="ORIGINALS",
    help="Show this many originals of each replacement; default: all.",
)
@click.option(
    "--values", "by_value", is_flag=True, help="List exact values and their places, no texts."
)
@click.option(
    "--fail-under",
    type=options.ratio,
    metavar="RATIO",
    help="Exit with 1 if a smaller share of the values was kept.",
)
@options.json
def diff(
    session: str,
    compression: str | None,
    model: str | None,
    limit: int | None,
    by_value: bool,
    fail_under: float | None,
    as_json: bool,
) -> None:
    """Compare the originals of a compression with their replacements.

    COMPRESSION is an id, a place in the log such as 120, or an entry that it made; default: the newest.
    Exact values are paths, identifiers, numbers, dates and addresses; kept ones were still in the window.
    """
    opened = load(session, model)
    history = opened.history
    compared = compare(history, find_compression(history, compression))
    if as_json:
        write_answer(DiffAnswer(session_id=opened.id, comparison=compared))
    else:
        _show_comparison(compared, history, by_value, limit)
    if fail_under is not None and compared.survival < fail_under:
        raise FindingError(
            f"{_share(compared)} of the exact values were kept, under {100 * fail_under:g} %"
        )


def _show_comparison(
    compared: Comparison, history: LogHistory, by_value: bool, limit: int | None
) -> None:
    console = display.open_console()
    statuses = statuses_of(history)
    line = status_line(statuses.pop(compared.compression_id))
    display.print_lines(console, [f"compression {line}", ""])
    if by_value:
        _show_values(console, compared)
    else:
        pairs = [_pair(each, limit) for each in compared.replacements]
        display.print_pairs(console, "original", "replacement", pairs)
        outline = compared.outline
        if outline and all(each.entry != outline for each in compared.replacements):
            head = f"outline {outline.address}, {plural(outline.token_count.tokens, 'token')}"
            display.print_lines(console, ["", head, outline.text])
        display.print_lines(console, ["", *_balance(compared)])
    if statuses:
        others = [f"#{status.seq}" for status in statuses.values()]
        earlier = len(others) - _MOST_LISTED
        more = f"{earlier:,} more and " if earlier > 0 else ""
        note(f"other compressions: {more}{', '.join(others[-_MOST_LISTED:])}")


def _pair(compared: ComparedReplacement, limit: int | None) -> tuple[str, str]:
    """Return the originals and their replacement."""
    originals = compared.originals
    tokens = sum(entry.token_count.tokens for entry in originals)
    left = "" if tokens == compared.tokens_before else f", {compared.tokens_before:,} in the window"
    before = [f"{entries_of(len(originals))}, {plural(tokens, 'token')}{left}"]
    length = _LINE if len(originals) > 1 else _EXCERPT
    before += [
        f"#{each.seq} {speaker(each)}: {first_line(each.text, length) or _NO_TEXT}"
        for each in originals[:limit]
    ]
    if limit is not None and len(originals) > limit:
        before.append(f"and {plural(len(originals) - limit, 'more entry', 'more entries')}")
    entry = compared.entry
    if entry is None:
        return "\n".join(before), "dropped without a replacement"
    whole = compared.method in ("summary", "outline")
    text = (entry.text if whole else first_line(entry.text, _EXCERPT)) or _NO_TEXT
    after = f"{compared.method} {entry.address}, {plural(compared.tokens_after, 'token')}"
    return "\n".join(before), f"{after}\n{text}"


def _balance(compared: Comparison) -> list[str]:
    """Return the number of exact values, their places, and the first lost ones."""
    if not compared.values:
        return ["exact values: the originals have none"]
    values = _best_places(compared)
    counts = Counter(each.kept for each in values)
    places = ", ".join(
        f"{counts[kept]:,} {where}" for kept, where in _PLACES.items() if counts[kept]
    )
    lines = [
        f"exact values: {compared.values_kept:,} of {compared.values:,} kept "
        f"({_share(compared)}): {places}"
    ]
    if counts[None]:
        lost = [f"{harmless(each.value)} (#{each.seq})" for each in values if each.kept is None]
        more = len(lost) - _MOST_LOST
        rest = f", and {more:,} more (--values)" if more > 0 else ""
        lines.append(f"lost: {', '.join(lost[:_MOST_LOST])}{rest}")
    return lines


def _best_places(compared: Comparison) -> list[ComparedValue]:
    """Return each value once, with the best of its places."""
    found: dict[str, ComparedValue] = {}
    rank = list(_PLACES)
    for replacement in compared.replacements:
        for each in replacement.values:
            known = found.get(each.value)
            if known is None or rank.index(each.kept) < rank.index(known.kept):
                found[each.value] = each
    return list(found.values())


def _share(compared: Comparison) -> str:
    return f"{100 * compared.survival:.1f} %"


def _show_values(console: Console, compared: Comparison) -> None:
    rows = [
        display.Row((f"#{each.seq}", _PLACES[each.kept], each.value), "" if each.kept else "red")
        for each in sorted(_best_places(compared), key=lambda each: each.seq)
    ]
    if rows:
        display.print_table(console, (">entry", "kept", "value"), rows)
        display.print_lines(console, [""])
    display.print_lines(console, _balance(compared)[:1])


# ---------------------------------------------------------------- why


@click.command()
@options.session
@click.argument("text", metavar="TEXT")
@options.model
@options.window
@options.json
def why(session: str, text: str, model: str | None, budget: int | None, as_json: bool) -> None:
    """Show what became of TEXT in the session S, or in a log.

    The entries that had it, their replacements, its places in the window and in the outline, and the
    command that restores it. TEXT may be the address of an entry, such as #12 or #556.2.
    """
    opened = load(session, model, budget)
    history = opened.history
    traced = trace(history, text)
    there = {found.entry.address for found in traced.found}
    made = opened.memory.explain(opened.id).recalled
    recalled = tuple(each for each in made if not there.isdisjoint(each.addresses))
    if as_json:
        write_answer(
            WhyAnswer(
                session_id=opened.id, settings=opened.effective, trace=traced, recalled=recalled
            )
        )
    elif traced.found or traced.survives:
        _show_trace(traced, statuses_of(history), session)
        display.print_lines(
            display.open_console(), [harmless(f"recalled: {each}") for each in recalled]
        )
        note(str(opened.effective))
    if not traced.found and not traced.survives:
        entries = entries_of(len(history.entries))
        raise FindingError(f"{text!r} was never in this session: none of {entries} has it")


def _show_trace(traced: Trace, statuses: dict[str, CompressionStatus], session: str) -> None:
    console = display.open_console()
    display.print_lines(console, head_of(traced))
    for found in groups_of(traced)[:MOST_GROUPS]:
        display.cut_lines(console, ["", *(excerpt_of(each) for each in found[:MOST_SHOWN])])
        lines = [*group_lines(found, statuses), *_commands(found[0], statuses, session)]
        display.print_lines(console, [f"  {harmless(line)}" for line in lines])
    if left := left_of(traced):
        note(f"{left}; --json has all")


def _commands(found: Found, statuses: dict[str, CompressionStatus], session: str) -> list[str]:
    """Return the commands that show the entry, and that restore it to the window; none if it is active."""
    if found.status.state == "active":
        return []
    piped = session == STDIN
    file, command = options.named(session, options.chosen_session()), options.own_command()
    # An entry from before a clear has only its id.
    place = found.entry.seq if found.undo else found.entry.id
    lines = [f"read:    {command} show {file} --entry {place}"]
    if found.undo:
        outer = " --outer" if len(found.undo) > 1 else ""
        target = "-o FILE" if piped else "--in-place"
        wanted = statuses[found.undo[-1]].seq
        lines.append(f"restore: {command} undo {file} {wanted}{outer} {target}")
    return lines
