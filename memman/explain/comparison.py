"""Comparison of the originals of a compression with their replacements, and of their exact values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from memman.entries import Entry
from memman.explain.history import CompressionState, LogHistory
from memman.explain.values import KeptIn, Values
from memman.log import History, speaker_of
from memman.records import Compressed, Replacement, ReplacementMethod


class ComparedValue(msgspec.Struct, frozen=True, kw_only=True):
    """An exact value of the originals (a path, an identifier, a number, a date, an address).

    `seq` is the last original that contains it. `kept` is its place in the window after the compression:
    the text of the replacement, the key facts below that ("ledger"), or elsewhere. None: it was lost.
    """

    value: str
    seq: int
    kept: KeptIn | None


class ComparedReplacement(msgspec.Struct, frozen=True, kw_only=True):
    """Originals and their replacement.

    `originals` are added entries, including those behind earlier replacements in the run. `tokens_before`
    are the run's tokens in the window. `entry` is None if they were dropped.
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
    that the window had after it, and `survival` their share (1.0 without values).
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
    replacements: tuple[ComparedReplacement, ...]


def compare(log: LogHistory, compression_id: str) -> Comparison:
    """Return the comparison of a compression of the log, in force or not."""
    seq, record = log.compressions[compression_id]
    history = History.of(log.before(seq))
    tokens = {item.entry.id: item.tokens for item in history.items}
    history.apply(seq, record)
    known = Values()
    window = known.shown_in(item.entry for item in history.items)
    placed = {item.entry.id: item.entry for item in history.items if item.compression == record.id}
    compared = tuple(
        _compared(item, pieces, history, tokens, window, known, placed)
        for item, pieces in with_pieces(record)
    )
    kept = {each.value: False for item in compared for each in item.values}
    kept |= {each.value: True for item in compared for each in item.values if each.kept}
    survivors = sum(kept.values())
    return Comparison(
        compression_id=compression_id,
        seq=seq,
        at=record.at,
        state=log.state_of(compression_id),
        reason=record.reason,
        tokens_before=record.tokens_before,
        tokens_after=record.tokens_after,
        values=len(kept),
        values_kept=survivors,
        survival=survivors / len(kept) if kept else 1.0,
        replacements=compared,
    )


def with_pieces(record: Compressed) -> list[tuple[Replacement, list[str]]]:
    """Return each replacement with the ids that it represents: a summary may represent several runs."""
    pieces: dict[str, list[str]] = {}
    for item in record.replacements:
        speaker = speaker_of(item)
        if speaker is not None:
            pieces.setdefault(speaker, []).extend(item.ids)
    return [
        (item, pieces[item.entry.id] if item.entry is not None else list(item.ids))
        for item in record.replacements
        if item.into is None
    ]


def _compared(
    item: Replacement,
    ids: Sequence[str],
    history: History,
    tokens: dict[str, int],
    window: set[str],
    known: Values,
    placed: dict[str, Entry],
) -> ComparedReplacement:
    originals = tuple(history.originals(ids))
    entry = None if item.entry is None else placed[item.entry.id]
    return ComparedReplacement(
        method=item.method,
        originals=originals,
        entry=entry,
        tokens_before=sum(tokens[name] for name in ids),
        tokens_after=entry.token_count.tokens if entry is not None else 0,
        values=_judged(originals, entry.text if entry is not None else "", window, known),
    )


def _judged(
    originals: Iterable[Entry], text: str, window: set[str], known: Values
) -> tuple[ComparedValue, ...]:
    """Return the values of the originals in order of appearance, with their place in the window."""
    last = {value: entry.seq for entry in originals for value in known.of(entry)}
    kept = known.kept(last, text, window)
    return tuple(
        ComparedValue(value=value, seq=seq, kept=kept.get(value)) for value, seq in last.items()
    )
