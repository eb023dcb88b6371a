"""The price of a request, by the model's prices and what the provider reported."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from memman.counting.models import model_key
from memman.protocols import Prices, PriceTier, SummaryUsage
from memman.records import UsageReported
from memman.spend import BilledTokens, Charge, LastRequest

LEAST_BREAK = 1_024  # tokens: Anthropic caches no shorter prefix of most of its models
_HOUR = 3_600.0  # a lifetime of the cache from which on writes cost more, in seconds
Billed = UsageReported | SummaryUsage | BilledTokens


class Earlier(NamedTuple):
    """The session before a request: the last one to the same model, and whether it uses a cache.

    `ttl` is the lifetime of the provider's cache in seconds, None without one.
    """

    last: LastRequest | None
    uses_cache: bool
    ttl: float | None

    def is_warm_for(self, report: UsageReported) -> bool:
        """Return whether the provider still had the last request in its cache."""
        if self.last is None or self.ttl is None:
            return False
        return (report.at - self.last.at).total_seconds() <= self.ttl


def last_to(model: str | None, latest: dict[str, LastRequest]) -> LastRequest | None:
    """Return the last request to a model, in any spelling of its name."""
    key = model_key(model)
    return next((latest[name] for name in reversed(latest) if model_key(name) == key), None)


def breaks_cache(report: UsageReported, earlier: Earlier) -> bool:
    """Return whether the provider had lost a part of the last request's cached prefix."""
    if earlier.last is None or not earlier.is_warm_for(report):
        return False
    # Only the first call of a request reads the prefix: one after a compaction has another.
    read = max(call.cached_tokens for call in report.calls)
    return read + LEAST_BREAK < earlier.last.cacheable


def charge_of(report: UsageReported, prices: Prices | None, earlier: Earlier) -> Charge | None:
    """Return the price of a reported request; None if a price that it needs is unknown.

    Uncompressed, its input has the `hidden_tokens` too. What the last such request had is read from the
    cache if that was warm, and the rest is written; without any use of a cache, all is plain input. A
    request without hidden tokens is the same one uncompressed, and costs the same.
    """
    charge = charge_of_call(report, prices)
    if prices is None or charge is None or not report.hidden_tokens:
        return charge and msgspec.structs.replace(charge, uncompressed=charge.total)
    whole = report.input_tokens + report.hidden_tokens
    uses_cache = earlier.uses_cache or report.cached_tokens + report.cache_written_tokens > 0
    read = written = 0
    if uses_cache and earlier.ttl is not None:
        if earlier.last is not None and earlier.is_warm_for(report):
            read = min(whole, earlier.last.tokens)
        written = 0 if prices.cache_write is None else whole - read
    hour = written if (earlier.ttl or 0) >= _HOUR and prices.cache_write_1h is not None else 0
    usage = SummaryUsage(whole, report.output_tokens, read, written, hour)
    would_be = charge_of_call(usage, prices)
    return would_be and msgspec.structs.replace(charge, uncompressed=would_be.total)


class CachePrices(NamedTuple):
    """The prices of input that is read from a provider's cache and written to it, in those of input."""

    read: float
    write: float


_ANTHROPICS = CachePrices(0.1, 1.25)


def cache_prices(prices: Prices | None, tokens: int, ttl: float | None) -> CachePrices:
    """Return the prices of the cache for a request with so many tokens.

    Unknown ones are Anthropic's. A provider with a price of reading and none of writing writes for the
    price of input.
    """
    if prices is None:
        return _ANTHROPICS
    at = prices.at(tokens)
    if not at.input:
        return CachePrices(0.0, 0.0)
    if at.cache_read is None:
        return _ANTHROPICS
    write = at.cache_write_1h if (ttl or 0) >= _HOUR else None
    write = at.cache_write if write is None else write
    return CachePrices(at.cache_read / at.input, 1.0 if write is None else write / at.input)


def charge_of_call(used: Billed, prices: Prices | None) -> Charge | None:
    """Return the price of one call of a model; None if a price that it needs is unknown."""
    if prices is None:
        return None
    cached, written = used.cached_tokens, used.cache_written_tokens
    hour = used.cache_written_1h_tokens
    at: Prices | PriceTier = prices.at(used.input_tokens)
    parts = (
        (used.input_tokens - cached - written, at.input),
        (cached, at.cache_read),
        (written - hour, at.cache_write),
        (hour, at.cache_write_1h),
        (used.output_tokens, at.output),
    )
    if any(tokens and price is None for tokens, price in parts):
        return None
    plain, read, short, long, reply = (tokens * (price or 0.0) / 1e6 for tokens, price in parts)
    return Charge(plain, read, short + long, reply)
