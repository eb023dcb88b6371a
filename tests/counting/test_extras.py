"""The parts of a message besides its text are priced as providers bill them."""

from __future__ import annotations

from typing import Any

import pytest

from memman import MemoryManager

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PLAIN = {"role": "assistant", "content": "", "tool_calls": [CALL]}
SECRET = "gAAAAABo" * 200


def tokens_of(message: dict[str, Any], form: str, model: str = "gpt-5") -> int:
    memory = MemoryManager(model=model, counter="estimate")
    return sum(
        entry.token_count.tokens for entry in memory.add_messages("s", [message], format=form)
    )


@pytest.mark.parametrize(
    ("form", "plain", "marked"),
    [
        (
            "openai-chat",
            {"role": "user", "content": "hi"},
            {"cache_control": {"type": "ephemeral"}},
        ),
        (
            "anthropic",
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        ),
        ("openai-chat", PLAIN, {"tool_calls": [CALL | {"cache_control": {"type": "ephemeral"}}]}),
    ],
    ids=["message", "block", "call"],
)
def test_cache_mark_costs_nothing(form: str, plain: dict[str, Any], marked: dict[str, Any]) -> None:
    assert tokens_of(plain | marked, form) == tokens_of(plain, form)


def test_encrypted_reasoning_of_a_gateway_costs_nothing() -> None:
    details = [{"type": "reasoning.encrypted", "data": SECRET, "format": "openai-responses-v1"}]
    assert tokens_of(PLAIN | {"reasoning_details": details}, "openai-chat") == tokens_of(
        PLAIN, "openai-chat"
    )


def test_repeated_reasoning_text_is_counted_once() -> None:
    thought = "The user wants the weather, so I ask the tool. " * 6
    once = tokens_of(PLAIN | {"reasoning_content": thought}, "openai-chat")
    details = [{"type": "reasoning.text", "text": thought, "signature": SECRET, "index": 0}]
    again = PLAIN | {
        "reasoning": thought, "reasoning_content": thought, "reasoning_details": details,
    }  # fmt: skip
    assert tokens_of(again, "openai-chat") == once
    assert 60 <= once - tokens_of(PLAIN, "openai-chat") <= 100


def test_encrypted_reasoning_costs_the_tokens_openai_bills() -> None:
    """OpenAI billed 1,216 tokens for 5,580 characters, 187 for 1,932 and 57 for 1,252."""
    for characters, billed in ((5_580, 1_216), (1_932, 187), (1_252, 57)):
        item = {"type": "reasoning", "id": "rs_1", "encrypted_content": "x" * characters,
                "summary": [{"type": "summary_text", "text": "hm " * 900}]}  # fmt: skip
        assert billed <= tokens_of(item, "openai-responses") <= billed + 270


def test_signature_of_a_thought_costs_nothing_besides_its_text() -> None:
    block = {"type": "thinking", "thinking": "The tool knows the weather.", "signature": ""}
    bare = {"role": "assistant", "content": [block, {"type": "text", "text": "It is fine."}]}
    signed = {**bare, "content": [block | {"signature": SECRET}, bare["content"][1]]}  # type: ignore[index]
    assert tokens_of(signed, "anthropic") == tokens_of(bare, "anthropic")


def test_thought_signature_costs_what_gemini_bills() -> None:
    """Google billed 37 tokens for 428 characters and 51 for 508."""
    call = {"functionCall": {"name": "f", "args": {}}}
    plain = tokens_of({"role": "model", "parts": [call]}, "gemini", "gemini-2.5-flash")
    for characters, billed in ((428, 37), (508, 51)):
        part = {**call, "thoughtSignature": "x" * characters}
        signed = tokens_of({"role": "model", "parts": [part]}, "gemini", "gemini-2.5-flash")
        assert billed <= signed - plain <= billed + 30


def test_web_search_results_cost_their_encrypted_text() -> None:
    """Anthropic bills the encrypted text of search results as content."""
    result = {"type": "web_search_tool_result", "tool_use_id": "c", "content": [
        {"type": "web_search_result", "title": "T", "url": "u", "encrypted_content": SECRET}]}  # fmt: skip
    message = {"role": "assistant", "content": [result, {"type": "text", "text": "It is fine."}]}
    assert len(SECRET) // 6 < tokens_of(message, "anthropic") < len(SECRET) // 3
