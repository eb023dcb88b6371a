"""Counts of a remote counter: one request for equal questions, with a deadline.

A count over a network may hang, fail, be refused or be limited. Each of these is a value, `CountFailure`,
which is cached while a retry is pointless; the caller then uses an estimate.
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
from memman.counting.validation import check_ready, fingerprint_of, is_plugin_error
from memman.display import safe_repr
from memman.entries import MOST_TOKENS, Accuracy, TokenCount
from memman.errors import CounterUnavailable
from memman.protocols import ModelRef, RemoteCounter
from memman.runtime.circuit_breaker import CircuitBreaker
from memman.runtime.forks import renew_in_child
from memman.runtime.threads import start_in_thread

DEADLINE_SECONDS: Final = 2.0
COUNT_TTL_SECONDS: Final = 300.0
FAILURES_IN_A_ROW: Final = 3  # before a pause
PAUSE_SECONDS: Final = 30.0
LONGEST_PAUSE_SECONDS: Final = 300.0
_KEPT: Final = 1_024
_MOST_HUNG: Final = 4
_UNSUPPORTED_SECONDS: Final = 600.0
_LIMITED_SECONDS: Final = 30.0  # if the provider gives no time
_OF_THE_ENDPOINT: Final[frozenset[Kind]] = frozenset({"network", "server", "malformed", "failed"})
# Seconds for which a failure is cached for its request, and for all requests.
_OF_THE_REQUEST: Final[dict[Kind, float]] = {
    "refused": _UNSUPPORTED_SECONDS,
    **dict.fromkeys(_OF_THE_ENDPOINT, 30.0),
}
_OF_THE_COUNTER: Final[dict[Kind, float]] = {
    "unsupported": _UNSUPPORTED_SECONDS,
    "limited": _LIMITED_SECONDS,
    "denied": math.inf,
    "unavailable": math.inf,
}
_NO_VERDICT: Final = frozenset({"unavailable", "cancelled"})
# The outcome of a call: its answer and None, or None and its error.
_Done = Callable[[Any, BaseException | None], None]


class _TakenDown(Exception):
    """The task of the call was cancelled from outside, with its loop."""


class _Flight:
    """A request in progress, shared by all callers that want its answer.

    Threads and tasks wait for `answer`. `began` and `deadline` are times of the counter's timer, `ticket`
    is the breaker's number of the call. `ended` is set under the counter's lock when the request ends.
    `cancel` cancels a task, `call` is a call on a thread.
    """

    def __init__(self, key: bytes, began: float, deadline: float, ticket: int) -> None:
        self._first = threading.Lock()
        self.key = key
        self.began = began
        self.deadline = deadline
        self.ticket = ticket
        self.ended = False
        self.call: Future[Any] | None = None
        self.cancel: Callable[[], None] | None = None
        self.answer: Future[TokenCount | CountFailure] = Future()
        # A running future cannot be cancelled: a task that stops waiting must not end it for the others.
        self.answer.set_running_or_notify_cancel()

    def end(self) -> bool:
        """End the request, under the counter's lock; return False if it had ended before."""
        ended, self.ended = self.ended, True
        return not ended

    def is_first(self) -> bool:
        """Return True to the first caller, which makes the call; the others wait for it."""
        return self._first.acquire(blocking=False)

    def on_thread(self, call: Callable[[], Any], done: _Done) -> None:
        """Make the call on a daemon thread, which a waiting caller may leave behind."""

        def ended(call: Future[Any]) -> None:
            error = call.exception()
            done(None if error else call.result(), error)

        self.call = start_in_thread(call, "memman-remote-count")
        self.call.add_done_callback(ended)

    def on_loop(self, call: Callable[[], Awaitable[Any]], done: _Done) -> None:
        """Make the call as a task of the running loop, separate from the waiting tasks."""
        import asyncio

        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(call())

        def ended(task: asyncio.Future[Any]) -> None:
            error = _TakenDown() if task.cancelled() else task.exception()
            done(None if error else task.result(), error)

        def cancel() -> None:
            with suppress(RuntimeError):  # the loop is closed, and its tasks with it
                loop.call_soon_threadsafe(task.cancel)

        task.add_done_callback(ended)
        self.cancel = cancel


class RemoteTokenCounter:
    """Prices whole requests for one model with one remote counter. Any thread or loop may use it.

        answer = counter.price(rendered)          # sync
        answer = await counter.aprice(rendered)   # async

    The answer is a `TokenCount` (method "api") or a `CountFailure`. Errors of the counter are not raised,
    except those that end the program or the task (`KeyboardInterrupt`, `SystemExit`, a cancellation).

    - Equal requests are made once in 300 s, and once at a time: 20 threads or tasks make one request and
      share its answer or failure. The cache holds hashes and numbers, never text.
    - A failure is cached: a refused request for 600 s; a network or server failure or an invalid answer
      for 30 s; an unsupported model for 600 s; a rate limit until the provider's `retry-after` (30 s by
      default, at most 3,600 s); missing or refused credentials for the life of this object. Three refused
      requests in a row count as an unsupported model.
    - `breaker` pauses requests to an endpoint after three failures in a row; counters of one endpoint
      share it.
    - An answer arrives at most `timeout` seconds after the call. A hanging call is left behind on its
      daemon thread, and while four of them hang no request is made. A task is cancelled instead.

    `accuracy` is that of the counter's spec. `timer` returns seconds and never goes back.
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
        """Begin with empty caches, no requests, and a free lock."""
        self._lock = threading.Lock()
        self._answers: TLRUCache[bytes, TokenCount | CountFailure] = TLRUCache(
            _KEPT, _until, self._timer
        )
        self._flights: dict[bytes, _Flight] = {}
        # The end of a time without requests, and its cause.
        self._held: tuple[float, CountFailure | None] = (-math.inf, None)
        self._refused_in_a_row = 0
        self._hung: list[Future[Any]] = []
        self.is_ready = False

    def price(self, rendered: Mapping[str, Any]) -> TokenCount | CountFailure:
        """Return the input tokens of a request, or its failure, within `timeout` seconds.

        `rendered` has `model`, `messages`, `system` and `tools` in the provider's own shape as plain
        JSON. It must not change until the answer is there.
        """
        plan = self._plan(rendered)
        if not isinstance(plan, _Flight):
            return plan
        if plan.is_first():
            self._launch(plan, plan.on_thread, self._counter.count_request, rendered)
        with suppress(TimeoutError):
            return plan.answer.result(self._left(plan))
        self._expire(plan)
        return plan.answer.result()

    def aprice(self, rendered: Mapping[str, Any]) -> Awaitable[TokenCount | CountFailure]:
        """Return the same as an awaitable of the running event loop, which makes the request.

        If a waiting task is cancelled, the request goes on for the others.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        plan = self._plan(rendered)
        if not isinstance(plan, _Flight):
            known: asyncio.Future[TokenCount | CountFailure] = loop.create_future()
            known.set_result(plan)
            return known
        if plan.is_first():
            self._launch(plan, plan.on_loop, self._counter.acount_request, rendered)
        alarm = loop.call_later(self._left(plan), self._expire, plan)
        waiting = asyncio.wrap_future(plan.answer)
        waiting.add_done_callback(lambda _: alarm.cancel())
        return waiting

    def make_ready(self) -> None:
        """Have a counter with `ready()` import its SDK, once, before a request's deadline begins."""
        if not self.is_ready:
            with suppress(CounterUnavailable):  # the request meets the same error, and reports it
                check_ready(self._counter)
            self.is_ready = True

    # ------------------------------------------------------------ before a request

    def _plan(self, rendered: Mapping[str, Any]) -> TokenCount | CountFailure | _Flight:
        """Return the cached answer of the request, or the request that will bring it."""
        try:
            exactly = msgspec.json.encode((*self._whose, rendered))
        except Exception as error:  # noqa: BLE001 - a renderer may be third-party
            return CountFailure("refused", f"the rendered request is not plain JSON: {error}")
        key = hashlib.sha256(exactly).digest()
        with self._lock:
            now = self._timer()
            flight = self._flights.get(key)
            if flight is not None and now < flight.deadline:
                return flight
            until, why = self._held
            known = self._answers.get(key) or (why if now < until else None)
            return known or self._start_request(key, now)

    def _start_request(self, key: bytes, now: float) -> _Flight | CountFailure:
        """Return a new request, or a failure if none may be made now. Needs the lock."""
        self._hung = [call for call in self._hung if not call.done()]
        if len(self._hung) >= _MOST_HUNG:
            return self._not_asked("busy", f"{len(self._hung)} of its earlier calls still hang")
        ticket = self._breaker.admit(now)
        if ticket is None:
            pause, why = self._breaker.pause(now), ""
            if pause is not None:
                why = f" ({pause.reason}); next call in {pause.until - now:.0f} s"
            return self._not_asked("resting", f"it failed {FAILURES_IN_A_ROW} times in a row{why}")
        flight = self._flights[key] = _Flight(key, now, now + self.timeout, ticket)
        return flight

    def _not_asked(self, kind: Kind, why: str) -> CountFailure:
        return CountFailure(kind, f"{self.fingerprint} was not called: {why}", cached=True)

    # ------------------------------------------------------------ the request

    def _launch(
        self,
        flight: _Flight,
        start: Callable[..., None],
        method: Callable[..., Any],
        rendered: Mapping[str, Any],
    ) -> None:
        call = partial(method, rendered, timeout=self.timeout)
        try:
            start(call, partial(self._end, flight))
        except Exception as error:  # noqa: BLE001 - a third-party counter, or no thread left
            self._end(flight, None, error)

    def _left(self, flight: _Flight) -> float:
        return max(0.0, flight.deadline - self._timer())

    def _expire(self, flight: _Flight) -> None:
        """End a request at its deadline, and leave its call behind."""
        late = TimeoutError(f"no answer within {self.timeout:g} s")
        if not self._end(flight, None, late):
            return
        if flight.cancel is not None:
            flight.cancel()
        if flight.call is not None:
            with self._lock:
                self._hung.append(flight.call)

    def _end(self, flight: _Flight, answer: Any, error: BaseException | None) -> bool:
        """End a request with the result of its call; return False if it had ended before."""
        outcome = self._outcome(flight, answer, error)
        with self._lock:
            if not flight.end():
                return False
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]
            if not isinstance(outcome, BaseException):
                self._remember(flight.key, outcome)
        self._report(flight.ticket, outcome)
        if isinstance(outcome, BaseException):
            flight.answer.set_exception(outcome)
        else:
            flight.answer.set_result(outcome)
        return True

    # ------------------------------------------------------------ after it

    def _outcome(
        self, flight: _Flight, answer: Any, error: BaseException | None
    ) -> TokenCount | CountFailure | BaseException:
        if isinstance(error, _TakenDown):
            return CountFailure("cancelled", f"the call of {self.fingerprint} was cancelled")
        if error is not None:
            return failure_of(error) if is_plugin_error(error) else error
        if type(answer) is not int or not 0 <= answer <= MOST_TOKENS:
            said = f"{self.fingerprint} answered {safe_repr(answer, 60)}, which is not a count"
            return CountFailure("malformed", said)
        latency = self._timer() - flight.began
        return TokenCount(answer, "api", self._accuracy, self.fingerprint, latency=latency)

    def _remember(self, key: bytes, outcome: TokenCount | CountFailure) -> None:
        """Cache an answer. Needs the lock."""
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

    def _report(self, ticket: int, outcome: TokenCount | CountFailure | BaseException) -> None:
        """Report the outcome of a call to the breaker of its endpoint."""
        kind = outcome.kind if isinstance(outcome, CountFailure) else ""
        if isinstance(outcome, BaseException) or kind in _NO_VERDICT:
            self._breaker.record_no_outcome(self._timer(), ticket)
        elif isinstance(outcome, CountFailure) and kind in _OF_THE_ENDPOINT:
            self._breaker.record_failure(self._timer(), outcome.reason, ticket)
        else:
            self._breaker.record_success(ticket)


def endpoint_breaker() -> CircuitBreaker:
    """Return a circuit breaker for an endpoint, which the counters of several models may share."""
    return CircuitBreaker(PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, tolerated=FAILURES_IN_A_ROW - 1)


def _until(_key: bytes, answer: TokenCount | CountFailure, now: float) -> float:
    """Return the time at which a cached answer expires."""
    if isinstance(answer, TokenCount):
        return now + COUNT_TTL_SECONDS
    return now + _OF_THE_REQUEST[answer.kind]
