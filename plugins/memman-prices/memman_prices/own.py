"""Your own table of prices: a JSON file that the variable `MEMMAN_PRICES` names.

    {"claude-sonnet-5-5": {"input": 1.6, "output": 8, "cache_read": 0.08, "cache_write": 2}}

Keys are models in any spelling, values the fields of `memman.Prices` in US dollars per million tokens.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from memman.errors import InvalidInput
from memman.protocols import ModelRef, Prices
from memman.providers import model_key

VARIABLE: Final = "MEMMAN_PRICES"


def own_prices(model: ModelRef) -> Prices | None:
    """Return a model's prices in your own table. Raises `InvalidInput` if it cannot be read."""
    path = os.environ.get(VARIABLE)
    return _table(path).get(model_key(model.given)) if path else None


@lru_cache(maxsize=8)
def _table(path: str) -> dict[str, Prices]:
    try:
        found = msgspec.json.decode(Path(path).expanduser().read_bytes(), type=dict[str, Prices])
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(
            f"{VARIABLE} names {path!r}, which cannot be read as a table of prices: {error}"
        ) from error
    return {
        model_key(name): msgspec.structs.replace(prices, source=prices.source or path)
        for name, prices in found.items()
    }
