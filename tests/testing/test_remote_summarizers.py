"""The kit of remote summarizers: a plain one keeps its laws, and each broken one is found."""

from __future__ import annotations

import json
import time
import types
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from memman import SummarizerFailed, SummaryReply, SummaryRequest
from memman.providers import billed, model_named, persistently, read_reply
from memman.testing import Answer, RemoteSummarizerConformance, SummarizerConformance, laws_of

KEY = "key-of-the-test"
SYSTEM = "Summarize."


class Refused(Exception):
    """A provider's error, with a response as of SDKs."""

    def __init__(self, error: urllib.error.HTTPError) -> None:
        super().__init__(f"status {error.code}")
        self.status_code = error.code
        self.response = error


class Plain:
    """A summarizer by `urllib`; a subclass can break each step of it."""

    def __init__(self, url: str, key: str = KEY) -> None:
        self.url = url
        self.key = key

    def body(self, request: SummaryRequest) -> dict[str, Any]:
        limit = 2 * request.target_tokens
        return {"system": SYSTEM, "prompt": request.prompt, "limit": limit}

    def reply(self, answer: Any) -> SummaryReply:
        return SummaryReply(
            text=answer["text"],
            model=answer["model"],
            usage=billed(answer["usage"]),
            truncated=answer["stop"] == "length",
            refused=answer["stop"] == "no",
        )

    def once(self, request: SummaryRequest, timeout: float) -> SummaryReply:
        data = json.dumps(self.body(request)).encode()
        outgoing = urllib.request.Request(f"{self.url}/v1/sum", data)  # noqa: S310 - the loopback
        try:
            with urllib.request.urlopen(outgoing, timeout=timeout) as response:  # noqa: S310 - loopback
                answer = json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error) from None
        return read_reply(answer, self.reply)

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        return persistently(lambda seconds: self.once(request, seconds), request.timeout)


class PlainConformance(RemoteSummarizerConformance):
    path = "/v1/sum"
    name, module, sdk = "plain:small", "tests_plain_summarizer", "no_such_sdk"
    kind: type[Plain] = Plain

    def make_summarizer_at(self, url: str) -> Plain:
        return self.kind(url)

    def written(
        self, text: str, read: int = 100, cached: int = 0, wrote: int = 10, stop: str = "end"
    ) -> Answer:
        details = {"cached_tokens": cached}
        usage = {
            "prompt_tokens": read,
            "prompt_tokens_details": details,
            "completion_tokens": wrote,
        }
        return Answer(200, {"text": text, "model": "small-1", "stop": stop, "usage": usage})

    def cut_off(self, text: str) -> Answer:
        return self.written(text, stop="length")

    def refusals(self) -> list[Answer]:
        return [self.written("", stop="no")]


SUBPROCESS = "test_naming_it_imports_no_sdk"


class TestPlain(PlainConformance):
    @pytest.fixture(autouse=True)
    def module_on_path(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        source = "def memman_summarizer(name): return 1 if name == 'plain:small' else None"
        (tmp_path / "tests_plain_summarizer.py").write_text(source)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))


# ---------------------------------------------------------------- each law can be broken


class NoUsage(Plain):
    def reply(self, answer: Any) -> SummaryReply:
        return SummaryReply(text=answer["text"], model="m")


class NeverCut(Plain):
    def reply(self, answer: Any) -> SummaryReply:
        return SummaryReply(text=answer["text"], refused=answer["stop"] == "no")


class NeverRefused(Plain):
    def reply(self, answer: Any) -> SummaryReply:
        return SummaryReply(text=answer["text"], truncated=answer["stop"] == "length")


class RaisesWhenEmpty(Plain):
    def reply(self, answer: Any) -> SummaryReply:
        if not answer["text"]:
            raise ValueError("nothing")
        return super().reply(answer)


class BelievesAnything(Plain):
    def once(self, request: SummaryRequest, timeout: float) -> SummaryReply:
        try:
            return super().once(request, timeout)
        except (ValueError, SummarizerFailed):
            return SummaryReply(text="It went well.")


class ChangesThePrompt(Plain):
    def body(self, request: SummaryRequest) -> dict[str, Any]:
        return {**super().body(request), "prompt": request.prompt[:500]}


class OneText(Plain):
    def body(self, request: SummaryRequest) -> dict[str, Any]:
        return {"prompt": request.prompt, "limit": 2 * request.target_tokens}


class NoLimit(Plain):
    def body(self, request: SummaryRequest) -> dict[str, Any]:
        return {"system": SYSTEM, "prompt": request.prompt}


class Warm(Plain):
    def body(self, request: SummaryRequest) -> dict[str, Any]:
        return {**super().body(request), "options": {"temperature": 0.2}}


class Streams(Plain):
    def body(self, request: SummaryRequest) -> dict[str, Any]:
        return {**super().body(request), "stream": True}


class AsksOnce(Plain):
    def summarize(self, request: SummaryRequest) -> SummaryReply:
        return self.once(request, request.timeout or 60)


class AsksForEver(Plain):
    most = 8

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        for _ in range(self.most):
            try:
                return self.once(request, request.timeout or 60)
            except Refused as error:
                last = error
        raise last


class WaitsTooLong(Plain):
    def summarize(self, request: SummaryRequest) -> SummaryReply:
        try:
            return self.once(request, 0.1)
        except OSError:
            time.sleep(2)
            raise
        except Refused as error:
            if error.status_code == 429 and error.response.headers.get("retry-after") is None:
                time.sleep(2)
            raise


class TellsTheKey(Plain):
    def summarize(self, request: SummaryRequest) -> SummaryReply:
        try:
            return super().summarize(request)
        except Refused as error:
            raise RuntimeError(f"{self.key}: {error}") from None


class Counts(Plain):
    def reply(self, answer: Any) -> SummaryReply:
        reply = super().reply(answer)
        return SummaryReply(text=reply.text, usage={"input_tokens": 3})  # type: ignore[arg-type]


BROKEN: list[tuple[type[Plain], str]] = [
    (NoUsage, "test_the_providers_text_model_and_tokens_are_the_reply"),
    (NeverCut, "test_a_cut_off_answer_is_called_truncated"),
    (NeverRefused, "test_a_refusal_is_called_refused"),
    (RaisesWhenEmpty, "test_an_empty_answer_is_an_empty_text"),
    (BelievesAnything, "test_what_is_no_answer_is_no_summary"),
    (ChangesThePrompt, "test_the_prompt_is_the_users_and_the_instructions_stand_apart"),
    (OneText, "test_the_prompt_is_the_users_and_the_instructions_stand_apart"),
    (NoLimit, "test_the_reply_may_be_longer_than_the_target_and_has_a_limit"),
    (Warm, "test_no_temperature_and_no_stream_is_asked_for"),
    (Streams, "test_no_temperature_and_no_stream_is_asked_for"),
    (AsksOnce, "test_what_may_pass_is_tried_again"),
    (AsksForEver, "test_what_keeps_failing_is_not_tried_for_ever"),
    (AsksForEver, "test_a_wrong_key_is_told_and_not_tried_again"),
    (AsksForEver, "test_a_request_that_is_refused_is_not_tried_again"),
    (AsksForEver, "test_a_wait_that_ends_after_the_time_out_is_not_begun"),
    (WaitsTooLong, "test_a_provider_that_never_answers_costs_the_time_out"),
    (WaitsTooLong, "test_limits_that_keep_coming_end_at_the_time_out"),
    (WaitsTooLong, "test_nobody_at_the_address_is_told_in_time"),
    (TellsTheKey, "test_the_key_is_in_no_message_and_in_no_log"),
    (Counts, "test_both_managers_tell_what_a_summary_cost"),
    (Counts, "test_it_says_what_was_billed_in_tokens_or_nothing"),
]


SLOW = {  # each waits as long as the first law that `WaitsTooLong` breaks
    "test_limits_that_keep_coming_end_at_the_time_out",
    "test_nobody_at_the_address_is_told_in_time",
}


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        pytest.param(
            kind, law, marks=pytest.mark.long if law in SLOW else (), id=f"{kind.__name__}-{law}"
        )
        for kind, law in BROKEN
    ],
)
def test_the_kit_catches_one_that_breaks(kind: type[Plain], law: str) -> None:
    class Kit(PlainConformance):
        pass

    Kit.kind = kind
    with pytest.raises((AssertionError, TypeError, Refused, SummarizerFailed)):
        getattr(Kit(), law)()


def test_a_summarizer_that_holds_up_the_loop_is_caught() -> None:
    class Async(Plain):
        async def summarize(self, request: SummaryRequest) -> SummaryReply:
            return Plain.summarize(self, request)

    class Kit(PlainConformance):
        kind = Async

    with pytest.raises(AssertionError):
        Kit().test_a_loop_goes_on_while_it_works()


def test_every_law_has_a_plugin_that_breaks_it() -> None:
    own = set(laws_of(RemoteSummarizerConformance)) - set(laws_of(SummarizerConformance))
    elsewhere = {SUBPROCESS, "test_a_loop_goes_on_while_it_works"}
    assert own - elsewhere == {law for _, law in BROKEN} & own


# ---------------------------------------------------------------- helpers of plugins


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses, without waiting."""
    waits: list[float] = []
    clock = [100.0]

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    fake = types.SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0])
    monkeypatch.setattr("memman.providers.summarizers.time", fake)
    return waits


class Status(Exception):
    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"status {status}")
        self.status_code = status
        self.response = types.SimpleNamespace(
            headers={name.replace("_", "-"): value for name, value in headers.items()}
        )


def failing(*errors: Exception) -> Callable[[float], str]:
    left = list(errors)

    def call(seconds: float) -> str:
        if left:
            raise left.pop(0)
        return f"done with {seconds:g} s left"

    return call


def test_another_attempt_gets_what_is_left_of_the_time(slept: list[float]) -> None:
    assert persistently(failing(Status(500), Status(503)), 10) == "done with 7.5 s left"
    assert slept == [0.5, 2.0]


def test_pause_of_the_provider_is_used(slept: list[float]) -> None:
    assert persistently(failing(Status(429, retry_after="3")), 10) == "done with 7 s left"
    assert slept == [3.0]


@pytest.mark.parametrize(
    ("errors", "timeout", "waits"),
    [
        ([Status(429, retry_after="11")], 10, []),
        ([Status(500), Status(500), Status(500)], 60, [0.5, 2.0]),
        ([Status(500), Status(500)], 1, [0.5]),
        ([Status(401)], 60, []),
        ([ValueError("no")], 60, []),
    ],
)
def test_what_will_not_pass_in_time_is_raised(
    errors: list[Exception], timeout: float, waits: list[float], slept: list[float]
) -> None:
    with pytest.raises(type(errors[-1])):
        persistently(failing(*errors), timeout)
    assert slept == waits


def test_without_a_time_out_ten_minutes_are_the_most(slept: list[float]) -> None:
    assert persistently(failing(), None) == "done with 600 s left"


def test_name_has_a_model_or_another_owner() -> None:
    assert model_named("acme:big", "acme") == "big"
    assert model_named("acme: a:b ", "acme") == "a:b"
    assert model_named("acme", "acme") is None
    assert model_named("acmes:big", "acme") is None


def test_usage_that_cannot_be_read_costs_no_summary() -> None:
    for usage in (None, {}, {"input_tokens": -1}, "many", object()):
        assert billed(usage) is None
