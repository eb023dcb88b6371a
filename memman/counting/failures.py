"""Kinds of failures of remote counts, derived from an error without importing its SDK.

SDKs differ in their classes and agree in their attributes: an HTTP status, the response with its headers,
a code of the cause. The message decides in one case only: AWS uses one code for a model that it cannot
count for and for a request that it refuses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from memman.display import error_message
from memman.errors import CounterUnavailable, InvalidInput

Kind = Literal[
    "unsupported",  # the provider does not know the model, or cannot count for it
    "refused",  # the provider refused this request
    "denied",  # the credentials are not accepted
    "unavailable",  # the SDK, a key or a setting is missing here
    "limited",  # too many requests
    "server",  # the provider failed
    "network",  # no connection, or no answer in time
    "malformed",  # an answer that is not a count
    "failed",  # the counter raised something else
    "resting",  # no request: the endpoint failed too often
    "busy",  # no request: too many earlier calls still hang
    "cancelled",  # the call was cancelled with its event loop
]

MOST_RETRY_SECONDS: Final = 3_600.0
_SHOWN_CHARACTERS: Final = 200
_HTTP_DATE: Final = "%a, %d %b %Y %H:%M:%S GMT"

_STATUSES: Final[dict[int, Kind]] = {
    401: "denied",
    402: "denied",
    403: "denied",
    404: "unsupported",
    405: "unsupported",
    408: "network",
    425: "server",
    429: "limited",
    501: "unsupported",
}
# Causes that a status alone does not identify: of AWS, OpenAI, and Google, which answers 400 to an
# unknown key.
_CODES: Final[dict[str, Kind]] = {
    "AccessDeniedException": "denied",
    "ExpiredTokenException": "denied",
    "InvalidSignatureException": "denied",
    "MissingAuthenticationTokenException": "denied",
    "UnrecognizedClientException": "denied",
    "API_KEY_INVALID": "denied",
    "ResourceNotFoundException": "unsupported",
    "model_not_found": "unsupported",
    "ServiceQuotaExceededException": "limited",
    "ThrottlingException": "limited",
    "TooManyRequestsException": "limited",
}
# Messages of AWS's ValidationException about a model, not about a request: "The provided model doesn't
# support counting tokens", "The provided model identifier is invalid", "Invocation of model ID ... with
# on-demand throughput isn't supported".
_OF_THE_MODEL: Final = re.compile(
    r"count(ing)?[ -]?tokens|token counting|model identifier|on-demand throughput", re.IGNORECASE
)
# Classes of errors without a status: of the network, and of an answer that could not be read.
_NETWORK: Final = ("Timeout", "Connect", "Transport")
_UNREAD: Final = ("JSONDecodeError", "ResponseParserError")


class CountFailure(msgspec.Struct, frozen=True):
    """A failed remote count: its kind, and the reason in words.

    `retry_after` is the wait that the provider requests, in seconds. `cached` is True if no request was
    made for this answer.
    """

    kind: Kind
    reason: str
    retry_after: float | None = None
    cached: bool = False


def failure_of(error: BaseException) -> CountFailure:
    """Return the failure that an SDK's error means, by its attributes.

    These are `status_code`, `response.status_code`, an integer `code`, botocore's
    `response["ResponseMetadata"]` and `response["Error"]`, the `details` of Google's errors, and the
    headers `retry-after-ms` and `retry-after`. An error without any of them is a network failure if it is
    an `OSError`, or if its class is named after a time-out, a connection or a transport. An
    `InvalidInput` is a request that the counter cannot express.
    """
    status = status_of(error)
    kind = _kind(error, status)
    shown = f" {status}" if status is not None else ""
    message = " ".join(error_message(error).split())[:_SHOWN_CHARACTERS]
    reason = f"{type(error).__name__}{shown}: {message}".rstrip(": ")
    return CountFailure(kind, reason, retry_after_of(error) if kind == "limited" else None)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an error, None if it has none."""
    response = getattr(error, "response", None)
    found = (
        getattr(error, "status_code", None),
        getattr(response, "status_code", None),
        _inside(response, "ResponseMetadata", "HTTPStatusCode"),
        getattr(error, "code", None),
    )
    statuses = (int(each) for each in found if isinstance(each, int))
    return next((status for status in statuses if 100 <= status < 600), None)


def retry_after_of(error: BaseException) -> float | None:
    """Return the seconds that the response asks the client to wait, at most an hour, or None.

    A date is taken relative to the response's own `date`, so that clocks need not agree. Google's errors
    have the wait in their body, as the `retryDelay` of a `RetryInfo` ("17s").
    """
    wait = _asked_in_headers(error)
    if wait is None:
        delays = (str(_inside(each, "retryDelay")) for each in _google_details(error))
        found = (_number(delay[:-1], 1.0) for delay in delays if delay.endswith("s"))
        wait = next((each for each in found if each is not None), None)
    return None if wait is None else min(wait, MOST_RETRY_SECONDS)


def _asked_in_headers(error: BaseException) -> float | None:
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", None)
    if headers is None:
        headers = _inside(response, "ResponseMetadata", "HTTPHeaders")
    get = getattr(headers, "get", None)
    if get is None:
        return None
    waits = (
        _number(get("retry-after-ms"), 0.001),
        _number(get("retry-after"), 1.0),
        _between(get("date"), get("retry-after")),
    )
    return next((wait for wait in waits if wait is not None), None)


def _google_details(error: BaseException) -> list[Any]:
    """Return the structured details of a Google error; empty for others."""
    found = _inside(getattr(error, "details", None), "error", "details")
    return found if isinstance(found, list) else []


def _kind(error: BaseException, status: int | None) -> Kind:
    if isinstance(error, CounterUnavailable):
        return "unavailable"
    if isinstance(error, InvalidInput):
        return "refused"
    of_aws = _inside(getattr(error, "response", None), "Error")
    code = _inside(of_aws, "Code")
    if code == "ValidationException":
        about_model = _OF_THE_MODEL.search(str(_inside(of_aws, "Message")))
        return "unsupported" if about_model else "refused"
    reasons = [_inside(each, "reason") for each in _google_details(error)]
    for each in (code, getattr(error, "code", None), *reasons):
        if isinstance(each, str) and each in _CODES:
            return _CODES[each]
    if status is None:
        return _kind_of_class(error)
    if status in _STATUSES:
        return _STATUSES[status]
    if status < 400:
        return "malformed"  # it was answered, and the SDK could not read the answer
    return "refused" if status < 500 else "server"


def _kind_of_class(error: BaseException) -> Kind:
    names = [each.__name__ for each in type(error).__mro__]
    if any(name in _UNREAD for name in names):
        return "malformed"
    named = any(word in name for name in names for word in _NETWORK)
    return "network" if named or isinstance(error, OSError) else "failed"


def _inside(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _parsed(read: Callable[[], float]) -> float | None:
    """Return a number of seconds that is finite and not negative, else None."""
    try:
        seconds = read()
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _number(text: Any, unit: float) -> float | None:
    return _parsed(lambda: float(text) * unit)


def _between(since: Any, until: Any) -> float | None:
    def seconds() -> float:
        first, last = (datetime.strptime(each, _HTTP_DATE) for each in (since, until))  # noqa: DTZ007 - both are in GMT, as RFC 9110 has it
        return (last - first).total_seconds()

    return _parsed(seconds)
