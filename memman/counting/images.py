"""Image tokens by each provider's formula, and an image's size from its first bytes.

The formulas are those of the providers' pages on vision. OpenAI: tiles for 4o, 4.1, 4.5 and o1, patches
of 32 px for 4.1-mini, 4.1-nano, o4-mini and the mini and nano of gpt-5. Anthropic: width x height / 750
up to a longest edge. Google: 258 a tile, since Gemini 3 a fixed budget. They were not checked against a
provider's counts. Users measured 1.2 tokens a patch for gpt-5.2 and later. Providers without a formula
get Anthropic's, which grows with the area.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable
from functools import partial
from math import ceil, floor, sqrt
from typing import Any, Final

from memman.errors import InvalidInput
from memman.protocols import ModelRef

# A screenshot of an agent: the assumed size of an image whose size is unknown.
DEFAULT_SIZE: Final = (1024, 1024)
# The header is in the first bytes, but a JPEG may have a preview before its size.
HEADER_CHARACTERS: Final = 262_144
# The start of base64 of a PNG, GIF, WebP and JPEG, the last also in its URL-safe form.
_BEGINNINGS: Final = ("data:image/", "iVBORw0KGgo", "R0lGOD", "UklGR", "/9j/", "_9j_")
IMAGE_TYPES: Final = ("image", "image_url", "input_image", "computer_screenshot")
_MOST_PATCHES: Final = 1_536
_OF_URLS: Final = {ord("-"): "+", ord("_"): "/"}


def image_tokens(ref: ModelRef, width: int, height: int, detail: str = "auto") -> int:
    """Return the tokens of an image for a model; `detail` is OpenAI's "low", "high" or "auto".

    Raises `InvalidInput` for a width or height below 1 pixel.
    """
    if width < 1 or height < 1:
        raise InvalidInput(
            f"an image has at least 1 x 1 pixel, not {width} x {height}: give the pixels it has"
        )
    formula = next(each for pattern, each in _FORMULAS if re.match(pattern, ref.name))
    return formula(width, height, detail)


def size_of(source: bytes | str | None) -> tuple[int, int]:
    """Return width and height of a PNG, JPEG, GIF or WebP given as bytes, base64 or a data URL.

    Returns `DEFAULT_SIZE` for links and ids, and for other data.
    """
    return dimensions(source) or DEFAULT_SIZE


def dimensions(source: bytes | str | None) -> tuple[int, int] | None:
    """Return the same, but None for an unknown size."""
    data = decoded(source, HEADER_CHARACTERS) if isinstance(source, str) else source
    if not data:
        return None
    for read in (_png, _gif, _webp, _jpeg):
        try:
            size = read(data)
        except (struct.error, IndexError):
            continue  # cut off in the middle of its header
        if size and min(size) > 0:
            return size
    return None


def images_inside(value: Any) -> list[str | None]:
    """Return the images in JSON: base64 or a data URL, None for each that is only linked.

    An image is recognised by its first bytes, a link by the type of its block.
    """
    found: list[str | None] = []
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            if each.startswith(_BEGINNINGS) and (each.startswith("data:") or dimensions(each)):
                found.append(each)
        elif isinstance(each, list):
            left += each
        elif isinstance(each, dict):
            inner = images_inside(list(each.values()))
            found += inner or ([None] if each.get("type") in IMAGE_TYPES else [])
    return found


def decoded(text: str, most: int | None = None) -> bytes | None:
    """Return the bytes of base64, alone or in a data URL; None for other text.

    With `most`, only so many characters are read.
    """
    if text.startswith("data:"):
        head, comma, text = text.partition(",")
        if not comma or not head.endswith(";base64"):
            return None
    # Google's SDK writes URL-safe base64.
    text = "".join(text[:most].split()).translate(_OF_URLS)
    whole = text[: len(text) // 4 * 4] if most else text.rstrip("=")
    try:
        return base64.b64decode(whole + "=" * (-len(whole) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


# ---------------------------------------------------------------- sizes


def _png(data: bytes) -> tuple[int, int] | None:
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        return None
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def _gif(data: bytes) -> tuple[int, int] | None:
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        return None
    width, height = struct.unpack("<HH", data[6:10])
    return width, height


def _webp(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    if data[12:16] == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if data[12:16] == b"VP8L":
        [bits] = struct.unpack("<I", data[21:25])
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack("<HH", data[26:30])
    return width & 0x3FFF, height & 0x3FFF


def _jpeg(data: bytes) -> tuple[int, int] | None:
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at < len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # without a length
            at += 2
        else:
            [length] = struct.unpack(">H", data[at + 2 : at + 4])
            at += 2 + length
    return None


# ---------------------------------------------------------------- formulas


def _tiles(base: int, tile: int, width: int, height: int, detail: str) -> int:
    """OpenAI: into 2048 x 2048, then the short side down to 768, then tiles of 512; low is the base."""
    if detail == "low":
        return base
    shrink = min(1.0, 2048 / max(width, height), 768 / min(width, height))
    return base + tile * ceil(width * shrink / 512) * ceil(height * shrink / 512)


def _patches(factor: float, width: int, height: int, _detail: str) -> int:
    """OpenAI: patches of 32 px, shrunk to at most 1,536 of them, times the model's factor."""
    patches = ceil(width / 32) * ceil(height / 32)
    if patches > _MOST_PATCHES:
        shrink = sqrt(_MOST_PATCHES * 32**2 / (width * height))
        across, down = width * shrink / 32, height * shrink / 32
        shrink *= min(floor(across) / across, floor(down) / down)
        patches = ceil(width * shrink / 32 - 1e-9) * ceil(height * shrink / 32 - 1e-9)
    return ceil(min(patches, _MOST_PATCHES) * factor)


def _area(edge: int, most: int, width: int, height: int, _detail: str) -> int:
    """Anthropic: w x h / 750, the long edge shrunk to `edge` pixels, the whole to about `most` tokens."""
    shrink = min(1.0, edge / max(width, height))
    return ceil(min(width * height * shrink**2 / 750, most))


def _gemini(width: int, height: int, _detail: str) -> int:
    """Google: 258 where both sides are at most 384 px, else 258 for each tile.

    A tile's side is the shorter side / 1.5, within 256 and 768 px.
    """
    if width <= 384 and height <= 384:
        return 258
    side = min(768, max(256, floor(min(width, height) / 1.5)))
    return 258 * ceil(width / side) * ceil(height / side)


_FORMULAS: Final[tuple[tuple[str, Callable[[int, int, str], int]], ...]] = (
    (r"gpt-4o-mini", partial(_tiles, 2_833, 5_667)),
    (r"gpt-4\.1-mini", partial(_patches, 1.62)),
    (r"gpt-4\.1-nano", partial(_patches, 2.46)),
    (r"o4-mini", partial(_patches, 1.72)),
    (r"gpt-5(\.\d)?-mini", partial(_patches, 1.62)),
    (r"gpt-5(\.\d)?-nano", partial(_patches, 2.46)),
    (r"gpt-5\.([2-9]|\d\d)|gpt-[6-9]", partial(_patches, 1.2)),
    (r"gpt-5|chatgpt-5", partial(_tiles, 70, 140)),
    (r"o\d|computer-use", partial(_tiles, 75, 150)),
    (r"gpt|chatgpt", partial(_tiles, 85, 170)),
    # Google: at the default media resolution, whatever the size.
    (r"gemini-[3-9]", lambda _width, _height, _detail: 1_120),
    (r"gemini", _gemini),
    # Opus 4.7 and later see more of an image; for others of their generation it is the safe side.
    (r"claude-\w+-(4-[789]|[5-9])|claude-[5-9]", partial(_area, 2_576, 4_784)),
    # Anything else: its tokens grow with the area, as those of other Claude models.
    (r"", partial(_area, 1_568, 1_600)),
)
