"""Asking Anthropic how many input tokens a request has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from memman.ports import ModelRef
from memman_anthropic.clients import Clients, given
from memman_anthropic.request import request_of

# No connection is kept between two counts, so a client serves every thread and every event loop.
_HEADERS: Final = {"connection": "close"}


class AnthropicCounter:
    """A `RemoteCounter` by `messages.count_tokens`: free, and limited apart from creating messages.

        counter = AnthropicCounter(client=anthropic.Anthropic(base_url=...))

    `client` is an `Anthropic` or an `AnthropicVertex`, `async_client` the async twin; the async door
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
        self._clients = clients if clients is not None else given(client, async_client)
        self._threaded = clients is None and async_client is None
        self.fingerprint = f"anthropic:{self._clients.endpoint}"
        self._model = model
        self._lock = threading.Lock()
        self._made: dict[str, Any] = {}

    def count_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:
        """The input tokens of a request in Anthropic's shape; raises what the SDK raises."""
        client = self._client("sync", self._clients.sync)
        asked = request_of(rendered, self._model)
        said = client.messages.count_tokens(**asked, timeout=timeout, extra_headers=_HEADERS)
        tokens: int = said.input_tokens
        return tokens

    async def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:  # noqa: ASYNC109 - the port hands the deadline on
        """The same, awaited."""
        import asyncio

        if self._threaded:
            return await asyncio.to_thread(self.count_request, rendered, timeout=timeout)
        client: Any = self._made.get("async")
        if client is None:  # importing the SDK takes most of a second
            make = self._clients.asynchronous
            client = await asyncio.to_thread(self._client, "async", make)
        asked = request_of(rendered, self._model)
        said = await client.messages.count_tokens(**asked, timeout=timeout, extra_headers=_HEADERS)
        tokens: int = said.input_tokens
        return tokens

    def _client(self, kind: str, make: Callable[[], Any]) -> Any:
        """The client, made when it is first needed."""
        with self._lock:
            if kind not in self._made:
                self._made[kind] = make().with_options(max_retries=0)
            return self._made[kind]
