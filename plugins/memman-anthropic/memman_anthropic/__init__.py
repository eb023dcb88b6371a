"""Anthropic's models for memman: counters of whole requests, and summarizers.

With `count_policy="confirm"`, Anthropic counts a request if that can decide something, on its API and on
Vertex AI. With `summarizer="anthropic:MODEL"`, a model writes the summaries. The SDK is imported by the
first request.
"""

from __future__ import annotations

from memman import hookimpl
from memman.protocols import CounterSpec, ModelRef
from memman.providers import model_named
from memman_anthropic.clients import of_anthropic, of_vertex
from memman_anthropic.counter import AnthropicCounter
from memman_anthropic.summarizer import AnthropicSummarizer

__all__ = [
    "AnthropicCounter",
    "AnthropicSummarizer",
    "memman_summarizer",
    "memman_token_counters",
]

_CERTAINTY = 20
_OF_VERTEX = ("vertex", "vertex_ai", "vertexai", "google-vertex", "vertex-anthropic")


def _on_vertex(model: ModelRef) -> bool:
    return (model.provider or "").partition("/")[0] in _OF_VERTEX


def _match(model: ModelRef) -> int:
    """Match Claude on Anthropic's own API or on Vertex AI; other providers need their own counters."""
    ours = model.provider in (None, "anthropic") or _on_vertex(model)
    return _CERTAINTY if ours and model.name.startswith("claude") else 0


def _make(model: ModelRef) -> AnthropicCounter:
    """Return the counter for `model`. Raises `CounterUnavailable` if an SDK is not installed."""
    clients = of_vertex() if _on_vertex(model) else of_anthropic()
    return AnthropicCounter(model, clients=clients)


@hookimpl
def memman_token_counters() -> list[CounterSpec]:
    """List one remote counter, `anthropic`."""
    return [
        CounterSpec(
            name="anthropic",
            match=_match,
            factory=_make,
            remote=True,
            accuracy="high",
            format="anthropic",
        )
    ]


@hookimpl
def memman_summarizer(name: str) -> AnthropicSummarizer | None:
    """Return the summarizer `anthropic:MODEL` with the environment's credentials."""
    model = model_named(name, "anthropic")
    return None if model is None else AnthropicSummarizer(model)
