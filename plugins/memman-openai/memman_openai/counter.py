"""Counts of input tokens by OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from memman.protocols import ModelRef
from memman.providers import Clients, in_thread
from memman_openai.request import request_of

# No connection is kept between two counts, so a client serves every thread and every event loop.
_HEADERS: Final = {"connection": "close"}


class OpenAICounter:
    """A `RemoteCounter` by `responses.input_tokens.count`.

        counter = OpenAICounter(client=openai.OpenAI(base_url=...))

    `client` is an `OpenAI` or an `AzureOpenAI`, `async_client` its async counterpart; without that, the
    async method runs the sync client on a thread. `model` is the model of the counter: a request with an
    alias is sent with the model's own name. Retries are always off.
    """

    def __init__(
        self,
        model: ModelRef | None = None,
        *,
        client: Any = None,
        async_client: Any = None,
        clients: Clients | None = None,
    ) -> None:
        self._clients = clients or Clients.given(client, async_client)
        self._model = model
        self.fingerprint = f"openai:{self._clients.endpoint}"

    def ready(self) -> None:
        """Raise `CounterUnavailable` if a key or a setting is missing; make no request."""
        self._clients.ready()

    def count_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:
        """Return the input tokens of a Responses request. Raises the SDK's errors."""
        asked = request_of(rendered, self._model)
        count = self._clients.sync().responses.input_tokens.count
        tokens: int = count(**asked, timeout=timeout, extra_headers=_HEADERS).input_tokens
        return tokens

    async def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:  # noqa: ASYNC109 - the caller passes the deadline
        """Return the same, for async callers."""
        if self._clients.only_sync:
            return await in_thread(partial(self.count_request, rendered, timeout=timeout))
        asked = request_of(rendered, self._model)
        count = (await self._clients.asynchronous()).responses.input_tokens.count
        tokens: int = (await count(**asked, timeout=timeout, extra_headers=_HEADERS)).input_tokens
        return tokens
