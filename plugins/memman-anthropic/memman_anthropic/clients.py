"""The SDK's clients, made from the environment when first needed."""

from __future__ import annotations

import os
from typing import Any, Final

from memman.errors import CounterUnavailable
from memman.providers import Clients, host_of, require

_API: Final = "https://api.anthropic.com"
_REGION, _PROJECT = "CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID"
_NO_KEY: Final = (
    "Anthropic's API wants credentials: set ANTHROPIC_API_KEY, or make the counter or "
    "summarizer with your own client"
)
_NO_PLACE: Final = (
    f"Claude on Vertex AI wants a region and a project: set {_REGION} and {_PROJECT}, or make the "
    "counter with your own client"
)


def of_anthropic() -> Clients:
    """Return clients of Anthropic's own API; the SDK reads credentials and ANTHROPIC_BASE_URL."""
    require("anthropic", "memman-anthropic")
    endpoint = host_of(os.environ.get("ANTHROPIC_BASE_URL") or _API)
    return Clients(endpoint, lambda: _made("Anthropic"), lambda: _made("AsyncAnthropic"))


def of_vertex() -> Clients:
    """Return a client of Vertex AI with the application default credentials of google-auth.

    Fetching them may take minutes, on a thread that an event loop waits for at its end. So the async
    method uses the sync client as well, on a daemon thread.
    """
    require("anthropic", "memman-anthropic")
    require("google.auth", '"memman-anthropic[vertex]"')
    endpoint = "/".join(("vertex", os.environ.get(_REGION, ""), os.environ.get(_PROJECT, "")))
    return Clients(endpoint, _on_vertex, None)


def _made(name: str) -> Any:
    import anthropic

    client = getattr(anthropic, name)()
    held = (getattr(client, each, None) for each in ("api_key", "auth_token", "credentials"))
    if not any(held):
        raise CounterUnavailable(_NO_KEY)
    return client


def _on_vertex() -> Any:
    import anthropic

    if not os.environ.get(_REGION):
        raise CounterUnavailable(_NO_PLACE)
    return anthropic.AnthropicVertex()
