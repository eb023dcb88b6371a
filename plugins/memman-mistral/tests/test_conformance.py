"""The laws of a local counter, with both vocabularies."""

from __future__ import annotations

import memman_mistral
from memman_mistral.tokenizers import loaded

from memman.protocols import LocalCounter
from memman.testing import CounterConformance


class TestTekken(CounterConformance):
    [spec] = memman_mistral.memman_token_counters()
    models = ("mistral-large-latest", "mistralai/mistral-nemo", "Ministral-8B-2410", "devstral")
    foreign = ("gpt-4o", "claude-sonnet-4-5", "codestral-2508", "mistral-embed", "llama-3")
    module = "memman_mistral"
    sdk = "mistral_common"

    def make_counter(self) -> LocalCounter:
        return loaded("tekken")


class TestSentencePiece(CounterConformance):
    [spec] = memman_mistral.memman_token_counters()
    models = ("open-mixtral-8x22b", "mistral-large-2407", "codestral@2405")

    def make_counter(self) -> LocalCounter:
        return loaded("sentencepiece")
