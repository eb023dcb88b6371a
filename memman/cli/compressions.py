"""A session's compressions, by the names that people have for them."""

from __future__ import annotations

import click

from memman.cli.display import counted
from memman.cli.output import harmless
from memman.cli.problems import FindingError
from memman.entries import parse_address
from memman.explain import CompressionStatus, LogHistory

_MOST_LISTED = 5

compression_argument = click.argument("compression", metavar="[COMPRESSION]", required=False)


def found_compression(trail: LogHistory, wanted: str | None) -> str:
    """The id of a compression: by its id, its place in the log, or an entry that it made.

    The entry is given by its id or by its address.

    The newest in force for None. Raises `FindingError` that names those there are.
    """
    if wanted is None:
        if not trail.history.compressions:
            raise FindingError(f"no compression is in force in this session{_there_are(trail)}")
        return trail.history.latest()
    seq, number = parse_address(f"#{wanted.removeprefix('#')}") or (0, 0)
    for name, (place, record) in trail.compressions.items():
        made = [item.entry.id for item in record.replacements if item.entry is not None]
        if wanted in (name, *made) or (place == seq and number <= len(record.replacements)):
            return name
    raise FindingError(f"no compression {wanted!r} is in this session{_there_are(trail)}")


def told(status: CompressionStatus) -> str:
    """A compression as one line."""
    state = "" if status.state == "in force" else f", {status.state}"
    return (
        f"#{status.seq}, {status.at:%Y-%m-%d %H:%M}: {status.tokens_before:,} -> {status.tokens_after:,} "
        f"tokens ({harmless(status.reason)}){state}"
    )


def _there_are(trail: LogHistory) -> str:
    statuses = trail.compression_statuses()
    if not statuses:
        return ": it was never compressed"
    newest = [f"#{one.seq} ({one.state})" for one in statuses[-_MOST_LISTED:]]
    some = (
        f"the newest of {counted(len(statuses), 'compression')}"
        if len(statuses) > len(newest)
        else "there"
    )
    return f"; {some} {'is' if len(newest) == 1 else 'are'} {', '.join(newest)}"
