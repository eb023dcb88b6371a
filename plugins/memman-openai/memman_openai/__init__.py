"""Token counts of whole requests by OpenAI's `responses.input_tokens.count`, on its API and on Azure.

A plugin of memman: install it, and `count_policy="confirm"` has OpenAI count a request where that can
decide something. Importing it, and making a counter, loads no SDK; the first count does.
"""

from __future__ import annotations

import re
from typing import Final

from memman.hookspecs import hookimpl
from memman.ports import CounterSpec, ModelRef
from memman_openai.clients import of_azure, of_openai
from memman_openai.counter import OpenAICounter

__all__ = ["OpenAICounter", "memman_token_counters"]

_CERTAINTY = 20
_OURS: Final = re.compile(r"(ft:)?(gpt-(?!oss)|chatgpt-|codex-|computer-use-|o\d)")


def _on_azure(model: ModelRef) -> bool:
    return (model.provider or "").partition("/")[0] in ("azure", "azure_ai", "azure-openai")


def _match(model: ModelRef) -> int:
    """A model of OpenAI on its own API or on Azure; elsewhere its API is not to be had."""
    ours = model.provider in (None, "openai") or _on_azure(model)
    return _CERTAINTY if ours and _OURS.match(model.name) else 0


def _make(model: ModelRef) -> OpenAICounter:
    """The counter for `model`. Raises `CounterUnavailable` where the SDK is not installed."""
    return OpenAICounter(model, clients=of_azure() if _on_azure(model) else of_openai())


@hookimpl
def memman_token_counters() -> list[CounterSpec]:
    """One remote counter, `openai`."""
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
