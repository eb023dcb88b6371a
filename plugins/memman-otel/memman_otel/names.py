"""Names of the GenAI semantic conventions, and memman's own under `memman.`.

The conventions are those of https://github.com/open-telemetry/semantic-conventions-genai; `conventions.py`
of the tests has their table.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from memman.providers import model_ref

VERSION: Final = "0.1.0"  # of this package
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"

# Operations that the conventions have no name for; a name of one's own is allowed.
OPERATIONS: Final = {
    "build": "build_context",
    "fit": "fit_messages",
    "compress": "compress",
    "summarize": "summarize",
    "count": "count_tokens",
}
# Methods of a store with an operation of the conventions.
MEMORY_OPERATIONS: Final = {
    "append": "create_memory",
    "commit": "upsert_memory",
    "search": "search_memory",
    "erase": "delete_memory",
    "delete": "delete_memory",
}
# Providers as memman names them, by the conventions' names.
_PROVIDERS: Final = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "groq": "groq",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "openai": "openai",
    "perplexity": "perplexity",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}
# Providers of models that are named without one, by the beginnings of their families.
_FAMILIES: Final = {
    "claude": "anthropic",
    "gemini": "gcp.gen_ai",
    "gpt": "openai",
    "mistral": "mistral_ai",
    "o-series": "openai",
}


@lru_cache(maxsize=256)
def of_model(model: str | None) -> dict[str, str]:
    """Return the attributes of a model: its name, and its provider if known."""
    if model is None:
        return {}
    ref = model_ref(model)
    provider = _PROVIDERS.get(ref.provider or "")
    if ref.provider is None:
        provider = next(
            (own for start, own in _FAMILIES.items() if ref.family.startswith(start)), None
        )
    attributes = {"gen_ai.request.model": model}
    if provider is not None:
        attributes["gen_ai.provider.name"] = provider
    return attributes
