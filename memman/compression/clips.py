"""Clipping an entry: its parts that are no text go first, then the middle of its text.

A notice in the clip says what was taken out and where the original is. An entry that is clipped once more
is read back first, so that there is one notice, its numbers are those of the original, and what stands
around it is the original's beginning and end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from memman.compression.summary_parts import parts_of
from memman.compression.view import EntryFactory, Item, in_place_of
from memman.entries import Entry, FilePart, ImagePart, Part, TextPart, text_of

_HEAD_SHARE: Final = 0.6  # of a clipped text is its beginning, the rest its end
_ATTEMPTS: Final = 8
_MOST_TOLD: Final = 240  # characters of alternative texts in a notice, and of one of them:
_MOST_TOLD_OF_ONE: Final = 80
_WRAPPED: Final = "memman_clipped"  # where in a call's arguments the clipped text is
_PLAIN: Final = str.maketrans("[]();", "    ,")  # what a list in a notice is made of
_LOST: Final = r"[0-9]{1,9} (?:image|file|other part)s?(?: \([^()\[\]\n]*\))?"
_ONE_LOST: Final = re.compile(r"([0-9]{1,15}) (image|file|other part)s?(?: \(([^()]*)\))?")
_NOTICE: Final = re.compile(
    rf"\[memman (?:took out (?P<lost>{_LOST}(?:, {_LOST})*))?(?: and )?"
    r"(?:cut (?P<cut>[0-9]{1,15}) of (?P<length>[0-9]{1,15}) characters here)?"
    r"; the original is entry #(?P<number>[0-9]{1,15})\]"
)


class _Lost(msgspec.Struct, frozen=True):
    """Parts of one kind that were taken out: how many, and what they were told to show."""

    kind: str
    count: int
    told: tuple[str, ...] = ()

    def spelled(self, told: bool) -> str:
        """As a notice has it."""
        what = f"{self.count} {self.kind}{'' if self.count == 1 else 's'}"
        words = "; ".join(self.told) if told else ""
        if len(words) > _MOST_TOLD:
            words = f"{words[: _MOST_TOLD - 3]}..."
        return f"{what} ({words})" if words else what


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of an entry's original: all of it, or the beginning and end that an earlier clip left.

    `text` has the two together, cut `at` this character, and `length` is the original's. `parts` are those
    that are left, in order, texts among them; `lost` are those that an earlier clip took out. `above` and
    `below` are what stands around a summary's body. `number` is the original's place in the log. A call's
    arguments are `wrapped`, and `told` says whether a notice repeats alternative texts.
    """

    text: str
    at: int
    length: int
    number: int
    parts: tuple[Part, ...] = ()
    lost: tuple[_Lost, ...] = ()
    above: str = ""
    below: str = ""
    wrapped: bool = False
    told: bool = True

    @property
    def movable(self) -> list[int]:
        """Where images and files are: a provider's own blocks make sense to it only all together."""
        return [at for at, part in enumerate(self.parts) if isinstance(part, ImagePart | FilePart)]

    @property
    def whole(self) -> bool:
        """Whether all of a content of parts is here but for what is no text."""
        return bool(self.parts or self.lost) and len(self.text) == self.length

    @property
    def size(self) -> int:
        """The characters that can be kept."""
        return len(self.above) + len(self.text) + len(self.below)

    @property
    def bare(self) -> Remains:
        """The same with shorter notices: how many parts were taken out, not what they show."""
        return msgspec.structs.replace(self, told=False)

    def with_parts(self, kept: int) -> tuple[Part, ...]:
        """The whole text with so many of the first images and files, and a notice for the others."""
        stay = self.movable[:kept]
        left: list[Part] = []
        gone: list[Part] = []
        for at, part in enumerate(self.parts):
            (left if at in stay or isinstance(part, TextPart) else gone).append(part)
        return (*left, TextPart(self._notice(0, gone)))

    def clipped(self, keep: int) -> str:
        """The first and last characters of the text, `keep` together, and the notice between them.

        A call's arguments stay a JSON object, so that every provider takes them. Of a summary the body is
        cut, and what stands below it stays, as long as there is room for it.
        """
        room = keep - len(self.above) - len(self.below)
        if room < 0:
            return msgspec.structs.replace(
                self,
                text=self.above + self.text + self.below,
                at=len(self.above) + self.at,
                length=self.size - len(self.text) + self.length,
                above="",
                below="",
            ).clipped(keep)
        cut = self.above + self._cut_to(room) + self.below
        return msgspec.json.encode({_WRAPPED: cut}).decode() if self.wrapped else cut

    def _cut_to(self, keep: int) -> str:
        head = int(keep * _HEAD_SHARE)
        tail = keep - head
        if len(self.text) < self.length:
            head, tail = min(head, self.at), min(tail, len(self.text) - self.at)
        gone = [part for part in self.parts if not isinstance(part, TextPart)]
        notice = self._notice(self.length - head - tail, gone)
        if not head + tail:
            return notice
        return f"{self.text[:head]}\n{notice}\n{self.text[len(self.text) - tail :]}"

    def _notice(self, cut: int, gone: Iterable[Part]) -> str:
        told = [lost.spelled(self.told) for lost in _together(gone, self.lost)]
        said = [f"took out {', '.join(told)}"] if told else []
        if cut or not told:
            said.append(f"cut {cut} of {self.length} characters here")
        return f"[memman {' and '.join(said)}; the original is entry #{self.number}]"


def clip(item: Item, wanted: int, make_entry: EntryFactory) -> Item | None:
    """The item cut to at most `wanted` tokens, or None when that would not make it smaller.

    Images and files go first, the last of them before the others; the text is cut where it is too long
    without them. Where nothing but a notice is left it may be longer than wanted.
    """
    entry = item.entry
    if entry is None or item.tokens <= wanted:
        return None
    remains = remains_of(item, entry)
    if all(isinstance(part, TextPart) for part in remains.parts) and not remains.lost:
        made = _with_most_text(remains, entry, item.tokens, wanted, make_entry)
    else:
        made = _without_parts(remains, item, entry, wanted, make_entry)
    if made is None or made.token_count.tokens >= item.tokens:
        return None
    if item.method in ("summary", "digest"):
        # A summary of this very compression stays what others go into.
        return item.replaced(msgspec.structs.replace(made, id=entry.id), item.method)
    return item.replaced(made, "clip")


def _without_parts(
    remains: Remains, item: Item, entry: Entry, wanted: int, make_entry: EntryFactory
) -> Entry | None:
    """The entry with as many of its parts as fit beside the whole text; without any, the text is cut."""
    tokens = item.tokens
    for each in (remains, remains.bare) if remains.whole else ():
        made = make_entry(in_place_of(entry, each.with_parts(0)))
        tokens = made.token_count.tokens
        if tokens <= wanted:
            return _with_most_parts(each, entry, made, wanted, make_entry)
        if not remains.length and not each.told:
            return made
    # Long alternative texts are not what a short clip is for.
    notice = make_entry(in_place_of(entry, remains.clipped(0)))
    told = notice.token_count.tokens <= wanted // 2
    return _with_most_text(remains if told else remains.bare, entry, tokens, wanted, make_entry)


def _with_most_parts(
    remains: Remains, entry: Entry, made: Entry, wanted: int, make_entry: EntryFactory
) -> Entry:
    """The entry with as many of its first images and files as fit; `made` is that with none."""
    fits, over = 0, len(remains.movable)
    if len(remains.movable) < sum(not isinstance(part, TextPart) for part in remains.parts):
        over += 1  # without a provider's own blocks all others may fit
    while over - fits > 1:
        kept = (fits + over) // 2
        more = make_entry(in_place_of(entry, remains.with_parts(kept)))
        if more.token_count.tokens <= wanted:
            fits, made = kept, more
        else:
            over = kept
    return made


def _with_most_text(
    remains: Remains, entry: Entry, tokens: int, wanted: int, make_entry: EntryFactory
) -> Entry | None:
    """The entry with its text cut; whole it has so many tokens."""
    keep = min(remains.size, int(remains.size * wanted / tokens * 0.9))
    for _ in range(_ATTEMPTS):
        made = make_entry(in_place_of(entry, remains.clipped(keep)))
        if made.token_count.tokens <= wanted or keep == 0:
            return made
        keep = int(keep * min(0.8, wanted / made.token_count.tokens * 0.95))
        keep = keep if keep > 8 else 0
    return None


def remains_of(item: Item, entry: Entry) -> Remains:
    """What is left of the original of an item that shows this entry.

    A notice is read only where an entry stands for another: what was added is a text like any other,
    whatever it says. It must name the original's place in the log, and what it says of the text around it
    must be true.
    """
    stands_for_another = item.method is not None or item.run[0].compression is not None
    content, number = entry.content, item.number
    if not isinstance(content, str):
        return _remains_of_parts(content, number, stands_for_another)
    wrapped = entry.type == "tool_call"
    text = _unwrapped(content) if wrapped and stands_for_another else content
    if entry.type == "summary":
        return _remains_of_summary(text, number)
    found = _read(text, number) if stands_for_another else None
    return msgspec.structs.replace(found or _all_of(text, number), wrapped=wrapped)


def _all_of(text: str, number: int) -> Remains:
    return Remains(text=text, at=len(text), length=len(text), number=number)


def _remains_of_parts(parts: tuple[Part, ...], number: int, stands_for_another: bool) -> Remains:
    """Of parts the notice is the last, and their text is whole."""
    lost: tuple[_Lost, ...] = ()
    last = parts[-1] if parts else None
    if stands_for_another and isinstance(last, TextPart):
        found = _NOTICE.fullmatch(last.text)
        if found and found["cut"] is None and int(found["number"]) == number:
            parts, lost = parts[:-1], _lost_in(found)
    return msgspec.structs.replace(_all_of(text_of(parts), number), parts=parts, lost=lost)


def _remains_of_summary(text: str, number: int) -> Remains:
    """Of a summary its body was cut, or all of it where that was not enough."""
    if found := _read(text, number, later=True):
        return found
    parts = parts_of(text)
    above = f"{parts.sources}\n" if parts.sources else ""
    body = parts.body
    if not body or not text.startswith(above + body):
        return _all_of(text, number)
    found = _read(body, number, later=True) or _all_of(body, number)
    return msgspec.structs.replace(found, above=above, below=text[len(above + body) :])


def _read(text: str, number: int, later: bool = False) -> Remains | None:
    """What a clip left, where this text is one.

    Only one place in a text can have our notice in it, as its numbers tell; anywhere else it is the
    original's own text. A summary that was clipped has a `later` number than its original, and what was
    below its body may have moved the cut.
    """
    for found in _NOTICE.finditer(text):
        if found["cut"] is None:
            continue
        length, named = int(found["length"]), int(found["number"])
        kept = length - int(found["cut"])
        edge = "\n" if kept else ""
        start, end = found.start() - len(edge), found.end() + len(edge)
        if (
            start >= 0
            and kept == start + len(text) - end
            and text[start : found.start()] == text[found.end() : end] == edge
            and (named == number or (later and named < number))
            and (later or start == int(kept * _HEAD_SHARE))
        ):
            left, lost = text[:start] + text[end:], _lost_in(found)
            return Remains(text=left, at=start, length=length, number=named, lost=lost)
    return None


def _unwrapped(arguments: str) -> str:
    """The clipped text in a call's arguments."""
    try:
        given = msgspec.json.decode(arguments, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return given.get(_WRAPPED, arguments) if len(given) == 1 else arguments


def _lost_in(notice: re.Match[str]) -> tuple[_Lost, ...]:
    return tuple(
        _Lost(kind, int(count), tuple(told.split("; ")) if told else ())
        for count, kind, told in _ONE_LOST.findall(notice["lost"] or "")
    )


def _together(gone: Iterable[Part], lost: Iterable[_Lost]) -> list[_Lost]:
    """What is taken out now and what was before, which stood behind it, by kind."""
    every = [*map(_lost_part, gone), *lost]
    return [
        _Lost(
            kind,
            sum(one.count for one in every if one.kind == kind),
            tuple(word for one in every if one.kind == kind for word in one.told),
        )
        for kind in dict.fromkeys([one.kind for one in every])
    ]


def _lost_part(part: Part) -> _Lost:
    if not isinstance(part, ImagePart | FilePart):
        return _Lost("other part", 1)
    name = part.name if isinstance(part, FilePart) else None
    told = ": ".join(
        [" ".join(word.translate(_PLAIN).split()) for word in (name, part.alt) if word]
    )
    if len(told) > _MOST_TOLD_OF_ONE:
        told = f"{told[: _MOST_TOLD_OF_ONE - 3]}..."
    return _Lost("image" if isinstance(part, ImagePart) else "file", 1, (told,) if told else ())
