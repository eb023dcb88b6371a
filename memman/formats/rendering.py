"""A window as a provider's messages, kept up to date: an append renders what it adds, no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from memman.entries import Entry
from memman.formats.turns import turn_of_one, turns
from memman.ports import Format
from memman.window import Slot, Window

Price = Callable[[str], int]
_Message = dict[str, Any]


class _Exchange(msgspec.Struct, gc=False):
    """One exchange as rendered: its messages and system entries, and the tokens around its entries.

    `before` is how many messages stood before it, and `displaced` the last of them where this
    exchange's first message was joined to it.
    """

    slots: list[Slot]
    start: int
    stop: int
    messages: tuple[_Message, ...]
    system: list[Entry] | tuple[()]
    tokens: int
    before: int = 0
    displaced: _Message | None = None
    repeats: tuple[int, ...] = ()


def _repeats(run: list[Slot]) -> tuple[int, ...]:
    """Which calls repeat an earlier call's id: their ids on the wire depend on it."""
    return tuple([slot.nth for slot in run if slot.nth])


class Rendering:
    """The messages of a window in one format, and the tokens that rendering adds to its entries.

    `price` counts our own headings and placeholders. `added` is what stands around the entries,
    `edges` what the request has besides.
    """

    def __init__(self, form: Format, price: Price) -> None:
        self.format = form
        self._inline = form.inline_system
        self._joins = form.joins
        self._price = price
        self._epoch = -1
        self._done: list[_Exchange] = []
        self._messages: list[_Message] = []
        self.added = 0
        self._stable = 0
        self.edges = form.request_framing + sum(price(text) for text in form.edges)

    def update(self, window: Window) -> None:
        """Takes in what the window has become since the last update."""
        slots, starts, done = window.slots, window.starts, self._done
        known: dict[Slot, _Exchange] | None = None
        if window.epoch == self._epoch and done and done[-1].stop == starts[-1] == len(slots) - 1:
            # One exchange of one entry is new, which nearly every append is.
            start = starts[-1]
            self._place(self._exchange(slots[start:], start, start + 1, None))
            return
        if window.epoch != self._epoch:
            self._epoch = window.epoch
            known = {exchange.slots[0]: exchange for exchange in self._done}
            self._truncate(0)
        ends = len(starts) - 1
        while done:
            # The last one may have grown, or have been swallowed by an earlier one.
            last = len(done) - 1
            exchange = done[last]
            stop = starts[last + 1] if last < ends else len(slots)
            if last <= ends and exchange.start == starts[last] and exchange.stop == stop:
                break
            self._truncate(last)
        for number in range(len(done), ends + 1):
            start = starts[number]
            stop = starts[number + 1] if number < ends else len(slots)
            self._place(self._exchange(slots[start:stop], start, stop, known))

    def _exchange(
        self, run: list[Slot], start: int, stop: int, known: dict[Slot, _Exchange] | None
    ) -> _Exchange:
        """An exchange in the provider's words, from before the window changed shape if it is there."""
        # A system message may be at the head now and have to stand apart: it is rendered anew.
        if known and (self._inline or run[0].entry.role != "system"):
            kept = known.get(run[0])
            if kept is not None and kept.slots == run and kept.repeats == _repeats(run):
                kept.start, kept.stop = start, stop
                return kept
        if len(run) == 1 and (self._inline or run[0].entry.role != "system"):
            rendered = self.format.render(turn_of_one(run[0]))
            tokens = rendered.framing
            for text in rendered.extras:
                tokens += self._price(text)
            made = _Exchange(run, start, stop, rendered.messages, (), tokens)
            if run[0].nth:
                made.repeats = _repeats(run)
            return made
        return self._exchange_of_many(run, start, stop)

    def _exchange_of_many(self, run: list[Slot], start: int, stop: int) -> _Exchange:
        messages: list[_Message] = []
        system: list[Entry] = []
        tokens = 0
        for turn in turns(run):
            if turn.kind == "system" and not self.format.inline_system and self._at_head(messages):
                system.append(turn.entries[0])
                tokens += self.format.message_framing
                continue
            rendered = self.format.render(turn)
            tokens += rendered.framing
            for text in rendered.extras:
                tokens += self._price(text)
            messages += rendered.messages
        made = _Exchange(run, start, stop, tuple(messages), system, tokens)
        made.repeats = _repeats(run)
        return made

    def _at_head(self, messages: list[_Message]) -> bool:
        return not messages and not self._messages

    def _place(self, exchange: _Exchange) -> None:
        """Appends an exchange, joined to what stands before where the format wants that."""
        messages = self._messages
        exchange.before = len(messages)
        exchange.displaced = None
        self._done.append(exchange)
        self.added += exchange.tokens
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
                self.added -= exchange.tokens
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
