"""Asking Bedrock how many input tokens a request has."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final

from memman.counting import failure_of, model_ref
from memman.counting.aside import aside
from memman.errors import CounterUnavailable, InvalidInput
from memman.ports import ModelRef
from memman_bedrock.models import BedrockModel, bedrock_model, region_of
from memman_bedrock.request import converse_input

_WRONG_ID_SECONDS: Final = 600.0
_QUOTED: Final = re.compile(r", value: .*?(?=, type: <class)")
_SET_CREDENTIALS: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or AWS_BEARER_TOKEN_BEDROCK"
)
_SET_REGION: Final = "set AWS_REGION, or name the region in the model (bedrock/us-east-1/...)"


class BedrockCounter:
    """Prices requests in the format "bedrock" by CountTokens of the `bedrock-runtime`.

    The model is asked for by its base id, and once by its other id where the first is not supported; which
    one is wrong is remembered for 600 s. `client` is a boto3 client, used as it is; without one a client
    of the environment's credentials is made at the first count, and raises `CounterUnavailable` where
    they do not suffice. Any thread or loop may use it. The time-out is that of each phase of a request
    (connecting, waiting for the answer), in the async method also of the whole.
    """

    def __init__(
        self, model: ModelRef, *, client: Any = None, timer: Callable[[], float] = monotonic
    ) -> None:
        self._model = model
        self._client = client
        self._own = client is None
        said = _known(model).region
        self._region = client.meta.region_name if client is not None else said
        self._region = self._region or region_of(os.environ)
        self.fingerprint = f"bedrock:{self._region or 'default'}"
        self._timer = timer
        self._wrong_until: dict[str, float] = {}
        self._lock = threading.Lock()
        self._session: Any = None
        self._timeout = 0.0

    def count_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:
        """Bedrock's `inputTokens`. Raises what boto3 raises, and `InvalidInput`."""
        with _told():
            client = self._ready(timeout)
            until = self._timer() + timeout
            asked = converse_input(rendered)
            *others, last = self._ids(rendered["model"])
            for model_id in others:
                try:
                    return _asked(client, model_id, asked)
                except client.exceptions.ClientError as error:
                    if failure_of(error).kind != "unsupported" or self._timer() >= until:
                        raise
                    self._wrong_until[model_id] = self._timer() + _WRONG_ID_SECONDS
            return _asked(client, last, asked)

    async def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:  # noqa: ASYNC109 - the port hands the deadline on
        """The same on a daemon thread: boto3 has no async client."""
        import asyncio

        async with asyncio.timeout(timeout):
            return await aside(lambda: self.count_request(rendered, timeout=timeout))

    def _ids(self, model: str) -> list[str]:
        """The ids to ask for: those not known to be wrong, or all where all are."""
        ref = self._model if model == self._model.given else model_ref(model)
        ids = _known(ref).within(self._region).ids
        now = self._timer()
        return [each for each in ids if self._wrong_until.get(each, 0.0) <= now] or list(ids)

    def _ready(self, timeout: float) -> Any:
        """The client. One of our own is made once for a time-out, since boto3 fixes it in the client."""
        with self._lock:
            if self._client is None or (self._own and timeout != self._timeout):
                # The session keeps what it has read: a second client takes a fraction of the first's time.
                self._session = self._session or _session(self._region)
                self._client = _made(self._session, timeout)
                self._timeout = timeout
            return self._client


def _known(model: ModelRef) -> BedrockModel:
    found = bedrock_model(model)
    if found is None:
        raise CounterUnavailable(
            f"{model.given or model.name!r} is no model id of Bedrock: give one such as "
            "anthropic.claude-sonnet-4-20250514-v1:0, an ARN, or bedrock/NAME"
        )
    return found


def _asked(client: Any, model_id: str, asked: Mapping[str, Any]) -> int:
    tokens: int = client.count_tokens(modelId=model_id, input=asked).get("inputTokens")
    return tokens


def _session(region: str | None) -> Any:
    # Of our own: boto3's default one is not for several threads.
    from boto3 import Session

    return Session(region_name=region)


def _made(session: Any, timeout: float) -> Any:
    from botocore.config import Config

    once = {"total_max_attempts": 1}
    config = Config(connect_timeout=timeout, read_timeout=timeout, retries=once)
    return session.client("bedrock-runtime", config=config)


@contextmanager
def _told() -> Iterator[None]:
    """What boto3 raises before it sends anything, as what it means for a count."""
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
            f"AWS has no credentials to count with ({error}): {_SET_CREDENTIALS}"
        ) from error
    except of_boto.ParamValidationError as error:
        # Its message quotes the conversation.
        said = _QUOTED.sub("", " ".join(str(error).split()))
        raise InvalidInput(f"boto3 does not take the request: {said}") from error
