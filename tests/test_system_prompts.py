"""A system prompt may be a text, Anthropic's blocks, or Gemini's `Content`."""

from __future__ import annotations

from typing import Any

import pytest

from memman import InvalidInput, MemoryManager

BLOCKS = [
    {"type": "text", "text": "Be brief."},
    {"type": "text", "text": "Never guess.", "cache_control": {"type": "ephemeral"}},
]
CONTENT = {"parts": [{"text": "Be brief."}, {"text": "Never guess."}], "role": "user"}
TEXT = "Be brief.\n\nNever guess."


def of_google() -> Any:
    types = pytest.importorskip("google.genai.types")
    return types.Content(parts=[types.Part(text="Be brief."), types.Part(text="Never guess.")])


@pytest.mark.parametrize(
    "given",
    [BLOCKS, CONTENT, of_google, ["Be brief.", "Never guess."], {"parts": [{"text": TEXT}]}],
    ids=["blocks", "dict", "Content", "texts", "one part"],
)
@pytest.mark.parametrize("format", ["anthropic", "openai-chat"])
def test_system_prompts_of_sdks_are_read(given: Any, format: str) -> None:
    system = given() if callable(given) else given
    memory = MemoryManager(counter="chars4", format=format)
    memory.add_user_message("s", "Hello")
    context = memory.build_context("s", system=system)
    plain = memory.build_context("s", system=TEXT)
    assert (context.system, context.messages) == (plain.system, plain.messages)
    counted = memory.count_tokens("Hello", system=system).tokens
    assert counted == memory.count_tokens("Hello", system=TEXT).tokens


@pytest.mark.parametrize(
    "system", [7, [], [{"type": "image", "source": {}}], {"parts": None}, b"x", [[TEXT]], [TEXT, 7]]
)
def test_other_system_prompts_are_refused(system: Any) -> None:
    memory = MemoryManager(counter="chars4")
    memory.add_user_message("s", "Hello")
    with pytest.raises(InvalidInput, match="system must be"):
        memory.build_context("s", system=system)


@pytest.mark.parametrize("format", ["anthropic", "gemini", "openai-chat", "openai-responses"])
def test_a_prompt_that_is_not_inline_is_only_counted(format: str) -> None:
    memory = MemoryManager(counter="chars4", format=format)
    memory.add_system_message("s", "Never guess.")
    memory.add_user_message("s", "Hello")
    inline = memory.build_context("s", system="Be brief.")
    counted = memory.build_context("s", system="Be brief.", system_inline=False)
    without = memory.build_context("s")
    assert (counted.messages, counted.system) == (without.messages, without.system)
    assert counted.tokens == inline.tokens
    assert counted.breakdown == inline.breakdown
