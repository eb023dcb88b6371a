"""Prices and windows of models in memman: your own table, else the package genai-prices."""

from __future__ import annotations

from memman import hookimpl
from memman.protocols import ModelInfo, ModelRef, Prices
from memman.providers import limits_of
from memman_prices.own import own_prices

__all__ = ["memman_model_info", "memman_prices"]


@hookimpl
def memman_model_info(model: ModelRef) -> ModelInfo | None:
    """Return the window of a model that memman's own table and your file do not list; None if unknown."""
    if limits_of(model) is not None:
        return None
    from memman_prices.table import window_of  # the table is large

    return window_of(model)


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
