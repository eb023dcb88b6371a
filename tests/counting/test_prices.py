"""Prices of models: their checks, their tiers, and the order of their sources."""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec
import pytest

from memman import InvalidInput, MemoryManager, ModelInfo, ModelRef, Prices, PriceTier, hookimpl
from memman.counting.lookup import Models
from memman.plugins import shared_plugins

PRICES = Prices(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75, cache_write_1h=6.0)


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf, "3", None, True])
def test_price_that_is_no_amount_is_refused(amount: Any) -> None:
    with pytest.raises(InvalidInput, match="US dollars"):
        Prices(input=amount, output=1.0)
    with pytest.raises(InvalidInput, match="US dollars"):
        PriceTier(above=1, input=1.0, output=amount)


@pytest.mark.parametrize(
    "tiers", [[PriceTier(above=1, input=1, output=1)], (1,), (PriceTier(above=1, input=1, output=1),) * 2]
)  # fmt: skip
def test_tiers_out_of_order_are_refused(tiers: Any) -> None:
    with pytest.raises(InvalidInput, match="tiers must"):
        Prices(input=1.0, output=1.0, tiers=tiers)


@pytest.mark.parametrize("above", [0, -1, 1.5, True, None])
def test_tier_without_a_bound_is_refused(above: Any) -> None:
    with pytest.raises(InvalidInput, match="a tier begins"):
        PriceTier(above=above, input=1.0, output=1.0)


def test_mutated_table_is_refused() -> None:
    payload = msgspec.json.encode(PRICES).replace(b"0.3", b"-0.3")
    with pytest.raises(msgspec.ValidationError, match=r"cache_read is -0\.3"):
        msgspec.json.decode(payload, type=Prices)
    with pytest.raises(InvalidInput):
        msgspec.structs.replace(PRICES, cache_read=-1.0)


def test_tier_is_that_of_the_whole_request() -> None:
    long = PriceTier(above=200_000, input=6.0, output=22.5)
    longer = PriceTier(above=400_000, input=9.0, output=30.0)
    prices = msgspec.structs.replace(PRICES, tiers=(long, longer))
    assert prices.at(0) is prices.at(200_000) is prices
    assert prices.at(200_001) is prices.at(400_000) is long
    assert prices.at(400_001) is longer


class Source:
    def __init__(self, answer: Any, info: ModelInfo | None = None) -> None:
        self.answer, self.info = answer, info

    @hookimpl
    def memman_prices(self, model: ModelRef) -> Any:
        return self.answer if model.name == "acme-large" else None

    @hookimpl
    def memman_model_info(self, model: ModelRef) -> ModelInfo | None:
        return self.info


def test_plugin_gives_prices(hooked: Any) -> None:
    hooked(Source(PRICES))
    models = Models(shared_plugins)
    assert models.prices("openai/acme-large") == PRICES
    assert models.prices("no-such-model") is None


@pytest.mark.parametrize("answer", [3.0, {"input": 3.0}])
def test_wrong_answer_of_a_plugin_is_logged(
    hooked: Any, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hooked(Source(answer))
    with caplog.at_level(logging.WARNING, "memman"):
        assert Models(shared_plugins).prices("acme-large") is None
    assert "memman_prices" in caplog.text


def test_prices_of_the_limits_precede_the_hook(hooked: Any) -> None:
    own = Prices(input=1.0, output=2.0)
    hooked(Source(PRICES, ModelInfo(1000, 1000, 100, prices=own)))
    assert Models(shared_plugins).prices("acme-large") == own


def test_prices_survive_a_learned_limit() -> None:
    info = ModelInfo(10_000, 10_000, 100, prices=PRICES)
    memory = MemoryManager(model="own-model", model_info=info)
    result = memory.record_overflow("This model's maximum context length is 8000 tokens")
    assert result.limits is not None
    assert result.limits.context == 8_000
    assert result.limits.prices == PRICES


def test_prices_of_another_type_are_refused() -> None:
    info = ModelInfo(1000, 1000, 100, prices=3.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="Prices"):
        MemoryManager(model="own-model", model_info=info)
