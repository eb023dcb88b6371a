"""The seams: what memman asks of a store, a format, a summarizer and a counter.

A port may be sync or async. The async door awaits either kind, and sends a blocking one (`blocking =
True` on the object) to a worker thread; the sync door refuses an async one when it is handed over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from memman.entries import Accuracy, Entry, NewEntry
from memman.records import Record, SessionTotals

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
    """Where logs live. `memman.testing.StoreConformance` states every law as a test.

    A store numbers the records of a session 1, 2, 3 ... without gaps and keeps its window as an
    explicit list up to a floor; the window is that list plus every `Added` record after the floor.
    """

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        """Appends records atomically; a record whose id is there already keeps its first seq.

        After a clear the ids of entries are free again: an `Added` whose id is only in an earlier era is
        new, and `get` answers to the id with the newest one. `erase` reaches the id in every era.

        The ids of replacements are taken too: `get` answers to them with their compression, and to
        `records.taken(id)` with the newest compression or deletion that names the id. A store that does not
        is slower to ask for what is hidden, and as right.

        With `expect_head`, raises `StoreConflict` unless the head is that.
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
        erase: frozenset[str] = frozenset(),
    ) -> Appended:
        """Appends records and replaces the window, in one transaction, if `epoch` is still current.

        Otherwise raises `StoreConflict` and changes nothing. `window` covers the log up to `floor`.
        A place whose `seq` is zero or negative refers to a record of this very commit: 0 is the first
        of `records`, -1 the second. The epoch grows by one. A retry (the first record's id is there)
        returns the first answer. What `erase` names is overwritten with it, as by `erase`.

        `records` may make each record when it is asked for (a long import reads them from the disk): a
        store that writes them elsewhere goes through them in order and holds few at a time. What they
        raise on the way comes out, and nothing was changed.
        """

    def load(self, session_id: str) -> Snapshot | None:
        """The session's snapshot, or None where there is no such session."""

    def state(self, session_id: str) -> tuple[int, int] | None:
        """(head, epoch), or None: what a shared store is asked at each operation."""

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        """The records with seq > `after`, in order, at most `limit`."""

    def get(self, session_id: str, ids: Sequence[str]) -> Sequence[tuple[int, Record]]:
        """The records with these ids (an entry's id or a compression's), in log order."""

    def feed(self, after: str = "", limit: int = 1_000) -> Sequence[FeedItem]:
        """The records of every session that were committed behind a cursor, in order, at most `limit`.

        "" is the beginning. Whoever goes on behind the last cursor gets every record once, a session's
        in the order of its log, whoever writes meanwhile: nothing that is committed later ever stands
        before a cursor that was given out. The records of a deleted session are no longer there.

        Raises `InvalidInput` for a cursor that this store did not give out, as far as it can tell.
        """

    def lease(self, session_id: str, holder: str, seconds: float) -> bool:
        """Takes or prolongs, from now on for `seconds`, the right to pay for a summary of a session.

        False while another holds it, or where there is no such session. With 0 seconds the holder gives
        it back. It saves money; nothing is safe or unsafe because of it.
        """

    def erase(self, session_id: str, ids: frozenset[str]) -> None:
        """Overwrites the payloads of these entries and replacements with tombstones, for good."""

    def sessions(self) -> Iterable[SessionInfo]:
        """Every session."""

    def delete(self, session_id: str) -> bool:
        """Removes a session with its log; whether there was one.

        One begun anew under the id must not show a (head, epoch) that the removed one showed; to
        `commit`, epoch 0 means a session that does not exist.
        """

    def close(self) -> None:
        """Frees what the store holds."""


class AsyncStore(Protocol):
    """A `Store` whose methods are awaited, for `AsyncMemoryManager`: the same arguments and laws."""

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Awaitable[Appended]:
        """As `Store.append`."""

    def commit(
        self,
        session_id: str,
        epoch: int,
        records: Sequence[Record],
        window: Sequence[StoredItem],
        floor: int,
        *,
        expect_head: int | None = None,
        erase: frozenset[str] = frozenset(),
    ) -> Awaitable[Appended]:
        """As `Store.commit`."""

    def load(self, session_id: str) -> Awaitable[Snapshot | None]:
        """As `Store.load`."""

    def state(self, session_id: str) -> Awaitable[tuple[int, int] | None]:
        """As `Store.state`."""

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Awaitable[Sequence[tuple[int, Record]]]:
        """As `Store.read`."""

    def get(self, session_id: str, ids: Sequence[str]) -> Awaitable[Sequence[tuple[int, Record]]]:
        """As `Store.get`."""

    def feed(self, after: str = "", limit: int = 1_000) -> Awaitable[Sequence[FeedItem]]:
        """As `Store.feed`."""

    def lease(self, session_id: str, holder: str, seconds: float) -> Awaitable[bool]:
        """As `Store.lease`."""

    def erase(self, session_id: str, ids: frozenset[str]) -> Awaitable[None]:
        """As `Store.erase`."""

    def sessions(self) -> Awaitable[Iterable[SessionInfo]]:
        """As `Store.sessions`."""

    def delete(self, session_id: str) -> Awaitable[bool]:
        """As `Store.delete`."""

    def close(self) -> Awaitable[None]:
        """As `Store.close`."""


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
