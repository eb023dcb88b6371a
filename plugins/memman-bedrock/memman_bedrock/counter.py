"""Counts of input tokens by Bedrock."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final

from memman.errors import CounterUnavailable
from memman.protocols import ModelRef
from memman.providers import failure_of, in_thread, model_ref
from memman_bedrock.clients import Clients, mapped_errors
from memman_bedrock.models import BedrockModel, bedrock_model, region_of
from memman_bedrock.request import converse_input

_WRONG_ID_SECONDS: Final = 600.0
_READY_SECONDS: Final = 2.0  # for the credentials


class BedrockCounter:
    """Prices requests in the format "bedrock" by CountTokens of the `bedrock-runtime`.

    A request uses the model's base id, and once its other id if the first is not supported; a wrong id is
    remembered for 600 s. `client` is a boto3 client, used unchanged; by default one with the
    environment's credentials is made at the first count, which raises `CounterUnavailable` if they are
    missing. Any thread or loop may use it. The time-out is that of each phase of a request (connecting,
    waiting for the answer), and in the async method also of the whole.
    """

    def __init__(
        self, model: ModelRef, *, client: Any = None, timer: Callable[[], float] = monotonic
    ) -> None:
        self._model = model
        said = _known(model).region
        self._region = client.meta.region_name if client is not None else said
        self._region = self._region or region_of(os.environ)
        self.fingerprint = f"bedrock:{self._region or 'default'}"
        self._timer = timer
        self._wrong_until: dict[str, float] = {}
        self._clients = Clients(self._region, client)

    def ready(self) -> None:
        """Raise `CounterUnavailable` if a region or a profile is missing; make no request."""
        with mapped_errors():
            self._clients.ready(_READY_SECONDS)

    def count_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:
        """Return Bedrock's `inputTokens`. Raises boto3's errors, and `InvalidInput`."""
        with mapped_errors():
            client = self._clients.ready(timeout)
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

    async def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:  # noqa: ASYNC109 - the caller passes the deadline
        """Return the same, on a daemon thread: boto3 has no async client."""
        import asyncio

        async with asyncio.timeout(timeout):
            return await in_thread(lambda: self.count_request(rendered, timeout=timeout))

    def _ids(self, model: str) -> list[str]:
        """Return the ids to use: those not known to be wrong, or all if all are."""
        ref = self._model if model == self._model.given else model_ref(model)
        ids = _known(ref).within(self._region).ids
        now = self._timer()
        return [each for each in ids if self._wrong_until.get(each, 0.0) <= now] or list(ids)


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
