"""Token counting: models and their limits, counters, prices, calibration.

- `models`, `limits`, `overflow`, `lookup`: a model by any name, its limits, limits learned from refusals
- `resolution`, `validation`: the counter of a model, among those of plugins
- `counter`, `builtin`, `estimator`: counting with a cache and a fallback; the counters that always work
- `framing`, `extras`, `images`, `tools`, `tool_prices`, `typescript`: the cost of everything but texts
- `calibration`, `usage`, `pricing`: learning from the tokens that providers report, and their price
- `remote`, `flight`, `failures`: counts over a network
"""

from typing import TYPE_CHECKING

from memman.counting.builtin import BYTES4, CHARS4, builtin_specs
from memman.counting.calibration import learn, predicted
from memman.counting.counter import TokenCounter
from memman.counting.estimator import TextEstimator, estimator_for
from memman.counting.failures import CountFailure, failure_of
from memman.counting.framing import Billing, framing_in, framing_of
from memman.counting.images import image_tokens
from memman.counting.limits import known_limits, limits_of
from memman.counting.lookup import Models, sound_limits
from memman.counting.models import FAMILIES, family_of, model_key, model_ref
from memman.counting.pricing import (
    LEAST_BREAK,
    CachePrices,
    Earlier,
    breaks_cache,
    cache_prices,
    charge_of,
    last_to,
    price_of,
)
from memman.counting.resolution import (
    Candidate,
    Resolution,
    explain,
    missing,
    resolve,
    resolve_remote,
)
from memman.counting.tool_prices import price_tools
from memman.counting.validation import fingerprint_of, valid_specs
from memman.lazy_imports import on_first_use

if TYPE_CHECKING:
    from memman.counting.overflow import Overflow, parse_overflow
    from memman.counting.remote import RemoteTokenCounter, endpoint_breaker
else:
    __getattr__ = on_first_use(
        "memman.counting",
        {"overflow": "Overflow parse_overflow", "remote": "RemoteTokenCounter endpoint_breaker"},
    )

__all__ = [
    "BYTES4",
    "CHARS4",
    "FAMILIES",
    "LEAST_BREAK",
    "Billing",
    "CachePrices",
    "Candidate",
    "CountFailure",
    "Earlier",
    "TokenCounter",
    "Models",
    "Overflow",
    "RemoteTokenCounter",
    "Resolution",
    "TextEstimator",
    "breaks_cache",
    "builtin_specs",
    "cache_prices",
    "charge_of",
    "endpoint_breaker",
    "estimator_for",
    "explain",
    "failure_of",
    "family_of",
    "fingerprint_of",
    "framing_in",
    "framing_of",
    "image_tokens",
    "known_limits",
    "last_to",
    "learn",
    "limits_of",
    "missing",
    "model_key",
    "model_ref",
    "parse_overflow",
    "predicted",
    "price_of",
    "price_tools",
    "resolve",
    "resolve_remote",
    "sound_limits",
    "valid_specs",
]
