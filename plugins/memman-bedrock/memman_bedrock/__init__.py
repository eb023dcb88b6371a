"""Amazon Bedrock's own token counts of whole requests.

A plugin of memman: install it, and a session with `count_policy="confirm"` asks Bedrock's CountTokens where
a count can decide something. Importing it loads no SDK; the first count does.
"""

from __future__ import annotations

from typing import Any

from memman.counting.clients import require
from memman.hookspecs import hookimpl
from memman.ports import CounterSpec, ModelRef
from memman_bedrock.counter import BedrockCounter
from memman_bedrock.models import match

__all__ = ["BedrockCounter", "counter_spec", "memman_token_counters"]


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
