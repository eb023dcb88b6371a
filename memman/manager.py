"""The verbs without `await`: `MemoryManager`, which drives those of `AsyncMemoryManager`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from types import CoroutineType
from typing import Any, Self, TypeVar

from memman import drafts, events
from memman.archive import ArchiveInfo, ArchiveLimits, Packing, SessionState, Source, Target
from memman.async_manager import AsyncMemoryManager, OnConflict, Redact, State
from memman.compression import CompressionPlan
from memman.config import MemoryConfig
from memman.doors import SyncDoor, suspended
from memman.entries import Content, Entry, TokenCount
from memman.explaining import Explanation
from memman.ports import FeedItem, ModelInfo
from memman.results import Context, SessionStats, Summary

T = TypeVar("T")


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
        self._adding, self._building = verbs._adding, verbs._building  # noqa: SLF001 - likewise

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

    def _now(self, verb: Callable[..., T | Coroutine[Any, Any, T]], *given: Any) -> T:
        """What a verb gives at once, or at its end; after an interruption as `_run`."""
        try:
            answer = verb(*given)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            self._verbs._heal()  # noqa: SLF001 - see __init__
            raise
        # To mypy a coroutine may be of another class.
        return self._run(answer) if type(answer) is CoroutineType else answer  # type: ignore[return-value]

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
        draft = drafts.said("user", content, message_id)
        return self._now(self._adding, session_id, draft, id, pinned, metadata, compress)

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
        draft = drafts.said("assistant", content, message_id)
        return self._now(self._adding, session_id, draft, id, pinned, metadata, compress)

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
        draft = drafts.said("system", content, message_id)
        return self._now(self._adding, session_id, draft, id, pinned, metadata, compress)

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
        draft = drafts.tool_call(name, arguments, call_id, message_id)
        return self._now(self._adding, session_id, draft, id, pinned, metadata, compress)

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
        draft = drafts.tool_result(name, content, call_id, is_error, message_id)
        return self._now(self._adding, session_id, draft, id, pinned, metadata, compress)

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
        draft = drafts.context(source, content, message_id)
        return self._now(self._adding, session_id, draft, id, pinned, metadata, compress)

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
        return self._now(self._building, session_id, format, model, budget, system, tools)

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
