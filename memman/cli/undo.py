"""`memman undo`: a compression taken back, so that what it hid is in the window again."""

from __future__ import annotations

from collections.abc import Sequence

import click

from memman.cli.answers import UndoAnswer, answer
from memman.cli.compressions import compression_argument, found_compression
from memman.cli.display import counted
from memman.cli.options import (
    force_option,
    json_option,
    note,
    output_options,
    session_argument,
)
from memman.cli.problems import FindingError
from memman.cli.session_files import check_target, load, target_of, write
from memman.explain import LogHistory
from memman.results import SessionStats
from memman.stores import without_password

_MOST_LISTED = 12


@click.command()
@session_argument
@compression_argument
@click.option("--outer", is_flag=True, help="Undo first what later compressions folded it into.")
@output_options
@force_option
@json_option
def undo(
    session: str,
    compression: str | None,
    outer: bool,
    output: str | None,
    in_place: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Takes a compression of the session S back.

    What it replaced is in the window again. COMPRESSION is an id, a place in the log such as 120, or the id
    of a summary; the newest if none. The log keeps both, and what was undone can be compressed again.
    """
    to = target_of(session, output, in_place, as_json)
    opened = load(session, to=to)
    if to != session:
        check_target(to, opened.id, force)
    trail = opened.history
    undone = _order(trail, found_compression(trail, compression), outer)
    before = opened.memory.get_stats(opened.id)
    for name in undone:
        opened.memory.undo_compression(opened.id, name)
    write(opened, session, to, force)
    after = opened.memory.get_stats(opened.id)
    if as_json:
        told = without_password(to)
        answer(UndoAnswer(session_file=told, undone=tuple(undone), stats=after))
    else:
        note(_told(trail, undone))
        note(_change(before, after))


def _order(trail: LogHistory, name: str, outer: bool) -> list[str]:
    """What to undo, in this order. Raises `FindingError` where that is more than was asked for."""
    if name not in trail.history.compressions:
        return [name]  # undone or cleared away: the error of the library says which
    order = trail.history.undo_order(name)
    if len(order) > 1 and not outer:
        first, wanted = (trail.compressions[each][0] for each in (order[0], order[-1]))
        before = counted(len(order) - 1, "later one")
        raise FindingError(
            f"compression #{wanted} was folded by {before}: undo #{first} first, or add --outer to undo "
            "all of them"
        )
    return order


def _told(trail: LogHistory, undone: Sequence[str]) -> str:
    places = [f"#{trail.compressions[name][0]}" for name in undone]
    more = len(places) - _MOST_LISTED
    listed = ", ".join(places[:_MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")
    return f"undone: {listed}"


def _change(before: SessionStats, after: SessionStats) -> str:
    back = counted(before.compressed_entries - after.compressed_entries, "entry", "entries")
    change = f"{before.active_tokens:,} -> {after.active_tokens:,} tokens"
    return f"{back} in the window again, {change} (limit {after.max_tokens:,})"
