"""boto3's clients, and the errors that it raises before it sends a request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from memman.errors import CounterUnavailable, InvalidInput

_QUOTE, _TYPE = ", value: ", ", type: <class"  # rejected values are between them
_SET_CREDENTIALS: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or AWS_BEARER_TOKEN_BEDROCK"
)
_SET_REGION: Final = "set AWS_REGION, or name the region in the model (bedrock/us-east-1/...)"


class Clients:
    """Clients of the `bedrock-runtime` in one region. Any thread may use it.

    `client` is the application's own, used unchanged, with its own time-outs.
    """

    def __init__(self, region: str | None, client: Any = None) -> None:
        self._region = region
        self._client = client
        self._own = client is None
        self._lock = threading.Lock()
        self._session: Any = None
        self._timeout = 0.0

    def ready(self, timeout: float) -> Any:
        """Return the client. One of our own is made once per time-out, which boto3 fixes in the client."""
        with self._lock:
            if self._client is None or (self._own and timeout != self._timeout):
                # The session caches its files: a second client takes a fraction of the first's time.
                self._session = self._session or _session(self._region)
                self._client = _made(self._session, timeout)
                self._timeout = timeout
            return self._client


def _session(region: str | None) -> Any:
    # A separate session: boto3's default one is not thread-safe.
    from boto3 import Session

    return Session(region_name=region)


def _made(session: Any, timeout: float) -> Any:
    from botocore.config import Config

    once = {"total_max_attempts": 1}
    config = Config(connect_timeout=timeout, read_timeout=timeout, retries=once)
    return session.client("bedrock-runtime", config=config)


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Turn the errors of boto3 before a request into `CounterUnavailable` or `InvalidInput`."""
    from botocore import exceptions as of_boto

    try:
        yield
    except of_boto.NoRegionError as error:
        raise CounterUnavailable(f"Bedrock needs a region: {_SET_REGION}") from error
    except of_boto.ProfileNotFound as error:
        raise CounterUnavailable(f"{error}: {_SET_CREDENTIALS}") from error
    except (
        of_boto.NoCredentialsError,
        of_boto.PartialCredentialsError,
        of_boto.CredentialRetrievalError,
        of_boto.NoAuthTokenError,
        of_boto.TokenRetrievalError,
        of_boto.SSOError,
    ) as error:
        raise CounterUnavailable(
            f"AWS has no credentials to ask with ({error}): {_SET_CREDENTIALS}"
        ) from error
    except of_boto.ParamValidationError as error:
        # Without the values that boto3 quotes: they are the conversation.
        *pieces, last = " ".join(str(error).split()).split(_TYPE)
        reason = _TYPE.join([*(piece.partition(_QUOTE)[0] for piece in pieces), last])
        raise InvalidInput(f"boto3 does not take the request: {reason}") from error
