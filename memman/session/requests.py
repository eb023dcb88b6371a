"""The request that a context is built for: its arguments, its messages and their price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any

import msgspec

from memman.config import Budget, MemoryConfig, lowered
from memman.counting.counter import TokenCounter
from memman.counting.framing import framing_in
from memman.entries import NO_JSON, Entry
from memman.formats.renderer import Rendering, prompt_in, without_parts
from memman.formats.wire.reading import is_unbound
from memman.formats.wire.tables import needs_of
from memman.protocols import Call, Format, Turn
from memman.window import Window, WindowItem

_CALLED = Entry(
    id="",
    type="tool_call",
    role="assistant",
    content="{}",
    timestamp=datetime.min.replace(tzinfo=UTC),
    name="tool",
)
_RETURNED = msgspec.structs.replace(_CALLED, type="tool_result", role="tool", content="a")
_CALL = Call(_CALLED, "call", "call", _RETURNED)
_EXCHANGE = Turn("assistant", (), (_CALL,), (_CALL,))  # whose framing is measured


class ContextRequest(msgspec.Struct, frozen=True, gc=False):
    """The arguments of `build_context`; `tools` as JSON, `pending` as entries that were not counted."""

    format: str
    model: str | None = None
    budget: int | None = None
    system: str | None = None
    tools: bytes | None = None
    system_inline: bool = True
    pending: tuple[Entry, ...] = ()
    complete: bool = True
    cache: bool = False
    recall: bool = True

    @property
    def shown_system(self) -> str | None:
        """The system prompt if the context contains it; otherwise it is only priced."""
        return self.system if self.system_inline else None

    @property
    def is_stored(self) -> bool:
        """Whether the request has the session's messages alone, as they are sent."""
        return self.complete and not self.pending


class UncertainCount(msgspec.Struct, frozen=True):
    """A request for which a provider's count may decide something, and our own count."""

    request: dict[str, Any]
    counted: int


def asked_at(window: Window) -> datetime | None:
    """Return when the newest reply was asked for: as the entry before it was added.

    The reply itself may be added much later, together with what follows it.
    """
    reply: datetime | None = None
    for item in reversed(window.items):
        if item.entry.role == "assistant":
            reply = item.entry.timestamp
        elif reply is not None:
            return min(reply, item.entry.timestamp)
    return reply


def pending_items(
    entries: Sequence[Entry], window: Window, counter: TokenCounter
) -> list[WindowItem]:
    """Return the items of entries behind a window, counted."""
    items = []
    for seq, entry in enumerate(entries, window.head + 1):
        count = counter.count_entry(entry)
        counted = msgspec.structs.replace(entry, seq=seq, token_count=count)
        items.append(WindowItem(counted, seq, count.tokens, entry.pinned))
    return items


def without_pins(window: Window) -> Window | None:
    """Return the window without the pins of pending entries, other than system messages; None without."""
    pinned = [
        item
        for item in reversed(window.items)
        if item.position > window.head and item.pinned and item.entry.role != "system"
    ]
    if not pinned:
        return None
    items = [
        msgspec.structs.replace(item, pinned=item.pinned and item not in pinned)
        for item in window.items
    ]
    return window.with_items(items)


def without_late_results(window: Window) -> Window | None:
    """Return the window with its late results without their calls; None if it has none."""
    if not window.exchanges or all(item.again is None for item in window.items):
        return None
    items = [
        msgspec.structs.replace(item, entry=_orphan(item.entry) if item.again else item.entry)
        for item in window.items
    ]
    return window.with_items(items)


def without_bound(
    window: Window, rendering: Rendering, since: int, counter: TokenCounter
) -> tuple[Window, Rendering, tuple[str, ...], dict[str, Any]]:
    """Return a window without the bound parts of entries up to the seq `since`, and its rendering.

    Also returns the ids of those entries, and what the request needs if others keep such parts: a tool turn
    that is not over must have its thoughts.
    """
    items = list(window.items)
    form, left_out, keeps_bound = rendering.format.name, [], False
    is_over = bool(items) and items[-1].entry.type == "message"
    for at in reversed(range(len(items) if since else 0)):
        entry = items[at].entry
        is_over = is_over or not (entry.role == "assistant" or items[at].answers)
        if entry.seq > since or entry.role != "assistant":
            continue
        bare = without_parts(entry, form, is_unbound)
        if bare is entry:
            continue
        if is_over:
            tokens = counter.count_entry(bare).tokens
            items[at] = msgspec.structs.replace(items[at], entry=bare, tokens=tokens)
            left_out.append(entry.id)
        else:
            keeps_bound = True
    if left_out:
        # A window ties its items anew, and an item is of one window.
        window = window.with_items(map(msgspec.structs.replace, items))
        rendering = rendering.copy()
        rendering.update(window)
    return window, rendering, tuple(reversed(left_out)), needs_of(form) if keeps_bound else {}


def _orphan(result: Entry) -> Entry:
    """Return a result that answers no call."""
    call_id = f"memman-late-{result.id}"
    return msgspec.structs.replace(result, call_id=call_id, metadata_json=NO_JSON)


def common_prefix(before: Sequence[object], after: Sequence[object]) -> int:
    """Return how many leading elements of two lists are equal."""
    if after[: len(before)] == before:  # the usual case: something was added
        return len(before)
    pairs = enumerate(zip(before, after, strict=False))
    return next((n for n, (one, other) in pairs if one is not other and one != other), len(after))


def limit_of(
    request: ContextRequest, budget: Budget, config: MemoryConfig, model: str | None
) -> int:
    """Return the tokens that a context may have: those requested, at most those of the model."""
    if request.budget is not None:
        return lowered("budget", request.budget, budget.usable, model)
    if config.max_tokens is not None:
        lowered("max_tokens", config.max_tokens, budget.usable, model)
    return budget.max_tokens


def rendering_in(
    form: Format, counter: TokenCounter, nonce: str = "", complete: bool = True
) -> Rendering:
    """Return an empty rendering in a format, with the framing of the counter's model.

    Without a session there is no nonce: delimiters are protected by neutralizing the texts alone.
    """
    framing = framing_in(counter.model, form.name)
    return Rendering(form, counter.text_cached, framing, nonce, complete)


def expected_framing(form: Format, counter: TokenCounter) -> tuple[float, Callable[[Entry], float]]:
    """Return the framing of an empty request, and that of an entry that is alone in its message."""
    framing = framing_in(counter.model, form.name)
    if framing is None:
        message = form.message_framing
        call = form.render(_EXCHANGE).framing - message  # the result is priced by itself
        return form.request_framing, lambda entry: call if entry.type == "tool_call" else message
    tools = {"tool_call": framing.call, "tool_result": framing.result}
    return framing.request, lambda entry: framing.message + tools.get(entry.type, 0.0)


def request_of(
    model: str | None, rendering: Rendering, system: str | None, tools: bytes | None
) -> dict[str, Any]:
    """Return a request as remote counters take it; `tools` is JSON."""
    return {
        "model": model,
        "messages": msgspec.to_builtins(rendering.messages(system)),
        "system": rendering.system(system),
        "tools": msgspec.json.decode(tools) if tools else [],
    }


def price_given(
    system: str | None, tools: bytes | None, counter: TokenCounter, form: Format
) -> tuple[int, int]:
    """Return the tokens of a system prompt and of tools (as JSON) in a format."""
    framing = framing_in(counter.model, form.name)
    prompt = 0
    if system:
        own = form.message_framing if framing is None else ceil(framing.message)
        extras = prompt_in(form, system).extras if form.inline_system else ()
        prompt = counter.text_cached(system) + own + sum(map(counter.text_cached, extras))
    return prompt, counter.tools_cached(tools, form.name) if tools else 0
