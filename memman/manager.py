"""The verbs without `await`: `MemoryManager`, which drives those of `AsyncMemoryManager`."""

from __future__ import annotations

import os
from collections.abc import (
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from typing import Any, Self, TypeVar, overload

from memman import events, new_entries
from memman.archive import ArchiveInfo, ArchiveLimits, Packing, SessionState, Source, Target
from memman.async_manager import AsyncMemoryManager, Redact, State
from memman.compression import CompressionPlan
from memman.config import MemoryConfig
from memman.entries import Content, Entry, TokenCount
from memman.explain import Explanation
from memman.formats import FormatName
from memman.protocols import FeedItem, LocalCounter, ModelInfo, Store, Summarizer
from memman.results import Context, OverflowResult, SessionStats, Summary
from memman.runtime import SyncRuntime
from memman.session import OnConflict
from memman.signals import Subscription

T = TypeVar("T")


class MemoryManager:
    """Keeps conversations inside their context windows without losing a word of them.

    Args:
        store: None keeps logs in this process; a path (or `sqlite:///PATH`) in a SQLite file; another
            URL asks the plugins; or a `Store`.
        model: the model that the contexts are for; its counter and limits are found by name.
        config: the settings; `MemoryConfig()` by default.
        summarizer: None asks nobody unless the settings name somebody; a `str -> str` callable, a
            `Summarizer`, or a name: `anthropic:MODEL`, `cmd:PROGRAM ARGS`, `digest` for nobody.
        counter: None is resolved by `model`; a counter's name, a `str -> int`, or a counter.
        format: the message format of contexts, "openai-chat" by default.
        model_info: the limits of `model`, in place of those that memman knows.
        redact: `Entry -> Entry`, called before an entry is counted and stored, and again before a
            summarizer or a remote counter sees it.
        plugins: the distributions whose plugins may be loaded, such as `["memman-openai"]` or
            `["memman-openai:openai"]` for one entry point; None for all, `[]` for none.
        clock: aware datetimes; for tests.
        new_id: unique strings, made before the first attempt to store; for tests.
        new_nonce: 8 to 64 random hexadecimal digits for a new session; for tests.
        exclusive: this manager is the only writer of the store, so that it need not be asked for
            news at each operation. Always so for the store in memory that `None` makes.
        trust_settings: whether the settings that sessions of the store have may name a model, a
            summarizer, a prompt or a counting policy, or lift a limit; False for a store that others
            write to.

    Any thread may use it. `AsyncMemoryManager` has the same verbs, awaited. With a `summarize_timeout` the
    summarizer runs on a daemon thread, with None in the caller's.

    Raises:
        ConfigError: a setting, or two together, cannot be.
        PluginNotFound: no counter, format, summarizer or store answers to a name; nothing was opened.
        AsyncPortRefused: the store, counter or summarizer is async: use `AsyncMemoryManager`.
        InvalidInput: an argument is of the wrong kind.
        StoreError: the store cannot be opened.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | Store | None = None,
        *,
        model: str | None = None,
        config: MemoryConfig | None = None,
        summarizer: str | Callable[[str], str] | Summarizer | None = None,
        counter: str | Callable[[str], int] | LocalCounter | None = None,
        format: FormatName | str | None = None,
        model_info: ModelInfo | None = None,
        redact: Redact | None = None,
        plugins: Iterable[str] | None = None,
        clock: Callable[[], datetime] | None = None,
        new_id: Callable[[], str] | None = None,
        new_nonce: Callable[[], str] | None = None,
        exclusive: bool = False,
        trust_settings: bool = True,
    ) -> None:
        self._runtime = SyncRuntime()
        self._verbs = verbs = AsyncMemoryManager.__new__(AsyncMemoryManager)
        verbs._start(  # noqa: SLF001 - the two doors are one class in two forms
            self._runtime, self, store, model, config, summarizer, counter, format, model_info, redact,
            plugins, clock, new_id, new_nonce, exclusive, trust_settings,
        )  # fmt: skip

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runtime.run(work)

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
        """Adds what the user said. Once this returns, it is in the log for good.

        Args:
            session_id: creates the session if there is none.
            content: text, or a tuple of parts (`TextPart`, `ImagePart`, ...). A provider's messages go
                into `add_messages`.
            id: your own id for the entry; adding it again with the same content is a no-op.
            message_id: entries that share it are one message of the provider.
            pinned: never replaced by a compression.
            metadata: plain JSON data of your own, kept with the entry.
            compress: overrides `auto_compress` for this call.

        Raises:
            InvalidInput: something cannot be taken (a lone surrogate, NaN); nothing was changed.
            IdConflict: this id was added before with other content, or was deleted.
        """
        new_entry = new_entries.message("user", content, message_id)
        return self._run(
            self._verbs._add(session_id, new_entry, id, pinned, metadata, compress)  # noqa: SLF001
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
        """Adds what the assistant said; arguments and errors as in `add_user_message`."""
        new_entry = new_entries.message("assistant", content, message_id)
        return self._run(
            self._verbs._add(session_id, new_entry, id, pinned, metadata, compress)  # noqa: SLF001
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
        """Adds instructions; at the head of a session they are pinned from the start.

        Arguments and errors as in `add_user_message`.
        """
        new_entry = new_entries.message("system", content, message_id)
        return self._run(
            self._verbs._add(session_id, new_entry, id, pinned, metadata, compress)  # noqa: SLF001
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
        """Adds a call of a tool. Calls that share a `message_id` were made in parallel.

        Args:
            session_id: creates the session if there is none.
            name: the tool's.
            arguments: a mapping, or the text that the model wrote, which is kept as it is.
            call_id: the provider's id of the call. Without one the result is found by the tool's name and
                the order.

        The other arguments and the errors are those of `add_user_message`.
        """
        new_entry = new_entries.tool_call(name, arguments, call_id, message_id)
        return self._run(
            self._verbs._add(session_id, new_entry, id, pinned, metadata, compress)  # noqa: SLF001
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
        """Adds what a tool returned. A result whose call is unknown is kept and rendered as a note.

        Args:
            session_id: creates the session if there is none.
            name: the tool's.
            content: text (`json.dumps` what is not), or a tuple of parts.
            call_id: the id of the call that it answers.
            is_error: whether the tool failed; a provider that has a field for it is told.
            metadata: with `{"fold_key": ...}` a compression may fold older results of the same key.

        The other arguments and the errors are those of `add_user_message`.
        """
        new_entry = new_entries.tool_result(name, content, call_id, is_error, message_id)
        return self._run(
            self._verbs._add(session_id, new_entry, id, pinned, metadata, compress)  # noqa: SLF001
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
        """Adds material from a `source` (a file, a search); it is rendered as such, not as the user's.

        `metadata={"fold_key": ...}` as in `add_tool_result`; the other arguments and the errors are those
        of `add_user_message`.
        """
        new_entry = new_entries.context(source, content, message_id)
        return self._run(
            self._verbs._add(session_id, new_entry, id, pinned, metadata, compress)  # noqa: SLF001
        )

    def add_messages(
        self, session_id: str, messages: Any, format: FormatName | str = "auto"
    ) -> list[Entry]:
        """Adds a provider's messages, atomically: all or none.

        Args:
            session_id: creates the session if there is none.
            messages: a list of dicts or of an SDK's message objects, one of them, a response object
                (its message, and its usage with it), the list of a streamed response's pieces, or text in
                the format `text`.
            format: a format's name, or "auto" to detect it.

        Raises:
            FormatError: they are in no known format, or broken; the message at fault is named.
        """
        return self._run(self._verbs.add_messages(session_id, messages, format))

    def record_usage(self, session_id: str, usage: Any, *, model: str | None = None) -> None:
        """Keeps what the provider said the last request cost, and learns from it.

        `add_messages` does so for a whole response. Cached tokens are normalised: the total is what was
        read, cached or not.

        Args:
            session_id: must exist.
            usage: a response of the OpenAI, Anthropic, Google or Bedrock SDK, its usage object, that as a
                dict, or the number of input tokens.
            model: the model that reported it; the session's by default.

        Raises:
            InvalidInput: there are no input tokens in it, or fewer than were cached; nothing was changed.
            SessionNotFound: there is no such session.
        """
        self._run(self._verbs.record_usage(session_id, usage, model=model))

    def record_overflow(
        self, error: BaseException | str, *, model: str | None = None
    ) -> OverflowResult:
        """Learns a model's limit from a provider's refusal of a request that was too long.

        From then on no budget of this manager for that model is above what the limit leaves for input; a
        larger `max_tokens` is lowered, with a warning. Nothing is stored.

        Args:
            error: what the provider's SDK raised, or its text.
            model: the model that refused; the manager's by default.

        Returns:
            Whether the error is an overflow at all, and the limits as they are now; those are None, and
            nothing changed, if the error names no limit.

        Raises:
            InvalidInput: no model is set or given, or `error` is neither an exception nor text.
            ConfigError: the new limit leaves no room for `reserve_output`; nothing was changed.
        """
        return self._run(self._verbs.record_overflow(error, model=model))

    def compress(
        self,
        session_id: str,
        *,
        target_tokens: int | None = None,
        focus: str | None = None,
        summarize: bool | None = None,
    ) -> events.CompressionResult:
        """Compress everything but the recent window now, however small the window is.

        The result's `reason` has one clause per step: what was done, and why a summarizer was or was not
        called.

        Args:
            session_id: must exist.
            target_tokens: how many tokens the window may have at most, from 1 to `max_tokens`: the oldest
                entries are compressed until it has, and none if it has already.
            focus: what a summary should pay special attention to, in words.
            summarize: whether to call the summarizer. None calls it if there are at least
                `min_entries_to_compress` old entries, True calls it always, False writes a digest.

        Raises:
            CompressionFailed: a stage of the strategy or `redact` failed, or the summarizer did and
                `on_failure="raise"`; nothing was changed.
            InvalidInput: the target is below 1 or above the trigger, the focus is blank, or
                `summarize=True` without a summarizer or without the step that calls it.
        """
        return self._run(
            self._verbs.compress(
                session_id, target_tokens=target_tokens, focus=focus, summarize=summarize
            )
        )

    def plan_compression(
        self,
        session_id: str,
        *,
        target_tokens: int | None = None,
        focus: str | None = None,
        summarize: bool | None = None,
    ) -> CompressionPlan:
        """What `compress` would do, entry by entry. Asks no summarizer and changes nothing."""
        return self._run(
            self._verbs.plan_compression(
                session_id, target_tokens=target_tokens, focus=focus, summarize=summarize
            )
        )

    def undo_compression(self, session_id: str, compression_id: str | None = None) -> str:
        """Takes a compression back, the latest by default, and returns its id.

        Raises `Refused` when a later compression folded it (the message names the one to undo first)
        or its replacement is pinned, `EntryNotFound` when it is not in force.
        """
        return self._run(self._verbs.undo_compression(session_id, compression_id))

    def pin(self, session_id: str, entry_id: str) -> None:
        """Keeps an active entry from ever being replaced."""
        self._run(self._verbs.pin(session_id, entry_id))

    def unpin(self, session_id: str, entry_id: str) -> None:
        """Lets an entry be replaced again."""
        self._run(self._verbs.unpin(session_id, entry_id))

    def delete_entries(self, session_id: str, ids: Sequence[str]) -> None:
        """Removes added entries for good, with every summary that was made of them.

        Compressions that hide one of them are unfolded first, so that the window may be over its limit
        until the next add compresses it; a context is trimmed until then. Payloads are overwritten in the
        store.

        Raises `EntryNotFound` for an id that no added entry has; nothing was changed then.
        """
        self._run(self._verbs.delete_entries(session_id, ids))

    def build_context(
        self,
        session_id: str,
        *,
        format: FormatName | str | None = None,
        model: str | None = None,
        budget: int | None = None,
        system: Any = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        missing_ok: bool = False,
    ) -> Context:
        """What to send to the model: valid in `format` and within `budget`. Changes nothing.

        Args:
            session_id: must exist, unless `missing_ok`.
            format: "openai-chat", "openai-responses", "anthropic", "gemini", "bedrock", "mistral",
                "langchain", "text", or a plugin's; the manager's by default.
            model: another model than the session's; the window is priced by its counter and its reports.
            budget: tokens; the session's `max_tokens` by default.
            system: a system prompt that precedes the session's own system messages: a text, Anthropic's
                list of blocks, or Gemini's `Content`; `Context.system` has its text.
            tools: the tool definitions that you will send along; they are counted.
            missing_ok: a session that nothing was added to has an empty context.

        Raises:
            BudgetExceeded: pinned entries, the head and the clipped newest exchange do not fit.
            SessionNotFound: there is no such session, and `missing_ok` is not set.
        """
        return self._run(
            self._verbs.build_context(
                session_id,
                format=format,
                model=model,
                budget=budget,
                system=system,
                tools=tools,
                missing_ok=missing_ok,
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
        """One entry, active or compressed, by its id or its address (`#556`, or `#556.2`).

        Raises `EntryNotFound`.
        """
        return self._run(self._verbs.get_entry(session_id, id))

    def get_summaries(self, session_id: str) -> list[Summary]:
        """The summaries in force, with the ids of what they stand for."""
        return self._run(self._verbs.get_summaries(session_id))

    def get_stats(self, session_id: str) -> SessionStats:
        """A session's numbers: entries, tokens, limits, the counter, drift, what summaries cost."""
        return self._run(self._verbs.get_stats(session_id))

    def explain(self, session_id: str) -> Explanation:
        """Why a session was or was not compressed, what is next, and what became of each entry.

        Reads the log since the last clear. Asks no summarizer and changes nothing.
        """
        return self._run(self._verbs.explain(session_id))

    def count_tokens(
        self,
        content: Any,
        *,
        model: str | None = None,
        system: Any = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        exact: bool = False,
    ) -> TokenCount:
        """Counts a text, entries, or a provider's messages (then with their framing).

        Args:
            content: a text, an `Entry` or a list of them, or messages as `add_messages` takes them.
            model: whose tokens; the manager's model by default.
            system: a system prompt that is counted with it: a text, Anthropic's list of blocks, or Gemini's
                `Content`.
            tools: tool definitions that are counted with it.
            exact: ask the model's provider, if its counter is installed and can be reached; `method` is
                "api" then. The content is counted as a whole request, after `redact`.

        Raises:
            FormatError: the messages are in no known format, or broken.
        """
        return self._run(
            self._verbs.count_tokens(content, model=model, system=system, tools=tools, exact=exact)
        )

    def list_sessions(self) -> list[str]:
        """The ids of all sessions of the store."""
        return self._run(self._verbs.list_sessions())

    def feed(
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
        return self._runtime.iterate(items)

    def export_session(self, session_id: str) -> SessionState:
        """The session as a document: entries, summaries, totals, settings, and its whole log."""
        return self._run(self._verbs.export_session(session_id))

    def import_session(
        self, state: State, on_conflict: OnConflict = "fail", *, trust_settings: bool = False
    ) -> str:
        """Restores a session from a document and returns its id. All or nothing.

        Totals, links and derived fields are checked against the log, never trusted.

        Args:
            state: a `SessionState`, its JSON, or that as plain data.
            on_conflict: when a session of this id exists: "fail", "skip" (keep what is there), or
                "new_session" (import under a new id).
            trust_settings: whether settings in it may take effect that name a model, a summarizer, a
                prompt or a counting policy, or that lift a limit of this manager. They stay in its log
                either way.

        Raises:
            StateError: the document is not sound; `problems` has every fault.
            SessionExists: with `on_conflict="fail"`.
        """
        return self._run(
            self._verbs.import_session(state, on_conflict, trust_settings=trust_settings)
        )

    def export_archive(
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
            FileError: the file cannot be written.
        """
        return self._run(self._verbs.export_archive(session_id, to, packing=packing))

    def import_archive(
        self,
        source: Source,
        on_conflict: OnConflict = "fail",
        *,
        limits: ArchiveLimits | None = None,
        trust_settings: bool = False,
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
            trust_settings: as in `import_session`.

        Raises:
            StateError: it is not sound, or beyond a limit; `problems` has every fault with its line.
            SessionExists: with `on_conflict="fail"`.
            FileError: the file cannot be read.
        """
        return self._run(
            self._verbs.import_archive(
                source, on_conflict, limits=limits, trust_settings=trust_settings
            )
        )

    def clear_session(self, session_id: str) -> None:
        """Empties the window, pins and head included. The log stays; a clear is not undone."""
        self._run(self._verbs.clear_session(session_id))

    def delete_session(self, session_id: str, *, missing_ok: bool = False) -> None:
        """Removes a session with its log, for good.

        Raises `SessionNotFound` if there is none; with `missing_ok` it does nothing then.
        """
        self._run(self._verbs.delete_session(session_id, missing_ok=missing_ok))

    def update_config(self, session_id: str | None = None, /, **settings: Any) -> None:
        """Changes settings of one session, which keeps them, or without an id of the manager.

        Args:
            session_id: creates the session if there is none; left out for the manager's own settings.
            settings: any of `MemoryConfig`'s, by name.

        Raises:
            ConfigError: a setting is unknown, of the wrong type or range, or contradicts another; nothing
                was changed.
            InvalidInput: the setting is the manager's alone, or names what a session may not.
        """
        self._run(self._verbs.update_config(session_id, **settings))

    def set_summarize_callback(
        self, summarizer: str | Callable[[str], str] | Summarizer | None
    ) -> None:
        """Takes another summarizer: a callable, a name, a `Summarizer`, or None for the settings' own.

        Raises `PluginNotFound`, `SummarizerUnavailable` or `InvalidInput`; nothing was changed then.
        """
        self._run(self._verbs.set_summarize_callback(summarizer))

    @overload
    def on(self, event: type[events.E], callback: Callable[[events.E], object]) -> Subscription: ...
    @overload
    def on(self, event: events.EventName, callback: Callable[[Any], object]) -> Subscription: ...
    def on(self, event: Any, callback: Callable[[Any], object]) -> Subscription:
        """Call `callback(event)` for every event of this kind that this manager emits.

        Unlike a signal's `connect`, it holds the callback, and other managers do not reach it.

        Args:
            event: a name (`"compressed"`, `"entry_added"`, ...) or a payload's type
                (`events.CompressionResult`), which lets a type checker check the callback.
            callback: takes the event. Only `AsyncMemoryManager` takes a coroutine function.

        Returns:
            The subscription; its `off()` ends it.

        Raises:
            InvalidInput: the event is unknown, or the callback does not take one argument.
            AsyncPortRefused: the callback is async and the manager is not.
        """
        return self._verbs.on(event, callback)

    def close(self) -> None:
        """Waits at most 5 s for background compressions, then closes the store.

        What is not done by then changes nothing any more, however late its summary comes. After it every
        verb that needs the store raises `StoreError`; closing again does nothing.
        """
        self._run(self._verbs.close())

    def __repr__(self) -> str:
        return repr(self._verbs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
