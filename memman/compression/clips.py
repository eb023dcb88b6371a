"""Clips of entries: images and files are removed first, then the middle of the text.

A notice in the clip names the removed content and the original. To clip an entry again, the earlier clip
is read back first, so that there is one notice with the numbers of the original, and the text around it
is the original's beginning and end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from memman.compression.view import EntryFactory, Item, in_place_of, offer
from memman.entries import Content, Entry, FilePart, ImagePart, Part, TextPart, text_of

_HEAD_SHARE: Final = 0.6  # of a clipped text is its beginning, the rest its end
_ATTEMPTS: Final = 8
_MOST_ALT: Final = 240  # characters of alternative texts in a notice, and of one of them:
_MOST_ALT_OF_ONE: Final = 80
_WRAPPED: Final = "memman_clipped"  # the key of the clipped text in a call's arguments
_PLAIN: Final = str.maketrans("[]();", "    ,")  # the punctuation of a list in a notice
_LOST: Final = r"[0-9]{1,9} (?:image|file|other part)s?(?: \([^()\[\]\n]*\))?"
_ONE_LOST: Final = re.compile(r"([0-9]{1,15}) (image|file|other part)s?(?: \(([^()]*)\))?")
_NOTICE: Final = re.compile(
    rf"\[memman (?:took out (?P<lost>{_LOST}(?:, {_LOST})*))?(?: and )?"
    r"(?:cut (?P<cut>[0-9]{1,15}) of (?P<length>[0-9]{1,15}) characters here)?"
    r"; the original is entry #(?P<number>[0-9]{1,15})"
    r"(?:; [A-Za-z0-9_-]{1,64} #(?P=number) returns it)?\]"
)
_Make = Callable[[Content], Entry]  # makes an entry in the place of one that is clipped


class _Lost(msgspec.Struct, frozen=True):
    """Removed parts of one kind: their number and their alternative texts."""

    kind: str
    count: int
    alts: tuple[str, ...] = ()

    def spelled(self, with_alts: bool) -> str:
        """Return the words of a notice, with alternative texts if wanted."""
        what = f"{self.count} {self.kind}{'' if self.count == 1 else 's'}"
        words = "; ".join(self.alts) if with_alts else ""
        if len(words) > _MOST_ALT:
            words = f"{words[: _MOST_ALT - 3]}..."
        return f"{what} ({words})" if words else what


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """The rest of an entry's original: all of it, or the beginning and end that an earlier clip left.

    Args:
        text: both together, cut `at` this character.
        length: the length of the original's text.
        number: the original's log position.
        parts: the remaining parts in order, texts included.
        lost: the parts that an earlier clip removed.
        wrapped: the text is in a call's arguments.
        with_alts: a notice repeats alternative texts.
        recall: the name of the agent's tool that returns the original; "" if there is none.
    """

    text: str
    at: int
    length: int
    number: int
    parts: tuple[Part, ...] = ()
    lost: tuple[_Lost, ...] = ()
    wrapped: bool = False
    with_alts: bool = True
    recall: str = ""

    @property
    def movable(self) -> list[int]:
        """The indexes of images and files; a provider's own blocks are kept or removed together."""
        return [at for at, part in enumerate(self.parts) if isinstance(part, ImagePart | FilePart)]

    @property
    def whole(self) -> bool:
        """True if the text of a content of parts is complete."""
        return bool(self.parts or self.lost) and len(self.text) == self.length

    def with_parts(self, kept: int) -> tuple[Part, ...]:
        """Return the whole text with the first `kept` images and files, and a notice for the others."""
        stay = self.movable[:kept]
        left: list[Part] = []
        gone: list[Part] = []
        for at, part in enumerate(self.parts):
            (left if at in stay or isinstance(part, TextPart) else gone).append(part)
        return (*left, TextPart(self._notice(0, gone)))

    def clipped(self, keep: int) -> str:
        """Return the first and last characters of the text, `keep` together, with a notice between them.

        A call's arguments stay a JSON object, which every provider accepts.
        """
        head = int(keep * _HEAD_SHARE)
        tail = keep - head
        if len(self.text) < self.length:
            head, tail = min(head, self.at), min(tail, len(self.text) - self.at)
        gone = [part for part in self.parts if not isinstance(part, TextPart)]
        cut = self._notice(self.length - head - tail, gone)
        if head + tail:
            cut = f"{self.text[:head]}\n{cut}\n{self.text[len(self.text) - tail :]}"
        return msgspec.json.encode({_WRAPPED: cut}).decode() if self.wrapped else cut

    def _notice(self, cut: int, gone: Iterable[Part]) -> str:
        # Those that were removed earlier were behind them.
        every = [*map(_lost_part, gone), *self.lost]
        removed: list[str] = []
        for kind in dict.fromkeys([one.kind for one in every]):
            same = [one for one in every if one.kind == kind]
            alts = tuple(word for one in same for word in one.alts)
            together = _Lost(kind, sum(one.count for one in same), alts)
            removed.append(together.spelled(self.with_alts))
        clauses = [f"took out {', '.join(removed)}"] if removed else []
        if cut or not removed:
            clauses.append(f"cut {cut} of {self.length} characters here")
        original = f"the original is entry #{self.number}{offer(self.recall, self.number)}"
        return f"[memman {' and '.join(clauses)}; {original}]"


def clip(
    item: Item, wanted: int, make_entry: EntryFactory, keep_files: bool = False
) -> Item | None:
    """Return the item cut to at most `wanted` tokens, or None if that would not make it smaller.

    The last images and files are removed first, unless `keep_files`; then the text is cut, if it is still
    too long. A clip that is only a notice, or that keeps its files, may exceed `wanted`.
    """
    entry = item.entry
    if entry is None or item.tokens <= wanted:
        return None

    def make(content: Content) -> Entry:
        return make_entry(in_place_of(entry, content))

    remains = msgspec.structs.replace(remains_of(item, entry), recall=item.offered)
    files = tuple(part for part in remains.parts if not isinstance(part, TextPart))
    if keep_files and files:
        remains = msgspec.structs.replace(remains, parts=())
        made = _with_most_text(remains, item.tokens, wanted, make, files)
    elif not files and not remains.lost:
        made = _with_most_text(remains, item.tokens, wanted, make)
    else:
        made = _without_parts(remains, item.tokens, wanted, make)
    if made is None or made.token_count.tokens >= item.tokens:
        return None
    if item.method == "summary":
        # A summary of this compression keeps its id: other runs point to it.
        return item.replaced(msgspec.structs.replace(made, id=entry.id), item.method)
    return item.replaced(made, "clip")


def _without_parts(remains: Remains, tokens: int, wanted: int, make: _Make) -> Entry | None:
    """Return the entry with as many parts as fit next to the whole text, or with its text cut."""
    bare = msgspec.structs.replace(remains, with_alts=False)
    for each in (remains, bare) if remains.whole else ():
        made = make(each.with_parts(0))
        tokens = made.token_count.tokens
        if tokens <= wanted:
            return _with_most_parts(each, made, wanted, make)
        if not remains.length and not each.with_alts:
            return made
    # A short clip has no room for long alternative texts.
    fits = make(remains.clipped(0)).token_count.tokens <= wanted // 2
    return _with_most_text(remains if fits else bare, tokens, wanted, make)


def _with_most_parts(remains: Remains, made: Entry, wanted: int, make: _Make) -> Entry:
    """Return the entry with as many of its first images and files as fit; `made` has none of them."""
    fits, over = 0, len(remains.movable)
    if len(remains.movable) < sum(not isinstance(part, TextPart) for part in remains.parts):
        over += 1  # without a provider's own blocks all others may fit
    while over - fits > 1:
        kept = (fits + over) // 2
        more = make(remains.with_parts(kept))
        if more.token_count.tokens <= wanted:
            fits, made = kept, more
        else:
            over = kept
    return made


def _with_most_text(
    remains: Remains, tokens: int, wanted: int, make: _Make, files: tuple[Part, ...] = ()
) -> Entry | None:
    """Return the entry with its text cut before its `files`; `tokens` is the cost of all."""
    fixed = make(files).token_count.tokens if files else 0
    room = max(0, wanted - fixed)
    keep = int(len(remains.text) * min(1, room / max(1, tokens - fixed) * 0.9))
    for _ in range(_ATTEMPTS):
        text = remains.clipped(keep)
        made = make((TextPart(text), *files) if files else text)
        if made.token_count.tokens <= wanted or keep == 0:
            return made
        keep = int(keep * min(0.8, room / (made.token_count.tokens - fixed) * 0.95))
        keep = keep if keep > 8 else 0
    return None


def remains_of(item: Item, entry: Entry) -> Remains:
    """Return the rest of the original of an item that shows this entry.

    A notice is only read in a replacement; in an added entry it is ordinary text. It must have the
    original's log position, and its numbers must match the text around it.
    """
    stands_for_another = item.method is not None or item.run[0].compression is not None
    content, number = entry.content, item.number
    if not isinstance(content, str):
        return _remains_of_parts(content, number, stands_for_another)
    wrapped = entry.type == "tool_call"
    text = _unwrapped(content) if wrapped and stands_for_another else content
    if entry.type == "summary":
        return _read(text, number, later=True) or _all_of(text, number)
    found = _read(text, number) if stands_for_another else None
    return msgspec.structs.replace(found or _all_of(text, number), wrapped=wrapped)


def _all_of(text: str, number: int) -> Remains:
    return Remains(text=text, at=len(text), length=len(text), number=number)


def _remains_of_parts(parts: tuple[Part, ...], number: int, stands_for_another: bool) -> Remains:
    """Read parts, of which the last is the notice if their text is complete; else the first has it."""
    lost: tuple[_Lost, ...] = ()
    first = parts[0] if parts else None
    if stands_for_another and isinstance(first, TextPart) and (cut := _read(first.text, number)):
        return msgspec.structs.replace(cut, parts=parts)
    last = parts[-1] if parts else None
    if stands_for_another and isinstance(last, TextPart):
        found = _NOTICE.fullmatch(last.text)
        if found and found["cut"] is None and int(found["number"]) == number:
            parts, lost = parts[:-1], _lost_in(found)
    return msgspec.structs.replace(_all_of(text_of(parts), number), parts=parts, lost=lost)


def _read(text: str, number: int, later: bool = False) -> Remains | None:
    """Return the rest of the original, if this text is a clip.

    The numbers of our notice fit at only one position; anywhere else it is the original's own text. A
    clipped summary has a `later` log position than its original.
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
            and start == int(kept * _HEAD_SHARE)
        ):
            left, lost = text[:start] + text[end:], _lost_in(found)
            return Remains(text=left, at=start, length=length, number=named, lost=lost)
    return None


def _unwrapped(arguments: str) -> str:
    """Return the clipped text in a call's arguments."""
    try:
        given = msgspec.json.decode(arguments, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return given.get(_WRAPPED, arguments) if len(given) == 1 else arguments


def _lost_in(notice: re.Match[str]) -> tuple[_Lost, ...]:
    return tuple(
        _Lost(kind, int(count), tuple(alts.split("; ")) if alts else ())
        for count, kind, alts in _ONE_LOST.findall(notice["lost"] or "")
    )


def _lost_part(part: Part) -> _Lost:
    if not isinstance(part, ImagePart | FilePart):
        return _Lost("other part", 1)
    name = part.name if isinstance(part, FilePart) else None
    about = ": ".join(" ".join(word.translate(_PLAIN).split()) for word in (name, part.alt) if word)
    if len(about) > _MOST_ALT_OF_ONE:
        about = f"{about[: _MOST_ALT_OF_ONE - 3]}..."
    return _Lost("image" if isinstance(part, ImagePart) else "file", 1, (about,) if about else ())
