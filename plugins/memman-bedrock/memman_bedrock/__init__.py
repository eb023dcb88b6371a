"""Models on Amazon Bedrock for memman: as counters of whole requests, and as writers of summaries.

Install it, and a session with `count_policy="confirm"` asks Bedrock's CountTokens where a count can decide
something; `summarizer="bedrock:MODEL"` has a model write the summaries. Importing it loads no SDK; the
first question does.
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
    """`bedrock`; with a boto3 `client` of your own, that one counts, in its region."""

    def make(model: ModelRef) -> BedrockCounter:
        if client is None:
            require("boto3", "memman-bedrock")
        return BedrockCounter(model, client=client)

    def before_all(model: ModelRef) -> int:
        """A client that somebody made goes before that of the environment."""
        return 2 * match(model)

    matches = match if client is None else before_all
    return CounterSpec(
        name="bedrock", match=matches, factory=make, remote=True, accuracy="high", format="bedrock"
    )


@hookimpl
def memman_token_counters() -> list[CounterSpec]:
    """One remote counter, `bedrock`, of the environment's credentials and region."""
    return [counter_spec()]


@hookimpl
def memman_summarizer(name: str) -> BedrockSummarizer | None:
    """The summarizer `bedrock:MODEL`, of the environment's credentials and region."""
    model = model_named(name, "bedrock")
    return None if model is None else BedrockSummarizer(model)
