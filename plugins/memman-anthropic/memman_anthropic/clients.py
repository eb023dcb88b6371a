"""The SDK's clients, made of the environment when one is first asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from memman.errors import CounterUnavailable

_API: Final = "api.anthropic.com"
_NO_KEY: Final = (
    "Anthropic's API wants credentials: set ANTHROPIC_API_KEY, or register an AnthropicCounter with "
    "your own client"
)
_NO_PLACE: Final = (
    "Claude on Vertex AI wants a region and a project: set CLOUD_ML_REGION and "
    "ANTHROPIC_VERTEX_PROJECT_ID, or register an AnthropicCounter with your own client"
)


class Clients(NamedTuple):
    """Where the clients go, for the counter's fingerprint, and how either is made."""

    endpoint: str
    sync: Callable[[], Any]
    asynchronous: Callable[[], Any]


def of_anthropic() -> Clients:
    """Clients of Anthropic's own API; credentials and ANTHROPIC_BASE_URL are read by the SDK."""
    _installed("anthropic", "memman-anthropic")

    def made(name: str) -> Any:
        import anthropic

        client = getattr(anthropic, name)()
        held = (getattr(client, each, None) for each in ("api_key", "auth_token", "credentials"))
        if not any(held):
            raise CounterUnavailable(_NO_KEY)
        return client

    where = host_of(os.environ.get("ANTHROPIC_BASE_URL") or f"https://{_API}")
    return Clients(where, lambda: made("Anthropic"), lambda: made("AsyncAnthropic"))


def of_vertex() -> Clients:
    """Clients of Vertex AI, with the application default credentials of google-auth."""
    _installed("anthropic", "memman-anthropic")
    _installed("google.auth", '"memman-anthropic[vertex]"')

    def made(name: str) -> Any:
        import anthropic

        if not os.environ.get("CLOUD_ML_REGION"):
            raise CounterUnavailable(_NO_PLACE)
        return getattr(anthropic, name)()

    place = [
        os.environ.get(each, "") for each in ("CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID")
    ]
    where = "/".join(("vertex", *place))
    return Clients(where, lambda: made("AnthropicVertex"), lambda: made("AsyncAnthropicVertex"))


def given(client: Any, async_client: Any) -> Clients:
    """The application's own clients, either of them or both."""
    if client is None and async_client is None:
        raise ValueError("pass `client`, `async_client`, or both")
    one = client if client is not None else async_client

    def other(found: Any, keyword: str) -> Any:
        if found is None:
            raise CounterUnavailable(
                f"this AnthropicCounter was made without `{keyword}`: pass it too"
            )
        return found

    places = (getattr(one, each, None) for each in ("region", "project_id"))
    where = "/".join((host_of(str(one.base_url)), *(place for place in places if place)))
    return Clients(
        where, lambda: other(client, "client"), lambda: other(async_client, "async_client")
    )


def host_of(url: str) -> str:
    """Host, port and path of a URL; what could hold a secret, user and query, is left out."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.hostname or ''}{port}{parts.path.rstrip('/')}"


def _installed(module: str, distribution: str) -> None:
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # the package around it is not there
        found = None
    if found is None:
        raise CounterUnavailable(f"the module {module} is missing: pip install {distribution}")
