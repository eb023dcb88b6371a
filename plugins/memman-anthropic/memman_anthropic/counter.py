"""Asking Anthropic how many input tokens a request has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from memman.protocols import ModelRef
from memman.providers import Clients, in_thread
from memman_anthropic.request import request_of

# No connection is kept between two counts, so a client serves every thread and every event loop.
_HEADERS: Final = {"connection": "close"}


class AnthropicCounter:
    """A `RemoteCounter` by `messages.count_tokens`: free, and limited apart from creating messages.

        counter = AnthropicCounter(client=anthropic.Anthropic(base_url=...))

    `client` is an `Anthropic` or an `AnthropicVertex`, `async_client` the async twin; the async manager
    sends a sync client to a thread where it has no other. `model` is what the counter was found for: a
    request under an alias is then sent under the model's own name. Retries are always off.
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
        self.fingerprint = f"anthropic:{self._clients.endpoint}"

    def ready(self) -> None:
        """Raises `CounterUnavailable` where a key or a setting is missing; makes no request."""
        self._clients.ready()

    def count_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:
        """The input tokens of a request in Anthropic's shape; raises what the SDK raises."""
        asked = request_of(rendered, self._model)
        count = self._clients.sync().messages.count_tokens
        tokens: int = count(**asked, timeout=timeout, extra_headers=_HEADERS).input_tokens
        return tokens

    async def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:  # noqa: ASYNC109 - the port hands the deadline on
        """The same, awaited."""
        if self._clients.only_sync:
            return await in_thread(partial(self.count_request, rendered, timeout=timeout))
        asked = request_of(rendered, self._model)
        count = (await self._clients.asynchronous()).messages.count_tokens
        tokens: int = (await count(**asked, timeout=timeout, extra_headers=_HEADERS)).input_tokens
        return tokens
