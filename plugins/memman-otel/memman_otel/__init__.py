"""OpenTelemetry for memman: `instrument(memory)` makes spans and metrics of a manager's operations.

    from memman_otel import instrument

    telemetry = instrument(memory)
    telemetry.off()    # ends it

Only `opentelemetry-api` is needed; without an SDK nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from memman.events import (
    CompressionFailedNotice,
    ContextTrimmed,
    CountFellBack,
    Subscription,
    Usage,
)
from memman.runtime.observation import End, Observer, Operation
from memman_otel.instruments import Metrics
from memman_otel.names import SCHEMA_URL, VERSION
from memman_otel.spans import Spans

__all__ = ["Instrumentation", "instrument"]
# Providers of the API itself record nothing.
_OF_THE_API = ("opentelemetry.trace", "opentelemetry.metrics")


class Manager(Protocol):
    """A `MemoryManager`, its `aio`, or an `AsyncMemoryManager`."""

    def observe(self, observer: Observer | None) -> None: ...
    def on(self, event: Any, callback: Callable[[Any], object]) -> Subscription: ...


class Instrumentation:
    """The telemetry of one manager, until `off`."""

    def __init__(
        self,
        memory: Manager,
        spans: Spans,
        instruments: Metrics,
        providers: tuple[TracerProvider | None, MeterProvider | None],
    ) -> None:
        self._memory = memory
        self._spans = spans
        self._metrics = instruments
        self._providers = providers
        self._records = self._has_sdk()
        memory.observe(self._observe)
        self._subscriptions = [
            memory.on(Usage, instruments.add_usage),
            memory.on(CompressionFailedNotice, instruments.add_failure),
            memory.on(CountFellBack, lambda _: instruments.add_fallback("estimate")),
            memory.on(ContextTrimmed, lambda _: instruments.add_fallback("trim")),
        ]

    def off(self) -> None:
        """End the telemetry. Calling it again does nothing."""
        if self._subscriptions:
            self._memory.observe(None)
        while self._subscriptions:
            self._subscriptions.pop().off()

    def _observe(self, operation: Operation) -> End | None:
        # Store calls are many: whether an SDK is there is read at the other operations.
        if operation.kind != "store":
            self._records = self._has_sdk()
        elif not self._records:
            return None
        end_span, begun = self._spans.begin(operation), perf_counter()

        def end(answer: Any, error: BaseException | None) -> None:
            self._metrics.add(operation, answer, error, perf_counter() - begun)
            end_span(answer, error)

        return end

    def _has_sdk(self) -> bool:
        tracers, meters = self._providers
        used = (tracers or trace.get_tracer_provider(), meters or metrics.get_meter_provider())
        return not all(type(each).__module__.startswith(_OF_THE_API) for each in used)


def instrument(
    memory: Manager,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    content: bool = False,
    session_ids: bool = True,
) -> Instrumentation:
    """Make spans and metrics of a manager's operations, and return an object with `off()`.

    Args:
        memory: a `MemoryManager`, its `aio`, or an `AsyncMemoryManager`.
        tracer_provider: the global one by default.
        meter_provider: the global one by default.
        content: whether spans have texts: prompts and replies of summaries, contexts, messages of errors.
        session_ids: whether spans have the session's id, as `gen_ai.conversation.id`.

    Raises:
        InvalidInput: the manager has an observer already, such as an earlier instrumentation.
    """
    tracer = trace.get_tracer("memman", VERSION, tracer_provider, SCHEMA_URL)
    meter = metrics.get_meter("memman", VERSION, meter_provider, SCHEMA_URL)
    spans = Spans(tracer, content=content, session_ids=session_ids)
    return Instrumentation(memory, spans, Metrics(meter), (tracer_provider, meter_provider))
