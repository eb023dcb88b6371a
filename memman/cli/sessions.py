"""`memman sessions`: what is in a database."""

from __future__ import annotations

import click

from memman.cli.answers import SessionsAnswer, answer
from memman.cli.databases import check_database, sessions_in
from memman.cli.display import Row, console, counted, table
from memman.cli.options import json_option, note


@click.command()
@click.argument("database", metavar="DB")
@json_option
def sessions(database: str, as_json: bool) -> None:
    """Lists the sessions of the database DB."""
    check_database(database, "`memman stats S` shows a session file")
    found = sessions_in(database)
    if as_json:
        answer(SessionsAnswer(sessions=tuple(found)))
        return
    rows = [
        Row((f"{each.head:,}", f"{each.entries:,}", f"{each.tokens:,}", each.session_id))
        for each in found
    ]
    if rows:
        table(console(), (">records", ">entries", ">tokens", "session"), rows)
    note(counted(len(found), "session"))
