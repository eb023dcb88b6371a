"""`memman search`: the entries of one or all sessions that have the words of a query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

import click

from memman.entries import ENTRY_TYPES
from memman.results import EntryState, Hit
from memman.search import matches_in, terms_of
from memman_cli import display, options
from memman_cli.answers import SearchAnswer, write_answer
from memman_cli.databases import existing_database, no_session_with, session_of_database
from memman_cli.errors import FindingError, UnusableError
from memman_cli.files import STDIN, is_database
from memman_cli.output import harmless, note
from memman_cli.sessions import load
from memman_cli.words import plural, speaker

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_STATES = tuple(state for state in get_args(EntryState) if state != "deleted")
_MATCH = "bold yellow"


@click.command()
@options.sessions
@click.argument("words", metavar="QUERY...", nargs=-1, required=True)
@click.option(
    "--type",
    "types",
    type=click.Choice(ENTRY_TYPES),
    multiple=True,
    help="Only entries of this type.",
)
@click.option(
    "--tool", "tools", metavar="NAME", multiple=True, help="Only calls and results of this tool."
)
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES),
    multiple=True,
    help="Only entries in this state.",
)
@click.option("--all", "everything", is_flag=True, help="Cleared and retracted entries, too.")
@click.option(
    "--since",
    type=options.moment,
    metavar="TIME",
    help="Only entries from this time on: 2026-01-31, or 7d ago.",
)
@click.option("--until", type=options.moment, metavar="TIME", help="Only entries before this time.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="HITS",
    help="The most hits; default: 10, or as many as fit --budget.",
)
@options.budget("The most tokens of the entries; they may be followed by the next ones.")
@options.json
def search(
    session: str,
    words: tuple[str, ...],
    types: tuple[str, ...],
    tools: tuple[str, ...],
    states: tuple[str, ...],
    everything: bool,
    since: datetime | None,
    until: datetime | None,
    limit: int | None,
    budget: int | None,
    as_json: bool,
) -> None:
    """Find the entries with the words of QUERY in the session S, a log, or all sessions of a database.

    Entries that were compressed are found, too. Words, values, paths and error messages need no quotes, and
    nothing in QUERY is an operator. --type, --tool and --state may be repeated.
    """
    if everything and states:
        raise UnusableError("--all and --state contradict each other: give one of the two")
    query = " ".join(words)
    hits = _found(
        session,
        query,
        types=types,
        tools=tools,
        states=_STATES if everything else states or None,
        since=since,
        until=until,
        limit=limit,
        budget=budget,
    )
    if as_json:
        write_answer(SearchAnswer(query=query, hits=tuple(hits)))
    elif hits:
        _show(hits, terms_of(query), session)
    if not hits:
        more = "" if everything or states else "; --all searches cleared and retracted ones, too"
        raise FindingError(f"no entry found for {query!r}{more}")


def _found(path: str, query: str, **filters: Any) -> list[Hit]:
    """Return the hits in a database's sessions, or in the session of a file."""
    if not _is_database(path):
        opened = load(path)
        return opened.memory.search(opened.id, query, **filters)
    sessions = options.chosen_session() or "*"
    several = sessions.endswith("*")
    memory = (existing_database if several else session_of_database)(path)[0]
    with display.progress("Searching"):  # the first search of a database makes its index
        hits = memory.search(None, query, sessions=sessions, **filters)
    prefix = sessions[:-1] if several else ""
    if not hits and prefix and not memory.list_sessions(prefix=prefix):
        raise FindingError(no_session_with(prefix))
    return hits


def _is_database(path: str) -> bool:
    return path != STDIN and is_database(path)


# ---------------------------------------------------------------- for people


def _show(hits: Sequence[Hit], terms: Sequence[str], session: str) -> None:
    console = display.open_console()
    sessions = {hit.session_id for hit in hits}
    chosen = options.chosen_session()
    several = _is_database(session) and (chosen is None or chosen.endswith("*"))
    for number, hit in enumerate(hits):
        display.print_lines(console, ["", _head(hit, several)] if number else [_head(hit, several)])
        _print_snippet(console, _emphasised(hit.snippet, terms))
    found = plural(sum(not hit.neighbour for hit in hits), "hit")
    tokens = plural(sum(hit.entry.token_count.tokens for hit in hits), "token")
    note(f"{found} in {plural(len(sessions), 'session')}, {tokens}")
    first = hits[0]
    file = options.named(session, first.session_id if several else chosen)
    note(f"read: {options.own_command()} show {file} --entry {first.address.removeprefix('#')}")


def _head(hit: Hit, several: bool) -> Text:
    """Return the address, session, speaker, time and state of a hit."""
    from rich.text import Text

    entry = hit.entry
    state = f"{hit.state} by {hit.shown_by}" if hit.shown_by else hit.state
    facts = [
        *([hit.session_id] if several else []),
        speaker(entry),
        f"{entry.timestamp:%Y-%m-%d %H:%M}",
        plural(entry.token_count.tokens, "token"),
        state,
        *(["follows"] if hit.neighbour else []),
    ]
    return Text.assemble((hit.address, "bold"), "  ", "  ".join(map(harmless, facts)))


def _emphasised(snippet: str, terms: Sequence[str]) -> Text:
    from rich.text import Text

    shown = harmless(snippet)
    text = Text(shown)
    for start, end in matches_in(shown, terms):
        text.stylize(_MATCH, start, end)
    return text


def _print_snippet(console: Console, text: Text) -> None:
    """Print a snippet, wrapped on a terminal and on one line for a program."""
    from rich.padding import Padding

    if console.is_terminal:
        console.print(Padding(text, (0, 0, 0, 2), expand=False))
    else:
        display.print_lines(console, [f"  {text.plain}"])
