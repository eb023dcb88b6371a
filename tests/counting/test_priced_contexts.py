"""The tokens of a context are those of the request by the model's own formula."""

from __future__ import annotations

from typing import Any

import pytest
from memman_tiktoken.vocabulary import encoding

from benchmarks.request_prices import price_request
from memman import MemoryConfig, MemoryManager
from memman.counting.framing import framing_in
from memman.counting.models import model_ref
from memman.protocols import Framing

WORDS = "the parser reads a line, splits it at the colon and keeps the first half; "
TOOL = {
    "name": "read_file",
    "description": "Reads a text file of the project and returns what stands in it.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Where the file is."}},
        "required": ["path"],
    },
}
CHAT_TOOLS = [{"type": "function", "function": TOOL}]
ANTHROPIC_TOOLS = [{**TOOL, "input_schema": TOOL["parameters"]}]
SYSTEM = "You review a small Python project. Be brief, and name the file and the line."


def chat(messages: list[Any], system: str | None, tools: list[Any]) -> dict[str, Any]:
    return {"messages": messages, **({"tools": tools} if tools else {})}


def anthropic(messages: list[Any], system: str | None, tools: list[Any]) -> dict[str, Any]:
    return {"messages": messages, "system": system or [], **({"tools": tools} if tools else {})}


def responses(messages: list[Any], system: str | None, tools: list[Any]) -> dict[str, Any]:
    return {"input": messages, **({"tools": tools} if tools else {})}


def gemini(messages: list[Any], system: str | None, tools: list[Any]) -> dict[str, Any]:
    head = {"systemInstruction": {"parts": [{"text": system}]}} if system else {}
    declared = [{"functionDeclarations": [tool["function"] for tool in tools]}] if tools else []
    return {"contents": messages, **head, "tools": declared}


CASES = [
    ("gpt-4o", "openai-chat", chat, CHAT_TOOLS),
    ("gpt-4.1-mini", "openai-chat", chat, CHAT_TOOLS),
    ("gpt-5", "openai-responses", responses, [{"type": "function", **TOOL}]),
    ("claude-sonnet-4-5", "anthropic", anthropic, ANTHROPIC_TOOLS),
    ("claude-3-5-haiku", "anthropic", anthropic, ANTHROPIC_TOOLS),
    ("gemini-2.5-pro", "gemini", gemini, CHAT_TOOLS),
]


def talk(memory: MemoryManager) -> None:
    memory.add_system_message("s", SYSTEM)
    for turn in range(6):
        memory.add_user_message("s", f"{turn}. {WORDS * 3}")
        memory.add_tool_call(
            "s", "read_file", {"path": f"src/module_{turn}.py"}, call_id=f"c{turn}"
        )
        memory.add_tool_result("s", "read_file", f"{turn}: {WORDS * 12}", call_id=f"c{turn}")
        memory.add_assistant_message("s", f"It is fine: {WORDS * 2}")


@pytest.mark.parametrize("with_tools", [False, True])
@pytest.mark.parametrize(("model", "form", "body", "tools"), CASES)
def test_a_context_is_priced_as_its_request_is(
    model: str, form: str, body: Any, tools: list[Any], with_tools: bool
) -> None:
    with MemoryManager(model=model, config=MemoryConfig(max_tokens=100_000)) as memory:
        talk(memory)
        given = tools if with_tools else None
        context = memory.build_context("s", format=form, tools=given)
        request = body(context.messages, context.system, given or [])
        ref = model_ref(model)
        counter = memory._core.resolver.counter(memory._core.shared.config)
        priced = price_request(request, ref, counter._each)
        assert context.tokens.tokens == pytest.approx(priced, rel=0.01)
        counted = memory.count_tokens(context.messages, system=context.system, tools=given)
        assert counted.tokens == pytest.approx(context.tokens.tokens, rel=0.01)


def test_tools_are_priced_as_billed_not_by_their_json() -> None:
    with MemoryManager(model="claude-sonnet-4-5") as memory:
        memory.add_user_message("s", "hello")
        without = memory.build_context("s", format="anthropic").tokens.tokens
        context = memory.build_context("s", format="anthropic", tools=ANTHROPIC_TOOLS)
    framing = framing_in(model_ref("claude-sonnet-4-5"), "anthropic")
    assert framing is not None
    assert context.breakdown["tools"] > framing.preamble
    assert context.tokens.tokens == without + context.breakdown["tools"]


def test_framing_of_unknown_models_and_formats_is_unknown() -> None:
    assert framing_in(None, "openai-chat") is None
    assert framing_in(model_ref("acme-1"), "openai-chat") is None
    assert framing_in(model_ref("gpt-4o"), "text") is None
    assert framing_in(model_ref("gpt-4o"), "anthropic") is None
    known = framing_in(model_ref("gpt-4o"), "openai-chat")
    assert isinstance(known, Framing)
    assert (known.request, known.message) == (3, 4)


def test_a_plain_conversation_with_gpt_4o_is_exact() -> None:
    texts = ["You are terse.", "What is a window?", "What a model can read at once."]
    with MemoryManager(model="gpt-4o") as memory:
        memory.add_system_message("s", texts[0])
        memory.add_user_message("s", texts[1])
        memory.add_assistant_message("s", texts[2])
        tokens = memory.build_context("s").tokens.tokens
    encode = encoding("o200k_base").encode_ordinary
    assert tokens == 3 + sum(4 + len(encode(text)) for text in texts)
