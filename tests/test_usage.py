"""Usage reports of providers as one record: the total includes cached tokens."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memman import InvalidInput, MemoryManager, SessionNotFound, events
from memman.counting.usage import billed_tokens, usage_of
from memman.records import UsageReported

AT = datetime(2026, 1, 1, tzinfo=UTC)


def read(usage: Any) -> tuple[int, ...]:
    record = usage_of(billed_tokens(usage), "u1", AT, "gpt-5")
    assert (record.id, record.at, record.model) == ("u1", AT, "gpt-5")
    written = (record.cache_written_tokens,) if record.cache_written_tokens else ()
    return record.input_tokens, record.output_tokens, record.cached_tokens, *written


SHAPES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "a number": (120, (120, 0, 0)),
    "OpenAI chat": (
        {
            "prompt_tokens": 120,
            "completion_tokens": 7,
            "total_tokens": 127,
            "prompt_tokens_details": {"cached_tokens": 64},
        },
        (120, 7, 64),
    ),
    "a copy of OpenAI that leaves cached tokens out": (
        {
            "prompt_tokens": 56,
            "completion_tokens": 7,
            "total_tokens": 127,
            "prompt_tokens_details": {"cached_tokens": 64},
        },
        (120, 7, 64),
    ),
    "OpenAI chat without details": ({"prompt_tokens": 120, "completion_tokens": 7}, (120, 7, 0)),
    "OpenAI chat with null details": (
        {"prompt_tokens": 120, "completion_tokens": 7, "prompt_tokens_details": None},
        (120, 7, 0),
    ),
    "OpenAI responses": (
        {
            "input_tokens": 120,
            "output_tokens": 7,
            "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 46},
            "output_tokens_details": {"reasoning_tokens": 2},
        },
        (120, 7, 64, 46),
    ),
    "LangChain": (
        {
            "input_tokens": 120,
            "output_tokens": 7,
            "input_token_details": {
                "cache_read": 64,
                "cache_creation": 0,
                "ephemeral_5m_input_tokens": 46,
            },
        },
        (120, 7, 64, 46),
    ),
    "Anthropic": (
        {
            "input_tokens": 10,
            "output_tokens": 7,
            "cache_read_input_tokens": 64,
            "cache_creation_input_tokens": 46,
        },
        (120, 7, 64, 46),
    ),
    "Anthropic without a cache": ({"input_tokens": 10, "output_tokens": 7}, (10, 7, 0)),
    "Anthropic with a null cache": (
        {
            "input_tokens": 10,
            "output_tokens": 7,
            "cache_read_input_tokens": None,
            "cache_creation_input_tokens": None,
        },
        (10, 7, 0),
    ),
    "Bedrock Converse": (
        {
            "inputTokens": 10,
            "outputTokens": 7,
            "totalTokens": 127,
            "cacheReadInputTokens": 64,
            "cacheWriteInputTokens": 46,
        },
        (120, 7, 64, 46),
    ),
    "Gemini's SDK": (
        {
            "prompt_token_count": 120,
            "candidates_token_count": 7,
            "cached_content_token_count": 64,
            "total_token_count": 127,
        },
        (120, 7, 64),
    ),
    "Gemini over HTTP": (
        {"promptTokenCount": 120, "candidatesTokenCount": 7, "cachedContentTokenCount": 64},
        (120, 7, 64),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_provider_spelling_is_read(shape: str) -> None:
    usage, expected = SHAPES[shape]
    assert read(usage) == expected


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "a number"])
def test_sdk_object_is_read_as_its_dict(shape: str) -> None:
    usage, expected = SHAPES[shape]

    class SdkUsage:
        def model_dump(self) -> dict[str, Any]:
            return dict(usage)

    assert read(SdkUsage()) == expected


HOURS: dict[str, dict[str, Any]] = {
    "Anthropic": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 46,
        "cache_creation": {"ephemeral_5m_input_tokens": 6, "ephemeral_1h_input_tokens": 40},
    },
    "Bedrock Converse": {
        "inputTokens": 10,
        "cacheWriteInputTokens": 46,
        "cacheDetails": [{"ttl": "5m", "inputTokens": 6}, {"ttl": "1h", "inputTokens": 40}],
    },
    "LangChain": {
        "input_tokens": 56,
        "input_token_details": {"ephemeral_5m_input_tokens": 6, "ephemeral_1h_input_tokens": 40},
    },
}


@pytest.mark.parametrize("shape", HOURS)
def test_tokens_written_for_an_hour_are_kept_apart(shape: str) -> None:
    record = usage_of(billed_tokens(HOURS[shape]), "u1", AT, None)
    assert record.input_tokens == 56
    assert (record.cache_written_tokens, record.cache_written_1h_tokens) == (46, 40)


@pytest.mark.parametrize("details", [5, {"ttl": "1h"}, [{"ttl": "1h", "inputTokens": -1}]])
def test_bad_details_of_a_cache_are_refused(details: Any) -> None:
    with pytest.raises(InvalidInput, match="usage has"):
        billed_tokens({"inputTokens": 10, "outputTokens": 1, "cacheDetails": details})


@pytest.mark.parametrize("usage", [{}, {"total_tokens": 5}, {"output_tokens": 5}])
def test_missing_input_tokens_error_names_the_keys(usage: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="usage names no input tokens"):
        read(usage)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 900}},
        {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 900}},
        {"input_tokens": 100, "input_token_details": {"cache_read": 900}},
        {"prompt_token_count": 100, "cached_content_token_count": 900},
        {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 90, "cache_write_tokens": 810},
        },
    ],
)
def test_too_many_cached_tokens_are_refused(usage: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="900 cached tokens of 100 input tokens"):
        read(usage)


def test_response_with_invalid_usage_is_added_without_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 900}}
    memory = MemoryManager(counter="chars4")
    message = {"role": "assistant", "content": "done"}
    memory.add_messages("s", {"choices": [{"message": message}], "usage": usage})
    assert [entry.text for entry in memory.get_entries("s")] == ["done"]
    assert "the usage of a response was not recorded" in caplog.text
    assert "900 cached tokens of 100" in caplog.text


def test_reported_usage_event_has_the_estimate() -> None:
    memory = MemoryManager(counter="chars4")
    memory.add_user_message("s", "abc " * 100)
    context = memory.build_context("s")
    heard: list[Any] = []

    def receive(sender: Any, event: Any) -> None:
        heard.append(event)

    with events.usage_reported.connected_to(receive, sender=memory):
        memory.record_usage("s", {"input_tokens": 150, "output_tokens": 3}, model="gpt-5")
    [event] = heard
    assert (event.model, event.input_tokens, event.output_tokens) == ("gpt-5", 150, 3)
    assert event.estimated == context.tokens.tokens


def test_usage_in_numbers_is_recorded() -> None:
    memory = MemoryManager(counter="chars4")
    memory.add_user_message("s", "Hello")
    heard: list[events.Usage] = []
    memory.on(events.Usage, heard.append)
    memory.record_usage(
        "s",
        model="m",
        input_tokens=120,
        output_tokens=7,
        cached_tokens=64,
        cache_written_tokens=46,
        cache_written_1h_tokens=6,
    )
    [item] = memory.feed("s", after=2)
    assert isinstance(item.record, UsageReported)
    assert len(heard) == 1
    for seen in (*heard, item.record):
        assert (seen.model, seen.input_tokens, seen.output_tokens) == ("m", 120, 7)
        assert (seen.cached_tokens, seen.cache_written_tokens) == (64, 46)
        assert seen.cache_written_1h_tokens == 6


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"output_tokens": 5},
        {"usage": 12, "input_tokens": 12},
        {"usage": 12, "output_tokens": 5},
        {"input_tokens": -1},
        {"input_tokens": True},
        {"input_tokens": 12, "cached_tokens": 1.5},
        {"input_tokens": 12, "cached_tokens": 6, "cache_written_tokens": 7},
        {"input_tokens": 12, "cache_written_tokens": 6, "cache_written_1h_tokens": 7},
    ],
)
def test_bad_numbers_of_usage_are_refused(given: dict[str, Any]) -> None:
    memory = MemoryManager(counter="chars4")
    memory.add_user_message("s", "Hello")
    with pytest.raises(InvalidInput, match="tokens"):
        memory.record_usage("s", **given)
    assert len(list(memory.feed("s"))) == 2


def test_drift_is_reported_over_estimated_less_one() -> None:
    memory = MemoryManager(counter="chars4")
    memory.add_user_message("s", "abc " * 100)
    assert memory.get_stats("s").drift is None
    estimated = memory.build_context("s").tokens.tokens
    memory.record_usage("s", 2 * estimated)
    assert memory.get_stats("s").drift == 1.0


def test_provider_difference_counts_towards_the_trigger() -> None:
    memory = MemoryManager(counter="chars4")
    memory.add_user_message("s", "abc " * 100)
    estimated = memory.build_context("s").tokens.tokens
    memory.record_usage("s", estimated + 2_000)
    assert memory.get_stats("s").overhead_tokens >= 2_000


def test_usage_of_a_missing_session_is_refused() -> None:
    memory = MemoryManager()
    with pytest.raises(SessionNotFound):
        memory.record_usage("nowhere", 5)
    assert memory.list_sessions() == []


def test_usage_of_another_process_corrects_the_next_context(
    tmp_path: Path,
) -> None:
    """The total counts in full, even if the rest besides our ratio is negative."""
    with (
        MemoryManager(tmp_path / "chat.db", counter="chars4") as ours,
        MemoryManager(tmp_path / "chat.db", counter="chars4") as theirs,
    ):
        ours.add_user_message("s", "word " * 400)
        counted = ours.build_context("s").tokens.tokens
        theirs.build_context("s")
        theirs.record_usage("s", counted)
        theirs.add_user_message("s", "word " * 400)
        more = theirs.build_context("s").tokens.tokens
        theirs.record_usage("s", more + counted)  # twice our count of the new entries
        theirs.record_usage("s", more)  # and then it differs, so no ratio can be learned
        theirs.add_user_message("s", "word " * 400)
        expected = theirs.build_context("s").tokens.tokens
        assert more + 1.1 * (more - counted) < expected < more + 1.5 * (more - counted)
        assert ours.build_context("s").tokens.tokens == expected


def test_tokens_cleared_by_the_provider_are_not_counted() -> None:
    memory = MemoryManager(model="claude-sonnet-4-5", format="anthropic")
    memory.add_user_message("s", "Read the files.")
    for number in range(10):
        call = memory.add_tool_call("s", "read", {"path": f"{number}.txt"})
        memory.add_tool_result("s", "read", "word " * 1_000, call_id=call.call_id)
    whole = memory.build_context("s").tokens.tokens
    memory.add_messages("s", cleared_reply(whole - 8_000, 8_000))
    small = memory.build_context("s").tokens.tokens
    assert whole - 8_100 < small < whole - 7_900
    stats = memory.get_stats("s")
    assert stats.active_tokens + stats.overhead_tokens <= small
    assert stats.drift is not None
    assert abs(stats.drift) < 0.05
    memory.compress("s", target_tokens=2_000)  # the provider clears anew then, or nothing
    assert memory.get_stats("s").overhead_tokens >= 0


def test_report_that_is_merely_too_small_takes_nothing_away() -> None:
    memory = MemoryManager(model="claude-sonnet-4-5", format="anthropic")
    memory.add_user_message("s", "word " * 10_000)
    whole = memory.build_context("s").tokens.tokens
    memory.add_messages("s", cleared_reply(whole - 8_000, 0))
    assert memory.build_context("s").tokens.tokens >= whole


def cleared_reply(tokens: int, cleared: int) -> dict[str, Any]:
    """Return a response of Anthropic's whose context editing cleared tokens of the request."""
    edit = {"type": "clear_tool_uses_20250919", "cleared_input_tokens": cleared}
    return {
        "type": "message",
        "role": "assistant",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "All ten say word."}],
        "usage": {"input_tokens": tokens, "output_tokens": 5},
        "context_management": {"applied_edits": [edit] if cleared else []},
    }
