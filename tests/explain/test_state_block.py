"""The outline in explanations, shares and events."""

from __future__ import annotations

from memman import MemoryManager, events
from memman.testing import record_events
from tests.explain.conversation import ORDER, PATH, manager, orders, talk


def compressed(**settings: float) -> MemoryManager:
    memory = manager("It left.", **settings)
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=700)
    return memory


def test_block_has_its_text_tokens_and_sections() -> None:
    memory = compressed()
    block = memory.explain("s").state
    assert block is not None
    assert block.seq == memory.explain("s").compressions[-1].seq
    assert block.text in memory.build_context("s", format="text").text
    assert block.sections == {
        "What was said and done, oldest first": 1,
        "Other exact values": 2,
    }
    assert f"outline: #{block.seq}, {block.tokens:,} tokens: What was said" in str(
        memory.explain("s")
    )


def test_block_is_counted_as_state() -> None:
    memory = compressed()
    explanation = memory.explain("s")
    assert explanation.state is not None
    assert explanation.shares.types["state"] == explanation.state.tokens
    assert sum(explanation.shares.types.values()) == explanation.shares.tokens
    assert memory.build_context("s").breakdown["state"] == explanation.state.tokens


def test_session_without_a_block_has_none() -> None:
    explanation = compressed(state_ratio=0).explain("s")
    assert explanation.state is None
    assert "state" not in explanation.shares.types
    assert "outline: " not in str(explanation)


def test_event_has_the_block_and_the_values_kept() -> None:
    memory = manager("It left.")
    orders(memory)
    talk(memory)
    with record_events(memory, [events.CompressionResult]) as received:
        result = memory.compress("s", target_tokens=700)
    assert received == [result]
    assert result.state is not None
    assert ORDER in result.state.text
    assert (result.values, result.values_kept) == (2, 2)
    assert "2 of 2 exact values kept" in repr(result)
    [status] = memory.explain("s").compressions
    assert (status.values, status.values_kept) == (2, 2)
    assert PATH in result.state.text


def test_result_without_a_block_has_no_values() -> None:
    memory = manager("It left.", state_ratio=0)
    orders(memory)
    talk(memory)
    result = memory.compress("s", target_tokens=700)
    assert (result.state, result.values, result.values_kept) == (None, 0, 0)
    assert "exact values" not in repr(result)


def test_plan_has_the_most_tokens_of_its_block() -> None:
    memory = manager("It left.", "It left.")
    orders(memory)
    talk(memory)
    plan = memory.plan_compression("s", target_tokens=700)
    memory.compress("s", target_tokens=700)
    block = memory.explain("s").state
    assert block is not None
    assert block.tokens <= plan.state_tokens <= plan.tokens_after
