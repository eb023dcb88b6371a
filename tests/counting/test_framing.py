"""The table of tokens that providers bill around texts, and the price of tools."""

import pytest

from memman.counting.framing import framing_of, rows
from memman.counting.models import families, model_ref
from memman.counting.tool_prices import price_tools

GPT_4O = model_ref("gpt-4o")
CLAUDE = model_ref("claude-sonnet-4-5")
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its name"},
            "unit": {"enum": ["C", "F"]},
            "days": {"type": "integer"},
        },
        "required": ["city"],
    },
}


def words(texts):
    """A counter with predictable counts: a token for each word."""
    return [len(text.split()) for text in texts]


@pytest.mark.parametrize("family", families())
def test_every_family_has_a_row_of_its_own(family):
    assert any(row.family == family for row in rows())


def test_every_row_has_the_source_and_date_of_its_figures():
    for row in rows():
        assert row.billing.source, row.billing.key
        assert row.billing.date, row.billing.key


def test_keys_are_unique_and_only_discounts_are_negative():
    keys = [row.billing.key for row in rows()]
    assert len(set(keys)) == len(keys)
    for billing in (row.billing for row in rows()):
        figures = (billing.text, billing.tools, billing.request, billing.message, billing.call,
                   billing.result, billing.tool, billing.preamble, billing.forced)  # fmt: skip
        assert all(figure >= 0 for figure in figures), billing.key
        assert 0.5 < billing.text < 2, billing.key


def test_an_unknown_model_gets_the_framing_of_chat_completions():
    unknown = framing_of(model_ref("somebodys-own-model"))
    assert (unknown.request, unknown.message, unknown.text) == (3, 4, 1)


def test_gateways_name_of_gpt_5_has_no_fixed_preamble():
    """OpenAI bills about 90 tokens before tools in chat completions; gateways bill about 5."""
    gateway = framing_of(model_ref("openrouter/openai/gpt-5"), "chat")
    assert framing_of(model_ref("openai/gpt-5"), "chat") == gateway
    assert gateway.preamble < 10 < framing_of(model_ref("gpt-5"), "chat").preamble


def test_kimi_of_one_vocabulary_differ_in_their_tools():
    older, newer = (framing_of(model_ref(name)) for name in ("kimi-k2-0905", "kimi-k2.5"))
    instruct = framing_of(model_ref("moonshotai/Kimi-K2-Instruct"))
    assert older.text == newer.text == instruct.text
    assert [each.rendering for each in (older, newer, instruct)] == ["json", "typescript", "spaced"]


def test_a_provider_or_an_api_may_bill_a_family_differently():
    assert framing_of(model_ref("gpt-5"), "responses") != framing_of(model_ref("gpt-5"), "chat")
    assert framing_of(model_ref("vertex/gemini-2.5-pro")) != framing_of(model_ref("gemini-2.5-pro"))
    assert framing_of(model_ref("claude-sonnet-4-6")) != framing_of(model_ref("claude-sonnet-4"))


SHAPES = {
    "chat": {
        "messages": [
            {"role": "user", "content": "go on"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": "three more words"},
        ],
        "tools": [{"type": "function", "function": WEATHER}],
    },
    "responses": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "go on"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "three more words"},
        ],
        "tools": [{"type": "function", **WEATHER}],
    },
    "messages": {
        "messages": [
            {"role": "user", "content": "go on"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": "three more words"}
                ],
            },
        ],
        "tools": [
            {"name": "f", "description": "", "input_schema": {"type": "object", "properties": {}}}
        ],
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "go on"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"a": 1}}}]},
        ],
        "tools": [{"functionDeclarations": [WEATHER]}],
    },
    "converse": {
        "messages": [
            {"role": "user", "content": [{"text": "go on"}, {"cachePoint": {"type": "default"}}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "1", "name": "f", "input": {}}}]},
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "1", "content": [{"text": "three more words"}]}}
                ],
            },
        ],
        "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {}}}}]},
    },
}  # fmt: skip


@pytest.mark.parametrize("api", SHAPES)
def test_more_tools_cost_more_and_none_cost_nothing(api):
    tools = SHAPES[api].get("tools") or SHAPES[api]["toolConfig"]["tools"]
    once = price_tools(tools, CLAUDE, words)
    assert price_tools([], CLAUDE, words) == 0 < once < price_tools([*tools, *tools], CLAUDE, words)


def test_a_schema_without_end_or_sense_is_priced_all_the_same():
    deep = {"type": "object"}
    for _ in range(200):
        deep = {"type": "object", "properties": {"a": deep}}
    for parameters in (
        deep,
        {"properties": 5},
        {"properties": {"a": 5}},
        {"type": 7},
        {"anyOf": [5]},
    ):
        tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
        for model in ("gpt-4o", "claude-sonnet-4", "vertex/gemini-2.5-pro", "glm-4.6"):
            assert price_tools([tool], model_ref(model), words) > 0
