"""The metrics of a manager's operations and events."""

from __future__ import annotations

from typing import Any

from opentelemetry.metrics import Counter, Histogram, Meter

from memman import Context
from memman.events import CompressionFailedNotice, CompressionResult, Usage
from memman.runtime.observation import Operation
from memman.spend import BilledTokens
from memman_otel.names import OPERATIONS, of_model
from memman_otel.spans import error_type

# The conventions' boundaries of durations and of tokens.
_SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_TOKENS = [4.0**power for power in range(14)]
_SHARES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0]


class Metrics:
    """The instruments of one manager. None has a session's id: each would be a series of its own."""

    def __init__(self, meter: Meter) -> None:
        self._duration = _histogram(
            meter, "operation.duration", "s", "The duration of an operation.", _SECONDS
        )
        self._window = _histogram(
            meter, "window.tokens", "{token}", "The tokens of each context that was built.", _TOKENS
        )
        self._utilization = _histogram(
            meter, "window.utilization", "1", "Those tokens as a share of the budget.", _SHARES
        )
        self._compressions = _counter(
            meter, "compressions", "{compression}", "Compressions that changed a window."
        )
        self._saved = _counter(
            meter, "compression.tokens_saved", "{token}", "The tokens that left a window."
        )
        self._failures = _counter(
            meter, "compression.failures", "{failure}", "Failures of summarizers and compressions."
        )
        self._fallbacks = _counter(
            meter,
            "fallbacks",
            "{fallback}",
            "Substitutes: an outline, an estimate, a trimmed context.",
        )
        self._input = _counter(
            meter,
            "usage.input_tokens",
            "{token}",
            "Reported input tokens, by the provider's cache.",
        )
        self._output = _counter(meter, "usage.output_tokens", "{token}", "Reported output tokens.")
        self._hits = _histogram(
            meter, "cache.hit_ratio", "1", "The cached share of each reported input.", _SHARES
        )
        self._breaks = _counter(
            meter, "cache.breaks", "{break}", "Requests whose cached prefix the provider had lost."
        )
        self._spend = _counter(
            meter, "spend", "{USD}", "US dollars of the requests and summaries with known prices."
        )

    def add(
        self, operation: Operation, answer: Any, error: BaseException | None, seconds: float
    ) -> None:
        """Record an operation that ended."""
        model = of_model(operation.model)
        attributes = {**model, "gen_ai.operation.name": OPERATIONS.get(operation.kind, "store")}
        kind = error_type(answer, error)
        if operation.kind == "store":
            attributes = {"memman.store.method": operation.method}
        if kind is not None:
            attributes["error.type"] = kind
        self._duration.record(seconds, attributes)
        if isinstance(answer, Context):
            self._window.record(answer.tokens.tokens, model)
            self._utilization.record(answer.tokens.tokens / answer.budget, model)
        elif isinstance(answer, CompressionResult) and answer.compression_id is not None:
            triggered = {**model, "memman.compression.trigger": operation.method}
            self._compressions.add(1, triggered)
            self._saved.add(max(0, answer.tokens_saved), triggered)
            if answer.cost.dollars:
                self._add_spend("summaries", answer.cost.dollars, of_model(answer.cost.model))
            if answer.cost.calls and any(item.method == "outline" for item in answer.replacements):
                self.add_fallback("outline")

    def add_usage(self, usage: Usage) -> None:
        """Record the usage of a request."""
        model = of_model(usage.model)
        calls: tuple[Usage | BilledTokens, ...] = (usage, *usage.others)
        for call in calls:
            of_call = of_model(call.model)
            read, written = call.cached_tokens, call.cache_written_tokens
            parts = {"none": call.input_tokens - read - written, "read": read, "write": written}
            for cache, tokens in parts.items():
                self._input.add(max(0, tokens), {**of_call, "memman.token.cache": cache})
            self._output.add(call.output_tokens, of_call)
        if usage.input_tokens:
            self._hits.record(usage.cached_tokens / usage.input_tokens, model)
        if usage.broke_cache:
            self._breaks.add(1, model)
        if usage.charge is not None:
            for part in ("input", "cached", "written", "output"):
                self._add_spend(part, getattr(usage.charge, part), model)

    def _add_spend(self, part: str, dollars: float, model: dict[str, str]) -> None:
        self._spend.add(dollars, {**model, "memman.spend.part": part})

    def add_failure(self, _: CompressionFailedNotice) -> None:
        """Record a failure of a summarizer or of an automatic compression."""
        self._failures.add(1)

    def add_fallback(self, kind: str) -> None:
        """Record a substitute: an "outline", an "estimate", or a context that was cut, a "trim"."""
        self._fallbacks.add(1, {"memman.fallback.kind": kind})


def _counter(meter: Meter, name: str, unit: str, what: str) -> Counter:
    return meter.create_counter(f"memman.{name}", unit, what)


def _histogram(meter: Meter, name: str, unit: str, what: str, bounds: list[float]) -> Histogram:
    return meter.create_histogram(
        f"memman.{name}", unit, what, explicit_bucket_boundaries_advisory=bounds
    )
