"""A model behind chat completions as a summarizer: OpenAI's, Azure's, and servers that copy OpenAI."""

from __future__ import annotations

from typing import Any

import msgspec
import openai
import pytest
from memman_openai import OpenAISummarizer, memman_summarizer

from memman import (
    AsyncPortRefused,
    InvalidInput,
    MemoryManager,
    SummarizerFailed,
    SummarizerUnavailable,
    SummaryRequest,
)
from memman.compression.prompt import summary_request
from memman.testing import Answer, RemoteSummarizerConformance, loopback
from memman.testing.summarizers import conversation
from tests.provider_kits import second_client

KEY = "key-of-the-test"
MODEL = "gpt-5-mini"
CHAT = "/chat/completions"


def completion(
    text: str | None, stop: str | None = "stop", refusal: str | None = None, **usage: Any
) -> Answer:
    message = {"role": "assistant", "content": text, "refusal": refusal}
    return Answer(
        200,
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_750_000_000,
            "model": f"{MODEL}-2025-08-07",
            "choices": [{"index": 0, "message": message, "finish_reason": stop, "logprobs": None}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, **usage},
        },
    )


def refused(message: str, status: int = 400, code: str | None = None) -> Answer:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return Answer(status, {"error": error})


class OpenAIs(RemoteSummarizerConformance):
    path = CHAT
    name, module, sdk = f"openai:{MODEL}", "memman_openai", "openai"

    def written(self, text: str, read: int = 100, cached: int = 0, wrote: int = 10) -> Answer:
        return completion(
            text,
            prompt_tokens=read,
            completion_tokens=wrote,
            total_tokens=read + wrote,
            prompt_tokens_details={"cached_tokens": cached},
            completion_tokens_details={"reasoning_tokens": wrote // 2},
        )

    def cut_off(self, text: str) -> Answer:
        return completion(text, "length")

    def refusals(self) -> list[Answer]:
        return [
            completion(None, "stop", "I cannot help with that."),
            completion("Half of", "content_filter"),
            refused("The response was filtered.", code="content_filter"),
        ]


class TestOfTheEnvironment(OpenAIs):
    @pytest.fixture(autouse=True)
    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def make_summarizer_at(self, url: str) -> Any:
        self.monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        self.monkeypatch.setenv("OPENAI_API_KEY", KEY)
        return memman_summarizer(self.name)


@second_client
class TestAzure(OpenAIs):
    path = f"/openai/deployments/{MODEL}{CHAT}"

    def make_summarizer_at(self, url: str) -> OpenAISummarizer:
        client = openai.AzureOpenAI(
            azure_endpoint=url, api_key=KEY, api_version="2025-04-01-preview"
        )
        return OpenAISummarizer(MODEL, client=client)


@pytest.fixture
def request_() -> SummaryRequest:
    return summary_request(conversation()[:8], 300, None)


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def at(url: str, model: str = MODEL, **given: Any) -> OpenAISummarizer:
    return OpenAISummarizer(model, base_url=f"{url}/v1", api_key=KEY, **given)


def test_the_request_is_a_system_and_a_user_message(request_: SummaryRequest) -> None:
    with loopback(CHAT, completion("x")) as server:
        at(server.url, system="Summarize in verse.").summarize(request_)
        [received] = server.received
    assert received.body["model"] == MODEL
    assert received.body["messages"] == [
        {"role": "system", "content": "Summarize in verse."},
        {"role": "user", "content": request_.prompt},
    ]
    assert received.headers["authorization"] == f"Bearer {KEY}"


# ---------------------------------------------------------------- servers that copy OpenAI


def test_a_server_of_ones_own_needs_no_key(
    request_: SummaryRequest, no_environment: pytest.MonkeyPatch
) -> None:
    with loopback(CHAT, completion("By llama.")) as server:
        given = OpenAISummarizer("llama3.1:8b", base_url=f"{server.url}/v1")
        assert given.summarize(request_).text == "By llama."
        no_environment.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        named = memman_summarizer("openai:llama3.1:8b")
        assert named is not None
        assert named.summarize(request_).text == "By llama."
        assert [received.body["model"] for received in server.received] == ["llama3.1:8b"] * 2
        assert KEY not in server.received[0].headers["authorization"]


def test_openai_compatible_server_gets_max_tokens(
    request_: SummaryRequest,
) -> None:
    with loopback(CHAT, completion("x")) as server:
        at(server.url, "llama3.1:8b").summarize(request_)
        body = server.received[0].body
    assert body["max_tokens"] == 1_100
    assert "max_completion_tokens" not in body


OPENAIS_REFUSAL = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
    "'max_completion_tokens' instead."
)


def test_server_that_requires_the_newer_parameter_gets_it(
    request_: SummaryRequest,
) -> None:
    with loopback(CHAT, refused(OPENAIS_REFUSAL), completion("x")) as server:
        summarizer = at(server.url)
        assert summarizer.summarize(request_).text == "x"
        assert summarizer.summarize(request_).text == "x"
        sent = [sorted(set(each.body) & {"max_tokens", "max_completion_tokens"})
                for each in server.received]  # fmt: skip
    assert sent == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]


@pytest.mark.parametrize(
    "message",
    ["max_tokens is too large: the context has 4096 tokens", "Unsupported parameter: 'messages'"],
)
def test_another_refusal_is_told_as_it_is(message: str, request_: SummaryRequest) -> None:
    with loopback(CHAT, refused(message)) as server:
        with pytest.raises(openai.BadRequestError, match=message.split(":")[0]):
            at(server.url).summarize(request_)
        assert len(server.received) == 1


def test_a_server_that_bills_nothing_and_names_no_model_is_read(request_: SummaryRequest) -> None:
    answer = completion("The summary.")
    body = {**answer.body, "usage": None, "model": ""}
    with loopback(CHAT, Answer(200, body)) as server:
        reply = at(server.url).summarize(request_)
    assert (reply.text, reply.usage, reply.model) == ("The summary.", None, None)


def test_answer_without_choices_is_empty_other_types_fail(
    request_: SummaryRequest,
) -> None:
    none = Answer(200, {**completion("x").body, "choices": []})
    page = Answer(200, b"<html>Bad gateway</html>", {"content-type": "text/html"})
    with loopback(CHAT, none, page) as server:
        assert at(server.url).summarize(request_).text == ""
        with pytest.raises(SummarizerFailed, match="the provider's answer cannot be read"):
            at(server.url).summarize(request_)


# ---------------------------------------------------------------- OpenAI itself


def sent_to(base_url: str, model: str, request: SummaryRequest) -> dict[str, Any]:
    """What would be sent to an address on the network, taken before it is."""
    taken: list[dict[str, Any]] = []

    class Taken(Exception):
        pass

    summarizer = OpenAISummarizer(model, base_url=base_url, api_key=KEY)
    create = summarizer._clients.sync().chat.completions

    def keep(**asked: Any) -> Any:
        taken.append(asked)
        raise Taken

    create.create = keep
    with pytest.raises(Taken):
        summarizer.summarize(request)
    return taken[0]


@pytest.mark.parametrize(
    ("model", "limit"),
    [("gpt-5-mini", 17_100), ("o3", 17_100), ("gpt-4.1-mini", 1_100), ("gpt-of-tomorrow", 1_100)],
)
def test_openai_gets_the_newer_parameter_with_reasoning_room(
    model: str, limit: int, request_: SummaryRequest
) -> None:
    asked = sent_to("https://api.openai.com/v1", model, request_)
    assert asked["max_completion_tokens"] == limit
    assert "max_tokens" not in asked
    for host in ("mine.openai.azure.com", "mine.services.ai.azure.com", "eu.api.openai.com"):
        assert "max_completion_tokens" in sent_to(f"https://{host}/v1", model, request_)


def test_options_go_before_ours(request_: SummaryRequest) -> None:
    with loopback(CHAT, completion("x")) as server:
        options = {"reasoning_effort": "low", "max_tokens": 77}
        at(server.url, options=options).summarize(request_)
        body = server.received[0].body
    assert (body["reasoning_effort"], body["max_tokens"]) == ("low", 77)


def test_another_server_has_the_smallest_known_limit(no_environment: pytest.MonkeyPatch) -> None:
    def limit(summarizer: Any) -> int | None:
        asker = MemoryManager(summarizer=summarizer)._core.summarizers.chosen(None, None)
        assert asker is not None
        return asker.max_input_tokens

    assert limit(f"openai:{MODEL}") == 272_000
    assert limit(OpenAISummarizer(MODEL, base_url="http://localhost:1/v1")) == 128_000
    own = OpenAISummarizer("qwen3", base_url="http://localhost:1/v1", max_input_tokens=7_000)
    assert limit(own) == 7_000


# ---------------------------------------------------------------- what cannot work


def test_without_a_key_it_says_what_to_set(
    request_: SummaryRequest, no_environment: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SummarizerUnavailable, match="OPENAI_API_KEY"):
        OpenAISummarizer(MODEL).summarize(msgspec.structs.replace(request_, timeout=5))


def test_without_the_sdk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(SummarizerUnavailable, match=r"pip install '\./plugins/memman-openai'"):
        MemoryManager(summarizer=f"openai:{MODEL}")


def test_an_async_client_is_refused() -> None:
    with pytest.raises(AsyncPortRefused, match="pass the SDK's sync client"):
        OpenAISummarizer(MODEL, client=openai.AsyncOpenAI(api_key=KEY))


def test_a_name_without_a_model_says_how_to_write_it() -> None:
    with pytest.raises(InvalidInput, match="write openai:MODEL"):
        MemoryManager(summarizer="openai:")
