"""The calls, the keys and the cached tokens in a provider's usage."""

from __future__ import annotations

import math
from typing import Any, get_args

import boto3
import pytest
from anthropic.types import Usage as ClaudeUsage
from anthropic.types.beta import BetaMessageDeltaUsage, BetaUsage
from google.genai.types import GenerateContentResponseUsageMetadata, UsageMetadata
from openai.types import CompletionUsage
from openai.types.responses import ResponseUsage
from openai.types.responses.compacted_response import CompactedResponse
from pydantic import BaseModel

from memman import InvalidInput, MemoryManager, ModelInfo, ModelRef, Prices, events, hookimpl
from memman.counting.usage import billed_tokens, given_tokens, usage_shapes
from memman.display import warn_once
from memman.records import UsageReported
from memman.spend import BilledTokens

MODEL, OTHER = "acme-large", "acme-small"
PRICES = {
    MODEL: Prices(input=5.0, output=25.0, cache_read=0.5, cache_write=6.25, cache_write_1h=10.0),
    OTHER: Prices(input=1.0, output=5.0, cache_read=0.1, cache_write=1.25),
}


def call(kind: str, given: int, said: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "input_tokens": given, "output_tokens": said, **more}


def iterated(*calls: dict[str, Any], given: int = 23_000, said: int = 1_000) -> dict[str, Any]:
    """Return a usage with its calls; the totals are those of the requests."""
    return {"input_tokens": given, "output_tokens": said, "iterations": list(calls)}


COMPACTED = iterated(call("compaction", 180_000, 3_500), call("message", 23_000, 1_000))


@pytest.fixture
def prices(hooked: Any) -> None:
    """A plugin that knows the prices of two models."""

    class Source:
        @hookimpl
        def memman_prices(self, model: ModelRef) -> Prices | None:
            return PRICES.get(model.name)

    hooked(Source())


@pytest.fixture
def memory() -> MemoryManager:
    info = ModelInfo(200_000, 200_000, 64_000, prices=PRICES[MODEL])
    memory = MemoryManager(model=MODEL, model_info=info, counter="chars4", format="anthropic")
    memory.add_user_message("s", "word " * 20_000)
    return memory


def report_of(memory: MemoryManager) -> UsageReported:
    """Return the last report of the session."""
    log = memory.export_session("s").log
    return [record for record in log if isinstance(record, UsageReported)][-1]


def response(usage: dict[str, Any], name: str = "msg_1") -> dict[str, Any]:
    content = [{"type": "text", "text": "Done."}]
    return {"id": name, "type": "message", "role": "assistant", "content": content, "model": MODEL,
            "stop_reason": "end_turn", "usage": usage}  # fmt: skip


# ---------------------------------------------------------------- several calls for one request


def test_compaction_of_the_provider_is_billed(memory):
    memory.record_usage("s", COMPACTED)
    stats = memory.get_stats("s")
    assert (stats.reported.requests, stats.reported.input, stats.reported.output) == (
        1,
        203_000,
        4_500,
    )
    assert stats.spend.total == pytest.approx(1.1275)


def test_each_part_of_a_compactions_input_has_its_price(memory):
    more = {
        "cache_read_input_tokens": 100_000,
        "cache_creation_input_tokens": 50_000,
        "cache_creation": {
            "ephemeral_5m_input_tokens": 20_000,
            "ephemeral_1h_input_tokens": 30_000,
        },
    }
    memory.record_usage(
        "s", iterated(call("compaction", 0, 0, **more), call("message", 0, 0), given=0)
    )
    spend, reported = memory.get_stats("s").spend, memory.get_stats("s").reported
    assert (reported.input, reported.cached, reported.written) == (150_000, 100_000, 50_000)
    assert spend.total == pytest.approx(0.05 + 0.125 + 0.3)


def test_size_of_the_context_is_that_of_the_last_request(memory):
    for usage in (iterated(call("message", 23_000, 1_000)), COMPACTED):
        memory.record_usage("s", usage)
        report = report_of(memory)
        assert (report.input_tokens, report.output_tokens) == (23_000, 1_000)
    drift = memory.get_stats("s").drift
    assert drift is not None
    assert abs(drift) < 0.1
    assert int(memory.build_context("s").tokens) < 30_000


def test_loop_of_server_tools_has_the_size_of_its_last_request(memory):
    calls = (call("message", 10_000, 5), call("message", 23_000, 5))
    memory.record_usage("s", iterated(*calls, given=33_000, said=10))
    assert report_of(memory).input_tokens == 23_000
    assert memory.get_stats("s").reported.input == 33_000


@pytest.mark.usefixtures("prices")
def test_call_of_another_model_has_its_price():
    memory = MemoryManager(model=MODEL, counter="chars4")
    memory.add_user_message("s", "Hello")
    advice = call("advisor_message", 1_000_000, 0, model=OTHER)
    memory.record_usage("s", iterated(call("message", 0, 1_000_000, model=MODEL), advice))
    assert memory.get_stats("s").spend.total == pytest.approx(25.0 + 1.0)


@pytest.mark.usefixtures("prices")
def test_fallback_model_answers_for_the_report():
    memory = MemoryManager(model=MODEL, counter="chars4")
    memory.add_user_message("s", "Hello")
    declined = call("message", 1_000_000, 0, model=MODEL)
    memory.record_usage(
        "s", iterated(declined, call("fallback_message", 1_000_000, 0, model=OTHER))
    )
    report = report_of(memory)
    assert report.model == OTHER
    assert report.others == (BilledTokens(model=MODEL, input_tokens=1_000_000),)
    assert memory.get_stats("s").spend.total == pytest.approx(6.0)


def test_price_is_unknown_if_that_of_a_call_is(memory):
    memory.record_usage(
        "s", iterated(call("message", 5, 5), call("advisor_message", 5, 5, model="m"))
    )
    assert memory.get_stats("s").spend is None


def test_request_that_only_compacts_teaches_nothing(memory):
    counted = memory.build_context("s").tokens
    memory.record_usage("s", iterated(call("compaction", 180_000, 3_500), given=0, said=0))
    assert memory.get_stats("s").reported.input == 180_000
    assert memory.get_stats("s").drift is None
    assert memory.build_context("s").tokens == counted


def test_unlisted_request_counts_besides_compaction(memory):
    memory.record_usage("s", iterated(call("compaction", 180_000, 3_500)))
    assert memory.get_stats("s").reported.input == 203_000
    assert report_of(memory).input_tokens == 23_000


@pytest.mark.parametrize("how", ["add_messages", "record_usage", "the SDK's object"])
def test_compaction_by_openai_is_billed_and_teaches_nothing(how):
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
    usage = {"input_tokens": 180_000, "output_tokens": 3_500, "total_tokens": 183_500,
             "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
             "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    given: Any = {"id": "resp_1", "object": "response.compaction", "created_at": 1, "output": [item],
                  "usage": usage}  # fmt: skip
    memory = MemoryManager(model="gpt-5", counter="chars4")
    memory.add_user_message("s", "word " * 20_000)
    counted = memory.build_context("s").tokens
    if how == "add_messages":
        assert [entry.type for entry in memory.add_messages("s", given)] == ["summary"]
        assert memory.build_context("s", format="openai-responses").messages == [item]
    else:
        memory.record_usage("s", CompactedResponse.model_validate(given) if "SDK" in how else given)
        assert memory.build_context("s").tokens == counted
    assert memory.get_stats("s").reported.input == 180_000
    assert memory.get_stats("s").drift is None


def test_event_has_the_other_calls(memory):
    heard: list[events.Usage] = []
    memory.on(events.Usage, heard.append)
    memory.record_usage("s", COMPACTED)
    [event] = heard
    assert event.input_tokens == 23_000
    [other] = event.others
    assert (other.model, other.input_tokens, other.output_tokens) == (MODEL, 180_000, 3_500)
    assert event.charge is not None
    assert event.charge.total == pytest.approx(1.1275)


def test_other_calls_survive_an_export(memory):
    memory.record_usage("s", COMPACTED)
    other = MemoryManager()
    other.import_session(memory.export_session("s").to_json())
    assert other.get_stats("s").reported == memory.get_stats("s").reported
    assert report_of(other) == report_of(memory)


@pytest.mark.parametrize("parts", [
    "junk", 5, {"type": "message"}, ["junk"], [None], [{}], [call("message", -1, 0)],
    [call("message", 1, "2")], [call("message", 1, True)], [call("message", math.nan, 0)],
    [{"type": "message", "input_tokens": None}], [call("message", 1, 0, model=5)],
    [call("message", 1, 0, model="\ud800")], [call("message", 1, 0)] * 1_001,
    [call("message", 1, 0, cache_creation="junk")], [call("message", 10**30, 0)],
])  # fmt: skip
def test_bad_calls_are_refused_and_change_nothing(memory, parts):
    with pytest.raises(InvalidInput):
        memory.record_usage("s", {"input_tokens": 1, "output_tokens": 1, "iterations": parts})
    assert memory.get_stats("s").reported.requests == 0


@pytest.mark.parametrize("parts", [None, []])
def test_usage_without_calls_is_one(parts):
    usage = {"input_tokens": 5, "output_tokens": 1, "iterations": parts}
    assert billed_tokens(usage) == (BilledTokens(input_tokens=5, output_tokens=1),)


# ---------------------------------------------------------------- unknown numbers


def numbered(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a usage with a number for each field; a field is a type, or the fields inside it."""
    return {name: numbered(kind) if isinstance(kind, dict) else 1 for name, kind in fields.items()}


def numbers_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of an SDK's type that have a number, however deep."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kinds = kinds_in(field.annotation)
        inner = [each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)]
        if int in kinds or float in kinds:
            found[name] = int
        for each in inner:
            if numbers := numbers_of(each):
                found[name] = {**found.get(name, {}), **numbers}
    return found


def kinds_in(annotation: Any) -> list[Any]:
    """Return the types in an annotation."""
    inner = [kind for each in get_args(annotation) for kind in kinds_in(each)]
    return inner or [annotation]


def members_of(shape: Any) -> dict[str, Any]:
    """Return the fields of a type of botocore that have a number."""
    if shape.type_name == "list":
        return members_of(shape.member)
    members = getattr(shape, "members", {})
    found = {name: members_of(each) or each.type_name for name, each in members.items()}
    return {name: each for name, each in found.items() if each not in ("string", "structure", {})}


def converse_usage() -> dict[str, Any]:
    model = boto3.Session().client("bedrock-runtime", region_name="us-east-1").meta.service_model
    usage = numbered(members_of(model.shape_for("TokenUsage")))
    usage["cacheDetails"] = [{**usage["cacheDetails"], "ttl": ttl} for ttl in ("5m", "1h")]
    return usage


TYPES: dict[str, type[BaseModel]] = {
    "Anthropic": ClaudeUsage,
    "Anthropic beta": BetaUsage,
    "Anthropic beta, streamed": BetaMessageDeltaUsage,
    "OpenAI chat": CompletionUsage,
    "OpenAI responses": ResponseUsage,
    "Gemini": GenerateContentResponseUsageMetadata,
    "Gemini live": UsageMetadata,
}


@pytest.mark.parametrize("name", [*TYPES, "Bedrock Converse", "Mistral"])
def test_every_number_of_the_installed_sdks_is_known(name, caplog):
    if name == "Mistral":
        usage = numbered(numbers_of(pytest.importorskip("mistralai.models").UsageInfo))
    else:
        usage = numbered(numbers_of(TYPES[name])) if name in TYPES else converse_usage()
    assert len(usage) > 2
    if "iterations" in usage:
        usage["iterations"] = [{**usage["iterations"], "type": "message"}]
    warn_once.cache_clear()
    billed_tokens({**usage, name_of_total(usage): 1_000})
    assert [record.getMessage() for record in caplog.records] == []


def name_of_total(usage: dict[str, Any]) -> str:
    """Return the key of the input total, which is to be large enough for the cached ones."""
    shape = next(shape for shape in usage_shapes() if shape.mark in usage)
    return next(key for key, meaning in shape.counts.items() if meaning == "input")


UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "OpenAI chat": ({"prompt_tokens": 5, "dream_tokens": 7}, "dream_tokens"),
    "OpenAI responses": (
        {"input_tokens": 5, "input_tokens_details": {"dreamt_tokens": 7}},
        "input_tokens_details.dreamt_tokens",
    ),
    "Anthropic": ({"input_tokens": 5, "dreams": {"deep": {"tokens": 7.5}}}, "dreams.deep.tokens"),
    "Bedrock Converse": (
        {"inputTokens": 5, "cacheDetails": [{"ttl": "12h", "inputTokens": 7}]},
        "cacheDetails[12h].inputTokens",
    ),
    "Gemini": ({"promptTokenCount": 5, "dreamTokenCount": 7}, "dreamTokenCount"),
}


@pytest.mark.parametrize("provider", UNKNOWN)
def test_unknown_number_is_one_warning(memory, provider, caplog):
    usage, key = UNKNOWN[provider]
    warn_once.cache_clear()
    for _ in range(3):
        memory.record_usage("s", usage)
    [record] = caplog.records
    assert record.getMessage() == (
        f"a usage of {provider} has the unknown number {key!r}: it is not counted"
    )


def test_unknown_number_in_a_call_is_one_warning(memory, caplog):
    warn_once.cache_clear()
    memory.record_usage("s", iterated(call("message", 5, 5, dream_tokens=7)))
    assert [record.getMessage() for record in caplog.records] == [
        "a usage of Anthropic has the unknown number 'dream_tokens': it is not counted"
    ]


@pytest.mark.parametrize("value", [0, None, True, "7", [7], {"a": "b"}])
def test_what_adds_nothing_is_no_warning(value, caplog):
    warn_once.cache_clear()
    billed_tokens({"prompt_tokens": 5, "dream_tokens": value})
    assert not caplog.records


def test_deeply_nested_usage_is_read():
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"x": deep}
    assert billed_tokens({"prompt_tokens": 5, "x": deep})[0].input_tokens == 5


# ---------------------------------------------------------------- cached tokens, in the input or beside it


@pytest.mark.parametrize(("usage", "whole"), [
    ({"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}, 100),
    ({"prompt_tokens": 36, "completion_tokens": 7, "total_tokens": 107}, 100),
    ({"prompt_tokens": 100, "completion_tokens": 7}, 100),
    ({"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 999}, 100),  # of something else
    ({"prompt_tokens": 36, "completion_tokens": 7, "total_tokens": 43}, 100),  # more than all input
])  # fmt: skip
def test_total_of_a_chat_tells_whether_cached_tokens_are_apart(usage, whole):
    [billed] = billed_tokens({**usage, "prompt_tokens_details": {"cached_tokens": 64}})
    assert (billed.input_tokens, billed.cached_tokens) == (whole, 64)


@pytest.mark.parametrize(("given", "total", "whole"), [
    (10, 10 + 7 + 64 + 26, 100), (10, None, 100), (10, 17, 100), (100, 107, 100), (100, None, 190),
    (10, 17 + 64, 10 + 64),
])  # fmt: skip
def test_total_of_a_copy_of_converse_tells_it_too(given, total, whole):
    usage = {"inputTokens": given, "outputTokens": 7, "totalTokens": total,
             "cacheReadInputTokens": 64, "cacheWriteInputTokens": 26}  # fmt: skip
    if whole == 74:  # less than both kinds of cached ones: an answer with the read ones alone
        usage["cacheWriteInputTokens"] = 5
    assert billed_tokens(usage)[0].input_tokens == whole


@pytest.mark.parametrize(("given", "total", "whole"), [
    (100, None, 100), (100, 107, 100), (10, 107, 100), (10, 17, 100), (100, 500, 100)
])  # fmt: skip
def test_total_in_numbers_tells_it_too(memory, given, total, whole):
    numbers = {"output_tokens": 7, "cached_tokens": 64, "cache_written_tokens": 26}
    [billed] = given_tokens(None, input_tokens=given, total_tokens=total, **numbers)
    assert billed.input_tokens == whole
    memory.record_usage("s", input_tokens=given, total_tokens=total, **numbers)
    assert report_of(memory).input_tokens == whole


@pytest.mark.parametrize(
    "key", ["prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"]
)
def test_cached_tokens_of_servers_with_keys_of_their_own(key):
    [billed] = billed_tokens({"prompt_tokens": 100, "completion_tokens": 1, key: 64})
    assert (billed.input_tokens, billed.cached_tokens) == (100, 64)
