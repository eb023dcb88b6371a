"""The public face: `AsyncMemoryManager` has the verbs, `MemoryManager` the same verbs without `await`."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, Self, TypeVar

import msgspec

from memman import events
from memman.archive import (
    ArchiveInfo,
    ArchiveLimits,
    Intake,
    Packing,
    SessionState,
    Source,
    Target,
    checked,
    with_entries,
)
from memman.compression import CompressionPlan, stages_of
from memman.config import MemoryConfig, resolve_budget
from memman.contexts import Asked, price_given, rendering_in
from memman.counting import (
    Breaker,
    Meter,
    Models,
    RemoteMeter,
    builtin_specs,
    estimator_for,
    model_ref,
    parse_overflow,
    resolve,
    resolve_remote,
    sound_specs,
)
from memman.counting.meter import CallableCounter
from memman.doors import (
    AsyncDoor,
    Door,
    SyncDoor,
    is_async_callable,
    suspended,
)
from memman.entries import (
    NO_JSON,
    Accuracy,
    Content,
    Draft,
    Entry,
    TokenCount,
    check_draft,
    check_id,
    check_text,
    encode_json,
    json_bytes,
)
from memman.errors import (
    AsyncPortRefused,
    InvalidInput,
    MemmanError,
    PluginNotFound,
    SessionExists,
    StateError,
    StoreConflict,
    StoreError,
)
from memman.explaining import Explanation
from memman.formats import BUILTIN_FORMATS, detect_format, plain_messages
from memman.formats import format_named as named
from memman.formats.plain import reported_usage
from memman.ids import new_id as uuid7
from memman.plugins import Plugins, shared_plugins
from memman.ports import (
    CounterSpec,
    FeedItem,
    Format,
    ModelInfo,
    ModelRef,
    Place,
)
from memman.records import Record, UsageReported
from memman.results import Context, SessionStats, Summary
from memman.sessions import Feed, Following, LiveSessions, Session, no_session
from memman.shared import Remote, Shared
from memman.stores import MemoryStore, no_store, sqlite_store
from memman.summarizers import Asker, Summarizers
from memman.usage import usage_of
from memman.window import Window

logger = logging.getLogger("memman")
T = TypeVar("T")
OnConflict = Literal["fail", "skip", "new_session"]
State = SessionState | Mapping[str, Any] | str | bytes
Redact = Callable[[Entry], Entry]
DEFAULT_FORMAT = "openai-chat"
_CLOSE_SECONDS = 5.0
_EXISTS = (
    "session {!r} exists; nothing was changed. Delete it first, or pass "
    "on_conflict='skip' or 'new_session'"
)
_STORE_METHODS = (
    "append", "commit", "load", "state", "read", "get", "feed", "lease", "erase", "sessions", "delete",
    "close",
)  # fmt: skip


class AsyncMemoryManager:
    """Keeps conversations inside their context windows without losing a word of them.

    Args:
        store: None keeps logs in this process; a path (or `sqlite:///PATH`) in a SQLite file; another
                URL asks the plugins; or a `Store`.
        model: the model that the contexts are for; its counter and limits are found by name.
        config: the settings; `MemoryConfig()` by default.
        summarizer: None asks nobody unless the settings name somebody; a `str -> str` callable (sync or
            async), a `Summarizer`, or a name: `anthropic:MODEL`, `cmd:PROGRAM ARGS`, `digest` for nobody.
        counter: None is resolved by `model`; a counter's name, a `str -> int`, or a counter.
        redact: `Entry -> Entry`, called before an entry is counted and stored, and again before a
            summarizer or a remote counter sees it.
        clock: aware datetimes; for tests.
        new_id: unique strings, made before the first attempt to store; for tests.
        exclusive: this manager is the only writer of the store, so that it need not be asked for
            news at each operation. Always so for the store in memory that `None` makes.

    One manager belongs to one event loop. Receivers of its events may be coroutine functions.
    """

    def __init__(
        self,
        store: Any = None,
        *,
        model: str | None = None,
        config: MemoryConfig | None = None,
        summarizer: Any = None,
        counter: Any = None,
        redact: Redact | None = None,
        clock: Callable[[], datetime] | None = None,
        new_id: Callable[[], str] | None = None,
        exclusive: bool = False,
    ) -> None:
        self._start(
            AsyncDoor(), self, store, model, config, summarizer, counter, redact, clock, new_id,
            exclusive,
        )  # fmt: skip

    def _start(
        self,
        door: Door,
        sender: Any,
        store: Any,
        model: str | None,
        config: MemoryConfig | None,
        summarizer: Any,
        counter: Any,
        redact: Redact | None,
        clock: Callable[[], datetime] | None,
        new_id: Callable[[], str] | None,
        exclusive: bool,
    ) -> None:
        self._door = door
        self._plugins: Plugins | None = None
        self._models = Models(self._found_plugins)
        self._counter = _accepted_counter(counter, door)
        self._meters: dict[tuple[str | None, bool], Meter] = {}
        self._remotes: dict[str, Remote | None] = {}
        self._breakers: dict[str, Breaker] = {}  # by fingerprint: an endpoint's models share one
        self._formats: dict[str, Format] = {form.name: form for form in BUILTIN_FORMATS}
        self._plugin_formats_known = False
        self._summarizers = Summarizers(door, self._found_plugins, self._limits)
        self._summarizers.give(summarizer)
        for name, port in (("redact", redact), ("clock", clock), ("new_id", new_id)):
            if port is not None and not callable(port):
                raise InvalidInput(f"{name} must be callable, not {type(port).__name__}")
        found = MemoryStore() if store is None else self._opened(store)
        _refuse_async_port(found, _STORE_METHODS, door, "store")
        self._shared = Shared(
            door=door,
            store=found,
            exclusive=exclusive or store is None,
            clock=clock or partial(datetime.now, UTC),
            new_id=new_id or uuid7,
            redact=redact,
            sender=sender,
            meter=self._meter,
            remote=self._remote,
            limits=self._limits,
            summarizer=self._summarizer_for,
            format_named=self._format,
            check=self._check,
        )
        self._sessions = LiveSessions(self._shared)
        if config is not None and not isinstance(config, MemoryConfig):
            raise InvalidInput(f"config must be a MemoryConfig, not {type(config).__name__}")
        settings = config or MemoryConfig()
        self._configure(settings.updated({"model": model}) if model is not None else settings)

    # ------------------------------------------------------------ adding

    async def add_user_message(
        self,
        session_id: str,
        content: Content,
        *,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
    ) -> Entry:
        """Adds what the user said. Once this returns, it is in the log for good.

        Args:
            session_id: creates the session if there is none.
            content: text, or a tuple of parts (`TextPart`, `ImagePart`, ...).
            id: your own id for the entry; adding it again with the same content is a no-op.
            message_id: entries that share it are one message of the provider.
            pinned: never replaced by a compression.
            metadata: plain JSON data of your own, kept with the entry.
            compress: overrides `auto_compress` for this call.

        Raises:
            InvalidInput: something cannot be taken (a lone surrogate, NaN); nothing was changed.
            IdConflict: this id was added before with other content.
        """
        draft = Draft(type="message", role="user", content=content, message_id=message_id)
        return await self._add(session_id, draft, id, pinned, metadata, compress)

    async def add_assistant_message(
        self,
        session_id: str,
        content: Content,
        *,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
    ) -> Entry:
        """Adds what the assistant said; keywords and errors as in `add_user_message`."""
        draft = Draft(type="message", role="assistant", content=content, message_id=message_id)
        return await self._add(session_id, draft, id, pinned, metadata, compress)

    async def add_system_message(
        self,
        session_id: str,
        content: Content,
        *,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
    ) -> Entry:
        """Adds instructions; at the head of a session they are pinned from the start."""
        draft = Draft(type="message", role="system", content=content, message_id=message_id)
        return await self._add(session_id, draft, id, pinned, metadata, compress)

    async def add_tool_call(
        self,
        session_id: str,
        name: str,
        arguments: Mapping[str, Any] | str,
        *,
        call_id: str | None = None,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
    ) -> Entry:
        """Adds a call of a tool. Calls that share a `message_id` were made in parallel.

        `arguments` are a mapping, or the text that the model wrote, kept as it is. Without a
        `call_id` the result is found by the tool's name and the order.
        """
        check_text(name, "a tool's name")
        draft = Draft(
            type="tool_call",
            role="assistant",
            content=_arguments(arguments),
            call_id=call_id,
            name=name,
            message_id=message_id,
        )
        return await self._add(session_id, draft, id, pinned, metadata, compress)

    async def add_tool_result(
        self,
        session_id: str,
        name: str,
        content: Content,
        *,
        call_id: str | None = None,
        is_error: bool = False,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
    ) -> Entry:
        """Adds what a tool returned. A result whose call is unknown is kept and rendered as a note.

        With `metadata={"fold_key": ...}` a compression may fold older results with the same key.
        """
        check_text(name, "a tool's name")
        draft = Draft(
            type="tool_result",
            role="tool",
            content=content,
            call_id=call_id,
            name=name,
            message_id=message_id,
            is_error=is_error,
        )
        return await self._add(session_id, draft, id, pinned, metadata, compress)

    async def add_context(
        self,
        session_id: str,
        content: Content,
        source: str,
        *,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
    ) -> Entry:
        """Adds material from a `source` (a file, a search); it is rendered as such, not as the user's.

        `metadata={"fold_key": ...}` as in `add_tool_result`.
        """
        check_text(source, "a context's source")
        draft = Draft(
            type="context", role="system", content=content, name=source, message_id=message_id
        )
        return await self._add(session_id, draft, id, pinned, metadata, compress)

    async def add_messages(
        self, session_id: str, messages: Any, format: str = "auto"
    ) -> list[Entry]:
        """Adds a provider's messages, atomically: all or none.

        Args:
            session_id: creates the session if there is none.
            messages: a list of dicts or of an SDK's message objects, one of them, a response object
                (its message, and its usage with it), or text in the format `text`.
            format: a format's name, or "auto" to detect it.

        Raises:
            FormatError: they are in no known format, or broken; the message at fault is named.
        """
        check_id(session_id, "session_id")
        plain = plain_messages(messages)
        if not plain:
            return []
        form = self._detected(plain) if format == "auto" else self._format(format)
        drafts = form.parse(plain)
        for draft in drafts:
            check_draft(draft)
        shared = self._shared
        labels = {
            label: shared.new_id()
            for label in dict.fromkeys(draft.message_id for draft in drafts)
            if label is not None
        }
        usage = self._readable_usage(reported_usage(messages))
        session = self._session(session_id)
        entries = await session.add_all(drafts, labels)
        if usage is not None:
            await session.record_usage(usage)
        return entries

    def _readable_usage(self, usage: Any) -> UsageReported | None:
        """A response's usage; one that cannot be read must not keep its message out."""
        if usage is None:
            return None
        try:
            return usage_of(usage, self._shared.new_id(), self._shared.clock(), None)
        except InvalidInput as error:
            logger.warning("the usage of a response was not recorded: %s", error)
            return None

    async def record_usage(self, session_id: str, usage: Any, *, model: str | None = None) -> None:
        """Keeps what the provider said the last request cost, and learns from it.

        `usage` is a response's usage object or dict (OpenAI, Anthropic, Gemini, Bedrock), or the number
        of input tokens. Cached tokens are normalised: the total is what was read, cached or not.
        """
        if model is not None:
            check_text(model, "model")
        record = usage_of(usage, self._shared.new_id(), self._shared.clock(), model)
        await (await self._known(session_id)).record_usage(record)

    async def record_overflow(
        self, error: BaseException | str, *, model: str | None = None
    ) -> ModelInfo | None:
        """Learns a model's limit from a provider's refusal of a request that was too long.

        From then on this manager's limits of that model follow, and with them the threshold where
        `max_tokens` is not set. Nothing is stored.

        Args:
            error: what the provider's SDK raised, or its text.
            model: the model that refused; the manager's by default.

        Returns:
            The limits as they are now; None, and nothing changed, where the error is no overflow (a rate
            limit, a quota) or names no limit.

        Raises:
            InvalidInput: no model is set or given, or `error` is neither an exception nor text.
            ConfigError: the new limit leaves no room for `reserve_output`; nothing was changed.
        """
        if not isinstance(error, BaseException | str):
            raise InvalidInput(f"error must be an exception or its text, not {error!r:.60}")
        name = self._shared.config.model if model is None else model
        if name is None:
            raise InvalidInput("whose limit is it? Pass model=, or give the manager a model")
        check_text(name, "model")
        overflow = parse_overflow(error)
        if overflow is None:
            return None
        info = self._models.taught(name, overflow, f"{self._shared.clock():%Y-%m-%d}")
        if info is not None:
            self._learn_limits(name, info)
        return info

    # ------------------------------------------------------------ compressing

    async def compress(
        self, session_id: str, *, target_tokens: int | None = None, focus: str | None = None
    ) -> events.CompressionResult:
        """Compresses now, down to `target_tokens` or the configured low water.

        The result says in `reason` why when it did nothing. `focus` is what a summary should pay
        special attention to.

        Raises:
            CompressionFailed: a stage of the strategy failed, or the summarizer did and
                `on_failure="raise"`; nothing was changed.
            InvalidInput: the target is above the trigger.
        """
        _check_goal(target_tokens, focus)
        return await (await self._known(session_id)).compress(
            target_tokens=target_tokens, focus=focus
        )

    async def plan_compression(
        self, session_id: str, *, target_tokens: int | None = None, focus: str | None = None
    ) -> CompressionPlan:
        """What `compress` would do, entry by entry. Asks no summarizer and changes nothing."""
        _check_goal(target_tokens, focus)
        return await (await self._known(session_id)).plan(target_tokens, focus)

    async def undo_compression(self, session_id: str, compression_id: str | None = None) -> str:
        """Takes a compression back, the latest by default, and returns its id.

        Raises `Refused` when a later compression folded it (the message names the one to undo first)
        or its replacement is pinned, `EntryNotFound` when it is not in force.
        """
        if compression_id is not None:
            check_id(compression_id, "compression_id")
        return await (await self._known(session_id)).undo(compression_id)

    async def pin(self, session_id: str, entry_id: str) -> None:
        """Keeps an active entry from ever being replaced."""
        check_id(entry_id, "entry_id")
        await (await self._known(session_id)).pin(entry_id, True)

    async def unpin(self, session_id: str, entry_id: str) -> None:
        """Lets an entry be replaced again."""
        check_id(entry_id, "entry_id")
        await (await self._known(session_id)).pin(entry_id, False)

    async def delete_entries(self, session_id: str, ids: Sequence[str]) -> None:
        """Removes added entries for good, with every summary that was made of them.

        Compressions that hide one of them are unfolded first. Payloads are overwritten in the store.
        """
        wanted = [ids] if isinstance(ids, str) else ids
        if not isinstance(wanted, Sequence) or not all(isinstance(name, str) for name in wanted):
            raise InvalidInput(f"ids must be a list of entry ids, not {ids!r:.60}")
        await (await self._known(session_id)).delete(wanted)

    # ------------------------------------------------------------ reading

    async def build_context(
        self,
        session_id: str,
        *,
        format: str = "openai-chat",
        model: str | None = None,
        budget: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Context:
        """What to send to the model: valid in `format` and within `budget`. Changes nothing.

        Args:
            session_id: must exist.
            format: "openai-chat", "openai-responses", "anthropic", "gemini", "bedrock", "mistral",
                "langchain", "text", or a plugin's.
            model: another model than the session's; the window is priced by its counter.
            budget: tokens; the session's `max_tokens` by default.
            system: a system prompt that precedes the session's own system messages.
            tools: the tool definitions that you will send along; they are counted.

        Raises:
            BudgetExceeded: pinned entries, the head and the clipped newest exchange do not fit.
            SessionNotFound: there is no such session.
        """
        if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int)):
            raise InvalidInput(f"budget must be a number of tokens, not {budget!r}")
        if system is not None:
            check_text(system, "system")
        if model is not None:
            check_text(model, "model")
        if type(format) is not str:
            self._format(format)
        encoded = _tools(tools) if tools is not None and tools != [] else None
        session = self._sessions.find(session_id) if type(session_id) is str else None
        if session is None:
            session = await self._known(session_id)
        return await session.build(Asked(format, model, budget, system, encoded))

    async def get_context_for_llm(self, session_id: str) -> str:
        """The conversation as one text: summaries with their dates, then what is recent."""
        return (await self.build_context(session_id, format="text")).text

    async def get_active_entries(self, session_id: str) -> list[Entry]:
        """The window in order, summaries and stubs included."""
        return await (await self._known(session_id)).active_entries()

    async def get_entries(self, session_id: str) -> list[Entry]:
        """Every added entry of the current era in log order, compressed ones too, no replacements."""
        return await (await self._known(session_id)).entries()

    async def get_entry(self, session_id: str, id: str) -> Entry:
        """One entry by id, active or compressed. Raises `EntryNotFound`."""
        check_id(id, "id")
        return await (await self._known(session_id)).entry(id)

    async def get_summaries(self, session_id: str) -> list[Summary]:
        """The summaries in force, with the ids of what they stand for."""
        return await (await self._known(session_id)).summaries()

    async def get_stats(self, session_id: str) -> SessionStats:
        """Numbers about a session."""
        return await (await self._known(session_id)).stats()

    async def explain(self, session_id: str) -> Explanation:
        """Why a session was or was not compressed, what is next, and what became of each entry.

        Reads the log since the last clear. Asks no summarizer and changes nothing.
        """
        return await (await self._known(session_id)).explain()

    async def count_tokens(
        self,
        content: Any,
        *,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> TokenCount:
        """Counts a text, entries, or a provider's messages (then with their framing)."""
        config = self._shared.config
        meter = self._meter(config if model is None else config.updated({"model": model}))
        if system is not None:
            check_text(system, "system")
        encoded = _tools(tools) if tools is not None else _NO_TOOLS
        given = None if encoded == _NO_TOOLS else encoded
        if isinstance(content, str):
            check_text(content, "content")
            return meter.plus(meter.count_cached(content), self._given(system, given, meter))
        if isinstance(content, Entry):
            content = [content]
        if isinstance(content, Sequence) and all(isinstance(item, Entry) for item in content):
            tokens = sum(meter.recount(entry) for entry in content)
            return meter.total(tokens + self._given(system, given, meter))
        return meter.total(self._priced(content, system, given, meter))

    async def list_sessions(self) -> list[str]:
        """The ids of all sessions of the store."""
        shared = self._shared
        return [
            info.session_id for info in await self._door.call(shared.store, shared.store.sessions)
        ]

    async def feed(
        self, session_id: str | None = None, *, after: int | str = "", limit: int = 1_000
    ) -> list[FeedItem]:
        """What was recorded, whoever recorded it: of one session, or of every session of the store.

        Whoever goes on behind the last item misses nothing and gets each record once, a session's in the
        order of its log. Entries that were deleted are there without their content, deleted sessions not.

        Args:
            session_id: None for every session.
            after: the cursor of the last item that you have; for one session its seq will do. "" begins
                at the beginning.
            limit: records at most, and never more than a million.

        Raises:
            SessionNotFound: there is no such session.
            InvalidInput: `after` is no place in this log; it may be of another store or session, or of
                this one before it was restored or begun anew.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidInput(f"limit must be a number of records, not {limit!r:.60}")
        return await Feed(self._shared, session_id, after).page(limit)

    def follow(
        self,
        session_id: str | None = None,
        *,
        after: int | str = "",
        poll: tuple[float, float] = (0.05, 2.0),
        timeout: float | None = None,
    ) -> AsyncGenerator[FeedItem, None]:
        """Iterates over what was recorded and then over what comes, in whatever process.

        At least once: keep the cursor of an item when you are done with it, and begin there the next time.
        A session that is not there yet is waited for. Close the iterator to end it; `close` ends it too.

        Args:
            session_id: None for every session.
            after: as in `feed`.
            poll: seconds between two looks at the store, the least and the most; the pause doubles while
                nothing comes. What this manager records is seen at once.
            timeout: seconds without a record after which it ends; None goes on for ever.

        Raises:
            SessionNotFound: the session was deleted.
            InvalidInput: as in `feed`, or `poll` or `timeout` are not what they should be.
            StoreError: the store cannot be read; begin again behind the last item.
        """
        return Following(self._shared, session_id, after, poll, timeout).items()

    # ------------------------------------------------------------ sessions out and in

    async def export_session(self, session_id: str) -> SessionState:
        """The session as a document: entries, summaries, totals, settings, and its whole log."""
        return await (await self._known(session_id)).export()

    async def import_session(self, state: State, on_conflict: OnConflict = "fail") -> str:
        """Restores a session from a document and returns its id. All or nothing.

        Totals, links and derived fields are checked against the log, never trusted.

        Args:
            state: a `SessionState`, its JSON, or that as plain data.
            on_conflict: when a session of this id exists: "fail", "skip" (keep what is there), or
                "new_session" (import under a new id).

        Raises:
            StateError: the document is not sound; `problems` has every fault.
            SessionExists: with `on_conflict="fail"`.
        """
        _check_on_conflict(on_conflict)
        document = state if isinstance(state, SessionState) else SessionState.from_json(state)
        sound = checked(document, self._meter(self._shared.config))
        self._check_settings(document.settings)
        shared, records = self._shared, sound.records
        if shared.redact is not None:
            records = with_entries(records, Session(document.session_id, shared).redacted)
        session_id, exists = await self._name_for(document.session_id, on_conflict)
        if exists:
            if on_conflict == "fail":
                raise SessionExists(_EXISTS.format(session_id))
            return session_id
        await self._begin(session_id, records, sound.window, len(records))
        return session_id

    async def export_archive(
        self, session_id: str, to: Target, *, packing: Packing | None = None
    ) -> ArchiveInfo:
        """Writes the session's whole log as an archive of lines, for sessions of any length.

        It is written a page at a time; what is added meanwhile is not in it.

        Args:
            session_id: which session.
            to: a path, whose file is there whole or not at all and is readable by its owner alone; or a
                binary file, which is not closed.
            packing: "none", "gzip" or "zstd" (the extra `zstd`); None goes by the path's suffix, `.gz`
                or `.zst`.

        Raises:
            StoreConflict: entries, or the session, were deleted meanwhile; a path has no file then.
            OSError: the file cannot be written.
        """
        return await (await self._known(session_id)).export_archive(to, packing)

    async def import_archive(
        self,
        source: Source,
        on_conflict: OnConflict = "fail",
        *,
        limits: ArchiveLimits | None = None,
    ) -> str:
        """Restores a session from an archive and returns its id. All or nothing.

        The archive is read to its end and checked first, in temporary files, and stored in one commit.
        Counts of this manager's counter are worked out anew. Where the session has all of these records
        already, and perhaps more, an import changes nothing and is no conflict: it can be repeated.

        Args:
            source: a path, or a binary file, which is read from where it is and not closed. Whether and
                how it is packed is told by its first bytes.
            on_conflict: as in `import_session`, when there is another session of this id.
            limits: what the archive may take at most; `ArchiveLimits()` if none.

        Raises:
            StateError: it is not sound, or beyond a limit; `problems` has every fault with its line.
            SessionExists: with `on_conflict="fail"`.
            OSError: the file cannot be read.
        """
        _check_on_conflict(on_conflict)
        shared = self._shared
        redacted = Session("", shared).redacted if shared.redact is not None else None
        intake = Intake(source, limits, self._meter(shared.config), redacted)
        try:
            info = await self._door.to_the_end(self._door.call(intake, intake.check))
            self._check_settings(intake.settings)
            session_id, exists = await self._name_for(info.session_id, on_conflict)
            if not exists:
                await self._begin(session_id, intake.records, intake.window(), intake.floor)
            elif on_conflict == "fail" and not await self._session(session_id).holds(
                intake.records
            ):
                raise SessionExists(_EXISTS.format(session_id))
        finally:
            intake.close()
        return session_id

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raises `StateError` where a session's settings do not go with this manager."""
        try:
            self._check(self._shared.config.updated(settings))
        except MemmanError as error:
            raise StateError([f"its settings do not work here: {error}"]) from error

    async def _name_for(self, session_id: str, on_conflict: OnConflict) -> tuple[str, bool]:
        """The id that an import goes under, and whether there is a session of that id."""
        shared = self._shared
        exists = await self._door.call(shared.store, shared.store.state, session_id) is not None
        if not exists or on_conflict != "new_session":
            return session_id, exists
        room = session_id.encode()[:200].decode(errors="ignore")
        return f"{room}-{shared.new_id()}", False

    async def _begin(
        self, session_id: str, records: Sequence[Record], window: Sequence[Place], floor: int
    ) -> None:
        """Stores an imported session and tells of it."""
        shared = self._shared
        commit = self._door.call(
            shared.store, shared.store.commit, session_id, 0, records, window, floor, expect_head=0
        )
        try:
            await self._door.to_the_end(commit)
        except StoreConflict as error:
            raise SessionExists(f"session {session_id!r} was created meanwhile") from error
        await self._session(session_id).tell(
            events.SessionImported(session_id=session_id, records=len(records))
        )

    async def clear_session(self, session_id: str) -> None:
        """Empties the window, pins and head included. The log stays; a clear is not undone."""
        await (await self._known(session_id)).clear()

    async def delete_session(self, session_id: str) -> None:
        """Removes a session with its log, for good."""
        await (await self._known(session_id)).delete_all()

    # ------------------------------------------------------------ settings

    async def update_config(self, session_id: str | None = None, /, **settings: Any) -> None:
        """Changes settings of one session, which keeps them, or without an id of the manager.

        Raises `ConfigError` that names the setting; nothing was changed then.
        """
        if session_id is None:
            self._configure(self._shared.config.updated(settings))
        else:
            await self._session(session_id).configure(settings)

    async def set_summarize_callback(self, summarizer: Any) -> None:
        """Takes another summarizer: a callable, a name, a `Summarizer`, or None for the settings' own."""
        self._summarizers.give(summarizer)

    async def close(self) -> None:
        """Waits at most 5 s for background compressions, then closes the store.

        What is not done by then changes nothing any more, however late its summary comes.
        """
        await self._door.finish(_CLOSE_SECONDS)
        self._shared.closed = True
        for flag in list(self._shared.flags):
            flag.set()
        for session in self._sessions:
            await session.settle()
        await self._door.call(self._shared.store, self._shared.store.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # ------------------------------------------------------------ inside

    def _add(
        self,
        session_id: str,
        draft: Draft,
        entry_id: str | None,
        pinned: bool,
        metadata: Mapping[str, Any] | None,
        compress: bool | None,
    ) -> Coroutine[Any, Any, Entry]:
        """Checks what was given; the session does the rest."""
        content = draft.content
        if type(content) is not str or draft.type != "message" or not content.isascii():
            check_draft(draft)
        elif draft.message_id is not None:
            check_id(draft.message_id, "message_id")
        if entry_id is not None:
            check_id(entry_id, "id")
        if pinned is not False and pinned is not True:
            raise InvalidInput(f"pinned must be True or False, not {pinned!r}")
        if compress is not None and not isinstance(compress, bool):
            raise InvalidInput(f"compress must be True, False or None, not {compress!r}")
        encoded = NO_JSON if metadata is None else _metadata(metadata)
        return self._session(session_id).add(draft, entry_id, pinned, encoded, compress)

    def _session(self, session_id: str) -> Session:
        """The live session of this id; reading one that does not exist raises from the session."""
        session = self._sessions.find(session_id) if type(session_id) is str else None
        if session is None:
            check_id(session_id, "session_id")
            session = self._sessions.open(session_id)
        return session

    async def _known(self, session_id: str) -> Session:
        """The session of this id, if there is one: asking for what is not there leaves nothing behind."""
        session = self._sessions.find(session_id) if type(session_id) is str else None
        if session is None:
            check_id(session_id, "session_id")
            shared = self._shared
            if await self._door.call(shared.store, shared.store.state, session_id) is None:
                raise no_session(session_id)
            session = self._session(session_id)
        return session

    def _configure(self, config: MemoryConfig) -> None:
        self._check(config, config)
        for session in self._sessions:
            self._check(config.updated(session.settings), config)
        self._shared.config = config
        self._shared.version += 1

    def _check(self, config: MemoryConfig, managers: MemoryConfig | None = None) -> None:
        """Refuses settings that name what is not there, or leave no room for the model.

        `managers` are the manager's own, where they are about to change.
        """
        stages_of(config.strategy)
        resolve_budget(config, self._limits(config.model))
        self._summarizers.check(config.summarizer, (managers or self._shared.config).summarizer)
        self._meter(config)

    def _learn_limits(self, model: str, info: ModelInfo) -> None:
        """Takes other limits of a model, if no settings contradict them."""
        before, self._models = self._models, self._models.with_limits(model, info)
        try:
            self._configure(self._shared.config)
        except BaseException:
            self._models = before
            raise

    def _found_plugins(self) -> Plugins:
        if self._plugins is None:
            self._plugins = shared_plugins()
        return self._plugins

    def _opened(self, store: Any) -> Any:
        """The store of a URL, or the store itself."""
        if not isinstance(store, str | os.PathLike):
            return store
        given = os.fspath(store)
        found = sqlite_store(given)
        if found is None:
            found = self._found_plugins().first("memman_store", raises=(StoreError,), url=given)
        if found is None:
            raise PluginNotFound(no_store(given))
        return found

    def _meter(self, config: MemoryConfig) -> Meter:
        """The meter for a model under a counting policy, resolved once."""
        key = (config.model, config.count_policy == "estimate")
        meter = self._meters.get(key)
        if meter is None:
            model = None if config.model is None else self._models.ref(config.model)
            counter, accuracy = self._resolved(config, model)
            meter = self._meters[key] = Meter(counter, accuracy, model=model)
        return meter

    def _resolved(self, config: MemoryConfig, model: ModelRef | None) -> tuple[Any, Accuracy]:
        given = self._counter
        if config.count_policy == "estimate" or (given is None and model is None):
            return estimator_for(model), "low"
        if given is not None and not isinstance(given, str):
            return given, "high"
        specs = [*self._specs(), *builtin_specs()]
        found = resolve(model or model_ref(""), specs, given)
        return found.counter, found.spec.accuracy

    def _remote(self, config: MemoryConfig) -> Remote | None:
        """The remote counter of a model where the policy asks for one, resolved once."""
        if config.count_policy != "confirm" or config.model is None:
            return None
        if config.model not in self._remotes:
            self._remotes[config.model] = self._resolved_remote(config.model)
        return self._remotes[config.model]

    def _resolved_remote(self, name: str) -> Remote | None:
        model = self._models.ref(name)
        found = resolve_remote(model, self._specs())
        if found is None:
            return None
        spec, counter = found
        try:
            form = self._format(spec.format or DEFAULT_FORMAT).name
        except PluginNotFound as error:  # a count is never a reason for a context to fail
            logger.warning("remote counter %s is not asked: %s", spec.name, error)
            return None
        breaker = self._breakers.setdefault(counter.fingerprint, Breaker())
        meter = RemoteMeter(counter, model, accuracy=spec.accuracy, breaker=breaker)
        return Remote(meter, form)

    def _specs(self) -> list[CounterSpec]:
        return sound_specs(self._found_plugins().listed("memman_token_counters"))

    def _limits(self, model: str | None) -> tuple[int, int, int] | None:
        if model is None:
            return None
        info = self._models.info(model)
        return None if info is None else (info.context, info.max_input, info.max_output)

    def _format(self, name: str) -> Format:
        form = self._formats.get(name) if isinstance(name, str) else None
        if form is None:
            self._learn_formats()
            form = named(name, self._formats.values())
        return form

    def _detected(self, messages: Sequence[Any]) -> Format:
        self._learn_formats()
        return detect_format(messages, list(self._formats.values()))

    def _learn_formats(self) -> None:
        if not self._plugin_formats_known:
            self._plugin_formats_known = True
            for _, form in self._found_plugins().listed("memman_formats"):
                self._formats.setdefault(form.name, form)

    def _given(self, system: str | None, tools: bytes | None, meter: Meter) -> int:
        """The tokens of a system prompt and of tools beside what is no request."""
        if system is None and tools is None:
            return 0
        prompt = meter.text_cached(system) if system else 0
        return prompt + (meter.tools_cached(tools, DEFAULT_FORMAT) if tools else 0)

    def _priced(self, messages: Any, system: str | None, tools: bytes | None, meter: Meter) -> int:
        """A provider's messages as they would be sent: content and framing."""
        plain = plain_messages(messages)
        form = self._detected(plain)
        craft = self._shared.craft(meter)
        window = Window()
        for seq, draft in enumerate(form.parse(plain), 1):
            window.add(msgspec.structs.replace(craft(draft), seq=seq), False)
        rendering = rendering_in(form, meter)
        rendering.update(window)
        beside = sum(price_given(system, tools, meter, form))
        return window.tokens + rendering.added + rendering.edges + beside

    def _summarizer_for(self, config: MemoryConfig) -> Asker | None:
        return self._summarizers.chosen(config.summarizer, self._shared.config.summarizer)

    def _heal(self) -> None:
        """Frees the locks that this thread was interrupted in."""
        for session in self._sessions:
            session.heal()


class MemoryManager:
    """`AsyncMemoryManager` without `await`: the same verbs, arguments and errors, from any thread.

    Ports must be sync: an async store, counter or summarizer is refused when it is handed over.
    With a `summarize_timeout` the summarizer runs on a daemon thread, with `None` in the caller's.
    """

    def __init__(
        self,
        store: Any = None,
        *,
        model: str | None = None,
        config: MemoryConfig | None = None,
        summarizer: Any = None,
        counter: Any = None,
        redact: Redact | None = None,
        clock: Callable[[], datetime] | None = None,
        new_id: Callable[[], str] | None = None,
        exclusive: bool = False,
    ) -> None:
        self._verbs = verbs = AsyncMemoryManager.__new__(AsyncMemoryManager)
        verbs._start(  # noqa: SLF001 - the two doors are one class in two forms
            SyncDoor(), self, store, model, config, summarizer, counter, redact, clock, new_id,
            exclusive,
        )  # fmt: skip

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Steps a verb to its end; after an interruption, lets go of what this thread still holds."""
        try:
            work.send(None)
        except StopIteration as end:
            value: T = end.value
            return value
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            self._verbs._heal()  # noqa: SLF001 - see __init__
            raise
        return suspended(work)

    def add_user_message(
        self,
        session_id: str,
        content: Content,
        *,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
    ) -> Entry:
        """Adds what the user said. Once this returns, it is in the log for good."""
        return self._run(
            self._verbs.add_user_message(
                session_id,
                content,
                id=id,
                message_id=message_id,
                pinned=pinned,
                metadata=metadata,
                compress=compress,
            )
        )

    def add_assistant_message(
        self,
        session_id: str,
        content: Content,
        *,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
    ) -> Entry:
        """Adds what the assistant said; keywords and errors as in `add_user_message`."""
        return self._run(
            self._verbs.add_assistant_message(
                session_id,
                content,
                id=id,
                message_id=message_id,
                pinned=pinned,
                metadata=metadata,
                compress=compress,
            )
        )

    def add_system_message(
        self,
        session_id: str,
        content: Content,
        *,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
    ) -> Entry:
        """Adds instructions; at the head of a session they are pinned from the start."""
        return self._run(
            self._verbs.add_system_message(
                session_id,
                content,
                id=id,
                message_id=message_id,
                pinned=pinned,
                metadata=metadata,
                compress=compress,
            )
        )

    def add_tool_call(
        self,
        session_id: str,
        name: str,
        arguments: Mapping[str, Any] | str,
        *,
        call_id: str | None = None,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
    ) -> Entry:
        """Adds a call of a tool. Calls that share a `message_id` were made in parallel."""
        return self._run(
            self._verbs.add_tool_call(
                session_id,
                name,
                arguments,
                call_id=call_id,
                id=id,
                message_id=message_id,
                pinned=pinned,
                metadata=metadata,
                compress=compress,
            )
        )

    def add_tool_result(
        self,
        session_id: str,
        name: str,
        content: Content,
        *,
        call_id: str | None = None,
        is_error: bool = False,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
    ) -> Entry:
        """Adds what a tool returned. A result whose call is unknown is kept and rendered as a note."""
        return self._run(
            self._verbs.add_tool_result(
                session_id,
                name,
                content,
                call_id=call_id,
                is_error=is_error,
                id=id,
                message_id=message_id,
                pinned=pinned,
                metadata=metadata,
                compress=compress,
            )
        )

    def add_context(
        self,
        session_id: str,
        content: Content,
        source: str,
        *,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
    ) -> Entry:
        """Adds material from a `source` (a file, a search); it is rendered as such, not as the user's."""
        return self._run(
            self._verbs.add_context(
                session_id,
                content,
                source,
                id=id,
                message_id=message_id,
                pinned=pinned,
                metadata=metadata,
                compress=compress,
            )
        )

    def add_messages(self, session_id: str, messages: Any, format: str = "auto") -> list[Entry]:
        """Adds a provider's messages, atomically: all or none."""
        return self._run(self._verbs.add_messages(session_id, messages, format))

    def record_usage(self, session_id: str, usage: Any, *, model: str | None = None) -> None:
        """Keeps what the provider said the last request cost, and learns from it."""
        self._run(self._verbs.record_usage(session_id, usage, model=model))

    def record_overflow(
        self, error: BaseException | str, *, model: str | None = None
    ) -> ModelInfo | None:
        """Learns a model's limit from a provider's refusal of a request that was too long."""
        return self._run(self._verbs.record_overflow(error, model=model))

    def compress(
        self,
        session_id: str,
        *,
        target_tokens: int | None = None,
        focus: str | None = None,
    ) -> events.CompressionResult:
        """Compresses now, down to `target_tokens` or the configured low water."""
        return self._run(self._verbs.compress(session_id, target_tokens=target_tokens, focus=focus))

    def plan_compression(
        self,
        session_id: str,
        *,
        target_tokens: int | None = None,
        focus: str | None = None,
    ) -> CompressionPlan:
        """What `compress` would do, entry by entry. Asks no summarizer and changes nothing."""
        return self._run(
            self._verbs.plan_compression(session_id, target_tokens=target_tokens, focus=focus)
        )

    def undo_compression(self, session_id: str, compression_id: str | None = None) -> str:
        """Takes a compression back, the latest by default, and returns its id."""
        return self._run(self._verbs.undo_compression(session_id, compression_id))

    def pin(self, session_id: str, entry_id: str) -> None:
        """Keeps an active entry from ever being replaced."""
        self._run(self._verbs.pin(session_id, entry_id))

    def unpin(self, session_id: str, entry_id: str) -> None:
        """Lets an entry be replaced again."""
        self._run(self._verbs.unpin(session_id, entry_id))

    def delete_entries(self, session_id: str, ids: Sequence[str]) -> None:
        """Removes added entries for good, with every summary that was made of them."""
        self._run(self._verbs.delete_entries(session_id, ids))

    def build_context(
        self,
        session_id: str,
        *,
        format: str = "openai-chat",
        model: str | None = None,
        budget: int | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Context:
        """What to send to the model: valid in `format` and within `budget`. Changes nothing."""
        return self._run(
            self._verbs.build_context(
                session_id, format=format, model=model, budget=budget, system=system, tools=tools
            )
        )

    def get_context_for_llm(self, session_id: str) -> str:
        """The conversation as one text: summaries with their dates, then what is recent."""
        return self._run(self._verbs.get_context_for_llm(session_id))

    def get_active_entries(self, session_id: str) -> list[Entry]:
        """The window in order, summaries and stubs included."""
        return self._run(self._verbs.get_active_entries(session_id))

    def get_entries(self, session_id: str) -> list[Entry]:
        """Every added entry of the current era in log order, compressed ones too, no replacements."""
        return self._run(self._verbs.get_entries(session_id))

    def get_entry(self, session_id: str, id: str) -> Entry:
        """One entry by id, active or compressed. Raises `EntryNotFound`."""
        return self._run(self._verbs.get_entry(session_id, id))

    def get_summaries(self, session_id: str) -> list[Summary]:
        """The summaries in force, with the ids of what they stand for."""
        return self._run(self._verbs.get_summaries(session_id))

    def get_stats(self, session_id: str) -> SessionStats:
        """Numbers about a session."""
        return self._run(self._verbs.get_stats(session_id))

    def explain(self, session_id: str) -> Explanation:
        """Why a session was or was not compressed, what is next, and what became of each entry."""
        return self._run(self._verbs.explain(session_id))

    def count_tokens(
        self,
        content: Any,
        *,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> TokenCount:
        """Counts a text, entries, or a provider's messages (then with their framing)."""
        return self._run(self._verbs.count_tokens(content, model=model, system=system, tools=tools))

    def list_sessions(self) -> list[str]:
        """The ids of all sessions of the store."""
        return self._run(self._verbs.list_sessions())

    def feed(
        self, session_id: str | None = None, *, after: int | str = "", limit: int = 1_000
    ) -> list[FeedItem]:
        """What was recorded, whoever recorded it: of one session, or of every session of the store."""
        return self._run(self._verbs.feed(session_id, after=after, limit=limit))

    def follow(
        self,
        session_id: str | None = None,
        *,
        after: int | str = "",
        poll: tuple[float, float] = (0.05, 2.0),
        timeout: float | None = None,
    ) -> Iterator[FeedItem]:
        """Iterates over what was recorded and then over what comes, in whatever process.

        The next item is waited for in the calling thread; `close` of the manager, from another, ends it.
        """
        items = self._verbs.follow(session_id, after=after, poll=poll, timeout=timeout)
        return self._stepped(items)

    def _stepped(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """An async iterator that waits for nothing but what this door can wait for, as a plain one."""
        try:
            while True:
                try:
                    item: T = self._run(items.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._run(items.aclose())

    def export_session(self, session_id: str) -> SessionState:
        """The session as a document: entries, summaries, totals, settings, and its whole log."""
        return self._run(self._verbs.export_session(session_id))

    def import_session(self, state: State, on_conflict: OnConflict = "fail") -> str:
        """Restores a session from a document and returns its id. All or nothing."""
        return self._run(self._verbs.import_session(state, on_conflict))

    def export_archive(
        self, session_id: str, to: Target, *, packing: Packing | None = None
    ) -> ArchiveInfo:
        """Writes the session's whole log as an archive of lines, for sessions of any length."""
        return self._run(self._verbs.export_archive(session_id, to, packing=packing))

    def import_archive(
        self,
        source: Source,
        on_conflict: OnConflict = "fail",
        *,
        limits: ArchiveLimits | None = None,
    ) -> str:
        """Restores a session from an archive and returns its id. All or nothing."""
        return self._run(self._verbs.import_archive(source, on_conflict, limits=limits))

    def clear_session(self, session_id: str) -> None:
        """Empties the window, pins and head included. The log stays; a clear is not undone."""
        self._run(self._verbs.clear_session(session_id))

    def delete_session(self, session_id: str) -> None:
        """Removes a session with its log, for good."""
        self._run(self._verbs.delete_session(session_id))

    def update_config(self, session_id: str | None = None, /, **settings: Any) -> None:
        """Changes settings of one session, which keeps them, or without an id of the manager."""
        self._run(self._verbs.update_config(session_id, **settings))

    def set_summarize_callback(self, summarizer: Any) -> None:
        """Takes another summarizer: a callable, a name, a `Summarizer`, or None for the settings' own."""
        self._run(self._verbs.set_summarize_callback(summarizer))

    def close(self) -> None:
        """Waits at most 5 s for background compressions, then closes the store.

        What is not done by then changes nothing any more, however late its summary comes.
        """
        self._run(self._verbs.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# ---------------------------------------------------------------- ports, accepted


def _accepted_counter(counter: Any, door: Door) -> Any:
    if counter is None or isinstance(counter, str):
        return counter
    if hasattr(counter, "count_texts"):
        _refuse_async_port(counter, ("count_texts",), None, "counter")
        return counter
    if callable(counter):
        if is_async_callable(counter):
            raise AsyncPortRefused(
                "the counter is async: `add` never waits for a count, so a counter must be a plain "
                "function or have a plain count_texts()"
            )
        return CallableCounter(counter)
    raise InvalidInput(
        f"a counter is a name, a `str -> int` or has count_texts(), not {type(counter).__name__}"
    )


def _refuse_async_port(port: Any, methods: Sequence[str], door: Door | None, what: str) -> None:
    for name in methods:
        method = getattr(port, name, None)
        if method is None:
            raise InvalidInput(f"the {what} {type(port).__name__} has no method {name}()")
        if (door is None or not door.is_async) and is_async_callable(method):
            raise AsyncPortRefused(
                f"{type(port).__name__}.{name} is async and MemoryManager is not: "
                f"use AsyncMemoryManager, or a sync {what}"
            )


def _arguments(arguments: Mapping[str, Any] | str) -> str:
    if isinstance(arguments, str):
        check_text(arguments, "a tool call's arguments")
        return arguments
    if not isinstance(arguments, Mapping):
        raise InvalidInput(
            f"a tool call's arguments are a mapping or text, not {type(arguments).__name__}"
        )
    return json_bytes(dict(arguments), "a tool call's arguments").decode()


_NO_TOOLS = b"[]"


def _tools(tools: Any) -> bytes:
    """Tool definitions as they are sent."""
    listed = isinstance(tools, Sequence) and not isinstance(tools, str | bytes)
    if not listed or not all(isinstance(tool, Mapping) for tool in tools):
        raise InvalidInput(f"tools must be a list of definitions (dicts), not {tools!r:.60}")
    return json_bytes(list(tools), "tools")


def _check_goal(target_tokens: Any, focus: Any) -> None:
    number = isinstance(target_tokens, int) and not isinstance(target_tokens, bool)
    if target_tokens is not None and (not number or target_tokens < 0):
        raise InvalidInput(f"target_tokens must be a number of tokens, not {target_tokens!r}")
    if focus is not None:
        check_text(focus, "focus")


def _check_on_conflict(on_conflict: str) -> None:
    if on_conflict not in ("fail", "skip", "new_session"):
        raise InvalidInput(f"on_conflict={on_conflict!r}: use 'fail', 'skip' or 'new_session'")


def _metadata(metadata: Mapping[str, Any]) -> msgspec.Raw:
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata must be a mapping, not {type(metadata).__name__}")
    return encode_json(dict(metadata), "metadata")
