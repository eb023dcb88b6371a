"""Comparison of the originals of a compression with their replacements, and of their exact values."""

from __future__ import annotations

from datetime import datetime

import msgspec

from memman.compression.words import exact_values
from memman.entries import Entry
from memman.explain.history import CompressionState, LogHistory
from memman.log import History, speaker_of
from memman.records import ReplacementMethod
from memman_cli.explain.survival import SurvivalFold, SurvivingValues
from memman_cli.explain.values import KeptIn


class ComparedValue(msgspec.Struct, frozen=True, kw_only=True):
    """An exact value of the originals (a path, an identifier, a number, a date, an address).

    `seq` is the last original that contains it. `kept` is its place in the window after the compression:
    the text of the replacement, the outline, or elsewhere. None: it was lost.
    """

    value: str
    seq: int
    kept: KeptIn | None


class ComparedReplacement(msgspec.Struct, frozen=True, kw_only=True):
    """Originals and their replacement.

    `originals` are added entries, including those behind earlier replacements in the run. `tokens_before`
    are the run's tokens in the window. `entry` is None if they were dropped; of outlined ones, of all runs
    together, it is the outline.
    """

    method: ReplacementMethod
    originals: tuple[Entry, ...]
    entry: Entry | None
    tokens_before: int
    tokens_after: int
    values: tuple[ComparedValue, ...]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A compression, replacement by replacement.

    `values` is the number of different exact values in the originals, `values_kept` the number of those
    that the window had after it, and `survival` their share (1.0 without values). `outline` is the outline
    that it wrote, if any.
    """

    compression_id: str
    seq: int
    at: datetime
    state: CompressionState
    reason: str
    tokens_before: int
    tokens_after: int
    values: int
    values_kept: int
    survival: float
    outline: Entry | None
    replacements: tuple[ComparedReplacement, ...]


def compare(log: LogHistory, compression_id: str) -> Comparison:
    """Return the comparison of a compression of the log, in force or not."""
    seq, record = log.compressions[compression_id]
    fold = SurvivalFold(log)
    for place, earlier in log.before(seq):
        fold.history.apply(place, earlier)
    survival = fold.compress(seq, record)
    outline = fold.history.state.window.shown(compression_id)
    return Comparison(
        compression_id=compression_id,
        seq=seq,
        at=record.at,
        state=log.state_of(compression_id),
        reason=record.reason,
        tokens_before=record.tokens_before,
        tokens_after=record.tokens_after,
        values=survival.values,
        values_kept=survival.kept,
        survival=survival.kept / survival.values if survival.values else 1.0,
        outline=outline.entry if outline else None,
        replacements=tuple(
            _compared(each, fold.history, compression_id) for each in survival.replacements
        ),
    )


def _compared(
    survived: SurvivingValues, history: History, compression_id: str
) -> ComparedReplacement:
    retracted = [
        entry for entry in history.retracted_by(compression_id) if entry.id in survived.ids
    ]
    originals = tuple(retracted or history.originals(survived.ids))
    last = {value: entry.seq for entry in originals for value in exact_values(entry.text)}
    name = compression_id if survived.item.method == "outline" else speaker_of(survived.item)
    active = history.state.window.shown(name or "")
    entry = None if active is None else active.entry
    return ComparedReplacement(
        method=survived.item.method,
        originals=originals,
        entry=entry,
        tokens_before=survived.tokens_before,
        tokens_after=entry.token_count.tokens if entry is not None else 0,
        values=tuple(
            ComparedValue(value=value, seq=seq, kept=survived.kept.get(value))
            for value, seq in last.items()
        ),
    )
