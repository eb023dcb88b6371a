"""A streamed reply is accepted as the list of its pieces and equals the whole response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai.types import HttpOptions
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import FormatError, MemoryManager
from memman.formats.bedrock import sdk_messages
from memman.formats.rules import check
from memman.records import UsageReported
from memman.testing import Answer, loopback
from tests.docs.loopback import event_stream, server_sent
from tests.examples import examples
from tests.test_responses_of_sdks import (
    CHAT,
    CLAUDE,
    CONVERSE,
    GEMINI,
    RESPONSE,
    USAGES,
    bedrock_runtime,
    tokens_of,
)

ARGUMENTS = ('{"at"', ": nu", "ll}")


def chunk(delta: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": None}]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    return {**head, "choices": choices, "usage": None, **more}


def call_delta(arguments: str, **first: Any) -> dict[str, Any]:
    named = {"name": first.pop("name")} if "name" in first else {}
    return {"tool_calls": [{"index": 0, **first, "function": {**named, "arguments": arguments}}]}


CHAT_STREAM = [
    chunk({"role": "assistant", "content": "", "refusal": None}),
    chunk({"content": "I "}),
    chunk({"content": "look."}),
    chunk(call_delta("", id="c1", type="function", name="look")),
    *[chunk(call_delta(piece)) for piece in ARGUMENTS],
    chunk({}, choices=[{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]),
    chunk(usage=CHAT["usage"]),
]
RESPONSE_STREAM = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}},
    *[
        {"type": "response.output_item.done", "output_index": at, "item": item}
        for at, item in enumerate(RESPONSE["output"])
    ],
    {"type": "response.completed", "response": RESPONSE},
]
CLAUDE_STREAM = [
    {"type": "message_start", "message": {
        **CLAUDE, "content": [], "stop_reason": None, "usage": {**CLAUDE["usage"], "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0,
     "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "h"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "m"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "I "}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "look."}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2,
     "content_block": {"type": "tool_use", "id": "c1", "name": "look", "input": {}}},
    *[{"type": "content_block_delta", "index": 2,
       "delta": {"type": "input_json_delta", "partial_json": piece}} for piece in ARGUMENTS],
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
     "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
]  # fmt: skip
_PARTS = GEMINI["candidates"][0]["content"]["parts"]


def gemini_piece(parts: list[Any], **more: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": parts}
    head = {"modelVersion": "gemini-3", "responseId": "x"}
    return {"candidates": [{"index": 0, "content": content, **more}], **head}


GEMINI_STREAM = [
    gemini_piece([{"text": "I "}]),
    gemini_piece([{"text": "look."}]),
    {**gemini_piece(_PARTS[1:], finishReason="STOP"), "usageMetadata": GEMINI["usageMetadata"]},
]
CONVERSE_STREAM: list[dict[str, Any]] = [
    {"messageStart": {"role": "assistant"}},
    *[
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": thought}}}
        for thought in ({"text": "h"}, {"text": "m"}, {"signature": "c2ln"})
    ],
    {"contentBlockStop": {"contentBlockIndex": 0}},
    *[
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": text}}}
        for text in ("I ", "look.")
    ],
    {"contentBlockStop": {"contentBlockIndex": 1}},
    {"contentBlockStart": {
        "contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "c1", "name": "look"}}}},
    *[
        {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": piece}}}}
        for piece in ARGUMENTS
    ],
    {"contentBlockStop": {"contentBlockIndex": 2}},
    {"messageStop": {"stopReason": "tool_use"}},
    {"metadata": {"usage": CONVERSE["usage"], "metrics": {"latencyMs": 1}}},
]  # fmt: skip


def events(pieces: Iterable[dict[str, Any]], end: str = "") -> Answer:
    numbered = [
        {**one, "sequence_number": number} if "type" in one else one
        for number, one in enumerate(pieces)
    ]
    return Answer(
        200, (server_sent(numbered) + end).encode(), {"content-type": "text/event-stream"}
    )


AMAZON = {"content-type": "application/vnd.amazon.eventstream"}


def chat(url: str, messages: list[Any]) -> list[Any]:
    with openai.OpenAI(api_key="k", base_url=url, max_retries=0) as client:
        options = {"include_usage": True}
        return list(client.chat.completions.create(
            model="gpt-5", messages=messages, stream=True, stream_options=options))  # fmt: skip


def responses(url: str, messages: list[Any]) -> list[Any]:
    with openai.OpenAI(api_key="k", base_url=url, max_retries=0) as client:
        return list(client.responses.create(model="gpt-5", input=messages, stream=True))


def claude(url: str, messages: list[Any]) -> list[Any]:
    with anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as client:
        return list(client.messages.create(
            model="claude-x", max_tokens=9, messages=messages, stream=True))  # fmt: skip


def claude_helper(url: str, messages: list[Any]) -> list[Any]:
    """A stream of the SDK, which adds its own events to the provider's."""
    with (
        anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as client,
        client.messages.stream(model="claude-x", max_tokens=9, messages=messages) as stream,
    ):
        return list(stream)


def gemini(url: str, messages: list[Any]) -> list[Any]:
    options = HttpOptions(base_url=url, headers={"connection": "close"})
    with genai.Client(api_key="k", http_options=options) as client:
        return list(client.models.generate_content_stream(model="gemini-3", contents=messages))


def converse(url: str, messages: list[Any]) -> list[Any]:
    with bedrock_runtime(url) as client:
        return list(client.converse_stream(modelId="m", messages=sdk_messages(messages))["stream"])


Ask = Callable[[str, list[Any]], list[Any]]
SDKS: dict[str, tuple[str, str, Answer, dict[str, Any], Ask]] = {
    "openai, chat": (
        "openai-chat", "/chat/completions", events(CHAT_STREAM, "data: [DONE]\n\n"), CHAT, chat),
    "openai, responses": (
        "openai-responses", "/responses", events(RESPONSE_STREAM), RESPONSE, responses),
    "anthropic": ("anthropic", "/messages", events(CLAUDE_STREAM), CLAUDE, claude),
    "anthropic, its helper": (
        "anthropic", "/messages", events(CLAUDE_STREAM), CLAUDE, claude_helper),
    "google-genai": (
        "gemini", ":streamGenerateContent", events(GEMINI_STREAM), GEMINI, gemini),
    "boto3": (
        "bedrock", "/converse-stream", Answer(200, event_stream(CONVERSE_STREAM), AMAZON), CONVERSE,
        converse),
}  # fmt: skip


def usages(memory: MemoryManager) -> list[tuple[int, ...]]:
    log = memory.export_session("s").log
    reports = [record for record in log if isinstance(record, UsageReported)]
    return [tokens_of(one) for one in reports]


@pytest.mark.parametrize("sdk", SDKS)
def test_the_pieces_of_a_stream_are_the_response_that_they_make(sdk: str) -> None:
    form, path, answer, body, ask = SDKS[sdk]
    streamed, whole = MemoryManager(counter="chars4"), MemoryManager(counter="chars4")
    for memory in (streamed, whole):
        memory.add_user_message("s", "Where is it?")
    with loopback(path, answer) as server:
        sent = streamed.build_context("s", format=form).messages
        pieces = ask(server.url, sent)
        assert len(pieces) > 2
        added = streamed.add_messages("s", pieces)
        whole.add_messages("s", body)
        [call] = [entry for entry in added if entry.type == "tool_call"]
        assert (call.name, json.loads(call.text)) == ("look", {"at": None})
        assert usages(streamed) == usages(whole) == [USAGES[form]]
        shown = [memory.build_context("s", format=form).messages for memory in (streamed, whole)]
        assert shown[0] == shown[1]
        streamed.add_tool_result("s", "look", "here", call_id=call.call_id)
        context = streamed.build_context("s", format=form)
        assert check(context.messages, form, system=context.system) == []
        streamed.add_messages("s", ask(server.url, context.messages))


@pytest.mark.parametrize(
    ("pieces", "form"),
    [(CHAT_STREAM, "openai-chat"), (CLAUDE_STREAM, "anthropic"), (GEMINI_STREAM, "gemini"),
     (CONVERSE_STREAM, "bedrock")],
)  # fmt: skip
def test_broken_stream_makes_a_partial_response(pieces: list[Any], form: str) -> None:
    texts = []
    for stop in range(1, len(pieces) + 1):
        memory = MemoryManager(counter="chars4")
        memory.add_user_message("s", "Where is it?")
        memory.add_messages("s", pieces[:stop])
        context = memory.build_context("s", format=form)
        assert check(context.messages, form, system=context.system) == []
        entries = [entry for entry in memory.get_entries("s") if entry.type == "message"]
        texts.append("".join(entry.text for entry in entries[1:]))
    assert texts == sorted(texts, key=len)
    assert texts[-1].endswith("I look.")


def test_finished_items_of_a_broken_response_are_kept() -> None:
    memory = MemoryManager(counter="chars4")
    broken = [{**one, "sequence_number": at} for at, one in enumerate(RESPONSE_STREAM[:-1])]
    added = memory.add_messages("s", broken)
    assert [entry.text for entry in added if entry.type != "message" or entry.text] == [
        "I look.",
        '{"at": null}',
    ]
    assert usages(memory) == []


def test_invalid_json_arguments_are_wrapped() -> None:
    memory = MemoryManager(counter="chars4")
    [*_, call] = memory.add_messages("s", CLAUDE_STREAM[:-4])
    assert json.loads(call.text) == {"INVALID_JSON": '{"at": nu'}


def test_parallel_calls_are_separated_by_index() -> None:
    second = {
        "index": 1,
        "id": "c2",
        "type": "function",
        "function": {"name": "see", "arguments": ""},
    }
    more = {"index": 1, "function": {"arguments": "{}"}}
    pieces = [
        *CHAT_STREAM[:5],
        chunk({"tool_calls": [second]}),
        chunk({"tool_calls": [more]}),
        *CHAT_STREAM[5:],
    ]
    added = MemoryManager(counter="chars4").add_messages("s", pieces)
    calls = [(one.call_id, one.name, one.text) for one in added if one.type == "tool_call"]
    assert calls == [("c1", "look", '{"at": null}'), ("c2", "see", "{}")]


def test_repeated_call_id_and_name_are_kept_once() -> None:
    again = [chunk(call_delta(piece, id="c1", type="function", name="look")) for piece in ARGUMENTS]
    [call] = MemoryManager(counter="chars4").add_messages("s", again)
    assert (call.call_id, call.name, call.text) == ("c1", "look", '{"at": null}')


def test_responses_of_several_turns_are_several_messages() -> None:
    turns = [gemini_piece([{"text": text}], finishReason="STOP") for text in ("a", "b")]
    turns[1]["responseId"] = "y"
    added = MemoryManager(counter="chars4").add_messages("s", turns)
    assert [entry.text for entry in added] == ["a", "b"]


def test_stream_end_separates_responses_without_ids() -> None:
    pieces = [gemini_piece([{"text": text}]) for text in ("a", "b")]
    pieces.append(gemini_piece([{"text": "c"}], finishReason="STOP"))
    for piece in pieces:
        del piece["responseId"]
    [entry] = MemoryManager(counter="chars4").add_messages("s", pieces)
    assert entry.text == "abc"


# ---------------------------------------------------------------- wrong use


def refusal(given: Any) -> str:
    memory = MemoryManager(counter="chars4")
    with pytest.raises(FormatError) as caught:
        memory.add_messages("s", given)
    assert memory.list_sessions() == []
    return str(caught.value)


@pytest.mark.parametrize("piece", [CHAT_STREAM[1], CLAUDE_STREAM[3], CONVERSE_STREAM[1]])
def test_single_piece_error_has_the_remedy(piece: Any) -> None:
    assert "collect the pieces in a list" in refusal(piece)


def test_unread_stream_error_names_the_way_out() -> None:
    with (
        loopback("/chat/completions", events(CHAT_STREAM, "data: [DONE]\n\n")) as server,
        openai.OpenAI(api_key="k", base_url=server.url, max_retries=0) as client,
    ):
        stream = client.chat.completions.create(model="m", messages=[], stream=True)
        assert "the Stream has not been read: collect its pieces in a list" in refusal(stream)
        stream.close()

    async def asynchronous() -> str:
        async def pieces() -> Any:
            yield CHAT_STREAM[0]

        return refusal(pieces())

    assert "the async_generator has not been read" in asyncio.run(asynchronous())


def test_unawaited_call_error_names_the_way_out() -> None:
    async def create() -> Any:
        raise AssertionError("nobody awaits it")

    call = create()
    assert "the coroutine has not been awaited: add what `await` makes of it" in refusal(call)
    call.close()


def test_pieces_among_messages_are_refused_by_their_number() -> None:
    message = refusal([{"role": "user", "content": "x"}, *CHAT_STREAM])
    assert message.startswith("message 0 is not a piece of the same stream")
    assert refusal([*CHAT_STREAM, CLAUDE_STREAM[0]]).startswith(f"message {len(CHAT_STREAM)} is no")


@pytest.mark.parametrize(
    "pieces", [CHAT_STREAM, RESPONSE_STREAM, CLAUDE_STREAM, GEMINI_STREAM, CONVERSE_STREAM]
)
def test_the_pieces_stay_as_they_were(pieces: list[Any]) -> None:
    given = [{**one, "sequence_number": 1} if "type" in one else one for one in pieces]
    before = json.dumps(given)
    MemoryManager(counter="chars4").add_messages("s", given)
    assert json.dumps(given) == before


JUNK = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just([]) | st.just({})
STREAMS = [CHAT_STREAM, RESPONSE_STREAM, CLAUDE_STREAM, GEMINI_STREAM, CONVERSE_STREAM]


def spoiled(draw: st.DrawFn, value: Any) -> Any:
    """A piece with a missing or wrong part."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 4)) == 0:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: spoiled(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        return [spoiled(draw, value[0]), *value[1:]]
    return draw(JUNK)


@given(st.data())
@settings(max_examples=examples(500))
def test_fault_of_a_piece_is_reported(data: st.DataObject) -> None:
    stream = data.draw(st.sampled_from(STREAMS))
    pieces = [{**one, "sequence_number": 1} if "type" in one else one for one in stream]
    at = data.draw(st.integers(0, len(pieces) - 1))
    pieces[at] = spoiled(data.draw, pieces[at])
    memory = MemoryManager(counter="chars4")
    try:
        memory.add_messages("s", pieces)
    except FormatError:
        assert memory.list_sessions() == []
