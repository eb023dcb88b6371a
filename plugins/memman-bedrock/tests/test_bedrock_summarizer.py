"""A model on Bedrock as a summarizer, through boto3 against a server that speaks its wire format."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import boto3
import pytest
from botocore.config import Config
from memman_bedrock import BedrockSummarizer, clients, memman_summarizer

from memman import InvalidInput, MemoryManager, SummarizerUnavailable, SummaryRequest
from memman.compression.prompt import summary_request
from memman.testing import Answer, RemoteSummarizerConformance, loopback
from memman.testing.summarizers import conversation
from tests.provider_kits import second_client

MODEL = "us.anthropic.claude-haiku-4-5-20251001-v1:0"
PATH = f"/model/{MODEL}/converse"
SECRET = "a-key-that-nobody-prints"  # noqa: S105 - not a real one
VARIABLES = (
    "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_ENDPOINT_URL",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@functools.cache  # boto3 reads its description of the service once for a session, and slowly
def _session() -> boto3.Session:
    return boto3.Session()


SESSION_OF = functools.cache(clients._session)  # by region, for the same reason


def client_of(url: str) -> Any:
    return _session().client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="a",
        aws_secret_access_key=SECRET,
        config=Config(connect_timeout=0.6, read_timeout=0.8, retries={"total_max_attempts": 1}),
    )


def conversed(text: str, stop: str = "end_turn", **usage: int) -> Answer:
    message = {"role": "assistant", "content": [{"text": text}] if text else []}
    counts = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2, **usage}
    return Answer(
        200,
        {
            "output": {"message": message},
            "stopReason": stop,
            "usage": counts,
            "metrics": {"latencyMs": 1},
        },
    )


def failed(
    status: int, code: str = "", message: str = "no", headers: Mapping[str, str] | None = None
) -> Answer:
    typed = {"x-amzn-errortype": code} if code else {}
    return Answer(status, {"message": message}, {**typed, **(headers or {})})


class Bedrocks(RemoteSummarizerConformance):
    path = PATH
    secret = SECRET
    name, module, sdk = f"bedrock:{MODEL}", "memman_bedrock", "boto3"

    def written(self, text: str, read: int = 100, cached: int = 0, wrote: int = 10) -> Answer:
        kept = {"cacheReadInputTokens": cached, "cacheWriteInputTokens": 9}
        return conversed(text, inputTokens=read - cached - 9, outputTokens=wrote, **kept)

    def cut_off(self, text: str) -> Answer:
        return conversed(text, "max_tokens")

    def refusals(self) -> list[Answer]:
        return [
            conversed("", "content_filtered"),
            conversed("Sorry, the model cannot answer this question.", "guardrail_intervened"),
        ]

    def failure(self, status: int, headers: Mapping[str, str] | None = None) -> Answer:
        return failed(status, headers=headers)


@second_client
class TestClientOfOnesOwn(Bedrocks):
    def make_summarizer_at(self, url: str) -> BedrockSummarizer:
        return BedrockSummarizer(MODEL, client=client_of(url))

    def close_summarizer(self, summarizer: Any) -> None:
        summarizer._clients._client.close()


class TestClientOfTheEnvironment(Bedrocks):
    @pytest.fixture(autouse=True)
    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(clients, "_session", SESSION_OF)

    def make_summarizer_at(self, url: str) -> Any:
        in_environment(self.monkeypatch, url)
        return memman_summarizer(self.name)

    def close_summarizer(self, summarizer: Any) -> None:
        if summarizer._clients._client is not None:
            summarizer._clients._client.close()


def in_environment(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", url)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


@pytest.fixture
def request_() -> SummaryRequest:
    return summary_request(conversation()[:8], 300, None)


def test_the_request_is_a_conversation_with_a_system_prompt(request_: SummaryRequest) -> None:
    with loopback(PATH, conversed("x")) as server:
        client = client_of(server.url)
        summarizer = BedrockSummarizer(MODEL, client=client, system="Summarize in verse.")
        reply = summarizer.summarize(request_)
        client.close()
        [received] = server.received
    assert received.body == {
        "system": [{"text": "Summarize in verse."}],
        "messages": [{"role": "user", "content": [{"text": request_.prompt}]}],
        "inferenceConfig": {"maxTokens": 1_100},
    }
    assert reply.model == MODEL


def test_options_go_before_ours(request_: SummaryRequest) -> None:
    with loopback(PATH, conversed("x")) as server:
        client = client_of(server.url)
        options = {"inferenceConfig": {"maxTokens": 77}}
        BedrockSummarizer(MODEL, client=client, options=options).summarize(request_)
        client.close()
        assert server.received[0].body["inferenceConfig"] == {"maxTokens": 77}


def test_thoughts_are_no_part_of_the_summary(request_: SummaryRequest) -> None:
    answer = conversed("The summary.")
    thought = {"reasoningContent": {"reasoningText": {"text": "Hm."}}}
    answer.body["output"]["message"]["content"].insert(0, thought)
    with loopback(PATH, answer) as server:
        client = client_of(server.url)
        assert BedrockSummarizer(MODEL, client=client).summarize(request_).text == "The summary."
        client.close()


def test_throttling_is_tried_again_whatever_its_status(request_: SummaryRequest) -> None:
    throttled = failed(400, "ThrottlingException", headers={"retry-after": "0"})
    with loopback(PATH, throttled, conversed("x")) as server:
        client = client_of(server.url)
        assert BedrockSummarizer(MODEL, client=client).summarize(request_).text == "x"
        client.close()


def test_one_client_serves_summaries_of_one_time_out(
    monkeypatch: pytest.MonkeyPatch, request_: SummaryRequest
) -> None:
    with loopback(PATH, conversed("x")) as server:
        in_environment(monkeypatch, server.url)
        summarizer = BedrockSummarizer(MODEL)
        summarizer.summarize(request_)
        first = summarizer._clients._client
        summarizer.summarize(request_)
        assert summarizer._clients._client is first
        first.close()


def test_the_region_of_an_arn_is_asked() -> None:
    arn = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc"
    summarizer = BedrockSummarizer(arn)
    assert summarizer._clients._region == "eu-west-1"


def test_its_models_limits_are_known() -> None:
    asker = MemoryManager(summarizer=f"bedrock:{MODEL}")._core.summarizers.chosen(None, None)
    assert asker is not None
    assert (asker.max_input_tokens or 0) > 100_000


def test_without_a_region_or_credentials_it_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, request_: SummaryRequest
) -> None:
    with pytest.raises(SummarizerUnavailable, match="AWS_REGION"):
        BedrockSummarizer(MODEL).summarize(request_)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with pytest.raises(SummarizerUnavailable, match="AWS_ACCESS_KEY_ID"):
        BedrockSummarizer(MODEL).summarize(request_)


def test_without_the_sdk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(SummarizerUnavailable, match=r"pip install '\./plugins/memman-bedrock'"):
        MemoryManager(summarizer=f"bedrock:{MODEL}")


def test_a_name_without_a_model_says_how_to_write_it() -> None:
    with pytest.raises(InvalidInput, match="write bedrock:MODEL"):
        MemoryManager(summarizer="bedrock:")
