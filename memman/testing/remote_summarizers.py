"""Conformance tests of summarizers around an SDK, against a server on the loopback interface."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from time import monotonic
from typing import Any

import msgspec

from memman.compression.prompt import summary_request
from memman.protocols import Summarizer, SummaryReply, SummaryRequest, SummaryUsage
from memman.runtime import SyncRuntime
from memman.runtime.async_runtime import AsyncRuntime
from memman.runtime.base import drive, is_async_callable
from memman.testing import summarizers
from memman.testing.laws import finished, logged, run_program
from memman.testing.loopback import (
    Answer,
    LoopbackServer,
    ProviderLaws,
    delayed,
    leaves,
    loopback,
    values_of,
)

_TARGET = 300  # tokens
_AMPLE = 20.0  # seconds; the first call imports an SDK
_DEADLINE = 0.3  # seconds, in laws that wait for it
_SLACK = 1.0  # seconds over a deadline that still pass
_TRIES = 3
_MOST_ATTEMPTS = 3
_TEXT = "They looked at thirty modules; 中文 and → stay."
_NONSENSE = (Answer(200, b"<html>not what you asked for</html>"), Answer(200, {}), Answer(200, []))


class RemoteSummarizerConformance(ProviderLaws, summarizers.SummarizerConformance):
    """The laws of a provider's summarizer: derive from it and implement the provider's spelling.

        class TestMine(RemoteSummarizerConformance):
            path = "/v1/chat"
            name, module, sdk = "mine:small", "memman_mine", "mine"

            def make_summarizer_at(self, url):
                return MySummarizer("small", client=mine.Client(base_url=url, api_key=self.secret))

            def written(self, text, read, cached, wrote):
                usage = {"input": read, "output": wrote}
                return Answer(200, {"text": text, "stop": "end", "usage": usage})

            def cut_off(self, text): ...

            def refusals(self): ...

    It includes the laws of `SummarizerConformance`. `path` is the end of a request's path. `name` is the
    summarizer's name; making it by name imports `module` and not `sdk`. `secret` is the key that it is
    made with. `names_model` is False if responses do not name their model, `reads_retry_after` if the SDK
    hides a response's headers.
    """

    name: str = ""
    sdk: str = ""
    names_model: bool = True

    # ------------------------------------------------------------ what a plugin's test supplies

    def make_summarizer_at(self, url: str) -> Summarizer:
        """Return the summarizer under test, whose SDK uses the server at `url` (no slash at its end)."""
        raise NotImplementedError

    def written(self, text: str, read: int = 100, cached: int = 0, wrote: int = 10) -> Answer:
        """Return the provider's answer with a text; `read` and `wrote` are the billed tokens.

        `cached` of the read tokens came from its cache.
        """
        raise NotImplementedError

    def cut_off(self, text: str) -> Answer:
        """Return its answer with a text that reached the limit of tokens."""
        raise NotImplementedError

    def refusals(self) -> list[Answer]:
        """Return its refusals, and those of its filter."""
        raise NotImplementedError

    def close_summarizer(self, summarizer: Any) -> None:
        """Free the summarizer's resources; called at the end of each law."""

    # ------------------------------------------------------------ answers

    def test_the_providers_text_model_and_tokens_are_the_reply(self) -> None:
        with self._trial(self.written(_TEXT, read=1_234, cached=234, wrote=56)) as (subject, _):
            reply = _ask(subject)
        assert reply.text == _TEXT
        usage = reply.usage or SummaryUsage()
        read = usage.input_tokens, usage.output_tokens, usage.cached_tokens
        assert read == (1_234, 56, 234), f"usage was read as {reply.usage}"
        assert (reply.truncated, reply.refused) == (False, False)
        assert reply.model or not self.names_model

    def test_a_cut_off_answer_is_called_truncated(self) -> None:
        with self._trial(self.cut_off("They looked at")) as (subject, _):
            reply = _ask(subject)
        assert (reply.text, reply.truncated, reply.refused) == ("They looked at", True, False)

    def test_a_refusal_is_called_refused(self) -> None:
        for refusal in self.refusals():
            with self._trial(refusal) as (subject, server):
                reply = _ask(subject)
                assert reply.refused, f"{refusal.body} was taken for {reply}"
                assert len(server.received) == 1

    def test_an_empty_answer_is_an_empty_text(self) -> None:
        with self._trial(self.written("")) as (subject, _):
            assert _ask(subject).text == ""

    def test_what_is_no_answer_is_no_summary(self) -> None:
        for nonsense in _NONSENSE:
            with self._trial(nonsense) as (subject, _):
                found = _outcome(subject, _request())
                assert not isinstance(found, SummaryReply) or not found.text, found

    # ------------------------------------------------------------ what is sent

    def test_the_prompt_is_the_users_and_the_instructions_stand_apart(self) -> None:
        request = _request()
        [body] = self._sent(request)
        texts = values_of(body, str)
        assert request.prompt in texts, "the prompt was not sent as it is"
        assert any("summar" in text.lower() for text in texts if text != request.prompt)

    def test_the_reply_may_be_longer_than_the_target_and_has_a_limit(self) -> None:
        [body] = self._sent(_request())
        assert [number for number in values_of(body, int) if _TARGET < number < 200_000]

    def test_no_temperature_and_no_stream_is_asked_for(self) -> None:
        [body] = self._sent(_request())
        assert "temperature" not in {key for keys, _ in leaves(body) for key in keys}
        assert True not in values_of(body, bool)

    # ------------------------------------------------------------ failures

    def test_what_may_pass_is_tried_again(self) -> None:
        for status in (429, 500, 503):
            soon = {"retry-after": "0"}
            with self._trial(self.failure(status, soon), self.written(_TEXT)) as (subject, server):
                assert _ask(subject).text == _TEXT
                assert len(server.received) == 2

    def test_what_keeps_failing_is_not_tried_for_ever(self) -> None:
        for status in (429, 503):
            assert self._attempts(self.failure(status, {"retry-after": "0"})) <= _MOST_ATTEMPTS

    def test_a_wait_that_ends_after_the_time_out_is_not_begun(self) -> None:
        if not self.reads_retry_after:
            return
        with self._trial(self.failure(429, {"retry-after": "60"})) as (subject, server):
            found, took = _timed(subject, _request(_AMPLE))
            assert isinstance(found, Exception)
            assert took < _AMPLE / 2
            assert len(server.received) == 1

    def test_a_wrong_key_is_told_and_not_tried_again(self) -> None:
        assert self._attempts(self.failure(401)) == 1

    def test_a_request_that_is_refused_is_not_tried_again(self) -> None:
        assert self._attempts(self.failure(400)) == 1

    def test_a_provider_that_never_answers_costs_the_time_out(self) -> None:
        with self._trial(*[self.written(_TEXT)] * 2, Answer(never=True)) as (subject, _):
            _check_deadline(subject, _usual_time(subject))

    def test_limits_that_keep_coming_end_at_the_time_out(self) -> None:
        with self._trial(*[self.written(_TEXT)] * 2, self.failure(429)) as (subject, _):
            _check_deadline(subject, _usual_time(subject))

    def test_nobody_at_the_address_is_told_in_time(self) -> None:
        with self._trial(self.written(_TEXT)) as (subject, server):
            usual = _usual_time(subject)
        subject = self.make_summarizer_at(server.url)
        _check_deadline(subject, usual)
        self.close_summarizer(subject)

    def test_the_key_is_in_no_message_and_in_no_log(self) -> None:
        as_text = logging.Formatter().format
        with logged("", logging.DEBUG) as records:
            for answer in (self.failure(401), self.failure(500), *_NONSENSE):
                with self._trial(answer) as (subject, _):
                    found = _outcome(subject, _request(_DEADLINE))
                    shown = (repr(subject), str(found), repr(found), *map(as_text, records))
                    assert not [text for text in shown if self.secret in text]

    # ------------------------------------------------------------ managers

    def test_both_managers_tell_what_a_summary_cost(self) -> None:
        for made in (summarizers.compressed_in_sync, summarizers.compressed_in_async):
            with self._trial(self.written(_TEXT, read=800, wrote=12)) as (subject, server):
                result = made(subject)
                if result is None:
                    continue
                assert "summary" in {item.method for item in result.replacements}
                calls = len(server.received)
                assert result.cost.calls == calls
                billed = result.cost.input_tokens, result.cost.output_tokens
                assert billed == (800 * calls, 12 * calls)

    def test_a_loop_goes_on_while_it_works(self) -> None:
        answer = self.written(_TEXT)
        with self._trial(answer, delayed(answer, 0.5)) as (subject, _):
            _ask(subject)
            assert finished(lambda: asyncio.run(_ticks(subject)), _AMPLE) >= 10

    def test_naming_it_imports_no_sdk(self) -> None:
        program = (
            f"import sys, {self.module} as plugin\n"
            f"assert plugin.memman_summarizer({self.name!r}) is not None\n"
            f"assert plugin.memman_summarizer('nobody:' + {self.name!r}) is None\n"
            f"sys.exit({self.sdk!r} in sys.modules)"
        )
        done = run_program(program)
        assert done.returncode == 0, done.stderr or f"{self.name} loads {self.sdk}"

    # ------------------------------------------------------------ inside

    @contextmanager
    def summarizer(self) -> Iterator[Summarizer]:
        """Yield the summarizer with a provider that answers."""
        with self._trial(self.written(_TEXT)) as (subject, _):
            yield subject

    @contextmanager
    def _trial(self, *answers: Answer) -> Iterator[tuple[Summarizer, LoopbackServer]]:
        with loopback(self.path, *answers) as server:
            subject = self.make_summarizer_at(server.url)
            try:
                yield subject, server
                assert not server.astray, f"requests went to {server.astray}"
            finally:
                self.close_summarizer(subject)

    def _attempts(self, failure: Answer) -> int:
        """Return the number of requests of a call that fails."""
        with self._trial(failure) as (subject, server):
            assert isinstance(_outcome(subject, _request()), Exception)
            return len(server.received)

    def _sent(self, request: SummaryRequest) -> list[Any]:
        """Return the bodies that the server received."""
        with self._trial(self.written(_TEXT)) as (subject, server):
            _ask(subject, request)
            return [received.body for received in server.received]


def _request(timeout: float = _AMPLE) -> SummaryRequest:
    request = summary_request(summarizers.conversation()[:8], _TARGET, None)
    return msgspec.structs.replace(request, timeout=timeout)


def _ask(subject: Summarizer, request: SummaryRequest | None = None) -> SummaryReply:
    found = _outcome(subject, request or _request())
    if isinstance(found, Exception):
        raise found
    assert isinstance(found, SummaryReply), f"it answered with a {type(found).__name__}"
    return found


def _outcome(subject: Summarizer, request: SummaryRequest) -> SummaryReply | Exception:
    """Return the reply or the error, called as the manager of its kind does."""
    call: Any = partial(subject.summarize, request)
    try:
        if is_async_callable(subject.summarize):
            runtime = AsyncRuntime()
            answer: SummaryReply = asyncio.run(runtime.call_summarizer(call, None, True))
        else:
            asked = SyncRuntime().call_summarizer(call, None, False)
            answer = finished(lambda: drive(asked), 2 * _AMPLE)
    except Exception as error:  # noqa: BLE001 - any error of an SDK
        return error
    return answer


def _timed(subject: Summarizer, request: SummaryRequest) -> tuple[SummaryReply | Exception, float]:
    began = monotonic()
    found = _outcome(subject, request)
    return found, monotonic() - began


def _usual_time(subject: Summarizer) -> float:
    """Return the seconds of an answered call, after one that imports the SDK."""
    _ask(subject)
    return _timed(subject, _request())[1]


def _check_deadline(subject: Summarizer, usual: float) -> None:
    """Assert that a call fails at its deadline, in the quickest of a few tries.

    A busy machine only adds time, as it does to the `usual` seconds of an answered call.
    """
    took, most = inf, _DEADLINE + _SLACK + 10 * usual
    for _ in range(_TRIES):
        if took > most:
            found, took = _timed(subject, _request(_DEADLINE))
            assert isinstance(found, Exception)
    assert took < most, f"{took:.2f} s with a time-out of {_DEADLINE} s"


async def _ticks(subject: Summarizer) -> int:
    """Return the number of iterations of a loop while a compression waits for its summary."""
    work = asyncio.ensure_future(summarizers.compressed(subject))
    count = 0
    while not work.done():
        await asyncio.sleep(0.01)
        count += 1
    await work
    return count
