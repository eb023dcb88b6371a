"""What a compression replaced beside what stands for it, and which exact values came through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from memman.compression.ledger import without_ledger
from memman.compression.words import exact_values
from memman.entries import Entry
from memman.explaining.trail import CompressionState, Trail
from memman.history import History, speaker_of
from memman.records import Compressed, Replacement, ReplacementMethod

KeptIn = Literal["replacement", "ledger", "elsewhere"]


class ComparedValue(msgspec.Struct, frozen=True, kw_only=True):
    """An exact value of the originals (a path, an identifier, a number, a date, an address).

    `seq` is the last original in which it stood. `kept` says where the window had it once the compression
    was done: in the text of the replacement, in the ledger below that, or elsewhere. None: it was lost.
    """

    value: str
    seq: int
    kept: KeptIn | None


class ComparedReplacement(msgspec.Struct, frozen=True, kw_only=True):
    """Originals beside what a compression put in their place.

    `originals` are added entries, also those that the replaced run only stood for. `tokens_before` is what
    the run cost in the window. Without `entry` nothing stands for them.
    """

    method: ReplacementMethod
    originals: tuple[Entry, ...]
    entry: Entry | None
    tokens_before: int
    tokens_after: int
    values: tuple[ComparedValue, ...]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A compression, replacement by replacement.

    `values` is how many different exact values the originals have, `values_kept` how many of them were in
    the window once it was done, `survival` the share of these (1.0 where there are none).
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


def compare(trail: Trail, compression_id: str) -> Comparison:
    """The comparison for a compression of the trail, in force or not."""
    seq, record = trail.compressions[compression_id]
    return _compared_at(trail, History.of(trail.until(seq)), seq, record, _Values())


def comparisons(trail: Trail) -> Iterator[Comparison]:
    """The comparison for every compression of the trail in log order; the log is read once for all."""
    history, known = History(), _Values()
    for seq, record in trail.log:
        if isinstance(record, Compressed):
            yield _compared_at(trail, history, seq, record, known)
        else:
            history.apply(seq, record)


def _compared_at(
    trail: Trail, history: History, seq: int, record: Compressed, known: _Values
) -> Comparison:
    """The comparison for a record that is the next of the history, which takes it."""
    tokens = {slot.entry.id: slot.tokens for slot in history.slots}
    history.apply(seq, record)
    window = known.shown_in(slot.entry for slot in history.slots)
    compared = tuple(
        _compared(item, pieces, history, tokens, window, known)
        for item, pieces in _with_pieces(record)
    )
    kept = {each.value: False for item in compared for each in item.values}
    kept |= {each.value: True for item in compared for each in item.values if each.kept}
    survivors = sum(kept.values())
    return Comparison(
        compression_id=record.id,
        seq=seq,
        at=record.at,
        state=trail.state_of(record.id),
        reason=record.reason,
        tokens_before=record.tokens_before,
        tokens_after=record.tokens_after,
        values=len(kept),
        values_kept=survivors,
        survival=survivors / len(kept) if kept else 1.0,
        replacements=compared,
    )


def _with_pieces(record: Compressed) -> list[tuple[Replacement, list[str]]]:
    """Each replacement with all that it speaks for: a summary may stand for several runs."""
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
    known: _Values,
) -> ComparedReplacement:
    originals = tuple(history.unfolded(ids))
    entry = item.entry
    return ComparedReplacement(
        method=item.method,
        originals=originals,
        entry=msgspec.structs.replace(entry, seq=history.head) if entry is not None else None,
        tokens_before=sum(tokens[name] for name in ids),
        tokens_after=entry.token_count.tokens if entry is not None else 0,
        values=_judged(originals, entry.text if entry is not None else "", window, known),
    )


def _judged(
    originals: Iterable[Entry], text: str, window: set[str], known: _Values
) -> tuple[ComparedValue, ...]:
    """The values of the originals in the order in which they first stood, and where they are now."""
    last = {value: entry.seq for entry in originals for value in known.of(entry)}
    body, below = without_ledger(text)
    said, ledger = set(exact_values(body)), {value for value, _ in below}

    def kept(value: str) -> KeptIn | None:
        if value in said or stands_alone(value, body):
            return "replacement"
        if value in ledger:
            return "ledger"
        return "elsewhere" if value in window else None

    return tuple(
        ComparedValue(value=value, seq=seq, kept=kept(value)) for value, seq in last.items()
    )


def stands_alone(value: str, text: str) -> bool:
    """Whether a value stands in a text and is not a part of a longer word or number there."""
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        if not _joined(text[max(0, at - 1) : at + 1]) and not _joined(text[end - 1 : end + 1]):
            return True
        at = text.find(value, at + 1)
    return False


def _joined(pair: str) -> bool:
    """Whether two neighbours are of one word; in scripts without spaces nobody can say."""
    return len(pair) == 2 and pair.isascii() and pair.isalnum()


class _Values:
    """The exact values of entries, each entry read once."""

    def __init__(self) -> None:
        self._said: dict[str, list[str]] = {}
        self._shown: dict[str, list[str]] = {}

    def of(self, entry: Entry) -> list[str]:
        """Those of an original."""
        if entry.id not in self._said:
            self._said[entry.id] = exact_values(entry.text)
        return self._said[entry.id]

    def shown_in(self, entries: Iterable[Entry]) -> set[str]:
        """Those that a window of these entries has, in texts and in ledgers."""
        found: set[str] = set()
        for entry in entries:
            if entry.id not in self._shown:
                body, ledger = without_ledger(entry.text)
                values = exact_values(body) if ledger else self.of(entry)
                self._shown[entry.id] = [*values, *(value for value, _ in ledger)]
            found.update(self._shown[entry.id])
        return found
