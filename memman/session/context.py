"""ContextBuilder of one session: the window rendered, priced, trimmed in a copy where it does not fit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from math import ceil
from typing import Any

import msgspec

from memman.compression import (
    TRIM,
    TRIM_ALL,
    Goal,
    SummaryOptions,
    View,
    make_plan,
    replacements_of,
    view_of,
)
from memman.config import Budget, MemoryConfig, lowered, resolve_budget
from memman.counting import TokenCounter, framing_in, model_key
from memman.entries import Accuracy, Entry
from memman.errors import BudgetExceeded, InvalidInput
from memman.formats import Rendering, prompt_in
from memman.protocols import Format
from memman.records import Replacement
from memman.results import Context
from memman.session.shared import ResolvedConfig, Shared
from memman.window import Exchange, Window, WindowItem

logger = logging.getLogger("memman")

_TRIM_ROUNDS = 6
# A context is trimmed by multiples of this part of its budget, so that the next ones begin as it does.
_TRIM_STEPS = 8
_FEW = 8  # entries that are listed one by one
# By how much a figure may be off: that of an exact tokenizer by framing, tools and images; an estimate
# by what nine in ten recorded requests were (docs/explanation/counts.md).
_OWN_ERROR: dict[Accuracy, float] = {"high": 0.03, "medium": 0.1, "low": 0.3}
Beyond = Callable[[int, int, str | None], int]


class Priced(msgspec.Struct, frozen=True, gc=False):
    """A context as it was priced: in all, and by our own count with nothing reserved in it.

    A report about one that is not `whole` (it was trimmed, or is no request) teaches nothing.
    """

    estimated: int
    counted: int
    whole: bool


class ContextRequest(msgspec.Struct, frozen=True, gc=False):
    """What a context was asked to be: the arguments of `build_context`, `tools` as JSON."""

    format: str
    model: str | None = None
    budget: int | None = None
    system: str | None = None
    tools: bytes | None = None


class UncertainCount(msgspec.Struct, frozen=True):
    """A request whose true price may decide something, and our own count of it."""

    request: dict[str, Any]
    counted: int


class _Built(msgspec.Struct, frozen=True, gc=False):
    """A context with its request, model and window; `reserved` tokens are part of its price."""

    head: int
    epoch: int
    asked: ContextRequest
    context: Context
    messages: list[dict[str, Any]]
    model: str | None
    reserved: int

    @property
    def priced(self) -> Priced:
        """What of it a report is held against."""
        estimated = self.context.tokens.tokens
        whole = not self.context.trimmed and self.asked.format != "text"
        return Priced(estimated, estimated - self.reserved, whole)


class _Around(msgspec.Struct, frozen=True, gc=False):
    """What a context had around its entries: system prompt and tools, and its framing.

    `expected` is what its framing was expected to be.
    """

    epoch: int
    fixed: int
    framing: int
    expected: float


class _Framing(msgspec.Struct, frozen=True, gc=False):
    """The framing of a request with the first `slots` entries of a window, by their types alone."""

    epoch: int
    items: int
    tokens: float


class ContextBuilder:
    """Builds a session's contexts and remembers the last one, and its rendering in each format.

    `_before` is the last one as long as nothing has outdated it, `_sent` the last one in any case: with
    that the next one's `unchanged_prefix` is found. `_around` is what the last one had around its entries.
    """

    __slots__ = (
        "_around", "_before", "_framing", "_left_out", "_nonce", "_priced", "_renderings", "_sent",
        "_shared",
    )  # fmt: skip

    def __init__(self, shared: Shared, nonce: str) -> None:
        self._shared = shared
        self._nonce = nonce
        self._renderings: dict[str, Rendering] = {}
        self._before: _Built | None = None
        self._sent: _Built | None = None
        self._priced: dict[str, Priced] = {}  # the last context of each model but the newest one's
        self._left_out: tuple[Context, int] | None = None
        self._around: _Around | None = None
        self._framing = _Framing(-1, 0, 0.0)

    def forget(self) -> None:
        """Lets go of everything that was made of a window that is no more."""
        self._renderings = {}
        self.outdate()

    def outdate(self) -> None:
        """Lets go of the last contexts: settings have changed."""
        self._before = None
        self._priced = {}

    def priced(self, model: str | None) -> Priced | None:
        """The last context for a model; where there is none, the last one for any."""
        last = self._before
        if last is None or not self._priced or model_key(model) == model_key(last.model):
            return None if last is None else last.priced
        return self._priced.get(model_key(model)) or last.priced

    def build(
        self,
        asked: ContextRequest,
        window: Window,
        settled: ResolvedConfig,
        beyond: Beyond | None = None,
    ) -> Context:
        """The context that is asked for, from memory where nothing has changed.

        `beyond` says what the provider will count beyond our own figure for a request of a model, None for
        the session's, given what is set aside anyway; at most half of the budget is kept free for that.
        """
        before = self._before
        if (
            before is not None
            and before.head == window.head
            and before.epoch == window.epoch
            and before.asked == asked
        ):
            return before.context
        made = self._made(asked, window, settled, beyond)
        if before is not None and before.model != made.model:
            self._priced[model_key(before.model)] = before.priced
        self._before = self._sent = made
        return made.context

    def _made(
        self, asked: ContextRequest, own: Window, settled: ResolvedConfig, beyond: Beyond | None
    ) -> _Built:
        """A context made anew: what stands beside the window priced, and a copy trimmed if it must be."""
        window, counter, budget = own, settled.counter, settled.budget
        model, most = settled.config.model, budget.max_tokens
        if asked.model is not None and asked.model != model:
            model = asked.model
            window, counter, budget = self._elsewhere(asked, own, settled)
        limit = _limit(asked, budget, settled.config, model)
        rendering = self._renderings.get(asked.format) if window is own else None
        if rendering is None:
            rendering = self._begun(asked.format, counter, window is own)
        rendering.update(window)
        prompt, defined, unseen = 0, 0, settled.config.overhead_tokens
        if asked.system or asked.tools:
            prompt, defined = price_given(asked.system, asked.tools, counter, rendering.format)
            unseen = max(0, unseen - prompt - defined)
        trimmed: tuple[Replacement, ...] = ()
        left_out = 0
        around = rendering.added + rendering.edges
        total = window.tokens + around + prompt + defined + unseen
        if beyond is not None:
            counted = total - unseen
            unseen = _aside(unseen, counted, limit, beyond, asked.model)
            total = counted + unseen
        if total > limit:
            beside = prompt + defined + unseen
            window, rendering, trimmed = self._trimmed(
                window, counter, rendering, limit, beside, settled
            )
            around = rendering.added + rendering.edges
            left_out = total - (window.tokens + around + beside)
            total -= left_out
        if limit <= most and window is own:  # a larger budget is another model's
            expected = self._expected(own, counter).tokens
            framing = rendering.added + rendering.edges
            self._around = _Around(own.epoch, prompt + defined, framing, expected)
        messages = rendering.messages(asked.system)
        unchanged = 0
        if self._sent is not None and self._sent.context.format == asked.format:
            unchanged = common_prefix(self._sent.messages, messages)
        context = Context(
            asked.format, limit, counter.total(total), rendering.system(asked.system), trimmed,
            unchanged, messages, tuple(window.items), (prompt, defined, unseen, around),
        )  # fmt: skip
        if trimmed:
            self._left_out = context, left_out
        return _Built(own.head, own.epoch, asked, context, messages, model, unseen)

    def take_left_out(self) -> tuple[Context, int] | None:
        """Return the context that was trimmed since the last call, and the tokens left out of it."""
        found, self._left_out = self._left_out, None
        return found

    def _elsewhere(
        self, asked: ContextRequest, window: Window, settled: ResolvedConfig
    ) -> tuple[Window, TokenCounter, Budget]:
        """The window as another model than the session's has it, the model's counter and its budget."""
        config = settled.config.updated({"model": asked.model})
        self._shared.warn_unknown(config)
        counter = self._shared.counter(config)
        budget = resolve_budget(config, self._shared.limits(asked.model))
        return window.priced(counter.recount), counter, budget

    def around(self, window: Window, counter: TokenCounter) -> tuple[int, int]:
        """Return the tokens that the next context will have around its entries: fixed, and framing.

        System prompt, tools and framing are those of the last context, in full. What was added since is
        priced by its framing in the manager's format, as is everything before the first context.
        """
        expected, last = self._expected(window, counter).tokens, self._around
        if last is None:
            return 0, ceil(expected)
        if last.epoch == window.epoch:
            return last.fixed, last.framing + ceil(max(0.0, expected - last.expected))
        larger = max(1.0, last.framing / last.expected) if last.expected else 1.0
        return last.fixed, ceil(expected * larger)

    def _expected(self, window: Window, counter: TokenCounter) -> _Framing:
        """Add up the framing of the window's entries by their type, from where it was last done."""
        known, slots = self._framing, window.items
        if known.epoch == window.epoch and known.items == len(slots):
            return known
        form = self._shared.format_named(self._shared.format)
        edges, price = expected_framing(form, counter)
        if known.epoch != window.epoch or known.items > len(slots):
            known = _Framing(window.epoch, 0, edges)
        if known.items < len(slots):
            tokens = sum(price(slot.entry) for slot in slots[known.items :])
            known = _Framing(window.epoch, len(slots), known.tokens + tokens)
            self._framing = known  # in one step: another thread may do the same
        return known

    def doubt(
        self,
        asked: ContextRequest,
        window: Window,
        settled: ResolvedConfig,
        beyond: Beyond | None,
        form: str,
    ) -> UncertainCount | None:
        """The request to have counted, in the format `form`: where our figure is within its own error of
        the limit or of the trigger. None where no count could change what is done.
        """
        counter = settled.counter
        rendering = self._renderings.get(asked.format) or self._begun(asked.format, counter, True)
        rendering.update(window)
        prompt, defined = price_given(asked.system, asked.tools, counter, rendering.format)
        counted = window.tokens + rendering.added + rendering.edges + prompt + defined
        limit = _limit(asked, settled.budget, settled.config, settled.config.model)
        least = max(0, settled.config.overhead_tokens - prompt - defined)
        total = counted + _aside(least, counted, limit, beyond, None)
        nearest = min(abs(total - limit), abs(total - settled.budget.max_tokens))
        if nearest > total * _OWN_ERROR[counter.accuracy]:
            return None
        try:
            clean = self._redacted(window)
        except InvalidInput as error:  # a count is never a reason for a context to fail
            logger.warning("%s", error)
            return None
        kept = self._renderings.get(form) if clean is window else None
        shown = kept or self._begun(form, counter, clean is window)
        shown.update(clean)
        request = {
            "model": settled.config.model,
            "messages": msgspec.to_builtins(shown.messages(asked.system)),
            "system": shown.system(asked.system),
            "tools": msgspec.json.decode(asked.tools) if asked.tools else [],
        }
        return UncertainCount(request, counted)

    def _redacted(self, window: Window) -> Window:
        """The window with `redact` applied again: what another manager wrote was not redacted here."""
        if self._shared.redact is None:
            return window
        clean = partial(self._shared.redacted, outcome="the provider was not asked for a count")
        items = [_copied(slot, slot.tokens, clean(slot.entry)) for slot in window.items]
        return Window(items, window.head, window.epoch)

    def reprice(self) -> None:
        """Builds the next context anew, though nothing was added."""
        if self._before is not None:
            self._before = msgspec.structs.replace(self._before, head=-1)

    def _begun(self, form: str, counter: TokenCounter, own: bool) -> Rendering:
        """An empty rendering in a format; the session's own is kept."""
        rendering = rendering_in(self._shared.format_named(form), counter, self._nonce)
        if own:
            self._renderings[form] = rendering
        return rendering

    def _trimmed(
        self,
        window: Window,
        counter: TokenCounter,
        rendering: Rendering,
        limit: int,
        beside: int,
        settled: ResolvedConfig,
    ) -> tuple[Window, Rendering, tuple[Replacement, ...]]:
        """A copy of the window that fits, rendered; `BudgetExceeded` when what must stay does not.

        With a strategy without steps (the preset `buffer`) everything must stay.
        """
        if not settled.stages:
            total = window.tokens + rendering.added + rendering.edges + beside
            raise _exceeded(total, limit, window, beside)
        budget = msgspec.structs.replace(
            settled.budget,
            max_tokens=limit,
            summary_tokens=0,
            entry_tokens=int(settled.config.max_entry_ratio * limit),
        )
        over = window.tokens + rendering.added + rendering.edges + beside - limit
        step = max(1, limit // _TRIM_STEPS)
        cut = _without_framing(over, window, rendering)
        for left in reversed(range(_TRIM_ROUNDS)):
            cut = min(window.tokens, -(-cut // step) * step) if left else window.tokens
            copy, shown, replaced = self._cut(
                window, window.tokens - cut, budget, counter, rendering
            )
            total = copy.tokens + shown.added + shown.edges + beside
            if total <= limit:
                if shown.messages() or not rendering.messages():
                    return copy, shown, replaced
                copy, total = window, over + limit  # what is left is nothing that can be sent
                break
            if cut == window.tokens:
                break
            cut += max(1, _without_framing(total - limit, copy, shown))
        raise _exceeded(total, limit, copy, beside)

    def _cut(
        self, window: Window, room: int, budget: Budget, counter: TokenCounter, rendering: Rendering
    ) -> tuple[Window, Rendering, tuple[Replacement, ...]]:
        """A copy of the window brought down to `room` tokens as far as that goes, rendered; without room
        only what must stay is in it.
        """
        goal = Goal(tokens=room, entries=None, limit=room, budget=budget)
        view = view_of(window, goal)
        stages = TRIM if room else TRIM_ALL
        plan = make_plan(view, goal, self._shared.make_entry(counter), stages, SummaryOptions())
        after = _finished(plan)
        copy = _window_of(after, window.epoch)
        shown = rendering_in(rendering.format, counter, self._nonce)
        shown.update(copy)
        return copy, shown, replacements_of(after)


def common_prefix(before: Sequence[object], after: Sequence[object]) -> int:
    """Return how many leading elements of two lists are equal."""
    if after[: len(before)] == before:  # the usual case: something was added
        return len(before)
    pairs = enumerate(zip(before, after, strict=False))
    return next((n for n, (one, other) in pairs if one is not other and one != other), len(after))


def _limit(asked: ContextRequest, budget: Budget, config: MemoryConfig, model: str | None) -> int:
    """Return the tokens that a context may have: as asked for, but never above what the model takes."""
    if asked.budget is not None:
        return lowered("budget", asked.budget, budget.usable, model)
    if config.max_tokens is not None:
        lowered("max_tokens", config.max_tokens, budget.usable, model)
    return budget.max_tokens


def _without_framing(tokens: int, window: Window, rendering: Rendering) -> int:
    """How much of so many tokens of a context is its entries: what goes takes its framing with it."""
    return tokens * window.tokens // max(1, window.tokens + rendering.added)


def _aside(unseen: int, counted: int, limit: int, beyond: Beyond | None, model: str | None) -> int:
    """What is set aside in a budget for what memman does not count; less than nothing where the provider
    has counted less than memman.
    """
    if beyond is None:
        return unseen
    return min(beyond(counted, unseen, model), max(unseen, limit // 2))


def rendering_in(form: Format, counter: TokenCounter, nonce: str = "") -> Rendering:
    """An empty rendering in a format, with what the meter's model is billed around texts.

    What belongs to no session has no nonce: its delimiters are protected by neutralising the texts alone.
    """
    return Rendering(form, counter.name_tokens, framing_in(counter.model, form.name), nonce)


def expected_framing(form: Format, counter: TokenCounter) -> tuple[float, Callable[[Entry], float]]:
    """Return the framing of an empty request, and that of an entry that is alone in its message."""
    framing = framing_in(counter.model, form.name)
    if framing is None:
        return form.request_framing, lambda _entry: form.message_framing
    tools = {"tool_call": framing.call, "tool_result": framing.result}
    return framing.request, lambda entry: framing.message + tools.get(entry.type, 0.0)


def price_given(
    system: str | None, tools: bytes | None, counter: TokenCounter, form: Format
) -> tuple[int, int]:
    """The tokens of a system prompt and of tools, as JSON, that go along in a format."""
    framing = framing_in(counter.model, form.name)
    prompt = 0
    if system:
        around = form.message_framing if framing is None else ceil(framing.message)
        extras = prompt_in(form, system).extras if form.inline_system else ()
        prompt = counter.text_cached(system) + around + sum(map(counter.name_tokens, extras))
    return prompt, counter.tools_cached(tools, form.name) if tools else 0


def _finished(plan: Generator[Any, Any, View]) -> View:
    """The outcome of a plan that asks nobody."""
    try:
        plan.send(None)
    except StopIteration as end:
        view: View = end.value
        return view
    raise RuntimeError("trimming a context must not ask for a summary")


def _window_of(view: View, epoch: int) -> Window:
    """A window that shows a view; not the session's, and never stored."""
    slots = [
        _copied(item.run[0], item.tokens)
        if item.method is None
        else WindowItem(item.entry, item.run[0].position, item.tokens)
        for group in view.groups
        for item in group.items
        if item.entry is not None
    ]
    return Window(slots, slots[-1].entry.seq if slots else 0, epoch)


def _copied(slot: WindowItem, tokens: int, entry: Entry | None = None) -> WindowItem:
    """A slot for another window, at its own price there: a window ties its slots to each other."""
    shown = entry or slot.entry
    return WindowItem(shown, slot.position, tokens, slot.pinned, slot.index, slot.compression)


def _exceeded(required: int, available: int, window: Window, beside: int) -> BudgetExceeded:
    """The error that names what must stay, largest first: entries, and exchanges of many entries."""
    found: list[tuple[str, int]] = []
    for exchange in window.exchanges:
        if len(exchange.items) > _FEW:
            found.append((_crowd(exchange, exchange is window.exchanges[-1]), exchange.tokens))
        else:
            found += [(_named(slot), slot.tokens) for slot in exchange.items]
    if beside > 0:
        found.append(("system prompt, tools and overhead", beside))
    return BudgetExceeded(
        required,
        available,
        sorted(found, key=lambda pair: -pair[1]),
        pinned=any(slot.pinned for slot in window.items),
    )


def _named(slot: WindowItem) -> str:
    """An entry by its address, without its words; one that was cut for this context by its original's."""
    entry = slot.entry
    pin = "pinned" if slot.pinned else ""
    kind = entry.type if entry.type != "message" else f"{entry.role} message"
    return " ".join(filter(None, (pin, _address(slot), kind, entry.name)))


def _address(slot: WindowItem) -> str:
    return slot.entry.address or f"#{slot.position}"


def _crowd(exchange: Exchange, newest: bool) -> str:
    """An exchange of more entries than can be listed."""
    calls = sum(slot.entry.type == "tool_call" for slot in exchange.items)
    which = "the newest exchange" if newest else "an exchange"
    first, last = _address(exchange.items[0]), _address(exchange.items[-1])
    return f"{which} has {calls:,} calls, {first} to {last}"
