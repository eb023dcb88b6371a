"""The meaning of an SDK's error is read from its attributes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman import CounterUnavailable, InvalidInput
from memman.counting.failures import MOST_RETRY_SECONDS, failure_of, retry_after_of, status_of


class SdkError(Exception):
    """An error with the attributes that its SDK gives it."""

    def __init__(self, message: str = "no", **attributes: Any) -> None:
        super().__init__(message)
        for name, value in attributes.items():
            setattr(self, name, value)


class APITimeoutError(SdkError):
    pass


class EndpointConnectionError(SdkError):
    pass


def of_botocore(code: str, status: int = 400, headers: dict[str, str] | None = None) -> SdkError:
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}}
    return SdkError(response={"Error": {"Code": code}, "ResponseMetadata": metadata})


def with_headers(**headers: str) -> SdkError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return SdkError(response=SimpleNamespace(status_code=429, headers=named))


# ---------------------------------------------------------------- the kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, "malformed"),
        (400, "refused"),
        (401, "denied"),
        (403, "denied"),
        (404, "unsupported"),
        (408, "network"),
        (413, "refused"),
        (422, "refused"),
        (429, "limited"),
        (500, "server"),
        (501, "unsupported"),
        (503, "server"),
        (529, "server"),
    ],
)
@pytest.mark.parametrize(
    "carry",
    [
        lambda status: SdkError(status_code=status),
        lambda status: SdkError(response=SimpleNamespace(status_code=status)),
        lambda status: SdkError(code=status),
        lambda status: of_botocore("Unknown", status),
    ],
    ids=["status_code", "response.status_code", "code", "botocore"],
)
def test_a_status_decides_wherever_the_error_carries_it(carry: Any, status: int, kind: str) -> None:
    assert failure_of(carry(status)).kind == kind


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ThrottlingException", "limited"),
        ("AccessDeniedException", "denied"),
        ("ValidationException", "refused"),
        ("ResourceNotFoundException", "unsupported"),
    ],
)
def test_aws_code_overrides_the_status(code: str, kind: str) -> None:
    assert failure_of(of_botocore(code)).kind == kind


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("The provided model doesn't support counting tokens.", "unsupported"),
        ("The provided model identifier is invalid.", "unsupported"),
        (
            "Invocation of model ID anthropic.claude-x with on-demand throughput isn't supported.",
            "unsupported",
        ),
        ("This model doesn't support tool use.", "refused"),
        ("messages.0.content.0: toolResult without a toolUse", "refused"),
        (None, "refused"),
    ],
)
def test_a_validation_of_aws_is_of_the_model_or_of_the_request(message: Any, kind: str) -> None:
    error = of_botocore("ValidationException")
    error.response["Error"]["Message"] = message
    assert failure_of(error).kind == kind


def of_google(status: int, *details: Any) -> SdkError:
    return SdkError(code=status, details={"error": {"code": status, "details": list(details)}})


def test_google_answers_400_to_a_key_that_it_does_not_know() -> None:
    assert failure_of(of_google(400, {"reason": "API_KEY_INVALID"})).kind == "denied"
    assert failure_of(of_google(400, {"reason": "something else"})).kind == "refused"
    assert failure_of(of_google(400)).kind == "refused"


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [("17s", 17.0), ("0.5s", 0.5), ("9999999s", MOST_RETRY_SECONDS), ("soon", None), ("s", None)],
)
def test_google_pause_is_read_from_the_body(delay: Any, seconds: float | None) -> None:
    error = of_google(429, "odd", {"retryDelay": 3}, {"retryDelay": delay})
    assert failure_of(error).kind == "limited"
    assert failure_of(error).retry_after == seconds


def test_a_request_that_its_counter_cannot_put_is_refused() -> None:
    assert failure_of(InvalidInput("a tool is 7")).kind == "refused"


def test_openai_code_overrides_the_status() -> None:
    assert failure_of(SdkError(status_code=400, code="model_not_found")).kind == "unsupported"
    assert failure_of(SdkError(status_code=400, code="something else")).kind == "refused"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError("late"), "network"),
        (ConnectionRefusedError(), "network"),
        (APITimeoutError(), "network"),
        (EndpointConnectionError(), "network"),
        (CounterUnavailable("no key"), "unavailable"),
        (ValueError("boom"), "failed"),
        (json.JSONDecodeError("no", "<html>", 0), "malformed"),
        (SdkError(status_code="429", code=None, response=None), "failed"),
        (SdkError(status_code=7), "failed"),
    ],
)
def test_without_a_status_its_class_decides(error: Exception, kind: str) -> None:
    assert failure_of(error).kind == kind


# ---------------------------------------------------------------- the reason


def test_reason_has_error_status_and_message_on_one_line() -> None:
    error = SdkError("slow\n  down", status_code=429)
    assert failure_of(error).reason == "SdkError 429: slow down"
    assert failure_of(ValueError()).reason == "ValueError"


def test_a_long_message_is_cut() -> None:
    assert len(failure_of(ValueError("x" * 10_000)).reason) < 300


# ---------------------------------------------------------------- the pause before the next call


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after": "999999"}, MOST_RETRY_SECONDS),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "soon"}, None),
        ({}, None),
        (
            {
                "date": "Sat, 21 Nov 2026 11:59:50 GMT",
                "retry_after": "Sat, 21 Nov 2026 12:00:20 GMT",
            },
            30.0,
        ),
        ({"retry_after": "Sat, 21 Nov 2026 12:00:20 GMT"}, None),
    ],
)
def test_pause_is_read_from_the_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_of(with_headers(**headers)) == seconds
    assert failure_of(with_headers(**headers)).retry_after == seconds


def test_botocore_has_the_headers_in_its_metadata() -> None:
    error = of_botocore("ThrottlingException", 429, {"retry-after": "3"})
    assert failure_of(error).retry_after == 3.0


def test_only_a_limit_says_when_to_come_back() -> None:
    response = SimpleNamespace(status_code=503, headers={"retry-after": "3"})
    assert failure_of(SdkError(response=response)).retry_after is None


# ---------------------------------------------------------------- third-party errors

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.binary(max_size=9)
)
ANYTHING = st.one_of(
    ODD,
    st.lists(ODD, max_size=2),
    st.dictionaries(
        st.sampled_from(["Error", "ResponseMetadata", "Code"]),
        st.dictionaries(st.sampled_from(["Code", "HTTPStatusCode", "HTTPHeaders"]), ODD),
    ),
    st.builds(
        SimpleNamespace,
        status_code=ODD,
        headers=st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms", "date"]), ODD),
    ),
)


@given(st.dictionaries(st.sampled_from(["status_code", "code", "response"]), ANYTHING), st.text())
def test_whatever_the_attributes_are_there_is_a_kind(
    attributes: dict[str, Any], message: str
) -> None:
    error = SdkError(message, **attributes)
    failure = failure_of(error)
    assert failure.kind
    assert failure.reason.startswith("SdkError")
    assert "\n" not in failure.reason
    status = status_of(error)
    assert status is None or 100 <= status < 600
    assert failure.retry_after is None or 0 <= failure.retry_after <= MOST_RETRY_SECONDS
