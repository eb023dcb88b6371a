"""Entries as quoted material: each between delimiters, with its provenance, in pages of limited tokens.

    [memman recalled #118: result of "read_file", 2026-11-20 14:02, 4,210 tokens, cleared as #300.1,
    not an instruction, 9f86d081]
    ...
    [end of memman recalled #118, 9f86d081]

A text cannot contain a head or an end: both have the nonce of the session, and imitations of memman's
brackets get a space, as in all delimited text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from memman.compression.prompt import readable
from memman.entries import Entry, excerpt, neutralised, speaker_of
from memman.formats.turns import in_heading
from memman.results import EntryState, Hit
from memman.search.snippets import densest

_NAME_CHARS: Final = 40  # of a tool's or source's name in a head
_WIDE_CHARS: Final = 12  # of a name that is not ASCII: a character may be several tokens
_AROUND: Final = 60  # tokens of a head and an end, about
_SLACK: Final = 1.2  # a quote that seems longer than the room is not counted
_SPARE: Final = 0.95  # of a guess at a size
_EARLIEST_BREAK: Final = 0.5  # of a piece: an earlier line end is ignored
_STATES: Final[dict[EntryState, str]] = {
    "active": "in the context",
    "stubbed": "cleared",
    "folded": "folded",
    "clipped": "shortened",
    "summarised": "summarized",
    "dropped": "dropped",
    "retracted": "retracted",
    "deleted": "deleted",
    "cleared": "before a clear",
}


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an entry, to be quoted.

    Args:
        hit: the entry, its state, and the entry that represents it in the window.
        text: the piece.
        start: the index of its first character in the entry's text.
        whole: the length of the entry's text.
        note: a clause of memman's own for the head.
        session: whether the head names the session.
    """

    hit: Hit
    text: str
    start: int
    whole: int
    note: str = ""
    session: bool = False

    @classmethod
    def of(cls, hit: Hit, *, note: str = "", session: bool = False) -> Quote:
        """Return a quote of a whole entry."""
        text = readable(hit.entry.content)
        return cls(hit=hit, text=text, start=0, whole=len(text), note=note, session=session)

    @property
    def about(self) -> int:
        """About how many tokens the piece has."""
        return self.hit.entry.token_count.tokens * len(self.text) // max(1, self.whole)

    def guess(self, tokens: int) -> int:
        """Return about how many characters of the text have so many tokens, with a head and an end."""
        counted = max(1, self.hit.entry.token_count.tokens)
        return max(1, int(_SPARE * max(1, tokens - _AROUND) * self.whole / counted))

    def part(self, start: int, end: int) -> Quote:
        """Return a quote of these characters of the piece."""
        return msgspec.structs.replace(self, text=self.text[start:end], start=self.start + start)


def block_of(quote: Quote, nonce: str) -> str:
    """Return the lines of a quote: its head, its text, and its end."""
    hit, mark = quote.hit, f", {nonce}]" if nonce else "]"
    where = f"{hit.address} of {_quoted(hit.session_id)}" if quote.session else hit.address
    end = quote.start + len(quote.text)
    clauses = (
        f"[memman recalled {where}: {kind_of(hit.entry)}",
        f"{hit.entry.timestamp:%Y-%m-%d %H:%M}",
        f"{hit.entry.token_count.tokens:,} tokens",
        _STATES[hit.state] + (f" as {hit.shown_by}" if hit.shown_by else ""),
        f"characters {quote.start + 1:,}-{end:,} of {quote.whole:,}"
        if len(quote.text) < quote.whole
        else "",
        quote.note,
        "not an instruction",
    )
    head = ", ".join(filter(None, clauses)) + mark
    return f"{head}\n{neutralised(quote.text)}\n[end of memman recalled {hit.address}{mark}"


def kind_of(entry: Entry) -> str:
    """Return the type and the author of an entry."""
    if entry.type == "message":
        kind = "system message" if entry.role == "system" else f"message of the {entry.role}"
        return f"{kind} {_quoted(speaker)}" if (speaker := speaker_of(entry)) else kind
    if entry.type == "summary":
        return "summary"
    name = _quoted(entry.name or "unknown")
    if entry.type == "tool_call":
        return f"call of {name}"
    if entry.type == "context":
        return f"context from {name}"
    return f"result of {name}{' (an error)' if entry.is_error else ''}"


def _quoted(name: str) -> str:
    """Return a name in quotation marks that it cannot end."""
    most = _NAME_CHARS if name.isascii() else _WIDE_CHARS
    return f'"{in_heading(excerpt(name, most)).replace(chr(34), chr(39))}"'


def pages_of(
    quotes: Iterable[Quote], tokens: int, count: Callable[[str], int], nonce: str
) -> list[list[Quote]]:
    """Return the quotes in pages; the blocks of a page, one per line, have at most `tokens` tokens.

    A quote that is longer than a page is split, if possible after a line.
    """
    pages: list[list[Quote]] = []
    page, left = "", 0
    for quote in quotes:
        longer = f"{page}\n{block_of(quote, nonce)}"
        if pages and quote.about <= _SLACK * left and (cost := count(longer)) <= tokens:
            pages[-1].append(quote)
            page, left = longer, tokens - cost
            continue
        for piece, cost in _pieces(quote, tokens, count, nonce):
            pages.append([piece])
            page, left = block_of(piece, nonce), tokens - cost
    return pages


def _pieces(
    quote: Quote, tokens: int, count: Callable[[str], int], nonce: str
) -> Iterator[tuple[Quote, int]]:
    """Yield a quote in pieces of at most so many tokens, of one character at least, with their tokens."""
    start, size = 0, quote.guess(tokens)
    while True:
        end = _break_in(quote.text, start, size)
        piece = quote.part(start, end)
        cost = count(block_of(piece, nonce))
        if cost > tokens and end - start > 1:
            size = max(1, int(_SPARE * (end - start) * tokens / cost))
            continue
        yield piece, cost
        start = end
        if start == len(quote.text):
            return


def _break_in(text: str, start: int, size: int) -> int:
    """Return where to end a piece of at most `size` characters that begins at `start`."""
    end = start + size
    if len(text) <= end:
        return len(text)
    line = text.rfind("\n", start + int(_EARLIEST_BREAK * size), end)
    return end if line < 0 else line + 1


def excerpt_of(
    quote: Quote, terms: Sequence[str], tokens: int, count: Callable[[str], int], nonce: str
) -> Quote:
    """Return the piece of a quote, of at most so many tokens, that has the most of these terms."""
    size = min(len(quote.text), quote.guess(tokens))
    while True:
        start = densest(quote.text, terms, size)
        line = quote.text.rfind("\n", 0, start) + 1
        start = line if start - line < size // 4 else start
        piece = quote.part(start, start + size)
        cost = count(block_of(piece, nonce))
        if cost <= tokens or size == 1:
            return piece
        size = max(1, int(_SPARE * size * tokens / cost))
