"""The SDK's clients, made from the environment when first needed."""

from __future__ import annotations

import os
from typing import Any, Final

from memman.errors import CounterUnavailable
from memman.providers import Clients, host_of, require

API: Final = "https://api.openai.com/v1"
_ENDPOINT: Final = "AZURE_OPENAI_ENDPOINT"
_NO_KEY: Final = (
    "OpenAI's API wants a key: set OPENAI_API_KEY, or make the counter or summarizer with a "
    "client of your own"
)
_NO_AZURE: Final = (
    f"Azure OpenAI wants {_ENDPOINT}, AZURE_OPENAI_API_KEY and OPENAI_API_VERSION: set them, or "
    "make the counter or summarizer with your own client"
)


def of_openai(base_url: str | None = None, api_key: str | None = None) -> Clients:
    """Return clients of OpenAI's own API, or of a compatible server at `base_url`.

    The SDK reads missing arguments from OPENAI_API_KEY and OPENAI_BASE_URL.
    """
    require("openai", "memman-openai")
    url = base_url or os.environ.get("OPENAI_BASE_URL") or API
    if not api_key and host_of(url) != host_of(API):
        # The SDK requires a key; a self-hosted server may need none.
        api_key = os.environ.get("OPENAI_API_KEY") or "none"
    given = {"base_url": base_url, "api_key": api_key}
    return Clients(
        host_of(url),
        lambda: _made("OpenAI", _NO_KEY, **given),
        lambda: _made("AsyncOpenAI", _NO_KEY, **given),
    )


def of_azure() -> Clients:
    """Return clients of the Azure resource that the environment names."""
    require("openai", "memman-openai")
    endpoint = f"azure/{host_of(os.environ.get(_ENDPOINT) or '')}"
    return Clients(
        endpoint,
        lambda: _made("AzureOpenAI", _NO_AZURE),
        lambda: _made("AsyncAzureOpenAI", _NO_AZURE),
    )


def _made(name: str, missing: str, **given: str | None) -> Any:
    import openai

    try:
        return getattr(openai, name)(**given)
    except (openai.OpenAIError, ValueError) as error:
        raise CounterUnavailable(f"{missing} ({error})") from error
