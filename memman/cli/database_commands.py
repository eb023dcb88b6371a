"""`memman sessions` and `memman follow`: the sessions of a database, and their records as they arrive."""

from __future__ import annotations

from contextlib import suppress

import click

from memman.cli import display, options
from memman.cli.answers import FollowAnswer, SessionsAnswer, write_answer, write_answer_line
from memman.cli.databases import check_database, existing_database, sessions_in
from memman.cli.errors import on_one_line
from memman.cli.output import note, say
from memman.cli.words import entries_of, plural
from memman.entries import transcript_line
from memman.records import (
    Added,
    Cleared,
    Compressed,
    Configured,
    Deleted,
    ForkPoint,
    Opened,
    Pinned,
    Record,
    Undone,
)

_MOST_CHARS = 160  # of a record's line


@click.command()
@click.argument("database", metavar="DB")
@options.json
def sessions(database: str, as_json: bool) -> None:
    """List the sessions of the database DB."""
    check_database(database, "`memman stats S` shows a session file")
    found = sessions_in(database)
    if as_json:
        write_answer(SessionsAnswer(sessions=tuple(found)))
        return
    rows = [
        display.Row((f"{each.head:,}", f"{each.entries:,}", f"{each.tokens:,}", each.session_id))
        for each in found
    ]
    if rows:
        display.print_table(
            display.open_console(), (">records", ">entries", ">tokens", "session"), rows
        )
    note(plural(len(found), "session"))


@click.command()
@click.argument("database", metavar="DB")
@click.option("--session", "session_id", metavar="ID", help="Only this session; default: all.")
@click.option(
    "--after",
    metavar="PLACE",
    default="",
    help="Begin after this record: its number in the session, or without --session its cursor.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End after so long without a record; default: never.",
)
@options.json
def follow(
    database: str, session_id: str | None, after: str, timeout: float | None, as_json: bool
) -> None:
    """Show the records of the database DB as they arrive.

    Existing records come first; Ctrl-C ends the command. With --json each is one JSON document on a
    line of its own.
    """
    check_database(database, "`memman show S` shows a session file")
    memory, _ = existing_database(database)
    with suppress(KeyboardInterrupt):  # the usual end
        for item in memory.follow(session_id, after=after, timeout=timeout):
            if as_json:
                write_answer_line(FollowAnswer(item=item))
                continue
            line = on_one_line(_line(item.record))
            cut = line if len(line) <= _MOST_CHARS else f"{line[:_MOST_CHARS]}..."
            say(f"{item.session_id}  {item.seq:,}  {cut}")


def _line(record: Record) -> str:
    match record:
        case Opened(forked_from=ForkPoint(session_id, seq)):
            return f"[session opened: a fork of {session_id} up to #{seq}]"
        case Opened():
            return "[session opened]"
        case Added(entry):
            return transcript_line(entry, entry.text)
        case Compressed():
            replaced = entries_of(sum(len(item.ids) for item in record.replacements))
            return f"[compressed: {replaced}, {record.tokens_before:,} to {record.tokens_after:,} tokens]"
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
