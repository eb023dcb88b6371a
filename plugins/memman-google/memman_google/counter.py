"""Counts of input tokens by Google's APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memman.protocols import ModelRef
from memman.providers import in_thread, sent_name
from memman_google.clients import Clients
from memman_google.request import config_of, contents_of

if TYPE_CHECKING:
    from google.genai import Client


class GoogleCounter:
    """Prices requests in the format "gemini" by `models.count_tokens` of google-genai.

    With `vertex` it uses Vertex AI, else the Gemini Developer API, which counts system prompt and tools
    as text. `client` is used unchanged; by default one is made from the SDK's environment variables at
    the first count, which raises `CounterUnavailable` if they are missing. Any thread or loop may use it.
    The time-out is that of each phase of a request (connecting, sending, waiting for the answer), and in
    the async method also of the whole.
    """

    def __init__(self, model: ModelRef, *, vertex: bool, client: Client | None = None) -> None:
        self._model = model
        self._vertex = vertex
        self._clients = Clients(vertex=vertex, client=client)
        self.fingerprint = f"google:{self._clients.endpoint}"

    def ready(self) -> None:
        """Raise `CounterUnavailable` if a key or a setting is missing; make no request."""
        with self._clients.mapped_errors():
            self._clients.ready()

    def count_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:
        """Return Google's `total_tokens`. Raises the SDK's errors, and `InvalidInput`."""
        with self._clients.mapped_errors():
            models = self._clients.ready().models
            answer: Any = models.count_tokens(**self._arguments(rendered, timeout))
        tokens: int = answer.total_tokens
        return tokens

    async def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:  # noqa: ASYNC109 - the caller passes the deadline
        """Return the same by the SDK's async client; blocking setup runs on a thread."""
        import asyncio

        async with asyncio.timeout(timeout):
            if self._vertex and not self._clients.given:
                # google-auth looks for credentials on a pool's thread, which would hold up the loop's end.
                return await in_thread(lambda: self.count_request(rendered, timeout=timeout))
            with self._clients.mapped_errors():
                client = self._clients.known
                if client is None:
                    client = await in_thread(self._clients.ready)
                arguments = self._arguments(rendered, timeout)
                answer: Any = await client.aio.models.count_tokens(**arguments)
        tokens: int = answer.total_tokens
        return tokens

    def _arguments(self, rendered: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        return {
            "model": sent_name(rendered["model"], self._model).lower(),
            "contents": contents_of(rendered, vertex=self._vertex),
            "config": config_of(rendered, timeout, vertex=self._vertex),
        }
