"""A window as a provider's messages, kept up to date: an append renders only what it adds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from itertools import chain, pairwise
from math import ceil
from typing import Any

import msgspec

from memman.entries import NO_JSON, Entry, JSONObject, OpaquePart, note_of
from memman.errors import FormatError
from memman.formats.lenient import rendered_whole
from memman.formats.parts import opaque_dict, speaking
from memman.formats.sources import Comparisons, entries_behind, framed_from
from memman.formats.turns import turns
from memman.formats.wire.keys import with_request_keys
from memman.formats.wire.reading import is_complete
from memman.protocols import CachePlace, Format, Framing, Rendered, Turn
from memman.results import Source
from memman.window import RECALLED_INDEX, STATE_INDEX, Window, WindowItem

Price = Callable[[str], int]
_DELIMITED = ("context", "summary", "state", "orphan")
_EPOCH_TIME = datetime.fromtimestamp(0, UTC)
_MADE = (STATE_INDEX, RECALLED_INDEX)  # items that are no entries
_NO_ONE = Turn("state", ())  # says what memman adds
_OTHER_EPOCH = -1  # of a window that may differ at any place
_ROUNDING = 1e-6  # sums of fractions may be slightly too high


class _Rendered(msgspec.Struct, frozen=True, gc=False):
    """One rendered exchange: its messages, the number of messages before it, and its framing in tokens.

    `system` are its entries that go into a separate system prompt, and `turns` the others.
    """

    items: tuple[WindowItem, ...]
    before: int
    messages: tuple[JSONObject, ...]
    framing: float
    system: tuple[Entry, ...]
    turns: tuple[tuple[Turn, Rendered], ...]
    waits: bool  # for a result from the provider, as the last exchange alone may


class Layout(msgspec.Struct, frozen=True, eq=False):
    """The messages of a request, and what they were made of."""

    format: Format
    messages: list[JSONObject]
    # The indexes of those in `_joined` that each was made of, if they are known already.
    _indexes: list[tuple[int, ...]] | None
    _joined: list[JSONObject]  # before `frame`
    _first: int  # of these, the messages of a system prompt
    _done: tuple[_Rendered, ...]
    _starts: tuple[int, ...]
    _comparisons: Comparisons
    _torn: frozenset[str]

    def entries(self) -> tuple[Entry, ...]:
        """Return the entries of the window in order, with their pins."""
        items = (item for rendered in self._done for item in rendered.items)
        return tuple(item.shown() for item in items if item.index not in _MADE)

    def sources(self) -> tuple[Source, ...]:
        """Return the entries behind each message."""
        pieces = [
            entries
            for rendered in self._done
            for turn, made in rendered.turns
            for entries in entries_behind(turn, made)
        ]
        joined = [
            tuple(entry for entry in chain.from_iterable(pieces[start:end]) if entry.id)
            for start, end in pairwise((*self._starts, len(pieces)))
        ]
        joined = [()] * self._first + joined
        indexes = self._indexes or framed_from(self.format, self._joined, self.messages)
        framed = [
            tuple(chain.from_iterable(joined[index] for index in made_of)) for made_of in indexes
        ]
        return self._comparisons.sources(self.messages, framed, self.entries(), self._torn)

    def cache_places(self) -> list[CachePlace]:
        """Return the ends of the compressed part, of the previous request, and of this one.

        The previous request ended before the last turn of the assistant, in this process or another.
        """
        ends = (self._compressed(), self._answered(), _pieces_of(self._done))
        indexes = self._indexes or framed_from(self.format, self._joined, self.messages)
        return list(dict.fromkeys(self._place(end, indexes) for end in ends if end))

    def _compressed(self) -> int:
        """Return the number of pieces up to the last compressed one; 0 if nothing was compressed."""
        for rendered in reversed(self._done):
            items = rendered.items
            if any(item.index == STATE_INDEX or item.entry.replacement for item in items):
                return rendered.before + len(rendered.messages)
        return 0

    def _answered(self) -> int:
        """Return the number of pieces before the last turn of the assistant; 0 without one."""
        for rendered in reversed(self._done):
            at, found = rendered.before, 0
            for turn, made in rendered.turns:
                found = at if turn.kind == "assistant" and made.messages else found
                at += len(made.messages)
            if found:
                return found
        return 0

    def _place(self, pieces: int, indexes: Sequence[tuple[int, ...]]) -> CachePlace:
        """Return the place behind so many pieces: in a joined message, it is behind some of its blocks."""
        joined = bisect_right(self._starts, pieces - 1) - 1
        message = next(
            index for index, made_of in enumerate(indexes) if self._first + joined in made_of
        )
        end = self._starts[joined + 1] if joined + 1 < len(self._starts) else None
        if pieces == (end or _pieces_of(self._done)):
            return CachePlace(message)
        made = [message for rendered in self._done for message in rendered.messages]
        return CachePlace(message, sum(map(_blocks, made[self._starts[joined] : pieces])))


def without_parts(
    entry: Entry, form: str, is_sent: Callable[[str, Mapping[str, Any]], bool]
) -> Entry:
    """Return an entry without those blocks of a format that are not sent."""
    if isinstance(entry.content, str):
        return entry
    kept = tuple(
        part
        for part in entry.content
        if not isinstance(part, OpaquePart)
        or part.format != form
        or is_sent(form, opaque_dict(part))
    )
    if len(kept) == len(entry.content):
        return entry
    return msgspec.structs.replace(entry, content=kept, raw_json=NO_JSON)


def _is_prompted(turn: Turn) -> bool:
    """Return whether a turn of the assistant answers a request that did not end with the user."""
    entries = (*turn.entries, *(call.entry for call in (*turn.calls, *turn.beside)))
    return any(note_of(entry, "prompted") for entry in entries)


def _pieces_of(done: Sequence[_Rendered]) -> int:
    return done[-1].before + len(done[-1].messages) if done else 0


def _blocks(message: JSONObject) -> int:
    """Return the number of content blocks of a message; a text is one."""
    content = message.get("content")
    return len(content) if isinstance(content, list) else 1


class Rendering:
    """The messages of a window in one format, and the tokens that rendering adds to its entries.

    Args:
        form: the format.
        price: counts our own headings and placeholders.
        framing: the tokens that the provider bills around texts. If it is unknown, the format's own figures
            are used, which are safe upper bounds.
        nonce: marks the delimiters.
        complete: whether calls without a result get a placeholder, and messages are added that the format
            requires first, last or in between.
        comparisons: those of another rendering of the same entries.

    `added` is the framing of the entries, `edges` that of the request.
    """

    def __init__(
        self,
        form: Format,
        price: Price,
        framing: Framing | None = None,
        nonce: str = "",
        complete: bool = True,
        comparisons: Comparisons | None = None,
    ) -> None:
        self.format = form
        self._nonce = nonce
        self._complete = complete
        self._comparisons = comparisons or Comparisons(form)
        self.inline = form.inline_system
        self._results_anywhere = getattr(form, "results_anywhere", False)
        self._speakers = form.name, not getattr(form, "nameless", False)
        self._beside = form.name if getattr(form, "results_beside", False) else ""
        self._pauses = getattr(form, "pauses", False)
        self._price = price
        self._framing = framing
        request, message = form.request_framing, form.message_framing
        if framing is not None:
            request, message = ceil(framing.request), ceil(framing.message)
        self.edges = request + sum(price(text) + message for text in form.edges)
        self._begin()

    def _begin(self) -> None:
        """Reset to an empty window."""
        self._epoch: int | None = None
        self._done: list[_Rendered] = []
        self._pieces: list[JSONObject] = []  # the messages before adjacent ones are joined
        self._joined: list[JSONObject] = []
        self._starts: list[int] = []  # the index of the first piece of each joined message
        self._covered = 0  # the number of pieces in joined messages
        self._framing_sum = 0.0
        self.added = 0

    def empty(self) -> Rendering:
        """Return such a rendering of an empty window."""
        other: Rendering = copy(self)
        other._begin()
        return other

    def copy(self) -> Rendering:
        """Return a rendering of the same window that changes apart from this one."""
        other: Rendering = copy(self)
        other._detach()
        return other

    def _detach(self) -> None:
        """Take lists of its own."""
        self._epoch = None if self._epoch is None else _OTHER_EPOCH
        self._done = list(self._done)
        self._pieces = list(self._pieces)
        self._joined = list(self._joined)
        self._starts = list(self._starts)

    def update(self, window: Window) -> None:
        """Render the changes of the window since the last update."""
        exchanges, done = window.shown_exchanges, self._done
        same = min(len(done), len(exchanges))
        if self._epoch is None:
            same = 0  # the last update was interrupted
        elif self._epoch == window.epoch:  # only the end can have changed
            while same and done[same - 1].items is not exchanges[same - 1].items:
                same -= 1
        else:
            unequal = (n for n in range(same) if done[n].items is not exchanges[n].items)
            same = next(unequal, same)
        self._epoch = None
        if 0 < same < len(exchanges) and done[same - 1].waits:
            same -= 1  # another exchange follows, so what it waited for does not come
        self._truncate(same)
        for number, exchange in enumerate(exchanges[same:], start=same + 1):
            rendered = self._rendered(exchange.items, self._pauses and number == len(exchanges))
            self._done.append(rendered)
            self._pieces += rendered.messages
            self._framing_sum += rendered.framing
        self._join()
        self.added = ceil(self._framing_sum - _ROUNDING)
        self._epoch = window.epoch

    def _rendered(self, items: tuple[WindowItem, ...], last: bool) -> _Rendered:
        """Render an exchange."""
        messages: tuple[JSONObject, ...] = ()
        system: tuple[Entry, ...] = ()
        rendered_turns: list[tuple[Turn, Rendered]] = []
        tokens = 0.0
        framing = self._framing
        waits = False
        for call in filter(None, (item.again for item in items)):  # it is in no item's price
            tokens += max(self._price(call.text), call.token_count.tokens)
        for turn in turns(items, self._beside, results_anywhere=self._results_anywhere, last=last):
            waits |= any(call.beside and call.result is None for call in turn.calls)
            if any(entry.name for entry in turn.entries):
                names = list[str]()
                said = tuple(speaking(entry, *self._speakers, names) for entry in turn.entries)
                turn = msgspec.structs.replace(turn, entries=said)
                tokens += sum(map(self._price, names))
            if turn.kind == "system" and not (self.inline or messages or self._pieces):
                system += turn.entries
                tokens += self.format.message_framing if framing is None else framing.message
                continue
            if turn.kind == "assistant":
                entries = tuple(
                    without_parts(entry, self.format.name, is_complete) for entry in turn.entries
                )
                turn = msgspec.structs.replace(turn, entries=entries)
            if self._nonce and turn.kind in _DELIMITED:
                turn = msgspec.structs.replace(turn, nonce=self._nonce)
            if self._complete and turn.kind == "assistant" and _is_prompted(turn):
                newest = [*self._pieces[-1:], *messages][-1:]
                framed = self.format.frame(newest)
                if newest and not framed_from(self.format, newest, framed)[-1]:  # it ended so
                    note = Rendered((framed[-1],), self.format.message_framing)
                    rendered_turns.append((_NO_ONE, note))
                    messages += note.messages
                    tokens += note.framing + self._price(self.format.edges[-1])
            if self._complete or turn.kind != "assistant":
                rendered = rendered_whole(turn, self.format) or self.format.render(turn)
            else:
                rendered = self._without_placeholders(turn)
            made = tuple(with_request_keys(self.format.name, each) for each in rendered.messages)
            tokens += rendered.framing if framing is None else _billed(framing, len(made), turn)
            tokens += sum(map(self._price, rendered.extras))
            messages += made
            rendered_turns.append((turn, rendered))
        before = len(self._pieces)
        return _Rendered(items, before, messages, tokens, system, tuple(rendered_turns), waits)

    def _without_placeholders(self, turn: Turn) -> Rendered:
        """Render an assistant's turn with the results that it has."""
        answers = tuple(call for call in turn.answers if call.result is not None)
        rendered = self.format.render(msgspec.structs.replace(turn, answers=answers))
        if answers or self._results_anywhere:
            return rendered
        return msgspec.structs.replace(
            rendered, messages=rendered.messages[:1], sources=rendered.sources[:1]
        )

    # ------------------------------------------------------------ joining

    def _join(self) -> None:
        """Join the new pieces to messages as the format sends them."""
        pieces, first = self._pieces, self._covered
        self._covered = len(pieces)
        if not self.format.joins:
            self._starts += range(first, len(pieces))
            self._joined += pieces[first:]
            return
        run: list[JSONObject] = []
        start = 0
        if self._joined:  # the last message may grow
            run, start = [self._joined.pop()], self._starts.pop()
        for number in range(first, len(pieces)):
            if run and self.format.join(run[-1], pieces[number]) is None:
                self._close(run, start)
                run, start = [], number
            run.append(pieces[number])
        if run:
            self._close(run, start)

    def _close(self, run: Sequence[JSONObject], start: int) -> None:
        self._joined.append(self._joined_run(run))
        self._starts.append(start)

    def _joined_run(self, run: Sequence[JSONObject]) -> JSONObject:
        """Join a run of messages in halves: from left to right the first would be copied each time."""
        if len(run) == 1:
            return run[0]
        middle = len(run) // 2
        joined = self.format.join(self._joined_run(run[:middle]), self._joined_run(run[middle:]))
        if joined is None:
            raise FormatError(f"the format {self.format.name} cannot join a message that it joined")
        return joined

    def _truncate(self, count: int) -> None:
        """Drop all but the first `count` exchanges."""
        if count == len(self._done):
            return
        if count == 0:
            self._begin()
            return
        pieces = self._done[count].before
        del self._done[count:], self._pieces[pieces:]
        self._framing_sum = sum(rendered.framing for rendered in self._done)
        while self._covered > pieces:
            self._joined.pop()
            self._covered = self._starts.pop()

    # ------------------------------------------------------------ the result

    def messages(self, prompt: str | None = None) -> list[JSONObject]:
        """Return the request's messages, which must not be changed, in a new list.

        A prompt comes first unless the format has a separate place for it.
        """
        return self.layout(prompt).messages

    def layout(self, prompt: str | None = None, torn: frozenset[str] = frozenset()) -> Layout:
        """Return the request's messages with the entries behind them, at this moment.

        `torn` are the ids of messages that have lost some of their entries.
        """
        first = prompt_in(self.format, prompt).messages if prompt and self.inline else ()
        joined = [*first, *self._joined]
        messages, indexes = self.format.frame(joined), None
        if not self._complete:
            every = framed_from(self.format, joined, messages)
            messages = [each for each, made_of in zip(messages, every, strict=True) if made_of]
            indexes = [made_of for made_of in every if made_of]
        return Layout(
            self.format,
            messages,
            indexes,
            joined,
            len(first),
            tuple(self._done),
            tuple(self._starts),
            self._comparisons,
            torn,
        )

    def system(self, prompt: str | None = None) -> str | None:
        """Return the separate system prompt: `prompt` and the leading system messages, if there are any."""
        if self.inline:
            return None
        texts = [entry.text for exchange in self._done for entry in exchange.system]
        own = "\n\n".join(text for text in texts if text.strip())
        return "\n\n".join(text for text in (prompt, own) if text) or None


def prompt_in(form: Format, prompt: str) -> Rendered:
    """Render a system prompt that is not an entry as the format renders system messages."""
    entry = Entry(id=" ", type="message", role="system", content=prompt, timestamp=_EPOCH_TIME)
    return form.render(Turn("system", (entry,)))


def _billed(framing: Framing, messages: int, turn: Turn) -> float:
    """Return the tokens billed around a turn that is rendered as so many messages."""
    return framing.message * messages + (framing.call + framing.result) * len(turn.calls)
