"""Gemini as a summarizer: the laws of one behind an SDK, by both of Google's services."""

from __future__ import annotations

from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.genai import Client
from google.genai.types import HttpOptions
from memman_google import GoogleSummarizer, memman_summarizer

from memman import (
    AsyncPortRefused,
    InvalidInput,
    MemoryManager,
    SummarizerUnavailable,
    SummaryRequest,
)
from memman.compression.prompt import summary_request
from memman.testing import Answer, RemoteSummarizerConformance, loopback
from memman.testing.summarizers import conversation
from tests.provider_kits import second_client

KEY = "key-of-the-test"
MODEL = "gemini-2.5-flash"
PATH = f"/models/{MODEL}:generateContent"


def generated(text: str, finish: str = "STOP", **usage: int) -> Answer:
    content = {"role": "model", "parts": [{"text": text}] if text else []}
    return Answer(
        200,
        {
            "candidates": [{"content": content, "finishReason": finish, "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, **usage},
            "modelVersion": f"{MODEL}-001",
        },
    )


class Geminis(RemoteSummarizerConformance):
    path = PATH
    name, module, sdk = f"google:{MODEL}", "memman_google", "google.genai"
    reads_retry_after = False  # the SDK drops the headers; the test below puts it in a body

    def written(self, text: str, read: int = 100, cached: int = 0, wrote: int = 10) -> Answer:
        thought = wrote // 3
        counts = {"candidatesTokenCount": wrote - thought, "thoughtsTokenCount": thought}
        kept = {"cachedContentTokenCount": cached}
        return generated(text, promptTokenCount=read, **counts, **kept)

    def cut_off(self, text: str) -> Answer:
        return generated(text, "MAX_TOKENS")

    def refusals(self) -> list[Answer]:
        blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}}
        reasons = ("SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII")
        return [Answer(200, blocked), *(generated("", reason) for reason in reasons)]

    def failure(self, status: int, headers: Any = None) -> Answer:
        error = {"code": status, "message": "no summary", "status": "FAILED"}
        return Answer(status, {"error": error}, headers or {})


@second_client
class TestVertex(Geminis):
    path = f"/publishers/google{PATH}"

    def make_summarizer_at(self, url: str) -> GoogleSummarizer:
        client = Client(
            vertexai=True,
            project="p",
            location="us-east5",
            credentials=Credentials(),
            http_options=HttpOptions(base_url=url),
        )
        return GoogleSummarizer(MODEL, client=client)


class TestOfTheEnvironment(Geminis):
    @pytest.fixture(autouse=True)
    def patch(self, no_environment: pytest.MonkeyPatch) -> None:
        self.monkeypatch = no_environment

    def make_summarizer_at(self, url: str) -> Any:
        self.monkeypatch.setenv("GEMINI_API_KEY", KEY)
        self.monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", url)
        return memman_summarizer(self.name)


class Credentials(AnonymousCredentials):
    """Credentials that are valid and never fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.token = KEY


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> pytest.MonkeyPatch:
    for name in (
        "GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE",
        "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_GEMINI_BASE_URL",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


@pytest.fixture
def request_() -> SummaryRequest:
    return summary_request(conversation()[:8], 300, None)


def at(url: str, **given: Any) -> GoogleSummarizer:
    client = Client(vertexai=False, api_key=KEY, http_options=HttpOptions(base_url=url))
    return GoogleSummarizer(given.pop("model", MODEL), client=client, **given)


def test_the_request_is_contents_with_a_system_instruction(request_: SummaryRequest) -> None:
    with loopback(PATH, generated("x")) as server:
        at(server.url, system="Summarize in verse.").summarize(request_)
        body = server.received[0].body
    assert body["contents"] == [{"role": "user", "parts": [{"text": request_.prompt}]}]
    assert body["systemInstruction"]["parts"] == [{"text": "Summarize in verse."}]
    assert body["generationConfig"] == {"maxOutputTokens": 17_100}


def test_a_model_that_does_not_think_gets_no_room_for_it(request_: SummaryRequest) -> None:
    with loopback("/models/gemini-2.0-flash:generateContent", generated("x")) as server:
        at(server.url, model="gemini-2.0-flash").summarize(request_)
        assert server.received[0].body["generationConfig"]["maxOutputTokens"] == 1_100


def test_options_go_before_ours(request_: SummaryRequest) -> None:
    with loopback(PATH, generated("x")) as server:
        options = {"max_output_tokens": 77, "thinking_config": {"thinking_budget": 0}}
        at(server.url, options=options).summarize(request_)
        config = server.received[0].body["generationConfig"]
    assert config == {"maxOutputTokens": 77, "thinkingConfig": {"thinking_budget": 0}}


def test_thoughts_are_no_part_of_the_summary(request_: SummaryRequest) -> None:
    answer = generated("The summary.")
    answer.body["candidates"][0]["content"]["parts"].insert(0, {"text": "Hm.", "thought": True})
    with loopback(PATH, answer) as server:
        assert at(server.url).summarize(request_).text == "The summary."


def test_a_wait_that_the_body_asks_for_is_kept(request_: SummaryRequest) -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.1s"}
    error = {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED", "details": [info]}
    with loopback(PATH, Answer(429, {"error": error}), generated("x")) as server:
        assert at(server.url).summarize(request_).text == "x"
        assert len(server.received) == 2


def test_its_models_limits_are_known(no_environment: pytest.MonkeyPatch) -> None:
    asker = MemoryManager(summarizer=f"google:{MODEL}")._core.summarizers.chosen(None, None)
    assert asker is not None
    assert (asker.max_input_tokens or 0) > 900_000


def test_without_a_key_it_says_what_to_set(
    request_: SummaryRequest, no_environment: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SummarizerUnavailable, match="GEMINI_API_KEY"):
        GoogleSummarizer(MODEL).summarize(request_)


def test_without_vertexs_credentials_it_says_what_to_set(
    request_: SummaryRequest, no_environment: pytest.MonkeyPatch
) -> None:
    no_environment.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    summarizer = GoogleSummarizer(MODEL)
    assert summarizer.model == f"vertex_ai/{MODEL}"
    no_environment.setenv("GOOGLE_CLOUD_PROJECT", "p")
    no_environment.setenv("GOOGLE_CLOUD_LOCATION", "us-east5")
    # The variable NO_GCE_CHECK is read once, at the first import, and would hold for every later test.
    no_environment.setattr("google.auth.compute_engine._metadata._NO_GCE_CHECK", True)
    with pytest.raises(SummarizerUnavailable, match="GOOGLE_APPLICATION_CREDENTIALS"):
        summarizer.summarize(request_)


def test_without_the_sdk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(SummarizerUnavailable, match=r"pip install '\./plugins/memman-google'"):
        MemoryManager(summarizer=f"google:{MODEL}")


def test_an_async_client_is_refused() -> None:
    with pytest.raises(AsyncPortRefused, match="pass the SDK's sync client"):
        GoogleSummarizer(MODEL, client=Client(api_key=KEY).aio)  # type: ignore[arg-type]


def test_a_name_without_a_model_says_how_to_write_it() -> None:
    with pytest.raises(InvalidInput, match="write google:MODEL"):
        MemoryManager(summarizer="google:")
