"""The server of the how-to pages refuses the requests that a provider would refuse."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import openai
import pytest

from tests.docs.loopback import Loopback, running

HELLO = {"role": "user", "content": "See a.py"}
ARGUMENTS = {"type": "object", "properties": {"path": {"type": "string"}}}
CHAT_TOOL = {"type": "function", "function": {"name": "read_file", "parameters": ARGUMENTS}}
CLAUDE_TOOL = {"name": "read_file", "input_schema": ARGUMENTS}
ORPHAN = {"role": "tool", "tool_call_id": "call_9", "content": "nobody asked"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running(window=700) as server:
        yield server


@pytest.fixture
def chat(server: Loopback) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused") as client:
        yield client


@pytest.fixture
def claude(server: Loopback) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="unused") as client:
        yield client


def test_openai_sdk_receives_tool_call_and_usage(server: Loopback, chat: openai.OpenAI) -> None:
    completion = chat.chat.completions.create(model="gpt-5", messages=[HELLO], tools=[CHAT_TOOL])
    [call] = completion.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("read_file", '{"path": "a.py"}')
    assert completion.usage.prompt_tokens > 0
    assert server.requests == [{"messages": [HELLO], "model": "gpt-5", "tools": [CHAT_TOOL]}]


def test_model_without_tools_answers(chat: openai.OpenAI) -> None:
    completion = chat.chat.completions.create(model="gpt-5", messages=[HELLO])
    assert completion.choices[0].message.content
    assert completion.choices[0].message.tool_calls is None


def test_anthropic_sdk_receives_tool_use_and_usage(claude: anthropic.Anthropic) -> None:
    reply = claude.messages.create(
        model="claude-sonnet-5-5", max_tokens=9, messages=[HELLO], tools=[CLAUDE_TOOL]
    )
    assert reply.content[1].input == {"path": "a.py"}
    assert reply.usage.input_tokens > 0


def test_orphan_result_is_refused(server: Loopback, chat: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="follows no such call"):
        chat.chat.completions.create(model="gpt-5", messages=[HELLO, ORPHAN])
    assert server.requests == []


def test_turns_without_alternation_are_refused(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="message 1"):
        claude.messages.create(model="claude-sonnet-5-5", max_tokens=9, messages=[HELLO, HELLO])


def test_message_with_a_reply_envelope_is_refused(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="has the key 'id'"):
        claude.messages.create(
            model="claude-sonnet-5-5", max_tokens=9, messages=[{**HELLO, "id": "msg_1"}]
        )


def test_request_over_the_window_is_refused(server: Loopback, chat: openai.OpenAI) -> None:
    long = {"role": "user", "content": "word " * 600}
    with pytest.raises(openai.BadRequestError, match="context window 700"):
        chat.chat.completions.create(model="gpt-5", messages=[long])
    assert len(server.refused) == 1


def test_unknown_path_is_not_served(server: Loopback) -> None:
    status, body = server.answered("/v1/embeddings", {})
    assert (status, body["error"]["type"]) == (404, "not_found_error")
