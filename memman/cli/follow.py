"""`memman follow`: what is recorded in a database, as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import click

from memman.cli.answers import FollowAnswer, answer_line
from memman.cli.databases import check_database, there
from memman.cli.display import counted
from memman.cli.options import json_option
from memman.cli.output import say
from memman.entries import transcript_line
from memman.protocols import FeedItem
from memman.records import (
    Added,
    Cleared,
    Compressed,
    Configured,
    Deleted,
    Opened,
    Pinned,
    Record,
    Undone,
)

_MOST_CHARS = 160  # of a text that is shown


@click.command()
@click.argument("database", metavar="DB")
@click.option("--session", "session_id", metavar="ID", help="Only this session; all if none.")
@click.option(
    "--after",
    metavar="PLACE",
    default="",
    help="Begin behind this record: its number in the session, or without --session its cursor.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End after so long without a record; never if none.",
)
@json_option
def follow(
    database: str, session_id: str | None, after: str, timeout: float | None, as_json: bool
) -> None:
    """Shows each record of the database DB, those that are there and those that come, until Ctrl-C.

    With --json each is one JSON document on a line of its own.
    """
    check_database(database, "`memman show S` shows a session file")
    memory = there(database)
    items = memory.follow(session_id, after=after, timeout=timeout)
    with suppress(KeyboardInterrupt):  # which is how it ends
        _show(items, as_json)


def _show(items: Iterator[FeedItem], as_json: bool) -> None:
    for item in items:
        if as_json:
            answer_line(FollowAnswer(item=item))
        else:
            told = " ".join(_told(item.record).split())
            shown = told if len(told) <= _MOST_CHARS else f"{told[:_MOST_CHARS]}..."
            say(f"{item.session_id}  {item.seq:,}  {shown}")


def _told(record: Record) -> str:
    """A record in a line."""
    match record:
        case Opened():
            return "[session opened]"
        case Added(entry):
            return transcript_line(entry, entry.text)
        case Compressed():
            gone = counted(sum(len(item.ids) for item in record.replacements), "entry", "entries")
            tokens = f"{record.tokens_before:,} to {record.tokens_after:,} tokens"
            return f"[compressed: {gone}, {tokens}]"
        case Undone():
            return f"[compression {record.compression_id} undone]"
        case Pinned():
            return f"[entry {record.entry_id} {'pinned' if record.on else 'unpinned'}]"
        case Deleted():
            return f"[deleted: {', '.join(record.ids)}]"
        case Cleared():
            return "[cleared]"
        case Configured():
            return f"[configured: {', '.join(record.changes)}]"
    return f"[usage reported: {record.input_tokens:,} input tokens]"
