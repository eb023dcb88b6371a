"""The SDK's clients, made of the environment when one is first asked for."""

from __future__ import annotations

import os
from typing import Any, Final

from memman.counting.clients import Clients, host_of, require
from memman.errors import CounterUnavailable

_API: Final = "https://api.openai.com/v1"
_ENDPOINT: Final = "AZURE_OPENAI_ENDPOINT"
_NO_KEY: Final = (
    "OpenAI's API wants a key: set OPENAI_API_KEY, or register an OpenAICounter with a client of "
    "your own"
)
_NO_AZURE: Final = (
    f"Azure OpenAI wants {_ENDPOINT}, AZURE_OPENAI_API_KEY and OPENAI_API_VERSION: set them, or "
    "register an OpenAICounter with your own client"
)


def of_openai() -> Clients:
    """Clients of OpenAI's own API; the key and OPENAI_BASE_URL are read by the SDK."""
    require("openai", "memman-openai")
    endpoint = host_of(os.environ.get("OPENAI_BASE_URL") or _API)
    return Clients(
        endpoint, lambda: _made("OpenAI", _NO_KEY), lambda: _made("AsyncOpenAI", _NO_KEY)
    )


def of_azure() -> Clients:
    """Clients of the Azure resource that the environment names."""
    require("openai", "memman-openai")
    endpoint = f"azure/{host_of(os.environ.get(_ENDPOINT) or '')}"
    return Clients(
        endpoint,
        lambda: _made("AzureOpenAI", _NO_AZURE),
        lambda: _made("AsyncAzureOpenAI", _NO_AZURE),
    )


def _made(name: str, missing: str) -> Any:
    import openai

    try:
        return getattr(openai, name)()
    except (openai.OpenAIError, ValueError) as error:
        raise CounterUnavailable(f"{missing} ({error})") from error
