"""Conformance tests of summarizers around an SDK, against a server on the loopback interface."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

import msgspec

from memman.compression import summary_request
from memman.protocols import Summarizer, SummaryReply, SummaryRequest, SummaryUsage
from memman.runtime import AsyncRuntime, SyncRuntime, drive, is_async_callable
from memman.testing.laws import finished
from memman.testing.loopback import Answer, LoopbackServer, loopback
from memman.testing.summarizers import (
    SummarizerConformance,
    compressed,
    compressed_in_async,
    compressed_in_sync,
    conversation,
)

_TARGET = 300  # tokens
_AMPLE = 20.0  # seconds; the first call imports an SDK
_DEADLINE = 0.6  # seconds, in laws that wait for it
_SLACK = 1.0  # seconds over a deadline that still pass
_MOST_ATTEMPTS = 3
_TEXT = "They looked at thirty modules; 中文 and → stay."
_NONSENSE = (Answer(200, b"<html>not what you asked for</html>"), Answer(200, {}), Answer(200, []))


class Hearing(logging.Handler):
    """Keeps all log records."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record with its trace."""
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        self.said.append(record.getMessage() + trace)


class RemoteSummarizerConformance(SummarizerConformance):
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

    path: str = ""
    name: str = ""
    module: str = ""
    sdk: str = ""
    secret: str = "key-of-the-test"  # noqa: S105 - not a real secret
    names_model: bool = True
    reads_retry_after: bool = True

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

    def failure(self, status: int, headers: Mapping[str, str] | None = None) -> Answer:
        """Return its failure."""
        error = {"type": "error", "error": {"type": "error", "code": None, "message": "no summary"}}
        return Answer(status, error, headers or {})

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
        texts = list(_values(body, str))
        assert request.prompt in texts, "the prompt was not sent as it is"
        assert any("summar" in text.lower() for text in texts if text != request.prompt)

    def test_the_reply_may_be_longer_than_the_target_and_has_a_limit(self) -> None:
        [body] = self._sent(_request())
        assert [number for number in _values(body, int) if _TARGET < number < 200_000]

    def test_no_temperature_and_no_stream_is_asked_for(self) -> None:
        [body] = self._sent(_request())
        assert "temperature" not in set(_keys(body))
        assert True not in list(_values(body, bool))

    # ------------------------------------------------------------ failures

    def test_what_may_pass_is_tried_again(self) -> None:
        for status in (429, 500, 503):
            soon = {"retry-after": "0"}
            with self._trial(self.failure(status, soon), self.written(_TEXT)) as (subject, server):
                assert _ask(subject).text == _TEXT
                assert len(server.received) == 2

    def test_what_keeps_failing_is_not_tried_for_ever(self) -> None:
        for status in (429, 503):
            with self._trial(self.failure(status, {"retry-after": "0"})) as (subject, server):
                assert isinstance(_outcome(subject, _request()), Exception)
                assert len(server.received) <= _MOST_ATTEMPTS

    def test_a_wait_that_ends_after_the_time_out_is_not_begun(self) -> None:
        if not self.reads_retry_after:
            return
        with self._trial(self.failure(429, {"retry-after": "60"})) as (subject, server):
            found, took = _timed(subject, _request(_AMPLE))
            assert isinstance(found, Exception)
            assert took < _AMPLE / 2
            assert len(server.received) == 1

    def test_a_wrong_key_is_told_and_not_tried_again(self) -> None:
        with self._trial(self.failure(401)) as (subject, server):
            assert isinstance(_outcome(subject, _request()), Exception)
            assert len(server.received) == 1

    def test_a_request_that_is_refused_is_not_tried_again(self) -> None:
        with self._trial(self.failure(400)) as (subject, server):
            assert isinstance(_outcome(subject, _request()), Exception)
            assert len(server.received) == 1

    def test_a_provider_that_never_answers_costs_the_time_out(self) -> None:
        with self._trial(self.written(_TEXT), Answer(never=True)) as (subject, _):
            _ask(subject)  # the SDK is warm now
            found, took = _timed(subject, _request(_DEADLINE))
            assert isinstance(found, Exception)
            assert took < _DEADLINE + _SLACK, f"{took:.2f} s with a time-out of {_DEADLINE} s"

    def test_limits_that_keep_coming_end_at_the_time_out(self) -> None:
        with self._trial(self.written(_TEXT), self.failure(429)) as (subject, _):
            _ask(subject)
            found, took = _timed(subject, _request(_DEADLINE))
            assert isinstance(found, Exception)
            assert took < _DEADLINE + _SLACK

    def test_nobody_at_the_address_is_told_in_time(self) -> None:
        with self._trial(self.written(_TEXT)) as (subject, server):
            _ask(subject)  # the SDK is warm now
            address = server.url
        subject = self.make_summarizer_at(address)
        found, took = _timed(subject, _request(_DEADLINE))
        self.close_summarizer(subject)
        assert isinstance(found, Exception)
        assert took < _DEADLINE + _SLACK

    def test_the_key_is_in_no_message_and_in_no_log(self) -> None:
        hearing, root = Hearing(), logging.getLogger()
        level = root.level
        root.addHandler(hearing)
        root.setLevel(logging.DEBUG)
        try:
            for answer in (self.failure(401), self.failure(500), *_NONSENSE):
                with self._trial(answer) as (subject, _):
                    found = _outcome(subject, _request(_DEADLINE))
                    shown = (repr(subject), str(found), repr(found), *hearing.said)
                    assert not [text for text in shown if self.secret in text]
        finally:
            root.removeHandler(hearing)
            root.setLevel(level)

    # ------------------------------------------------------------ managers

    def test_both_managers_tell_what_a_summary_cost(self) -> None:
        for made in (compressed_in_sync, compressed_in_async):
            with self._trial(self.written(_TEXT, read=800, wrote=12)) as (subject, server):
                result = made(subject)
                if result is None:
                    continue
                assert "summary" in {item.method for item in result.replacements}
                calls = len(server.received)
                assert result.cost.calls == calls
                assert (result.cost.input_tokens, result.cost.output_tokens) == (
                    800 * calls,
                    12 * calls,
                )

    def test_a_loop_goes_on_while_it_works(self) -> None:
        slow = self.written(_TEXT)
        slow = Answer(slow.status, slow.body, slow.headers, delay=0.5)
        with self._trial(self.written(_TEXT), slow) as (subject, _):
            _ask(subject)
            assert finished(lambda: asyncio.run(_ticks(subject)), _AMPLE) >= 10

    def test_naming_it_imports_no_sdk(self) -> None:
        program = (
            f"import sys, {self.module} as plugin\n"
            f"assert plugin.memman_summarizer({self.name!r}) is not None\n"
            f"assert plugin.memman_summarizer('nobody:' + {self.name!r}) is None\n"
            f"sys.exit({self.sdk!r} in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], check=False, capture_output=True, text=True
        )
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

    def _sent(self, request: SummaryRequest) -> list[Any]:
        """Return the bodies that the server received."""
        with self._trial(self.written(_TEXT)) as (subject, server):
            _ask(subject, request)
            return [received.body for received in server.received]


def _request(timeout: float = _AMPLE) -> SummaryRequest:
    request = summary_request(conversation()[:8], _TARGET, None)
    return msgspec.structs.replace(request, timeout=timeout)


def _ask(subject: Summarizer, request: SummaryRequest | None = None) -> SummaryReply:
    found = _outcome(subject, request or _request())
    if isinstance(found, Exception):
        raise found
    assert isinstance(found, SummaryReply), f"it answered with a {type(found).__name__}"
    return found


def _outcome(subject: Summarizer, request: SummaryRequest) -> SummaryReply | Exception:
    """Return the reply or the error, called as the manager of its kind does."""

    def call() -> Any:
        return subject.summarize(request)

    try:
        if is_async_callable(subject.summarize):
            answer: SummaryReply = asyncio.run(_awaited(call))
        else:
            answer = finished(
                lambda: drive(SyncRuntime().call_summarizer(call, None, False)), 2 * _AMPLE
            )
    except Exception as error:  # noqa: BLE001 - any error of an SDK
        return error
    return answer


async def _awaited(call: Callable[[], Any]) -> Any:
    return await AsyncRuntime().call_summarizer(call, None, True)


def _timed(subject: Summarizer, request: SummaryRequest) -> tuple[SummaryReply | Exception, float]:
    began = monotonic()
    found = _outcome(subject, request)
    return found, monotonic() - began


async def _ticks(subject: Summarizer) -> int:
    """Return the number of iterations of a loop while a compression waits for its summary."""
    work = asyncio.ensure_future(compressed(subject))
    count = 0
    while not work.done():
        await asyncio.sleep(0.01)
        count += 1
    await work
    return count


def _values(value: Any, kind: type) -> Iterator[Any]:
    """Yield the values of exactly this type in a JSON value."""
    if type(value) is kind:
        yield value
    for each in value.values() if isinstance(value, Mapping) else ():
        yield from _values(each, kind)
    for each in value if isinstance(value, list) else ():
        yield from _values(each, kind)


def _keys(value: Any) -> Iterator[str]:
    inner = value if isinstance(value, list) else ()
    if isinstance(value, Mapping):
        yield from value
        inner = list(value.values())
    for each in inner:
        yield from _keys(each)
