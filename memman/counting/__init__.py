"""Token counting: models and their limits, counters, prices, calibration.

- `models`, `limits`, `overflow`, `lookup`: a model by any name, its limits, limits learned from refusals
- `resolution`, `validation`: the counter of a model, among those of plugins
- `counter`, `builtin`, `estimator`: counting with a cache and a fallback; the counters that always work
- `blocks`, `media`, `images`, `extras`: the cost of everything in an entry but its text
- `framing`, `tools`, `tool_prices`, `typescript`: the cost of everything else in a request
- `calibration`, `usage`, `pricing`: learning from the tokens that providers report, and their price
- `remote`, `flight`, `failures`: counts over a network
"""

from typing import TYPE_CHECKING

from memman.counting.builtin import builtin_specs
from memman.counting.calibration import learn
from memman.counting.counter import TokenCounter
from memman.counting.failures import CountFailure
from memman.counting.framing import Billing, framing_in
from memman.counting.limits import known_limits
from memman.counting.lookup import Models
from memman.counting.models import families, model_key, model_ref
from memman.counting.pricing import Earlier, breaks_cache, charge_of, charge_of_call, last_to
from memman.counting.resolution import Candidate, Resolution, explain, missing, resolve
from memman.lazy_imports import on_first_use

if TYPE_CHECKING:
    from memman.counting.overflow import Overflow, parse_overflow, refuses_thought
    from memman.counting.remote import RemoteTokenCounter, endpoint_breaker
else:
    __getattr__ = on_first_use(
        "memman.counting",
        {
            "overflow": "Overflow parse_overflow refuses_thought",
            "remote": "RemoteTokenCounter endpoint_breaker",
        },
    )

__all__ = [
    "Billing",
    "Candidate",
    "CountFailure",
    "Earlier",
    "TokenCounter",
    "Models",
    "Overflow",
    "RemoteTokenCounter",
    "Resolution",
    "breaks_cache",
    "builtin_specs",
    "charge_of",
    "charge_of_call",
    "endpoint_breaker",
    "explain",
    "families",
    "framing_in",
    "known_limits",
    "last_to",
    "learn",
    "missing",
    "model_key",
    "model_ref",
    "parse_overflow",
    "refuses_thought",
    "resolve",
]
