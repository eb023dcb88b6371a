"""OpenAI's models for memman: counters of whole requests, and summarizers.

With `count_policy="confirm"`, OpenAI counts a request if that can decide something, on its API and on
Azure. With `summarizer="openai:MODEL"`, a model of OpenAI or of a compatible server writes the summaries.
The SDK is imported by the first request.
"""

from __future__ import annotations

import re
from typing import Final

from memman import hookimpl
from memman.protocols import CounterSpec, ModelRef
from memman.providers import model_named
from memman_openai.clients import of_azure, of_openai
from memman_openai.counter import OpenAICounter
from memman_openai.summarizer import OpenAISummarizer

__all__ = ["OpenAICounter", "OpenAISummarizer", "memman_summarizer", "memman_token_counters"]

_CERTAINTY = 20
_OURS: Final = re.compile(r"(ft:)?(gpt-(?!oss)|chatgpt-|codex-|computer-use-|o\d)")


def _on_azure(model: ModelRef) -> bool:
    return (model.provider or "").partition("/")[0] in ("azure", "azure_ai", "azure-openai")


def _match(model: ModelRef) -> int:
    """Match a model of OpenAI on its own API or on Azure; other servers lack the endpoint."""
    ours = model.provider in (None, "openai") or _on_azure(model)
    return _CERTAINTY if ours and _OURS.match(model.name) else 0


def _make(model: ModelRef) -> OpenAICounter:
    """Return the counter for `model`. Raises `CounterUnavailable` if the SDK is not installed."""
    return OpenAICounter(model, clients=of_azure() if _on_azure(model) else of_openai())


@hookimpl
def memman_token_counters() -> list[CounterSpec]:
    """List one remote counter, `openai`."""
    return [
        CounterSpec(
            name="openai",
            match=_match,
            factory=_make,
            remote=True,
            accuracy="high",
            format="openai-responses",
        )
    ]


@hookimpl
def memman_summarizer(name: str) -> OpenAISummarizer | None:
    """Return the summarizer `openai:MODEL` with the environment's credentials."""
    model = model_named(name, "openai")
    return None if model is None else OpenAISummarizer(model)
