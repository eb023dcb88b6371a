"""`memman show`: the entries of a session as a table, or one of them in full."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

import click

from memman.cli.answers import EntryAnswer, ShowAnswer, answer
from memman.cli.display import Row, arrow, console, counted, first_line, table
from memman.cli.options import json_option, model_option, note, session_argument
from memman.cli.output import write_data
from memman.cli.problems import FindingError
from memman.cli.session_files import Session, load
from memman.entries import ENTRY_TYPES, Entry, Role, parse_address

_ROOMY = 80  # columns; below it the state of an entry is shortened
_HEADINGS = (">seq", "type", "role/name", ">tokens", "state", "text")


@click.command()
@session_argument
@model_option
@click.option("--type", "kind", type=click.Choice(ENTRY_TYPES), help="Only entries of this type.")
@click.option("--role", type=click.Choice(get_args(Role)), help="Only entries of this role.")
@click.option("--grep", metavar="REGEX", help="Only entries whose text matches.")
@click.option("--active", is_flag=True, help="The window as the model sees it, summaries included.")
@click.option(
    "--entry", "wanted", metavar="ID|ADDRESS", help="One entry with its full text, as 12 or 556.2."
)
@json_option
def show(
    session: str,
    model: str | None,
    kind: str | None,
    role: str | None,
    grep: str | None,
    active: bool,
    wanted: str | None,
    as_json: bool,
) -> None:
    """Lists the entries of the session S, or of a log.

    They are all that was added, compressed or not; with --active what the model sees.
    """
    pattern = _pattern(grep)
    opened = load(session, model)
    if wanted is not None:
        _show_one(_found(opened, wanted), opened, as_json)
        return
    memory = opened.memory
    entries = memory.get_active_entries(opened.id) if active else memory.get_entries(opened.id)
    chosen = [
        entry
        for entry in entries
        if kind in (None, entry.type)
        and role in (None, entry.role)
        and (pattern is None or pattern.search(entry.text))
    ]
    if as_json:
        answer(ShowAnswer(session_id=opened.id, entries=tuple(chosen)))
    elif chosen:
        shown_on = console()
        to = f"{arrow(shown_on)} " if shown_on.width < _ROOMY else ""
        rows = [_row(entry, opened, to) for entry in chosen]
        table(shown_on, _HEADINGS, rows, spare=("role/name", "type"))
        every = counted(len(entries), "entry", "entries")
        note(f"{len(chosen):,} of {every}, {counted(_tokens(chosen), 'token')}")
    if not chosen:
        raise FindingError(f"none of {counted(len(entries), 'entry', 'entries')} matches")


def _pattern(grep: str | None) -> re.Pattern[str] | None:
    try:
        return None if grep is None else re.compile(grep)
    except re.error as error:
        raise click.BadParameter(f"{grep!r} is no regular expression: {error}") from None


def _tokens(entries: Sequence[Entry]) -> int:
    return sum(entry.token_count.tokens for entry in entries)


def _found(opened: Session, wanted: str) -> Entry:
    """The entry of an id, or of an address such as #12 or 556.2."""
    address = f"#{wanted.removeprefix('#')}"
    return opened.memory.get_entry(opened.id, address if parse_address(address) else wanted)


def _show_one(entry: Entry, opened: Session, as_json: bool) -> None:
    if as_json:
        answer(EntryAnswer(session_id=opened.id, entry=entry))
        return
    state, name = _state(entry, opened.places), entry.name or entry.role
    tokens = counted(entry.token_count.tokens, "token")
    note(f"{entry.address} {entry.type} {name}, {tokens}, {state}, id {entry.id}")
    write_data(f"{entry.text}\n")


def _row(entry: Entry, opened: Session, to: str) -> Row:
    cells = (
        entry.address,
        entry.type,
        entry.name or entry.role,
        f"{entry.token_count.tokens:,}",
        _state(entry, opened.places, to),
        first_line(entry.text),
    )
    return Row(cells, "dim" if entry.compressed else "")


def _state(entry: Entry, places: dict[str, Entry], to: str = "") -> str:
    """Where an entry is now: in the window, or behind what stands for it.

    `to` is said instead of the kind of what stands for it, where there is no room for more.
    """
    if not entry.compressed:
        return "pinned" if entry.pinned else "active"
    stand_in = places.get(entry.summary_id or "")
    if stand_in is None:
        return "dropped"
    kind = "summary" if stand_in.type == "summary" else "stub"
    return f"{to or f'in {kind} '}{stand_in.address}"
