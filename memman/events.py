"""Signals, the payloads of events, subscriptions, and the replay of events from a feed.

    from memman import events

    def on_compressed(sender, event):
        print(event.tokens_before, "->", event.tokens_after)

    events.compressed.connect(on_compressed)    # keep a reference: blinker holds receivers weakly

The sender is the manager; every signal carries one frozen object as `event`. Log events are emitted once
per record, in log order, after the record was committed. Notices are about facts that are not in the log.

`replay` emits the events of records that other processes wrote, from a feed of the log.
"""

from __future__ import annotations

import inspect
import logging
import sys
import weakref
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from types import FunctionType
from typing import Any, Literal, TypeVar

import msgspec
from blinker import ANY, NamedSignal

from memman.display import known_names, safe_repr
from memman.entries import Entry
from memman.errors import InvalidInput
from memman.protocols import FeedItem
from memman.records import (
    NO_COST,
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
    Replacement,
    ReplacementMethod,
    SettingsInEffect,
    Undone,
    UsageReported,
    summary_in,
)
from memman.runtime.base import await_receiver, drive, is_cancellation, skip
from memman.spend import BilledTokens, Charge
from memman.state import State

logger = logging.getLogger("memman.events")


R = TypeVar("R", bound=Callable[..., Any])
_warned: set[object] = set()  # the warnings that were logged already
_run: ContextVar[dict[str, Any]] = ContextVar("memman_run", default={})  # noqa: B039 - it is not changed


@contextmanager
def in_run(**metadata: Any) -> Iterator[None]:
    """Give every event that is caused within this metadata: `with in_run(invocation="i-1"): ...`.

    An inner one adds to an outer one. The log does not have it.
    """
    token = _run.set({**_run.get(), **metadata})
    try:
        yield
    finally:
        _run.reset(token)


class EventSignal(NamedSignal):
    """A signal of blinker's, in no namespace: other libraries' signals may have the same name.

    It warns of two mistakes that blinker leaves silent: a receiver that cannot be called as
    `receiver(sender, event=...)`, and a function that is gone before it received an event.
    """

    def __init__(self, name: str, doc: str) -> None:
        super().__init__(name, doc)
        self._unheard: dict[int, weakref.finalize[Any, Any]] = {}  # not called yet

    def connect(self, receiver: R, sender: Any = ANY, weak: bool = True) -> R:
        """Connect a receiver as blinker does; one with a wrong signature is left out, with a warning."""
        if not _accepts(receiver, None, event=None):
            code = getattr(receiver, "__code__", type(receiver))
            if code not in _warned:
                _warned.add(code)
                logger.warning(
                    "the receiver %r was not connected to %r: it cannot be called as "
                    "receiver(sender, event=...). Define it as f(sender, event), or use "
                    "memory.on(%r, callback) for a callback(event)",
                    receiver, self.name, self.name,
                )  # fmt: skip
            return receiver
        super().connect(receiver, sender, weak)
        if weak and isinstance(receiver, FunctionType) and id(receiver) not in self._unheard:
            watch = weakref.finalize(receiver, self._lost, id(receiver), repr(receiver))
            watch.atexit = False
            self._unheard[id(receiver)] = watch
        return receiver

    def disconnect(self, receiver: Callable[..., Any], sender: Any = ANY) -> None:
        """Disconnect a receiver, from every sender by default."""
        self._heard(receiver)
        super().disconnect(receiver, sender)

    def delivered_to(self, sender: Any) -> list[Callable[..., Any]]:
        """Return the receivers of an event of `sender`, which are about to be called."""
        receivers = list(self.receivers_for(sender))
        for receiver in receivers:
            self._heard(receiver)
        return receivers

    def _heard(self, receiver: Callable[..., Any]) -> None:
        watch = self._unheard.pop(id(receiver), None)
        if watch is not None:
            watch.detach()

    def _lost(self, receiver_id: int, name: str) -> None:
        del self._unheard[receiver_id]
        if "lost" in _warned or sys.is_finalizing():
            return
        _warned.add("lost")
        logger.warning(
            "the receiver %s of %r was deleted before it received an event: signals hold receivers "
            "weakly. Keep a reference to it, or use memory.on(%r, callback), which holds it",
            name, self.name, self.name,
        )  # fmt: skip


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The base of payloads. `remote`: it was replayed from the log, maybe from another process.

    `run` is the metadata that the caller gave with `in_run`, {} for a replayed event.
    """

    session_id: str
    remote: bool = False
    run: dict[str, Any] = msgspec.field(default_factory=_run.get)


class SessionOpened(Event, frozen=True, kw_only=True):
    """A session was created. `metadata` is the caller's; `settings` were in effect then."""

    metadata: dict[str, Any]
    settings: SettingsInEffect


class EntryAdded(Event, frozen=True, kw_only=True):
    """`entry` is in the log."""

    entry: Entry


class CompressionResult(Event, frozen=True, kw_only=True):
    """The result of a compression; if it did nothing, `compression_id` is None and `reason` explains why.

    `tokens_before` and `tokens_after` are those of the window at the commit, with entries added while the
    summarizer worked; `reason` is about the window at the start. `state` is the outline after it: None
    if it is turned off, or if nothing was found for it.
    """

    compression_id: str | None
    tokens_before: int
    tokens_after: int
    reason: str
    replacements: tuple[Replacement, ...] = ()
    cost: Cost = Cost()
    state: State | None = None

    def __repr__(self) -> str:
        """Short enough for a prompt; every field is an attribute."""
        if self.compression_id is None:
            return f"<CompressionResult nothing done, {self.tokens_after:,} tokens: {self.reason}>"
        change = f"{self.tokens_before:,} -> {self.tokens_after:,} tokens"
        kept = f", {self.values_kept:,} of {self.values:,} exact values kept" if self.values else ""
        replaced = f"{len(self.replaced_ids):,} entries replaced"
        return f"<CompressionResult {change}, {replaced}{kept}: {self.reason}>"

    @property
    def tokens_saved(self) -> int:
        """The tokens that left the window."""
        return self.tokens_before - self.tokens_after

    @property
    def replaced_ids(self) -> tuple[str, ...]:
        """The ids of all entries that were replaced."""
        return tuple(entry_id for item in self.replacements for entry_id in item.ids)

    @property
    def summary_id(self) -> str | None:
        """The id of the summary that this compression wrote, if any."""
        return summary_in(self.replacements, self.state)

    @property
    def values(self) -> int:
        """The exact values (paths, identifiers, numbers) in the entries that left the window."""
        return 0 if self.state is None else self.state.values

    @property
    def values_kept(self) -> int:
        """The number of those that the window still shows, in the outline or elsewhere."""
        return 0 if self.state is None else self.state.kept


class PlannedEntry(msgspec.Struct, frozen=True, gc=False):
    """The planned action for one entry of the window, and the reason."""

    entry_id: str
    type: str
    tokens: int
    action: Literal["keep"] | ReplacementMethod
    tokens_after: int
    reason: str


class CompressionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A compression that was planned but not executed; its outline has at most `state_tokens`.

    `bill` is a sentence on what the session's settings do to the bill, "" for the default ones.
    """

    session_id: str
    tokens_before: int
    tokens_after: int
    entries_before: int
    entries_after: int
    target_tokens: int
    state_tokens: int
    asks_summarizer: bool
    entries: tuple[PlannedEntry, ...]
    bill: str = ""

    def __repr__(self) -> str:
        return (
            f"<CompressionPlan {self.session_id}: {self.tokens_before:,} -> {self.tokens_after:,} tokens, "
            f"{self.entries_before:,} -> {self.entries_after:,} entries>"
        )


class Compressing(Event, frozen=True, kw_only=True):
    """A compression is about to begin, by `plan`: a receiver may hold it back, or instruct its summary.

    `automatic` is whether an add made it due; `held`, `focus` and `keep` are what receivers wanted so far.
    """

    plan: CompressionPlan
    automatic: bool
    held: list[str] = []
    focus: list[str] = []
    keep: list[str] = []

    def hold(self, reason: str) -> None:
        """Let nothing be compressed this time; the session's next compression cannot be held back."""
        self.held.append(reason)

    def instruct(self, *, focus: str | None = None, keep: Sequence[str] = ()) -> None:
        """Instruct the summarizer; without one (`plan.asks_summarizer`) nothing follows from it.

        Args:
            focus: a topic that the summary should preserve in detail.
            keep: texts that stand in the summary, word for word.
        """
        self.focus.extend([focus] if focus else ())
        self.keep.extend(keep)


class CompressionUndone(Event, frozen=True, kw_only=True):
    """A compression was undone."""

    compression_id: str


class SessionCleared(Event, frozen=True, kw_only=True):
    """The window was emptied."""


class EntriesDeleted(Event, frozen=True, kw_only=True):
    """Entries were deleted permanently; only their ids are left."""

    ids: tuple[str, ...]


class EntryPinned(Event, frozen=True, kw_only=True):
    """An entry was pinned (`on`) or unpinned."""

    entry_id: str
    on: bool


class SessionConfigured(Event, frozen=True, kw_only=True):
    """Settings of the session changed."""

    changes: dict[str, Any]


class SessionDescribed(Event, frozen=True, kw_only=True):
    """The caller's metadata of the session was replaced."""

    metadata: dict[str, Any]


class Usage(Event, frozen=True, kw_only=True):
    """The usage that a provider reported, with memman's own estimate.

    `charge` is its price in US dollars, None if that is unknown. `broke_cache` is whether the provider had
    lost a part of the previous request's cached prefix. `others` are the provider's further calls for this
    request, such as its own compaction; `charge` has them too.
    """

    model: str | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_written_tokens: int
    estimated: int
    cache_written_1h_tokens: int = 0
    broke_cache: bool = False
    charge: Charge | None = None
    others: tuple[BilledTokens, ...] = ()


class CompressionFailedNotice(Event, frozen=True, kw_only=True):
    """A summarizer failed, its reply was unusable or too long, or an automatic compression failed;
    `fallback` is what was done instead. Nothing was lost.

    `failures` counts failures in a row, and `retry_at` is the end of the pause of the summarizer or of
    automatic compression; 0 and None without a pause. `cost` is that of this compression's calls so far.
    """

    reason: str
    fallback: str
    failures: int = 0
    retry_at: datetime | None = None
    cost: Cost = NO_COST


class CountFellBack(Event, frozen=True, kw_only=True):
    """A counter failed, and the estimator counted instead."""

    counter: str
    reason: str


class MessageAltered(Event, frozen=True, kw_only=True):
    """A message was altered because it could not be stored, or kept whole because it could not be read.

    `entry_id` is that of its first entry.
    """

    entry_id: str
    reason: str


class OverBudget(Event, frozen=True, kw_only=True):
    """The window is above its trigger, and no compression can bring it below."""

    tokens: int
    max_tokens: int
    reason: str


class ContextTrimmed(Event, frozen=True, kw_only=True):
    """A context did not fit its budget, so entries of the window were omitted or cut.

    `entries` are their ids, and `tokens` their tokens with framing. The session was not changed.
    """

    entries: tuple[str, ...]
    tokens: int
    budget: int
    format: str


class TextRecalled(Event, frozen=True, kw_only=True):
    """A context quotes earlier entries behind a message of the user that speaks of them.

    `message_id` is that of the message's entry, `addresses` are the entries', `words` those of the message
    by which they were found. Emitted once, with the first context that has the text.
    """

    message_id: str
    addresses: tuple[str, ...]
    words: tuple[str, ...]
    tokens: int


class CompactionUnreadable(Event, frozen=True, kw_only=True):
    """A context was built for a provider that cannot read another one's sealed compaction.

    It has the originals instead, as far as they fit. `entry_id` is the compaction's; emitted once for a
    format and the window's shape.
    """

    entry_id: str
    format: str


class SessionImported(Event, frozen=True, kw_only=True):
    """A session with so many records was imported.

    `untrusted` names its settings that have no effect until they are trusted.
    """

    records: int
    untrusted: tuple[str, ...] = ()


class SessionForked(Event, frozen=True, kw_only=True):
    """A session with so many records was made as a copy of the session `forked_from`."""

    forked_from: str
    records: int


class SessionDeleted(Event, frozen=True, kw_only=True):
    """A session was deleted with its log."""


class SessionEvicted(Event, frozen=True, kw_only=True):
    """A session was evicted from this process; its store still has it."""


SIGNALS: dict[type[Event], EventSignal] = {}
LOG_SIGNALS: dict[type[Record], EventSignal] = {}
_PAYLOADS: dict[type[Record], type[Event]] = {}


def _signal(name: str, payload: type[Event]) -> EventSignal:
    """Return a new signal of a payload."""
    doc = f"Payload: `{payload.__name__}`. {payload.__doc__}"
    SIGNALS[payload] = signal = EventSignal(name, doc)
    return signal


def _log_event(name: str, payload: type[Event], record: type[Record]) -> EventSignal:
    """Return a new signal of the payload that the records of a kind have."""
    LOG_SIGNALS[record] = signal = _signal(name, payload)
    _PAYLOADS[record] = payload
    return signal


session_opened = _log_event("session:opened", SessionOpened, Opened)
entry_added = _log_event("entry:added", EntryAdded, Added)
compressed = _log_event("compressed", CompressionResult, Compressed)
compression_undone = _log_event("compression:undone", CompressionUndone, Undone)
session_cleared = _log_event("session:cleared", SessionCleared, Cleared)
entries_deleted = _log_event("entries:deleted", EntriesDeleted, Deleted)
entry_pinned = _log_event("entry:pinned", EntryPinned, Pinned)
session_configured = _log_event("session:configured", SessionConfigured, Configured)
session_described = _log_event("session:described", SessionDescribed, Described)
usage_reported = _log_event("usage:reported", Usage, UsageReported)

compressing = _signal("compressing", Compressing)
compression_failed = _signal("compression:failed", CompressionFailedNotice)
count_fell_back = _signal("count:fell-back", CountFellBack)
message_altered = _signal("message:altered", MessageAltered)
over_budget = _signal("over-budget", OverBudget)
context_trimmed = _signal("context:trimmed", ContextTrimmed)
text_recalled = _signal("text:recalled", TextRecalled)
compaction_unreadable = _signal("compaction:unreadable", CompactionUnreadable)
session_imported = _signal("session:imported", SessionImported)
session_forked = _signal("session:forked", SessionForked)
session_deleted = _signal("session:deleted", SessionDeleted)
session_evicted = _signal("session:evicted", SessionEvicted)

EventName = Literal[
    "session_opened",
    "entry_added", "compressed", "compression_undone", "session_cleared", "entries_deleted",
    "entry_pinned", "session_configured", "session_described", "usage_reported",
    "add", "compress", "clear",
    "compressing", "compression_failed", "count_fell_back",
    "message_altered", "over_budget", "context_trimmed", "text_recalled", "compaction_unreadable",
    "session_imported", "session_forked", "session_deleted", "session_evicted",
    "session:opened",
    "entry:added", "compression:undone", "session:cleared", "entries:deleted", "entry:pinned",
    "session:configured", "session:described", "usage:reported", "compression:failed", "count:fell-back",
    "message:altered", "over-budget", "context:trimmed", "text:recalled", "compaction:unreadable",
    "session:imported", "session:forked", "session:deleted", "session:evicted",
]  # fmt: skip
"""The names that `memory.on` takes: of the signals as in this module, or as `signal.name`.

`add`, `compress` and `clear` are `entry_added`, `compressed` and `session_cleared`.
"""
E = TypeVar("E", bound=Event)


class Subscription:
    """A callback that receives one event of one manager, until `off`."""

    def __init__(
        self,
        signal: EventSignal,
        sender: Any,
        callback: Callable[[Any], object],
        kept: set[Subscription],
    ) -> None:
        self._signal, self._callback, self._kept = signal, callback, kept
        # The manager holds it: held by the signal, it would keep the manager alive.
        kept.add(self)
        signal.connect(self, sender=sender)

    def __call__(self, _sender: Any, *, event: Any) -> object:
        return self._callback(event)

    def __repr__(self) -> str:
        return f"<{self._callback!r} on {self._signal.name!r}>"

    def off(self) -> None:
        """End the subscription. Calling it again does nothing."""
        self._kept.discard(self)
        self._signal.disconnect(self)


def _accepts(function: Callable[..., Any], *args: Any, **keywords: Any) -> bool:
    """Return whether a function takes these arguments, as far as its signature is known."""
    try:
        inspect.signature(function).bind(*args, **keywords)
    except TypeError:
        return False
    except ValueError:  # a function written in C may have no signature
        return True
    return True


def subscribe(
    event: str | type[Event],
    callback: Callable[[Any], object],
    sender: Any,
    kept: set[Subscription],
) -> Subscription:
    """Call `callback(event)` for the events of one sender, as long as `kept` holds the subscription.

    Raises `InvalidInput` for an unknown event, and for a callback that does not take one argument.
    """
    if not callable(callback):
        raise InvalidInput(f"callback must be callable, not {type(callback).__name__}")
    if not _accepts(callback, None):
        raise InvalidInput(
            f"{callback!r} cannot be called as callback(event): define it with one argument"
        )
    return Subscription(_signal_named(event), sender, callback, kept)


def _signal_named(event: Any) -> EventSignal:
    """Return the signal of a payload type or of a name, in either style."""
    if isinstance(event, type) and event in SIGNALS:
        return SIGNALS[event]
    by_name = {_in_python(signal.name): signal for signal in SIGNALS.values()}
    by_name.update(add=entry_added, compress=compressed, clear=session_cleared)
    found = by_name.get(_in_python(event)) if isinstance(event, str) else None
    if found is None:
        raise InvalidInput(f"unknown event {safe_repr(event, 60)}{known_names(event, by_name)}")
    return found


def _in_python(name: str) -> str:
    return name.replace(":", "_").replace("-", "_")


Settle = Callable[[Callable[..., Any], Awaitable[Any]], Awaitable[None]]
"""Handles the awaitable of an async receiver: `AsyncMemoryManager` awaits it, `MemoryManager` skips it."""


class Emission:
    """The delivery of one event to its receivers, each of which is called at most once.

    After an interruption in a receiver, delivery can continue with the next one.
    """

    __slots__ = ("_left", "_sender", "event")

    def __init__(self, sender: Any, event: Event) -> None:
        self.event = event
        self._sender = sender
        self._left = iter(SIGNALS[type(event)].delivered_to(sender))

    async def go_on(self, settle: Settle) -> None:
        """Call the remaining receivers; an error of one is logged and does not affect the others."""
        for receiver in self._left:
            try:
                answer = receiver(self._sender, event=self.event)
                if inspect.isawaitable(answer):
                    await settle(receiver, answer)
            except BaseException as error:
                if not isinstance(error, Exception) and not _is_from_within(error):
                    raise
                logger.exception("receiver %r of %s raised", receiver, type(self.event).__name__)


async def emit(sender: Any, event: Event, settle: Settle) -> None:
    """Call every receiver."""
    await Emission(sender, event).go_on(settle)


def _is_from_within(error: BaseException) -> bool:
    """Return whether the receiver was cancelled by its own awaitable, and not with its caller."""
    if not is_cancellation(error):
        return False
    import asyncio

    try:
        task = asyncio.current_task()
    except RuntimeError:  # without an event loop the caller cannot be cancelled
        return True
    return task is None or not task.cancelling()


def replay(items: Iterable[FeedItem], *, sender: Any = None) -> str | None:
    """Emit the events of the records of a feed in this process, marked `remote`.

    An error of a receiver is logged; an async receiver is skipped (`areplay` awaits it).

    Args:
        items: those of `memory.feed(...)` or `memory.follow(...)`.
        sender: the sender of the events; receivers that were connected to another one are not called.

    Returns:
        The cursor of the last item; None without items.
    """
    cursor = None
    for item in items:
        drive(emit(sender, _remote(item), skip))
        cursor = item.cursor
    return cursor


async def areplay(
    items: Iterable[FeedItem] | AsyncIterable[FeedItem], *, sender: Any = None
) -> str | None:
    """Emit as `replay` does, and await async receivers, one after the other."""
    cursor = None
    if isinstance(items, AsyncIterable):
        async for item in items:
            await emit(sender, _remote(item), await_receiver)
            cursor = item.cursor
    else:
        for item in items:
            await emit(sender, _remote(item), await_receiver)
            cursor = item.cursor
    return cursor


def _remote(item: FeedItem) -> Event:
    if not isinstance(item, FeedItem):
        raise InvalidInput(f"replay takes the items of a feed, not {type(item).__name__}")
    event = event_of(item.session_id, item.seq, item.record)
    return msgspec.structs.replace(event, remote=True, run={})


def as_ag_ui(event: Event) -> dict[str, Any]:
    """Return an event as an event of the type CUSTOM of the AG-UI protocol, ready for JSON.

    Its name is `memman.` and that of the signal, such as `memman.compressed`; `value` has the fields
    without the texts of a whole window: `replacements`, `state` and the entries of a plan.
    """
    value = msgspec.json.decode(msgspec.json.encode(event, enc_hook=str))
    value.get("plan", {}).pop("entries", None)
    kept = {name: value[name] for name in value if name not in ("replacements", "state")}
    return {"type": "CUSTOM", "name": f"memman.{SIGNALS[type(event)].name}", "value": kept}


def event_of(session_id: str, seq: int, record: Record) -> Event:
    """Return the log event of a record."""
    match record:
        case Added(entry):
            added = msgspec.structs.replace(entry, seq=seq)
            return EntryAdded(session_id=session_id, entry=added)
        case Compressed():
            return result_of(session_id, record)
    payload = _PAYLOADS[type(record)]
    return payload(session_id=session_id, **_shared(record, payload))


def result_of(session_id: str, record: Compressed) -> CompressionResult:
    """Return the result of a recorded compression."""
    return CompressionResult(
        session_id=session_id, compression_id=record.id, **_shared(record, CompressionResult)
    )


def _shared(record: Record, payload: type[Event]) -> dict[str, Any]:
    """Return the fields of a record that its event has too."""
    names = type(record).__struct_fields__
    return {name: getattr(record, name) for name in payload.__struct_fields__ if name in names}
