"""What became of a text, in lines for people: `memman why` and the MCP server print them."""

from __future__ import annotations

from itertools import groupby

from memman.entries import Entry
from memman.explain.history import CompressionStatus, LogHistory
from memman_cli.explain import Found, Remnant, Trace
from memman_cli.output import harmless
from memman_cli.words import entries_of, first_line, plural, speaker

MOST_SHOWN, MOST_GROUPS = 4, 5  # entries of one group, and groups
_LINE = 72  # characters of a value
_BEFORE, _AROUND = 24, 90  # characters of an excerpt: before the text, and in all


def lines_of_trace(traced: Trace, history: LogHistory) -> list[str]:
    """Return the lines that `why` prints of a trace, without its commands."""
    statuses = statuses_of(history)
    lines = head_of(traced)
    for found in groups_of(traced)[:MOST_GROUPS]:
        lines += ["", *(excerpt_of(each) for each in found[:MOST_SHOWN])]
        lines += [f"  {harmless(line)}" for line in group_lines(found, statuses)]
    return [*lines, *filter(None, [left_of(traced)])]


def head_of(traced: Trace) -> list[str]:
    """Return how many entries have the text, and its places in the window."""
    added = entries_of(len(traced.found)) if traced.found else "no added entry"
    return [f'"{first_line(traced.text)}" is in {added}', _window_line(traced.survives)]


def groups_of(traced: Trace) -> list[list[Found]]:
    """Return neighbouring entries together if the same compressions replaced them."""
    grouped = groupby(traced.found, lambda each: (each.status.state, each.replaced_by))
    return [list(group) for _, group in grouped]


def left_of(traced: Trace) -> str:
    """Return the number of entries in further groups, "" for none."""
    left = sum(len(found) for found in groups_of(traced)[MOST_GROUPS:])
    return f"and {plural(left, 'more entry', 'more entries')}" if left else ""


def _window_line(survives: tuple[Remnant, ...]) -> str:
    """Return the places of the text in the window."""
    if not survives:
        return "in the window: nowhere, the model does not see it"
    places = [_remnant(each) for each in survives[:MOST_SHOWN]]
    more = len(survives) - len(places)
    return "in the window: " + "; ".join(places) + (f"; and {more:,} more" if more else "")


def _remnant(each: Remnant) -> str:
    if each.where == "text":
        return f"{each.address} {each.type} has it"
    if not each.values:
        return f"kept in the outline since #{each.since}"
    kept = [first_line(value, _LINE) for value in each.values[:MOST_SHOWN]]
    more = len(each.values) - len(kept)
    rest = f" and {more:,} more" if more else ""
    return f"the outline keeps {', '.join(map(harmless, kept))}{rest}"


def excerpt_of(found: Found) -> str:
    """Return the line of an entry: its address, its speaker, and the words around the text."""
    entry: Entry = found.entry
    begin = max(0, found.start - _BEFORE)
    text = first_line(entry.text[begin:], _AROUND)
    return f"#{entry.seq} {speaker(entry)}: {'...' if begin else ''}{text}"


def group_lines(found: list[Found], statuses: dict[str, CompressionStatus]) -> list[str]:
    """Return the lines about entries with the same replacements."""
    first = found[0]
    more = len(found) - MOST_SHOWN
    lines = [f"and {plural(more, 'more entry', 'more entries')} like these"] if more > 0 else []
    if first.status.state == "active":
        return [*lines, "active: the model sees it", _sent_line(found)]
    return [*lines, *_replacement_lines(first, statuses), _sent_line(found)]


def _sent_line(found: list[Found]) -> str:
    """Return how often the text was sent to the model: the maximum of several entries."""
    most = max((each.sent for each in found), key=lambda sent: (sent.sent, sent.requests))
    if not most.requests:
        return "not sent yet: the model has not answered since"
    times = f"sent to the model in {most.sent:,} of {plural(most.requests, 'request')}"
    last = f", the last {most.last_at:%Y-%m-%d %H:%M}" if most.last_at else ""
    since = max(each.sent.requests_since for each in found)
    return times + last + (f"; since it left, in 0 of {since:,}" if since else "")


def _replacement_lines(found: Found, statuses: dict[str, CompressionStatus]) -> list[str]:
    if found.method is None:
        return ["cleared: a clear emptied the window, and cannot be undone"]
    first = statuses[found.replaced_by[0]]
    if found.method == "retract":
        return [f"{first.reason}, by record #{first.seq}, {first.at:%Y-%m-%d %H:%M}"]
    again = len(found.replaced_by) - 1
    times = f"replaced again {plural(again, 'time')}; " if again else ""
    outline = "the outline " if found.status.shown_by in statuses else ""
    change = f"{first.tokens_before:,} -> {first.tokens_after:,} tokens ({first.reason})"
    return [
        f"{found.method} by compression #{first.seq}, {first.at:%Y-%m-%d %H:%M}: {change}",
        f"{times}{outline}{found.status.shown_address or 'nothing'} replaces it in the window",
    ]


def statuses_of(history: LogHistory) -> dict[str, CompressionStatus]:
    """Return the compressions of a session by their ids."""
    return {status.compression_id: status for status in history.compression_statuses()}
