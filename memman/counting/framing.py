"""Tokens that providers bill around the texts of a request, by family of models.

The rows of `framing.json` are ordered from the most specific on, each with its source and date. Some
follow a published or exactly observed formula; the others were fitted to recorded requests by
`benchmarks/fit_framing.py`. A row names a provider, a family or a version, and the API if that makes a
difference.
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
    """A framing with figures that only whole requests show, in tokens or factors of tokens.

    `text` is the factor of this family on an o200k_base count, which the counter `tiktoken-scaled` uses;
    all other figures were fitted to texts counted that way. `rendering` is the text that the factor
    `tools` applies to: compact JSON ("json"), JSON with spaces and its `function` wrapper ("spaced"),
    OpenAI's TypeScript ("typescript"), or only names and descriptions ("words"). `tool` is added for each
    tool. `forced` is added if some tool must be called, `named` if a certain one must, `headed` if a
    request has tools and a system message.
    """

    key: str = ""
    text: float = 1.0
    rendering: Rendering = "json"
    tool: float = 0.0
    forced: float = 0.0
    named: float = 0.0
    headed: float = 0.0


# The shape of request of each message format that belongs to a provider.
_API_OF_FORMAT: Final = {
    "openai-chat": "chat",
    "openai-responses": "responses",
    "anthropic": "messages",
    "gemini": "gemini",
    "bedrock": "converse",
    "mistral": "chat",
}

# The families that an API serves, if it does not serve all; the framing of others is unknown there.
_SERVED_BY: Final[dict[str, str | tuple[str, ...]]] = {
    "messages": "claude",
    "gemini": "gemini",
    "responses": ("gpt", "o-series"),
    "converse": ("claude", "nova", "llama", "mistral", "command", "deepseek", "qwen"),
}


class Row(msgspec.Struct, frozen=True):
    """A row of the table: a framing and its models; each pattern must match at the start.

    `family` is one of `memman.counting.families()`, or "" for every model. `given` is another way to match
    the provider: by the spelling of the model. `fit` names the fitted figures; the others follow from a
    formula.
    """

    family: str
    billing: Billing
    name: str = ""
    provider: str = ""
    given: str = ""
    api: str = ""
    fit: tuple[str, ...] = ()

    def answers(self, ref: ModelRef, api: str) -> bool:
        """Return whether this row applies to a model called through `api`."""
        given = self.given and re.match(self.given, ref.given)
        return (
            self.family in ("", ref.family)
            and re.match(self.name, ref.name) is not None
            and (given or re.match(self.provider, ref.provider or "")) is not None
            and re.match(self.api, api) is not None
        )


@cache
def rows() -> tuple[Row, ...]:
    """Return the table, read when first needed; the last row matches every model."""
    return msgspec.json.decode((Path(__file__).parent / TABLE).read_bytes(), type=tuple[Row, ...])


@lru_cache(256)
def framing_of(ref: ModelRef, api: str = "") -> Billing:
    """Return the framing of a model; `api` is the shape of its requests, if known.

    An unknown family gets the most common framing, that of chat completions.
    """
    return next(row.billing for row in rows() if row.answers(ref, api))


def api_of(format_name: str) -> str:
    """Return the API that takes a message format, as a key of the table, or ""."""
    return _API_OF_FORMAT.get(format_name, "")


@lru_cache(256)
def framing_in(ref: ModelRef | None, format_name: str) -> Billing | None:
    """Return the framing of a model for requests in a message format, None if unknown.

    It is unknown without a model, for an unknown family, for a format of no provider's API, and for an
    API that does not serve the family.
    """
    api = api_of(format_name)
    if ref is None or not ref.family or not api:
        return None
    if not ref.family.startswith(_SERVED_BY.get(api, "")):
        return None
    billing = framing_of(ref, api)
    return None if billing.key == "other" else billing
