"""Shares of a large window end at a number of tokens, and its target is a smaller share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman import MemoryConfig, MemoryManager, ModelInfo, ModelRef, hookimpl
from memman.config import resolve_budget
from memman.plugins import shared_plugins
from memman.protocols import Prices, PriceTier

WINDOW = ModelInfo(1_000_000, 1_000_000, 64_000)


def trigger(info: ModelInfo, **settings: object) -> int:
    """Return the trigger of a model with these limits."""
    config = MemoryConfig(**settings)  # type: ignore[arg-type]
    with MemoryManager(model="acme-large", model_info=info, config=config) as memory:
        memory.add_user_message("s", "Hello")
        return memory.get_stats("s").max_tokens


def priced(above: int) -> ModelInfo:
    """Return the limits of a model whose longer requests cost more."""
    tiers = (PriceTier(above=above, input=2.0, output=2.0),)
    return ModelInfo(
        1_000_000, 1_000_000, 64_000, prices=Prices(input=1.0, output=1.0, tiers=tiers)
    )


def test_trigger_is_the_smallest_of_share_step_and_ceiling():
    assert trigger(WINDOW) == 200_000
    assert trigger(ModelInfo(100_000, 100_000, 20_000)) == 64_000
    assert trigger(priced(128_000)) == 128_000
    assert trigger(priced(272_000)) == 200_000


@pytest.mark.parametrize("tokens", [150_000, 700_000])
def test_given_trigger_has_no_ceiling(tokens):
    assert trigger(priced(128_000), max_tokens=tokens) == tokens


def test_parts_of_a_large_window_have_ceilings():
    budget = resolve_budget(MemoryConfig(max_tokens=900_000), None)
    assert (budget.summary_tokens, budget.state_tokens, budget.entry_tokens) == (
        8_000,
        12_000,
        25_000,
    )
    small = resolve_budget(MemoryConfig(max_tokens=16_000), None)
    assert (small.summary_tokens, small.state_tokens, small.entry_tokens) == (1_600, 1_600, 4_000)


@pytest.mark.parametrize(
    ("tokens", "share"),
    [
        (1_000, 0.5),
        (16_000, 0.5),
        (40_000, 0.425),
        (64_000, 0.35),
        (128_000, 0.25),
        (900_000, 0.25),
    ],
)
def test_target_falls_with_the_window(tokens, share):
    assert resolve_budget(MemoryConfig(max_tokens=tokens), None).target_tokens == int(
        tokens * share
    )


@pytest.mark.parametrize("strategy", ["window", "token_buffer"])
def test_presets_that_keep_what_fits_have_no_lower_target(strategy):
    budget = resolve_budget(MemoryConfig(strategy=strategy, max_tokens=200_000), None)
    assert budget.target_tokens == 200_000


@given(st.integers(1, 2_000_000), st.integers(1, 2_000_000), st.sampled_from([None, 0.3, 0.5]))
def test_larger_window_never_has_a_smaller_part(one, other, ratio):
    given = {} if ratio is None else {"target_ratio": ratio}
    budgets = [
        resolve_budget(MemoryConfig(max_tokens=tokens, **given), None)
        for tokens in sorted((one, other))
    ]
    for name in ("target_tokens", "summary_tokens", "entry_tokens"):
        small, large = (getattr(budget, name) for budget in budgets)
        assert small <= large
    if ratio is not None:
        assert budgets[0].target_tokens == int(ratio * min(one, other))


def test_switch_to_a_model_with_a_price_step_lowers_its_contexts():
    class Knows:
        @hookimpl
        def memman_model_info(self, model: ModelRef) -> ModelInfo | None:
            return priced(50_000) if model.name == "acme-stepped" else WINDOW

    plugins = shared_plugins()
    plugins.register(Knows(), "knows-steps")
    try:
        with MemoryManager(model="acme-large", counter="chars4") as memory:
            for number in range(80):
                memory.add_user_message("s", f"{number} " + "word " * 1_250)
            assert memory.build_context("s").tokens.tokens > 100_000
            assert memory.build_context("s", model="acme-stepped").tokens.tokens <= 50_000
    finally:
        plugins._manager.unregister(name="knows-steps")
