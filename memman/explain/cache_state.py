"""The provider's cache of the last request, and what a compression would cost it."""

from __future__ import annotations

from datetime import datetime
from itertools import takewhile
from math import ceil

import msgspec

from memman.counting.pricing import CachePrices
from memman.events import CompressionPlan

_DIGITS = 2  # of a number of tokens that is a forecast


class CacheState(msgspec.Struct, frozen=True, kw_only=True):
    """The provider's cache of the last request, and what a compression would cost it now.

    Attributes:
        expires_at: when the cache expires, or has expired.
        is_warm: whether it has not expired.
        written_tokens: the tokens that the first request after a compression has to write to the cache.
        saved_tokens: the tokens that each request has less after it. Both are 0 if it would do nothing.
        pays_after: the number of requests after which it costs less than none, without the
            summarizer's price; 0 if the cache is cold, None if it never does.
        compresses_next: whether the next add compresses because the cache has expired.
    """

    expires_at: datetime
    is_warm: bool
    written_tokens: int = 0
    saved_tokens: int = 0
    pays_after: int | None = None
    compresses_next: bool = False

    def __str__(self) -> str:
        if not self.is_warm:
            cost = "; a compression now costs no tokens of cache" if self.saved_tokens else ""
            return f"cold since {self.expires_at:%Y-%m-%d %H:%M}{cost}"
        warm = f"warm until {self.expires_at:%H:%M}"
        if not self.saved_tokens:
            return warm
        about = round(self.written_tokens, _DIGITS - len(str(self.written_tokens)))
        pays = "never pays" if self.pays_after is None else f"pays after {self.pays_after} requests"
        if self.pays_after == 1:
            pays = "pays after 1 request"
        return f"{warm}; a compression now costs about {about:,} tokens of cache and {pays}"


def cache_state(
    expires_at: datetime,
    now: datetime,
    plan: CompressionPlan | None,
    prices: CachePrices,
    compresses_next: bool,
) -> CacheState:
    """Return the state of a cache; `plan` is that of a compression, None if none can be planned."""
    is_warm = now <= expires_at
    state = CacheState(expires_at=expires_at, is_warm=is_warm, compresses_next=compresses_next)
    if plan is None or plan.tokens_after >= plan.tokens_before:
        return state
    kept = takewhile(lambda planned: planned.action == "keep", plan.entries)
    written = max(0, plan.tokens_after - sum(planned.tokens for planned in kept))
    saved = plan.tokens_before - plan.tokens_after
    pays_after = None if is_warm else 0
    if is_warm and prices.read:
        # What is written was read before; the rest of what was read is saved with each request.
        pays_after = max(1, ceil(written * (prices.write - prices.read) / (saved * prices.read)))
    return msgspec.structs.replace(
        state, written_tokens=written, saved_tokens=saved, pays_after=pays_after
    )
