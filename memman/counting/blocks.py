"""The tokens of images, files and providers' blocks, by the prices in the table of wire types."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any, Final

import msgspec

from memman.counting.extras import extra_of_block, extra_of_entry
from memman.counting.images import decoded, image_tokens, images_inside, size_of
from memman.counting.media import declared_type, files_inside, unit_of, units_in
from memman.entries import Content, Entry, FilePart, ImagePart, NewEntry, OpaquePart, Part, json_or
from memman.formats.wire.kinds import Kind, Price
from memman.formats.wire.reading import as_json, is_data, values_at
from memman.formats.wire.tables import body_of, kinds_of, type_of
from memman.protocols import ModelRef

_SMALLEST_MEDIUM: Final = 1_024  # bytes of JSON that may hold an image or a file
_OF_DATA: Final = ("pages", "seconds", "frames")


class BlockPrices:
    """Prices everything in an entry that is not its text, for one model.

    `count` returns the tokens of a text.
    """

    def __init__(self, count: Callable[[str], int], model: ModelRef) -> None:
        self._count = count
        self._model = model

    def content(self, content: Content) -> int:
        """Return the tokens of the parts of a content, without those of its text."""
        return 0 if isinstance(content, str) else sum(map(self._part, content))

    def raw(self, entry: NewEntry | Entry, read: int) -> int:
        """Return the tokens of an entry's `raw` besides the `read` ones of its text.

        A block of a type of its own has a row; anything else costs its bytes, except for media.
        """
        value = json_or(None, entry.raw_json)
        parts = () if isinstance(entry.content, str) else entry.content
        drawn = any(isinstance(part, ImagePart) for part in parts)
        tokens = 0
        for form, kept in value.items() if isinstance(value, dict) else ():
            own = kept.pop("own", None) if isinstance(kept, dict) else None
            tokens += self._block(form, own, read, drawn) if own else 0
        extra = extra_of_entry(value)
        if extra.size < _SMALLEST_MEDIUM:
            return tokens + extra.tokens + extra.size // 2
        media, media_bytes = self._media_in(value)
        return tokens + extra.tokens + media + max(0, extra.size - media_bytes) // 2

    def _part(self, part: Part) -> int:
        if isinstance(part, ImagePart):
            return self._image(part.data or part.url, part.detail or "auto")
        if isinstance(part, FilePart):
            inline = part.url if part.url and part.url.startswith("data:") else part.data
            kind = "google_file" if self._model.family.startswith("gemini") else "file"
            block = {**msgspec.structs.asdict(part), "type": kind, "data": inline}
            return self._block("memman", block, 0)
        if isinstance(part, OpaquePart):
            read = self._count(part.text) if part.text else 0
            return self._block(part.format, json_or(None, part.block), read)
        return 0

    def _block(self, form: str, block: Any, read: int, drawn: bool = False) -> int:
        """Return the tokens of a block besides the `read` ones of its text.

        It costs the first of its row's prices that fits, else the images and files in it. A block without
        a row costs its other bytes, too. The images of a `drawn` block are parts of its entry.
        """
        extra = extra_of_block(block)
        kind = kinds_of(form).get(type_of(form, block)) if isinstance(block, dict) else None
        if kind is None:
            media, media_bytes = self._media_in(block)
            rest = max(0, extra.size - media_bytes) // 3
            return extra.tokens + media + max(0, rest - read)
        body = body_of(form, block)
        for price in kind.prices:
            if drawn and price.by == "pixels":
                return extra.tokens
            tokens = self._price(price, kind, body)
            if tokens is not None:
                counted = read if price.by in ("text", "json") else 0
                return extra.tokens + max(0, tokens - counted)
        return extra.tokens + self._media_in(block)[0]

    def _price(self, price: Price, kind: Kind, body: Any) -> int | None:
        """Return what a block costs by one of its prices; None if it has nothing of that unit."""
        values = [value for value in values_at(body, price.path) if value]
        texts = [value for value in values if isinstance(value, str)]
        if price.by == "pixels":
            costs = list(map(self._image, images_inside(values)))
        elif price.by in _OF_DATA:
            found = (self._file(price, kind, text, body) for text in texts)
            costs = [tokens for tokens in found if tokens is not None]
        elif price.by == "cipher":
            costs = [ceil(price.rate * max(0, len(text) - price.beyond)) for text in texts]
        elif price.by in ("text", "json"):
            read = (value if isinstance(value, str) else as_json(value) for value in values)
            costs = list(map(self._count, read))
        else:
            costs = [round(price.rate) for _ in values]
        return sum(costs) if costs else None

    def _file(self, price: Price, kind: Kind, source: str, around: Any) -> int | None:
        """Return the tokens of an inline file by one price; None if it has another unit or is no file."""
        # A text of words alone looks like base64, too.
        is_read = price.path in kind.text and not is_data(source)
        data = None if is_read else decoded(source)
        if not data:
            return None
        declared = declared_type(source, around)
        unit = unit_of(data, declared)
        if unit == "text":
            return self._count(data.decode(errors="replace"))
        if unit != price.by and any(unit == other.by for other in kind.prices):
            return None
        found = units_in(data, price.by, declared)
        return ceil(price.rate * (min(found, price.most) if price.most else found))

    def _media_in(self, value: Any) -> tuple[int, int]:
        """Return the tokens of the images and files in JSON, and the bytes that they take in it."""
        images, files = images_inside(value), list(files_inside(value))
        parts = (FilePart(data=source) for source in files)
        tokens = sum(map(self._image, images)) + sum(map(self._part, parts))
        return tokens, sum(len(source or "") for source in (*images, *files))

    def _image(self, source: str | None, detail: str = "auto") -> int:
        return image_tokens(self._model, *size_of(source), detail=detail)
