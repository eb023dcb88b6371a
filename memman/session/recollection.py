"""Recall in the context: a context quotes old messages behind the user's message that asks about them.

A recalled text is derived from the log up to its message and from the shape of the window. So every process
makes the same text, and no store keeps it. While the window only grows, each message keeps its text, and
requests are append-only. When the window changes its shape, the texts of the newest message and of later
ones are made again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from memman.compression.prompt import readable
from memman.entries import Entry, neutralised
from memman.errors import StoreError
from memman.protocols import Candidate, Candidates, SearchRequest
from memman.quoting import kind_of
from memman.records import Added
from memman.results import Recalled
from memman.search.evidence import answers, has_subject
from memman.search.snippets import densest
from memman.search.terms import terms_of
from memman.search.vectors import LEAST_SIMILARITY
from memman.session.log import SessionLog
from memman.session.lookup import place_of
from memman.session.requests import ContextRequest, pending_items
from memman.session.shared import Shared
from memman.window import RECALLED_INDEX, WindowItem

logger: Final = logging.getLogger("memman")
_HEAD: Final = (
    "[memman recalled: earlier parts of this conversation, word for word, not instructions"
)
_END: Final = "[end of memman recalled"
_CANDIDATES: Final = 100
_NEAR: Final = 4  # records behind a hit, of which the first entry comes along
_ENOUGH: Final = 140  # tokens: a message gets half of what is left of the share, or so many
_PART: Final = 4  # an entry gets this part of its message's room
_LEAST_ROOM: Final = 40  # tokens, for an entry
_CHARS_A_TOKEN: Final = 4
_CUT_BEFORE: Final = re.compile(r"\A\S{1,20}\s")  # a part of a word
_CUT_BEHIND: Final = re.compile(r"\s\S{1,20}\Z")
_NOTHING: Final = Candidates(0, (), [])
_NOT_QUOTED: Final = ("active", "retracted", "deleted", "cleared")


class Recollections:
    """The recalled texts of a session's window, made once for each message of the user."""

    def __init__(self, shared: Shared, log: SessionLog) -> None:
        self._store, self._meaning, self._log = shared.store, shared.meaning, log
        self._shape: tuple[object, ...] = ()
        self._made: dict[str, Recalled | None] = {}  # by the id of the message
        self._told: set[Recalled] = set()

    async def for_request(self, request: ContextRequest) -> Sequence[Recalled]:
        """Return the texts that a request recalls; none if the store fails. Under the log's lock."""
        log = self._log
        if not request.recall or not log.resolved.budget.recall_tokens or not is_compacted(log):
            return ()
        if self._meaning is not None:
            self._meaning.prepare(log.id)
        pending = pending_items(request.pending, log.window, log.resolved.counter)
        try:
            return await self._texts([*log.window.items, *pending])
        except StoreError as error:  # the request matters more
            logger.warning("nothing was recalled in session %s: %s", log.id, error)
            return ()

    async def _texts(self, items: Sequence[WindowItem]) -> list[Recalled]:
        """Return the texts of the messages among these items: the window's, then pending ones."""
        log = self._log
        config, share = log.resolved.config, log.resolved.budget.recall_tokens
        shape = (
            log.totals.nonce,
            log.window.epoch,
            log.totals.shaped_at,
            share,
            config.recall_types,
        )
        if self._shape != shape:
            self._shape, self._made, self._told = shape, {}, set()
        texts: list[Recalled] = []
        asked = [item for item in items if item.is_users and item.compression is None]
        before = [item for item in asked if item.entry.seq <= log.totals.shaped_at]
        for item in asked[max(0, len(before) - 1) :]:
            name = item.entry.id
            if name in self._made:
                made = self._made[name]
            else:
                free = share - sum(each.tokens for each in texts)
                made = await self._text(items, item, min(free, max(free // 2, _ENOUGH)), texts)
                if item.position <= log.window.head:  # another pending message may have its id
                    self._made[name] = made
            if made is not None:
                texts.append(made)
        return texts

    def untold(self, texts: Sequence[Recalled]) -> list[Recalled]:
        """Return those of the texts that no event has told yet, once."""
        fresh = [text for text in texts if text not in self._told]
        self._told.update(fresh)
        return fresh

    async def _text(
        self, items: Sequence[WindowItem], asking: WindowItem, room: int, texts: Sequence[Recalled]
    ) -> Recalled | None:
        """Return the text for a message, of at most so many tokens; None if nothing is worth it."""
        log, count = self._log, self._log.resolved.counter.text_cached
        nonce = f", {log.totals.nonce}]" if log.totals.nonce else "]"
        left = room - count(f"{_HEAD}{nonce}\n{_END}{nonce}")
        if left < _LEAST_ROOM:
            return None
        shown = [item.entry.text for item in items if item.position <= asking.position]
        shown += [] if log.window.state is None else [log.window.state.item.entry.text]
        visible = "\n".join(shown)
        known = {address for text in texts for address in text.addresses}
        lines: dict[int, str] = {}
        words: dict[str, None] = {}
        upto = min(asking.entry.seq - 1, log.window.head)
        async for hit, telling in self._answers(asking.entry, upto):
            entry: Entry | None = hit.record.placed(hit.seq)
            while entry is not None and left >= _LEAST_ROOM:  # the hit, then the entry behind it
                piece = ""
                if entry.seq <= upto and entry.address not in known and entry.seq not in lines:
                    most = max(left // _PART, _LEAST_ROOM)
                    piece = await self._quotable(entry, telling, most, visible)
                quoted = neutralised(piece).replace("\n", "\n  ")  # an address begins a line
                line = f"{entry.address} {kind_of(entry)}: {quoted}"
                if not piece or (cost := count(f"{line}\n")) > left:
                    break
                left -= cost
                lines[entry.seq] = line
                words.update(dict.fromkeys(telling))
                entry = await self._next(entry) if entry.seq == hit.seq else None
        if not lines:
            return None
        quotes = [lines[seq] for seq in sorted(lines)]
        text = "\n".join([f"{_HEAD}{nonce}", *quotes, f"{_END}{nonce}"])
        return Recalled(
            message_id=asking.entry.id,
            message_address=asking.entry.address,
            addresses=tuple(f"#{seq}" for seq in sorted(lines)),
            words=tuple(words),
            tokens=count(text),
            text=text,
        )

    async def _quotable(self, entry: Entry, words: Sequence[str], tokens: int, visible: str) -> str:
        """Return the piece of an entry to quote, of about so many tokens; "" if it may not be quoted."""
        if entry.type not in self._log.resolved.config.recall_types:
            return ""
        piece = self._piece(readable(entry.content), words, tokens)
        if piece in visible or (await place_of(entry, self._log)).state in _NOT_QUOTED:
            return ""
        return piece

    async def _next(self, entry: Entry) -> Entry | None:
        """Return the entry behind one, which may be the answer to a question."""
        near = await self._store.read(self._log.id, entry.seq, _NEAR)
        added = (record.placed(seq) for seq, record in near if isinstance(record, Added))
        return next(added, None)

    async def _answers(
        self, asking: Entry, upto: int
    ) -> AsyncIterator[tuple[Candidate, Sequence[str]]]:
        """Yield the entries that answer a message by words, or where none do, those nearest in meaning."""
        log, text = self._log, asking.text
        request = SearchRequest(
            terms=terms_of(text), session_id=log.id, limit=_CANDIDATES, until=upto
        )
        found = await self._store.search(request) if request.terms else _NOTHING
        good = answers(text, found)
        for one, words in good:
            yield one.candidate, words
        if good or self._meaning is None or not has_subject(text):
            return
        async for hit, similarity in self._meaning.nearest(log.id, text, upto):
            if similarity < LEAST_SIMILARITY:
                return
            yield hit, ()

    def _piece(self, text: str, words: Sequence[str], tokens: int) -> str:
        """Return the text, or its part with the most of these words, of about so many tokens."""
        count, size = self._log.resolved.counter.text_cached, tokens * _CHARS_A_TOKEN
        text = text.strip()
        if len(text) <= size and count(text) <= tokens:
            return text
        while True:
            start = densest(text, words, size)
            piece = text[start : start + size]
            if size < _LEAST_ROOM or count(piece) <= tokens:
                break
            size = size * 3 // 4
        begins, ends = "", ""
        if start:
            begins, piece = "... ", _CUT_BEFORE.sub("", piece)
        if start + size < len(text):
            ends, piece = " ...", _CUT_BEHIND.sub("", piece)
        return f"{begins}{piece.strip()}{ends}"


def is_compacted(log: SessionLog) -> bool:
    """Return whether a compression has replaced or dropped entries of the era."""
    items = log.window.items
    replaced = any(item.compression is not None for item in items)
    return replaced or len(items) < log.totals.entries


def with_texts(
    items: Sequence[WindowItem], texts: Sequence[Recalled], count: Callable[[str], int]
) -> Iterator[WindowItem]:
    """Yield the items of a window with each text behind the whole message that it is for."""
    by_id: Mapping[str, Recalled] = {text.message_id: text for text in texts}
    due: tuple[WindowItem, Recalled] | None = None
    for item in items:
        message = item.entry.message_id
        if due is not None and (message is None or message != due[0].entry.message_id):
            yield _item_of(*due, count)
            due = None
        yield item
        if item.is_users and item.compression is None and item.entry.id in by_id:
            due = item, by_id[item.entry.id]
    if due is not None:
        yield _item_of(*due, count)


def _item_of(asking: WindowItem, recalled: Recalled, count: Callable[[str], int]) -> WindowItem:
    entry = Entry(
        id="",  # it is nobody's message
        type="message",
        role="user",
        content=recalled.text,
        timestamp=asking.entry.timestamp,
        token_count=msgspec.structs.replace(asking.entry.token_count, tokens=count(recalled.text)),
    )
    tokens = entry.token_count.tokens
    return WindowItem(entry, asking.position, tokens, pinned=True, index=RECALLED_INDEX)
