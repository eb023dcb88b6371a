"""The laws of a local counter, with each backend."""

from __future__ import annotations

import memman_tiktoken
import pytest
from memman_tiktoken import backends, vocabulary
from memman_tiktoken.counter import FastCounter, TiktokenCounter

from memman.protocols import CounterSpec, LocalCounter
from memman.testing import CounterConformance


class _Kit(CounterConformance):
    models = ("gpt-4o", "openai/gpt-4o", "gpt-4.1-mini", "FT:gpt-4.1:org::x", "gpt-3.5-turbo")
    foreign = ("claude-sonnet-4-5", "gemini-2.5-pro", "mistral-large")

    @property
    def spec(self) -> CounterSpec:  # type: ignore[override]
        spec, _assumed, _scaled = memman_tiktoken.memman_token_counters()
        return spec


class TestWithTiktoken(_Kit):
    module = "memman_tiktoken"  # with all backends
    sdk = "tiktoken"

    def make_counter(self) -> LocalCounter:
        return TiktokenCounter(vocabulary.encoding("o200k_base"))


class TestWithToktok(_Kit):
    def make_counter(self) -> LocalCounter:
        return FastCounter("o200k_base", "toktok", backends._toktok("o200k_base"), "")


@pytest.mark.package("quicktok")
class TestWithQuicktok(_Kit):
    def make_counter(self) -> LocalCounter:
        return FastCounter("cl100k_base", "quicktok", backends._quicktok("cl100k_base"), "")
