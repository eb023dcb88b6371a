"""The prices of genai-prices' real table, and a session that is charged by them."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import genai_prices
import pytest
from genai_prices import types
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from memman_prices import memman_model_info, memman_prices
from memman_prices.table import _found

from memman import InvalidInput, MemoryManager, ModelInfo, Prices
from memman.counting.lookup import Models
from memman.counting.models import model_ref
from memman.plugins import shared_plugins


def priced(model: str) -> Prices | None:
    return memman_prices(model_ref(model))


def test_claude_has_all_prices_and_a_tier() -> None:
    prices = priced("claude-sonnet-4-5-20250929")
    assert prices is not None
    assert (prices.input, prices.output, prices.cache_read) == (3, 15, 0.3)
    assert (prices.cache_write, prices.cache_write_1h) == (3.75, 6)
    [tier] = prices.tiers
    assert (tier.above, tier.input, tier.output, tier.cache_read) == (200_000, 6, 22.5, 0.6)
    assert prices.source == f"genai-prices {genai_prices.__version__}"


@pytest.mark.parametrize(
    "spelling",
    [
        "gpt-5",
        "gpt-5-2025-08-07",
        "openai/gpt-5",
        "openai:gpt-5",
        "azure/gpt-5",
        "litellm/openai/gpt-5",
    ],
)
def test_every_spelling_of_a_model_has_its_price(spelling: str) -> None:
    prices = priced(spelling)
    assert prices is not None
    assert (prices.input, prices.output, prices.cache_read) == (1.25, 10, 0.125)
    assert (prices.cache_write, prices.cache_write_1h) == (None, None)


def test_regional_model_of_bedrock_has_its_own_price() -> None:
    regional = priced("us.anthropic.claude-sonnet-4-5-20250929-v1:0")
    assert regional is not None
    assert (regional.input, regional.cache_write_1h) == (3.3, 6.6)
    gateway = priced("openrouter/anthropic/claude-sonnet-4.5")
    assert gateway is not None
    assert gateway.input == 3


@pytest.mark.parametrize(
    "model",
    [
        "no-such-model", "claude-sonnet-4-99", "gpt-5-future", "azure/my-deployment", "ollama/llama3",
        "ft:gpt-4o-mini:org::id",
    ],
)  # fmt: skip
def test_unknown_model_has_no_price(model: str) -> None:
    assert priced(model) is None


@pytest.mark.parametrize(
    "model",
    [
        "perplexity/sonar", "perplexity/sonar-pro", "perplexity/sonar-deep-research", "gpt-realtime",
        "gemini-2.5-flash-image", "deepseek-chat", "azure/eu/gpt-4o",
        "vertex_ai/us-east5/claude-sonnet-4-5",
    ],
)  # fmt: skip
def test_price_that_usage_does_not_decide_is_no_price(model: str) -> None:
    assert _found(model_ref(model)) is not None
    assert priced(model) is None


@pytest.mark.parametrize("mark", [":", "/"])
@pytest.mark.parametrize(
    ("server", "model", "expected"),
    [
        ("openrouter", "anthropic/claude-sonnet-4.5", (3, 15)),
        ("groq", "openai/gpt-oss-120b", (0.15, 0.6)),
        ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", (3.3, 16.5)),
        ("bedrock", "global.anthropic.claude-sonnet-4-5-20250929-v1:0", (3, 15)),
        ("google-gla", "gemini-2.5-pro", (1.25, 10)),
    ],
)
def test_server_before_a_model_is_not_its_vendor(
    mark: str, server: str, model: str, expected: tuple[float, float]
) -> None:
    prices = priced(f"{server}{mark}{model}")
    assert prices is not None
    assert (prices.input, prices.output) == expected


def _snapshot(*prices: types.ConditionalPrice) -> DataSnapshot:
    model = types.ModelInfo(id="m", match=types.ClauseEquals("m"), prices=list(prices))
    provider = types.Provider(id="p", name="P", api_pattern="", models=[model])
    provider.model_match = types.ClauseEquals("m")
    return DataSnapshot([provider], from_auto_update=False)


@pytest.fixture
def custom(request: pytest.FixtureRequest) -> object:
    set_custom_snapshot(request.param)
    yield
    set_custom_snapshot(None)


_CHEAP = types.ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(2))
_DEAR = types.ModelPrice(input_mtok=Decimal(3), output_mtok=Decimal(4))
_NIGHT = types.TimeOfDateConstraint(
    datetime(2026, 1, 1, 0, tzinfo=UTC).timetz(), datetime(2026, 1, 1, 8, tzinfo=UTC).timetz()
)


@pytest.mark.parametrize(
    "custom",
    [
        _snapshot(
            types.ConditionalPrice(prices=_DEAR), types.ConditionalPrice(_NIGHT, prices=_CHEAP)
        )
    ],
    indirect=True,
)
def test_price_by_the_hour_is_no_price(custom: object) -> None:
    assert priced("m") is None


_PAST = types.StartDateConstraint(datetime(2026, 3, 1, tzinfo=UTC).date())
_FUTURE = types.StartDateConstraint(datetime(9999, 1, 1, tzinfo=UTC).date())


@pytest.mark.parametrize(
    "custom",
    [
        _snapshot(
            types.ConditionalPrice(prices=_CHEAP),
            types.ConditionalPrice(_PAST, prices=_DEAR),
            types.ConditionalPrice(_FUTURE, prices=_CHEAP),
        )
    ],
    indirect=True,
)
def test_price_in_force_today_has_its_date(custom: object) -> None:
    prices = priced("m")
    assert prices is not None
    assert (prices.input, prices.output, prices.date) == (3, 4, "2026-03-01")


@pytest.mark.parametrize(
    "custom",
    [_snapshot(types.ConditionalPrice(prices=types.ModelPrice(input_mtok=Decimal(1))))],
    indirect=True,
)
def test_price_without_output_is_no_price(custom: object) -> None:
    assert priced("m") is None


def _spent(memory: MemoryManager) -> float | None:
    memory.add_user_message("s", "Hello")
    memory.build_context("s")
    memory.record_usage("s", input_tokens=1_000_000, output_tokens=1_000_000)
    spend = memory.get_stats("s").spend
    return None if spend is None else spend.total


def test_session_is_charged_and_own_prices_win() -> None:
    assert _spent(MemoryManager(model="claude-sonnet-4-5")) == pytest.approx(6 + 22.5)
    assert _spent(MemoryManager(model="no-such-model")) is None
    own = ModelInfo(200_000, 200_000, 8_000, prices=Prices(input=7.0, output=9.0))
    assert _spent(MemoryManager(model="claude-sonnet-4-5", model_info=own)) == pytest.approx(16)


def test_own_table_wins_over_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "prices.json"
    own.write_text(
        '{"anthropic/claude-sonnet-4.5": {"input": 1, "output": 2, "date": "2026-11-01"}}'
    )
    monkeypatch.setenv("MEMMAN_PRICES", str(own))
    prices = priced("us.anthropic.claude-sonnet-4-5-20250929-v1:0")
    assert prices == Prices(input=1, output=2, source=str(own), date="2026-11-01")
    assert priced("gpt-5") is not None
    assert _spent(MemoryManager(model="claude-sonnet-4-5")) == pytest.approx(3)


BROKEN = ("{", '{"m": {"input": 1}}', '{"m": {"input": -1, "output": 2}}')


@pytest.mark.parametrize("text", [*BROKEN, None])
def test_unreadable_own_table_is_named(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session goes on without a figure."""
    own = tmp_path / "prices.json"
    if text is not None:
        own.write_text(text)
    monkeypatch.setenv("MEMMAN_PRICES", str(own))
    with pytest.raises(InvalidInput, match=r"MEMMAN_PRICES names '.*prices.json'"):
        priced("gpt-5")
    assert _spent(MemoryManager(model="gpt-5")) is None


@pytest.mark.parametrize("text", [None, *(pytest.param(t, marks=pytest.mark.long) for t in BROKEN)])
def test_warning_names_an_unreadable_own_table(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "prices.json").write_text(text)
    monkeypatch.setenv("MEMMAN_PRICES", str(tmp_path / "prices.json"))
    program = (
        "from memman.plugins import shared_plugins; from memman.counting.lookup import Models;"
    )
    program += "print(Models(shared_plugins).prices('gpt-5'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "None\n"
    assert "MEMMAN_PRICES names" in done.stderr


def test_table_is_loaded_at_the_first_price() -> None:
    # Without max_tokens its price step would be looked up for the trigger.
    program = (
        "import sys; from memman import MemoryConfig, MemoryManager;"
        "m = MemoryManager(model='gpt-5', config=MemoryConfig(max_tokens=9_000));"
        "m.add_user_message('s', 'x'); m.build_context('s'); assert 'genai_prices' not in sys.modules;"
        "m.record_usage('s', input_tokens=9, output_tokens=9); assert 'genai_prices' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_prices_come_without_a_request() -> None:
    program = (
        "import sys; seen = [];"
        "sys.addaudithook(lambda name, _: name.startswith('socket.') and seen.append(name));"
        "from memman_prices import memman_prices; from memman.providers import model_ref;"
        "assert memman_prices(model_ref('gpt-5')).input == 1.25;"
        "assert memman_prices(model_ref('no-such')) is None;"
        "assert seen == [], seen; import socket; socket.socket(); assert seen"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_window_of_an_unlisted_model_is_the_packages() -> None:
    info = memman_model_info(model_ref("openai/gpt-oss-20b"))
    assert info == ModelInfo(131_072, 131_072, 131_072, f"genai-prices {genai_prices.__version__}")
    assert Models(shared_plugins).info("openai/gpt-oss-20b") == info


@pytest.mark.parametrize("model", ["gpt-5", "ollama/gpt-oss:20b", "qwen3:8b", "no-such-model"])
def test_listed_or_unknown_model_has_no_window_here(model: str) -> None:
    assert memman_model_info(model_ref(model)) is None


@pytest.mark.parametrize("custom", [_snapshot()], indirect=True)
def test_model_without_a_window_has_none(custom: object) -> None:
    assert memman_model_info(model_ref("m")) is None
