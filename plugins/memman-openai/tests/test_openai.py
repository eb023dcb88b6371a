"""The OpenAI counter: the laws of a remote counter on both of its platforms, and its own rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import memman_openai
import openai
import pytest
from memman_openai import OpenAICounter
from memman_openai.request import request_of

from memman import plugins
from memman.counting.builtin import builtin_specs
from memman.counting.failures import CountFailure
from memman.counting.models import model_ref
from memman.counting.remote import RemoteTokenCounter
from memman.counting.resolution import explain, resolve_remote
from memman.errors import CounterUnavailable
from memman.testing import Answer, RemoteCounterConformance, loopback
from tests.provider_kits import second_client

KEY = "key-of-the-test"
MODEL = "gpt-5"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL = {"type": "function", "name": "read_file", "description": "Reads it", "parameters": SCHEMA}
[SPEC] = memman_openai.memman_token_counters()
SPECS = [SPEC, *builtin_specs()]


def request(text: str, **changes: Any) -> dict[str, Any]:
    call = {
        "type": "function_call", "call_id": "c1", "name": "read_file", "arguments": '{"path": "a"}'
    }  # fmt: skip
    items = [
        {"role": "user", "content": text},
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "what is in it"},
    ]
    return {"model": MODEL, "messages": items, "system": "be brief", "tools": [TOOL], **changes}


class Responses(RemoteCounterConformance):
    def make_request(self, text: str) -> dict[str, Any]:
        return request(text)

    def success(self, tokens: Any) -> Answer:
        return Answer(200, {"object": "response.input_tokens", "input_tokens": tokens})


class TestOpenAI(Responses):
    path = "/v1/responses/input_tokens"
    spec = SPEC
    module, sdk = "memman_openai", "openai"
    models = (
        MODEL,
        "openai/gpt-4o",
        "GPT-4.1-mini",
        "o3",
        "azure/gpt-4o",
        "ft:gpt-4.1-mini:org::id",
    )
    foreign = ("claude-sonnet-4-5", "gpt-oss-120b", "openrouter/openai/gpt-5", "ollama/gpt-4o")

    def make_counter(self, url: str) -> OpenAICounter:
        return OpenAICounter(
            client=openai.OpenAI(base_url=f"{url}/v1", api_key=KEY),
            async_client=openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY),
        )


@second_client
class TestAzure(Responses):
    path = "/openai/responses/input_tokens"

    def make_counter(self, url: str) -> OpenAICounter:
        version = "2025-04-01-preview"
        return OpenAICounter(
            client=openai.AzureOpenAI(azure_endpoint=url, api_key=KEY, api_version=version),
            async_client=openai.AsyncAzureOpenAI(
                azure_endpoint=url, api_key=KEY, api_version=version
            ),
        )


def test_a_deployment_is_sent_as_it_is_spelled() -> None:
    rendered = request("hi", model="azure/My-GPT-4o")
    assert request_of(rendered)["model"] == "My-GPT-4o"
    assert request_of(rendered, model_ref("azure/My-GPT-4o"))["model"] == "My-GPT-4o"


def test_an_alias_is_sent_as_the_model_that_it_stands_for() -> None:
    assert request_of(request("hi", model="fast"), model_ref("openai/gpt-5"))["model"] == "gpt-5"


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}},
        {"name": "f", "description": "d", "input_schema": SCHEMA},
        {"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": SCHEMA}}},
        {"functionDeclarations": [{"name": "f", "description": "d", "parameters": SCHEMA}]},
        {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA},
    ],
)
def test_tools_of_any_spelling_are_sent_in_responses_form(tool: Any) -> None:
    [sent] = request_of(request("hi", tools=[tool]))["tools"]
    assert sent == {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA}


def test_strict_functions_and_provider_tools_are_unchanged() -> None:
    search = {"type": "web_search"}
    strict = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}
    found, kept = request_of(request("hi", tools=[strict, search]))["tools"]
    assert found["strict"] is True
    assert kept == search


def test_without_a_key_the_reason_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    found = resolve_remote(model_ref(MODEL), [SPEC])
    assert found is not None
    counter = found[1]
    answer = RemoteTokenCounter(counter, model_ref(MODEL), timeout=20).price(request("hi"))
    assert isinstance(answer, CountFailure)
    assert answer.kind == "unavailable"
    assert "OPENAI_API_KEY" in answer.reason


def test_explain_says_that_a_key_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    [row] = [row for row in explain(model_ref(MODEL), SPECS) if row.name == SPEC.name]
    assert "set OPENAI_API_KEY" in row.reason
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    [row] = [row for row in explain(model_ref(MODEL), SPECS) if row.name == SPEC.name]
    assert row.reason == "prices whole contexts with count_policy='confirm'"


def test_without_an_azure_endpoint_the_reason_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY", "OPENAI_API_VERSION"):
        monkeypatch.delenv(name, raising=False)
    counter = SPEC.factory(model_ref("azure/gpt-4o"))
    with pytest.raises(CounterUnavailable, match="AZURE_OPENAI_ENDPOINT"):
        counter.count_request(request("hi"), timeout=1)


def test_the_factory_finds_its_endpoint_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with loopback("/v1/responses/input_tokens", Answer(200, {"input_tokens": 7})) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        counter = SPEC.factory(model_ref(MODEL))
        assert counter.fingerprint == f"openai:127.0.0.1:{server.server_port}/v1"
        assert counter.count_request(request("hi"), timeout=20) == 7


def test_sync_client_serves_both_apis_async_client_one() -> None:
    import asyncio

    with loopback("/responses/input_tokens", Answer(200, {"input_tokens": 7})) as server:
        only_sync = OpenAICounter(client=openai.OpenAI(base_url=server.url, api_key=KEY))
        assert asyncio.run(only_sync.acount_request(request("hi"), timeout=20)) == 7
        only_async = OpenAICounter(
            async_client=openai.AsyncOpenAI(base_url=server.url, api_key=KEY)
        )
        with pytest.raises(CounterUnavailable, match="`client`"):
            only_async.count_request(request("hi"), timeout=1)


def test_without_any_client_the_error_says_what_to_pass() -> None:
    with pytest.raises(ValueError, match="async_client"):
        OpenAICounter()


# ---------------------------------------------------------------- the README


def test_the_examples_of_the_readme_run(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(examples) == 4
    found = plugins.load_plugins({"MEMMAN_PLUGINS": ""})
    monkeypatch.setattr(plugins, "_shared", found)
    with loopback("/v1/responses/input_tokens", Answer(200, {"input_tokens": 17})) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        names: dict[str, Any] = {}
        for example in examples:
            exec(compile(example, "README.md", "exec"), names)  # noqa: S102 - our own page
        assert names["tokens"] == 17
        assert len(server.received) == 1
    specs = [spec for _, spec in found.listed("memman_token_counters")]
    assert resolve_remote(model_ref(MODEL), [SPEC, *specs]) == (specs[0], names["counter"])
