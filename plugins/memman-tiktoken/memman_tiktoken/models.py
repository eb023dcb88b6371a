"""Encodings of models, by the family of their names.

`PUBLISHED` families are in the table of OpenAI's tiktoken (`tiktoken/model.py`, 0.14.0). `ASSUMED`
ones are not: successors are taken to keep the encoding that every model since gpt-4o has had.
The table is our own because tiktoken's refuses prefixes, capitals and new names, and gives
fine-tunes of gpt-4.1 the encoding of gpt-4.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

PUBLISHED: Final = 20
ASSUMED: Final = 10


class ModelEncoding(NamedTuple):
    """An encoding's name, and the certainty that it is a model's: `PUBLISHED` or `ASSUMED`."""

    encoding: str
    certainty: int


_P50K: Final = ModelEncoding("p50k_base", PUBLISHED)
_R50K: Final = ModelEncoding("r50k_base", PUBLISHED)

# The first pattern that a name begins with decides. Encodings that differ in special tokens alone count a
# text the same, so they share one in memory: o200k_harmony (gpt-oss) is counted as o200k_base,
# p50k_edit as p50k_base, and gpt2 as r50k_base. An encoding's own name is accepted, too.
_FAMILIES: Final = (
    (r"o200k_(base|harmony)(?![\w.-])", ModelEncoding("o200k_base", PUBLISHED)),
    (r"cl100k_base(?![\w.-])", ModelEncoding("cl100k_base", PUBLISHED)),
    (r"p50k_(base|edit)(?![\w.-])", ModelEncoding("p50k_base", PUBLISHED)),
    (r"r50k_base(?![\w.-])", ModelEncoding("r50k_base", PUBLISHED)),
    (r"gpt-(4o|4\.1|4\.5|5|oss)", ModelEncoding("o200k_base", PUBLISHED)),
    (r"(o1|o3|o4-mini|chatgpt-4o)(?![\w.])", ModelEncoding("o200k_base", PUBLISHED)),
    (r"(gpt-4|gpt-3\.5|gpt-35-turbo)(?![\w.])", ModelEncoding("cl100k_base", PUBLISHED)),
    (r"text-embedding-(3|ada-002)(?![\w.])", ModelEncoding("cl100k_base", PUBLISHED)),
    (r"(davinci|babbage)-002(?![\w.])", ModelEncoding("cl100k_base", PUBLISHED)),
    # Retired; for logs that were written with them.
    (r"(text-davinci-00[23]|(text|code)-davinci-edit-001)(?![\w.])", _P50K),
    (r"(code-(davinci|cushman)-00[12]|(davinci|cushman)-codex)(?![\w.])", _P50K),
    (r"(text-)?(davinci|curie|babbage|ada)(-001|-instruct-beta)?(?![\w.-])", _R50K),
    (r"(text-(similarity|search)|code-search)-(davinci|curie|babbage|ada)-", _R50K),
    (r"gpt-?2(-(small|medium|large|xl))?(?![\w.-])", _R50K),
    (r"gpt-4\.\d|gpt-[6-9]|gpt-(audio|realtime|image)", ModelEncoding("o200k_base", ASSUMED)),
    (r"o\d+(?![\w.])|chatgpt-|codex-|computer-use-", ModelEncoding("o200k_base", ASSUMED)),
)
_PATTERNS: Final = tuple((re.compile(pattern), known) for pattern, known in _FAMILIES)

# "openai/gpt-4o", "openai:gpt-4o", "us.openai.gpt-oss-120b-1:0", "ft:gpt-4.1-mini:org::id"
_SPELLING: Final = re.compile(r"(?:.*/)?(?:(?:\w+\.)?(?:openai|azure)[.:])?(?:ft:)?([^:]*)")


def encoding_of(model: str) -> ModelEncoding | None:
    """Return the encoding of a model by its name in any spelling, None if it is not OpenAI's.

    A fine-tune has the encoding of its base model.
    """
    spelling = _SPELLING.match(model.strip().lower())
    name = spelling[1] if spelling else ""
    return next((known for pattern, known in _PATTERNS if pattern.match(name)), None)
