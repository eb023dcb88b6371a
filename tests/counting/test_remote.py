"""The remote meter: one request per question, within a deadline, every failure a value."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import wait
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman import CounterUnavailable, ModelRef, TokenCount
from memman.counting import remote as remote_module
from memman.counting.failures import CountFailure
from memman.counting.remote import RemoteTokenCounter, endpoint_breaker
from memman.protocols import RemoteCounter
from memman.runtime import SyncRuntime
from memman.runtime.async_runtime import AsyncRuntime
from memman.runtime.circuit_breaker import CircuitBreaker
from memman.testing.laws import in_threads
from tests.patience import PATIENCE

MODEL = ModelRef("acme-1", family="acme", region="eu")
LATE = 0.15  # seconds; the deadline of tests that wait for it


def request(text: str = "hi") -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"model": "acme-1", "messages": [message], "system": None, "tools": []}


def requests(number: int) -> list[dict[str, Any]]:
    return [request(f"question {each}") for each in range(number)]


class Refusal(Exception):
    """An SDK's error with a status."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"status {status}")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = SimpleNamespace(status_code=status, headers=named)


class PanicException(BaseException):
    """An error like a Rust extension's, under the name that pyo3 gives it."""


class Provider:
    """A remote counter that returns these results in turn, the last one for ever."""

    fingerprint = "acme-api"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Mapping[str, Any]] = []
        self.timeouts: list[float] = []

    def count_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:
        self.asked.append(rendered)
        self.timeouts.append(timeout)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer

    async def acount_request(
        self,
        rendered: Mapping[str, Any],
        *,
        timeout: float,  # noqa: ASYNC109 - the port has it
    ) -> int:
        answer: Any = self.count_request(rendered, timeout=timeout)
        return await answer if isinstance(answer, Awaitable) else answer


class Clock:
    """A timer that the test advances."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


Ask = Callable[[RemoteTokenCounter, Mapping[str, Any]], "TokenCount | CountFailure"]


def ask_sync(meter: RemoteTokenCounter, rendered: Mapping[str, Any]) -> TokenCount | CountFailure:
    return meter.price(rendered)


def ask_async(meter: RemoteTokenCounter, rendered: Mapping[str, Any]) -> TokenCount | CountFailure:
    async def priced() -> TokenCount | CountFailure:
        return await meter.aprice(rendered)

    return asyncio.run(priced())


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    function: Ask = request.param
    return function


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event for counters that hang; it is set at the end, so that no thread remains."""
    opened = threading.Event()
    yield opened
    opened.set()


def metered(provider: Provider, clock: Clock | None = None, **more: Any) -> RemoteTokenCounter:
    return RemoteTokenCounter(provider, MODEL, timer=clock or monotonic, **more)


def ticking(*answers: Any) -> tuple[Provider, Clock, RemoteTokenCounter]:
    provider, clock = Provider(*answers), Clock()
    return provider, clock, metered(provider, clock)


# ---------------------------------------------------------------- a count


def test_a_plain_object_is_a_remote_counter() -> None:
    assert isinstance(Provider(1), RemoteCounter)


def test_count_has_its_counter_and_its_certainty(ask: Ask) -> None:
    meter = metered(Provider(42), accuracy="medium")
    answer = ask(meter, request())
    assert isinstance(answer, TokenCount)
    assert (answer.tokens, answer.method, answer.accuracy) == (42, "api", "medium")
    assert (answer.counter, answer.cached) == ("acme-api", False)


def test_latency_is_the_time_of_the_request(ask: Ask) -> None:
    clock = Clock()

    def slow() -> int:
        clock.now += 0.25
        return 7

    answer = ask(metered(Provider(slow), clock), request())
    assert isinstance(answer, TokenCount)
    assert answer.latency == pytest.approx(0.25)


def test_the_counter_is_given_the_request_and_the_deadline(ask: Ask) -> None:
    provider = Provider(1)
    ask(metered(provider, timeout=1.5), request())
    assert provider.asked == [request()]
    assert provider.timeouts == [1.5]


def test_the_deadline_is_two_seconds_by_default(ask: Ask) -> None:
    provider = Provider(1)
    ask(metered(provider), request())
    assert provider.timeouts == [2.0]


@pytest.mark.parametrize("answer", [-1, 2**53 + 1, float("nan"), 3.0, "12", None, True, [5]])
def test_invalid_count_is_a_failure(ask: Ask, answer: Any) -> None:
    fallen = ask(metered(Provider(answer)), request())
    assert isinstance(fallen, CountFailure)
    assert fallen.kind == "malformed"
    assert repr(answer) in fallen.reason


@given(st.integers(min_value=0, max_value=2**53))
def test_every_whole_number_is_a_count(tokens: int) -> None:
    answer = metered(Provider(tokens)).price(request())
    assert isinstance(answer, TokenCount)
    assert answer.tokens == tokens


@pytest.mark.parametrize(
    "rendered",
    [{"model": "m", "messages": [object()]}, {"model": "m", "messages": "\ud83d"}],
    ids=["an object", "a lone surrogate"],
)
def test_request_that_is_not_json_is_never_sent(ask: Ask, rendered: dict[str, Any]) -> None:
    provider = Provider(1)
    fallen = ask(metered(provider), rendered)
    assert isinstance(fallen, CountFailure)
    assert "not plain JSON" in fallen.reason
    assert provider.asked == []


# ---------------------------------------------------------------- caching


def test_an_equal_request_is_answered_from_the_cache(ask: Ask) -> None:
    provider = Provider(42, 43)
    meter = metered(provider)
    first, second = ask(meter, request()), ask(meter, request())
    assert isinstance(first, TokenCount)
    assert isinstance(second, TokenCount)
    assert (first.cached, second.cached) == (False, True)
    assert first.tokens == second.tokens == 42
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "acme-2"},
        {"messages": [{"role": "assistant", "content": "hi"}]},
        {"system": "Be brief."},
        {"tools": [{"name": "ls"}]},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_whatever_is_counted_is_part_of_the_key(ask: Ask, changed: dict[str, Any]) -> None:
    provider = Provider(1, 2)
    meter = metered(provider)
    ask(meter, request())
    answer = ask(meter, request() | changed)
    assert isinstance(answer, TokenCount)
    assert answer.tokens == 2


def test_a_count_expires_after_300_seconds(ask: Ask) -> None:
    provider, clock, meter = ticking(1, 2)
    ask(meter, request())
    clock.now += 299.9
    assert ask(meter, request()).cached
    clock.now += 0.2
    answer = ask(meter, request())
    assert isinstance(answer, TokenCount)
    assert (answer.tokens, answer.cached) == (2, False)
    assert len(provider.asked) == 2


def test_no_text_is_kept() -> None:
    secret = "kept by nobody, whatever happens 4711"  # noqa: S105 - not a password
    meter = metered(Provider(1, Refusal(400), Refusal(500), 1))
    for each in range(3):
        meter.price(request(f"{secret} {each}"))
    gc.collect()
    reached: list[Any] = [meter]
    seen: set[int] = set()
    while reached:
        each = reached.pop()
        if id(each) in seen or isinstance(each, type | Provider) or callable(each):
            continue
        seen.add(id(each))
        assert not (isinstance(each, str) and secret in each)
        assert not (isinstance(each, bytes) and secret.encode() in each)
        reached += gc.get_referents(each)
    assert len(seen) > 20


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [
        (Refusal(400), 600),
        (Refusal(500), 30),
        (ConnectionResetError(), 30),
        (ValueError("boom"), 30),
        (-1, 30),
    ],
    ids=["refused", "server", "network", "failed", "malformed"],
)
def test_a_failure_of_one_request_is_remembered_for_it_alone(
    ask: Ask, failure: Any, seconds: float
) -> None:
    provider, clock, meter = ticking(failure, 5)
    first = ask(meter, request())
    assert isinstance(first, CountFailure)
    assert not first.cached
    clock.now += seconds - 0.1
    again = ask(meter, request())
    assert isinstance(again, CountFailure)
    assert (again.kind, again.reason, again.cached) == (first.kind, first.reason, True)
    assert isinstance(ask(meter, request("another")), TokenCount)
    clock.now += 0.2
    assert isinstance(ask(meter, request()), TokenCount)
    assert len(provider.asked) == 3


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [
        (Refusal(404), 600),
        (Refusal(429), 30),
        (Refusal(429, retry_after="7"), 7),
        (Refusal(429, retry_after="90"), 90),
    ],
    ids=["unsupported", "limited", "limited for 7 s", "limited for 90 s"],
)
def test_model_failure_and_rate_limit_hold_for_all_requests(
    ask: Ask, failure: Any, seconds: float
) -> None:
    provider, clock, meter = ticking(failure, 5)
    ask(meter, request())
    clock.now += seconds - 0.1
    held = ask(meter, request("another"))
    assert isinstance(held, CountFailure)
    assert held.cached
    assert len(provider.asked) == 1
    clock.now += 0.2
    assert isinstance(ask(meter, request("another")), TokenCount)


@pytest.mark.parametrize("failure", [Refusal(401), Refusal(403), CounterUnavailable("no key")])
def test_credential_failures_hold_until_another_counter(ask: Ask, failure: Exception) -> None:
    provider, clock, meter = ticking(failure, 5)
    assert isinstance(ask(meter, request()), CountFailure)
    clock.now += 1e9
    assert isinstance(ask(meter, request("another")), CountFailure)
    assert len(provider.asked) == 1
    assert isinstance(ask(metered(provider, clock), request()), TokenCount)


def test_what_was_counted_is_still_answered_while_a_limit_holds(ask: Ask) -> None:
    _, _, meter = ticking(42, Refusal(429))
    ask(meter, request())
    ask(meter, request("another"))
    answer = ask(meter, request())
    assert isinstance(answer, TokenCount)
    assert answer.tokens == 42


def test_three_refused_requests_mean_an_unsupported_model(
    ask: Ask,
) -> None:
    provider, clock, meter = ticking(Refusal(400))
    for each in requests(5):
        assert isinstance(ask(meter, each), CountFailure)
    assert len(provider.asked) == 3
    clock.now += 600
    ask(meter, request())
    assert len(provider.asked) == 4


def test_count_between_refusals_means_a_supported_model(ask: Ask) -> None:
    provider, _, meter = ticking(Refusal(400), Refusal(400), 1, Refusal(400), Refusal(400), 1)
    for each in requests(6):
        ask(meter, each)
    assert len(provider.asked) == 6


def test_the_cache_is_bounded() -> None:
    provider = Provider(1)
    meter = metered(provider)
    for each in requests(remote_module._KEPT + 1):
        meter.price(each)
    meter.price(request("question 0"))
    assert len(provider.asked) == remote_module._KEPT + 2


# ---------------------------------------------------------------- concurrent calls share one request


@pytest.mark.parametrize("outcome", [42, Refusal(400), Refusal(429), Refusal(500), OSError(), -1])
def test_twenty_threads_make_one_request_and_share_its_outcome(outcome: Any) -> None:
    def slowly() -> Any:
        sleep(0.05)  # long enough for the others to come before it ends
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    provider = Provider(slowly)
    meter = metered(provider)
    answers = in_threads([lambda: meter.price(request())] * 20)
    assert len(provider.asked) == 1
    assert {type(answer) for answer in answers} == {TokenCount if outcome == 42 else CountFailure}


@pytest.mark.parametrize("outcome", [42, Refusal(400), Refusal(429), Refusal(500), OSError(), -1])
def test_twenty_tasks_make_one_request_and_share_its_outcome(outcome: Any) -> None:
    provider = Provider(outcome)
    meter = metered(provider)

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*[meter.aprice(request()) for _ in range(20)])

    answers = asyncio.run(all_at_once())
    assert len(provider.asked) == 1
    assert all(answer is answers[0] for answer in answers)


def test_distinct_requests_are_under_way_at_once() -> None:
    together = threading.Barrier(4)

    def meet() -> int:
        together.wait(5)
        return 1

    meter = metered(Provider(meet))
    answers = in_threads([lambda each=each: meter.price(each) for each in requests(4)])
    assert all(isinstance(answer, TokenCount) for answer in answers)


def test_a_thread_waits_for_the_request_of_a_task() -> None:
    async def slowly() -> int:
        await asyncio.to_thread(joined.wait, 5)
        return 42

    joined = threading.Event()
    provider = Provider(slowly)
    meter = metered(provider, timeout=5.0)

    async def both() -> tuple[Any, Any]:
        task = asyncio.ensure_future(meter.aprice(request()))
        await asyncio.sleep(0)
        thread = asyncio.create_task(asyncio.to_thread(meter.price, request()))
        await asyncio.sleep(0.02)  # the thread is waiting by now; otherwise it would hit the cache
        joined.set()
        return await task, await thread

    first, second = asyncio.run(both())
    assert first.tokens == second.tokens == 42
    assert len(provider.asked) == 1


def test_cancelled_task_leaves_the_request_to_the_others() -> None:
    async def slowly() -> int:
        await asyncio.sleep(0.01)
        return 42

    provider = Provider(slowly)
    meter = metered(provider)

    async def one_gives_up() -> Any:
        impatient = asyncio.ensure_future(meter.aprice(request()))
        patient = asyncio.ensure_future(meter.aprice(request()))
        await asyncio.sleep(0)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        return await patient

    assert asyncio.run(one_gives_up()).tokens == 42
    assert len(provider.asked) == 1


def test_a_request_that_ends_with_its_loop_is_made_again() -> None:
    async def never() -> int:
        await asyncio.Event().wait()
        return 0

    provider = Provider(never, 42)
    meter = metered(provider)

    async def leave() -> None:
        meter.aprice(request())
        await asyncio.sleep(0)

    asyncio.run(leave())
    answer = meter.price(request())
    assert isinstance(answer, TokenCount)
    assert len(provider.asked) == 2


# ---------------------------------------------------------------- the deadline


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    began = monotonic()
    return action(), monotonic() - began


def test_hanging_counter_is_left_behind_at_the_deadline(gate: threading.Event) -> None:
    meter = metered(Provider(gate.wait), timeout=LATE)
    fallen, seconds = timed(lambda: meter.price(request()))
    assert isinstance(fallen, CountFailure)
    assert fallen.kind == "network"
    assert "no answer within 0.15 s" in fallen.reason
    assert LATE <= seconds < PATIENCE


def test_hanging_coroutine_is_cancelled_at_the_deadline() -> None:
    cancelled: list[bool] = []

    async def never() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return 0

    meter = metered(Provider(never), timeout=LATE)

    async def priced() -> Any:
        answer = await meter.aprice(request())
        await asyncio.sleep(0)
        return answer

    fallen, seconds = timed(lambda: asyncio.run(priced()))
    assert isinstance(fallen, CountFailure)
    assert fallen.kind == "network"
    assert LATE <= seconds < PATIENCE
    assert cancelled == [True]


def test_whoever_joins_late_waits_no_longer_than_the_first(gate: threading.Event) -> None:
    provider, clock = Provider(gate.wait), Clock()
    meter = metered(provider, clock, timeout=20 * PATIENCE)
    first = threading.Thread(target=meter.price, args=(request(),), daemon=True)
    first.start()
    while not provider.asked:
        sleep(0.001)
    clock.now += 20 * PATIENCE - LATE
    fallen, seconds = timed(lambda: meter.price(request()))
    assert isinstance(fallen, CountFailure)
    assert seconds < PATIENCE
    first.join(PATIENCE)
    assert not first.is_alive()
    assert len(provider.asked) == 1


def never_open() -> CircuitBreaker:
    return CircuitBreaker(30, 300, tolerated=1_000_000)


def test_no_request_is_sent_while_four_calls_hang(gate: threading.Event) -> None:
    provider = Provider(gate.wait)
    meter = metered(provider, timeout=0.01, breaker=never_open())
    for each in requests(4):
        meter.price(each)
    fallen = meter.price(request())
    assert isinstance(fallen, CountFailure)
    assert fallen.kind == "busy"
    assert len(provider.asked) == 4


def test_late_end_of_a_hung_call_only_makes_room(gate: threading.Event) -> None:
    provider = Provider(gate.wait, gate.wait, gate.wait, gate.wait, 7)
    meter = metered(provider, timeout=0.01, breaker=never_open())
    for each in requests(4):
        meter.price(each)
    gate.set()
    wait(meter._hung, PATIENCE)
    meter.timeout = PATIENCE
    assert isinstance(meter.price(request("question 0")), CountFailure)
    answer = meter.price(request())
    assert isinstance(answer, TokenCount)
    assert answer.tokens == 7


# ---------------------------------------------------------------- the circuit breaker


def test_three_failures_open_the_breaker_one_probe_closes_it(ask: Ask) -> None:
    provider, clock, meter = ticking(Refusal(500), OSError(), -1, 42)
    for each in requests(3):
        ask(meter, each)
    resting = ask(meter, request())
    assert isinstance(resting, CountFailure)
    assert resting.kind == "resting"
    assert "failed 3 times in a row" in resting.reason
    assert "next call in 30 s" in resting.reason
    assert len(provider.asked) == 3
    clock.now += 30
    assert isinstance(ask(meter, request()), TokenCount)
    assert isinstance(ask(meter, request("another")), TokenCount)


def test_a_failed_probe_doubles_the_pause(ask: Ask) -> None:
    provider, clock, meter = ticking(Refusal(500))
    for each in requests(3):
        ask(meter, each)
    clock.now += 30
    ask(meter, request("probe"))
    assert len(provider.asked) == 4
    clock.now += 59
    ask(meter, request())
    assert len(provider.asked) == 4
    clock.now += 1
    ask(meter, request())
    assert len(provider.asked) == 5


@pytest.mark.parametrize("failure", [Refusal(400), Refusal(429, retry_after="0"), Refusal(404)])
def test_a_refusal_shows_that_the_endpoint_is_there(ask: Ask, failure: Exception) -> None:
    breaker = endpoint_breaker()
    meter = metered(Provider(Refusal(500), Refusal(500), failure), breaker=breaker)
    for each in requests(3):
        ask(meter, each)
    assert breaker.pause(monotonic()) is None


def test_meters_of_one_endpoint_share_a_breaker(ask: Ask) -> None:
    clock = Clock()
    breaker = endpoint_breaker()
    broken = metered(Provider(Refusal(500)), clock, breaker=breaker)
    other = Provider(1)
    for each in requests(3):
        ask(broken, each)
    fallen = ask(metered(other, clock, breaker=breaker), request())
    assert isinstance(fallen, CountFailure)
    assert fallen.kind == "resting"
    assert other.asked == []


def test_cached_counts_are_answered_during_a_pause(ask: Ask) -> None:
    _, _, meter = ticking(42, Refusal(500))
    ask(meter, request())
    for each in requests(3):
        ask(meter, each)
    assert isinstance(ask(meter, request()), TokenCount)


# ---------------------------------------------------------------- third-party counters


@pytest.mark.parametrize("error", [Exception("boom"), PanicException("in Rust"), StopIteration()])
def test_whatever_a_counter_raises_is_a_value(error: BaseException) -> None:
    fallen = metered(Provider(error)).price(request())
    assert isinstance(fallen, CountFailure)
    assert fallen.kind == "failed"


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_ends_the_program_or_the_task_goes_on(end: type[BaseException]) -> None:
    provider = Provider(end(), 42)
    meter = metered(provider)
    with pytest.raises(end):
        meter.price(request())
    assert isinstance(meter.price(request()), TokenCount)


def test_acount_request_raising_early_is_a_failure_value() -> None:
    class Broken(Provider):
        def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> Any:
            raise ValueError("boom")

    assert ask_async(metered(Broken(1)), request()) == CountFailure("failed", "ValueError: boom")


def test_an_async_twin_that_is_not_awaitable_is_a_value() -> None:
    class Plain(Provider):
        def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> Any:
            return 5

    fallen = ask_async(metered(Plain(1)), request())
    assert isinstance(fallen, CountFailure)
    assert fallen.kind == "failed"


def test_without_a_thread_to_be_had_there_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    fallen = metered(Provider(1)).price(request())
    assert fallen == CountFailure("failed", "RuntimeError: can't start new thread")


def test_the_call_sees_the_context_variables_of_its_caller(ask: Ask) -> None:
    from contextvars import ContextVar

    tenant: ContextVar[int] = ContextVar("tenant", default=0)
    token = tenant.set(7)
    try:
        answer = ask(metered(Provider(tenant.get)), request())
    finally:
        tenant.reset(token)
    assert isinstance(answer, TokenCount)
    assert answer.tokens == 7


@pytest.mark.parametrize("runtime", [SyncRuntime, AsyncRuntime])
def test_importing_the_sdk_is_not_part_of_the_deadline(runtime: Callable[[], Any]) -> None:
    class Slow(Provider):
        imported = 0

        def ready(self) -> None:
            sleep(0.5)
            self.imported += 1

    async def ask_twice() -> list[Any]:
        return [await runtime().price(meter, request(f"text {number}")) for number in range(2)]

    provider = Slow(7)
    meter = metered(provider, timeout=0.3)
    assert [answer.tokens for answer in asyncio.run(ask_twice())] == [7, 7]
    assert provider.imported == 1
