"""The methods of both managers, as coroutines.

`AsyncMemoryManager` inherits them; `MemoryManager` is generated from them by `.ci/generate_sync.py`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Literal, overload

from memman import events
from memman.archive.document import SessionState
from memman.archive.info import ArchiveInfo, OnConflict, Packing, Source, Target
from memman.archive.limits import ArchiveLimits
from memman.config import MemoryConfig, resolve_budget, usable_input
from memman.core.arguments import (
    check_adding,
    check_entry_ids,
    check_goal,
    check_last,
    check_message_ids,
    check_on_conflict,
    check_positive,
    check_switch,
    check_unknown,
    checked_entry,
    context_request,
    metadata_json,
    new_entry,
    search_request,
    system_text,
    tools_json,
)
from memman.core.core import Core
from memman.core.token_counts import TokenCounting
from memman.core.unstored import Unstored
from memman.counting.lookup import SMALLEST_WINDOW
from memman.counting.media import media_fault
from memman.counting.usage import billed_tokens, given_tokens, usage_of
from memman.display import safe_repr
from memman.entries import (
    NO_JSON,
    ContentLike,
    Entry,
    EntryType,
    NewEntry,
    TokenCount,
    check_id,
    check_model,
    check_text,
    decode_json,
)
from memman.errors import FileError, FormatError, InvalidInput, SessionNotFound
from memman.events import CompressionPlan, Subscription
from memman.explain.explanation import Explanation
from memman.formats import FormatName
from memman.formats.lenient import read_messages, with_notes
from memman.formats.parts import read_compaction
from memman.formats.plain import (
    cleared_tokens,
    is_compacted,
    is_empty_reply,
    plain_message,
    reported_usage,
    response_id,
)
from memman.formats.streams import whole
from memman.formats.wire.tables import needs_of
from memman.protocols import FeedItem, SessionInfo, SummarizeCallback, Summarizer
from memman.recall import AsyncRecallTool, Recall
from memman.records import UsageReported
from memman.results import Context, EntryState, Hit, OverflowResult, SessionStats, Summary
from memman.runtime.observation import Observer, Operation, observed
from memman.session.policy import CompressionRequest
from memman.session.session import Session
from memman.spend import BilledTokens, Spend, total_spend

logger = logging.getLogger("memman")
State = SessionState | Mapping[str, Any] | str | bytes
"""A session document: as its type, as plain data, or as JSON."""


class AsyncMethods:
    """The methods of a manager over its `Core`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # ------------------------------------------------------------ adding

    async def add_user_message(
        self,
        session_id: str,
        content: ContentLike,
        *,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
        unknown: Literal["refuse", "keep"] = "refuse",
    ) -> Entry:
        """Add a message of the user. Once this returns, it is in the log.

        Args:
            session_id: the session, which is created if it does not exist.
            content: a text, a part (`TextPart`, `ImagePart`, ...), a list of parts, or a list of blocks of
                a provider, such as Anthropic's `{"type": "image", ...}`. Use `add_messages` for messages.
            id: your own id for the entry; adding it again with the same content is a no-op.
            message_id: entries with the same one belong to one message of the provider.
            pinned: whether no compression may replace it.
            metadata: your own JSON data, stored with the entry.
            compress: overrides `auto_compress` for this call.
            unknown: "keep" for a caller that must not fail in the middle of a turn: what cannot be stored
                in content, names and ids of messages and calls (a lone surrogate, NaN) is replaced, data
                that is no content becomes JSON text. The reason is in `metadata["memman"]["altered"]`.

        Raises:
            InvalidInput: an argument cannot be stored, or no provider can read a file or image in it;
                nothing was changed.
            IdConflict: this id was added before with other content, or was deleted.
            BudgetExceeded: the model's window cannot take the files; nothing was changed.
        """
        given = new_entry("message", "user", content, message_id)
        return await self._add(session_id, given, id, pinned, metadata, compress, unknown)

    async def add_assistant_message(
        self,
        session_id: str,
        content: ContentLike,
        *,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
        unknown: Literal["refuse", "keep"] = "refuse",
    ) -> Entry:
        """Add a message of the assistant; arguments and errors as in `add_user_message`."""
        given = new_entry("message", "assistant", content, message_id)
        return await self._add(session_id, given, id, pinned, metadata, compress, unknown)

    async def add_system_message(
        self,
        session_id: str,
        content: ContentLike,
        *,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
        unknown: Literal["refuse", "keep"] = "refuse",
    ) -> Entry:
        """Add instructions; at the start of a session they are pinned.

        Arguments and errors as in `add_user_message`.
        """
        given = new_entry("message", "system", content, message_id)
        return await self._add(session_id, given, id, pinned, metadata, compress, unknown)

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
        unknown: Literal["refuse", "keep"] = "refuse",
    ) -> Entry:
        """Add a tool call. Calls with the same `message_id` are parallel.

        Args:
            session_id: the session, which is created if it does not exist.
            name: the tool's name.
            arguments: a mapping, or the text that the model wrote, which is stored unchanged.
            call_id: the provider's id of the call. Without one, the result is matched by the tool's name
                and the order.

        The other arguments and the errors are those of `add_user_message`.
        """
        given = new_entry("tool_call", "assistant", arguments, message_id, name, call_id)
        return await self._add(session_id, given, id, pinned, metadata, compress, unknown)

    async def add_tool_result(
        self,
        session_id: str,
        name: str,
        content: ContentLike,
        *,
        call_id: str | None = None,
        is_error: bool = False,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
        unknown: Literal["refuse", "keep"] = "refuse",
    ) -> Entry:
        """Add the result of a tool. A result without a known call is rendered as a note.

        Args:
            session_id: the session, which is created if it does not exist.
            name: the tool's name.
            content: as in `add_user_message`; `json.dumps` makes text of other data.
            call_id: the id of its call.
            is_error: whether the tool failed; sent to providers that have a field for it.
            metadata: with `{"fold_key": ...}`, a compression may fold older results with the same key.

        The other arguments and the errors are those of `add_user_message`.
        """
        given = new_entry("tool_result", "tool", content, message_id, name, call_id, is_error)
        return await self._add(session_id, given, id, pinned, metadata, compress, unknown)

    async def add_context(
        self,
        session_id: str,
        content: ContentLike,
        source: str,
        *,
        id: str | None = None,
        message_id: str | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        compress: bool | None = None,
        unknown: Literal["refuse", "keep"] = "refuse",
    ) -> Entry:
        """Add material from a `source` (a file, a search); it is rendered as such, not as the user's.

        `metadata={"fold_key": ...}` as in `add_tool_result`; the other arguments and the errors are those
        of `add_user_message`.
        """
        given = new_entry("context", "system", content, message_id, source)
        return await self._add(session_id, given, id, pinned, metadata, compress, unknown)

    async def add_messages(
        self,
        session_id: str,
        messages: Any,
        format: FormatName | str = "auto",
        *,
        ids: Sequence[str | None] | None = None,
        metadata: Mapping[str, Any] | None = None,
        pinned: bool = False,
        compress: bool | None = None,
        unknown: Literal["refuse", "keep"] = "refuse",
    ) -> list[Entry]:
        """Add a provider's messages, all or none. Of a response without words and calls, as after a
        filter's stop, only the usage is recorded.

        Args:
            session_id: the session, which is created if it does not exist.
            messages: a list of dicts or of an SDK's message objects, one of them, a response object (its
                message and its usage are recorded), the list of a streamed response's chunks, or text in
                the format `text`.
            format: a format's name, or "auto" to detect it.
            ids: your own id for each message; None for one of memman's. The entries of the message `m` have
                the ids `m`, `m:1`, `m:2` and so on. A message that was added before with the same content
                is not added again, so a list that begins with known messages can be added as a whole.
                After a clear or a retraction its id is free again. Without ids, a result that its call has
                already is not added again, nor is a response directly behind itself.
            metadata: your own JSON data, stored with each new entry.
            pinned: whether no compression may replace the new entries.
            compress: overrides `auto_compress` for this call.
            unknown: "keep" for a caller that must not fail in the middle of a turn. A message that the
                format cannot read is kept whole: `get_messages` returns it, and a context has it if the
                format's rules allow it, else a note. Lone surrogates, and values that JSON does not have,
                are replaced. The reason is in `metadata["memman"]`, under "kept" or "altered"; a warning
                reports the first message of a session, the event `message_altered` each.

        Returns:
            The entries of all messages in order, also of those that were added before, without deleted
            ones: a deleted entry is not added again.

        Raises:
            FormatError: a message is malformed, or no provider can read a file or image in it; the error
                has its index. With `unknown="keep"`, only a stream that was not read, or a call that was
                not awaited.
            PluginNotFound: the format is unknown.
            InvalidInput: another argument cannot be stored, or there is not one id for each message.
            IdConflict: a message was added before with other content; nothing was changed.
            BudgetExceeded: the model's window cannot take the files of the newest message of the user.
        """
        session_id = check_id(session_id, "session_id")
        check_adding(pinned, compress)
        encoded = NO_JSON if metadata is None else metadata_json(metadata)
        keep = check_unknown(unknown)
        given = whole(messages, keep=keep)
        plain = read_messages(given, keep=keep)
        if ids is not None:
            ids = check_message_ids(ids, len(plain))
        core, new_entries = self._core, []
        if not is_empty_reply(given, [each.message for each in plain]):
            new_entries = core.resolver.parsed(plain, format, keep=keep, default=core.shared.format)
        if keep:
            new_entries = [with_notes(each, media_fault) for each in new_entries]
        for each in new_entries:
            if not keep and (fault := media_fault(each.content)):
                raise FormatError(f"message {each.message_index}: {fault}", each.message_index)
        usage = self._readable_usage(given)
        if not new_entries and usage is None:
            return []
        session = self._core.sessions.get(session_id)
        response = response_id(given) if ids is None else ""
        return await session.add_messages(
            new_entries, ids, pinned, encoded, compress, usage, response
        )

    def _readable_usage(self, response: Any) -> UsageReported | None:
        """Return a response's usage; None, with a warning, if it cannot be read."""
        usage = reported_usage(response)
        if usage is None:
            return None
        try:
            return self._usage_record(billed_tokens(usage), None, response)
        except InvalidInput as error:
            logger.warning("the usage of a response was not recorded: %s", error)
            return None

    def _usage_record(
        self, calls: tuple[BilledTokens, ...], model: str | None, response: Any
    ) -> UsageReported:
        shared, cleared = self._core.shared, cleared_tokens(response)
        if is_compacted(response):
            calls = (BilledTokens(), *calls)
        name = response_id(response)
        return usage_of(calls, shared.new_id(), shared.clock(), model, cleared, name)

    async def record_usage(
        self,
        session_id: str,
        usage: Any = None,
        *,
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_tokens: int | None = None,
        cache_written_tokens: int | None = None,
        cache_written_1h_tokens: int | None = None,
        total_tokens: int | None = None,
    ) -> None:
        """Record the usage that the provider reported for the last request, and calibrate counts by it.

        `add_messages` does this for a whole response; the same response given here as well changes nothing,
        as it is known by its id. The request is priced now if the model's prices are known. The recorded
        `input_tokens` include those read from the provider's cache and written to it, whichever provider
        reported them. Calls that a provider makes by itself, to compact the conversation or with another
        model, are recorded and priced apart.

        Args:
            session_id: must exist.
            usage: a response of the OpenAI, Anthropic, Google or Bedrock SDK, the list of its chunks, its
                usage object or dict, or the number of input tokens. Without it, pass numbers. A usage
                alone has no id: it counts each time. A number in it that memman does not know is reported
                by one warning.
            model: the model that the request was sent to; that of the last context by default.
            input_tokens: all tokens of the request, cached or not.
            output_tokens: the tokens of the reply.
            cached_tokens: those of the input that were read from the provider's cache.
            cache_written_tokens: those of the input that were written to it.
            cache_written_1h_tokens: those of them that it keeps for an hour.
            total_tokens: all tokens of the request and its reply, as reported. If it shows that
                `input_tokens` leaves out the cached ones, they are added.

        Raises:
            InvalidInput: there are no input tokens, or fewer than cached ones; nothing was changed.
            SessionNotFound: the session does not exist.
        """
        model = None if model is None else check_model(model)
        if isinstance(usage, list | tuple):
            usage = whole(usage)
        reported = reported_usage(usage)  # None unless it is a whole response
        billed = given_tokens(
            usage if reported is None else reported,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cached_tokens=cached_tokens,
            cache_written_tokens=cache_written_tokens,
            cache_written_1h_tokens=cache_written_1h_tokens,
            total_tokens=total_tokens,
        )
        record = self._usage_record(billed, model, usage)
        await (await self._core.sessions.existing(session_id)).record_usage(record)

    async def record_overflow(
        self, error: BaseException | str, *, model: str | None = None, tokens: int | None = None
    ) -> OverflowResult:
        """Learn a model's limit from a provider's error about a request that was too long.

        From then on, this manager's budgets for that model alone stay within the limit; a larger
        `max_tokens` is lowered, with a warning. If the error names no limit, or one that the refused
        request was within, the limit becomes three quarters of that request: build it again until it is
        accepted. Nothing is stored.

        Args:
            error: the exception of the provider's SDK, or its text.
            model: the model of the request; the manager's by default. Requests without any model have a
                limit of their own.
            tokens: of the refused request, as `Context.tokens` has them; the model's budget by default.

        Returns:
            Whether the error is an overflow, and the limits from now on; None if nothing was learned,
            because the request was smaller than any window. For a refused thought, what the request needs
            instead.

        Raises:
            InvalidInput: `error` is not an exception or text, or `tokens` is not a positive number.
            ConfigError: the new limit leaves no room for `reserve_output`; nothing was changed.
        """
        if not isinstance(error, BaseException | str):
            raise InvalidInput(
                f"error must be an exception or its text, not {safe_repr(error, 60)}"
            )
        check_positive(tokens, "tokens", "a number of tokens")
        config, models = self._core.shared.config, self._core.resolver.models
        name = config.model or "" if model is None else check_model(model)
        from memman.counting.overflow import parse_overflow, refuses_thought

        overflow = parse_overflow(error)
        if overflow is None:
            needs = needs_of(self._core.shared.format) if refuses_thought(error) else {}
            return OverflowResult(overflow=False, needs=needs)
        info = models.taught(name, overflow, self._core.today)
        if info is None or (tokens or sys.maxsize) <= usable_input(
            info.limits, config.reserve_output
        ):
            refused = tokens or resolve_budget(config, self._core.resolver.limits(name)).max_tokens
            if refused < SMALLEST_WINDOW:  # whatever the reason, it was not too long
                return OverflowResult(overflow=True, requested=overflow.requested)
            info = models.shortened(name, refused, config.reserve_output, self._core.today)
        self._core.learn_limits(name, info)
        whose, most = f"{name!r}" if name else "a request without a model", info.max_input
        logger.warning("%s: at most %d tokens of input from now on (%s)", whose, most, info.source)
        return OverflowResult(overflow=True, limits=info, requested=overflow.requested)

    # ------------------------------------------------------------ compressing

    async def compress(
        self,
        session_id: str,
        *,
        target_tokens: int | None = None,
        focus: str | None = None,
        summarize: bool | None = None,
    ) -> events.CompressionResult:
        """Compress everything but the recent window now, however small the window is.

        The result's `reason` has one clause per step, and the reason why the summarizer was or was not
        called.

        Args:
            session_id: must exist.
            target_tokens: the most tokens that the window may have, from 1 to `max_tokens`: the oldest
                entries are compressed until it fits, and none if it already does.
            focus: a topic that a summary should preserve in detail.
            summarize: whether to call the summarizer. None calls it if there are at least
                `min_entries_to_compress` old entries, True calls it always, False leaves them to the
                outline.

        Raises:
            CompressionFailed: a stage of the strategy or `redact` failed, or the summarizer did and
                `on_failure="raise"`; nothing was changed.
            InvalidInput: the target is below 1 or above the trigger, the focus is blank, or
                `summarize=True` without a summarizer or without the step that calls it.
        """
        check_goal(target_tokens, focus, summarize)
        focus = self._core.shared.redacted_focus(focus)
        request = CompressionRequest(target_tokens=target_tokens, focus=focus, summarize=summarize)
        return await (await self._core.sessions.existing(session_id)).compressor.compress(request)

    async def plan_compression(
        self,
        session_id: str,
        *,
        target_tokens: int | None = None,
        focus: str | None = None,
        summarize: bool | None = None,
    ) -> CompressionPlan:
        """Return the effect of `compress`, entry by entry. Calls no summarizer and changes nothing."""
        check_goal(target_tokens, focus, summarize)
        focus = self._core.shared.redacted_focus(focus)
        request = CompressionRequest(target_tokens=target_tokens, focus=focus, summarize=summarize)
        return await (await self._core.sessions.existing(session_id)).compressor.plan(request)

    async def undo_compression(self, session_id: str, compression_id: str | None = None) -> str:
        """Undo a compression, by default the latest, and return its id.

        Raises `Refused` if a later compression replaced it (the message names the one to undo first) or its
        replacement is pinned, `EntryNotFound` if it is not active.
        """
        name = None if compression_id is None else check_id(compression_id, "compression_id")
        return await (await self._core.sessions.existing(session_id)).undo(name)

    async def record_compression(self, session_id: str, upto: str, block: Any) -> str:
        """Replace the entries that a provider compacted by its compaction, and return the compression's id.

        Use it for a compaction that you requested on demand or in the background. Later entries and pinned
        ones stay. `add_messages` does the same for a reply with a compaction.

        Args:
            session_id: must exist.
            upto: the newest entry of the request that was compacted.
            block: the `compaction` block of Anthropic or item of OpenAI's Responses API, as data or an
                object of the SDK.

        Raises:
            FormatError: `block` is not a compaction, or it has no content.
            EntryNotFound: `upto` is unknown, or no longer represented in the window.
            InvalidInput: `upto` has a part that comes later, such as a result of its call.

        Nothing was changed then.
        """
        upto = check_id(upto, "upto")
        message = plain_message(0, {"role": "assistant", "content": [block]}, inside=False)
        new_entry = read_compaction(message["content"][0])
        session = await self._core.sessions.existing(session_id)
        return await session.record_compression(upto, new_entry)

    async def retract(self, session_id: str, ids: Sequence[str], *, reason: str = "") -> str:
        """Hide added entries of the current era, pinned ones too, and return the compression's id.

        Contexts, `get_entries` and totals no longer include them; the log, exports and `get_entry` do.
        `undo_compression` with the returned id brings them back. Until then their ids are free: an entry
        added with one of them is a new entry, and the retraction can no longer be undone. Compressions that
        cover a retracted entry are unfolded: the window may then be over its limit until the next add
        compresses it.

        Args:
            session_id: must exist.
            ids: entries that are retracted already stay so; if all are, the id of the newest of their
                retractions is returned.
            reason: why, for the log and the event `compressed`.

        Raises `EntryNotFound` for an unknown or deleted entry; nothing was changed then.
        """
        names = check_entry_ids(ids)
        if not names:
            raise InvalidInput("ids must name at least one entry to retract")
        reason = check_text(reason, "reason")
        return await (await self._core.sessions.existing(session_id)).retract(names, reason)

    async def pin(self, session_id: str, entry_id: str) -> None:
        """Pin an active entry: no compression replaces it."""
        entry_id = check_id(entry_id, "entry_id")
        await (await self._core.sessions.existing(session_id)).pin(entry_id, True)

    async def unpin(self, session_id: str, entry_id: str) -> None:
        """Unpin an entry, so that compressions may replace it again."""
        entry_id = check_id(entry_id, "entry_id")
        await (await self._core.sessions.existing(session_id)).pin(entry_id, False)

    async def delete_entries(self, session_id: str, ids: Sequence[str]) -> None:
        """Delete added entries permanently, with the summaries and recalled copies made from them.

        Compressions that hide one of them are unfolded first. The window may then be over its limit until
        the next add compresses it; contexts are trimmed until then. Payloads are overwritten in the store.

        Raises `EntryNotFound` for an unknown id; nothing was changed then.
        """
        names = check_entry_ids(ids)
        await (await self._core.sessions.existing(session_id)).delete(names)

    # ------------------------------------------------------------ reading

    async def build_context(
        self,
        session_id: str,
        *,
        format: FormatName | str | None = None,
        model: str | None = None,
        budget: int | None = None,
        system: Any = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        system_inline: bool = True,
        pending: Any = None,
        complete: bool = True,
        cache: Literal["auto"] | None = None,
        recall: bool | None = None,
        missing_ok: bool = False,
        window: int | None = None,
    ) -> Context:
        """Return the context to send to the model, valid in `format` and within `budget`. Changes nothing.

        Args:
            session_id: must exist, unless `missing_ok`.
            format: "openai-chat", "openai-responses", "anthropic", "gemini", "bedrock", "mistral",
                "langchain", "text", or a plugin's; the manager's by default.
            model: the model of this request; the manager's by default. Its window is the budget, and its
                counter and reported usage price the entries. Compressions follow its window too if the
                manager has no model, or if two turns in a row ask this one.
            budget: tokens; the session's `max_tokens` by default.
            system: a system prompt before the session's own system messages: a text, Anthropic's list of
                blocks, or Gemini's `Content`; `Context.system` has its text.
            tools: the tool definitions of the request; they are counted, and `Context.tools` has them.
            system_inline: False only counts `system`: the caller sends it, as frameworks do.
            pending: messages that follow the session's in this context and are stored nowhere, as for
                `add_messages(unknown="keep")`. They are trimmed last. In `Context.sources` their entries
                are `pending:0`, `pending:0:1` ...
            complete: False leaves calls without a result as they are and adds no messages that the format
                requires: a context to show, or for a framework that completes it itself.
            cache: "auto" places at most four marks for the provider's prompt cache: `cache_control` of
                Anthropic, `cachePoint` of Bedrock. They are at the ends of prompt and tools, of the
                compressed part, of the previous request and of this one, so send `Context.system` and
                `Context.tools`, too. With OpenAI's formats, `Context.prompt_cache_key` is set; the others
                need nothing, and `cache_ttl=None` marks nothing.
            recall: False quotes no earlier entries behind the messages of the user that speak of them, for
                which `recall_ratio` of the budget is kept free.
            missing_ok: return an empty context if the session does not exist.
            window: the tokens of this model's window; they lower its limits for all later requests.

        Raises:
            BudgetExceeded: pinned entries, system messages or the clipped newest exchange do not fit.
            SessionNotFound: the session does not exist, and `missing_ok` is not set.
        """
        core = self._core
        form = core.shared.format if format is None else core.resolver.format_named(format).name
        entries: tuple[Entry, ...] = ()
        if pending is not None:
            entries = Unstored(core.shared, core.resolver).pending(pending, form)
        request = context_request(
            form, model, budget, system, tools, system_inline, entries, complete, cache, recall
        )
        core.tell_window(model, window)
        try:
            return await (await core.sessions.existing(session_id)).build(request)
        except SessionNotFound:
            if not missing_ok:
                raise
            return Session(session_id, core.shared).build_empty(request)

    async def fit_messages(
        self,
        messages: Any,
        *,
        format: FormatName | str = "auto",
        model: str | None = None,
        budget: int | None = None,
        system: Any = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        system_inline: bool = True,
        cache: Literal["auto"] | None = None,
        window: int | None = None,
    ) -> Context:
        """Return a list of messages as a context, trimmed if it does not fit. Stores nothing.

        System messages at the start are kept. In `Context.sources` the entries of a message are named by
        its index: `0`, `1`, `1:1` ...

        Args:
            messages: the whole conversation, as for `add_messages(unknown="keep")`.
            format: the format of the messages and of the context, "auto" to detect it.

        The other arguments and the errors are those of `build_context`.
        """
        core = self._core
        core.tell_window(model, window)

        async def fit() -> Context:
            form, entries = Unstored(core.shared, core.resolver).whole(messages, format)
            request = context_request(
                form, model, budget, system, tools, system_inline, entries, cache=cache
            )
            return Session("messages", core.shared).build_empty(request)

        operation = Operation(kind="fit", model=model or core.shared.config.model)
        return await observed(core.shared.runtime.observer, operation, fit())

    async def get_context_for_llm(self, session_id: str) -> str:
        """Return the context as one text: summaries with their dates, then the recent entries."""
        return (await self.build_context(session_id, format="text")).text

    async def get_active_entries(self, session_id: str) -> list[Entry]:
        """Return the entries of the window in order, with summaries and stubs."""
        return await (await self._core.sessions.existing(session_id)).active_entries()

    async def get_entries(
        self, session_id: str, *, last: int | None = None, since: Sequence[str] | None = None
    ) -> list[Entry]:
        """Return the added entries of the current era in log order: compressed ones too, no retracted ones.

        `last` limits them to the newest, so many; if these are in the window, only the end of the log is
        read. With `since`, ids of entries, they are the first of these and all behind it, none without one
        of this era: only these are read.
        """
        last = check_last(last)
        since = None if since is None else check_entry_ids(since)
        return await (await self._core.sessions.existing(session_id)).entries(last, since)

    async def find_ids(self, session_id: str, ids: Sequence[str]) -> dict[str, str | None]:
        """Return those of the ids that were given to entries of a session, in log order.

        Each has the reason why the entry is hidden: that of its retraction, "cleared" or "deleted". It is
        None for an entry of the current era, compressed or not. The cost is that of these entries alone,
        if the store has an index of ids.
        """
        names = check_entry_ids(ids)
        return await (await self._core.sessions.existing(session_id)).known_ids(names)

    async def get_messages(
        self,
        session_id: str,
        *,
        format: FormatName | str | None = None,
        last: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the messages since the last clear as they were added, whatever was compressed.

        They are the whole history: without a budget, and without the repairs that make a context valid.

        Args:
            session_id: must exist.
            format: as in `build_context`; messages that were added in another format are converted.
            last: how many of the newest messages to return; all by default.
        """
        last = check_last(last)
        core = self._core
        form = core.resolver.format_named(core.shared.format if format is None else format)
        return await (await core.sessions.existing(session_id)).messages(form, last)

    async def get_entry(self, session_id: str, id: str) -> Entry:
        """Return an entry, active or compressed, by its id or address (`#556`, or `#556.2`).

        Raises `EntryNotFound`.
        """
        entry_id = check_id(id, "id")
        return await (await self._core.sessions.existing(session_id)).entry(entry_id)

    async def search(
        self,
        session_id: str | None,
        query: str,
        *,
        limit: int | None = None,
        budget: int | None = None,
        sessions: str | None = None,
        types: Sequence[EntryType] = (),
        tools: Sequence[str] = (),
        states: Sequence[EntryState] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[Hit]:
        """Search the log of messages and tool calls, compressed or not, and return the entries, best first.

        Words are compared by their stems; parts of words, paths, numbers and signs are found, too. Nothing
        in the query has a meaning as syntax. A store makes its index at the first search. With `embed=`,
        messages of one session are found by their meaning where no entry has enough of the words.

        Args:
            session_id: must exist; None for a search in several sessions.
            query: words, an exact value, a path, an error message; the first 2,000 characters count.
            limit: the most hits; 10 without a budget, with one as many as fit.
            budget: the most tokens of the entries that are returned. Each hit is followed by the next entry
                of the conversation if both fit; a hit that does not fit is left out.
            sessions: with `session_id=None` an id, or a beginning of ids and a star: `"customer-7/*"`.
            types: the types of entries to return; all by default.
            tools: names of tools, to return only their calls and results.
            states: the states of entries to return. By default those of the current era that are not
                retracted; "cleared" and "retracted" entries are only found if they are named here.
            since: the earliest time of an entry.
            until: the time that entries must be earlier than.

        Raises:
            InvalidInput: an argument has a wrong value, or the query is empty.
            SessionNotFound: no such session.
            StoreError: the store cannot list its sessions, and several are searched.
        """
        from memman.session.search import Searcher

        wanted = search_request(
            session_id, query, limit, budget, sessions, types, tools, states, since, until
        )
        core = self._core
        if wanted.session_id is not None:
            await core.sessions.existing(wanted.session_id)
        return await Searcher(wanted, core.shared, core.sessions).hits()

    async def get_summaries(self, session_id: str) -> list[Summary]:
        """Return the active summaries, with the ids of the entries they replace."""
        return await (await self._core.sessions.existing(session_id)).summaries()

    async def get_stats(self, session_id: str) -> SessionStats:
        """Return a session's numbers: entries, tokens, limits, counter, drift, summaries, spend."""
        return await (await self._core.sessions.existing(session_id)).stats()

    async def get_spend(self, *, prefix: str = "") -> Spend | None:
        """Return the money that the sessions of the store have cost; None if no price is known.

        Reads the totals of each session, and no logs. A fork has the requests of its original too.

        Args:
            prefix: only sessions whose ids begin with it.
        """
        store = self._core.shared.store
        sessions = await store.sessions(check_text(prefix, "prefix"))
        snapshots = [await store.load(each.session_id) for each in sessions]
        return total_spend(found.totals.spend for found in snapshots if found is not None)

    async def explain(self, session_id: str) -> Explanation:
        """Explain why a session was or was not compressed, what is next, and the state of each entry.

        Reads the log since the last clear. Calls no summarizer and changes nothing.
        """
        return await (await self._core.sessions.existing(session_id)).explain()

    def recall_tool(
        self, session_id: str, *, name: str = "recall", max_tokens: int = 2_000
    ) -> AsyncRecallTool:
        """Return the agent's own tool to read entries that left its context.

        Give its definition to the model (`tool.anthropic`, `tool.openai_chat`, ...), and add its answer as
        a tool result. As long as a tool of the session exists, new notices and summaries name it, and its
        results are the first to be cleared.

        Args:
            session_id: need not exist yet.
            name: the name under which the model calls it.
            max_tokens: the most tokens of an answer, from 200 on; longer ones have pages.

        Raises:
            InvalidInput: an argument is invalid.
        """
        core = self._core
        use = core.shared.recall_use(check_id(session_id, "session_id"))
        body = Recall(self.search, core.sessions, session_id, use, name, max_tokens)
        tool = AsyncRecallTool(body.answer, name, max_tokens)
        use.begin(name)
        return tool

    async def count_tokens(
        self,
        content: Any,
        *,
        model: str | None = None,
        system: Any = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        exact: bool = False,
    ) -> TokenCount:
        """Count a text, entries, or a provider's messages with their framing.

        Args:
            content: a text, an `Entry` or a list of them, or messages as for `add_messages`.
            model: the model that tokens are counted for; the manager's by default.
            system: a system prompt to count as well: a text, Anthropic's list of blocks, or Gemini's
                `Content`.
            tools: tool definitions to count as well.
            exact: request the count from the model's provider, if its counter is installed and reachable;
                `method` is "api" then. The content is counted as a whole request, after `redact`.

        Raises:
            FormatError: the format is unknown, or a message is malformed.
        """
        core = self._core
        config = core.shared.config
        if model is not None:
            config = config.updated({"model": check_model(model)})
        prompt = None if system is None else system_text(system)
        definitions, counter = tools_json(tools), core.resolver.counter(config)
        counting = TokenCounting(core.shared, core.resolver, config, counter, prompt, definitions)
        counted = await counting.count_exactly(content) if exact else None
        return counting.count(content) if counted is None else counted

    async def list_sessions(self, *, prefix: str = "") -> list[SessionInfo]:
        """Return the sessions in the store, in the order in which they began; reads no logs.

        Args:
            prefix: only sessions whose ids begin with it.
        """
        prefix = check_text(prefix, "prefix")
        return list(await self._core.shared.store.sessions(prefix))

    async def feed(
        self, session_id: str | None = None, *, after: int | str = "", limit: int = 1_000
    ) -> list[FeedItem]:
        """Return records of one session or of all sessions of the store, written by any process.

        Reading on from the last cursor returns each record exactly once, and those of a session in log
        order. Deleted entries have no content; deleted sessions are not included.

        Args:
            session_id: None for every session.
            after: the cursor of the last item that you have, or, for one session, its seq. "" starts at
                the beginning.
            limit: the most records to return; never more than a million.

        Raises:
            SessionNotFound: the session does not exist.
            InvalidInput: `after` is not a position in this log. It may be from another store or session, or
                from before this one was restored or recreated.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidInput(f"limit must be a number of records, not {safe_repr(limit, 60)}")
        await self._core.sessions.catch_up(session_id)
        from memman.session.feed import Feed

        return await Feed(self._core.shared, session_id, after).page(limit)

    def follow(
        self,
        session_id: str | None = None,
        *,
        after: int | str = "",
        poll: tuple[float, float] = (0.05, 2.0),
        timeout: float | None = None,
    ) -> AsyncGenerator[FeedItem, None]:
        """Iterate over the records so far, and then over new ones, written by any process.

        Each item comes at least once: keep the cursor of an item when you are done with it, and begin there
        the next time. A session that does not exist yet is waited for. Close the iterator, or the manager,
        to end it.

        Args:
            session_id: None for every session.
            after: as in `feed`.
            poll: the shortest and the longest pause in seconds between two reads of the store; the pause
                doubles while there are no new records. This manager's own records arrive at once.
            timeout: seconds without a record after which the iteration ends; None for never.

        Raises:
            SessionNotFound: the session was deleted.
            InvalidInput: as in `feed`, or `poll` or `timeout` is invalid.
            StoreError: the store cannot be read; resume after the last item.
        """
        from memman.session.feed import Follower

        return Follower(self._core.shared, session_id, after, poll, timeout).items()

    # ------------------------------------------------------------ sessions out and in

    async def export_session(self, session_id: str) -> SessionState:
        """Return the session as a document: entries, summaries, totals, settings, and its whole log."""
        return await (await self._core.sessions.existing(session_id)).export()

    async def import_session(
        self, state: State, on_conflict: OnConflict = "fail", *, trust_settings: bool = False
    ) -> str:
        """Restore a session from a document, all or nothing, and return its id.

        Totals, links and derived fields are checked against the log, never trusted.

        Args:
            state: a `SessionState`, its JSON, or its plain data.
            on_conflict: if the session exists: "fail", "skip" (keep the existing one), or "new_session"
                (import under a new id).
            trust_settings: whether its settings may take effect that name a model, a summarizer, a prompt
                or a counting policy, or that lift a limit of this manager. They stay in its log either way.

        Raises:
            StateError: the document is invalid; `problems` lists every fault.
            SessionExists: with `on_conflict="fail"`.
        """
        check_on_conflict(on_conflict)
        document = state if isinstance(state, SessionState) else SessionState.from_json(state)
        check_switch(trust_settings, "trust_settings")
        from memman.session.importer import Importer

        importer = Importer(self._core.shared, self._core.sessions)
        return await importer.document(document, on_conflict, trust_settings)

    async def export_archive(
        self, session_id: str, to: Target, *, packing: Packing | None = None
    ) -> ArchiveInfo:
        """Write the session's whole log as an archive of JSON lines, for sessions of any length.

        It is written page by page; records that are added during the export are not included.

        Args:
            session_id: the session.
            to: a path, or a binary file, which is not closed. A path's file is complete or absent, and
                only its owner can read it.
            packing: "none", "gzip" or "zstd" (the extra `zstd`); None chooses by the path's suffix, `.gz`
                or `.zst`.

        Raises:
            StoreConflict: entries, or the session, were deleted during the export; a path has no file then.
            FileError: the file cannot be written.
        """
        session = await self._core.sessions.existing(session_id)
        with _typed(to):
            from memman.session.exporter import export_archive

            return await export_archive(session.id, self._core.shared, to, packing)

    async def import_archive(
        self,
        source: Source,
        on_conflict: OnConflict = "fail",
        *,
        limits: ArchiveLimits | None = None,
        trust_settings: bool = False,
    ) -> str:
        """Restore a session from an archive, all or nothing, and return its id.

        The archive is first read to its end and checked, in temporary files, then stored in one commit.
        Counts by this manager's counter are recomputed. If the session already has all of these records,
        the import changes nothing and is not a conflict, so it can be repeated.

        Args:
            source: a path, or a binary file, which is read from its position and not closed. Its first
                bytes determine the compression.
            on_conflict: as in `import_session`, if another session has this id.
            limits: the limits of the archive's size; `ArchiveLimits()` by default.
            trust_settings: as in `import_session`.

        Raises:
            StateError: it is invalid, or exceeds a limit; `problems` lists every fault with its line.
            SessionExists: with `on_conflict="fail"`.
            FileError: the file cannot be read.
        """
        check_on_conflict(on_conflict)
        check_switch(trust_settings, "trust_settings")
        from memman.session.importer import Importer

        importer = Importer(self._core.shared, self._core.sessions)
        with _typed(source):
            return await importer.archive(source, on_conflict, limits, trust_settings)

    async def fork_session(self, session_id: str, new_id: str, *, upto: str | None = None) -> str:
        """Copy a session's log to a new session, in one commit, and return the new id.

        The copy has the entries with their ids, and the compressions, usage, settings and metadata of that
        moment. Later changes of one session, deletions included, do not reach the other.

        Args:
            session_id: must exist; it does not change, and may be written to meanwhile.
            new_id: the id of the new session.
            upto: the id of the last entry to copy, with the other entries of its message; None for the
                whole log. Compressions after that entry are not copied, so entries that they replaced are
                in the copy's window.

        Raises:
            SessionExists: there is a session `new_id`; nothing was changed.
            EntryNotFound: `upto` was never added, or was deleted.
            StoreConflict: entries, or the session, were deleted during the copy; nothing was changed.
        """
        new_id = check_id(new_id, "new_id")
        upto = None if upto is None else check_id(upto, "upto")
        session = await self._core.sessions.existing(session_id)
        from memman.session.forker import fork_session

        await fork_session(session.id, new_id, upto, self._core.shared, self._core.sessions)
        return new_id

    async def clear_session(self, session_id: str) -> None:
        """Empty the window, with pins and head. The log stays; a clear cannot be undone."""
        await (await self._core.sessions.existing(session_id)).clear()

    async def delete_session(self, session_id: str, *, missing_ok: bool = False) -> None:
        """Delete a session with its log, permanently.

        Raises `SessionNotFound` if it does not exist, unless `missing_ok` is set.
        """
        try:
            await (await self._core.sessions.existing(session_id)).delete_all()
        except SessionNotFound:
            if not missing_ok:
                raise

    # ------------------------------------------------------------ settings

    async def update_config(self, session_id: str | None = None, /, **settings: Any) -> None:
        """Change settings of one session, which stores them, or, without an id, of the manager.

        Args:
            session_id: the session, which is created if it does not exist; omit it for the manager's own
                settings.
            settings: the fields of `MemoryConfig`, by name.

        Raises:
            ConfigError: a setting is unknown, has the wrong type or range, or contradicts another; nothing
                was changed.
            InvalidInput: the setting belongs to the manager only, or a session may not set it.
        """
        if isinstance(session_id, Mapping | MemoryConfig):
            raise InvalidInput("settings are given by name: update_config(max_tokens=16_000)")
        if session_id is None:
            self._core.configure(settings)
        else:
            await self._core.sessions.get(session_id).configure(settings)

    async def update_session(self, session_id: str, *, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of a session, which `list_sessions` returns. The same again is a no-op.

        Args:
            session_id: the session, which is created if it does not exist.
            metadata: your own JSON data; it is in no context. `redact` is not applied to it.

        Raises:
            InvalidInput: the metadata cannot be stored; nothing was changed.
        """
        plain = decode_json(metadata_json(metadata)) or {}
        await self._core.sessions.get(session_id).describe(plain)

    async def set_summarize_callback(
        self, summarizer: str | SummarizeCallback | Summarizer | None
    ) -> None:
        """Replace the summarizer: a callable, a name, a `Summarizer`, or None for that of the settings.

        Raises `PluginNotFound`, `SummarizerUnavailable` or `InvalidInput`; nothing was changed then.
        """
        self._core.summarizers.give(summarizer)

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
            callback: takes the event; a coroutine function is awaited, in the event loop of the caller that
                awaits `memory.aio`, else in one of the manager's own.

        Returns:
            The subscription; its `off()` ends it.

        Raises:
            InvalidInput: the event is unknown, or the callback does not take one argument.
        """
        return self._core.subscribe(event, callback)

    def observe(self, observer: Observer | None) -> None:
        """Call a function before each build, fit, compression, summary, remote count and store call.

        A manager has one observer at most. What `on` cannot show, such as durations and nesting, it can:
        `memman-otel` makes OpenTelemetry's spans and metrics of it.

        Args:
            observer: takes an `Operation` and returns None, or a function `end(answer, error)`, which is
                called after the operation in the same thread and context. Both run inside the operation,
                so they should be fast; their errors are logged. None ends the observation.

        Raises:
            InvalidInput: the observer cannot be called, or the manager has one.
        """
        self._core.observe(observer)

    async def wait_for_background(self, seconds: float = 60.0) -> bool:
        """Wait for compressions and vectors that are made in the background, at most so many seconds.

        Returns whether they are done; for tests, and for scripts before a search by meaning.
        """
        return await self._core.runtime.finish_background(seconds)

    async def close(self) -> None:
        """Wait at most 5 s for background compressions, then close the store.

        Compressions that are not done by then change nothing. Afterwards every method that needs the store
        raises `StoreError`; closing again does nothing.
        """
        await self._core.close()

    def __repr__(self) -> str:
        return repr(self._core)

    async def _add(
        self,
        session_id: str,
        given: NewEntry,
        entry_id: str | None,
        pinned: bool,
        metadata: Mapping[str, Any] | None,
        compress: bool | None,
        unknown: str,
    ) -> Entry:
        """Validate the arguments and add the entry to its session."""
        core, keep = self._core, check_unknown(unknown)
        readers = partial(core.resolver.readers, core.shared.format)
        checked = checked_entry(given, readers, keep=keep)
        if keep:
            checked = with_notes(checked, media_fault)
        elif fault := media_fault(checked.content):
            raise InvalidInput(fault)
        entry_id = None if entry_id is None else check_id(entry_id, "id")
        check_adding(pinned, compress)
        encoded = NO_JSON if metadata is None else metadata_json(metadata)
        session = self._core.sessions.get(session_id)
        return await session.add(checked, entry_id, pinned, encoded, compress)


@contextmanager
def _typed(file: Source | Target) -> Iterator[None]:
    """Turn an `OSError` of a file that memman opened itself into a `FileError`."""
    try:
        yield
    except OSError as error:
        if not isinstance(file, str | os.PathLike):
            raise
        raise FileError(
            error.errno, error.strerror or str(error), error.filename or os.fspath(file)
        ) from error
