"""Gemini models for memman: counters of whole requests, and summarizers.

With `count_policy="confirm"`, the Gemini Developer API or Vertex AI counts a request if that can decide
something. With `summarizer="google:MODEL"`, a model writes the summaries. The SDK is imported by the
first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memman import hookimpl
from memman.errors import CounterUnavailable
from memman.protocols import CounterSpec, ModelRef
from memman.providers import model_named, require
from memman_google.counter import GoogleCounter
from memman_google.endpoints import KEYS, developer_match, gemini_match, has_key, vertex_match
from memman_google.summarizer import GoogleSummarizer

if TYPE_CHECKING:
    from google.genai import Client

__all__ = [
    "GoogleCounter",
    "GoogleSummarizer",
    "counter_specs",
    "memman_summarizer",
    "memman_token_counters",
]


def counter_specs(client: Client | None = None) -> list[CounterSpec]:
    """Return the specs of `google` (Developer API) and `google-vertex`; with a `client` only its own.

    `google` has medium accuracy, because its service does not count system prompts and tools as such.
    """

    def developer(model: ModelRef) -> GoogleCounter:
        if client is None:
            require("google.genai", "memman-google")
            if not has_key():
                raise CounterUnavailable(
                    f"the Gemini Developer API needs a key: set {' or '.join(KEYS)}"
                )
        return GoogleCounter(model, vertex=False, client=client)

    def vertex(model: ModelRef) -> GoogleCounter:
        if client is None:
            require("google.genai", "memman-google")
        return GoogleCounter(model, vertex=True, client=client)

    google = CounterSpec(
        name="google",
        match=developer_match if client is None else _before_all,
        factory=developer,
        remote=True,
        accuracy="medium",
        format="gemini",
    )
    google_vertex = CounterSpec(
        name="google-vertex",
        match=vertex_match if client is None else _before_all,
        factory=vertex,
        remote=True,
        accuracy="high",
        format="gemini",
    )
    if client is None:
        return [google, google_vertex]
    return [google_vertex if client.vertexai else google]


def _before_all(model: ModelRef) -> int:
    """Rank an application's client before those of the environment."""
    return 2 * gemini_match(model)


@hookimpl
def memman_token_counters() -> list[CounterSpec]:
    """List two remote counters, `google` and `google-vertex`, with the environment's credentials."""
    return counter_specs()


@hookimpl
def memman_summarizer(name: str) -> GoogleSummarizer | None:
    """Return the summarizer `google:MODEL` with the environment's credentials."""
    model = model_named(name, "google")
    return None if model is None else GoogleSummarizer(model)
