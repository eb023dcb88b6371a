"""The seams: what memman asks of a store, a format, a summarizer and a counter.

A port may be sync or async. The async door awaits either kind, and sends a blocking one (`blocking =
True` on the object) to a worker thread; the sync door refuses an async one when it is handed over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from memman.entries import Accuracy, Entry, NewEntry
from memman.records import Record, SessionTotals

T = TypeVar("T")
MaybeAwaitable: TypeAlias = T | Awaitable[T]
"""The return type of a method that may be sync or async."""

# ---------------------------------------------------------------- store


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The answer to a write: the seq of each record, in order, the head, and the epoch.

    `fresh` is how many of the records were new; a retry adds nothing and gets the first seqs again.
    """

    seqs: tuple[int, ...]
    head: int
    epoch: int
    fresh: int


class StoredItem(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One slot of a window as a store keeps it.

    `seq` is its record's place in the log, `index` the place among that record's replacements (-1
    for an added entry), `position` where it stands in the window's order.
    """

    seq: int
    index: int
    position: int
    pinned: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """A session as a store has it: everything needed to go on, and nothing of its history."""

    head: int
    epoch: int
    window: tuple[tuple[StoredItem, Record], ...]
    totals: SessionTotals


class SessionInfo(msgspec.Struct, frozen=True):
    """One line of a list of sessions."""

    session_id: str
    head: int
    entries: int
    tokens: int


class FeedItem(msgspec.Struct, frozen=True):
    """One record of a feed: where it stands, and the `cursor` to go on behind it."""

    session_id: str
    seq: int
    record: Record
    cursor: str


class Store(Protocol):
    """The part that every store has. `memman.testing.StoreConformance` has each law as a test.

    A store numbers the records of a session 1, 2, 3 ... without gaps. It keeps the window as a list
    of items up to a floor; the window is that list plus every `Added` record after the floor.

    Further methods are optional, one protocol each: `SupportsState`, `SupportsFind`, `SupportsSessions`,
    `SupportsFeed`, `SupportsLease` and `SupportsErase`.
    """

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        """Append records atomically; a record whose id is known keeps its first seq.

        After a clear the ids of entries are free again: an `Added` is new if its id is only in an earlier
        era. The ids of replacements count as known, too.

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

        These are the records with such an id, the compressions that made or hid such an entry, and the
        deletions of one (`records.ids_made_by` and `records.ids_hidden_by`).
        """


class SupportsSessions(Protocol):
    """A store that lists its sessions."""

    def sessions(self) -> MaybeAwaitable[Iterable[SessionInfo]]:
        """Return every session, in the order in which they began."""


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
    """A store whose users agree on who pays for a summary."""

    def lease(self, session_id: str, holder: str, seconds: float) -> MaybeAwaitable[bool]:
        """Take or prolong, for `seconds` from now, the right to pay for a summary of a session.

        Returns False while another holds it, or if there is no such session. With 0 seconds the holder
        gives it back. A lease saves money; safety never depends on it.
        """


class SupportsErase(Protocol):
    """A store that can overwrite what it has written."""

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

        As `commit` with one record. `ids` names entries and replacements, in every era
        (`records.tombstone`). No copy of the payloads stays behind.
        """


# ---------------------------------------------------------------- summarizer


class SummaryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a summarizer is asked: `prompt` is complete; the rest is for those who build their own.

    `timeout` is how many seconds the answer may take, None without a limit. Whoever is slower is left
    behind, so what costs should end by then.
    `content` is what the prompt has of the conversation: the previous summary and the entries as quoted,
    attributed text between our delimiters, which nothing in it can imitate.
    """

    prompt: str
    entries: tuple[Entry, ...]
    previous_summary: str | None
    target_tokens: int
    focus: str | None = None
    timeout: float | None = None
    content: str = ""


class SummaryUsage(msgspec.Struct, frozen=True):
    """What a provider billed for one call, in tokens; cached ones are part of the input."""

    input_tokens: int = 0
    output_tokens: int = 0


class SummaryReply(msgspec.Struct, frozen=True, kw_only=True):
    """A summarizer's answer.

    `truncated` when the provider cut it off at its output limit, `refused` when it declined or its filter
    stopped it; neither is taken for a summary. `usage` and `model` are what the provider said, None where
    it did not.
    """

    text: str
    model: str | None = None
    usage: SummaryUsage | None = None
    truncated: bool = False
    refused: bool = False


@runtime_checkable
class Summarizer(Protocol):
    """Turns a request into a summary. `memman.testing.SummarizerConformance` holds the laws.

    A summarizer may say in `max_input_tokens: int` how much it takes in one call, or in `model: str` which
    model it asks (`anthropic/claude-haiku-4-5`), whose known limits then hold. A longer input comes in
    several calls that are merged. It raises what it likes: the compression tells of it and goes on.
    """

    def summarize(self, request: SummaryRequest) -> SummaryReply | Awaitable[SummaryReply]:
        """The summary that `request` asks for, within its time-out."""


SummarizeCallback = Callable[[str], str | Awaitable[str]]
"""Writes a summary for a prompt; an async one is for `AsyncMemoryManager`."""

# ---------------------------------------------------------------- counting


class ModelRef(msgspec.Struct, frozen=True):
    """A model, whatever its spelling was.

    `name` is what its vendor calls it, in lower case, without provider prefix, Bedrock's packaging
    version or a fine-tune's tail; `given` is the spelling itself, which is what the server's API takes.
    `provider` is who serves it (`openai`, `azure`, `azure_ai`, `anthropic`, `bedrock`, `gemini`,
    `vertex_ai`, `openrouter` ...; else what stood before the last `/`), None where the spelling does not
    say. `family` is one of `memman.counting.FAMILIES`, "" where it is unknown; `region` is that of a
    cloud's inference profile (`us`, `eu`) or of its endpoint (`us-east-1`), where the spelling has one.
    """

    name: str
    provider: str | None = None
    given: str = ""
    family: str = ""
    region: str | None = None


class ModelInfo(msgspec.Struct, frozen=True):
    """A model's limits in tokens, with where and when they were learned."""

    context: int
    max_input: int
    max_output: int
    source: str = ""
    date: str = ""


@runtime_checkable
class LocalCounter(Protocol):
    """Counts texts in this process: pure, thread-safe, never waits for anything."""

    @property
    def fingerprint(self) -> str:
        """What is stored with each count; another one where the numbers are others."""

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text, in order: as many whole numbers, none negative."""


@runtime_checkable
class RemoteCounter(Protocol):
    """Prices a whole request over a network, in the format that its `CounterSpec` names.

    `rendered` has `model`, `messages`, `system` (None or text) and `tools` (a list, maybe empty), in
    the provider's own shape. Raises whatever its SDK raises: the caller maps, caches and falls back.

    A method `ready()` may raise `CounterUnavailable` where a key or a setting is missing, and asks nobody:
    the command lists the counter with that reason.
    """

    fingerprint: str

    def count_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:
        """Input tokens as the provider bills them; done, or raised, within `timeout` seconds."""

    def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> Awaitable[int]:
        """The same for the async door."""


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider's models put around the texts of a request, in tokens.

    A request costs `request`, plus `message` for each message, plus `call` for each tool call beside
    its name and arguments and `result` for each tool result; where there are tools also `preamble`, plus
    `tools` x the tokens of their compact JSON. `source` and `date` say where the numbers are from.
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
    """A counter that exists: cheap to make and to list, it imports no SDK.

    `match(model)` is 0 for no and higher for more specific. `factory(model)` makes the counter,
    imports what it needs, and may raise `CounterUnavailable(reason)`.
    """

    name: str
    match: Callable[[ModelRef], int]
    factory: Callable[[ModelRef], Any]
    remote: bool = False
    accuracy: Accuracy = "high"
    format: str | None = None


# ---------------------------------------------------------------- formats


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call with its answer (None: there is none yet).

    `wire_id` is the call's own id, or a made one, unique within its message; `unique_id` is unique
    within the whole request.
    """

    entry: Entry
    wire_id: str
    unique_id: str
    result: Entry | None


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A step of a conversation that is valid by construction; a format only spells it.

    `assistant`: `entries` are the texts of one assistant message, `calls` its tool calls in order;
    `answers` are the same calls in the order in which their results came. Every other kind has one
    entry: `orphan` is a tool result whose call is not in the context. `result` comes only to a format
    with `results_anywhere`: a result with its call in `answers`, which an assistant's turn then lacks.
    `nonce` is the session's, for the delimiters of what is not the user's own words; "" if there is none.
    """

    kind: Literal["system", "user", "assistant", "context", "summary", "orphan", "result"]
    entries: tuple[Entry, ...]
    calls: tuple[Call, ...] = ()
    answers: tuple[Call, ...] = ()
    nonce: str = ""


class Rendered(msgspec.Struct, frozen=True, gc=False):
    """One turn as a provider's messages, and what rendering put around its entries.

    `framing` is in tokens, by the provider's formula. `extras` are our own headings and placeholders,
    with digits as 9 so that they recur; whoever prices the context counts them.
    """

    messages: tuple[dict[str, Any], ...]
    framing: int
    extras: tuple[str, ...] = ()


class Format(Protocol):
    """A message format: what a provider or framework calls a conversation.

    `request_framing` is what every request costs beside its messages, `message_framing` what a plain
    message costs around its text, `edges` the texts that `frame` may add, each priced as a message. With
    `inline_system` False the head's system messages are handed over apart; with `joins` False `join` is
    never asked.
    A format whose provider takes a result anywhere behind its call may say so in `results_anywhere =
    True`: results then stay where they came. Elsewhere they follow the message with their calls.
    """

    name: str
    request_framing: int
    message_framing: int
    joins: bool
    edges: tuple[str, ...]
    inline_system: bool

    def detect(self, messages: Sequence[Any]) -> int:
        """How surely these are messages of this format: 0 no, higher surer."""

    def parse(self, messages: Sequence[Any]) -> list[NewEntry]:
        """The entries of the messages, in order. Raises `FormatError` that names the message."""

    def render(self, turn: Turn) -> Rendered:
        """The messages of one turn."""

    def join(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any] | None:
        """Two neighbours as one new message where the format wants that, else None.

        Joining is associative: what was joined is joined again with its neighbours.
        """

    def frame(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The whole request's messages: what must stand first or last is added."""


class ReadEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of a log that is read, and when it was made (ISO 8601, None where the log does not say).

    An `abandoned` one is of a branch that the conversation did not go on from: it was said, and the
    model no longer saw it.
    """

    new_entry: NewEntry
    at: str | None = None
    abandoned: bool = False


class Compaction(msgspec.Struct, frozen=True, gc=False):
    """A place in a log where everything before it was replaced by `summary`; `reason` is the log's own."""

    summary: str
    reason: str
    at: str | None = None


class LeftOut(msgspec.Struct, frozen=True, gc=False):
    """What stands in a log and is no part of its conversation, in words for whoever imports it."""

    what: str


ReadItem = ReadEntry | Compaction | LeftOut


@runtime_checkable
class ImportFormat(Protocol):
    """A log that is read and never written: an agent's session file, the export of a chat.

    What `Format` asks of rendering does not apply, so this is a protocol of its own. An item is a line
    of a JSONL file, an element of a JSON list, or the document itself.
    """

    name: str

    def detect(self, items: Sequence[Any]) -> int:
        """How surely these first items of a file are of this log: 0 no, higher surer."""

    def conversations(self, items: Iterable[Any]) -> Iterable[tuple[str, Iterable[Any]]]:
        """The conversations in the items, each with its title ("" where it has none) and its own items."""

    def parse(self, items: Iterable[Any]) -> Iterable[ReadItem]:
        """One conversation in order. What is not known is kept in the metadata; raises `FormatError`.

        The items may be gone through more than once, and may be more than memory holds: what was read is
        given on its way, not gathered.
        """
