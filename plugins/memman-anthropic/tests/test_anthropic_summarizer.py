"""Claude as a summarizer: the laws of one behind an SDK, on both platforms, and its own rules."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from memman_anthropic import AnthropicSummarizer, memman_summarizer

from memman import (
    AsyncPortRefused,
    InvalidInput,
    MemoryManager,
    SummarizerUnavailable,
    SummaryRequest,
    events,
)
from memman.compression.prompt import summary_request
from memman.testing import Answer, RemoteSummarizerConformance, loopback, record_events
from memman.testing.summarizers import conversation
from tests.provider_kits import second_client

KEY = "key-of-the-test"
MODEL = "claude-haiku-4-5"


def message(text: str, stop: str = "end_turn", **usage: int) -> Answer:
    return Answer(
        200,
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": f"{MODEL}-20251001",
            "content": [{"type": "text", "text": text}] if text else [],
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1, **usage},
        },
    )


class Anthropics(RemoteSummarizerConformance):
    path = "/v1/messages"
    name, module, sdk = f"anthropic:{MODEL}", "memman_anthropic", "anthropic"

    def written(self, text: str, read: int = 100, cached: int = 0, wrote: int = 10) -> Answer:
        kept = {"cache_read_input_tokens": cached, "cache_creation_input_tokens": 7}
        return message(text, input_tokens=read - cached - 7, output_tokens=wrote, **kept)

    def cut_off(self, text: str) -> Answer:
        return message(text, "max_tokens")

    def refusals(self) -> list[Answer]:
        return [message("", "refusal"), message("I cannot", "refusal")]


class TestOfTheEnvironment(Anthropics):
    @pytest.fixture(autouse=True)
    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def make_summarizer_at(self, url: str) -> Any:
        self.monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        self.monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        return memman_summarizer(self.name)


@second_client
class TestVertex(Anthropics):
    path = f"/publishers/anthropic/models/{MODEL}:rawPredict"

    def make_summarizer_at(self, url: str) -> AnthropicSummarizer:
        client = anthropic.AnthropicVertex(
            region="us-east5", project_id="p", access_token=KEY, base_url=url
        )
        return AnthropicSummarizer(MODEL, client=client)


@pytest.fixture
def request_() -> SummaryRequest:
    return summary_request(conversation()[:8], 300, None)


def at(url: str, **given: Any) -> AnthropicSummarizer:
    client = anthropic.Anthropic(base_url=url, api_key=KEY)
    return AnthropicSummarizer(given.pop("model", MODEL), client=client, **given)


def test_the_request_is_a_message_with_a_system_prompt(request_: SummaryRequest) -> None:
    with loopback("/v1/messages", message("x")) as server:
        at(server.url, system="Summarize in verse.").summarize(request_)
        [received] = server.received
    assert received.body["model"] == MODEL
    assert received.body["system"] == "Summarize in verse."
    assert received.body["messages"] == [{"role": "user", "content": request_.prompt}]


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        (MODEL, 1_100),  # twice the target and 500
        ("claude-opus-4-7", 17_100),  # with room to think
        ("claude-3-haiku-20240307", 1_100),
        ("claude-of-tomorrow", 1_100),
    ],
)
def test_the_limit_of_the_reply_follows_the_target(
    model: str, limit: int, request_: SummaryRequest
) -> None:
    with loopback("/v1/messages", message("x")) as server:
        at(server.url, model=model).summarize(request_)
        assert server.received[0].body["max_tokens"] == limit


def test_no_limit_is_above_what_the_model_can_write() -> None:
    long = summary_request(conversation(), 4_000, None)
    with loopback("/v1/messages", message("x")) as server:
        at(server.url, model="claude-3-haiku-20240307").summarize(long)
        assert server.received[0].body["max_tokens"] == 4_096


def test_options_go_before_ours(request_: SummaryRequest) -> None:
    with loopback("/v1/messages", message("x")) as server:
        at(server.url, options={"max_tokens": 77, "stop_sequences": ["#"]}).summarize(request_)
        body = server.received[0].body
        assert (body["max_tokens"], body["stop_sequences"]) == (77, ["#"])


def test_thoughts_are_no_part_of_the_summary(request_: SummaryRequest) -> None:
    answer = message("The summary.")
    answer.body["content"].insert(0, {"type": "thinking", "thinking": "Hm.", "signature": "s"})
    with loopback("/v1/messages", answer) as server:
        assert at(server.url).summarize(request_).text == "The summary."


def test_a_full_context_is_a_cut_off(request_: SummaryRequest) -> None:
    with loopback("/v1/messages", message("x", "model_context_window_exceeded")) as server:
        assert at(server.url).summarize(request_).truncated


def test_a_long_target_is_asked_for_without_a_stream() -> None:
    """The SDK refuses a long reply without one, unless the time-out is given."""
    request = summary_request(conversation(), 60_000, None)
    with loopback("/v1/messages", message("x")) as server:
        assert at(server.url, model="claude-opus-4-7").summarize(request).text == "x"


def test_its_models_limits_are_known() -> None:
    memory = MemoryManager(summarizer=f"anthropic:{MODEL}")
    asker = memory._core.summarizers.chosen(None, None)
    assert asker is not None
    assert asker.max_input_tokens == 200_000 - 64_000


@pytest.mark.parametrize("name", ["anthropic:", "anthropic: "])
def test_a_name_without_a_model_says_how_to_write_it(name: str) -> None:
    with pytest.raises(InvalidInput, match="write anthropic:MODEL"):
        MemoryManager(summarizer=name)


def test_an_async_client_is_refused() -> None:
    with pytest.raises(AsyncPortRefused, match="pass the SDK's sync client"):
        AnthropicSummarizer(MODEL, client=anthropic.AsyncAnthropic(api_key=KEY))


def test_without_the_sdk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(SummarizerUnavailable, match=r"pip install '\./plugins/memman-anthropic'"):
        MemoryManager(summarizer=f"anthropic:{MODEL}")


def test_without_a_key_the_compression_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("API_KEY", "AUTH_TOKEN", "PROFILE", "BASE_URL"):
        monkeypatch.delenv(f"ANTHROPIC_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    memory = MemoryManager(summarizer=f"anthropic:{MODEL}")
    for entry in conversation():
        memory.add_user_message("s", entry.text)
    with record_events(kinds=(events.CompressionFailedNotice,)) as told:
        memory.compress("s", target_tokens=2_000)
    [notice] = told
    assert isinstance(notice, events.CompressionFailedNotice)
    assert "SummarizerUnavailable" in notice.reason
    assert "ANTHROPIC_API_KEY" in notice.reason
