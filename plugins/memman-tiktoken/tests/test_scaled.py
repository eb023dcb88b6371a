"""`tiktoken-scaled`: other vendors' models by OpenAI's vocabulary and a factor."""

import pytest
from memman_tiktoken import memman_token_counters

from memman.counting.builtin import builtin_specs
from memman.counting.framing import framing_of
from memman.counting.models import model_ref
from memman.counting.resolution import resolve
from memman.testing import CounterConformance

EXACT, _, SCALED = memman_token_counters()


class TestScaled(CounterConformance):
    spec = SCALED
    models = (
        "claude-sonnet-4-5",
        "gemini-2.5-pro",
        "zai/glm-4.6",
        "kimi-k2",
        "mistral-large-latest",
    )
    foreign = ("somebodys-own-model",)

    def make_counter(self):
        return SCALED.factory(model_ref("claude-sonnet-4-5"))


def test_a_count_is_that_of_o200k_times_the_factor_of_the_family():
    text = "def f(x):\n    return x ** 2\n" * 100
    [exact] = EXACT.factory(model_ref("gpt-4o")).count_texts((text,))
    for name in ("claude-sonnet-4-5", "claude-opus-4-7", "glm-4.6"):
        ref = model_ref(name)
        [scaled] = SCALED.factory(ref).count_texts((text,))
        assert scaled == round(exact * framing_of(ref).text)


@pytest.mark.parametrize(
    ("model", "counter"),
    [("gpt-4o", "tiktoken"), ("claude-sonnet-4-5", "tiktoken-scaled"), ("somebodys-own", None)],
)
def test_scaled_counter_ranks_between_exact_and_last_resort(model, counter):
    specs = [*memman_token_counters(), *builtin_specs()]
    found = resolve(model_ref(model), specs).spec
    assert found.name == counter or (counter is None and found.accuracy == "low")


def test_families_do_not_share_a_fingerprint():
    made = [SCALED.factory(model_ref(name)).fingerprint for name in ("claude-sonnet-4", "kimi-k2")]
    assert len(set(made)) == 2
