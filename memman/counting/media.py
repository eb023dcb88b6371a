"""The size of files in the units that providers bill: pages of a PDF, seconds of sound and video.

The rates are in the table of wire types. A PDF has the number of pages that it states, else of its page
objects, else one for 100 KB. WAV and MP4 state their length; other sound and video has a usual byte rate.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from math import ceil
from typing import Any, Final

from memman.counting.images import decoded
from memman.entries import Content, FilePart, ImagePart, OpaquePart, Part, decode_json, strings_in
from memman.formats.wire.kinds import Unit
from memman.formats.wire.reading import kind_of, values_at
from memman.formats.wire.tables import body_of

_BEGINNINGS: Final = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
)
_OF_RIFF: Final = {b"WAVE": "audio/wav", b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
_OF_MP4: Final = {b"M4A ": "audio/mp4", b"heic": "image/heic", b"avif": "image/avif"}
_UNITS: Final[dict[str, Unit]] = {
    "audio": "seconds", "video": "frames", "image": "pixels", "text": "text",
}  # fmt: skip
_OF_FILES: Final = {"pages", "pixels", "seconds", "frames"}
_KEYS_OF_TYPE: Final = ("media_type", "mimeType", "mime_type")
_KEYS_OF_DATA: Final = ("data", "bytes", "file_data")
# Keys of a block that are not the file, but describe it.
_KEYS_BESIDE: Final = {"type", "format", "detail", "name", "title", "filename", *_KEYS_OF_TYPE}
# Providers compare the data with these types; other types have several names.
_EXACT: Final = {"application/pdf", "image/png", "image/jpeg", "image/gif", "image/webp"}
_SHORTEST: Final = 64  # characters of a file in other data
_HEAD: Final = 1_024  # characters of it that show its type

_PAGE: Final = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")
_COUNT: Final = re.compile(
    rb"/Type\s*/Pages\b[^>]{0,9999}?/Count\s+(\d{1,6})|/Count\s+(\d{1,6})[^<>]{0,9999}?/Type\s*/Pages\b"
)
_PACKED: Final = re.compile(rb"/Type\s*/ObjStm\b.{0,999}?stream\r?\n", re.DOTALL)
_MOST_UNPACKED: Final = 1_000_000  # bytes of one stream
_PAGE_BYTES: Final = 100_000  # of a PDF whose pages cannot be counted
_SOUND_RATE: Final = 16_000  # bytes a second of compressed sound, 128 kbit/s
_PLAIN_SOUND_RATE: Final = 32_000  # 16,000 samples of 16 bits
_VIDEO_RATE: Final = 250_000
_SLOWEST: Final = 500  # a header that states less is wrong


def media_type_of(data: bytes) -> str:
    """Return the media type that the first bytes of a file show, "" if they show none."""
    if data[:4] == b"RIFF":
        return _OF_RIFF.get(data[8:12], "")
    if data[4:8] == b"ftyp":
        return _OF_MP4.get(data[8:12], "video/mp4")
    return next((name for begin, name in _BEGINNINGS if data.startswith(begin)), "")


def declared_type(source: str, around: Any) -> str:
    """Return the media type that a data URL names, or else the keys beside it; "" if none does."""
    if source.startswith("data:"):
        return source[5:].partition(",")[0].partition(";")[0].lower()
    return next((text.lower() for key, text in strings_in(around) if key in _KEYS_OF_TYPE), "")


def unit_of(data: bytes, declared: str) -> Unit:
    """Return what a file is billed by: its first bytes decide, else its media type, else it has pages."""
    return _UNITS.get((media_type_of(data) or declared).partition("/")[0], "pages")


def units_in(data: bytes, by: Unit, declared: str = "") -> float:
    """Return the number of pages of a document, or of seconds of sound or video."""
    if by == "pages":
        # The page tree of a newer PDF is in compressed streams.
        starts = (found.end() for found in _PACKED.finditer(data))
        packed = [_unpacked(data[at : at + _MOST_UNPACKED]) for at in starts]
        objects = b"\n".join([data, *packed])
        stated = max((int(one or other) for one, other in _COUNT.findall(objects)), default=0)
        return stated or len(_PAGE.findall(objects)) or max(1, ceil(len(data) / _PAGE_BYTES))
    return _sound_seconds(data, declared) if by == "seconds" else _video_seconds(data)


def files_inside(value: Any) -> Iterator[str]:
    """Yield the files in JSON that are no images: base64 or data URLs, recognised by their first bytes."""
    for _, text in strings_in(value):
        if len(text) > _SHORTEST:
            kind = media_type_of(decoded(text, _HEAD) or b"")
            if kind and not kind.startswith("image"):
                yield text


def media_fault(content: Content) -> str:
    """Return why no provider can read a file or image in a content, "" if nothing shows that."""
    parts = () if isinstance(content, str) else content
    faults = (_fault(*source) for part in parts for source in _sources(part))
    urls = (part.url for part in parts if isinstance(part, ImagePart | FilePart) and part.url)
    if any(":" not in url and "/" not in url for url in urls):
        return "the URL of a file or image has no scheme"
    return next(filter(None, faults), "")


def _sources(part: Part) -> Iterator[tuple[str, str]]:
    """Yield the inline data and the URLs of a part, each with its declared media type."""
    if isinstance(part, ImagePart | FilePart):
        found = [part.data if part.url is None else part.url]
        around: Any = {"media_type": part.media_type or ""}
    elif isinstance(part, OpaquePart):
        around = decode_json(part.block)
        kind = kind_of(part.format, around) if isinstance(around, dict) else None
        prices = [] if kind is None else [each for each in kind.prices if each.by in _OF_FILES]
        if not prices:
            return
        strings = [(key, text) for key, text in strings_in(around) if key not in _KEYS_BESIDE]
        found = [text for key, text in strings if key in _KEYS_OF_DATA]
        found += [] if any(text for _, text in strings) else [""]
        body = body_of(part.format, around)
        priced = (value for price in prices for value in values_at(body, price.path))
        found += [value for value in priced if isinstance(value, str)]
    else:
        return
    for source in dict.fromkeys(found):  # a key and a price's path may lead to the same data
        declared = declared_type(source or "", around)
        if source is not None and (source.startswith("data:") or not declared.startswith("text/")):
            yield source, declared


def _fault(source: str, declared: str) -> str:
    head, _, _ = source[:_HEAD].partition(",")
    if ":" in head and not source.startswith("data:"):  # the URL of a file
        return ""
    data = decoded(source)
    if data is None:
        links = source.startswith("data:") and not head.endswith(";base64")
        return "" if links else "the data of a file or image is neither base64 nor a URL"
    found, declared = media_type_of(data), declared.replace("image/jpg", "image/jpeg")
    if not data:
        return "a file or image has no data"
    begin = data[:_HEAD]
    if not found and len(data) > _SHORTEST // 4 and begin.isascii() and b"\0" not in begin:
        found = "" if b"%PDF-" in begin else "text"
    if found and declared and found != declared and {found, declared} & _EXACT:
        return f"the data of a file or image is {found}, not {declared} as its media type says"
    return ""


def _unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, _MOST_UNPACKED)
    except zlib.error:
        return b""


def _sound_seconds(data: bytes, declared: str) -> float:
    kind = media_type_of(data) or declared
    rate = _PLAIN_SOUND_RATE if kind.endswith(("wav", "pcm", "l16")) else _SOUND_RATE
    if data[:4] == b"RIFF" and data[12:16] == b"fmt " and len(data) >= 32:
        rate = max(_SLOWEST, struct.unpack("<I", data[28:32])[0])
    return len(data) / rate


def _video_seconds(data: bytes) -> float:
    at = data.find(b"mvhd")
    if at >= 0 and data[at + 4 : at + 5] == b"\0" and len(data) >= at + 24:
        scale, length = struct.unpack(">II", data[at + 16 : at + 24])
        if scale and length:
            return float(min(length / scale, len(data) / _SLOWEST))
    return len(data) / _VIDEO_RATE
