"""Asking Google how many input tokens a request has."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from memman.counting.aside import aside
from memman.counting.clients import sent_name
from memman.errors import CounterUnavailable
from memman.ports import ModelRef
from memman_google.request import config_of, contents_of

if TYPE_CHECKING:
    from google.genai import Client

_SET_KEY = "set GOOGLE_API_KEY (or GEMINI_API_KEY)"
_SET_VERTEX = (
    "set GOOGLE_CLOUD_PROJECT and run `gcloud auth application-default login`, or set "
    "GOOGLE_APPLICATION_CREDENTIALS"
)


class GoogleCounter:
    """Prices requests in the format "gemini" by `models.count_tokens` of google-genai.

    With `vertex` by Vertex AI, else by the Gemini Developer API, which counts system prompt and tools as
    text. `client` is used as it is; without one a client is made by the SDK's environment variables at
    the first count, and raises `CounterUnavailable` where they do not suffice. Any thread or loop may
    use it. The time-out is that of each phase of a request (connecting, sending, waiting for the answer),
    in the async method also of the whole.
    """

    def __init__(self, model: ModelRef, *, vertex: bool, client: Client | None = None) -> None:
        self.fingerprint = f"google:{'vertex' if vertex else 'developer'}"
        self._model = model
        self._vertex = vertex
        self._client = client
        self._making = threading.Lock()

    def count_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:
        """Google's `total_tokens`. Raises what google-genai raises, and `InvalidInput`."""
        with _told(self._vertex):
            models = self._ready().models
            answer: Any = models.count_tokens(**self._arguments(rendered, timeout))
        tokens: int = answer.total_tokens
        return tokens

    async def acount_request(self, rendered: Mapping[str, Any], *, timeout: float) -> int:  # noqa: ASYNC109 - the port hands the deadline on
        """The same by the SDK's async client; what blocks while it is made runs on a thread."""
        import asyncio

        async with asyncio.timeout(timeout):
            with _told(self._vertex):
                client = self._client
                if client is None:
                    client = await aside(self._ready)
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

    def _ready(self) -> Client:
        """The client, made once."""
        with self._making:
            if self._client is None:
                self._client = _made(self._vertex)
            return self._client


def _made(vertex: bool) -> Client:
    from google.genai import Client
    from google.genai.types import HttpOptions, HttpRetryOptions

    # Without retry options the SDK's aiohttp transport waits 1-10 s and tries once more.
    options = HttpOptions(retry_options=HttpRetryOptions(attempts=1))
    try:
        return Client(vertexai=vertex, http_options=options)
    except ValueError as error:
        said = _SET_VERTEX if vertex else _SET_KEY
        raise CounterUnavailable(
            f"google-genai has no client to count with: {error}: {said}"
        ) from error


@contextmanager
def _told(vertex: bool) -> Iterator[None]:
    """Credentials that are not there, or no longer valid, as `CounterUnavailable`."""
    from google.auth.exceptions import DefaultCredentialsError, RefreshError

    try:
        yield
    except (DefaultCredentialsError, RefreshError) as error:
        if error.retryable:
            raise
        said = _SET_VERTEX if vertex else _SET_KEY
        raise CounterUnavailable(f"Google's credentials do not work: {error}: {said}") from error
