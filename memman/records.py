"""The records of a session's log, and their JSON.

Every record has an `id`, made before the first attempt to store it, and `at`, which is informational and
never an order. The store assigns a record's place, its `seq`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from memman.display import CONTROLS
from memman.entries import NO_JSON, Entry
from memman.errors import InvalidInput
from memman.spend import (
    NO_SPEND,
    NOTHING_REPORTED,
    BilledTokens,
    Charge,
    LastRequest,
    ReportedTokens,
    Spend,
)
from memman.state import State

_MOST_FIRST_LINE = 200  # characters
_MOST_RESPONSES = 32  # whose identities a session keeps
_UNPRINTABLE = re.compile(f"[{CONTROLS}]")
LEAST_RATIO, MOST_RATIO = 0.5, 3.0  # of reported to counted tokens; others come from an error

ReplacementMethod = Literal["summary", "outline", "stub", "fold", "clip", "drop", "retract"]
"""The replacement of a run: a model's summary, a stub, a note of a repeat, a clip or nothing.

The other three leave nothing: "outline" because the compression's outline has what matters, "drop" to save
room, "retract" because the caller took the entries back.
"""


class Replacement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A contiguous run of the window and the entry that replaces it, if any.

    `into` is the id of a replacement of the same compression that also represents this run: a pinned entry
    splits the old part, and one summary covers both pieces.
    """

    ids: tuple[str, ...]
    entry: Entry | None
    method: ReplacementMethod
    into: str | None = None


def summary_in(replacements: Iterable[Replacement], state: State | None) -> str | None:
    """Return the id of the summary among the replacements, or of the outline; None without both."""
    for item in replacements:
        if item.method == "summary" and item.entry is not None:
            return item.entry.id
    return state.compression_id if state is not None and state.text else None


class Cost(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The cost of a compression: the summarizer's calls, their seconds, tokens and US dollars.

    The tokens are of the calls whose provider reported them; `input_tokens` includes `cached_tokens` and
    `cache_written_tokens`. `model` is the last one that answered. `unpriced` calls have reported tokens,
    and no known price.
    """

    calls: int = 0
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    model: str | None = None
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0

    def plus(self, other: Cost) -> Cost:
        """Return the sum of both."""
        names = [name for name in self.__struct_fields__ if name != "model"]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return Cost(**sums, model=other.model or self.model)


NO_COST = Cost()


class SettingsInEffect(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The settings that a session used at a moment: an observation without effect.

    `counter` is the counter's fingerprint. None and "" mean unknown; for `max_entries`, None may also mean
    unlimited.
    """

    model: str | None = None
    max_tokens: int | None = None
    max_entries: int | None = None
    target_tokens: int | None = None
    counter: str = ""


NOT_OBSERVED = SettingsInEffect()


class ForkPoint(msgspec.Struct, frozen=True, gc=False):
    """The session that a fork was copied from, and the seq of the last record that was copied."""

    session_id: str
    seq: int


class _Identified(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    """The id and the time of a record. `Added` has those of its entry."""

    id: str
    at: datetime


class Opened(_Identified, frozen=True, tag="opened", kw_only=True):
    """The session began: its first record, appended together with the second.

    `nonce` is a random text of hexadecimal digits that marks memman's own delimiters in a context; no
    earlier text contains it. `metadata` comes from the caller. A fork has the nonce and the metadata of
    the session that it was copied from.
    """

    nonce: str
    metadata: dict[str, Any] = {}
    settings: SettingsInEffect = NOT_OBSERVED
    forked_from: ForkPoint | None = None


class Added(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag="added", tag_field="kind"
):
    """An entry was added.

    `off_record` is set for a reply to a request that the log does not repeat: a trimmed one, or one with
    bound parts that later requests leave out.
    """

    entry: Entry
    off_record: bool = False

    @property
    def id(self) -> str:
        """The entry's id."""
        return self.entry.id

    @property
    def at(self) -> datetime:
        """The entry's time."""
        return self.entry.timestamp

    def placed(self, seq: int) -> Entry:
        """Return the entry with its place in the log."""
        return msgspec.structs.replace(self.entry, seq=seq)


class Compressed(_Identified, frozen=True, tag="compressed", kw_only=True):
    """Runs of the window were replaced; `tokens_before` and `tokens_after` are the whole window's.

    `settings` is an observation, as in `Opened`. If the caller retracted entries, every replacement has the
    method "retract". Then `unfolds` are the compressions that covered one of them, the outermost first;
    they are dissolved. The era's totals lost these entries and `lost_tokens`. `torn` are the message ids of
    which other entries stay. `state` is the outline from here on; None if there is none.
    """

    replacements: tuple[Replacement, ...]
    reason: str
    tokens_before: int
    tokens_after: int
    cost: Cost = NO_COST
    settings: SettingsInEffect = NOT_OBSERVED
    unfolds: tuple[str, ...] = ()
    lost_tokens: int = 0
    torn: tuple[str, ...] = ()
    state: State | None = None


class Undone(_Identified, frozen=True, tag="undone", kw_only=True):
    """A compression was undone: the entries that it replaced are in the window again.

    Of a retraction, `restored` are these entries; the era's totals have them and `restored_tokens` again.
    `state` is the outline from here on.
    """

    compression_id: str
    restored: tuple[str, ...] = ()
    restored_tokens: int = 0
    state: State | None = None


class Pinned(_Identified, frozen=True, tag="pinned", kw_only=True):
    """An active entry was pinned (`on`) or unpinned. A compression never replaces a pinned entry."""

    entry_id: str
    on: bool


class Deleted(_Identified, frozen=True, tag="deleted", kw_only=True):
    """Entries were removed for good; the era's totals lost `entries` and `tokens`.

    `torn` are the message ids of which other entries stay. `state` is the outline from here on.
    """

    ids: tuple[str, ...]
    entries: int = 0
    tokens: int = 0
    torn: tuple[str, ...] = ()
    state: State | None = None


class Cleared(_Identified, frozen=True, tag="cleared", kw_only=True):
    """The window was emptied and a new era began."""


class Configured(_Identified, frozen=True, tag="configured", kw_only=True, omit_defaults=True):
    """Settings of the session changed.

    Settings of an imported session are not `trusted`: they stay in the log, but have no effect if they
    could call a program or a network, or lift a limit. Documents and archives do not contain the mark.
    """

    changes: dict[str, Any]
    trusted: bool = True


class Described(_Identified, frozen=True, tag="described", kw_only=True):
    """The caller's metadata of the session was replaced."""

    metadata: dict[str, Any]


class Learned(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The calibration of a model's counts by the usage that its provider reported.

    `ratio` is reported to counted tokens, `weight` the counted tokens that it was measured on, and
    `overhead` the tokens of a request that are not in any entry.
    """

    ratio: float
    weight: float
    overhead: float

    def __post_init__(self) -> None:
        if not LEAST_RATIO <= self.ratio <= MOST_RATIO or self.weight < 0:
            raise ValueError(f"a ratio of {self.ratio} on {self.weight} tokens cannot be learned")


class UsageReported(_Identified, frozen=True, tag="usage", kw_only=True):
    """The tokens that a provider reported for a request, and memman's own figures for it.

    `input_tokens` includes `cached_tokens`, read from the provider's cache, and `cache_written_tokens`;
    `cache_written_1h_tokens` of these are kept for an hour. `estimated` is memman's estimate, `counted` the
    same without calibration, and `learned` the calibration after this report. `hidden_tokens` are those of
    the era that compressions kept out of the request, and `cleared_tokens` those that the provider itself
    left out of it, by its context editing. `broke_cache` is whether the provider had lost a part
    of the previous request's cached prefix. `charge` is the price, None if it is unknown.

    `others` are the provider's further calls for this request, such as its own compaction: they are
    billed, and were not sent the window. `response` is the provider's id of the response, "" without one.
    """

    model: str | None
    input_tokens: int
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    estimated: int = 0
    counted: int = 0
    learned: Learned | None = None
    cache_written_1h_tokens: int = 0
    hidden_tokens: int = 0
    broke_cache: bool = False
    charge: Charge | None = None
    cleared_tokens: int = 0
    others: tuple[BilledTokens, ...] = ()
    response: str = ""

    @property
    def calls(self) -> tuple[BilledTokens, ...]:
        """All calls of models that are billed: the request itself, and the others."""
        names = BilledTokens.__struct_fields__
        return (BilledTokens(*[getattr(self, name) for name in names]), *self.others)

    @property
    def identity(self) -> str:
        """Checksums of the response's id and its numbers; "" without an id."""
        numbers = [msgspec.structs.astuple(call)[1:] for call in self.calls]
        name = self.response.encode(errors="replace")
        return f"{zlib.crc32(name):08x}{zlib.crc32(repr(numbers).encode()):08x}" if name else ""


SHAPES = Compressed | Undone | Pinned | Deleted | Cleared
"""A record that changes the window's shape."""
Record = Opened | Added | SHAPES | Configured | Described | UsageReported
"""Any record; its JSON has its `kind`."""
StateSetter = Compressed | Undone | Deleted
"""A record that sets the outline of the window."""

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """Return a record as JSON. `seq` is not part of the payload.

    Raises `InvalidInput` for a record that `decode` would refuse, so that nothing unreadable is written.
    """
    try:
        payload = _encoder.encode(record)
        _decoder.decode(payload)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"a {type(record).__name__} record cannot be decoded again; nothing was written: {error}"
        ) from error
    return payload


def decode(payload: bytes) -> Record:
    """Return the record of a payload. Raises `msgspec.ValidationError` if it is not one."""
    return _decoder.decode(payload)


class SessionTotals(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a session besides its window: the fold of its records that needs no history.

    `entries`, `tokens` and `cost` are the era's totals; retracted entries do not count, undone compressions
    do. `era` is the seq of the last clear. `learned` has the calibration of each model. `observed` are the
    settings in effect when the session was opened or last compressed. `undone` has the totals of tokens and
    entries at the newest undo; None if a compression came after it. `untrusted` names the settings that
    come from an import. `torn` are the ids of messages that lost some of their entries. `first_line` is
    that of the era's first user message, whose id is `first_id`. If that message is deleted or retracted,
    the next one that is added takes its place. `spend` and `reported` are of all eras: money stays spent.
    `latest` is the era's last request to each model. `shaped_at` is the seq of the last record after which
    a request does not begin as the one before it; what a model thought up to there has lost its prefix.
    `reported_at` is the seq of the last report, `responses` the identities of the last responses.
    """

    entries: int = 0
    tokens: int = 0
    era: int = 0
    last_counted_at: datetime | None = None
    settings: dict[str, Any] = {}
    usage: UsageReported | None = None
    learned: dict[str, Learned] = {}
    cost: Cost = NO_COST
    nonce: str = ""
    observed: SettingsInEffect = NOT_OBSERVED
    undone: tuple[int, int] | None = None
    untrusted: frozenset[str] = frozenset()
    torn: frozenset[str] = frozenset()
    metadata: dict[str, Any] = {}
    first_id: str = ""
    first_line: str = ""
    spend: Spend = NO_SPEND
    reported: ReportedTokens = NOTHING_REPORTED
    latest: dict[str, LastRequest] = {}
    shaped_at: int = 0
    reported_at: int = 0
    responses: tuple[str, ...] = ()

    def after(self, seq: int, record: Record) -> SessionTotals:
        """Return the totals after `record`, which is at `seq`."""
        totals = self._after(seq, record)
        if isinstance(record, StateSetter) or (isinstance(record, Added) and record.off_record):
            return msgspec.structs.replace(totals, shaped_at=seq)
        return totals

    def _after(self, seq: int, record: Record) -> SessionTotals:
        if isinstance(record, Added):
            return self._with(record.entry)
        lost = _lost_by(record)
        if lost is not None:
            return self._without(*lost)
        match record:
            case Opened():
                return msgspec.structs.replace(
                    self, nonce=record.nonce, observed=record.settings, metadata=record.metadata
                )
            case Compressed():
                cost = record.cost
                return msgspec.structs.replace(
                    self,
                    cost=self.cost.plus(cost),
                    spend=self.spend.with_summaries(cost.dollars, cost.unpriced),
                    observed=record.settings,
                    undone=None,
                )
            case Undone():
                return msgspec.structs.replace(self, undone=(self.tokens, self.entries))
            case Cleared():
                return msgspec.structs.replace(
                    self,
                    entries=0,
                    tokens=0,
                    era=seq,
                    cost=NO_COST,
                    undone=None,
                    torn=frozenset(),
                    first_id="",
                    first_line="",
                    latest={},
                )
            case Configured():
                names = record.changes.keys()
                untrusted = self.untrusted - names if record.trusted else self.untrusted | names
                return msgspec.structs.replace(
                    self, settings=self.settings | record.changes, untrusted=untrusted
                )
            case Described():
                return msgspec.structs.replace(self, metadata=record.metadata)
            case UsageReported():
                return self._with_usage(seq, record)
        return self

    def _without(
        self, ids: Sequence[str], torn: Sequence[str], entries: int, tokens: int
    ) -> SessionTotals:
        """Return the totals without these entries, so many of them of the era."""
        # The entries added since the undo stay the same.
        undone = self.undone and (self.undone[0] - tokens, self.undone[1] - entries)
        first_gone = self.first_id in ids
        return msgspec.structs.replace(
            self,
            entries=self.entries - entries,
            tokens=self.tokens - tokens,
            undone=undone,
            torn=self.torn.union(torn),
            first_id="" if first_gone else self.first_id,
            first_line="" if first_gone else self.first_line,
        )

    def _with(self, entry: Entry) -> SessionTotals:
        first_id, first_line = self.first_id, self.first_line
        if not first_id and entry.role == "user":
            first_id, first_line = entry.id, first_line_of(entry.text)
        return msgspec.structs.replace(
            self,
            entries=self.entries + 1,
            tokens=self.tokens + entry.token_count.tokens,
            last_counted_at=entry.timestamp,
            first_id=first_id,
            first_line=first_line,
        )

    def _with_usage(self, seq: int, record: UsageReported) -> SessionTotals:
        key, learned, latest = record.model or "", self.learned, self.latest
        if record.learned is not None:  # the newest last: names may mean the same model
            learned = {name: each for name, each in learned.items() if name != key}
            learned[key] = record.learned
        if record.input_tokens:
            last = latest.get(key)
            latest = {name: each for name, each in latest.items() if name != key}
            latest[key] = _last_request(record, last)
        named = filter(None, (*self.responses, record.identity))
        sums, calls = self.reported, record.calls
        return msgspec.structs.replace(
            self,
            usage=record,
            learned=learned,
            spend=self.spend.with_request(record.charge),
            reported=ReportedTokens(
                requests=sums.requests + 1,
                input=sums.input + sum(call.input_tokens for call in calls),
                cached=sums.cached + sum(call.cached_tokens for call in calls),
                written=sums.written + sum(call.cache_written_tokens for call in calls),
                output=sums.output + sum(call.output_tokens for call in calls),
                breaks=sums.breaks + record.broke_cache,
            ),
            latest=latest,
            reported_at=seq,
            responses=tuple(named)[-_MOST_RESPONSES:],
        )


def _last_request(record: UsageReported, before: LastRequest | None) -> LastRequest:
    """Return a request as the next one looks back on it.

    Without reports of what is written, all input is cached if some of it was read from the cache.
    """
    writes = record.cache_written_tokens > 0 or (before is not None and before.writes)
    cacheable = record.cached_tokens + record.cache_written_tokens
    if cacheable and not writes:
        cacheable = record.input_tokens
    return LastRequest(record.at, record.input_tokens + record.hidden_tokens, cacheable, writes)


def _lost_by(record: Record) -> tuple[Sequence[str], Sequence[str], int, int] | None:
    """Return the entries that a record takes out of the totals.

    These are their ids, the ids of the messages that are torn, the number of entries and of tokens.
    Negative numbers are of entries that come back.
    """
    match record:
        case Deleted():
            return record.ids, record.torn, record.entries, record.tokens
        case Compressed() if ids := ids_retracted_by(record):
            return ids, record.torn, len(ids), record.lost_tokens
        case Undone() if record.restored:
            return (), (), -len(record.restored), -record.restored_tokens
    return None


def first_line_of(text: str) -> str:
    """Return the first line of a text that is not blank, without control characters and cut off."""
    beginning = _UNPRINTABLE.sub("", text.lstrip()[: 2 * _MOST_FIRST_LINE]).strip()
    return (beginning.splitlines() or [""])[0].rstrip()[:_MOST_FIRST_LINE]


def trusting(record: Record, trusted: bool = True) -> Record:
    """Return the record with its settings trusted or not; any other record as it is."""
    if isinstance(record, Configured) and record.trusted != trusted:
        return msgspec.structs.replace(record, trusted=trusted)
    return record


def ids_made_by(record: Record) -> list[str]:
    """Return the record's own id and those of its replacements."""
    replacements = record.replacements if isinstance(record, Compressed) else ()
    return [record.id, *(item.entry.id for item in replacements if item.entry is not None)]


def ids_moved_by(record: Record) -> list[str]:
    """Return the ids of the entries that a record removed from the window, or restored to it, by name."""
    match record:
        case Compressed():
            return [name for item in record.replacements for name in item.ids]
        case Deleted():
            return list(record.ids)
        case Undone():
            return list(record.restored)
    return []


def ids_retracted_by(record: Record) -> list[str]:
    """Return the ids of the entries that a record retracted: they are free until it is undone."""
    if not isinstance(record, Compressed):
        return []
    return [name for item in record.replacements if item.method == "retract" for name in item.ids]


def tombstone(record: Record, ids: frozenset[str]) -> Record:
    """Return `record` without the payloads of the entries in `ids`; seq, id and kind stay."""
    if isinstance(record, Added) and record.id in ids:
        return Added(blank(record.entry))
    if isinstance(record, StateSetter) and record.state is not None and record.state.is_of(ids):
        record = msgspec.structs.replace(record, state=record.state.without(ids))
    if isinstance(record, Compressed):
        return with_replacements(record, lambda each: blank(each) if each.id in ids else each)
    return record


def with_replacements(record: Compressed, change: Callable[[Entry], Entry]) -> Compressed:
    """Return the record with `change` applied to the entries that it contains."""
    items = tuple(
        msgspec.structs.replace(item, entry=change(item.entry)) if item.entry else item
        for item in record.replacements
    )
    return msgspec.structs.replace(record, replacements=items)


def deleted_in(records: Iterable[Record]) -> frozenset[str]:
    """Return the ids of the entries that these records delete."""
    return frozenset(
        name for record in records if isinstance(record, Deleted) for name in record.ids
    )


def tainted_by(records: Iterable[Record], ids: frozenset[str]) -> frozenset[str]:
    """Return `ids` and those of everything made of these entries.

    These are the ids of replacements whose originals, at any depth, include one of them, and of records
    whose outline has something of them.
    """
    tainted = set(ids)
    for record in records:
        if isinstance(record, StateSetter) and record.state and record.state.is_of(ids):
            tainted.add(record.id)
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
