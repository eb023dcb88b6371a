"""The sentence of a plan about what the settings do to the bill."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from memman import MemoryConfig, MemoryManager
from memman.session import settings_price
from memman.session.settings_price import price_of_settings

COST = Path(__file__).parents[2] / "docs/explanation/cost.md"


def dollars(policy: str) -> float:
    """Return Anthropic's bill of a row of the grid at 64,000 tokens."""
    [row] = re.findall(rf"^\| \**{re.escape(policy)} [^|]*\|(.*)\|$", _grid(), re.MULTILINE)
    return float(row.split("|")[5].strip(" $*"))


def _grid() -> str:
    return COST.read_text().partition("## The price of the settings")[2].partition("##")[0]


@pytest.mark.parametrize("strategy", ["window", "window(9)", "token_buffer"])
def test_sliding_preset_has_its_price(strategy: str) -> None:
    assert price_of_settings(MemoryConfig(strategy=strategy)) == (
        f"'{strategy}' breaks the provider's prompt cache at most messages: at 64,000 tokens a "
        "sliding window cost 2.6 times as much as 'default' (docs/explanation/cost.md)"
    )


@pytest.mark.parametrize(
    ("target", "change"),
    [
        (0.3, "2 % less"),
        (0.31, "2 % less"),
        (0.2, "6 % less"),
        (0.5, "5 % more"),
        (0.7, "14 % more"),
    ],
)
def test_other_target_has_its_price(target: float, change: str) -> None:
    found = price_of_settings(MemoryConfig(target_ratio=target))
    assert f"cost {change} than the default, 0.35 (docs/" in found


def test_other_recent_window_hardly_matters() -> None:
    found = price_of_settings(MemoryConfig(recent_window=30))
    assert found.startswith("recent_window hardly changes the bill")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_tokens": 8_000},
        {"target_ratio": 0.36},
        {"recent_window": 90},
        {"strategy": "buffer"},
        {"strategy": "summary"},
        {"strategy": "summary_buffer"},
        {"strategy": "token_buffer", "target_ratio": 0.5},
        {"strategy": ("summarise",), "target_ratio": 0.3},
    ],
    ids=str,
)
def test_other_settings_have_no_sentence(settings: dict[str, Any]) -> None:
    assert price_of_settings(MemoryConfig(**settings)) == ""


def test_figures_are_those_of_the_documentation() -> None:
    default = dollars("`target_ratio=0.35`")
    assert round(dollars("`token_buffer`") / default, 1) == settings_price._SLIDING
    for target, percent in settings_price._TARGETS.items():
        row = f"`target_ratio={target}`"
        assert round(100 * (dollars(row) / default - 1)) == percent
    half = dollars("`target_ratio=0.5`")
    for size in settings_price._WINDOWS:
        assert abs(dollars(f"`target_ratio=0.5`, `recent_window={size}`") / half - 1) < 0.01


def test_plan_has_the_sentence() -> None:
    for settings in ({}, {"target_ratio": 0.3}):
        config = MemoryConfig(max_tokens=8_000, **settings)
        memory = MemoryManager(config=config)
        memory.add_user_message("s", "Hello")
        assert memory.plan_compression("s").bill == price_of_settings(config)
