"""Asking a remote counter: once for a request, and never for longer than a deadline.

A count over a network may hang, fail, be refused or be limited. Each of these is a value here,
`CountFailure`, that is cached while a retry is pointless; the caller then uses an estimate.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final

import msgspec
from cachetools import TLRUCache

from memman.counting.failures import CountFailure, Kind, failure_of
from memman.counting.flight import Flight, TakenDown
from memman.counting.validation import check_ready, fingerprint_of
from memman.display import safe_repr
from memman.entries import MOST_TOKENS, Accuracy, TokenCount
from memman.errors import CounterUnavailable
from memman.protocols import ModelRef, RemoteCounter
from memman.runtime.circuit_breaker import CircuitBreaker
from memman.runtime.forks import renew_in_child

DEADLINE_SECONDS: Final = 2.0
COUNT_TTL_SECONDS: Final = 300.0
FAILURES_IN_A_ROW: Final = 3  # before a pause
PAUSE_SECONDS: Final = 30.0
LONGEST_PAUSE_SECONDS: Final = 300.0
_KEPT: Final = 1_024
_MOST_HUNG: Final = 4
_UNSUPPORTED_SECONDS: Final = 600.0
_LIMITED_SECONDS: Final = 30.0  # where the provider does not say
# How long a failure is remembered for the request that met it, and for every request.
_OF_THE_REQUEST: Final[dict[Kind, float]] = {
    "refused": _UNSUPPORTED_SECONDS,
    "network": 30.0,
    "server": 30.0,
    "malformed": 30.0,
    "failed": 30.0,
}
_OF_THE_COUNTER: Final[dict[Kind, float]] = {
    "unsupported": _UNSUPPORTED_SECONDS,
    "limited": _LIMITED_SECONDS,
    "denied": math.inf,
    "unavailable": math.inf,
}
_OF_THE_ENDPOINT: Final = frozenset({"network", "server", "malformed", "failed"})
_NO_VERDICT: Final = frozenset({"unavailable", "cancelled"})


class RemoteTokenCounter:
    """Prices whole requests for one model with one remote counter. Any thread or loop may use it.

        answer = meter.price(rendered)          # sync door
        answer = await meter.aprice(rendered)   # async door

    The answer is a `TokenCount` (method "api") or a `CountFailure`; nothing that a counter does is raised
    but what is meant to end the program or the task (`KeyboardInterrupt`, `SystemExit`, a cancellation).

    - Equal requests are asked once in 300 s, and once at a time: 20 threads or tasks make one request and
      share its answer or its failure. What is kept is a digest and a number, never text.
    - A failure is remembered: a request that was refused 600 s, one that met the network, a server's
      failure or nonsense 30 s; a model that is not supported 600 s, a limit until the provider's
      `retry-after` (30 s where it says nothing, 3,600 s at most), missing or refused credentials for
      the life of this meter, so for good until there is another counter. Three refused requests in a
      row are taken for a model that is not supported.
    - `breaker` leaves an endpoint alone after three failures in a row; meters of one endpoint share one.
    - An answer is there `timeout` seconds after the call at the latest. A call that hangs is left behind
      on its daemon thread; while four of them hang nobody is asked. A task is cancelled instead.

    `accuracy` is that of the counter's spec. `timer` gives seconds and never goes back.
    """

    def __init__(
        self,
        counter: RemoteCounter,
        model: ModelRef,
        *,
        accuracy: Accuracy = "high",
        timeout: float = DEADLINE_SECONDS,
        breaker: CircuitBreaker | None = None,
        timer: Callable[[], float] = monotonic,
    ) -> None:
        self.fingerprint = fingerprint_of(counter)
        self.timeout = timeout
        self._counter = counter
        self._whose = (self.fingerprint, model.name, model.region)
        self._accuracy: Accuracy = accuracy
        self._timer = timer
        self._breaker = breaker or endpoint_breaker()
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        """Begin with nothing known or under way, and a free lock."""
        self._lock = threading.Lock()
        self._answers: TLRUCache[bytes, TokenCount | CountFailure] = TLRUCache(
            _KEPT, _until, self._timer
        )
        self._flights: dict[bytes, Flight] = {}
        self._held: tuple[float, CountFailure] | None = (
            None  # until when no request is made, and why
        )
        self._refused_in_a_row = 0
        self._hung: list[Future[Any]] = []
        self.is_ready = False

    def price(self, rendered: Mapping[str, Any]) -> TokenCount | CountFailure:
        """The input tokens of a request, or why there is no count. Waits `timeout` seconds at most.

        `rendered` has `model`, `messages`, `system` and `tools` in the provider's own shape, all of it
        plain JSON; it must not change until the answer is there.
        """
        plan = self._plan(rendered)
        if not isinstance(plan, Flight):
            return plan
        if plan.mine():
            self._launch(plan, plan.on_thread, self._counter.count_request, rendered)
        answer: TokenCount | CountFailure
        try:
            answer = plan.answer.result(self._left(plan))
        except TimeoutError:
            self._expire(plan)
            answer = plan.answer.result()
        return answer

    def aprice(self, rendered: Mapping[str, Any]) -> Awaitable[TokenCount | CountFailure]:
        """The same as something to await; called with the loop running, where the request is made.

        A task that is cancelled while it waits leaves the request under way for the others.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        plan = self._plan(rendered)
        if not isinstance(plan, Flight):
            known: asyncio.Future[TokenCount | CountFailure] = loop.create_future()
            known.set_result(plan)
            return known
        if plan.mine():
            self._launch(plan, plan.on_loop, self._counter.acount_request, rendered)
        alarm = loop.call_later(self._left(plan), self._expire, plan)
        waiting: asyncio.Future[TokenCount | CountFailure] = asyncio.wrap_future(plan.answer)
        waiting.add_done_callback(lambda _: alarm.cancel())
        return waiting

    def make_ready(self) -> None:
        """Have a counter with `ready()` import its SDK, once, before a request's deadline begins."""
        if not self.is_ready:
            with suppress(CounterUnavailable):  # the request meets the same error, and reports it
                check_ready(self._counter)
            self.is_ready = True

    # ------------------------------------------------------------ before a request

    def _plan(self, rendered: Mapping[str, Any]) -> TokenCount | CountFailure | Flight:
        """What is known of the request, or the flight that brings its answer."""
        try:
            exactly = msgspec.json.encode((*self._whose, rendered))
        except Exception as error:  # noqa: BLE001 - a renderer may be a stranger's
            return CountFailure("refused", f"the rendered request is not plain JSON: {error}")
        key = hashlib.sha256(exactly).digest()
        with self._lock:
            now = self._timer()
            flight = self._flights.get(key)
            if flight is not None and now < flight.deadline:
                return flight
            return self._known(key, now) or self._board(key, now)

    def _known(self, key: bytes, now: float) -> TokenCount | CountFailure | None:
        """The remembered answer to this request, or to every request. Under the lock."""
        answer = self._answers.get(key)
        if answer is not None:
            return answer
        if self._held is not None:
            until, why = self._held
            if now < until:
                return why
            self._held = None
        return None

    def _board(self, key: bytes, now: float) -> Flight | CountFailure:
        """A new flight, unless nobody may be asked now. Under the lock."""
        self._hung = [call for call in self._hung if not call.done()]
        if len(self._hung) >= _MOST_HUNG:
            return self._not_asked("busy", f"{len(self._hung)} earlier calls of it still hang")
        era = self._breaker.admit(now)
        if era is None:
            pause = self._breaker.pause(now)
            why = (
                ""
                if pause is None
                else f" ({pause.reason}); next call in {pause.until - now:.0f} s"
            )
            return self._not_asked("resting", f"it failed {FAILURES_IN_A_ROW} times in a row{why}")
        flight = self._flights[key] = Flight(key, now, now + self.timeout, era)
        return flight

    def _not_asked(self, kind: Kind, why: str) -> CountFailure:
        return CountFailure(kind, f"{self.fingerprint} was not asked: {why}", cached=True)

    # ------------------------------------------------------------ the request

    def _launch(
        self,
        flight: Flight,
        start: Callable[..., None],
        method: Callable[..., Any],
        rendered: Mapping[str, Any],
    ) -> None:
        call = partial(method, rendered, timeout=self.timeout)
        try:
            start(call, partial(self._land, flight))
        except Exception as error:  # noqa: BLE001 - a stranger's counter, or no thread to be had
            self._land(flight, None, error)

    def _left(self, flight: Flight) -> float:
        return max(0.0, flight.deadline - self._timer())

    def _expire(self, flight: Flight) -> None:
        """Ends a flight that has reached its deadline, and leaves its call behind."""
        late = TimeoutError(f"no answer within {self.timeout:g} s")
        if not self._land(flight, None, late):
            return
        if flight.cancel is not None:
            flight.cancel()
        if flight.call is not None:
            with self._lock:
                self._hung.append(flight.call)

    def _land(self, flight: Flight, answer: Any, error: BaseException | None) -> bool:
        """Ends a flight with what its call brought; False when it had ended before."""
        outcome = self._outcome(flight, answer, error)
        with self._lock:
            if not flight.land():
                return False
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]
            if not isinstance(outcome, BaseException):
                self._remember(flight.key, outcome)
        self._report(flight.era, outcome)
        if isinstance(outcome, BaseException):
            flight.answer.set_exception(outcome)
        else:
            flight.answer.set_result(outcome)
        return True

    # ------------------------------------------------------------ after it

    def _outcome(
        self, flight: Flight, answer: Any, error: BaseException | None
    ) -> TokenCount | CountFailure | BaseException:
        if isinstance(error, TakenDown):
            return CountFailure("cancelled", f"the call of {self.fingerprint} was cancelled")
        if error is not None:
            # A Rust extension's panic is a BaseException; every other that is no Exception goes on.
            ours = isinstance(error, Exception) or type(error).__name__ == "PanicException"
            return failure_of(error) if ours else error
        if type(answer) is not int or not 0 <= answer <= MOST_TOKENS:
            said = f"{self.fingerprint} answered {safe_repr(answer, 60)}, which is not a count"
            return CountFailure("malformed", said)
        latency = self._timer() - flight.began
        return TokenCount(answer, "api", self._accuracy, self.fingerprint, latency=latency)

    def _remember(self, key: bytes, outcome: TokenCount | CountFailure) -> None:
        """Keeps an answer as the one of later calls. Under the lock."""
        again = msgspec.structs.replace(outcome, cached=True)
        if isinstance(again, TokenCount):
            self._refused_in_a_row = 0
            self._answers[key] = again
            return
        if again.kind == "refused":
            self._refused_in_a_row += 1
        held = _OF_THE_COUNTER.get(again.kind)
        if self._refused_in_a_row >= FAILURES_IN_A_ROW:
            held, self._refused_in_a_row = _UNSUPPORTED_SECONDS, 0
        if held is not None:
            wait = held if again.retry_after is None else again.retry_after
            self._held = (self._timer() + wait, again)
        elif again.kind in _OF_THE_REQUEST:
            self._answers[key] = again

    def _report(self, era: int, outcome: TokenCount | CountFailure | BaseException) -> None:
        """Report the outcome of a call to the breaker of its endpoint."""
        if isinstance(outcome, TokenCount):
            self._breaker.record_success(era)
        elif isinstance(outcome, BaseException) or outcome.kind in _NO_VERDICT:
            self._breaker.record_no_outcome(self._timer(), era)
        elif outcome.kind in _OF_THE_ENDPOINT:
            self._breaker.record_failure(self._timer(), outcome.reason, era)
        else:
            self._breaker.record_success(era)


def endpoint_breaker() -> CircuitBreaker:
    """Return a new circuit breaker of an endpoint, which the counters of several models may share."""
    return CircuitBreaker(PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, tolerated=FAILURES_IN_A_ROW - 1)


def _until(_key: bytes, answer: TokenCount | CountFailure, now: float) -> float:
    """When a remembered answer expires."""
    if isinstance(answer, TokenCount):
        return now + COUNT_TTL_SECONDS
    return now + _OF_THE_REQUEST[answer.kind]
