"""`memman undo`: a compression taken back, so that what it hid is in the window again."""

from __future__ import annotations

import click

from memman.cli.compressions import found_compression, told
from memman.cli.display import counted
from memman.cli.options import (
    answer,
    force_option,
    json_option,
    note,
    output_options,
    session_argument,
)
from memman.cli.problems import FindingError
from memman.cli.session_files import Session, check_target, load, save, target_of
from memman.results import SessionStats


@click.command()
@session_argument
@click.argument("compressions", metavar="[COMPRESSION]...", nargs=-1)
@output_options
@force_option
@json_option
def undo(
    session: str,
    compressions: tuple[str, ...],
    output: str | None,
    in_place: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Takes compressions of the session S back, in the order given; the newest if none.

    COMPRESSION is an id, a place in the log such as 120, or the id of a summary. What a later compression
    folded into its own comes after that one. Nothing is lost: what was undone can be compressed again.
    """
    to = target_of(session, output, in_place, as_json)
    opened = load(session)
    check_target(to, opened.id, force)
    before = opened.memory.get_stats(opened.id)
    undone = [_undone(opened, wanted) for wanted in compressions or (None,)]
    save(opened.state, to, force)
    after = opened.memory.get_stats(opened.id)
    if as_json:
        answer("undo", session_file=to, undone=undone, stats=after)
        return
    fates = {fate.compression_id: fate for fate in opened.trail.compression_fates()}
    for name in undone:
        note(told(fates[name]))
    note(_change(before, after))


def _undone(opened: Session, wanted: str | None) -> str:
    trail = opened.trail
    name = found_compression(trail, wanted)
    if name in trail.history.compressions:
        order = [str(trail.compressions[each][0]) for each in trail.history.undo_order(name)]
        if len(order) > 1:
            raise FindingError(
                f"compression #{order[-1]} was folded by a later one: undo that first. All in their order: "
                f"{' '.join(order)}"
            )
    return opened.memory.undo_compression(opened.id, name)


def _change(before: SessionStats, after: SessionStats) -> str:
    back = counted(after.active_entries - before.active_entries, "entry", "entries")
    change = f"{before.active_tokens:,} -> {after.active_tokens:,} tokens"
    return f"{back} in the window again, {change} (limit {after.max_tokens:,})"
