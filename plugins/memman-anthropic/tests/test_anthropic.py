"""The Anthropic counter: the laws of a remote counter on both of its platforms, and its own rules."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import anthropic
import memman_anthropic
import pytest
from memman_anthropic import AnthropicCounter
from memman_anthropic.request import request_of

from memman import plugins
from memman.counting.builtin import builtin_specs
from memman.counting.failures import CountFailure
from memman.counting.models import model_ref
from memman.counting.remote import RemoteTokenCounter
from memman.counting.resolution import explain, resolve_remote
from memman.errors import CounterUnavailable
from memman.testing import Answer, RemoteCounterConformance, loopback
from tests.provider_kits import second_client

SPEC = memman_anthropic.memman_token_counters()[0]
SPECS = [SPEC, *builtin_specs()]
KEY = "key-of-the-test"
MODEL = "claude-sonnet-4-5"
TOOL = {
    "name": "read_file",
    "description": "Reads a file",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
}


def request(text: str, **changes: Any) -> dict[str, Any]:
    use = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.txt"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "what is in it"}
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": [{"type": "text", "text": "I will look"}, use]},
        {"role": "user", "content": [result]},
    ]
    return {
        "model": MODEL, "messages": messages, "system": "be brief", "tools": [TOOL], **changes
    }  # fmt: skip


class Anthropics(RemoteCounterConformance):
    path = "/v1/messages/count_tokens"
    spec = SPEC
    module, sdk = "memman_anthropic", "anthropic"
    models = (MODEL, "anthropic/claude-opus-4-7", "Claude-3-5-Haiku-20241022")
    foreign = ("gpt-4o", "bedrock/anthropic.claude-sonnet-4-5", "openrouter/anthropic/claude-4")

    def make_request(self, text: str) -> dict[str, Any]:
        return request(text)

    def success(self, tokens: Any) -> Answer:
        return Answer(200, {"input_tokens": tokens})


class TestAnthropic(Anthropics):
    def make_counter(self, url: str) -> AnthropicCounter:
        return AnthropicCounter(
            client=anthropic.Anthropic(base_url=url, api_key=KEY),
            async_client=anthropic.AsyncAnthropic(base_url=url, api_key=KEY),
        )


@second_client
class TestVertex(Anthropics):
    path = "/projects/p/locations/us-east5/publishers/anthropic/models/count-tokens:rawPredict"
    models = ("vertex/claude-sonnet-4-5", "vertex_ai/claude-sonnet-4-5@20250929")

    def make_counter(self, url: str) -> AnthropicCounter:
        place = {"region": "us-east5", "project_id": "p", "access_token": KEY, "base_url": url}
        return AnthropicCounter(
            client=anthropic.AnthropicVertex(**place),
            async_client=anthropic.AsyncAnthropicVertex(**place),
        )


# ---------------------------------------------------------------- the request


def test_model_is_sent_without_prefix_in_its_own_spelling() -> None:
    for given in ("anthropic/claude-opus-4-7", "vertex_ai/claude-sonnet-4-5@20250929"):
        sent = request_of(request("hi", model=given), model_ref(given))["model"]
        assert sent == given.partition("/")[2]


def test_an_alias_is_sent_as_the_model_that_it_stands_for() -> None:
    sent = request_of(request("hi", model="smart"), model_ref("anthropic/claude-opus-4-7"))
    assert sent["model"] == "claude-opus-4-7"


def test_a_valid_request_is_sent_as_it_is() -> None:
    rendered = request("hi")
    assert request_of(rendered) == rendered


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        ([], [("user", ".")]),
        ([("assistant", "hello")], [("user", "."), ("assistant", "hello")]),
        ([("user", " \n"), ("user", "hi")], [("user", "hi")]),
        ([("user", "hi"), ("assistant", [])], [("user", "hi")]),
        ([("user", "hi"), ("assistant", None)], [("user", "hi")]),
        (
            [("user", [{"type": "text", "text": " "}, {"type": "text", "text": "hi"}])],
            [("user", [{"type": "text", "text": "hi"}])],
        ),
    ],
)
def test_what_the_endpoint_refuses_is_mended(messages: Any, sent: Any) -> None:
    given = [{"role": role, "content": content} for role, content in messages]
    asked = request_of(request("hi", messages=given))["messages"]
    assert [(message["role"], message["content"]) for message in asked] == sent


@pytest.mark.parametrize("system", [None, "", "  ", []])
def test_an_empty_system_prompt_is_not_sent(system: Any) -> None:
    assert "system" not in request_of(request("hi", system=system))


def test_a_system_prompt_of_blocks_is_sent_as_blocks() -> None:
    blocks = [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]
    assert request_of(request("hi", system=blocks))["system"] == blocks


SCHEMA = TOOL["input_schema"]


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}},
        {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA},
        {"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": SCHEMA}}},
        {"function_declarations": [{"name": "f", "description": "d", "parameters": SCHEMA}]},
        {"name": "f", "description": "d", "input_schema": SCHEMA},
    ],
)
def test_tools_of_any_spelling_are_sent_as_anthropic_wants_them(tool: Any) -> None:
    [sent] = request_of(request("hi", tools=[tool]))["tools"]
    assert sent == {"name": "f", "description": "d", "input_schema": SCHEMA}


def test_a_tool_of_the_provider_is_sent_as_it_is() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    assert request_of(request("hi", tools=[search]))["tools"] == [search]


# ---------------------------------------------------------------- where clients come from


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> pytest.MonkeyPatch:
    """No credentials of Anthropic's or Google's, and no file that may hold them."""
    for name in (
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_BASE_URL",
        "CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return monkeypatch


def test_without_a_key_the_reason_says_what_to_set(no_environment: pytest.MonkeyPatch) -> None:
    model = model_ref(MODEL)
    meter = RemoteTokenCounter(SPEC.factory(model), model, timeout=20)
    for answer in (meter.price(request("hi")), _awaited(SPEC.factory(model), request("hi"))):
        assert isinstance(answer, CountFailure)
        assert answer.kind == "unavailable"
        assert "ANTHROPIC_API_KEY" in answer.reason


def test_explain_says_that_a_key_is_missing(no_environment: pytest.MonkeyPatch) -> None:
    [row] = [row for row in explain(model_ref(MODEL), SPECS) if row.name == SPEC.name]
    assert "set ANTHROPIC_API_KEY" in row.reason
    no_environment.setenv("ANTHROPIC_API_KEY", KEY)
    [row] = [row for row in explain(model_ref(MODEL), SPECS) if row.name == SPEC.name]
    assert row.reason == "prices whole contexts with count_policy='confirm'"


def _awaited(counter: Any, rendered: Any) -> Any:
    async def ask() -> Any:
        return await RemoteTokenCounter(counter, model_ref(MODEL), timeout=20).aprice(rendered)

    return asyncio.run(ask())


def test_vertex_without_a_region_says_what_to_set(no_environment: pytest.MonkeyPatch) -> None:
    counter = SPEC.factory(model_ref("vertex/claude-sonnet-4-5"))
    assert counter.fingerprint.startswith("anthropic:vertex/")
    with pytest.raises(CounterUnavailable, match="CLOUD_ML_REGION"):
        counter.count_request(request("hi"), timeout=1)


def test_vertex_without_google_auth_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", _without("google.auth"))
    with pytest.raises(CounterUnavailable, match=r"memman-anthropic\[vertex\]"):
        SPEC.factory(model_ref("vertex/claude-sonnet-4-5"))
    assert SPEC.factory(model_ref(MODEL)).fingerprint


def _without(missing: str) -> Any:
    from importlib.util import find_spec

    return lambda name, package=None: None if name == missing else find_spec(name, package)


def test_the_factory_finds_its_endpoint_in_the_environment(
    no_environment: pytest.MonkeyPatch,
) -> None:
    with loopback("/v1/messages/count_tokens", Answer(200, {"input_tokens": 7})) as server:
        no_environment.setenv(
            "ANTHROPIC_BASE_URL", f"http://user:{KEY}@127.0.0.1:{server.server_port}"
        )
        hidden = SPEC.factory(model_ref(MODEL)).fingerprint
        assert hidden == f"anthropic:127.0.0.1:{server.server_port}"
        no_environment.setenv("ANTHROPIC_BASE_URL", server.url)
        no_environment.setenv("ANTHROPIC_API_KEY", KEY)
        counter = SPEC.factory(model_ref(MODEL))
        assert counter.count_request(request("hi"), timeout=20) == 7
        assert asyncio.run(counter.acount_request(request("hi"), timeout=20)) == 7


def test_sync_client_serves_both_apis_async_client_one() -> None:
    with loopback("/v1/messages/count_tokens", Answer(200, {"input_tokens": 7})) as server:
        only_sync = AnthropicCounter(client=anthropic.Anthropic(base_url=server.url, api_key=KEY))
        assert asyncio.run(only_sync.acount_request(request("hi"), timeout=20)) == 7
        only_async = AnthropicCounter(
            async_client=anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY)
        )
        with pytest.raises(CounterUnavailable, match="`client`"):
            only_async.count_request(request("hi"), timeout=1)


def test_without_any_client_the_error_says_what_to_pass() -> None:
    with pytest.raises(ValueError, match="async_client"):
        AnthropicCounter()


# ---------------------------------------------------------------- the README


def test_the_examples_of_the_readme_run(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(examples) == 4
    found = plugins.load_plugins({"MEMMAN_PLUGINS": ""})
    monkeypatch.setattr(plugins, "_shared", found)
    with loopback("/v1/messages/count_tokens", Answer(200, {"input_tokens": 17})) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        names: dict[str, Any] = {}
        for example in examples:
            exec(compile(example, "README.md", "exec"), names)  # noqa: S102 - our own page
        assert names["tokens"] == 17
        assert len(server.received) == 1
    specs = [spec for _, spec in found.listed("memman_token_counters")]
    assert resolve_remote(model_ref(MODEL), [SPEC, *specs]) == (specs[0], names["counter"])
