"""Limits, counts and learned limits belong to the model of each request."""

from __future__ import annotations

import logging

import pytest

from memman import ConfigError, MemoryConfig, MemoryManager, ModelInfo

S = "s"
SMALL, LARGE = "small-model", "large-model"
WINDOWS = {SMALL: ModelInfo(8_192, 8_192, 1_024), LARGE: ModelInfo(100_000, 100_000, 1_024)}
TOO_LONG = "context_length_exceeded"


def filled(memory: MemoryManager, turns: int = 60) -> MemoryManager:
    for turn in range(turns):
        memory.add_user_message(S, f"question {turn} " + "words of a question " * 30)
        memory.add_assistant_message(S, f"answer {turn} " + "words of an answer " * 30)
    return memory


def test_manager_without_model_takes_the_window_of_the_request():
    memory = MemoryManager(counter="chars4")
    filled(memory, 5)
    context = memory.build_context(S, model="gpt-4")  # 8,192 tokens
    assert context.budget < 8_192
    assert memory.get_stats(S).max_tokens == context.budget
    filled(memory)
    assert memory.get_stats(S).active_tokens <= context.budget


def test_known_window_of_a_request_is_its_limit():
    memory = filled(MemoryManager(counter="chars4"), 5)
    assert memory.build_context(S, model="no-such-model", window=8_192).budget < 8_192
    assert memory.build_context(S, model="gpt-4", window=4_096).budget < 4_096
    assert memory.build_context(S, model="gpt-4", window=1_000_000).budget < 4_096, "the smallest"


@pytest.mark.parametrize("window", [0, -1, 1.5, True, "many"])
def test_window_of_a_request_must_be_a_number_of_tokens(window):
    memory = filled(MemoryManager(counter="chars4"), 1)
    with pytest.raises(ValueError, match="window must be a number of tokens"):
        memory.build_context(S, model="gpt-4", window=window)


def test_max_tokens_lowers_the_budget_of_every_model():
    memory = filled(MemoryManager(config=MemoryConfig(max_tokens=3_000), counter="chars4"))
    assert memory.build_context(S, model=SMALL, window=8_192).budget == 3_000
    assert memory.build_context(S, model=LARGE, window=2_000).budget <= 2_000


def test_switch_to_a_smaller_window_is_summarized():
    memory = MemoryManager(
        model="gpt-4.1", counter="chars4", summarizer=lambda text: "The summary of old turns."
    )
    filled(memory, 100)
    assert not memory.get_summaries(S)
    for _ in range(5):
        memory.add_user_message(S, "go on")
        context = memory.build_context(S, model="gpt-4")
        memory.add_assistant_message(S, "done")
    assert memory.get_summaries(S)
    assert not context.trimmed


def test_models_that_take_turns_keep_their_windows():
    memory = MemoryManager(model="gpt-4.1", counter="chars4")
    filled(memory, 100)
    large = memory.build_context(S, model="gpt-4.1").tokens.tokens
    for turn in range(6):
        memory.add_user_message(S, f"go on {turn}")
        context = memory.build_context(S, model=("gpt-4", "gpt-4.1")[turn % 2])
        memory.add_assistant_message(S, "done")
    assert context.tokens.tokens > large


def test_unknown_model_of_a_request_is_one_warning_with_the_fix(caplog):
    memory = filled(MemoryManager(counter="chars4"), 2)
    with caplog.at_level(logging.WARNING, "memman"):
        for _ in range(3):
            memory.build_context(S, model="house-model-of-ours")
    [line] = [each.message for each in caplog.records if "house-model-of-ours" in each.message]
    assert "max_tokens=" in line


@pytest.mark.parametrize("model", [None, "house-model"])
def test_refusal_without_a_number_shortens_until_it_fits(model):
    memory = filled(MemoryManager(counter="chars4"), 100)
    refusals, context = 0, memory.build_context(S, model=model)
    while context.tokens.tokens > 8_192:
        found = memory.record_overflow(TOO_LONG, model=model, tokens=context.tokens.tokens)
        assert found.overflow
        assert found.limits is not None
        before, context = context, memory.build_context(S, model=model)
        assert context.tokens.tokens <= 0.75 * before.tokens.tokens
        refusals += 1
    assert 0 < refusals < 10
    filled(memory, 20)
    assert memory.build_context(S, model=model).tokens.tokens <= 8_192, "it stays known"


def test_refusal_without_a_number_and_tokens_shortens_the_budget():
    memory = filled(MemoryManager(counter="chars4"), 2)
    before = memory.build_context(S).budget
    memory.record_overflow(TOO_LONG)
    assert memory.build_context(S).budget <= 0.75 * before


def test_refusal_within_the_named_limit_shortens_too():
    memory = filled(MemoryManager(counter="chars4"), 100)
    tokens = memory.build_context(S, model="x").tokens.tokens
    text = f"maximum context length is {2 * tokens} tokens, you requested {3 * tokens} tokens"
    memory.record_overflow(text, model="x", tokens=tokens)
    assert memory.build_context(S, model="x").tokens.tokens <= 0.75 * tokens


def test_learned_limit_is_of_one_model_alone():
    memory = filled(MemoryManager(counter="chars4"), 100)
    before = memory.build_context(S, model="gpt-4.1")
    memory.record_overflow("maximum context length is 3000 tokens", model="small", tokens=9_000)
    assert memory.build_context(S, model="small").budget <= 3_000
    after = memory.build_context(S, model="gpt-4.1")
    assert (after.budget, len(after)) == (before.budget, len(before))


def test_limit_of_a_request_without_a_model_is_of_such_requests():
    memory = filled(MemoryManager(counter="chars4"), 100)
    memory.record_overflow("maximum context length is 3000 tokens")
    assert memory.build_context(S).budget <= 3_000
    assert memory.build_context(S, model="gpt-4.1").budget > 100_000


def test_reserve_larger_than_a_window_changes_nothing():
    memory = filled(MemoryManager(config=MemoryConfig(reserve_output=9_000), counter="chars4"), 2)
    with pytest.raises(ConfigError, match="reserve_output=9000 leaves nothing"):
        memory.build_context(S, model="x", window=8_192)
    assert memory.build_context(S).budget == 50_000
