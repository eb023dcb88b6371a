"""The log's vocabulary: what can happen to a session, and its JSON.

Every record has an `id`, made before the first attempt to store it, and `at`, which is information
and never an order. A record's place is its `seq`, given by the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec

from memman.entries import NO_JSON, Entry
from memman.errors import InvalidInput

LEAST_RATIO, MOST_RATIO = 0.5, 3.0  # of reported to counted tokens: beyond, something else is wrong

ReplacementMethod = Literal["summary", "digest", "stub", "fold", "clip", "drop"]
"""How a run was replaced: by a model's summary, a digest, a stub, a note of a repeat, a cut or nothing."""


class Replacement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A contiguous run of the window, and the entry that stands for it (None: nothing does).

    `into` names the replacement of the same compression that speaks for this run too: a pinned
    entry splits the old part, and one summary covers the pieces.
    """

    ids: tuple[str, ...]
    entry: Entry | None
    method: ReplacementMethod
    into: str | None = None


def summary_in(replacements: Iterable[Replacement]) -> str | None:
    """The id of the summary that a compression wrote, if it wrote one."""
    for item in replacements:
        if item.method in ("summary", "digest") and item.entry is not None:
            return item.entry.id
    return None


class Cost(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What making a compression took: calls of the summarizer, their seconds, and what they were billed.

    The tokens are those of the calls whose provider told them; `model` is the last one that answered.
    """

    calls: int = 0
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    model: str | None = None

    def plus(self, other: Cost) -> Cost:
        """Both together."""
        return Cost(
            self.calls + other.calls,
            self.seconds + other.seconds,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            other.model or self.model,
        )


NO_COST = Cost()


class SettingsInEffect(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The settings that a session worked with at a moment, as an observation: it changes nothing.

    `counter` is the counter's fingerprint. None and "" are unknown; `max_entries` may also be unlimited.
    """

    model: str | None = None
    max_tokens: int | None = None
    max_entries: int | None = None
    target_tokens: int | None = None
    counter: str = ""


NOT_OBSERVED = SettingsInEffect()


class Opened(msgspec.Struct, frozen=True, tag="opened", tag_field="kind", kw_only=True):
    """The session began. This is its first record, written in one append with the second.

    `nonce` is a random text of hexadecimal digits that no earlier text contains: it marks memman's own
    delimiters in a context. `metadata` is the caller's.
    """

    id: str
    at: datetime
    nonce: str
    metadata: dict[str, Any] = {}
    settings: SettingsInEffect = NOT_OBSERVED


class Added(msgspec.Struct, frozen=True, gc=False, tag="added", tag_field="kind"):
    """An entry joined the conversation."""

    entry: Entry

    @property
    def id(self) -> str:
        """Its entry's."""
        return self.entry.id

    @property
    def at(self) -> datetime:
        """Its entry's time."""
        return self.entry.timestamp


class Compressed(msgspec.Struct, frozen=True, tag="compressed", tag_field="kind", kw_only=True):
    """Runs of the window were replaced; `tokens_before` and `tokens_after` are of the whole window.

    `settings` is an observation, as in `Opened`.
    """

    id: str
    at: datetime
    replacements: tuple[Replacement, ...]
    reason: str
    tokens_before: int
    tokens_after: int
    cost: Cost = NO_COST
    settings: SettingsInEffect = NOT_OBSERVED


class Undone(msgspec.Struct, frozen=True, tag="undone", tag_field="kind", kw_only=True):
    """A compression was taken back: what it hid is in the window again."""

    id: str
    at: datetime
    compression_id: str


class Pinned(msgspec.Struct, frozen=True, tag="pinned", tag_field="kind", kw_only=True):
    """An active entry may no longer (`on`) or may again be replaced."""

    id: str
    at: datetime
    entry_id: str
    on: bool


class Deleted(msgspec.Struct, frozen=True, tag="deleted", tag_field="kind", kw_only=True):
    """Entries were removed for good. `entries` and `tokens` are what the era's totals lost."""

    id: str
    at: datetime
    ids: tuple[str, ...]
    entries: int = 0
    tokens: int = 0


class Cleared(msgspec.Struct, frozen=True, tag="cleared", tag_field="kind", kw_only=True):
    """The window was emptied and a new era begins."""

    id: str
    at: datetime


class Configured(
    msgspec.Struct,
    frozen=True,
    tag="configured",
    tag_field="kind",
    kw_only=True,
    omit_defaults=True,
):
    """Settings of the session changed.

    Settings of an imported session are not `trusted`: they stay in the log, and those that could call
    anybody or lift a limit have no effect. The mark is the store's: documents and archives have none.
    """

    id: str
    at: datetime
    changes: dict[str, Any]
    trusted: bool = True


class Learned(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a session's reports have taught of a model: `ratio` of reported to counted tokens, the counted
    tokens (`weight`) that it rests on, and `overhead`, what a request has that is in no entry.
    """

    ratio: float
    weight: float
    overhead: float

    def __post_init__(self) -> None:
        if not LEAST_RATIO <= self.ratio <= MOST_RATIO or self.weight < 0:
            raise ValueError(f"a ratio of {self.ratio} on {self.weight} tokens cannot be learned")


class UsageReported(msgspec.Struct, frozen=True, tag="usage", tag_field="kind", kw_only=True):
    """What the provider said a request cost, and what memman thought of it then.

    `estimated` is the figure that memman gave, `counted` the same with nothing learned in it, and
    `learned` what is known after this report.
    """

    id: str
    at: datetime
    model: str | None
    input_tokens: int
    output_tokens: int = 0
    cached_tokens: int = 0
    estimated: int = 0
    counted: int = 0
    learned: Learned | None = None


Record = (
    Opened | Added | Compressed | Undone | Pinned | Deleted | Cleared | Configured | UsageReported
)
"""Any fact of a log; its JSON names its `kind`."""
SHAPES = (Compressed, Undone, Pinned, Deleted, Cleared)  # these change the shape of the window

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """Return a record as JSON. `seq` is a column of the store, not part of the payload.

    Raises `InvalidInput` for a record that `decode` would refuse: nothing unreadable is ever written.
    """
    try:
        payload = _encoder.encode(record)
        _decoder.decode(payload)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"a {type(record).__name__} record could not be read again, and nothing was written: {error}"
        ) from error
    return payload


def decode(payload: bytes) -> Record:
    """The record of a payload; raises `msgspec.ValidationError` for anything else."""
    return _decoder.decode(payload)


class SessionTotals(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a session remembers besides its window: a fold over its records that needs no history.

    `entries` and `tokens` are the era's totals, `cost` what its compressions took, those that were undone
    too; `era` is the seq of the last clear, `compressed` that of the newest compression, `learned` what was
    learned of each model. `nonce` is the session's, `observed` are the settings that were in effect when
    it was opened or last compressed. `undone` is what `tokens` and `entries` were at the newest undo; None
    if a compression came after.
    `untrusted` names the settings whose value is of an import.
    """

    entries: int = 0
    tokens: int = 0
    era: int = 0
    last_counted_at: datetime | None = None
    settings: dict[str, Any] = {}
    usage: UsageReported | None = None
    learned: dict[str, Learned] = {}
    counter: str = ""
    cost: Cost = NO_COST
    compressed: int = 0
    nonce: str = ""
    observed: SettingsInEffect = NOT_OBSERVED
    undone: tuple[int, int] | None = None
    untrusted: frozenset[str] = frozenset()

    def after(self, seq: int, record: Record) -> SessionTotals:
        """The ledger once `record` has been appended at `seq`."""
        match record:
            case Opened():
                return msgspec.structs.replace(self, nonce=record.nonce, observed=record.settings)
            case Added(entry):
                return msgspec.structs.replace(
                    self,
                    entries=self.entries + 1,
                    tokens=self.tokens + entry.token_count.tokens,
                    last_counted_at=entry.timestamp,
                    counter=entry.token_count.counter or self.counter,
                )
            case Deleted():
                return msgspec.structs.replace(
                    self,
                    entries=self.entries - record.entries,
                    tokens=self.tokens - record.tokens,
                    # The entries added since the undo stay the same.
                    undone=self.undone
                    and (self.undone[0] - record.tokens, self.undone[1] - record.entries),
                )
            case Compressed():
                cost = self.cost.plus(record.cost)
                return msgspec.structs.replace(
                    self, cost=cost, compressed=seq, observed=record.settings, undone=None
                )
            case Undone():
                return msgspec.structs.replace(self, undone=(self.tokens, self.entries))
            case Cleared():
                return msgspec.structs.replace(
                    self, entries=0, tokens=0, era=seq, cost=NO_COST, undone=None
                )
            case Configured():
                names = record.changes.keys()
                untrusted = self.untrusted - names if record.trusted else self.untrusted | names
                return msgspec.structs.replace(
                    self, settings=self.settings | record.changes, untrusted=untrusted
                )
            case UsageReported():
                learned = self.learned
                if record.learned is not None:  # the newest last: names may mean the same model
                    key = record.model or ""
                    learned = {name: each for name, each in learned.items() if name != key}
                    learned[key] = record.learned
                return msgspec.structs.replace(self, usage=record, learned=learned)
        return self


def trusting(record: Record, trusted: bool = True) -> Record:
    """Return the record with its settings trusted or not; any other record as it is."""
    if isinstance(record, Configured) and record.trusted != trusted:
        return msgspec.structs.replace(record, trusted=trusted)
    return record


def ids_made_by(record: Record) -> list[str]:
    """Return the record's own id and those of its replacements."""
    replacements = record.replacements if isinstance(record, Compressed) else ()
    return [record.id, *(item.entry.id for item in replacements if item.entry is not None)]


def ids_hidden_by(record: Record) -> list[str]:
    """Return the ids of the entries that a record removed from the window by name."""
    if isinstance(record, Compressed):
        return [name for item in record.replacements for name in item.ids]
    return list(record.ids) if isinstance(record, Deleted) else []


def tombstone(record: Record, ids: frozenset[str]) -> Record:
    """`record` without the payload of the entries named in `ids`; seq, id and kind stay."""
    if isinstance(record, Added) and record.id in ids:
        return Added(blank(record.entry))
    if isinstance(record, Compressed):
        return msgspec.structs.replace(
            record,
            replacements=tuple(
                msgspec.structs.replace(item, entry=blank(item.entry))
                if item.entry is not None and item.entry.id in ids
                else item
                for item in record.replacements
            ),
        )
    return record


def deleted_in(records: Iterable[Record]) -> frozenset[str]:
    """The ids of the entries that deletions among these records name."""
    return frozenset(
        name for record in records if isinstance(record, Deleted) for name in record.ids
    )


def tainted_by(records: list[Record], ids: frozenset[str]) -> frozenset[str]:
    """`ids` and every replacement whose originals, at any depth, include one of them."""
    tainted = set(ids)
    for record in records:
        if not isinstance(record, Compressed):
            continue
        for item in record.replacements:
            if not tainted.isdisjoint(item.ids):
                tainted.update(name for name in (item.into, item.entry and item.entry.id) if name)
    return frozenset(tainted)


def blank(entry: Entry) -> Entry:
    """Return an entry without its content and everything else that a caller gave it."""
    return msgspec.structs.replace(
        entry,
        content="",
        name=None,
        call_id=None,
        message_id=None,
        metadata_json=NO_JSON,
        raw_json=NO_JSON,
    )
