"""A manager learns a model's limit from a refusal, and its thresholds follow."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from memman import (
    AsyncMemoryManager,
    ConfigError,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
    ModelInfo,
    OverflowResult,
    hookimpl,
)
from memman.display import warn_once
from memman.plugins import shared_plugins

TODAY = datetime(2026, 11, 21, tzinfo=UTC)
LIMIT = "This model's maximum context length is 8192 tokens."
CONTEXT = f"{LIMIT} However, your messages resulted in 9000 tokens."
INPUT = "prompt is too long: 213462 tokens > 100000 maximum"
RATE = "Rate limit reached on tokens per min (TPM): Limit 8192, Requested 9000"


def manager(model: str | None = None, **settings: object) -> MemoryManager:
    config = MemoryConfig(**settings) if settings else None  # type: ignore[arg-type]
    memory = MemoryManager(model=model, counter="chars4", config=config, clock=lambda: TODAY)
    memory.add_user_message("s", "x")
    return memory


def trigger(memory: MemoryManager, session: str = "s") -> int:
    return memory.get_stats(session).max_tokens


@pytest.mark.parametrize(
    ("model", "threshold"),
    [
        ("gpt-4o", int(0.8 * (128_000 - 16_384))),  # room for the largest reply
        ("gpt-5", 200_000),  # 0.8 of its input is more
        ("o3", int(0.8 * (200_000 - 70_000))),  # at most 35 % for the reply
        ("azure/my-gpt-4o-prod", 50_000),
        (None, 50_000),
    ],
)
def test_the_threshold_follows_from_the_limits(model: str | None, threshold: int) -> None:
    memory = manager(model)
    assert trigger(memory) == memory.build_context("s").budget == threshold
    assert (memory.get_stats("s").max_entries is None) == (threshold != 50_000)


def test_an_unknown_model_gets_the_limit_that_its_provider_named() -> None:
    memory = manager("my-deployment")
    assert (trigger(memory), memory.get_stats("s").max_entries) == (50_000, 100)
    result = memory.record_overflow(ValueError(CONTEXT))
    assert (result.overflow, result.requested) == (True, 9_000)
    assert result.limits == ModelInfo(8_192, 8_192, 8_192, "the provider's error", "2026-11-21")
    # 80 % of the context less 35 % of it for the reply
    assert (trigger(memory), memory.get_stats("s").max_entries) == (4_260, None)


def test_learned_limit_overrides_the_table_up_and_down() -> None:
    memory = manager("gpt-4o")
    assert trigger(memory) == int(0.8 * (128_000 - 16_384))
    memory.record_overflow(CONTEXT)
    assert trigger(memory) == int(0.8 * (8_192 - int(0.35 * 8_192)))
    memory.record_overflow(CONTEXT.replace("8192", "256000"))
    assert trigger(memory) == int(0.8 * (256_000 - 8_192))


def test_a_limit_of_the_input_leaves_a_larger_context_as_it_is() -> None:
    memory = manager("gpt-5")  # context 400,000, input 272,000, output 128,000
    learned = memory.record_overflow(INPUT).limits
    assert learned is not None
    assert (learned.context, learned.max_input, learned.max_output) == (400_000, 100_000, 128_000)
    assert trigger(memory) == 80_000


def test_input_limit_is_the_context_without_one_of_its_own() -> None:
    memory = manager("claude-sonnet-4-5")
    learned = memory.record_overflow(INPUT).limits
    assert learned is not None
    assert (learned.context, learned.max_input, learned.max_output) == (100_000, 100_000, 64_000)


def test_every_spelling_of_the_model_follows_and_no_other_model() -> None:
    memory = manager()
    memory.record_overflow(CONTEXT, model="azure/gpt-4o")
    budgets = {
        model: memory.build_context("s", model=model).budget
        for model in ("AZURE/gpt-4o", "litellm/azure/gpt-4o", "gpt-4o", "azure/gpt-4o-mini")
    }
    assert budgets["AZURE/gpt-4o"] == budgets["litellm/azure/gpt-4o"] < 8_192
    assert budgets["gpt-4o"] == budgets["azure/gpt-4o-mini"] == int(0.8 * (128_000 - 16_384))


def test_sessions_with_a_model_of_their_own_follow_too() -> None:
    memory = manager()
    memory.update_config("s", model="my-deployment")
    memory.record_overflow(CONTEXT, model="my-deployment")
    assert trigger(memory) == 4_260


def test_another_manager_does_not_follow() -> None:
    manager("my-deployment").record_overflow(CONTEXT)
    assert trigger(manager("my-deployment")) == 50_000


def test_the_next_add_compresses_to_the_limit_that_was_learned() -> None:
    memory = manager("my-deployment")
    for number in range(40):
        memory.add_user_message("s", f"{number} " + "words and more words " * 40)
    before = memory.get_stats("s").active_tokens
    memory.record_overflow(CONTEXT)
    memory.add_user_message("s", "go on")
    assert before > 4_260 >= memory.get_stats("s").active_tokens
    assert len(memory.get_entries("s")) == 42


def test_a_learned_limit_lowers_max_tokens_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_once.cache_clear()
    memory = manager("my-deployment", max_tokens=20_000)
    assert memory.record_overflow(CONTEXT).overflow
    usable = 8_192 - int(0.35 * 8_192)
    assert trigger(memory) == memory.build_context("s").budget == usable
    learned, record = caplog.records
    assert "at most 8192 tokens of input from now on" in learned.getMessage()
    assert f"max_tokens=20000 is more than the {usable} input tokens" in record.getMessage()


@pytest.mark.parametrize("error", [RATE, ValueError(RATE), "no such model", "", "Overloaded"])
def test_other_errors_are_no_overflow(error: str | Exception) -> None:
    memory = manager("my-deployment")
    assert memory.record_overflow(error) == OverflowResult(overflow=False)
    assert trigger(memory) == 50_000


@pytest.mark.parametrize(
    "error",
    [
        "Input is too long for requested model.",
        "Error code: 400 - {'error': {'code': 'context_length_exceeded'}}",
        "prompt is too long",
    ],
)
def test_overflow_without_a_number_shortens_the_budget(error: str) -> None:
    memory = manager("my-deployment")
    found = memory.record_overflow(error, tokens=20_000)
    assert found.limits is not None
    assert found.limits.max_input == 15_000
    assert trigger(memory) == 12_000
    memory.record_overflow(error, tokens=20_000)  # another request, sent at the same time
    assert trigger(memory) == 12_000
    memory.record_overflow(error, tokens=30_000)
    assert trigger(memory) == 12_000


@pytest.mark.parametrize("tokens", [0, -1, 1.5, True, "many"])
def test_tokens_of_a_refused_request_are_a_number(tokens: object) -> None:
    with pytest.raises(InvalidInput, match="tokens must be a number of tokens"):
        manager("gpt-4o").record_overflow("prompt is too long", tokens=tokens)  # type: ignore[arg-type]


def test_limit_that_contradicts_settings_changes_nothing() -> None:
    memory = manager("my-deployment", reserve_output=10_000)
    with pytest.raises(ConfigError, match="reserve_output=10000"):
        memory.record_overflow(CONTEXT)
    assert trigger(memory) == 50_000
    memory.update_config("s", max_tokens=9)
    assert memory.record_overflow(CONTEXT.replace("8192", "20000")).limits is not None


@pytest.mark.parametrize("error", [None, 5, b"prompt is too long", ValueError])
def test_object_that_is_not_an_error_is_refused(error: object) -> None:
    with pytest.raises(InvalidInput, match="exception or its text"):
        manager("gpt-4o").record_overflow(error)  # type: ignore[arg-type]


def test_limit_without_a_model_is_that_of_requests_without_one() -> None:
    memory = manager()
    assert memory.record_overflow(CONTEXT).limits is not None
    assert trigger(memory) < 8_192


def test_plugin_limits_rank_between_learned_and_table() -> None:
    class Knows:
        @hookimpl
        def memman_model_info(self, model: object) -> ModelInfo:
            return ModelInfo(64_000, 64_000, 4_000)

    shared_plugins().register(Knows(), "knows-limits")
    try:
        memory = manager("gpt-4o")
        assert trigger(memory) == 48_000
        learned = memory.record_overflow(CONTEXT).limits
        assert learned is not None
        assert learned.max_output == 4_000
        assert trigger(memory) == int(0.8 * (8_192 - int(0.35 * 8_192)))
    finally:
        shared_plugins()._manager.unregister(name="knows-limits")


def test_the_async_manager_learns_the_same() -> None:
    async def learned() -> tuple[OverflowResult, int]:
        async with AsyncMemoryManager(model="my-deployment", clock=lambda: TODAY) as memory:
            await memory.add_user_message("s", "x")
            info = await memory.record_overflow(CONTEXT)
            return info, (await memory.get_stats("s")).max_tokens

    info, threshold = asyncio.run(learned())
    assert info == manager("my-deployment").record_overflow(CONTEXT)
    assert threshold == 4_260
