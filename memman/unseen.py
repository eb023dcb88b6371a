"""Line ends and invisible characters: one list for everything that neutralizes text."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

# As `str.splitlines` knows them. Each constant is the inside of a character class of `re`.
LINE_ENDS: Final = r"\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
CONTROLS: Final = r"\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f"
# Unicode's default-ignorable code points (tags and variation selectors among them), its format characters,
# and the blank Braille pattern.
INVISIBLE: Final = (
    r"\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
UNSEEN: Final = re.compile(f"[{CONTROLS}{INVISIBLE}]")
ODD_LINE_END: Final = re.compile(rf"[{LINE_ENDS}]".replace(r"\n", ""))


@cache
def gap() -> str:
    """Return a pattern for what may stand between the letters of a word that is still read as that word.

    Combining marks are in it: languages need them, so they stay, and a delimiter is found in spite of them.
    """
    return rf"[\s{CONTROLS}{INVISIBLE}{_marks()}]*"


def _marks() -> str:
    """Return the combining marks of this Python's Unicode tables."""
    found = [
        chr(code)
        for code in range(0x300, 0x1F000)
        if unicodedata.category(chr(code)) in ("Mn", "Me")
    ]
    return "".join(found)
