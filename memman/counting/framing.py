"""What each family's provider bills around the texts of a request, as data with its source and date.

The rows stand in `framing.json`, the most specific first. Rows by a published or exactly observed formula
say so in their source; the others were fitted to recorded requests by `benchmarks/fit_framing.py`. A row
names a provider, a family or a version, and the API where that makes a difference, nothing finer.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, Literal

import msgspec

from memman.protocols import Framing, ModelRef

TABLE: Final = "framing.json"
Rendering = Literal["json", "spaced", "typescript", "words"]


class Billing(Framing, frozen=True, kw_only=True):
    """A framing with what only whole requests show. All figures are tokens, or factors of tokens.

    `text` is what an o200k_base count is to be multiplied with for this family: the counter
    `tiktoken-scaled` does, and all other figures were fitted beside texts counted so. `rendering` is
    what of the tools `tools` is a factor for: compact JSON ("json"), JSON with spaces and its
    `function` wrapper ("spaced"), OpenAI's TypeScript ("typescript"), or only names and descriptions
    ("words"). `tool` is charged for each tool. `forced` is added where some
    tool must be called, `named` where a certain one must, `headed` where tools and a system message meet.
    """

    key: str = ""
    text: float = 1.0
    rendering: Rendering = "json"
    tool: float = 0.0
    forced: float = 0.0
    named: float = 0.0
    headed: float = 0.0


# Which shape of request a message format makes; a format that is not here is no provider's.
_API_OF_FORMAT: Final = {
    "openai-chat": "chat",
    "openai-responses": "responses",
    "anthropic": "messages",
    "gemini": "gemini",
    "bedrock": "converse",
    "mistral": "chat",
}

# The vendors whose families an API serves, where it does not serve all: what is billed there by others is
# not known, however the message formats are spelled.
_SERVED_BY: Final[dict[str, str | tuple[str, ...]]] = {
    "messages": "claude",
    "gemini": "gemini",
    "responses": ("gpt", "o-series"),
    "converse": ("claude", "nova", "llama", "mistral", "command", "deepseek", "qwen"),
}


class Row(msgspec.Struct, frozen=True):
    """One line of the table: a framing and the models it is for; each pattern must match at the start.

    `family` is one of `memman.counting.FAMILIES`, or "" for every model; `fit` names the figures that
    were fitted, the others follow from a formula.
    """

    family: str
    billing: Billing
    name: str = ""
    provider: str = ""
    api: str = ""
    fit: tuple[str, ...] = ()

    def answers(self, ref: ModelRef, api: str) -> bool:
        """Whether this row is for a model asked through `api`."""
        return (
            self.family in ("", ref.family)
            and re.match(self.name, ref.name) is not None
            and re.match(self.provider, ref.provider or "") is not None
            and re.match(self.api, api) is not None
        )


@cache
def rows() -> tuple[Row, ...]:
    """The table, read when first asked for; the last row answers for every model."""
    return msgspec.json.decode((Path(__file__).parent / TABLE).read_bytes(), type=tuple[Row, ...])


@lru_cache(256)
def framing_of(ref: ModelRef, api: str = "") -> Billing:
    """What is billed around texts for a model; `api` is the shape of its requests, if known.

    An unknown family gets the framing of most: that of chat completions.
    """
    return next(row.billing for row in rows() if row.answers(ref, api))


def api_of(format_name: str) -> str:
    """Return the API that takes a message format, as a key of the table, or ""."""
    return _API_OF_FORMAT.get(format_name, "")


@lru_cache(256)
def framing_in(ref: ModelRef | None, format_name: str) -> Billing | None:
    """What a model's provider bills around texts that reach it in a message format.

    None where that is not known: for no model or one of no known family, for a format of nobody's API, or
    of an API that does not serve the family.
    """
    api = api_of(format_name)
    if ref is None or not ref.family or not api:
        return None
    if not ref.family.startswith(_SERVED_BY.get(api, "")):
        return None
    billing = framing_of(ref, api)
    return None if billing.key == "other" else billing
