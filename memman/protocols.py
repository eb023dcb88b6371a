"""The protocols of ports: stores, formats, summarizers and counters.

A port may be sync or async. `AsyncMemoryManager` awaits both kinds, and runs a blocking one (`blocking =
True` on the object) on a worker thread; `MemoryManager` refuses an async one when it is passed.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from memman.display import safe_repr
from memman.entries import Accuracy, Entry, NewEntry
from memman.errors import InvalidInput
from memman.records import Added, Record, SessionTotals

T = TypeVar("T")
MaybeAwaitable: TypeAlias = T | Awaitable[T]
"""The return type of a method that may be sync or async."""

# ---------------------------------------------------------------- store


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The result of a write: the seq of each record, in order, the head, and the epoch.

    `fresh` is the number of new records; a retry adds none and returns the first seqs again.
    """

    seqs: tuple[int, ...]
    head: int
    epoch: int
    fresh: int


class StoredItem(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One item of a window as a store keeps it.

    `seq` is that of its record, `index` the position among that record's replacements (-1 for an added
    entry, -2 for the record's outline), and `position` the place in the window's order.
    """

    seq: int
    index: int
    position: int
    pinned: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a stored session: everything needed to continue it, without its history."""

    head: int
    epoch: int
    window: tuple[tuple[StoredItem, Record], ...]
    totals: SessionTotals


class SessionInfo(msgspec.Struct, frozen=True):
    """A session in the list of sessions.

    `created_at` is the time of its first record, `last_active_at` that of the newest entry. `entries` and
    `tokens` count what was added since the last clear. `metadata` is the caller's. `first_line` is that of
    the first user message since the last clear, at most 200 characters; "" if that message was deleted and
    no later one was added since.
    """

    session_id: str
    created_at: datetime
    last_active_at: datetime
    entries: int
    tokens: int
    metadata: dict[str, Any] = {}
    first_line: str = ""


class FeedItem(msgspec.Struct, frozen=True):
    """One record of a feed: its session and seq, and the `cursor` from which to continue after it."""

    session_id: str
    seq: int
    record: Record
    cursor: str


class Store(Protocol):
    """The part that every store has. `memman.testing.StoreConformance` has each law as a test.

    A store numbers the records of a session 1, 2, 3 ... without gaps. It keeps the window as a list
    of items up to a floor; the window is that list plus every `Added` record after the floor.

    Further methods are optional, one protocol each: `SupportsState`, `SupportsFind`, `SupportsSessions`,
    `SupportsFeed`, `SupportsLease`, `SupportsErase`, `SupportsSearch` and `SupportsVectors`.
    """

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        """Append records atomically; a record whose id is known keeps its first seq.

        After a clear the ids of entries are free again: an `Added` is new if its id is only in an earlier
        era. So is the id of a retracted entry: an `Added` is new if the newest record that names its id
        retracts it (`records.ids_retracted_by`); an undo or a deletion names it again. The ids of
        replacements count as known, too.

        Raises `StoreConflict` if `expect_head` is given and is not the head.
        """

    def commit(
        self,
        session_id: str,
        epoch: int,
        records: Sequence[Record],
        window: Sequence[StoredItem],
        floor: int,
        *,
        expect_head: int | None = None,
    ) -> Appended:
        """Append records and replace the window, in one transaction, if `epoch` is still current.

        Otherwise raises `StoreConflict` and changes nothing. `window` covers the log up to `floor`. An item
        whose `seq` is zero or negative refers to a record of this commit: 0 is the first of `records`, -1
        the second. The epoch grows by one. A retry (the first record's id is known) gets the first answer.

        `records` may create its records while it is iterated: a long import reads them from the disk. So a
        store with its data outside the process iterates once, in order, and holds few at a time. If the
        iteration raises, nothing is changed.
        """

    def load(self, session_id: str) -> Snapshot | None:
        """Return the session's snapshot, or None if there is no such session."""

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        """Return the records with seq > `after`, in order, at most `limit`."""

    def delete(self, session_id: str) -> bool:
        """Remove a session with its log, and return whether there was one.

        A later session of the same id must never show a (head, epoch) that the removed one showed. To
        `commit`, epoch 0 means a session that does not exist.
        """

    def close(self) -> None:
        """Free the store's resources."""


class AsyncStore(Protocol):
    """A `Store` of coroutines, for `AsyncMemoryManager`: the same arguments and laws."""

    # fmt: off
    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Awaitable[Appended]: ...
    def commit(
        self, session_id: str, epoch: int, records: Sequence[Record], window: Sequence[StoredItem],
        floor: int, *, expect_head: int | None = None,
    ) -> Awaitable[Appended]: ...
    def load(self, session_id: str) -> Awaitable[Snapshot | None]: ...
    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Awaitable[Sequence[tuple[int, Record]]]: ...
    def delete(self, session_id: str) -> Awaitable[bool]: ...
    def close(self) -> Awaitable[None]: ...
    # fmt: on


class SupportsState(Protocol):
    """A store that returns a session's head and epoch without its window."""

    def state(self, session_id: str) -> MaybeAwaitable[tuple[int, int] | None]:
        """Return (head, epoch), or None: a shared store is queried at each operation."""


class SupportsFind(Protocol):
    """A store with an index of ids."""

    def find(
        self, session_id: str, ids: Sequence[str]
    ) -> MaybeAwaitable[Sequence[tuple[int, Record]]]:
        """Return every record that names one of these ids, of any era, in log order.

        These are the records with such an id, the compressions that made or hid such an entry, the
        deletions of one, and the undos that restored a retracted one (`records.ids_made_by` and
        `records.ids_moved_by`).
        """


class SupportsSessions(Protocol):
    """A store that lists its sessions."""

    def sessions(self, prefix: str = "") -> MaybeAwaitable[Iterable[SessionInfo]]:
        """Return the sessions whose ids begin with `prefix`, in the order in which they began.

        The cost is that of these sessions, not of their logs.
        """


class SupportsFeed(Protocol):
    """A store whose sessions can be followed all at once."""

    def feed(self, after: str = "", limit: int = 1_000) -> MaybeAwaitable[Sequence[FeedItem]]:
        """Return the records of every session that were committed behind a cursor, at most `limit`.

        "" is the beginning. A reader that continues behind the last cursor gets every record once, those of
        a session in the order of its log, even while others write: no later commit ever gets a place before
        a cursor that was returned. The records of a deleted session are gone.

        Raises `InvalidInput` for a cursor that this store did not return, as far as it can detect that.
        """


class SupportsLease(Protocol):
    """A store with leases, so that only one process pays for a summary."""

    def lease(self, session_id: str, holder: str, seconds: float) -> MaybeAwaitable[bool]:
        """Take or prolong, for `seconds` from now, the right to pay for a summary of a session.

        Returns False while another holds it, or if there is no such session. With 0 seconds the holder
        gives it back. A lease saves money; safety never depends on it.
        """


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A search in a store for the entries of some sessions that contain some of the `terms`.

    A term is a piece of text without white space, in lower case (`memman.search.terms_of` makes them):
    a word, a number, a path, a sign. Nothing in it has a meaning as syntax. The scope is one session, or
    with `session_id=None` every session whose id begins with `prefix`. `limit` is the most candidates.
    With `until`, which one session alone can have, nothing behind this seq counts or is found.
    """

    terms: tuple[str, ...]
    session_id: str | None = None
    prefix: str = ""
    limit: int = 200
    until: int | None = None

    def covers(self, session_id: str, seq: int = 0) -> bool:
        """Return whether a session, or its record at `seq`, is in scope."""
        if self.until is not None and seq > self.until:
            return False
        if self.session_id is None:
            return session_id.startswith(self.prefix)
        return session_id == self.session_id


class Candidate(msgspec.Struct, frozen=True):
    """An entry that contains some of the terms.

    `weights` has a number for each term: 1.0 if the entry contains it as a word or phrase, 0.5 as a part
    of a word, 0.0 if it does not.
    """

    session_id: str
    seq: int
    record: Added
    weights: tuple[float, ...]


class Candidates(msgspec.Struct, frozen=True):
    """The answer to a `SearchRequest`.

    `entries` is about the number of entries in scope, `counts` for each term that of the entries that
    contain it; a store may stop counting. `found` begins with entries of many and of rare terms. It may
    have fewer than requested although there is `more`, if they are long.
    """

    entries: int
    counts: tuple[int, ...]
    found: Sequence[Candidate]
    more: bool = False


class SupportsSearch(Protocol):
    """A store with a full-text index."""

    def search(self, request: SearchRequest) -> MaybeAwaitable[Candidates]:
        """Return entries of every era that contain some of the terms, retracted ones too.

        An entry is found by `memman.search.searchable(entry)`, in scripts without spaces by pairs of
        characters. A deleted entry is never found, nor one of another tenant; an entry is found as soon as
        its append returned.
        """


Embed: TypeAlias = Callable[[Sequence[str]], MaybeAwaitable[Sequence[Sequence[float]]]]
"""Returns a vector of floats for each text; all have the same length."""


class SupportsVectors(Protocol):
    """A store that keeps the vectors of entries, which are derived from their texts."""

    def vectors(
        self, session_id: str, embed: str, until: int, limit: int
    ) -> MaybeAwaitable[Sequence[tuple[int, bytes]]]:
        """Return (seq, vector) for entries up to a seq, the newest first, at most `limit`.

        `embed` is the name of what made them; there are none of another one, and none of deleted entries.
        """

    def keep_vectors(
        self, session_id: str, embed: str, epoch: int, rows: Sequence[tuple[int, bytes]]
    ) -> MaybeAwaitable[bool]:
        """Keep vectors, in place of any by another `embed`, and return True.

        If the session's epoch is another one, entries may have been deleted: returns False.
        """


class SupportsErase(Protocol):
    """A store that can overwrite payloads."""

    def erase(
        self,
        session_id: str,
        epoch: int,
        record: Record,
        window: Sequence[StoredItem],
        floor: int,
        ids: frozenset[str],
    ) -> MaybeAwaitable[Appended]:
        """Commit a deletion and overwrite the payloads of `ids` with tombstones, in one transaction.

        As `commit` with one record. `ids` names entries and replacements, in every era, and records whose
        outline has something of them (`records.tombstone`). No copy of the payloads stays behind.
        """


# ---------------------------------------------------------------- summarizer


class RequestPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """The session's last request, in its message format: the fields of its `Context`, with cache marks."""

    format: str
    messages: list[dict[str, Any]]
    system: Any = None
    tools: list[Any] | None = None
    prompt_cache_key: str | None = None


class SummaryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a summarizer: `prompt` is complete; the other fields are for prompts of one's own.

    `timeout` is in seconds, None without a limit. A slower call is abandoned, so it should end by then.
    `content` is the conversation in the prompt: the previous summary and the entries, as attributed quotes
    between delimiters that the quotes cannot imitate.

    `prefix` is set for a summarizer with `prefix_formats` if the provider still has the session's last
    request in its cache. A request of these very parts with `instruction` as one more message of the user
    asks for the same summary as `prompt`.
    """

    prompt: str
    entries: tuple[Entry, ...]
    previous_summary: str | None
    target_tokens: int
    focus: str | None = None
    timeout: float | None = None
    content: str = ""
    prefix: RequestPrefix | None = None
    instruction: str = ""


class SummaryUsage(msgspec.Struct, frozen=True):
    """The billed tokens of one call.

    The input includes `cached_tokens`, read from the provider's cache, and `cache_written_tokens`, of which
    `cache_written_1h_tokens` are kept for an hour.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    cache_written_1h_tokens: int = 0


class SummaryReply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply of a summarizer.

    `truncated`: the provider cut it off at its output limit. `refused`: the model declined, or a filter
    stopped it. `calls_tool`: the model called a tool. None is accepted as a summary. `usage` and `model`
    are the provider's, if reported.
    """

    text: str
    model: str | None = None
    usage: SummaryUsage | None = None
    truncated: bool = False
    refused: bool = False
    calls_tool: bool = False


@runtime_checkable
class Summarizer(Protocol):
    """Writes summaries. `memman.testing.SummarizerConformance` tests its laws.

    A summarizer may limit the input of one call by `max_input_tokens: int`, or by `model: str`
    (`anthropic/claude-haiku-4-5`), whose known limits then apply. A longer input is split into several
    calls, and the results are merged. It may raise any error: the compression reports it and continues.

    One with `prefix_formats: tuple[str, ...]`, the message formats that its provider reads, and `model`
    may get a `SummaryRequest.prefix`: the last request of a session with the same model.
    """

    def summarize(self, request: SummaryRequest) -> SummaryReply | Awaitable[SummaryReply]:
        """Return the requested summary, within the timeout."""


SummarizeCallback = Callable[[str], str | Awaitable[str]]
"""A function that writes a summary for a prompt; an async one needs `AsyncMemoryManager`."""

# ---------------------------------------------------------------- counting


class ModelRef(msgspec.Struct, frozen=True):
    """A model, parsed from any spelling of its name.

    `name` is its vendor's name, in lower case, without provider prefix, Bedrock's packaging version or the
    suffix of a fine-tune; `given` is the original spelling, as the provider's API accepts it. `provider`
    serves it (`openai`, `azure`, `azure_ai`, `anthropic`, `bedrock`, `gemini`, `vertex_ai`, `openrouter`
    ...; else the text before the last `/`), None if the spelling has none. `family` is one of
    `memman.counting.families()`, or "" if unknown; `region` is that of a cloud's inference profile (`us`,
    `eu`) or endpoint (`us-east-1`), if the spelling has one.
    """

    name: str
    provider: str | None = None
    given: str = ""
    family: str = ""
    region: str | None = None


class PriceTier(msgspec.Struct, frozen=True, kw_only=True):
    """The prices of a whole request with more than `above` input tokens; the units are `Prices`'s."""

    above: int
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None

    def __post_init__(self) -> None:
        if type(self.above) is not int or self.above <= 0:
            raise InvalidInput(
                f"a tier begins above a number of tokens, not {safe_repr(self.above)}"
            )
        _check_amounts(self)


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """A model's prices in US dollars per million tokens, with their source and date.

    `cache_read` is the price of input that is read from the provider's cache. `cache_write` is that of
    input that is written to it for five minutes, or without a stated lifetime, `cache_write_1h` for an
    hour. None means that this price is unknown: a request that needs it has no price. `tiers` are the
    prices of longer requests, the shortest first.

    Raises `InvalidInput` for a price that is not a finite number from 0 on, or tiers out of order.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    tiers: tuple[PriceTier, ...] = ()
    source: str = ""
    date: str = ""

    def __post_init__(self) -> None:
        _check_amounts(self)
        if type(self.tiers) is not tuple or any(type(each) is not PriceTier for each in self.tiers):
            raise InvalidInput(
                f"tiers must be a tuple of PriceTier, not {safe_repr(self.tiers, 60)}"
            )
        bounds = [tier.above for tier in self.tiers]
        if bounds != sorted(set(bounds)):
            raise InvalidInput(f"tiers must be in the order of their bounds, not {bounds}")

    def at(self, input_tokens: int) -> Prices | PriceTier:
        """Return the prices of a request with so many input tokens: its tier's, or these."""
        reached = [tier for tier in self.tiers if input_tokens > tier.above]
        return reached[-1] if reached else self


def _check_amounts(prices: Prices | PriceTier) -> None:
    for name in ("input", "output", "cache_read", "cache_write", "cache_write_1h"):
        value = getattr(prices, name)
        if value is None and name.startswith("cache"):
            continue
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise InvalidInput(
                f"a price is in US dollars per million tokens, from 0 on: {name} is {safe_repr(value)}"
            )


class ModelInfo(msgspec.Struct, frozen=True):
    """A model's limits in tokens, with their source and date, and its prices if they are known.

    `source` begins with "assumed" if they are those of the model's family or a server's default. `binds` is
    whether the model refuses a thought if something before it has changed since; None to decide by the
    model's name: Claude 5.1 and newer do.
    """

    context: int
    max_input: int
    max_output: int
    source: str = ""
    date: str = ""
    prices: Prices | None = None
    binds: bool | None = None

    @property
    def limits(self) -> tuple[int, int, int]:
        """The limits in the order of the fields: context, input, reply."""
        return self.context, self.max_input, self.max_output


@runtime_checkable
class LocalCounter(Protocol):
    """Counts texts in this process: pure, thread-safe, without waiting."""

    @property
    def fingerprint(self) -> str:
        """An id of the counter that is stored with each count; it changes when the counts change."""

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, in order."""


@runtime_checkable
class RemoteCounter(Protocol):
    """Counts a whole request over a network, in the format that its `CounterSpec` names.

    `rendered` has `model`, `messages`, `system` (None or text) and `tools` (a list, maybe empty), in the
    provider's own shape. Errors of the SDK may pass: the caller handles them, caches and falls back.

    A method `ready()` may raise `CounterUnavailable` if a key or a setting is missing, without a request:
    the command then lists the counter with that reason.
    """

    fingerprint: str

    def count_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:
        """Return the billed input tokens, or raise an error, within `timeout` seconds."""

    def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> Awaitable[int]:
        """Do the same, awaited, for `AsyncMemoryManager`."""


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that a provider's models add to the texts of a request.

    A request costs `request`, plus `message` for each message, `call` for each tool call in addition to
    its name and arguments, and `result` for each tool result; with tools, also `preamble` plus `tools`
    times the tokens of their compact JSON. `source` and `date` are those of the numbers.
    """

    request: float
    message: float
    call: float = 0.0
    result: float = 0.0
    tools: float = 1.0
    preamble: float = 0.0
    source: str = ""
    date: str = ""


class CounterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a counter: cheap to create and to list, without importing an SDK.

    `match(model)` returns 0 for no match, and more for a more specific one. `factory(model)` creates the
    counter, imports its SDK, and may raise `CounterUnavailable(reason)`.
    """

    name: str
    match: Callable[[ModelRef], int]
    factory: Callable[[ModelRef], Any]
    remote: bool = False
    accuracy: Accuracy = "high"
    format: str | None = None


# ---------------------------------------------------------------- formats


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call with its result, None if it has none yet.

    `wire_id` is the call's own id, or a generated one, unique within its message; `unique_id` is unique
    within the request. The result of a `beside` call is in a message of the assistant, as that of the
    provider's own tools, or it is still awaited from the provider.
    """

    entry: Entry
    wire_id: str
    unique_id: str
    result: Entry | None
    beside: bool = False


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A step of a conversation, valid by construction; a format only renders it.

    `assistant`: `entries` are the texts of one assistant message, `calls` its tool calls in order;
    `answers` are those with results in messages of their own, in the order of the results; `beside` are
    the calls, also of earlier messages, whose results are in this message. Every other kind has one entry:
    `orphan` is a tool result whose call is not in the context, and `state` the session's outline.
    `result`, only for formats with `results_anywhere`, is a result with its call in `answers`, which the
    assistant's turn then omits. `nonce` is the session's, for the delimiters of quoted text, or "".
    """

    kind: Literal["system", "user", "assistant", "context", "summary", "state", "orphan", "result"]
    entries: tuple[Entry, ...]
    calls: tuple[Call, ...] = ()
    answers: tuple[Call, ...] = ()
    nonce: str = ""
    beside: tuple[Call, ...] = ()


class Rendered(msgspec.Struct, frozen=True, gc=False):
    """One turn as a provider's messages, with the cost of framing and added texts.

    `framing` is in tokens, by the provider's formula. `extras` are memman's headings and placeholders, with
    each digit as 9 so that they recur; the caller counts them. `sources` are the entries behind each
    message. A format may leave them out if the first message is the assistant's, and the results have one
    message each or one together.
    """

    messages: tuple[dict[str, Any], ...]
    framing: int
    extras: tuple[str, ...] = ()
    sources: tuple[tuple[Entry, ...], ...] = ()


class Format(Protocol):
    """A message format of a provider or framework.

    `request_framing` is the cost of a request without messages, `message_framing` that of a plain message
    without its text, and `edges` are the texts that `frame` may add, each counted as a message. With
    `inline_system` False, the leading system messages are passed separately; with `joins` False, `join` is
    never called. `results_anywhere = True` means that the provider accepts a result anywhere after its
    call, so that results keep their place; otherwise they follow the message with their calls.
    `results_beside = True` means that results of the provider's own tools are in the assistant's message,
    and `pauses = True` that a request may end with a call of such a tool, which the provider then runs.
    `nameless = True` means that the provider refuses speakers' names, also those that came so.
    """

    name: str
    request_framing: int
    message_framing: int
    joins: bool
    edges: tuple[str, ...]
    inline_system: bool

    def detect(self, messages: Sequence[Any]) -> int:
        """Return how certainly the messages are of this format; the format with the highest number wins.

        0: not at all; 1: plain roles and texts, as in other formats; 3 and more: keys of this format alone.
        """

    def parse(self, messages: Sequence[Any]) -> list[NewEntry]:
        """Return the entries of the messages, in order, each with the index of its message.

        Every message has at least one entry, unless another message removes it. Raises `FormatError` that
        names the message.
        """

    def render(self, turn: Turn) -> Rendered:
        """Return the messages of one turn."""

    def join(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any] | None:
        """Return two neighbours as one new message if the format requires that, else None.

        Joining is associative: a joined message is joined with its neighbours again.
        """

    def frame(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return all messages of a request, with those that the format requires first or last."""


@runtime_checkable
class SupportsRestore(Protocol):
    """A format that renders some turns otherwise in a context than its messages were.

    `get_messages` uses it. Without it, a message is restored as `render` writes it.
    """

    def restore(self, turn: Turn) -> Sequence[dict[str, Any]] | None:
        """Return the messages that a turn was parsed from, without repair; None if they are rendered so.

        A turn of the kind `assistant` has no answers, and one of the kind `result` only results.
        """


class CachePlace(msgspec.Struct, frozen=True, gc=False):
    """A place for a cache mark: behind the first `blocks` blocks of a message; None: behind its last."""

    message: int
    blocks: int | None = None


class CacheRequest(msgspec.Struct, frozen=True):
    """What decides about marks: the model, if it is known, and the cache's lifetime in seconds."""

    model: ModelRef | None
    ttl: float


@runtime_checkable
class SupportsCacheMarks(Protocol):
    """A format whose provider caches only the prefixes that a request marks.

    Both methods may change what they are given. They replace marks that it already has, for a provider
    accepts only a few. A format without them gets no marks.
    """

    def mark_messages(
        self, messages: list[dict[str, Any]], places: Sequence[CachePlace], request: CacheRequest
    ) -> None:
        """Mark up to three places, or the nearest block before each one that the provider accepts."""

    def mark_head(
        self, system: str | None, tools: list[dict[str, Any]] | None, request: CacheRequest
    ) -> tuple[Any, list[dict[str, Any]] | None]:
        """Return the system prompt and the tools with one mark: behind both, or behind the tools alone."""
