"""`memman why`: what became of a text, and how to have it back."""

from __future__ import annotations

import shlex
from itertools import groupby

import click

from memman.cli.answers import WhyAnswer, answer
from memman.cli.databases import chosen
from memman.cli.display import (
    console,
    counted,
    cut_lines,
    first_line,
    print_lines,
    speaker,
)
from memman.cli.lines import STDIN
from memman.cli.options import (
    json_option,
    model_option,
    note,
    own_command,
    session_argument,
    show_budget_option,
)
from memman.cli.output import harmless
from memman.cli.problems import FindingError
from memman.cli.session_files import load
from memman.explain import CompressionStatus, Found, Remnant, Trace, trace

_MOST_SHOWN, _MOST_GROUPS = 4, 5  # entries of one fate, and fates
_BEFORE, _AROUND = 24, 90  # characters of an entry's text: before what was looked for, and in all


@click.command()
@session_argument
@click.argument("text", metavar="TEXT")
@model_option
@show_budget_option
@json_option
def why(session: str, text: str, model: str | None, budget: int | None, as_json: bool) -> None:
    """Says what became of TEXT in the session S, or in a log.

    In which entries it stood, what replaced them, whether it still stands in the window (or an exact value
    of it in a summary's ledger), and which command brings it back. TEXT may be the address of an entry,
    such as #12 or #556.2.
    """
    opened = load(session, model, budget)
    history = opened.history
    traced = trace(history, text)
    if as_json:
        answer(WhyAnswer(session_id=opened.id, settings=opened.effective, trace=traced))
    elif traced.found or traced.survives:
        statuses = {status.compression_id: status for status in history.compression_statuses()}
        _show(traced, statuses, session)
        note(str(opened.effective))
    if not traced.found and not traced.survives:
        entries = counted(len(history.entries), "entry", "entries")
        raise FindingError(f"{text!r} never stood in this session: none of {entries} has it")


def _show(traced: Trace, statuses: dict[str, CompressionStatus], session: str) -> None:
    shown_on = console()
    stood = (
        counted(len(traced.found), "entry", "entries")
        if traced.found
        else "no entry that was added"
    )
    print_lines(
        shown_on, [f'"{first_line(traced.text)}" stood in {stood}', *_window(traced.survives)]
    )
    groups = groupby(traced.found, lambda each: (each.status.state, each.replaced_by))
    shares = [list(group) for _, group in groups]
    for found in shares[:_MOST_GROUPS]:
        cut_lines(shown_on, ["", *(_excerpt(each) for each in found[:_MOST_SHOWN])])
        print_lines(shown_on, [f"  {harmless(line)}" for line in _fate(found, statuses, session)])
    left = sum(len(found) for found in shares[_MOST_GROUPS:])
    if left:
        note(f"and {counted(left, 'more entry', 'more entries')}, which --json has too")


def _window(survives: tuple[Remnant, ...]) -> list[str]:
    """Where the text is in the window, or that it is nowhere."""
    if not survives:
        return ["in the window: nowhere, the model does not see it"]
    told = [_remnant(each) for each in survives[:_MOST_SHOWN]]
    more = len(survives) - len(told)
    return ["in the window: " + "; ".join(told) + (f"; and {more:,} more" if more else "")]


def _remnant(each: Remnant) -> str:
    if each.where == "text":
        return f"{each.address} {each.type} has it"
    return f"{each.address} {each.type} has {', '.join(map(harmless, each.values))} in its ledger"


def _excerpt(found: Found) -> str:
    entry = found.entry
    begin = max(0, found.start - _BEFORE)
    text = first_line(entry.text[begin:], _AROUND)
    return f"#{entry.seq} {speaker(entry)}: {'...' if begin else ''}{text}"


def _fate(found: list[Found], statuses: dict[str, CompressionStatus], session: str) -> list[str]:
    """What became of entries that share it, and how to have the first of them back."""
    one = found[0]
    more = len(found) - _MOST_SHOWN
    lines = [f"and {counted(more, 'more entry', 'more entries')} like these"] if more > 0 else []
    sent = _sent(found)
    if one.status.state == "active":
        return [*lines, "active: the model sees it", *sent]
    return [*lines, *_replaced(one, statuses), *sent, *_commands(one, statuses, session)]


def _sent(found: list[Found]) -> list[str]:
    """How often the model had what was found; of several entries the one that it had most often."""
    most = max((each.sent for each in found), key=lambda sent: (sent.sent, sent.requests))
    if not most.requests:
        return ["not sent yet: the model has not answered since"]
    times = f"sent to the model in {most.sent:,} of {counted(most.requests, 'request')}"
    last = f", the last {most.last_at:%Y-%m-%d %H:%M}" if most.last_at else ""
    since = max(each.sent.requests_since for each in found)
    return [times + last + (f"; since it left, in 0 of {since:,}" if since else "")]


def _replaced(one: Found, statuses: dict[str, CompressionStatus]) -> list[str]:
    if one.method is None:
        return ["cleared away: a clear emptied the window, and is not undone"]
    again = len(one.replaced_by) - 1
    times = f"replaced again {counted(again, 'time')}; " if again else ""
    now = one.status.shown_address or "nothing"
    first = statuses[one.replaced_by[0]]
    change = f"{first.tokens_before:,} -> {first.tokens_after:,} tokens ({first.reason})"
    return [
        f"{one.method} by compression #{first.seq}, {first.at:%Y-%m-%d %H:%M}: {change}",
        f"{times}{now} stands for it in the window",
    ]


def _commands(one: Found, statuses: dict[str, CompressionStatus], session: str) -> list[str]:
    """What to run to read the entry, and to have it in the window again."""
    piped = session == STDIN
    file, command = "S" if piped else shlex.quote(session), own_command()
    if (named := chosen()) is not None:
        file += f" --session {shlex.quote(named)}"
    place = one.entry.seq if one.undo else one.entry.id  # of an earlier era only the id is known
    lines = [f"read:    {command} show {file} --entry {place}"]
    if one.undo:
        outer = " --outer" if len(one.undo) > 1 else ""
        where = "-o FILE" if piped else "--in-place"
        wanted = statuses[one.undo[-1]].seq
        lines.append(f"restore: {command} undo {file} {wanted}{outer} {where}")
    return lines
