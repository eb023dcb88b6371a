"""Money: the price of a request, and what a session has cost. All amounts are US dollars."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from operator import add

import msgspec

MOST_DOLLARS = 1e9  # of one amount in a document from elsewhere
LEAST_SHOWN = 0.00005  # dollars


class Charge(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The price of one request, by part, in US dollars.

    `input` is that of uncached input, `cached` of input that was read from the provider's cache, and
    `written` of input that was written to it. `uncompressed` is what the request would have cost if
    nothing had been compressed, its output included.
    """

    input: float = 0.0
    cached: float = 0.0
    written: float = 0.0
    output: float = 0.0
    uncompressed: float = 0.0

    @property
    def total(self) -> float:
        """The sum of the parts."""
        return self.input + self.cached + self.written + self.output

    def plus(self, other: Charge) -> Charge:
        """Return the sum of both; the other call would have been the same if nothing was compressed."""
        mine, others = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        whole = Charge(*map(add, mine, others))
        return msgspec.structs.replace(whole, uncompressed=self.uncompressed + other.total)


class BilledTokens(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The tokens of one call of a model; the input includes those read from a cache and written to it.

    `cache_written_1h_tokens` of those written are kept for an hour. `model` is None if it is the one that
    was asked for.
    """

    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    cache_written_1h_tokens: int = 0


class LastRequest(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The last request to a model in this era.

    `tokens` is its input if nothing had been compressed, `cacheable` the part of its input that the
    provider has cached. `writes` is whether the provider reports what it writes to its cache.
    """

    at: datetime
    tokens: int
    cacheable: int = 0
    writes: bool = False


class ReportedTokens(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The tokens that a provider reported for the requests of a session, in all.

    Attributes:
        requests: the requests whose usage was reported.
        input: all input tokens.
        cached: those of them that were read from the provider's cache.
        written: those that were written to it.
        output: the tokens of the replies.
        breaks: the requests for which the provider had lost a part of the cached prefix.
    """

    requests: int = 0
    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    breaks: int = 0

    @property
    def hit_ratio(self) -> float:
        """The share of the input that was read from the cache, 0.0 without input."""
        return self.cached / self.input if self.input else 0.0

    def __str__(self) -> str:
        uncached = self.input - self.cached - self.written
        return (
            f"{self.input:,} tokens in {self.requests:,} requests: {self.cached:,} read from the cache "
            f"({100 * self.hit_ratio:.1f} %), {self.written:,} written to it, {uncached:,} uncached; "
            f"{self.output:,} of output; the cache was lost {self.breaks:,} times"
        )


NOTHING_REPORTED = ReportedTokens()


class Spend(msgspec.Struct, frozen=True, gc=False):
    """The money that was spent, in US dollars, by part.

    Attributes:
        input: uncached input.
        cached: input that was read from the provider's cache.
        written: input that was written to it.
        output: the replies.
        summaries: the calls of the summarizer.
        uncompressed: what the same requests would have cost if nothing had been compressed.
        requests: the requests whose usage was reported.
        unpriced: the requests, and calls of the summarizer, without a known price; no amount has them.
    """

    input: float = 0.0
    cached: float = 0.0
    written: float = 0.0
    output: float = 0.0
    summaries: float = 0.0
    uncompressed: float = 0.0
    requests: int = 0
    unpriced: int = 0

    @property
    def total(self) -> float:
        """The sum of the parts: everything that was spent."""
        return self.input + self.cached + self.written + self.output + self.summaries

    @property
    def has_prices(self) -> bool:
        """Whether the price of anything is known."""
        return self.requests > self.unpriced or self.total > 0

    def plus(self, other: Spend) -> Spend:
        """Return the sum of both."""
        return Spend(*map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))

    def with_request(self, charge: Charge | None) -> Spend:
        """Return the spend after a request; None is an unknown price."""
        amounts = msgspec.structs.asdict(charge or Charge())
        return self.plus(Spend(**amounts, requests=1, unpriced=int(charge is None)))

    def with_summaries(self, dollars: float, unpriced: int) -> Spend:
        """Return the spend after calls of the summarizer."""
        return self.plus(Spend(summaries=dollars, unpriced=unpriced))

    def __repr__(self) -> str:
        return f"<Spend {self}>"

    def __str__(self) -> str:
        parts = ("input", "cached", "written", "output", "summaries")
        shown = ", ".join(f"{name} {dollars(getattr(self, name))}" for name in parts)
        rest = f"; {self.unpriced:,} without a known price" if self.unpriced else ""
        return (
            f"{dollars(self.total)} ({shown}) for {self.requests:,} requests, "
            f"{dollars(self.uncompressed)} uncompressed{rest}"
        )


NO_SPEND = Spend()


def total_spend(spends: Iterable[Spend]) -> Spend | None:
    """Return the sum; None if no price is known."""
    whole = reduce(Spend.plus, spends, NO_SPEND)
    return whole if whole.has_prices else None


def dollars(amount: float) -> str:
    """Return an amount for people: cents from a dollar on, below it two digits that are not 0."""
    if amount == 0 or amount >= 1:
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= LEAST_SHOWN else "under $0.0001"
