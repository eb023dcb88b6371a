"""The data of a report, as plain values that the page reads and never executes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from memman.archive.document import records_of
from memman.compression.words import exact_values
from memman.config import usable_input
from memman.counting.lookup import Models
from memman.entries import Entry, FilePart, ImagePart, OpaquePart, Part
from memman.explain.explanation import Trigger
from memman.explain.history import LogHistory
from memman.explain.shares import Share, shares_of
from memman.explain.state_block import sections_of
from memman.manager import MemoryManager
from memman.plugins import shared_plugins
from memman.records import (
    Added,
    Cleared,
    Compressed,
    Configured,
    Cost,
    Deleted,
    Described,
    Opened,
    Pinned,
    Record,
    ReplacementMethod,
    Undone,
    UsageReported,
    ids_retracted_by,
)
from memman.results import Recalled, SessionStats
from memman.window import ActiveState
from memman_cli.explain import KeptIn, Survival, SurvivingValues
from memman_cli.report.steps import Change, Numbers, Span, Splice, changes
from memman_cli.report.usage import Usage, usage_of

VERSION = 1
Content = Literal["whole", "redacted", "none"]
_KINDS: dict[type, str] = {
    Opened: "opened",
    Compressed: "compressed",
    Undone: "undone",
    Pinned: "pinned",
    Deleted: "deleted",
    Cleared: "cleared",
    Configured: "configured",
    Described: "described",
    UsageReported: "usage",
}
_PLACES: tuple[KeptIn, ...] = ("replacement", "state", "elsewhere")


class ShownPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part other than text, without its content. `size` is the bytes of inline data."""

    kind: str
    media_type: str | None = None
    name: str | None = None
    link: str | None = None
    size: int | None = None
    alt: str | None = None


class ShownEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the log. `step` and `method` are set for one that a compression made.

    `values` are the numbers of its exact values; only originals of a compression have any.
    """

    id: str
    seq: int
    type: str
    role: str
    at: datetime
    tokens: int
    text: str
    replacement: int = 0
    name: str | None = None
    call: str | None = None
    message: str | None = None
    error: bool = False
    pinned: bool = False
    deleted: bool = False
    parts: list[ShownPart] = []
    counted: str = ""
    step: int | None = None
    method: ReplacementMethod | None = None
    values: list[int] = []


class ShownReplacement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Originals and their replacement. `kept` has the values that the window kept, by their place.

    The replacement of outlined entries is the step's block.
    """

    method: ReplacementMethod
    originals: list[Span]
    before: int
    after: int
    entry: int | None = None
    kept: dict[str, list[int]] = {}


class ShownBlock(msgspec.Struct, frozen=True, omit_defaults=True):
    """An outline. `seq` is the record that set it, and `sections` counts its items by heading."""

    seq: int
    tokens: int
    text: str
    sections: dict[str, int] = {}


class ShownStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record that added no entry; `active`, `entries` and `total` are the figures after it.

    `block` is the outline in the window then: its number, and the number of entries before it.
    """

    kind: str
    seq: int
    at: datetime
    active: int
    entries: int
    total: int
    splices: list[Splice] = []
    block: tuple[int, int] | None = None
    id: str = ""
    # of a compression or a retraction
    state: str = ""
    reason: str = ""
    # of a compression
    before: int = 0
    after: int = 0
    cost: Cost | None = None
    folded_into: list[int] = []
    value_count: int = 0
    values_kept: int = 0
    replacements: list[ShownReplacement] = []
    # of the others
    undoes: int | None = None
    touches: list[Span] = []
    on: bool | None = None
    changes: dict[str, Any] = {}
    model: str | None = None
    reported: int = 0
    cached: int = 0
    cache_written: int = 0
    output: int = 0
    estimated: int = 0
    broke: bool = False
    charged: float | None = None
    uncompressed: float | None = None


class Limits(msgspec.Struct, frozen=True):
    """Limits in tokens: of the model, of the window, and a compression's target; None if unknown."""

    model: int | None
    trigger: int | None
    target: int | None


class ShownShares(msgspec.Struct, frozen=True):
    """The largest parts of the window; `largest` has the numbers of entries."""

    tokens: int
    tools: list[Share]
    sources: list[Share]
    largest: list[int]
    advice: str


class Report(msgspec.Struct, frozen=True):
    """Everything that a session's page shows; `content` is whether something was left out.

    `undo` is the command that undoes a compression, without the compression's id; "" if no command can,
    None if only a program can.
    """

    session: str
    model: str | None
    stats: SessionStats
    usage: Usage
    limits: Limits
    head: int
    entries: list[ShownEntry]
    steps: list[ShownStep]
    blocks: list[ShownBlock]
    values: list[str]
    shares: ShownShares
    recalled: tuple[Recalled, ...] = ()
    undo: str | None = None
    content: Content = "whole"
    version: int = VERSION


def report_of(
    memory: MemoryManager,
    session_id: str,
    change: Callable[[Sequence[Record]], Sequence[Record]] | None = None,
    undo: str | None = None,
    model: str | None = None,
    limited: bool = True,
) -> Report:
    """Return the data of a session's report, with `change` applied to its records; `undo` as in `Report`.

    `model` defaults to the session's own or the last observed one. `limited=False` leaves out the manager's
    limits, if they are only defaults.

    Raises `SessionNotFound`.
    """
    state = memory.export_session(session_id)
    records = records_of(state) if change is None else change(records_of(state))
    log = LogHistory(list(enumerate(records, 1)))
    shown = _Shown(log)
    model = model or state.settings.get("model") or log.history.totals.observed.model
    explained, reserve = memory.explain(session_id), state.settings.get("reserve_output")
    return Report(
        session=session_id,
        model=model,
        stats=memory.get_stats(session_id),
        usage=usage_of(memory, session_id, limited),
        limits=_limits(explained.trigger, model, reserve, limited),
        head=len(log.records),
        entries=shown.entries,
        steps=shown.steps,
        blocks=shown.blocks,
        values=list(shown.values),
        shares=shown.shares,
        recalled=explained.recalled if limited and change is None else (),
        undo=undo,
        content="whole" if change is None else "redacted",
    )


def _limits(trigger: Trigger, model: str | None, reserve: int | None, limited: bool) -> Limits:
    info = Models(shared_plugins).info(model) if model is not None else None
    takes = None
    if info is not None:
        takes = usable_input(info.limits, reserve)
    if not limited:
        return Limits(takes, None, None)
    return Limits(takes, trigger.max_tokens, trigger.target_tokens)


class _Shown:
    """The entries, steps and exact values of a log."""

    def __init__(self, log: LogHistory) -> None:
        self._log = log
        self._numbers = Numbers()
        self._pinned = {item.entry.id for item in log.history.items if item.pinned}
        self._places: dict[str, int] = {}  # record id -> its step
        self._originals: set[str] = set()  # of any compression
        self.values: dict[str, int] = {}
        self.blocks: list[ShownBlock] = []
        self._numbered: ActiveState | None = None  # the last one of these
        self.steps = list(self._read_steps())
        self.entries = [
            shown for seq, record in log.records for shown in self._entries_of(seq, record)
        ]

    @property
    def shares(self) -> ShownShares:
        """The largest parts of the window at the end of the log."""
        found = shares_of(self._log.history.state.window)
        return ShownShares(
            tokens=found.tokens,
            tools=list(found.tools),
            sources=list(found.sources),
            largest=[self._numbers[each.entry_id] for each in found.largest],
            advice=found.advice,
        )

    def _read_steps(self) -> Iterator[ShownStep]:
        for place, change in enumerate(changes(self._log, self._numbers)):
            record = change.record
            step = ShownStep(
                kind=_KINDS[type(record)],
                id=record.id,
                seq=change.seq,
                at=record.at,
                active=change.active_tokens,
                entries=change.active_entries,
                total=change.total_tokens,
                splices=change.splices,
                block=self._block(change),
            )
            self._places[record.id] = place
            if isinstance(record, Compressed) and change.survival is not None:
                yield self._compression(step, change.survival, record)
            else:
                yield self._other(step, record)

    def _block(self, change: Change) -> tuple[int, int] | None:
        """Return the number of the outline after a change, and its place."""
        block = change.block
        if block is None or not block.state.text:
            return None
        if block is not self._numbered:
            self._numbered, state = block, block.state
            seq, sections = block.item.entry.seq, sections_of(state)
            self.blocks.append(ShownBlock(seq, block.item.tokens, state.text, sections))
        return len(self.blocks) - 1, change.block_at

    def _compression(self, step: ShownStep, survived: Survival, record: Compressed) -> ShownStep:
        state = self._log.state_of(record.id)
        folded = self._log.history.folded_into(record.id) if state == "folded" else ()
        return msgspec.structs.replace(
            step,
            state=state,
            reason=record.reason,
            before=record.tokens_before,
            after=record.tokens_after,
            cost=record.cost,
            folded_into=[self._log.compressions[name][0] for name in folded],
            value_count=survived.values,
            values_kept=survived.kept,
            replacements=[self._replacement(each, record) for each in survived.replacements],
        )

    def _replacement(self, survived: SurvivingValues, record: Compressed) -> ShownReplacement:
        self._originals.update(survived.ids)
        kept: dict[str, list[int]] = {}
        for value, place in survived.kept.items():
            number = self.values.setdefault(value, len(self.values))
            kept.setdefault(place, []).append(number)
        entry = survived.item.entry
        made = record.state if survived.item.method == "outline" else entry
        return ShownReplacement(
            method=survived.item.method,
            originals=self._numbers.originals(entry.id if entry else None, survived.ids),
            before=survived.tokens_before,
            after=made.token_count.tokens if made is not None else 0,
            entry=self._numbers[entry.id] if entry is not None else None,
            kept={place: sorted(kept[place]) for place in _PLACES if place in kept},
        )

    def _other(self, step: ShownStep, record: Record) -> ShownStep:
        """Return the step of a record that is not a compression, or is a retraction."""
        replace = msgspec.structs.replace
        match record:
            case Compressed():
                return replace(
                    step,
                    kind="retracted",
                    state=self._log.state_of(record.id),
                    reason=record.reason,
                    touches=self._numbers.spans(ids_retracted_by(record)),
                )
            case Undone():
                return replace(step, undoes=self._places[record.compression_id])
            case Pinned():
                return replace(step, touches=self._numbers.spans([record.entry_id]), on=record.on)
            case Deleted():
                return replace(step, touches=self._numbers.spans(record.ids))
            case Opened():
                observed = msgspec.to_builtins(record.settings)
                if (point := record.forked_from) is not None:
                    observed["forked_from"] = f"{point.session_id} #{point.seq}"
                return replace(step, changes=observed)
            case Configured():
                return replace(step, changes=record.changes)
            case Described():
                return replace(step, changes=record.metadata)
            case UsageReported():
                return replace(
                    step,
                    model=record.model,
                    reported=record.input_tokens,
                    cached=record.cached_tokens,
                    cache_written=record.cache_written_tokens,
                    output=record.output_tokens,
                    estimated=record.estimated,
                    broke=record.broke_cache,
                    charged=None if record.charge is None else record.charge.total,
                    uncompressed=None if record.charge is None else record.charge.uncompressed,
                )
        return step

    def _entries_of(self, seq: int, record: Record) -> Iterator[ShownEntry]:
        if isinstance(record, Added):
            yield self._entry(seq, record.entry)
        elif isinstance(record, Compressed):
            step = self._places[record.id]
            for number, item in enumerate(record.replacements, 1):
                if item.entry is not None:
                    yield self._entry(seq, item.entry, step, item.method, number)

    def _entry(
        self,
        seq: int,
        entry: Entry,
        step: int | None = None,
        method: ReplacementMethod | None = None,
        number: int = 0,
    ) -> ShownEntry:
        count = entry.token_count
        parts = () if isinstance(entry.content, str) else entry.content
        return ShownEntry(
            id=entry.id,
            seq=seq,
            type=entry.type,
            role=entry.role,
            replacement=number,
            at=entry.timestamp,
            tokens=count.tokens,
            text=entry.text,
            name=entry.name,
            call=entry.call_id,
            message=entry.message_id,
            error=entry.is_error,
            pinned=entry.id in self._pinned,
            deleted=entry.id in self._log.deleted,
            parts=[found for part in parts if (found := _part(part))],
            counted=count.counter,
            step=step,
            method=method,
            values=[] if step is not None else self._values_in(entry),
        )

    def _values_in(self, entry: Entry) -> list[int]:
        """Return the numbers of the values of an original; () for an entry that was never replaced."""
        if entry.id not in self._originals:
            return []
        values = self.values
        return [values.setdefault(value, len(values)) for value in exact_values(entry.text)]


def _part(part: Part) -> ShownPart | None:
    """Describe a part. The page contains nothing else of an image, a file or an opaque block."""
    match part:
        case ImagePart():
            kind, size = _inline(part.url, part.data)
            link = None if kind else part.url
            return ShownPart("image", kind or part.media_type, None, link, size, part.alt)
        case FilePart():
            kind, size = _inline(part.url, part.data)
            link = part.file_id if kind else part.url or part.file_id
            return ShownPart("file", kind or part.media_type, part.name, link, size, part.alt)
        case OpaquePart():
            return ShownPart("opaque", name=part.format, size=len(bytes(part.block)))
    return None


def _inline(url: str | None, data: str | None) -> tuple[str | None, int | None]:
    """Return the media type of a data URI, and the number of bytes in it or in `data`."""
    if url is not None and url.startswith("data:"):
        head, _, body = url.partition(",")
        kind = head.removeprefix("data:").partition(";")[0]
        return kind or "text/plain", len(body) * 3 // 4 if head.endswith(";base64") else len(body)
    return None, len(data) * 3 // 4 if data is not None else None
