"""Vocabularies of Mistral's models, by name.

There are two, as far as text goes: the SentencePiece one of v1, v2, v3 and v7 (those differ in control
tokens alone), and Tekken. `PUBLISHED` models are in the table of mistral-common 1.13
(`MODEL_NAME_TO_TOKENIZER_CLS`) or are other names of them. `MEASURED` are current names of Mistral's
API: on recorded text requests to mistral-large-latest and ministral-3b-latest the reported tokens are
Tekken's of the texts and a constant for each role, to the token (`tests/counting/test_mistral.py`).
The model cards of the `ASSUMED` ones name Tekken.

A model that fits none, such as codestral-2508 or mistral-embed, is left to the estimator.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

SENTENCEPIECE: Final = "sentencepiece"
TEKKEN: Final = "tekken"
PUBLISHED: Final = 20
MEASURED: Final = 20
ASSUMED: Final = 10


class ModelVocabulary(NamedTuple):
    """A vocabulary's name, and the certainty that it is a model's."""

    vocabulary: str
    certainty: int


_OLD: Final = ModelVocabulary(SENTENCEPIECE, PUBLISHED)
_NEW: Final = ModelVocabulary(TEKKEN, PUBLISHED)
_SEEN: Final = ModelVocabulary(TEKKEN, MEASURED)
_SAID: Final = ModelVocabulary(TEKKEN, ASSUMED)
_END: Final = r"(?![\w.])"

# The first pattern that matches the start of a name decides.
_FAMILIES: Final = (
    (r"(open-)?mi[sx]tral-(7b|8x7b|8x22b)" + _END, _OLD),
    (rf"mixtral{_END}(?!-\d)", _OLD),
    (r"mistral-tiny-(2312|2407)" + _END, _OLD),
    (r"mistral-(small|medium)-(2312|2402)" + _END, _OLD),
    (r"(mistral-large|pixtral-large)(-instruct)?-(2402|2407|2411|2502)" + _END, _OLD),
    (r"codestral(-mamba|-22b)?(-v0\.1|-2405|-2407)" + _END, _OLD),
    (r"(open-)?(codestral-mamba|mistral-nemo)-2407" + _END, _NEW),
    (r"(open-)?mistral-nemo" + _END, _NEW),
    (r"ministral-8b-2410|mistral-small(-instruct)?-2409|pixtral-12b" + _END, _NEW),
    (r"mistral-large(-latest|-2512|-3|$)|ministral-(3b|8b|14b|3)" + _END, _SEEN),
    (r"mistral-(small|medium)(-latest|-3(\.\d)?|-25\d\d|-26\d\d|-24b|$)" + _END, _SAID),
    (r"(labs-)?(magistral|devstral|voxtral|mistral-saba)" + _END, _SAID),
)
_PATTERNS: Final = tuple((re.compile(pattern), known) for pattern, known in _FAMILIES)

# "mistralai/mistral-nemo", "us.mistral.pixtral-large-2502-v1:0", "mistral:mistral-large-latest",
# "codestral@2405", "ft:open-mistral-nemo:org:x"
_SPELLING: Final = re.compile(r"(?:.*/)?(?:(?:\w+\.)?mistral(?:ai)?[.:])?(?:ft:)?([^:]*)")


def vocabulary_of(model: str) -> ModelVocabulary | None:
    """Return the vocabulary of a model by its name in any spelling, None if unknown."""
    spelling = _SPELLING.match(model.strip().lower().replace("@", "-"))
    name = spelling[1] if spelling else ""
    return next((known for pattern, known in _PATTERNS if pattern.match(name)), None)
