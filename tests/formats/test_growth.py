"""Parsing and rendering grow with the conversation, not with its square."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from memman import MemoryConfig, MemoryManager
from memman.entries import NewEntry
from memman.formats import builtin_formats, format_named
from memman.formats.anthropic import AnthropicFormat
from memman.formats.bedrock import BedrockFormat
from memman.formats.gemini import GeminiFormat
from memman.formats.renderer import Rendering
from memman.testing.formats import window_of

SMALL = 1_000
Make = Callable[[int], Any]


def is_linear(work: Callable[[Any], Any], make: Make) -> bool:
    """Return whether four times as much takes about 4 times longer, not 16, in one of four tries."""

    def fastest(size: int) -> float:
        given = make(size)
        times = []
        for _ in range(2):
            began = process_time()
            work(given)
            times.append(process_time() - began)
        return min(times)

    return any(fastest(4 * SMALL) / fastest(SMALL) < 9 for _ in range(4))


def users(size: int) -> list[Any]:
    return [{"role": "user", "content": "u"}] * size


def replies(size: int) -> list[Any]:
    return [{"role": "user", "content": "q"}, *[{"role": "assistant", "content": "r"}] * size]


def orphans(size: int) -> list[Any]:
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": "r"} for n in range(size)]
    return [{"role": "user", "content": "q"}, *results]


@pytest.mark.parametrize("form", [each.name for each in builtin_formats()])
@pytest.mark.parametrize("make", [users, pytest.param(replies, marks=pytest.mark.long), orphans])
def test_rendering_one_role_is_linear(form: str, make: Make) -> None:
    def render(window: Any) -> None:
        rendering = Rendering(format_named(form), len)
        rendering.update(window)
        rendering.messages()

    def window(size: int) -> Any:
        return window_of(format_named("openai-chat").parse(make(size)))

    assert is_linear(render, window)


@pytest.mark.parametrize("of", [AnthropicFormat, BedrockFormat, GeminiFormat])
def test_joined_messages_are_copied_few_times(of: Any) -> None:
    copied = 0

    class Counted(of):  # type: ignore[misc]
        def join(self, left: Any, right: Any) -> Any:
            nonlocal copied
            joined = super().join(left, right)
            if joined is not None:
                copied += len(joined["parts" if of is GeminiFormat else "content"])
            return joined

    size = 4_096
    new_entries = [NewEntry(type="message", role="user", content="u")] * size
    rendering = Rendering(Counted(), len)
    rendering.update(window_of(new_entries))
    [message] = rendering.messages()
    assert len(message["parts" if of is GeminiFormat else "content"]) == size
    assert copied <= 16 * size


def unnamed_calls(size: int) -> list[Any]:
    calls = [
        {"type": "function", "function": {"name": f"t{n}", "arguments": "{}"}} for n in range(size)
    ]
    results = [{"role": "tool", "content": "r", "name": f"t{size - 1 - n}"} for n in range(size)]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def unnamed_results(size: int) -> list[Any]:
    return [{"role": one["role"], "content": "r"} if one["role"] == "tool" else one
            for one in unnamed_calls(size)]  # fmt: skip


@pytest.mark.parametrize("form", ["openai-chat", "mistral"])
@pytest.mark.parametrize("make", [unnamed_calls, unnamed_results])
def test_parsing_calls_without_ids_is_linear(form: str, make: Make) -> None:
    assert is_linear(format_named(form).parse, make)


def test_results_without_ids_find_their_calls_by_name_and_order() -> None:
    calls = [{"type": "function", "function": {"name": n, "arguments": "{}"}} for n in "abac"]
    named = [
        {"role": "tool", "content": "r", **({"name": n} if n else {})} for n in ("a", "", "", "")
    ]
    new_entries = format_named("openai-chat").parse(
        [{"role": "assistant", "content": None, "tool_calls": calls}, *named]
    )
    assert [new_entry.name for new_entry in new_entries[4:]] == ["a", "b", "a", "c"]


def test_naming_documents_alike_is_linear() -> None:
    def documents(size: int) -> Any:
        source = {"source": {"bytes": "aGk="}, "format": "pdf", "name": "same"}
        blocks = [{"document": source}, {"text": "see"}]
        return [{"role": "user", "content": blocks * size}]

    assert is_linear(BedrockFormat().frame, documents)


@pytest.mark.parametrize("form", ["anthropic", "bedrock", "gemini"])
def test_joined_rendering_grows_and_shrinks_with_the_window(form: str) -> None:
    """Rendering step by step equals rendering at once."""
    memory = MemoryManager(counter="chars4", config=MemoryConfig(auto_compress=False))
    entries = []
    for number in range(12):
        entries.append(memory.add_user_message("s", f"question {number}"))
        if number % 4 == 3:
            memory.delete_entries("s", [entries[number - 1].id])
        context = memory.build_context("s", format=form)
        other = MemoryManager(counter="chars4")
        other.import_session(memory.export_session("s"))
        assert context.messages == other.build_context("s", format=form).messages
    assert len(context.messages) == 1
