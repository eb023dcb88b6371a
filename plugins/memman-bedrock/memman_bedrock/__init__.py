"""Models on Amazon Bedrock for memman: counters of whole requests, and summarizers.

With `count_policy="confirm"`, Bedrock's CountTokens counts a request if that can decide something. With
`summarizer="bedrock:MODEL"`, a model writes the summaries. The SDK is imported by the first request.
"""

from __future__ import annotations

from typing import Any

from memman import hookimpl
from memman.protocols import CounterSpec, ModelRef
from memman.providers import model_named, require
from memman_bedrock.counter import BedrockCounter
from memman_bedrock.models import match
from memman_bedrock.summarizer import BedrockSummarizer

__all__ = [
    "BedrockCounter",
    "BedrockSummarizer",
    "counter_spec",
    "memman_summarizer",
    "memman_token_counters",
]


def counter_spec(client: Any = None) -> CounterSpec:
    """Return the spec of `bedrock`; a boto3 `client` of the application counts in its own region."""

    def make(model: ModelRef) -> BedrockCounter:
        if client is None:
            require("boto3", "memman-bedrock")
        return BedrockCounter(model, client=client)

    def before_all(model: ModelRef) -> int:
        """Rank an application's client before that of the environment."""
        return 2 * match(model)

    matches = match if client is None else before_all
    return CounterSpec(
        name="bedrock", match=matches, factory=make, remote=True, accuracy="high", format="bedrock"
    )


@hookimpl
def memman_token_counters() -> list[CounterSpec]:
    """List one remote counter, `bedrock`, with the environment's credentials and region."""
    return [counter_spec()]


@hookimpl
def memman_summarizer(name: str) -> BedrockSummarizer | None:
    """Return the summarizer `bedrock:MODEL` with the environment's credentials and region."""
    model = model_named(name, "bedrock")
    return None if model is None else BedrockSummarizer(model)
