"""Prices of whole requests that follow from a formula."""

import pytest

from benchmarks.request_bodies import read_body
from benchmarks.request_prices import price_request
from memman.counting.framing import framing_of
from memman.counting.models import model_ref
from memman.errors import FormatError
from tests.counting.test_framing import CLAUDE, GPT_4O, SHAPES, WEATHER, words


def nothing(texts):
    return [0 for _ in texts]


def test_published_kimi_weights_are_billed_by_chat_template():
    published = model_ref("moonshotai/Kimi-K2-Instruct-0905")
    assert framing_of(published) != framing_of(model_ref("kimi-k2-0905"))
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    question = [{"role": "user", "content": "Look."}]
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

    assert price(question) == 3 + (4 + 5)
    assert price(question, tools=[tool]) == 3 + (4 + 5) + (6 + 5)
    assert price([*question, called, answered]) == 3 + 3 * 4 + 4 * 5 + 20


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


def test_system_message_with_tools_costs_less():
    tools = [{"type": "function", "function": WEATHER}]
    request = chat({"role": "system", "content": ""}, tools=tools)
    assert price_request(request, GPT_4O, nothing) == 3 + 4 + 9 - 4


@pytest.mark.parametrize("api", SHAPES)
def test_every_shape_is_read_for_what_it_carries(api):
    body = read_body(SHAPES[api])
    assert body.api == api
    assert [call for each in body.messages for call in each.calls] == [("f", "{}")]
    assert sum(each.results for each in body.messages) == 1
    assert body.messages[0].texts == ("go on",)
    assert len(body.messages) == 3
    assert len(body.tools) == 1


def test_a_tool_that_must_be_called_costs_claude_more():
    request = {**SHAPES["messages"], "max_tokens": 5}
    free = price_request(request, CLAUDE, words)
    assert free > 400  # a hidden prompt comes before the tools
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
def test_invalid_request_raises_a_typed_error(request_):
    with pytest.raises(FormatError):
        price_request(request_, GPT_4O, words)
