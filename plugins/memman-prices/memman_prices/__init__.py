"""Prices of models in memman: your own table, else the package genai-prices."""

from __future__ import annotations

from memman import hookimpl
from memman.protocols import ModelRef, Prices
from memman_prices.own import own_prices

__all__ = ["memman_prices"]


@hookimpl
def memman_prices(model: ModelRef) -> Prices | None:
    """Return a model's prices today; None if no table has one that memman can express.

    Raises `InvalidInput` if your own table cannot be read.
    """
    own = own_prices(model)
    if own is not None:
        return own
    from memman_prices.table import prices_of  # the table is large

    return prices_of(model)
