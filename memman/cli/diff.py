"""`memman diff`: what a compression replaced beside what stands for it, and what that lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from memman.cli.answers import DiffAnswer, answer
from memman.cli.compressions import compression_argument, found_compression, told
from memman.cli.display import (
    Row,
    beside,
    console,
    counted,
    first_line,
    print_lines,
    speaker,
    table,
)
from memman.cli.options import json_option, model_option, note, ratio, session_argument
from memman.cli.output import harmless
from memman.cli.problems import FindingError
from memman.cli.session_files import load
from memman.entries import Entry
from memman.explain import (
    ComparedReplacement,
    ComparedValue,
    Comparison,
    KeptIn,
    LogHistory,
    compare,
)

if TYPE_CHECKING:
    from rich.console import Console

_SUMMARIES = ("summary", "digest")
_EXCERPT, _LINE = 240, 72  # characters of an original that stands alone, and of one of many
_MOST_LOST, _MOST_LISTED = 6, 12
_NO_TEXT = "(no text)"
_WHERE: dict[KeptIn | None, str] = {
    "replacement": "in the replacement",
    "ledger": "in its ledger",
    "elsewhere": "elsewhere in the window",
    None: "lost",
}


@click.command()
@session_argument
@compression_argument
@model_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="ORIGINALS",
    help="Show this many originals of each replacement; all if none.",
)
@click.option(
    "--values", "by_value", is_flag=True, help="Each exact value and where it is, no texts."
)
@click.option(
    "--fail-under", type=ratio, metavar="RATIO", help="Exit with 1 if fewer values are kept."
)
@json_option
def diff(
    session: str,
    compression: str | None,
    model: str | None,
    limit: int | None,
    by_value: bool,
    fail_under: float | None,
    as_json: bool,
) -> None:
    """Lays what a compression replaced beside what stands for it.

    COMPRESSION is an id, a place in the log such as 120, or an entry that it made; the newest if none.
    Exact values are paths, identifiers, numbers, dates and addresses; kept is what the window still had.
    """
    opened = load(session, model)
    history = opened.history
    compared = compare(history, found_compression(history, compression))
    if as_json:
        answer(DiffAnswer(session_id=opened.id, comparison=compared))
    else:
        _show(compared, history, by_value, limit)
    if fail_under is not None and compared.survival < fail_under:
        raise FindingError(
            f"{_share(compared)} of the exact values were kept, under {100 * fail_under:g} %"
        )


def _show(compared: Comparison, history: LogHistory, by_value: bool, limit: int | None) -> None:
    shown_on = console()
    statuses = {status.compression_id: status for status in history.compression_statuses()}
    print_lines(shown_on, [f"compression {told(statuses[compared.compression_id])}", ""])
    if by_value:
        _show_values(compared, shown_on)
    else:
        pairs = [_pair(each, limit) for each in compared.replacements]
        beside(shown_on, "original", "replacement", pairs)
        print_lines(shown_on, ["", *_balance(compared)])
    others = [
        f"#{status.seq}" for name, status in statuses.items() if name != compared.compression_id
    ]
    if others:
        earlier = len(others) - _MOST_LISTED
        more = f"{earlier:,} more and " if earlier > 0 else ""
        note(f"other compressions: {more}{', '.join(others[-_MOST_LISTED:])}")


def _pair(compared: ComparedReplacement, limit: int | None) -> tuple[str, str]:
    """An original, or many, and what stands for them."""
    many = len(compared.originals) > 1
    before = [_original(each, _LINE if many else _EXCERPT) for each in compared.originals[:limit]]
    left = len(compared.originals) - len(before)
    if left:
        before.append(f"and {counted(left, 'more entry', 'more entries')}")
    before.insert(0, _cost(compared))
    entry = compared.entry
    if entry is None:
        return "\n".join(before), "dropped: nothing stands for it"
    whole = compared.method in _SUMMARIES
    after = counted(compared.tokens_after, "token")
    text = (entry.text if whole else first_line(entry.text, _EXCERPT)) or _NO_TEXT
    return "\n".join(before), f"{compared.method} {entry.address}, {after}\n{text}"


def _cost(compared: ComparedReplacement) -> str:
    """What the originals cost, and what of them the window still had."""
    tokens = sum(entry.token_count.tokens for entry in compared.originals)
    entries = counted(len(compared.originals), "entry", "entries")
    left = "" if tokens == compared.tokens_before else f", {compared.tokens_before:,} in the window"
    return f"{entries}, {counted(tokens, 'token')}{left}"


def _original(entry: Entry, characters: int) -> str:
    return f"#{entry.seq} {speaker(entry)}: {first_line(entry.text, characters) or _NO_TEXT}"


def _balance(compared: Comparison) -> list[str]:
    """How many exact values there are, where they are, and the first of those that are nowhere."""
    if not compared.values:
        return ["exact values: the originals have none"]
    lost = _lost(compared)
    lines = [
        f"exact values: {compared.values_kept:,} of {compared.values:,} kept "
        f"({_share(compared)}): {_places(compared)}"
    ]
    if lost:
        named = ", ".join(f"{harmless(each.value)} (#{each.seq})" for each in lost[:_MOST_LOST])
        more = len(lost) - _MOST_LOST
        lines.append(f"lost: {named}" + (f", and {more:,} more (--values)" if more > 0 else ""))
    return lines


def _distinct(compared: Comparison) -> list[ComparedValue]:
    """Each value once, as the replacement has it that kept it best."""
    found: dict[str, ComparedValue] = {}
    rank = list(_WHERE)
    for replacement in compared.replacements:
        for each in replacement.values:
            known = found.get(each.value)
            if known is None or rank.index(each.kept) < rank.index(known.kept):
                found[each.value] = each
    return list(found.values())


def _lost(compared: Comparison) -> list[ComparedValue]:
    return [each for each in _distinct(compared) if each.kept is None]


def _places(compared: Comparison) -> str:
    counts = Counter(each.kept for each in _distinct(compared))
    return ", ".join(f"{counts[kept]:,} {where}" for kept, where in _WHERE.items() if counts[kept])


def _share(compared: Comparison) -> str:
    return f"{100 * compared.survival:.1f} %"


def _show_values(compared: Comparison, shown_on: Console) -> None:
    rows: Sequence[Row] = [
        Row((f"#{each.seq}", _WHERE[each.kept], each.value), "" if each.kept else "red")
        for each in sorted(_distinct(compared), key=lambda each: each.seq)
    ]
    if rows:
        table(shown_on, (">entry", "kept", "value"), rows)
    print_lines(shown_on, ["", *_balance(compared)[:1]] if rows else _balance(compared))
