"""What is billed around texts: the table's laws, and requests whose price follows from a formula."""

import pytest

from memman.counting import FAMILIES, framing_of, model_ref, price_request, price_tools
from memman.counting.framing import rows
from memman.errors import FormatError

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
    """A counter whose figures can be told by heart: a token for each word."""
    return [len(text.split()) for text in texts]


def nothing(texts):
    return [0 for _ in texts]


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_row_of_its_own(family):
    assert any(row.family == family for row in rows())


def test_every_row_says_where_and_when_its_figures_are_from():
    for row in rows():
        assert row.billing.source, row.billing.key
        assert row.billing.date, row.billing.key


def test_keys_are_unique_and_no_figure_but_a_discount_is_negative():
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


def test_a_provider_or_an_api_may_bill_a_family_differently():
    assert framing_of(model_ref("gpt-5"), "responses") != framing_of(model_ref("gpt-5"), "chat")
    assert framing_of(model_ref("vertex/gemini-2.5-pro")) != framing_of(model_ref("gemini-2.5-pro"))
    assert framing_of(model_ref("claude-sonnet-4-6")) != framing_of(model_ref("claude-sonnet-4"))


def test_kimis_published_weights_are_billed_by_their_chat_template():
    published = model_ref("moonshotai/Kimi-K2-Instruct-0905")
    assert framing_of(published) != framing_of(model_ref("kimi-k2-0905"))
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    asked = [{"role": "user", "content": "Look."}]
    called = {
        "role": "assistant",
        "tool_calls": [
            {"id": "functions.look:0", "type": "function",
             "function": {"name": "look", "arguments": "{}"}}
        ],
    }  # fmt: skip
    answered = {"role": "tool", "tool_call_id": "functions.look:0", "content": "Nothing."}

    def price(messages, **more):
        request = {"model": "kimi-k2-instruct", "messages": messages, **more}
        return price_request(request, published, lambda texts: [5] * len(texts))

    assert price(asked) == 3 + (4 + 5)
    assert price(asked, tools=[tool]) == 3 + (4 + 5) + (6 + 5)
    assert price([*asked, called, answered]) == 3 + 3 * 4 + 4 * 5 + 20


# ---------------------------------------------------------------- whole requests


def chat(*messages, **more):
    return {"model": "gpt-4o", "messages": list(messages), **more}


def test_text_only_requests_follow_the_published_formula():
    request = chat(
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "one two three"}]},
    )
    assert price_request(request, GPT_4O, words) == 3 + (4 + 2) + (4 + 3)
    assert price_request(request, model_ref("gpt-5"), words) == 2 + (4 + 2) + (4 + 3)


def test_a_name_costs_a_token_and_its_text():
    request = chat({"role": "user", "name": "ada lovelace", "content": "hello"})
    assert price_request(request, GPT_4O, words) == 3 + 4 + 1 + 2 + 1


def test_instructions_of_the_responses_api_are_a_message():
    request = {"model": "gpt-4o", "instructions": "be brief", "input": "one two three"}
    assert price_request(request, GPT_4O, words) == 3 + (4 + 2) + (4 + 3)


def test_tools_of_openai_are_typescript():
    seen = []

    def count(texts):
        seen.extend(texts)
        return nothing(texts)

    tools = [{"type": "function", "function": WEATHER}]
    request = chat({"role": "user", "content": "hello"}, tools=tools)
    assert price_request(request, GPT_4O, count) == 3 + 4 + 9
    assert seen[-1] == (
        "namespace functions {\n\n"
        "// The weather of a city\n"
        "type get_weather = (_: {\n"
        "// Its name\n"
        "city: string,\n"
        'unit?: "C" | "F",\n'
        "days?: number,\n"
        "}) => any;\n\n"
        "} // namespace functions"
    )


def test_a_system_message_beside_tools_costs_less():
    tools = [{"type": "function", "function": WEATHER}]
    request = chat({"role": "system", "content": ""}, tools=tools)
    assert price_request(request, GPT_4O, nothing) == 3 + 4 + 9 - 4


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
def test_every_shape_is_read_for_what_it_carries(api):
    from memman.counting import read_body

    body = read_body(SHAPES[api])
    assert body.api == api
    assert [call for each in body.messages for call in each.calls] == [("f", "{}")]
    assert sum(each.results for each in body.messages) == 1
    assert body.messages[0].texts == ("go on",)
    assert len(body.messages) == 3
    assert len(body.tools) == 1


@pytest.mark.parametrize("api", SHAPES)
def test_more_tools_cost_more_and_none_cost_nothing(api):
    tools = SHAPES[api].get("tools") or SHAPES[api]["toolConfig"]["tools"]
    once = price_tools(tools, CLAUDE, words)
    assert price_tools([], CLAUDE, words) == 0 < once < price_tools([*tools, *tools], CLAUDE, words)


def test_a_tool_that_must_be_called_costs_claude_more():
    request = {**SHAPES["messages"], "max_tokens": 5}
    free = price_request(request, CLAUDE, words)
    assert free > 400  # a hidden prompt stands before the tools
    assert price_request({**request, "tool_choice": {"type": "any"}}, CLAUDE, words) > free
    assert (
        price_request({**request, "tool_choice": {"type": "tool", "name": "f"}}, CLAUDE, words)
        > free
    )


def test_thoughts_count_only_in_the_turn_that_goes_on():
    thinking = {"type": "thinking", "thinking": "a b c d e", "signature": ""}
    earlier = {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [thinking, {"type": "text", "text": "done"}]},
            {"role": "user", "content": "on"},
        ]
    }
    without = {
        "messages": [
            earlier["messages"][0],
            {"role": "assistant", "content": "done"},
            earlier["messages"][2],
        ]
    }
    assert price_request(earlier, CLAUDE, words) == price_request(without, CLAUDE, words)
    going_on = {"messages": earlier["messages"][:2]}
    assert (
        price_request(going_on, CLAUDE, words)
        == price_request({"messages": without["messages"][:2]}, CLAUDE, words) + 5
    )


@pytest.mark.parametrize(
    "request_",
    [None, [], "text", {}, {"model": "x"}, {"messages": 5}, {"messages": [5]},
     {"messages": [{"role": "user", "content": 5}]}, {"messages": [], "tools": "f"},
     {"messages": [], "tools": [5]}, {"messages": [], "tools": {"name": "f"}},
     {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"a": object()}}]}]}],
)  # fmt: skip
def test_what_is_no_request_is_refused_with_a_typed_error(request_):
    with pytest.raises(FormatError):
        price_request(request_, GPT_4O, words)


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
