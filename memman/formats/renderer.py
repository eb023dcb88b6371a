"""A window as a provider's messages, kept up to date: an append renders what it adds, no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any

import msgspec

from memman.entries import Entry
from memman.errors import FormatError
from memman.formats.turns import turns
from memman.protocols import Format, Framing, Rendered, Turn
from memman.window import Exchange, Window, WindowItem

Price = Callable[[str], int]
_Message = dict[str, Any]
_DELIMITED = ("context", "summary", "orphan")
_NOTHING, _AT_WORK = -1, -2  # in place of an epoch
_AT_NO_TIME = datetime.fromtimestamp(0, UTC)
_HAIR = 1e-6  # sums of fractions come out a hair off


class _Rendered(msgspec.Struct, gc=False):
    """One exchange as rendered: its messages and system entries, and the tokens around its entries.

    `before` is how many messages stood before it, as they were rendered. `repeats` says which of its
    calls repeat an earlier call's id, since their ids on the wire depend on it.
    """

    items: tuple[WindowItem, ...]
    messages: tuple[_Message, ...]
    tokens: float
    system: tuple[Entry, ...] = ()
    repeats: tuple[int, ...] = ()
    before: int = 0


class Rendering:
    """The messages of a window in one format, and the tokens that rendering adds to its entries.

    `price` counts our own headings and placeholders. `added` is what stands around the entries,
    `edges` what the request has besides. `framing` is what the model's provider bills around texts; where
    that is not known, the format's own figures are taken, which are on the safe side. `nonce` marks the
    delimiters.
    """

    def __init__(
        self, form: Format, price: Price, framing: Framing | None = None, nonce: str = ""
    ) -> None:
        self.format = form
        self._nonce = nonce
        self.inline = form.inline_system
        self._joins = form.joins
        self._results_anywhere = getattr(form, "results_anywhere", False)
        self._price = price
        self._framing = framing
        self._epoch = _NOTHING
        self._begin()
        request, message = form.request_framing, form.message_framing
        if framing is not None:
            request, message = ceil(framing.request), ceil(framing.message)
        self.edges = request + sum(price(text) + message for text in form.edges)

    def _begin(self) -> None:
        """Becomes the rendering of nothing."""
        self._done: list[_Rendered] = []
        self._pieces: list[
            _Message
        ] = []  # the messages as they were rendered, before they are joined
        self._joined = 0  # so many of them are in `_messages`
        self._starts: list[int] = []  # for each of `_messages` the place of its first piece
        # Handed out as it is, and never changed in its first `_stable` messages, which others may have:
        # they are the first of `_taken` too, the list that was handed out last.
        self._messages: list[_Message] = []
        self._taken = self._messages
        self._stable = 0
        self._around = 0.0
        self.added = 0

    def update(self, window: Window) -> None:
        """Takes in what the window has become since the last update."""
        epoch, self._epoch = self._epoch, _AT_WORK
        exchanges = window.exchanges
        known = None if epoch == window.epoch else self._reshaped(exchanges, epoch)
        done = self._done
        same = len(done)
        # The last one may have grown, or an earlier one taken it in.
        while same and (
            same > len(exchanges) or done[same - 1].items is not exchanges[same - 1].items
        ):
            same -= 1
        if same < len(done):
            self._truncate(same)
        for exchange in exchanges[same:]:
            items = exchange.items
            made = known.get(items[0]) if known else None
            if made is None or not self._stands(made, items):
                made = self._rendered(items)
            made.before = len(self._pieces)
            done.append(made)
            self._around += made.tokens
            self._pieces += made.messages
        self._join()
        self.added = ceil(self._around - _HAIR)
        self._epoch = window.epoch

    def _reshaped(self, exchanges: Sequence[Exchange], epoch: int) -> dict[WindowItem, _Rendered]:
        """Keeps what stands as it stood before the window changed its shape; gives what stood behind."""
        if epoch == _AT_WORK:  # the last update was interrupted
            self._begin()
        done = self._done
        same = 0
        for rendered, exchange in zip(done, exchanges, strict=False):
            if rendered.items is not exchange.items:
                break
            same += 1
        known = {rendered.items[0]: rendered for rendered in done[same:]}
        self._truncate(same)
        return known

    def _stands(self, rendered: _Rendered, items: tuple[WindowItem, ...]) -> bool:
        """Whether an exchange as it was rendered before the window changed shape comes out the same."""
        if rendered.items is not items:  # else nothing has touched them
            repeats = tuple(item.nth for item in items if item.nth)
            if rendered.items != items or rendered.repeats != repeats:
                return False
        # A system message may be at the head now and have to stand apart.
        return self.inline or items[0].entry.role != "system"

    def _rendered(self, items: tuple[WindowItem, ...]) -> _Rendered:
        """An exchange in the provider's words."""
        messages: tuple[_Message, ...] = ()
        system: tuple[Entry, ...] = ()
        tokens = 0.0
        framing = self._framing
        for turn in turns(items, self._results_anywhere):
            if turn.kind == "system" and not (self.inline or messages or self._pieces):
                system += turn.entries
                tokens += self.format.message_framing if framing is None else framing.message
                continue
            if self._nonce and turn.kind in _DELIMITED:
                turn = msgspec.structs.replace(turn, nonce=self._nonce)
            rendered = self.format.render(turn)
            said = rendered.messages
            tokens += rendered.framing if framing is None else _billed(framing, len(said), turn)
            if rendered.extras:
                tokens += sum(map(self._price, rendered.extras))
            messages += tuple(said)  # a stranger's format may give a list
        if len(items) <= 2 and not (items[0].nth or items[-1].nth):
            return _Rendered(items, messages, tokens, system)
        repeats = tuple(item.nth for item in items if item.nth)
        return _Rendered(items, messages, tokens, system, repeats)

    def _join(self) -> None:
        """Appends the pieces that are new, each run of neighbours that the format joins as one message."""
        pieces, first = self._pieces, self._joined
        if not self._joins:
            self._starts += range(first, len(pieces))
            self._messages += pieces[first:]
        else:
            run: list[_Message] = []
            if first < len(pieces) and self._follows(self._messages, pieces[first]):
                run = [self._messages[-1]]
                self._joined = self._starts.pop()
                self._cut(len(self._messages) - 1)
            for number in range(first, len(pieces)):
                if run and not self._follows(run, pieces[number]):
                    self._close(run, number)
                    run = []
                run.append(pieces[number])
            if run:
                self._close(run, len(pieces))
        self._joined = len(pieces)

    def _follows(self, run: Sequence[_Message], piece: _Message) -> bool:
        """Whether the format joins a message to the last of a run."""
        return bool(run) and self.format.join(run[-1], piece) is not None

    def _close(self, run: list[_Message], end: int) -> None:
        """Appends a run as one message, joined in halves: from the left it would be copied for each."""
        while len(run) > 1:
            halves = [self._joined_pair(*pair) for pair in zip(run[::2], run[1::2], strict=False)]
            run = [*halves, *run[2 * len(halves) :]]
        self._starts.append(self._joined)
        self._messages += run
        self._joined = end

    def _joined_pair(self, left: _Message, right: _Message) -> _Message:
        joined = self.format.join(left, right)
        if joined is None:
            raise FormatError(
                f"the format {self.format.name} joins no message that it joined itself"
            )
        return joined

    def _truncate(self, count: int) -> None:
        """Forgets all but the first `count` exchanges."""
        if count < len(self._done):
            cut = self._done[count].before
            del self._pieces[cut:]
            whole = len(self._starts)
            while self._joined > cut:
                whole -= 1
                self._joined = self._starts[whole]
            del self._starts[whole:]
            self._cut(whole)
            for exchange in self._done[count:]:
                self._around -= exchange.tokens
            del self._done[count:]

    def _cut(self, count: int) -> None:
        """Lets go of all but the first `count` messages; who was handed the list keeps it as it was."""
        if count < self._stable:
            self._messages = self._messages[:count]
            self._stable = count
        else:
            del self._messages[count:]

    # ------------------------------------------------------------ what came out

    def messages(self, prompt: str | None = None) -> list[_Message]:
        """The request's messages, to be read only; a prompt is the first where it has no place apart."""
        messages = self._messages
        if prompt and self.inline:
            messages = [*prompt_in(self.format, prompt).messages, *messages]
        return self.format.frame(messages)

    def system(self, prompt: str | None = None) -> str | None:
        """A system prompt and the system messages of the head, where the format wants them apart and there
        are any.
        """
        if self.inline:
            return None
        texts = [entry.text for exchange in self._done for entry in exchange.system]
        own = "\n\n".join(text for text in texts if text.strip())
        return "\n\n".join(text for text in (prompt, own) if text) or None

    def take(
        self, prompt: str | None = None, before: list[_Message] | None = None
    ) -> tuple[list[_Message], int]:
        """What `messages` gives, to be kept, and of how many of the first it is known that the list taken
        before has them too.

        More may come to the list later: what it has now stays as it is.
        """
        own, messages = self._messages, self.messages(prompt)
        known = self._stable if messages is own and before is self._taken else 0
        self._taken, self._stable = own, len(own)
        return messages, known


def prompt_in(form: Format, prompt: str) -> Rendered:
    """A system prompt that is no entry, spelled as a format spells system messages."""
    said = Entry(id=" ", type="message", role="system", content=prompt, timestamp=_AT_NO_TIME)
    return form.render(Turn("system", (said,)))


def _billed(framing: Framing, messages: int, turn: Turn) -> float:
    """What is billed around a turn that is rendered as so many messages."""
    return framing.message * messages + (framing.call + framing.result) * len(turn.calls)
