"""Hard texts with their known counts, which a backend must return before it may count.

The numbers are those of `encode_ordinary` of tiktoken 0.14.0. Each text is there for something that a
reimplementation may get wrong: contractions in either case, digits in threes, letters that are neither
upper nor lower case, combining marks, joined emoji, the whitespace before a word and at the end, line
ends of three kinds, special tokens spelled in a text, and pieces too long for a quadratic merge.
"""

from __future__ import annotations

from typing import Final

_TEXTS: Final = (
    "",
    " ",
    "hello world",
    "Hello, world!",
    "I'll say they've WON'T 'tis DON'T, l'été n'est-ce",
    "1234567890 3.14159 0xDEADBEEF 12,345.67 \u0661\u0662\u0663\u0664 \u00bd\u00b2\u216b",
    "def add(a: int, b: int) -> int:\n    return a + b\n\n\n\tif x:\r\n\t\tpass\r\r\n",
    '{"id": 17, "tags": ["a", "b"], "ok": true, "note": null, "nested": {"x": [[], {}]}}',
    "2026-11-21T07:54:03.123Z ERROR [worker-3] timeout after 30s //path//to/file.py:12\n",
    "<|endoftext|><|im_start|>system<|im_sep|><|fim_prefix|><|return|>",
    "camelCaseAndHTTPServerError snake_case SCREAMING_SNAKE kebab-case v2Beta3",
    "\u01c5ungla \u01c6\u01c5\u01c4 \u02b0\u02b1 \u16a0\u16a1 \u1d2c \u2160\u2170 \ufb01\ufb02",
    "e\u0301 n\u0303 a\u0308\u0323\u0307 \u0301\u0301 k\u20dd \u093f\u0928\u094d\u0926\u0940",
    "\u6211\u80fd\u541e\u4e0b\u73bb\u7483\u800c\u4e0d\u4f24\u8eab\u4f53\u3002\u300c\u5f15"
    "\u7528\u300d\uff01ABC\u4e2d\u6587123",
    "\u79c1\u306f\u30ac\u30e9\u30b9\u3092\u98df\u3079\u3089\u308c\u307e\u3059\u3002\uff76"
    "\uff9e\u30fc\u30fc\u301c",
    "\ub098\ub294 \uc720\ub9ac\ub97c \uba39\uc744 \uc218 \uc788\uc5b4\uc694. \u1112\u1161\u11ab",
    "\u042f \u043c\u043e\u0433\u0443 \u0435\u0441\u0442\u044c \u0441\u0442\u0435\u043a"
    "\u043b\u043e, \u041e\u041d\u041e \u043c\u043d\u0435 \u043d\u0435 \u0432\u0440\u0435"
    "\u0434\u0438\u0442.",
    "\u0623\u0646\u0627 \u0642\u0627\u062f\u0631 \u0639\u0644\u0649 \u0623\u0643\u0644 "
    "\u0627\u0644\u0632\u062c\u0627\u062c \u05e9\u05dc\u05d5\u05dd \u0645\u064e\u0631"
    "\u0652\u062d\u064e\u0628\u064b\u0627",
    "\u0e09\u0e31\u0e19\u0e01\u0e34\u0e19\u0e01\u0e23\u0e30\u0e08\u0e01\u0e44\u0e14\u0e49 "
    "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u1019\u103c\u1014\u103a",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1fa\U0001f1f3 "
    "\U0001f44d\U0001f3fd\u2764\ufe0f #\ufe0f\u20e3",
    "\U00020000\U0002a6df \U0001d54f\U0001d7d8 \U00010348 \U000e0041 \uffff\ufffd\ufffe",
    "\x00\x01\x7f\x80\x85\x9f \u00a0\u2003\u2028\u2029\u3000\ufeff\u200b\u180e\u00ad",
    "SGVsbG8sIHdvcmxkISBUaGlzIGlzIGJhc2U2NC4= deadbeef00ff 550e8400-e29b-41d4-a716-446655440000",
    "https://example.invalid/a/b?c=d&e=%20f#g user@example.invalid C:\\dir\\x.txt ~/.a/../b",
    "   leading   and\ttabs \t \n \n  \n\n trailing   ",
    "a  \n  b \r\n\r\n c\n \n",
    "!!!???...---***///\\\\||\n\n/// ~~~ =>=> ::: ;;; '''\"\"\"```",
    "x" * 700,
    "ab" * 400 + "\u00e9" * 50,
    " " * 1_000 + "x",
    "\n" * 300 + "\t" * 300 + "end",
    " \t\n" * 150,
    "0" * 500 + "9" * 31,
    "=-" * 300,
    "\u4e2d" * 300,
    "\u0301" * 90 + "\U0001f44d" * 40,
    "the fox \u4e2d\u6587 said: 'it\u2019s 42!'\n" * 12,
)

_COUNTS: Final[dict[str, tuple[int, ...]]] = {
    "o200k_base": (
        0,
        1,
        2,
        4,
        14,
        31,
        25,
        36,
        35,
        28,
        21,
        33,
        19,
        17,
        15,
        19,
        13,
        14,
        9,
        21,
        30,
        20,
        51,
        27,
        11,
        7,
        19,
        88,
        250,
        10,
        40,
        150,
        177,
        38,
        300,
        130,
        132,
    ),
    "cl100k_base": (
        0,
        1,
        2,
        4,
        19,
        35,
        25,
        36,
        35,
        29,
        20,
        35,
        24,
        25,
        22,
        24,
        19,
        30,
        28,
        37,
        28,
        22,
        51,
        26,
        11,
        7,
        20,
        88,
        450,
        10,
        30,
        150,
        177,
        38,
        300,
        210,
        144,
    ),
}


def probes_of(encoding: str) -> tuple[tuple[str, int], ...]:
    """Return texts and their tokens in `encoding`; none for an encoding without a fast backend."""
    return tuple(zip(_TEXTS, _COUNTS.get(encoding, ()), strict=encoding in _COUNTS))
