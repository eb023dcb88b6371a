"""The SDK's client, made from the environment when first needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memman.errors import CounterUnavailable
from memman.providers import host_of

if TYPE_CHECKING:
    from google.genai import Client

_SET_KEY = "set GOOGLE_API_KEY (or GEMINI_API_KEY)"
_SET_VERTEX = (
    "set GOOGLE_CLOUD_PROJECT and run `gcloud auth application-default login`, or set "
    "GOOGLE_APPLICATION_CREDENTIALS"
)


class Clients:
    """A client of the Gemini Developer API or, with `vertex`, of Vertex AI. Any thread may use it.

    `client` is the application's own; by default one is made once from the SDK's environment variables.
    `endpoint` is its address, as far as the SDK exposes it, without a secret.
    """

    def __init__(self, *, vertex: bool, client: Client | None = None) -> None:
        self.vertex = vertex
        self.given = client is not None
        self.endpoint = _endpoint(vertex) if client is None else f"{_service(vertex)}/given"
        self._client = client
        self._making = threading.Lock()

    @property
    def known(self) -> Client | None:
        """The client, if it exists already."""
        return self._client

    def ready(self) -> Client:
        """Return the client. Raises `CounterUnavailable` if settings are missing in the environment."""
        with self._making:
            if self._client is None:
                self._client = _made(self.vertex)
            return self._client

    @contextmanager
    def mapped_errors(self) -> Iterator[None]:
        """Turn missing or expired credentials into `CounterUnavailable`."""
        from google.auth.exceptions import DefaultCredentialsError, RefreshError

        try:
            yield
        except (DefaultCredentialsError, RefreshError) as error:
            if error.retryable:
                raise
            raise CounterUnavailable(
                f"Google's credentials do not work: {_to_set(self.vertex)} ({error})"
            ) from error


def _service(vertex: bool) -> str:
    return "vertex" if vertex else "developer"


def _endpoint(vertex: bool) -> str:
    """Return the address that the SDK's environment variables select."""
    url = os.environ.get("GOOGLE_VERTEX_BASE_URL" if vertex else "GOOGLE_GEMINI_BASE_URL")
    location = os.environ.get("GOOGLE_CLOUD_LOCATION") if vertex else None
    return "/".join(filter(None, (_service(vertex), url and host_of(url), location)))


def _made(vertex: bool) -> Client:
    from google.genai import Client
    from google.genai.types import HttpOptions, HttpRetryOptions

    # Without retry options the SDK's aiohttp transport waits 1-10 s and tries once more.
    options = HttpOptions(retry_options=HttpRetryOptions(attempts=1))
    try:
        return Client(vertexai=vertex, http_options=options)
    except ValueError as error:
        raise CounterUnavailable(
            f"google-genai has no client to ask with: {error}: {_to_set(vertex)}"
        ) from error


def _to_set(vertex: bool) -> str:
    return _SET_VERTEX if vertex else _SET_KEY
