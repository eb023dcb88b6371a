"""A window as a provider's messages, kept up to date: an append renders what it adds, no more."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import msgspec

from memman.entries import Entry
from memman.formats.turns import turns
from memman.ports import Format, Framing, Turn
from memman.window import Slot, Window

Price = Callable[[str], int]
_Message = dict[str, Any]
_HAIR = 1e-6  # sums of fractions come out a hair off


class _Rendered(msgspec.Struct, gc=False):
    """One exchange as rendered: its messages and system entries, and the tokens around its entries.

    `before` is how many messages stood before it, and `displaced` the last of them where this
    exchange's first message was joined to it. `repeats` says which of its calls repeat an earlier
    call's id, since their ids on the wire depend on it.
    """

    slots: tuple[Slot, ...]
    messages: tuple[_Message, ...]
    tokens: float
    system: tuple[Entry, ...] = ()
    repeats: tuple[int, ...] = ()
    before: int = 0
    displaced: _Message | None = None


class Rendering:
    """The messages of a window in one format, and the tokens that rendering adds to its entries.

    `price` counts our own headings and placeholders. `added` is what stands around the entries,
    `edges` what the request has besides. `framing` is what the model's provider bills around texts; where
    that is not known, the format's own figures are taken, which are on the safe side.
    """

    def __init__(self, form: Format, price: Price, framing: Framing | None = None) -> None:
        self.format = form
        self._inline = form.inline_system
        self._joins = form.joins
        self._price = price
        self._framing = framing
        self._epoch = -1
        self._done: list[_Rendered] = []
        self._messages: list[_Message] = []
        self.added = 0
        self._around = 0.0
        self._stable = 0
        request = form.request_framing if framing is None else ceil(framing.request)
        self.edges = request + sum(price(text) for text in form.edges)

    def update(self, window: Window) -> None:
        """Takes in what the window has become since the last update."""
        exchanges = window.exchanges
        done = self._done
        known: dict[Slot, _Rendered] | None = None
        if window.epoch != self._epoch:
            self._epoch = window.epoch
            same = 0
            for rendered, exchange in zip(done, exchanges, strict=False):
                if rendered.slots is not exchange.slots:
                    break
                same += 1
            known = {rendered.slots[0]: rendered for rendered in done[same:]}
            self._truncate(same)
        while done and (
            len(done) > len(exchanges) or done[-1].slots is not exchanges[len(done) - 1].slots
        ):
            self._truncate(len(done) - 1)  # the last one has grown, or an earlier one took it in
        for exchange in exchanges[len(done) :]:
            slots = exchange.slots
            kept = known.get(slots[0]) if known else None
            if kept is None or kept.slots != slots or not self._as_before(kept):
                kept = self._rendered(slots)
            self._place(kept)
        self.added = ceil(self._around - _HAIR)

    def _as_before(self, rendered: _Rendered) -> bool:
        """Whether an exchange would come out as it did before the window changed shape."""
        slots = rendered.slots
        # A system message may be at the head now and have to stand apart.
        may_move = not self._inline and slots[0].entry.role == "system"
        return not may_move and rendered.repeats == tuple([slot.nth for slot in slots if slot.nth])

    def _rendered(self, slots: tuple[Slot, ...]) -> _Rendered:
        """An exchange in the provider's words."""
        messages: tuple[_Message, ...] = ()
        system: tuple[Entry, ...] = ()
        tokens = 0.0
        for turn in turns(slots):
            if not self._inline and turn.kind == "system" and not (messages or self._messages):
                system += turn.entries
                tokens += self._framed(1, turn, self.format.message_framing)
                continue
            rendered = self.format.render(turn)
            tokens += self._framed(len(rendered.messages), turn, rendered.framing)
            for text in rendered.extras:
                tokens += self._price(text)
            messages = messages + rendered.messages if messages else rendered.messages
        made = _Rendered(slots, messages, tokens, system)
        if len(slots) > 1 or slots[0].nth:
            made.repeats = tuple([slot.nth for slot in slots if slot.nth])
        return made

    def _framed(self, messages: int, turn: Turn, by_format: int) -> float:
        """What is billed around a turn that is rendered as so many messages."""
        framing = self._framing
        if framing is None:
            return by_format
        calls = len(turn.calls)
        return framing.message * messages + (framing.call + framing.result) * calls

    def _place(self, exchange: _Rendered) -> None:
        """Appends an exchange, joined to what stands before where the format wants that."""
        messages = self._messages
        exchange.before = len(messages)
        exchange.displaced = None
        self._done.append(exchange)
        self._around += exchange.tokens
        if not self._joins:
            messages += exchange.messages
            return
        join = self.format.join
        for message in exchange.messages:
            joined = join(messages[-1], message) if messages else None
            if joined is None:
                messages.append(message)
            else:
                if len(messages) == exchange.before and exchange.displaced is None:
                    exchange.displaced = messages[-1]
                    self._stable = min(self._stable, exchange.before - 1)
                messages[-1] = joined

    def _truncate(self, count: int) -> None:
        """Forgets all but the first `count` exchanges."""
        if count < len(self._done):
            first = self._done[count]
            messages = self._messages
            del messages[first.before :]
            if first.displaced is not None:
                messages[-1] = first.displaced
            stable = first.before - (first.displaced is not None)
            self._stable = min(self._stable, stable)
            for exchange in self._done[count:]:
                self._around -= exchange.tokens
            del self._done[count:]

    # ------------------------------------------------------------ what came out

    def messages(self) -> tuple[_Message, ...]:
        """The request's messages; shared, so they are copied before anybody else gets them."""
        return tuple(self.format.frame(self._messages))

    def system_text(self) -> str:
        """The system messages of the head where the format wants them apart."""
        texts = [entry.text for exchange in self._done for entry in exchange.system]
        return "\n\n".join(text for text in texts if text.strip())

    def take_stable(self) -> int:
        """How many leading messages are as they were when this was last asked."""
        stable = min(self._stable, len(self._messages))
        self._stable = len(self._messages)
        return stable
