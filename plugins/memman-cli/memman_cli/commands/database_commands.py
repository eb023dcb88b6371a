"""`memman sessions` and `memman follow`: the sessions of a database, and their records as they arrive."""

from __future__ import annotations

from contextlib import suppress

import click
import msgspec

from memman import records
from memman.entries import transcript_line
from memman.protocols import SessionInfo
from memman.spend import dollars
from memman_cli import display, options
from memman_cli.answers import FollowAnswer, SessionsAnswer, write_answer, write_answer_line
from memman_cli.databases import check_database, existing_database, no_session_with
from memman_cli.errors import FindingError, on_one_line
from memman_cli.output import note, say
from memman_cli.words import entries_of, plural

_HEADINGS = (
    "session", "created (UTC)", "last active", ">entries", ">tokens", "metadata", "first message",
)  # fmt: skip
_SPARE = ("metadata", "created (UTC)", "session")  # narrowed in a narrow terminal, in this order
_MOST_CHARS = 160  # of a record's line


@click.command()
@click.argument("database", metavar="DB", type=options.FILE)
@click.option(
    "--prefix", metavar="TEXT", default="", help="Only sessions whose ids begin with TEXT."
)
@options.json
def sessions(database: str, prefix: str, as_json: bool) -> None:
    """List the sessions of the database DB, oldest first."""
    check_database(database, "`memman stats S` shows a session file")
    memory, _ = existing_database(database)
    found, spend = memory.list_sessions(prefix=prefix), memory.get_spend(prefix=prefix)
    if as_json:
        write_answer(SessionsAnswer(sessions=tuple(found), spend=spend))
    elif found:
        rows = [display.Row(_cells(each)) for each in found]
        display.print_table(display.open_console(), _HEADINGS, rows, _SPARE)
    if prefix and not found:
        raise FindingError(no_session_with(prefix))
    if not as_json:
        entries = entries_of(sum(each.entries for each in found))
        tokens = plural(sum(each.tokens for each in found), "token")
        paid = "" if spend is None else f", {dollars(spend.total)} spent"
        note(f"{plural(len(found), 'session')}, {entries}, {tokens}{paid}")


def _cells(info: SessionInfo) -> tuple[str, ...]:
    return (
        info.session_id,
        f"{info.created_at:%Y-%m-%d %H:%M}",
        f"{info.last_active_at:%Y-%m-%d %H:%M}",
        f"{info.entries:,}",
        f"{info.tokens:,}",
        msgspec.json.encode(info.metadata).decode() if info.metadata else "",
        info.first_line,
    )


@click.command()
@click.argument("database", metavar="DB", type=options.FILE)
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


def _line(record: records.Record) -> str:
    match record:
        case records.Opened():
            return f"[session opened{_copied_from(record.forked_from)}]"
        case records.Added(entry):
            return transcript_line(entry, entry.text)
        case records.Compressed():
            return _compression(record)
        case records.Undone():
            return f"[compression {record.compression_id} undone]"
        case records.Pinned():
            return f"[entry {record.entry_id} {'pinned' if record.on else 'unpinned'}]"
        case records.Deleted():
            return f"[deleted: {', '.join(record.ids)}]"
        case records.Cleared():
            return "[cleared]"
        case records.Configured():
            return f"[configured: {', '.join(record.changes)}]"
        case records.Described():
            return f"[metadata: {', '.join(record.metadata) or 'none'}]"
    return f"[usage reported: {record.input_tokens:,} input tokens]"


def _copied_from(point: records.ForkPoint | None) -> str:
    return "" if point is None else f": a fork of {point.session_id} up to #{point.seq}"


def _compression(record: records.Compressed) -> str:
    if retracted := records.ids_retracted_by(record):
        return f"[{record.reason}: {', '.join(retracted)}]"
    replaced = entries_of(len(records.ids_moved_by(record)))
    return f"[compressed: {replaced}, {record.tokens_before:,} to {record.tokens_after:,} tokens]"
