"""Conformance tests of remote token counters, through their SDK against a loopback server."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from operator import attrgetter
from time import monotonic
from typing import Any

from memman.counting.failures import CountFailure
from memman.counting.models import model_ref
from memman.counting.remote import RemoteTokenCounter
from memman.entries import TokenCount
from memman.protocols import RemoteCounter
from memman.testing.counters import ListedCounterLaws
from memman.testing.laws import in_threads
from memman.testing.loopback import (
    Answer,
    LoopbackServer,
    ProviderLaws,
    delayed,
    leaves,
    loopback,
    values_of,
)

_AT_ONCE = 20
_DEADLINE = 0.4  # seconds, in laws that wait for it
_SLACK = 0.3  # seconds over a deadline that still pass
_AMPLE = 20.0  # seconds, in laws that do not wait: the first call imports an SDK
_TRIES = 3  # a busy machine may spoil one measurement, hardly three
_Price = Callable[[Mapping[str, Any]], "TokenCount | CountFailure"]
_Door = Callable[[RemoteTokenCounter], _Price]
_NONSENSE = Answer(200, b"<html>not what you asked for</html>")


class Trial:
    """One counter with its `RemoteTokenCounter` and the server.

    The counter's time is real time, and any time that a law adds.
    """

    def __init__(self, counter: RemoteCounter, model: str, server: LoopbackServer) -> None:
        self.counter = counter
        self.server = server
        self._passed = 0.0
        self._model = model_ref(model)
        self.meter = self.metered(_AMPLE)

    def metered(self, timeout: float) -> RemoteTokenCounter:
        """Return another `RemoteTokenCounter` of the same counter."""
        return RemoteTokenCounter(self.counter, self._model, timeout=timeout, timer=self._now)

    def _now(self) -> float:
        return monotonic() + self._passed

    def advance(self, seconds: float) -> None:
        """Let time pass for the counter."""
        self._passed += seconds

    @property
    def asked(self) -> int:
        """The number of received requests."""
        assert not self.server.astray, f"requests went to {self.server.astray}"
        return len(self.server.received)


def _async(meter: RemoteTokenCounter) -> _Price:
    async def ask(rendered: Mapping[str, Any]) -> TokenCount | CountFailure:
        return await meter.aprice(rendered)

    return lambda rendered: asyncio.run(ask(rendered))


_DOORS: tuple[_Door, ...] = (attrgetter("price"), _async)


class RemoteCounterConformance(ProviderLaws, ListedCounterLaws):
    """The laws of a remote counter: derive from it and implement the provider's spelling.

        class TestMine(RemoteCounterConformance):
            path = "/v1/count"
            spec = MY_SPEC
            models = ("my-model", "vendor/my-model")
            foreign = ("gpt-4o",)
            module, sdk = "memman_mine", "mine"

            def make_counter(self, url):
                return MyCounter(client=mine.Client(base_url=url, api_key=self.secret))

            def make_request(self, text):
                message = {"role": "user", "content": text}
                return {"model": "my-model", "messages": [message], "system": "be brief", "tools": [...]}

            def success(self, tokens):
                return Answer(200, {"tokens": tokens})

    `path` is the end of a count's path. `spec` is the counter's spec; it must match `models` and must not
    match `foreign`. Importing `module` and listing its counters must not import `sdk`. `secret` is the
    key that the counter is made with. `reads_retry_after` is False if the SDK hides a response's headers.
    `unsupported_requests` is the number of requests after which a model counts as unsupported.
    """

    unsupported_requests: int = 1

    # ------------------------------------------------------------ what a plugin's test supplies

    def make_counter(self, url: str) -> RemoteCounter:
        """Return the counter under test, whose SDK uses the server at `url` (no slash at its end)."""
        raise NotImplementedError

    def make_request(self, text: str) -> dict[str, Any]:
        """Return a rendered request in the provider's shape: this text, a system prompt, a tool or more."""
        raise NotImplementedError

    def success(self, tokens: Any) -> Answer:
        """Return the provider's answer for a request of so many tokens."""
        raise NotImplementedError

    def unsupported(self) -> Answer:
        """Return the provider's answer for a model that it does not know or cannot count for."""
        return self.failure(404)

    def close_counter(self, counter: RemoteCounter) -> None:
        """Free the counter's resources; called at the end of each law."""

    # ------------------------------------------------------------ numbers

    def test_the_providers_number_is_the_count(self) -> None:
        for price, trial in self._each(self.success(4711)):
            answer = price(self.make_request("hi"))
            assert isinstance(answer, TokenCount), answer
            assert (answer.tokens, answer.method) == (4711, "api")
            assert answer.counter == trial.counter.fingerprint
            assert trial.asked == 1

    def test_a_counter_serves_one_loop_after_another(self) -> None:
        with self._trial(self.success(7)) as trial:
            for number in range(3):
                assert _tokens(_async(trial.meter)(self.make_request(f"hi {number}"))) == 7
            assert trial.asked == 3

    def test_threads_with_loops_of_their_own_share_a_counter(self) -> None:
        with self._trial(self.success(7)) as trial:
            price = _async(trial.meter)
            prices = [partial(price, self.make_request(f"hi {number}")) for number in range(6)]
            answers = in_threads(prices, _AMPLE)
            assert all(isinstance(answer, TokenCount) for answer in answers), answers

    # ------------------------------------------------------------ what reaches the provider

    def test_every_text_of_the_request_reaches_the_provider(self) -> None:
        rendered = self.make_request("Where did we leave off?")
        for _price, received in self._sent(rendered):
            said = values_of(received.body, str)
            for text in values_of([rendered["messages"], rendered["system"]], str):
                assert any(text in each for each in said), f"{text!r} was not sent"

    def test_the_tools_reach_the_provider(self) -> None:
        rendered = self.make_request("hi")
        named = {"name", "description"}
        texts = [leaf for keys, leaf in leaves(rendered["tools"]) if not named.isdisjoint(keys)]
        names = values_of(texts, str)
        assert names, "make_request has no tool with a name"
        for _price, received in self._sent(rendered):
            said = values_of(received.body, str)
            for name in names:
                assert name in said, f"the tool's {name!r} was not sent"

    def test_the_model_is_sent_in_the_spelling_of_the_request(self) -> None:
        rendered = self.make_request("hi")
        model = rendered["model"]
        for _price, received in self._sent(rendered):
            sent = [received.path, *values_of(received.body, str)]
            assert any(model in each for each in sent), f"{model} is in none"

    def test_a_request_without_system_and_tools_is_counted(self) -> None:
        bare = {**self.make_request("hi"), "system": None, "tools": []}
        for price, trial in self._each(self.success(3)):
            assert _tokens(price(bare)) == 3
            body = trial.server.received[0].body
            assert not values_of(body, type(None)), "what is not there is sent"

    def test_the_request_is_not_changed(self) -> None:
        rendered = self.make_request("hi")
        before = copy.deepcopy(rendered)
        for _price, _received in self._sent(rendered):
            assert rendered == before

    # ------------------------------------------------------------ failures

    def test_a_limit_is_kept_until_the_provider_wants_to_be_asked_again(self) -> None:
        limited = self.failure(429, {"retry-after": "7"})
        wait = 7.0 if self.reads_retry_after else 30.0
        for price, trial in self._each(limited, self.success(5)):
            first = _failure(price(self.make_request("one")), "limited")
            assert not self.reads_retry_after or first.retry_after == wait
            trial.advance(wait - 2)
            assert isinstance(price(self.make_request("two")), CountFailure)
            assert trial.asked == 1
            trial.advance(3)
            assert isinstance(price(self.make_request("two")), TokenCount)

    def test_a_failure_of_the_provider_is_a_reason_and_one_request(self) -> None:
        for status in (500, 503, 529):
            for price, trial in self._each(self.failure(status)):
                assert _failure(price(self.make_request("hi")), "server").reason
                assert trial.asked == 1, f"{trial.asked} requests for one count: retries are on"

    def test_refused_credentials_are_told_and_nobody_asks_again(self) -> None:
        for price, trial in self._each(self.failure(401)):
            for text in ("one", "two"):
                _failure(price(self.make_request(text)), "denied")
            assert trial.asked == 1

    def test_an_answer_that_is_no_count_is_a_failure(self) -> None:
        wrong = [self.success(each) for each in ("many", -1, None)]
        for answer in (_NONSENSE, Answer(200, {}), Answer(200, []), *wrong):
            for price, _trial in self._each(answer):
                found = price(self.make_request("hi"))
                assert isinstance(found, CountFailure), f"{answer.body!r} was taken for {found}"
                assert found.kind in ("malformed", "failed"), found

    def test_a_model_that_is_not_supported_is_remembered(self) -> None:
        for price, trial in self._each(self.unsupported()):
            for text in ("one", "two", "three"):
                _failure(price(self.make_request(text)), "unsupported")
            assert trial.asked == self.unsupported_requests

    # ------------------------------------------------------------ time

    def test_a_provider_that_never_answers_costs_the_deadline(self) -> None:
        for door in _DOORS:
            late = self._late(door)
            for _ in range(_TRIES - 1):
                late = late if late < _SLACK else self._late(door)
            assert late < _SLACK, f"{late:.2f} s over a deadline of {_DEADLINE} s"

    def _late(self, door: _Door) -> float:
        """Return the seconds by which a hang exceeds the deadline, with a warm SDK."""
        with self._trial(self.success(1), Answer(never=True)) as trial:
            door(trial.meter)(self.make_request("warm"))
            price = door(trial.metered(_DEADLINE))
            began = monotonic()
            answer = price(self.make_request("hi"))
            took = monotonic() - began
            _failure(answer, "network")
            assert trial.asked <= 2
            # On a busy machine the deadline may pass before the request is sent: nothing was measured.
            return took - _DEADLINE if trial.asked == 2 else inf

    def test_the_counter_itself_gives_up_at_its_time_out(self) -> None:
        with self._trial(self.success(1), Answer(never=True)) as trial:
            trial.meter.price(self.make_request("warm"))

            def ask() -> float:
                began = monotonic()
                try:
                    trial.counter.count_request(self.make_request("hi"), timeout=_DEADLINE)
                except Exception:  # noqa: BLE001 - any error of an SDK
                    return monotonic() - began
                raise AssertionError("it answered")

            [took] = in_threads([ask], _AMPLE)
            assert took < _DEADLINE + 2, "the call goes on after its time-out"

    def test_a_slow_answer_within_the_deadline_is_taken(self) -> None:
        for price, _trial in self._each(delayed(self.success(9), 0.1)):
            answer = price(self.make_request("hi"))
            assert isinstance(answer, TokenCount), answer
            assert answer.latency >= 0.1

    # ------------------------------------------------------------ asking once

    def test_twenty_threads_with_one_request_make_one(self) -> None:
        with self._trial(delayed(self.success(12), 0.1)) as trial:
            rendered = self.make_request("hi")
            answers = in_threads([lambda: trial.meter.price(rendered)] * _AT_ONCE, _AMPLE)
            assert [_tokens(answer) for answer in answers] == [12] * _AT_ONCE
            assert trial.asked == 1

    def test_twenty_tasks_with_one_request_make_one(self) -> None:
        with self._trial(delayed(self.success(12), 0.1)) as trial:
            rendered = self.make_request("hi")

            async def together() -> list[TokenCount | CountFailure]:
                answers = (trial.meter.aprice(rendered) for _ in range(_AT_ONCE))
                return await asyncio.gather(*answers)

            assert [_tokens(answer) for answer in asyncio.run(together())] == [12] * _AT_ONCE
            assert trial.asked == 1

    def test_an_answer_is_kept_until_it_expires(self) -> None:
        for price, trial in self._each(self.success(5), self.success(6)):
            rendered = self.make_request("hi")
            assert _tokens(price(rendered)) == _tokens(price(rendered)) == 5
            assert trial.asked == 1
            trial.advance(301)
            assert _tokens(price(rendered)) == 6

    def test_an_endpoint_that_keeps_failing_is_left_alone_and_asked_again_later(self) -> None:
        for price, trial in self._each(self.failure(500)):
            for number in range(5):
                assert isinstance(price(self.make_request(f"{number}")), CountFailure)
            assert trial.asked == 3
            trial.server.answer_with(self.success(5))
            trial.advance(31)
            assert _tokens(price(self.make_request("again"))) == 5
            assert _tokens(price(self.make_request("and again"))) == 5

    # ------------------------------------------------------------ being found

    def test_the_fingerprint_is_a_name_that_stays_and_holds_no_secret(self) -> None:
        with self._trial(self.success(1)) as trial:
            first, again = trial.counter.fingerprint, self.make_counter(trial.server.url)
            assert isinstance(first, str)
            assert first
            assert again.fingerprint == first
            assert self.secret not in first
            self.close_counter(again)

    def test_it_is_listed_as_a_remote_counter_with_a_format(self) -> None:
        if self.spec is not None:
            assert self.spec.remote
            assert self.spec.format, "a remote counter says in which format it wants a request"

    # ------------------------------------------------------------ inside

    @contextmanager
    def _trial(self, *answers: Answer) -> Iterator[Trial]:
        with loopback(self.path, *answers) as server:
            counter = self.make_counter(server.url)
            try:
                yield Trial(counter, self.make_request("hi")["model"], server)
            finally:
                self.close_counter(counter)

    def _each(self, *answers: Answer) -> Iterator[tuple[_Price, Trial]]:
        """Yield the sync and the async API, each with its own trial."""
        for door in _DOORS:
            with self._trial(*answers) as trial:
                yield door(trial.meter), trial

    def _sent(self, rendered: dict[str, Any]) -> Iterator[tuple[_Price, Any]]:
        """Yield each API with the request that the server received."""
        for price, trial in self._each(self.success(1)):
            assert _tokens(price(rendered)) == 1
            assert trial.asked == 1
            yield price, trial.server.received[0]


def _tokens(answer: TokenCount | CountFailure) -> int:
    assert isinstance(answer, TokenCount), answer
    return answer.tokens


def _failure(answer: TokenCount | CountFailure, kind: str) -> CountFailure:
    assert isinstance(answer, CountFailure), answer
    assert answer.kind == kind, answer
    return answer
