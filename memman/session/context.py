"""Building the contexts of one session: render and price the window."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from math import ceil
from typing import Any, TypeAlias

import msgspec

from memman import events
from memman.counting.calibration import learn
from memman.counting.counter import TokenCounter
from memman.counting.failures import CountFailure
from memman.counting.models import model_key, model_ref
from memman.counting.pricing import Earlier, breaks_cache, charge_of, charge_of_call, last_to
from memman.entries import Accuracy, Entry
from memman.errors import BudgetExceeded, InvalidInput
from memman.formats import Rendering
from memman.formats.cache_marks import cache_key, marks_of
from memman.protocols import Prices, RequestPrefix
from memman.records import Replacement, UsageReported
from memman.results import Context, Recalled
from memman.session.calibration import ProviderCount
from memman.session.calls import give_calls, recall, with_notes
from memman.session.compactions import BehindWindow, readable
from memman.session.log import SessionLog
from memman.session.outbox import Outbox
from memman.session.recollection import Recollections, is_compacted, with_texts
from memman.session.requests import (
    ContextRequest,
    UncertainCount,
    asked_at,
    common_prefix,
    expected_framing,
    limit_of,
    pending_items,
    price_given,
    rendering_in,
    request_of,
    without_bound,
    without_late_results,
    without_pins,
)
from memman.session.shared import Remote, Shared
from memman.session.state import TrimmedState
from memman.session.trim import Trimmed, trim
from memman.window import RECALLED_INDEX, Window

logger = logging.getLogger("memman")

Texts: TypeAlias = Sequence[Recalled]

# The relative error of a count: of an exact tokenizer by framing, tools and images; of an estimate
# that of nine in ten recorded requests (docs/explanation/counts.md).
_OWN_ERROR: dict[Accuracy, float] = {"high": 0.03, "medium": 0.1, "low": 0.3}


class Priced(msgspec.Struct, frozen=True, gc=False):
    """The price of a context: with its reserve, and by our own count alone.

    A report about a context that is not `whole` (trimmed, or not a request) teaches nothing. `hidden` are
    the tokens of the era that compressions and trimming kept out of it.
    """

    estimated: int
    counted: int
    whole: bool
    hidden: int


class _Built(msgspec.Struct, frozen=True, gc=False):
    """A context with its request, model and window; `reserved` tokens are part of its price.

    `hidden` tokens of the era are not in it. A reply to an `off_record` one is so, too.
    """

    head: int
    epoch: int
    off_record: bool
    request: ContextRequest
    context: Context
    messages: list[dict[str, Any]]
    model: str | None
    reserved: int
    hidden: int

    @property
    def priced(self) -> Priced:
        """The figures to compare with a provider's report."""
        estimated = self.context.tokens.tokens
        whole = not self.context.trimmed and self.request.format != "text"
        return Priced(estimated, estimated - self.reserved, whole, self.hidden)


class SentRequest(msgspec.Struct, frozen=True, gc=False):
    """The last request, its model, the newest seq in it, and its price."""

    request: RequestPrefix
    model: str | None
    head: int
    tokens: int


class _LastOverhead(msgspec.Struct, frozen=True, gc=False):
    """The tokens around the entries of the last context: system prompt and tools, and framing.

    `expected` is the framing by the entries' types alone.
    """

    epoch: int
    fixed: int
    framing: int
    expected: float


class _Framing(msgspec.Struct, frozen=True, gc=False):
    """The framing of a request with the first `items` entries of a window, by their types alone."""

    epoch: int
    items: int
    tokens: float


class ContextBuilder:
    """Builds a session's contexts. It keeps the last one, and a rendering of the window in each format."""

    __slots__ = (
        "_before", "_behind", "_fell_back", "_framing", "_generation", "_last_overhead",
        "_left_out", "_log", "_nonce", "_outbox", "_priced", "_prices", "_renderings", "_resolved", "_sent",
        "_sent_at", "_shared", "recollections",
    )  # fmt: skip

    def __init__(self, shared: Shared, log: SessionLog, outbox: Outbox) -> None:
        self._shared = shared
        self._log = log
        self._outbox = outbox
        self._fell_back = ""  # the kind of failure of the last remote count, if it failed
        self._resolved, self._generation = log.resolved, log.generation
        self.recollections = Recollections(shared, log)
        self._begin("")

    def _begin(self, nonce: str) -> None:
        """Start without an earlier context, for the session with this nonce."""
        self._nonce = nonce
        self._behind = BehindWindow(0)
        self._renderings: dict[tuple[str, bool], Rendering] = {}
        self._before: _Built | None = None  # the last context, unless it is outdated
        self._sent: _Built | None = None  # the last one in any case, for `unchanged_prefix`
        self._sent_at: datetime | None = None
        self._priced: dict[str, Priced] = {}  # the last context of each other model
        self._left_out: tuple[Context, int] | None = None
        self._last_overhead: _LastOverhead | None = None  # of the last context
        self._framing = _Framing(-1, 0, 0.0)
        self._prices: tuple[float, Callable[[Entry], float]] | None = None  # of framing

    def _follow(self) -> None:
        """Drop contexts and renderings of another session, window or settings than the log's."""
        log = self._log
        if log.totals.nonce != self._nonce:
            self._begin(log.totals.nonce)
        if log.resolved.counter is not self._resolved.counter:
            self._renderings = {}
            # Another counter priced the framing; the tokens of system prompt and tools stay.
            self._framing, self._prices = _Framing(-1, 0, 0.0), None
            last = self._last_overhead
            self._last_overhead = last and msgspec.structs.replace(last, framing=0, expected=0.0)
        if log.generation != self._generation:
            self._generation = log.generation
            self._renderings = {}
            self._outdate()
        if log.resolved is not self._resolved:
            self._resolved = log.resolved
            self._outdate()

    def _outdate(self) -> None:
        self._before = None
        self._priced = {}

    # ------------------------------------------------------------ questions

    def overhead(self) -> int:
        """Return the tokens of a request that are in no entry: set, known from the last build, or reported.

        The last build's count in full, further ones that were reported up to the headroom.
        """
        log = self._log
        window, reserved = log.window, log.resolved.config.overhead_tokens
        measured = sum(self.fixed_and_framing())
        if log.calibration.is_empty:
            return max(reserved, measured)
        unspent = max(0, reserved - measured)
        correction = self._correction(window.tokens + measured, unspent, None)
        return max(measured + min(correction, max(unspent, log.resolved.headroom)), -window.tokens)

    def fixed_and_framing(self) -> tuple[int, int]:
        """Return the tokens that the next context will have around its entries: fixed, and framing.

        System prompt, tools and framing are those of the last context, in full. Entries that were added
        since are priced by their framing in the manager's format, as are all before the first context, or
        higher if those of the last context cost more.
        """
        self._follow()
        window = self._log.window
        expected = self._expected(window, self._log.resolved.counter).tokens
        last = self._last_overhead
        if last is None:
            return 0, ceil(expected)
        larger = max(1.0, last.framing / last.expected) if last.expected else 1.0
        if last.epoch == window.epoch:
            return last.fixed, last.framing + ceil(max(0.0, expected - last.expected) * larger)
        return last.fixed, ceil(expected * larger)

    def compared(self, report: UsageReported) -> UsageReported:
        """Return a provider's report with our own figures for the same request, and its lesson."""
        self._follow()
        log = self._log
        sent = self._sent  # a report without a model is about the last request
        model = report.model or (log.resolved.config.model if sent is None else sent.model)
        tokens = log.window.tokens
        last = self._last_priced(model) or Priced(tokens, tokens, True, _hidden(log, 0))
        if not report.input_tokens:  # the provider was not sent the window
            last = Priced(0, 0, False, 0)
        record = self._charged(
            msgspec.structs.replace(
                report,
                model=model,
                estimated=max(0, last.estimated - report.cleared_tokens),
                counted=last.counted,
                hidden_tokens=last.hidden,
            )
        )
        if not last.whole:
            return record  # the report is about another request: it teaches nothing
        learned = log.calibration.taught_by(record, last.counted, log.window.epoch)
        return msgspec.structs.replace(record, learned=learned)

    def _charged(self, report: UsageReported) -> UsageReported:
        """Return a report with its price, if that is known, and whether the cached prefix was lost."""
        totals, config, model = self._log.totals, self._log.resolved.config, report.model
        uses_cache = totals.reported.cached + totals.reported.written > 0
        earlier = Earlier(last_to(model, totals.latest), uses_cache, config.cache_ttl)
        charge = charge_of(report, self._prices_of(model), earlier)
        others = []
        for call in report.others:
            named = msgspec.structs.replace(call, model=call.model or config.model)
            other = charge_of_call(named, self._prices_of(named.model))
            charge = None if charge is None or other is None else charge.plus(other)
            others.append(named)
        return msgspec.structs.replace(
            report, charge=charge, broke_cache=breaks_cache(report, earlier), others=tuple(others)
        )

    def _prices_of(self, model: str | None) -> Prices | None:
        """Return the prices of a model, if they are known."""
        own = self._log.resolved.config.model
        # A response may name a snapshot of the configured model, whose prices the user may have given.
        if own is not None and model_key(model) == model_key(own):
            model = own
        return None if model is None else self._shared.prices(model)

    def _last_priced(self, model: str | None) -> Priced | None:
        """Return the last context for a model, or the last one for any."""
        last = self._before
        if last is None or not self._priced or model_key(model) == model_key(last.model):
            return None if last is None else last.priced
        return self._priced.get(model_key(model)) or last.priced

    def _correction(self, counted: int, reserved: int, model: str | None) -> int:
        """Return the tokens that the provider of a model (None: the session's) counts in addition."""
        log = self._log
        config, epoch = log.resolved.config, log.window.epoch
        name = config.model if model is None else model
        return log.calibration.correction(name, counted, reserved, log.resolved.headroom, epoch)

    def requested_at(self, now: datetime) -> datetime | None:
        """Return when the last request was made, as far as that is known; None if it is not.

        It was built in this process, its usage was reported, or its reply was added.
        """
        self._follow()
        usage = self._log.totals.usage
        reported_at = None if usage is None else usage.at
        times = (self._sent_at, reported_at, asked_at(self._log.window))
        known = [at for at in times if at is not None]
        return min(now, max(known)) if known else None

    def last_request(self, now: datetime) -> SentRequest | None:
        """Return the last context as it was sent, if the provider has it cached and all of it is known.

        None if it is too old or was trimmed, if the window has changed its shape since, or if the caller
        may have sent more than the context had: tools that were not passed, or a system prompt.
        """
        self._follow()
        config, window, built = self._log.resolved.config, self._log.window, self._sent
        if built is None or self._sent_at is None or config.cache_ttl is None:
            return None
        request, context = built.request, built.context
        # A summarizer's request has no place for what a context needs.
        is_other = context.trimmed or context.needs or not request.complete
        if built.epoch != window.epoch or is_other:
            return None
        if (now - self._sent_at).total_seconds() > config.cache_ttl:
            return None
        overheads = context.breakdown
        passed = overheads.get("system_prompt", 0) + overheads.get("tools", 0)
        if config.overhead_tokens > passed or (request.system and not request.system_inline):
            return None
        calls = (item.entry.type == "tool_call" for item in window.items)
        if not request.tools and any(calls):
            return None
        prefix = RequestPrefix(
            format=request.format,
            messages=context.messages,
            system=context.system,
            tools=context.tools,
            prompt_cache_key=context.prompt_cache_key,
        )
        return SentRequest(prefix, built.model, built.head, context.tokens.tokens)

    def notes_for(
        self, entries: Sequence[Entry], *, named: bool = False
    ) -> Awaitable[tuple[list[Entry], dict[str, Entry]]]:
        """Return entries to be added, with memman's notes. Under the log's lock, refreshed.

        Unless the caller has `named` them, repeated results are left out; each is returned by its id, with
        the result that it repeats.
        """
        self._follow()
        window, sent = self._log.window, self._sent
        asked = sent is not None and sent.request.is_stored and window.is_unsettled_at(sent.head)
        if self._behind.epoch != window.epoch:
            self._behind = BehindWindow(window.epoch)
        return with_notes(entries, self._log, self._behind.calls, asked, named)

    def is_off_record(self) -> bool:
        """Return whether the log does not repeat the last request. Under the lock."""
        self._follow()
        sent, epoch = self._sent, self._log.window.epoch
        return sent is not None and (sent.off_record or sent.epoch != epoch)

    def left_out(self) -> tuple[str, ...]:
        """Return the ids of the entries whose bound parts the next context leaves out."""
        resolved, window = self._log.resolved, self._log.window
        form = self._shared.format if self._sent is None else self._sent.request.format
        shown = self._rendered(form, resolved.counter, window)
        since, *_ = _floors(self._log, self._shared.binds(resolved.config.model))
        return without_bound(window, shown, since, resolved.counter)[2]

    # ------------------------------------------------------------ building

    async def build(self, request: ContextRequest) -> Context:
        """Return a context of the window as it is, trimmed in a copy if it does not fit."""
        log = self._log
        if log.resolved.remote is not None and request.is_stored:
            await self._confirm(request, log.resolved.remote)
        async with log.lock:
            await log.prepare(reads_window=True)
            if not log.window.head:
                await log.require()
            request = msgspec.structs.replace(request, model=log.follow_model(request.model))
            pending, _ = await self.notes_for(request.pending)
            request = msgspec.structs.replace(request, pending=tuple(pending))
            await recall(self._behind.calls, log)
            unreadable = await self._behind.unread(log, request.format)
            recalled = await self.recollections.for_request(request)
            context = self._confirmed(request, self.build_unlocked(request, recalled))
            fresh = self.recollections.untold(context.recalled)
            left_out, self._left_out = self._left_out, None
        for event in unreadable:
            await self._outbox.emit(event)
        if left_out is not None:
            await self._outbox.emit(_trimmed(log.id, *left_out))
        for text in fresh:
            await self._outbox.emit(_recalled(log.id, text))
        return context

    def build_unlocked(self, request: ContextRequest, recalled: Texts = ()) -> Context:
        """Return the context of the window as it is; the last one if nothing changed."""
        self._follow()
        self._sent_at = self._shared.clock()
        before, window = self._before, self._log.window
        if (
            before is not None
            and (before.head, before.epoch) == (window.head, window.epoch)
            and before.request == request
        ):
            return before.context
        built = self._built(request, recalled)
        if before is not None and before.model != built.model:
            self._priced[model_key(before.model)] = before.priced
        self._before = self._sent = built
        return built.context

    def _confirmed(self, request: ContextRequest, context: Context) -> Context:
        """Return the context with the provider's accuracy, if that counted this very request."""
        log = self._log
        known = log.calibration.confirmed
        # Another request than was counted.
        other = context.trimmed or context.thoughts_left_out or context.recalled
        if known is None or other or not known.is_at(log.window.head, log.window.epoch):
            return context
        if not request.is_stored or request.model not in (None, known.model):
            return context
        if (known.system, known.tools) != (request.system, request.tools):
            return context
        count = msgspec.structs.replace(known.count, tokens=context.tokens.tokens)
        return msgspec.structs.replace(context, tokens=count)

    async def _confirm(self, request: ContextRequest, remote: Remote) -> None:
        """Have the provider count a request if that may decide something; once at a place in the log."""
        log = self._log
        async with log.required():
            head, epoch, model = log.window.head, log.window.epoch, log.resolved.config.model
            known = log.calibration.confirmed
            if known is not None and known.is_at(head, epoch):
                return
            # Reports are more exact: they include hidden tokens.
            if log.calibration.knows(model) or request.model not in (None, model):
                return
            uncertain = self._uncertain(request, remote.format)
        if uncertain is None:
            return
        answer = await self._shared.price(remote.counter, uncertain.request, log.id)
        if isinstance(answer, CountFailure):
            if answer.cached and answer.kind == self._fell_back:
                return  # known from an earlier call, and emitted then
            self._fell_back = answer.kind
            self._outbox.notify_fallback(remote.counter.fingerprint, answer.reason)
            await self._outbox.flush()
            return
        async with log.lock:
            self._fell_back = ""
            learned = learn(None, answer.tokens, uncertain.counted, None)
            log.calibration.confirm(
                ProviderCount(model, head, epoch, request.system, request.tools, answer, learned)
            )
            self._before = self._before and msgspec.structs.replace(self._before, head=-1)

    def _built(
        self, request: ContextRequest, recalled: Texts, *, off_record: bool = False
    ) -> _Built:
        """Build a context: price system prompt and tools, and trim a copy of the window if it must be.

        Recalled texts are left out before anything is trimmed.
        """
        own, resolved = self._log.window, self._log.resolved
        window, counter, budget = own, resolved.counter, resolved.budget
        model, most = resolved.config.model, budget.max_tokens
        if request.model is not None and request.model != model:
            model = request.model
            config = resolved.config.updated({"model": model})
            self._shared.warn_unknown(config)
            counter, budget = self._shared.counter(config), self._shared.budget(config)
            window = own.priced(counter.recount)
        window = readable(window, request.format, self._behind.hidden, counter.recount)
        limit = limit_of(request, budget, resolved.config, model)
        rendering = self._rendered(request.format, counter, window, request.complete)
        own_framing = rendering.added + rendering.edges
        is_own = window is own
        window, rendering = _extended(
            window, rendering, request, recalled, counter, self._behind.calls
        )
        prompt, defined = price_given(request.system, request.tools, counter, rendering.format)
        least = max(0, resolved.config.overhead_tokens - prompt - defined)
        trimmed: tuple[Replacement, ...] = ()
        left_out = 0
        whole = window, rendering
        for since in _floors(self._log, self._shared.binds(model)):
            window, rendering, bare, needs = without_bound(*whole, since, counter)
            framing = rendering.added + rendering.edges
            counted = window.tokens + framing + prompt + defined
            reserved = self._reserved(least, counted, limit, request.model)
            total = counted + reserved
            if total <= limit:
                break
        unsent = whole[0].tokens - window.tokens
        if total > limit and recalled:
            return self._built(request, (), off_record=True)
        if total > limit:
            fixed = prompt + defined + reserved
            window, rendering, trimmed = self._trim(window, rendering, limit, fixed, counter)
            framing = rendering.added + rendering.edges
            left_out = total - (window.tokens + framing + fixed)
            total -= left_out
        # A larger budget is another model's, and a trimmed context has less framing than the window.
        if limit <= most and is_own and (request.pending or not trimmed):
            expected = self._expected(own, counter).tokens
            self._last_overhead = _LastOverhead(own.epoch, prompt + defined, own_framing, expected)
        layout = rendering.layout(request.shown_system, self._log.totals.torn)
        messages = layout.messages
        unchanged = 0
        if self._sent is not None and self._sent.context.format == request.format:
            unchanged = common_prefix(self._sent.messages, messages)
        marks = key = None
        ttl = resolved.config.cache_ttl if request.cache else None
        if ttl is not None:
            marks = marks_of(layout, model_ref(model) if model else None, ttl)
            key = cache_key(rendering.format, self._nonce)
        context = Context(
            request.format, limit, counter.total(total), trimmed, unchanged,
            bool(trimmed) or is_compacted(self._log), key, ttl,
            rendering.system(request.shown_system), request.tools, messages, _shares(window),
            (prompt, defined, reserved, framing), layout, marks, bare, needs, tuple(recalled),
        )  # fmt: skip
        if trimmed:
            self._left_out = context, left_out
        # A model that does not bind was sent thoughts from before the last change of shape.
        off_record |= since != self._log.totals.shaped_at or bool(trimmed or needs)
        return _Built(
            own.head, own.epoch, off_record, request, context, messages, model, reserved,
            _hidden(self._log, left_out + unsent),
        )  # fmt: skip

    def _trim(
        self, window: Window, rendering: Rendering, limit: int, fixed: int, counter: TokenCounter
    ) -> Trimmed:
        """Trim a copy of the window.

        If that is not enough, pending entries are trimmed too, and then late results become notes: with
        its call, such a result holds all entries between them together.
        """
        resolved, shared = self._log.resolved, self._shared
        make, recall = shared.make_entry(counter), shared.recall_name(self._log.id)

        def trimmed(window: Window) -> Trimmed:
            states = TrimmedState(window, resolved.budget, counter, shared.keeps, recall)
            return trim(window, rendering, limit, fixed, resolved, make, states)

        unpinned = without_pins(window) or window
        last = without_late_results(unpinned) or unpinned
        for attempt in (window, unpinned):
            if attempt is not last:
                with suppress(BudgetExceeded):
                    return trimmed(attempt)
        return trimmed(last)

    def _reserved(self, reserved: int, counted: int, limit: int, model: str | None) -> int:
        """Return the tokens of a budget to keep free for text that memman never sees; at most half.

        The result is negative if the provider counted less than memman.
        """
        if self._log.calibration.is_empty:
            return reserved
        return min(self._correction(counted, reserved, model), max(reserved, limit // 2))

    def _rendered(
        self, form: str, counter: TokenCounter, window: Window, complete: bool = True
    ) -> Rendering:
        """Return the window rendered in a format; the session's own is kept."""
        own, key = window is self._log.window, (form, complete)
        rendering = self._renderings.get(key) if own else None
        if rendering is None:
            named = self._shared.format_named(form)
            rendering = rendering_in(named, counter, self._nonce, complete)
        if own:
            self._renderings[key] = rendering
        rendering.update(window)
        return rendering

    def _expected(self, window: Window, counter: TokenCounter) -> _Framing:
        """Return the framing of the window's entries by their types; adds only the new ones."""
        known, items = self._framing, window.items
        if known.epoch == window.epoch and known.items == len(items):
            return known
        if self._prices is None:
            form = self._shared.format_named(self._shared.format)
            self._prices = expected_framing(form, counter)
        edges, price = self._prices
        if known.epoch != window.epoch or known.items > len(items):
            known = _Framing(window.epoch, 0, edges)
        tokens = sum(price(item.entry) for item in items[known.items :])
        known = _Framing(window.epoch, len(items), known.tokens + tokens)
        self._framing = known  # in one step: another thread may do the same
        return known

    def _uncertain(self, request: ContextRequest, form: str) -> UncertainCount | None:
        """Return the request to have counted, in the format `form`; None if its count decides nothing.

        It decides something if our own count is within its error of the limit or of the trigger.
        """
        self._follow()
        window, resolved = self._log.window, self._log.resolved
        counter, config, budget = resolved.counter, resolved.config, resolved.budget
        rendering = self._rendered(request.format, counter, window)
        prompt, defined = price_given(request.system, request.tools, counter, rendering.format)
        counted = window.tokens + rendering.added + rendering.edges + prompt + defined
        limit = limit_of(request, budget, config, config.model)
        least = max(0, config.overhead_tokens - prompt - defined)
        total = counted + self._reserved(least, counted, limit, None)
        nearest = min(abs(total - limit), abs(total - budget.max_tokens))
        if nearest > total * _OWN_ERROR[counter.accuracy]:
            return None
        try:
            clean = self._redacted(window)
        except InvalidInput as error:  # a context must not fail because of a count
            logger.warning("%s", error)
            return None
        shown = self._rendered(form, counter, clean)
        content = request_of(config.model, shown, request.system, request.tools)
        return UncertainCount(content, counted)

    def _redacted(self, window: Window) -> Window:
        """Return the window with `redact` applied again: another manager may have written entries."""
        if self._shared.redact is None:
            return window
        clean = partial(self._shared.redacted, outcome="the provider was not asked for a count")
        items = [msgspec.structs.replace(item, entry=clean(item.entry)) for item in window.items]
        return window.with_items(items)


def _floors(log: SessionLog, binds: bool) -> tuple[int, ...]:
    """Return the seqs up to which a request has no bound parts: as a rule, and if it is too long."""
    return (log.totals.shaped_at, sys.maxsize) if binds else (0,)


def _extended(
    window: Window,
    rendering: Rendering,
    request: ContextRequest,
    recalled: Texts,
    counter: TokenCounter,
    calls: Mapping[str, Entry | None],
) -> tuple[Window, Rendering]:
    """Return a window with pending entries and recalled texts, and its rendering."""
    if not request.pending and not recalled:
        return window, rendering
    items = [*window.items, *pending_items(request.pending, window, counter)]
    window = window.extended_to(with_texts(items, recalled, counter.text_cached))
    give_calls(window, calls)
    rendering = rendering.copy()
    rendering.update(window)
    return window, rendering


def _recalled(session_id: str, text: Recalled) -> events.TextRecalled:
    """Return the event of a recalled text."""
    return events.TextRecalled(
        session_id=session_id,
        message_id=text.message_id,
        addresses=text.addresses,
        words=text.words,
        tokens=text.tokens,
    )


def _shares(window: Window) -> dict[str, int]:
    """Return the tokens of a window by entry type, and those of recalled texts."""
    texts = sum(item.tokens for item in window.items if item.index == RECALLED_INDEX)
    messages = window.shares.get("message", 0)
    return {**window.shares, "message": messages - texts, "recalled": texts}


def _trimmed(session_id: str, context: Context, tokens: int) -> events.ContextTrimmed:
    """Return the event of a context that leaves entries out."""
    return events.ContextTrimmed(
        session_id=session_id,
        entries=tuple(entry_id for item in context.trimmed for entry_id in item.ids),
        tokens=tokens,
        budget=context.budget,
        format=context.format,
    )


def _hidden(log: SessionLog, left_out: int) -> int:
    """Return the tokens of the era that are not in the window, and those left out of a context."""
    return max(0, log.totals.tokens - log.window.tokens + left_out)
