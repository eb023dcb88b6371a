"""The table of genai-prices, read as memman's prices and windows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import (
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
)

from memman.protocols import ModelInfo as Limits
from memman.protocols import ModelRef, Prices, PriceTier
from memman.providers import model_ref

_SOURCE: Final = f"genai-prices {version('genai-prices')}"
# memman's names of servers that genai-prices calls otherwise.
_PROVIDERS: Final = {
    "azure_ai": "azure",
    "bedrock": "aws",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "moonshot": "moonshotai",
    "together_ai": "together",
    "vertex_ai": "google",
    "xai": "x-ai",
}
_FIELDS: Final = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
}


def prices_of(model: ModelRef) -> Prices | None:
    """Return a model's prices; None without a price of input and output.

    None too if they depend on what usage reports do not say: the hour, a fee per request, or an output
    whose parts have different prices. The table has prices of regions for Bedrock only.
    """
    if model.region not in {None, "global"} and model.provider != "bedrock":
        return None
    found = _found(model)
    if found is None:
        return None
    priced, date = _today(found)
    if priced is None or priced.input_mtok is None or priced.output_mtok is None:
        return None
    if any(value is not None and _is_extra(key) for key, value in vars(priced).items()):
        return None
    values: dict[str, Any] = {name: getattr(priced, field) for name, field in _FIELDS.items()}
    bounds = {
        tier.start
        for value in values.values()
        if isinstance(value, TieredPrices)
        for tier in value.tiers
    }
    return Prices(
        **{name: _at(value, 0) for name, value in values.items()},
        tiers=tuple(
            PriceTier(above=bound, **{name: _at(value, bound) for name, value in values.items()})
            for bound in sorted(bounds)
        ),
        source=_SOURCE,
        date=date,
    )


def window_of(model: ModelRef) -> Limits | None:
    """Return a model's limits, all of them its context; the table has it for half of the models."""
    found = _found(model)
    window = None if found is None else found.context_window
    return Limits(window, window, window, _SOURCE) if window else None


def _is_extra(key: str) -> bool:
    return key == "requests_kcount" or (key.startswith("output_") and key != "output_mtok")


def _found(model: ModelRef) -> ModelInfo | None:
    """Return the model in the table, with the spelling that its provider uses."""
    provider = model.provider and _PROVIDERS.get(model.provider, model.provider)
    snapshot = get_snapshot()
    for spelling in _spellings(model):
        try:
            return snapshot.find_provider_model(spelling, None, provider, None)[1]
        except LookupError:
            continue
    return None


def _spellings(model: ModelRef) -> Iterator[str]:
    """Yield the spelling without its server, if that is written, then whole, then shorter ones."""
    rest = model.given
    server = re.match(r"[^:/]+[:/]", rest)
    if server and model.provider and model_ref(f"{server[0]}vendor/m").provider == model.provider:
        yield rest[server.end() :]
    yield rest
    while "/" in rest:
        _, _, rest = rest.partition("/")
        yield rest
    if "ft:" not in model.given:  # a fine-tune has other prices than its model
        yield model.name


def _today(model: ModelInfo) -> tuple[ModelPrice | None, str]:
    """Return the prices in force, and the day since when; none if they depend on the time of day."""
    conditions: list[ConditionalPrice] = model.prices if isinstance(model.prices, list) else []
    if any(isinstance(each.constraint, TimeOfDateConstraint) for each in conditions):
        return None, ""
    now = datetime.now(UTC)
    prices = model.get_prices(now)
    since = [
        each.constraint.start_date.isoformat()
        for each in conditions
        if isinstance(each.constraint, StartDateConstraint) and each.prices is prices
    ]
    return prices, since[-1] if since else ""


def _at(value: Any, tokens: int) -> Any:
    """Return the price of a request with more than `tokens` input tokens; None if there is none."""
    if isinstance(value, TieredPrices):
        reached = [tier.price for tier in value.tiers if tier.start <= tokens]
        value = reached[-1] if reached else value.base
    return None if value is None else float(value)
