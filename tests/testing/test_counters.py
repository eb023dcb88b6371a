"""memman's own counters conform, and the kit tells when a counter does not."""

from collections.abc import Sequence

import pytest

from memman.counting import BYTES4, CHARS4, builtin_specs, estimator_for, model_ref
from memman.errors import CounterUnavailable
from memman.ports import LocalCounter
from memman.testing import CounterConformance, broken_laws

SPECS = {spec.name: spec for spec in builtin_specs()}


class TestChars4(CounterConformance):
    spec = SPECS["chars4"]
    module = "memman"
    sdk = "tiktoken"

    def make_counter(self) -> LocalCounter:
        return CHARS4


class TestBytes4(CounterConformance):
    spec = SPECS["bytes4"]
    foreign = ("gpt-4o", "a model nobody knows")

    def make_counter(self) -> LocalCounter:
        return BYTES4


class TestEstimate(CounterConformance):
    spec = SPECS["estimate"]
    models = ("gpt-4o", "claude-sonnet-4-5", "a model nobody knows")
    module = "memman"
    sdk = "tiktoken"
    slack = 5  # where two texts meet there may be a rare sequence of classes, which weighs up to 4.5

    def make_counter(self) -> LocalCounter:
        return estimator_for(model_ref(self.models[0]))


class TestEstimateOfOldOpenAI(TestEstimate):
    models = ("gpt-4", "gpt-3.5-turbo")


class TestEstimateOfClaude3(TestEstimate):
    models = ("claude-3-5-sonnet", "claude-sonnet-4-5")


class TestEstimateOfClaude47(TestEstimate):
    models = ("claude-opus-4-7", "claude-sonnet-5")


class TestEstimateOfAStranger(TestEstimate):
    models = ("a model nobody knows", "gemini-2.5-pro")


class TestTiktoken(CounterConformance):
    models = ("gpt-4o", "openai/gpt-4o", "gpt-4.1-mini")
    foreign = ("claude-sonnet-4-5", "gemini-2.5-pro", "mistral-large")
    module = "memman_tiktoken"
    sdk = "tiktoken"

    @property
    def spec(self):
        plugin = pytest.importorskip("memman_tiktoken")
        return plugin.memman_token_counters()[0]

    def make_counter(self) -> LocalCounter:
        try:
            return self.spec.factory(model_ref("gpt-4o"))
        except CounterUnavailable as error:
            pytest.skip(f"no vocabulary here: {error.reason}")


class Broken:
    """Breaks one law at a time."""

    fingerprint = "broken"

    def __init__(self, law: str) -> None:
        self.law = law
        self.calls = 0

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        self.calls += 1
        counts = CHARS4.count_texts(texts)
        match self.law:
            case "negative":
                return [-count for count in counts]
            case "fractional":
                return [float(count) for count in counts]  # type: ignore[misc]
            case "unsteady":
                return [count + self.calls for count in counts]
            case "short batches":
                return counts[:1]
            case "control tokens":
                return [0 if "<|" in text else n for text, n in zip(texts, counts, strict=True)]
            case "surrogates":
                return [len(text.encode()) for text in texts]
        return counts


BROKEN_LAWS = {
    "negative": "test_a_count_is_a_whole_number_and_never_negative",
    "fractional": "test_a_count_is_a_whole_number_and_never_negative",
    "unsteady": "test_the_same_text_costs_the_same_each_time",
    "short batches": "test_a_batch_is_counted_as_its_texts_one_by_one",
    "control tokens": "test_control_tokens_in_a_text_are_ordinary_text",
    "surrogates": "test_a_lone_surrogate_and_nul_are_counted",
}


@pytest.mark.parametrize("law", BROKEN_LAWS)
def test_the_kit_catches_a_counter_with_broken(law):
    class Kit(CounterConformance):
        def make_counter(self) -> LocalCounter:
            return Broken(law)

    assert BROKEN_LAWS[law] in broken_laws(Kit)
