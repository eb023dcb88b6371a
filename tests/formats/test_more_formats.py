"""Gemini, Bedrock Converse and OpenAI Responses: laws that hold in each, with the real SDKs' own checks."""

import copy
import functools
import json
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import boto3
import pytest
from anthropic.types import MessageParam
from botocore.config import Config
from botocore.validate import ParamValidator
from google.genai import types as genai
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import messages_from_dict, messages_to_dict
from mistral_common.exceptions import InvalidMessageStructureException as BadStructure
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.validator import ValidationMode, get_validator
from mistral_common.tokens.tokenizers.base import TokenizerVersion
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import Response, ResponseInputItemParam
from pydantic import BaseModel, TypeAdapter, ValidationError

from benchmarks.trajectories import DATA, read_trajectories
from memman import BudgetExceeded, FormatError, MemoryConfig, MemoryManager
from memman.formats import builtin_formats, detect_format, format_named
from memman.formats.bedrock import sdk_messages
from memman.formats.renderer import Rendering
from memman.formats.rules import RULES, check
from memman.testing.formats import CONVERSATIONS, window_of
from tests.examples import examples

Message = dict[str, Any]
NEW = ("openai-responses", "gemini", "bedrock", "mistral", "langchain")
TARGETS = tuple(RULES)


def loaded(messages: Any, form: str, max_tokens: int = 10**7) -> MemoryManager:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=max_tokens))
    memory.add_messages("s", messages, form)
    return memory


def sent(messages: Any, form: str) -> list[Message]:
    return loaded(messages, form).build_context("s", format=form).messages


# ---------------------------------------------------------------- the SDKs' own checks

RESPONSES_ITEM = TypeAdapter(ResponseInputItemParam)
CHAT = TypeAdapter(list[ChatCompletionMessageParam])
CLAUDE = TypeAdapter(list[MessageParam])
BEDROCK_CLIENT = boto3.client(
    "bedrock-runtime",
    region_name="us-east-1",
    aws_access_key_id="none",
    aws_secret_access_key="none",  # noqa: S106 - no key
    config=Config(retries={"total_max_attempts": 1}),
)
CONVERSE = BEDROCK_CLIENT.meta.service_model.operation_model("Converse").input_shape


def accepted_by_mistral(messages: list[Message]) -> None:
    """Raise if Mistral's own validators, of old and new tokenizers, reject the messages."""
    of_the_api = ("thinking", "document_url")  # which the library has otherwise, or not at all
    known = [
        {**message, "content": [
            {"type": "text", "text": "x"} if chunk["type"] in of_the_api else chunk
            for chunk in message["content"]]}
        if isinstance(message.get("content"), list) else message
        for message in messages
    ]  # fmt: skip
    if known[-1].get("prefix"):  # which the library loses as it reads OpenAI's shape
        known.append({"role": "user", "content": "x"})
    request = ChatCompletionRequest.from_openai(known, model="m")
    for version in (TokenizerVersion.v7, TokenizerVersion.v11, TokenizerVersion.v13):
        get_validator(version, ValidationMode.serving).validate_request(request)


def accepted_by_the_sdk(messages: list[Message], form: str) -> None:
    """Raise if the provider's own SDK rejects the messages."""
    if form == "gemini":
        for message in messages:
            genai.Content.model_validate(message)
    elif form == "bedrock":
        given = {"modelId": "m", "messages": sdk_messages(messages)}
        report = ParamValidator().validate(given, CONVERSE)
        assert not report.has_errors(), report.generate_report()
    elif form == "mistral":
        accepted_by_mistral(messages)
    elif form == "openai-responses":
        for message in messages:
            RESPONSES_ITEM.validate_python(message)
    elif form == "openai-chat":
        read_through(CHAT.validate_python(messages))
    elif form == "anthropic":
        read_through(CLAUDE.validate_python(messages))
    elif form == "langchain":
        assert len(messages_from_dict(messages)) == len(messages)
    else:
        raise AssertionError(f"no SDK is known for {form}")


def read_through(validated: Any) -> None:
    """Read validated data to the end: the lists of these types are checked only as they are read."""
    if isinstance(validated, dict):
        read_through(list(validated.values()))
    elif not isinstance(validated, str | bytes) and isinstance(validated, Iterable):
        for item in validated:
            read_through(item)


@pytest.mark.parametrize("form", TARGETS)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_sdk_takes_every_conversation_of_the_kit(form: str, name: str) -> None:
    rendering = Rendering(format_named(form), len)
    rendering.update(window_of(CONVERSATIONS[name]))
    accepted_by_the_sdk(list(rendering.messages()), form)


@pytest.mark.parametrize(
    ("form", "bad"),
    [
        ("openai-chat", {"role": "assistant", "content": "x", "tool_calls": [{"id": 1}]}),
        ("anthropic", {"role": "user", "content": [{"type": "tool_result", "content": "x"}]}),
        ("openai-responses", {"type": "function_call", "name": "x"}),
        ("gemini", {"role": "user", "parts": [{"words": "x"}]}),
        ("langchain", {"type": "ai", "data": {"content": None}}),
    ],
)
def test_sdk_types_reject_invalid_messages(form: str, bad: Message) -> None:
    with pytest.raises(ValidationError):
        accepted_by_the_sdk([bad], form)


@pytest.mark.parametrize(
    ("form", "bad", "error"),
    [
        ("bedrock", {"role": "user", "content": [{"words": "x"}]}, AssertionError),
        ("mistral", {"role": "tool", "content": "x", "tool_call_id": "a"}, BadStructure),
        ("langchain", {"type": "tool", "data": {"content": "x"}}, KeyError),
        ("langchain", {"type": "ai", "data": {"content": "x", "tool_calls": [{"name": "f"}]}}, TypeError),
    ],
)  # fmt: skip
def test_sdk_validators_reject_invalid_messages(
    form: str, bad: Message, error: type[Exception]
) -> None:
    with pytest.raises(error):
        accepted_by_the_sdk([bad], form)


@functools.cache
def recorded(max_tokens: int) -> list[MemoryManager]:
    """Return a manager for each recorded conversation."""
    talks = read_trajectories(DATA / "fixture_trajectories.jsonl.gz")
    return [loaded(talk.messages, "openai-chat", max_tokens) for talk in talks]


@pytest.mark.shared
@pytest.mark.parametrize("form", TARGETS)
def test_the_sdk_takes_every_recorded_conversation(form: str) -> None:
    for memory in (*recorded(10**7), *recorded(8_000)):
        accepted_by_the_sdk(memory.build_context("s", format=form).messages, form)


@pytest.mark.shared
def test_langchain_objects_round_trip() -> None:
    for memory in recorded(10**7):
        context = memory.build_context("s", format="langchain")
        objects = messages_from_dict(context.messages)
        written = messages_to_dict(objects)
        assert sent(written, "langchain") == written
        assert [one["data"]["content"] for one in sent(objects, "langchain")] == [
            one["data"]["content"] for one in context.messages
        ]


# ---------------------------------------------------------------- from one format to another

PNG = "iVBORw0KGgo="
TALK: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]},
    {"role": "assistant", "content": "I look.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}},
        {"id": "c2", "type": "function", "function": {"name": "look", "arguments": '{"at":2}'}}]},
    {"role": "tool", "tool_call_id": "c2", "content": "two"},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    {"role": "assistant", "content": "An image."},
    {"role": "user", "content": "Thanks."},
]  # fmt: skip


@pytest.mark.parametrize("form", NEW)
def test_openai_conversation_is_the_same_in_each_format(form: str) -> None:
    memory = loaded(TALK, "openai-chat")
    context = memory.build_context("s", format=form)
    assert check(context.messages, form, system=context.system) == []
    accepted_by_the_sdk(context.messages, form)
    again = MemoryManager(counter="chars4")
    again.add_messages("t", context.messages)  # detected
    rest = [e for e in memory.get_entries("s") if e.role != "system"]
    found = [e for e in again.get_entries("t") if e.role != "system"]
    assert [(e.type, e.role, e.text, e.name) for e in found] == [
        (e.type, e.role, e.text, e.name) for e in rest
    ]
    if form != "mistral":  # no foreign id is possible
        assert [e.call_id for e in found] == [e.call_id for e in rest]
    assert PNG in json.dumps(context.messages)
    assert again.build_context("t", format=form).messages == context.messages


@pytest.mark.parametrize("form", NEW)
def test_counted_text_equals_sent_text(form: str) -> None:
    """Each text is in the request once, as it was counted: nothing is added without a price."""
    words = lambda text: len(text.split())  # noqa: E731 - short
    memory = MemoryManager(counter=words)
    memory.add_messages("s", TALK, "openai-chat")
    context = memory.build_context("s", format=form)
    wire = json.dumps(context.messages) + (context.system or "")
    for text in ("Be brief.", "What is this?", "I look.", "two", "one", "An image.", "Thanks."):
        assert wire.count(text) == 1
    assert context.tokens.tokens >= sum(e.token_count.tokens for e in memory.get_entries("s"))


@pytest.mark.parametrize("source", [*TARGETS])
@pytest.mark.parametrize("target", [*TARGETS])
def test_each_format_can_be_rendered_as_each_other(source: str, target: str) -> None:
    there = loaded(TALK, "openai-chat").build_context("s", format=source)
    memory = loaded(there.messages, source)
    context = memory.build_context("s", format=target)
    assert check(context.messages, target, system=context.system) == []
    accepted_by_the_sdk(context.messages, target)
    for text in ("What is this?", "two", "An image."):
        assert text in json.dumps(context.messages)


def test_ids_are_mapped_for_mistral_alone_and_stay_unique() -> None:
    calls = [
        {"id": f"toolu_{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for n in range(40)
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "x"} for call in calls]
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None,
                "tool_calls": calls}, *results]  # fmt: skip
    memory = loaded(messages, "openai-chat")
    sent = memory.build_context("s", format="mistral").messages
    mapped = [call["id"] for call in sent[1]["tool_calls"]]
    assert len(set(mapped)) == 40
    assert [message["tool_call_id"] for message in sent[2:]] == mapped
    assert memory.build_context("s").messages == messages
    assert loaded(sent, "mistral").build_context("s", format="mistral").messages == sent


def test_mistral_bridges_a_user_message_after_a_tool() -> None:
    later = (("user", "Stop."), ("system", "x"), ("assistant", "Yes."), ("system", "Be kind."))
    messages = [*TALK[:5], *({"role": role, "content": text} for role, text in later)]
    context = loaded(messages, "openai-chat").build_context("s", format="mistral")
    roles = [message["role"] for message in context.messages]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "user", "system",
                     "assistant", "user"]  # fmt: skip
    assert "Be kind." in context.messages[-1]["content"]
    accepted_by_mistral(context.messages)


ANSWERS: list[Message] = [
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_9", "type": "function", "function": {"name": "look", "arguments": '{"at":9}'}}]},
    {"role": "tool", "tool_call_id": "call_9", "content": "nine"},
    {"role": "assistant", "content": "Nine it is."},
    {"role": "user", "content": "And ten?"},
]  # fmt: skip


@pytest.mark.parametrize("first", TARGETS)
@pytest.mark.parametrize("second", TARGETS)
def test_a_session_begun_with_one_provider_goes_on_with_another(first: str, second: str) -> None:
    begun = loaded(TALK, "openai-chat").build_context("s", format=first)
    memory = loaded(begun.messages, first)
    # The second provider's answers, in its own form, with ids of its own.
    answers = loaded(ANSWERS, "openai-chat").build_context("s", format=second).messages
    memory.add_messages("s", answers, second)
    for target in (first, second):
        context = memory.build_context("s", format=target)
        assert check(context.messages, target, system=context.system) == []
        accepted_by_the_sdk(context.messages, target)
        wire = json.dumps(context.messages)
        for text in ("What is this?", "two", "An image.", "nine", "Nine it is.", "And ten?"):
            assert text in wire


# ---------------------------------------------------------------- detection

DRAFTS = st.sampled_from(sorted(CONVERSATIONS))
CALLED = sorted(n for n, d in CONVERSATIONS.items() if any(e.type == "tool_call" for e in d))


@settings(max_examples=examples(60))
@given(st.lists(DRAFTS, max_size=3), st.sampled_from(CALLED), st.sampled_from(TARGETS))
def test_no_format_is_taken_for_another(names: list[str], called: str, form: str) -> None:
    new_entries = list(chain.from_iterable(CONVERSATIONS[name] for name in [*names, called]))
    rendering = Rendering(format_named(form), len)
    rendering.update(window_of(new_entries))
    assert detect_format(list(rendering.messages())).name == form


@settings(max_examples=examples(60))
@given(st.lists(DRAFTS, min_size=1, max_size=3), st.sampled_from(TARGETS))
def test_detected_format_reads_the_same_texts(names: list[str], form: str) -> None:
    """Messages without anything of a format's own may be taken for another's that reads them alike."""
    new_entries = list(chain.from_iterable(CONVERSATIONS[name] for name in names))
    rendering = Rendering(format_named(form), len)
    rendering.update(window_of(new_entries))
    messages = list(rendering.messages())
    found = detect_format(messages)
    parsed = [(d.type, d.role, d.name, d.content) for d in found.parse(messages)]
    meant = [(d.type, d.role, d.name, d.content) for d in format_named(form).parse(messages)]
    if found.name != form:
        assert parsed == meant


def test_every_format_has_its_name_in_the_list() -> None:
    names = [form.name for form in builtin_formats()]
    assert names == [
        "openai-chat", "anthropic", "text", "openai-responses", "gemini", "bedrock", "mistral",
        "langchain",
    ]  # fmt: skip


# ---------------------------------------------------------------- any log

TEXTS = st.sampled_from(["", "x", "hello " * 60, " ", "日本 🙂", "\x00", "[memman x]"])
IDS = st.sampled_from(["a", "b", "c.d", "e f/é", "x" * 70])
NAMES = st.sampled_from(["f", "g h", "1x", "x" * 130])
JSONS = st.sampled_from([{}, {"x": "y" * 900}, {"a": [1.5, None, True]}])


def gemini_part(draw: Any) -> Message:
    kind = draw(st.integers(0, 10))
    if kind == 8:  # Google's Python spelling, with unset fields
        call = {"id": draw(IDS | st.none()), "name": draw(NAMES), "args": draw(JSONS)}
        return {"function_call": call, "thought_signature": "YWJj", "text": None}
    if kind == 9:
        body = {"name": draw(NAMES), "response": draw(JSONS), "will_continue": None}
        return {"function_response": {"id": draw(IDS), **body}}
    if kind == 10:
        return {"inline_data": {"mime_type": "image/png", "data": "_-_-", "displayName": None}}
    if kind == 0:
        return {"functionCall": {"name": draw(NAMES), "args": draw(JSONS)}}
    if kind == 1:
        call = {"id": draw(IDS), "name": draw(NAMES), "args": draw(JSONS)}
        return {"functionCall": call, "thoughtSignature": "YWJj"}
    if kind in (2, 3):
        response = draw(JSONS | st.builds(lambda text: {"output": text}, TEXTS))
        body = {"name": draw(NAMES), "response": response}
        return {"functionResponse": {**body, **({"id": draw(IDS)} if kind == 3 else {})}}
    if kind == 4:
        return {"text": draw(TEXTS), "thought": True}
    if kind == 5:
        return {"inlineData": {"mimeType": "image/png", "data": PNG}}
    return {"text": draw(TEXTS)}


def bedrock_block(draw: Any) -> Message:
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return {"toolUse": {"toolUseId": draw(IDS), "name": draw(NAMES), "input": draw(JSONS)}}
    if kind == 1:
        content = draw(st.lists(st.builds(lambda t: {"text": t}, TEXTS), max_size=2))
        return {"toolResult": {"toolUseId": draw(IDS), "content": content, "status": "error"}}
    if kind == 2:
        content = [{"json": draw(JSONS)}]
        return {"toolResult": {"toolUseId": draw(IDS), "content": content}}
    if kind == 3:
        return {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "abc"}}}
    if kind == 4:
        return {
            "document": {"format": "pdf", "name": "a  b.c", "source": {"bytes": "JVBERi0xLjcK"}}
        }
    return {"text": draw(TEXTS)}


def responses_item(draw: Any) -> Message:
    kind = draw(st.integers(0, 7))
    if kind == 0:
        return {"type": "function_call", "call_id": draw(IDS), "name": draw(NAMES),
                "arguments": draw(TEXTS), "id": "fc_1"}  # fmt: skip
    if kind == 1:
        return {"type": "function_call_output", "call_id": draw(IDS), "output": draw(TEXTS)}
    if kind == 2:
        return {"type": "reasoning", "id": "rs_1", "summary": []}
    if kind == 3:
        return {"type": "custom_tool_call", "call_id": draw(IDS), "name": "sh", "input": "ls"}
    if kind == 4:
        part = {"type": "output_text", "text": draw(TEXTS), "annotations": []}
        return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [part]}  # fmt: skip
    role = draw(st.sampled_from(["user", "system", "developer", "assistant"]))
    return {"role": role, "content": draw(TEXTS)}


def langchain_message(draw: Any) -> Message:
    kind = draw(st.integers(0, 4))
    if kind == 0:
        calls = st.builds(
            lambda call_id, name, given: {
                "name": name, "args": given, "id": call_id, "type": "tool_call",
            },
            IDS, NAMES, JSONS,
        )  # fmt: skip
        made = draw(st.lists(calls, min_size=1, max_size=3))
        return {"type": "ai", "data": {"content": draw(TEXTS), "tool_calls": made}}
    if kind == 1:
        status = draw(st.sampled_from(["success", "error"]))
        return {"type": "tool", "data": {"content": draw(TEXTS), "tool_call_id": draw(IDS),
                                         "status": status}}  # fmt: skip
    if kind == 2:
        call_id = draw(IDS)
        use = {"type": "tool_use", "id": call_id, "name": "f", "input": {"x": 1}}
        call = {"name": "f", "args": {"x": 1}, "id": call_id, "type": "tool_call"}
        blocks = [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": draw(TEXTS)},
            use,
        ]
        return {"type": "ai", "data": {"content": blocks, "tool_calls": [call]}}
    role = draw(st.sampled_from(["human", "system", "ai"]))
    return {"type": role, "data": {"content": draw(TEXTS), "id": "x"}}


def mistral_message(draw: Any) -> Message:
    kind = draw(st.integers(0, 5))
    if kind in (0, 1):
        arguments = JSONS if kind else TEXTS
        calls = st.builds(
            lambda call_id, name, given: {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": given},
            },
            IDS | st.just("a1B2c3D4e"),
            NAMES,
            arguments,
        )
        return {"role": "assistant", "content": draw(TEXTS | st.none()),
                "tool_calls": draw(st.lists(calls, min_size=1, max_size=3))}  # fmt: skip
    if kind == 2:
        call_id = draw(IDS | st.just("a1B2c3D4e"))
        return {
            "role": "tool",
            "tool_call_id": call_id,
            "name": draw(NAMES),
            "content": draw(TEXTS),
        }
    if kind == 3:
        chunks = [
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
            {"type": "text", "text": draw(TEXTS)},
        ]
        return {"role": "assistant", "content": chunks, "prefix": draw(st.booleans())}
    role = draw(st.sampled_from(["user", "system", "assistant"]))
    return {"role": role, "content": draw(TEXTS)}


@st.composite
def logs(draw: Any) -> tuple[str, list[Message]]:
    form = draw(st.sampled_from(NEW))
    size = draw(st.integers(1, 7))
    if form == "openai-responses":
        return form, [responses_item(draw) for _ in range(size)]
    if form == "langchain":
        return form, [langchain_message(draw) for _ in range(size)]
    if form == "mistral":
        return form, [mistral_message(draw) for _ in range(size)]
    if form == "gemini":
        roles = st.sampled_from([{"role": "user"}, {"role": "model"}, {"role": None}, {}])
        make: Callable[[Any], Message] = gemini_part
    else:
        roles = st.sampled_from([{"role": "user"}, {"role": "assistant"}])
        make = bedrock_block
    key = "parts" if form == "gemini" else "content"
    return form, [
        {**draw(roles), key: [make(draw) for _ in range(draw(st.integers(0, 3)))]}
        for _ in range(size)
    ]


@settings(max_examples=examples(250))
@example(
    (
        "openai-responses",
        [
            {"type": "function_call", "call_id": "b", "name": "f", "arguments": "", "id": "fc_1"},
            {"role": "user", "content": ""},
            {"type": "function_call_output", "call_id": "b", "output": ""},
        ],
    ),
    10**7,
)
@given(logs(), st.sampled_from([300, 10**7]))
def test_any_log_renders_validly_within_its_budget(
    log: tuple[str, list[Message]], max_tokens: int
) -> None:
    form, messages = log
    memory = loaded(copy.deepcopy(messages), form, max_tokens)
    for target in (form, "openai-chat", "anthropic", "mistral", "langchain"):
        try:
            context = memory.build_context("s", format=target)
        except BudgetExceeded:
            assert max_tokens == 300
            continue
        assert context.tokens.tokens <= context.budget
        if context.messages:
            assert check(context.messages, target, system=context.system) == []
            accepted_by_the_sdk(context.messages, target)
        if target == form and max_tokens > 300:
            if not check(messages, form):  # a late result has its call with it again
                assert context.messages == messages or "--again-" in str(context.messages)
            elif context.messages and not context.system:  # repaired messages stay unchanged
                assert sent(context.messages, form) == context.messages
    other = MemoryManager(counter="chars4")
    other.import_session(memory.export_session("s").to_json())
    assert other.export_session("s") == memory.export_session("s")


# ---------------------------------------------------------------- the SDKs' own objects


def test_a_gemini_response_object_adds_its_content_and_its_usage() -> None:
    response = genai.GenerateContentResponse.model_validate(
        {
            "candidates": [
                {
                    "content": {
                        "role": "model",
                        "parts": [
                            {"text": "hm", "thought": True},
                            {"text": "I look."},
                            {
                                "functionCall": {"name": "look", "args": {"a": None, "b_c": [1]}},
                                "thoughtSignature": "YWJj",
                            },
                        ],
                    }
                }
            ],
            "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 3},
        }
    )
    memory = loaded([{"role": "user", "parts": [{"text": "q"}]}], "gemini")
    entries = memory.add_messages("s", response)
    assert [entry.type for entry in entries] == ["message", "tool_call"]
    assert json.loads(entries[1].text) == {"a": None, "b_c": [1]}
    assert memory.export_session("s").log[-1].input_tokens == 12  # type: ignore[union-attr]
    answer = genai.Content(
        role="user",
        parts=[genai.Part.from_function_response(name="look", response={"output": "seen"})],
    )
    memory.add_messages("s", answer)
    context = memory.build_context("s", format="gemini")
    assert check(context.messages, "gemini") == []
    accepted_by_the_sdk(context.messages, "gemini")
    [thought, text, call] = context.messages[1]["parts"]
    assert thought == {"text": "hm", "thought": True}
    assert text == {"text": "I look."}
    assert call == {
        "functionCall": {"name": "look", "args": {"a": None, "b_c": [1]}},
        "thoughtSignature": "YWJj",
    }


@pytest.mark.parametrize("content", [{"role": "model"}, {}], ids=["no parts", "nothing"])
@pytest.mark.parametrize("as_object", [False, True], ids=["dict", "object"])
def test_a_gemini_reply_that_ended_before_it_began_is_taken(content: Any, as_object: bool) -> None:
    response: Any = {
        "candidates": [{"content": content, "finishReason": "MAX_TOKENS"}],
        "usageMetadata": {"promptTokenCount": 12, "thoughtsTokenCount": 3},
    }
    if as_object:
        response = genai.GenerateContentResponse.model_validate(response)
    memory = loaded([{"role": "user", "parts": [{"text": "q"}]}], "gemini")
    assert memory.add_messages("s", response) == []
    assert memory.export_session("s").log[-1].input_tokens == 12  # type: ignore[union-attr]
    assert check(memory.build_context("s", format="gemini").messages, "gemini") == []


def test_bytes_of_a_gemini_part_arrive_as_they_were() -> None:
    data = bytes(range(256))
    part = genai.Part.from_bytes(data=data, mime_type="image/png")
    [message] = sent([genai.Content(role="user", parts=[part])], "gemini")
    [back] = genai.Content.model_validate(message).parts or []
    assert back.inline_data is not None
    assert back.inline_data.data == data


def test_a_converse_response_adds_its_message_and_its_usage() -> None:
    content = [
        {"reasoningContent": {"redactedContent": b"\x00\xff"}},
        {"text": "I look."},
        {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"bytes": "plain"}}},
    ]
    response = {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use",
        "usage": {"inputTokens": 12, "outputTokens": 3, "totalTokens": 15},
    }
    before = copy.deepcopy(response)
    memory = loaded([{"role": "user", "content": [{"text": "q"}]}], "bedrock")
    memory.add_messages("s", response)
    assert response == before
    assert memory.export_session("s").log[-1].input_tokens == 12  # type: ignore[union-attr]
    messages = memory.build_context("s", format="bedrock").messages
    accepted_by_the_sdk(messages, "bedrock")
    assert sdk_messages(messages)[1]["content"] == content


def test_boto3_images_are_bytes_and_arguments_unchanged() -> None:
    data = bytes(range(256))
    image = {"image": {"format": "png", "source": {"bytes": data}}}
    messages = [{"role": "user", "content": [{"text": "look"}, image]}]
    assert sdk_messages(sent(messages, "bedrock")) == messages


def test_invalid_base64_is_rejected() -> None:
    image = {"image": {"format": "png", "source": {"bytes": "not base64"}}}
    with pytest.raises(FormatError, match="base64"):
        sdk_messages([{"role": "user", "content": [image]}])


def test_bytes_elsewhere_are_still_no_json() -> None:
    with pytest.raises(FormatError, match="bytes"):
        MemoryManager().add_messages("s", [{"role": "user", "content": "x", "raw": b"x"}])


RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5", "status": "completed",
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    "usage": {
        "input_tokens": 12, "output_tokens": 3, "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    },
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look",
         "arguments": "{}", "status": "completed"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("as_object", [True, False])
def test_responses_api_response_adds_items_and_usage(as_object: bool) -> None:
    memory = loaded([{"role": "user", "content": "q"}], "openai-responses")
    response: Any = Response.model_validate(RESPONSE) if as_object else RESPONSE
    entries = memory.add_messages("s", response)
    assert [entry.type for entry in entries] == ["message", "message", "tool_call"]
    assert memory.export_session("s").log[-1].input_tokens == 12  # type: ignore[union-attr]
    output = {"type": "function_call_output", "call_id": "c1", "output": "seen"}
    memory.add_messages("s", output)
    context = memory.build_context("s", format="openai-responses")
    assert context.messages[1:] == [*RESPONSE["output"], output]  # type: ignore[misc]
    accepted_by_the_sdk(context.messages, "openai-responses")


class AIMessage(BaseModel):
    """A message object of LangChain's to code that does not import it."""

    content: str
    type: str = "ai"
    additional_kwargs: dict[str, Any] = {}
    tool_calls: list[dict[str, Any]] = []
    usage_metadata: dict[str, Any] | None = None


def test_langchain_message_object_adds_calls_and_usage() -> None:
    usage = {"input_tokens": 12, "output_tokens": 3, "input_token_details": {"cache_read": 4}}
    call = {"name": "look", "args": {"at": 1}, "id": "c1", "type": "tool_call"}
    memory = loaded([{"type": "human", "data": {"content": "q"}}], "langchain")
    memory.add_messages("s", AIMessage(content="I look.", tool_calls=[call], usage_metadata=usage))
    reported = memory.export_session("s").log[-1]
    assert (reported.input_tokens, reported.cached_tokens) == (12, 4)  # type: ignore[union-attr]
    message = memory.build_context("s", format="langchain").messages[1]
    assert (message["type"], message["data"]["tool_calls"]) == ("ai", [call])
    assert message["data"]["usage_metadata"] == usage


def test_ids_go_with_the_reasoning_that_they_are_tied_to() -> None:
    """The API rejects an item with its id if the reasoning before it is gone."""
    memory = loaded([{"role": "user", "content": "q"}], "openai-responses")
    reasoning, *_ = memory.add_messages("s", RESPONSE)
    memory.delete_entries("s", [reasoning.id])
    items = memory.build_context("s", format="openai-responses").messages[1:3]
    assert [item.get("id") for item in items] == [None, None]


def test_reasoning_without_its_result_is_left_out() -> None:
    memory = loaded([{"role": "user", "content": "q"}], "openai-responses")
    _, text, call = memory.add_messages("s", RESPONSE)
    memory.delete_entries("s", [text.id, call.id])
    assert memory.build_context("s", format="openai-responses").messages == [
        {"role": "user", "content": "q"}
    ]


def test_foreign_calls_carry_the_documented_signature_once() -> None:
    """Gemini 3 rejects a turn whose first call has none; those of Gemini keep their own."""
    content = loaded(TALK, "openai-chat").build_context("s", format="gemini").messages[1]
    signed = ["thoughtSignature" in part for part in content["parts"]]
    assert signed == [False, True, False]


GOOGLES_SPELLING: list[Message] = [
    {"role": None, "parts": [
        {"text": "Which is it?", "video_metadata": None},
        {"inline_data": {"mime_type": "image/png", "data": "iVBORw0K_-o="}, "text": None}]},
    {"role": "model", "parts": [
        {"thought": True, "thought_signature": "c2ln"},
        {"function_call": {"name": "look", "args": {"mime_type": None}, "id": "c1"},
         "thoughtSignature": "YWJj"},
        {"functionCall": {"name": "look", "args": {}, "id": None}, "thought": None}]},
    {"parts": [
        {"function_response": {"id": "c1", "name": "look", "response": {"output": "a png"}, "parts": [
            {"inline_data": {"mime_type": "image/png", "data": "AAAA", "display_name": "x"}}]}},
        {"functionResponse": {"name": "look", "response": {"seen_by": None}}}]},
    {"role": "model", "parts": [{"text": "A png."}]},
    {"parts": [{"text": "Thanks."}]},
]  # fmt: skip


def test_gemini_spelling_round_trips() -> None:
    assert check(GOOGLES_SPELLING, "gemini") == []
    accepted_by_the_sdk(GOOGLES_SPELLING, "gemini")
    memory = loaded(GOOGLES_SPELLING, "gemini")
    context = memory.build_context("s", format="gemini")
    assert context.messages == GOOGLES_SPELLING
    types = [entry.type for entry in memory.get_entries("s")]
    assert types == ["message", "message", "tool_call", "tool_call", "tool_result", "tool_result",
                     "message", "message"]  # fmt: skip


def test_gemini_spelling_is_not_sent_to_other_formats() -> None:
    memory = loaded(GOOGLES_SPELLING, "gemini")
    wire = json.dumps(memory.build_context("s", format="anthropic").messages)
    assert "function_call" not in wire
    assert "iVBORw0K/+o=" in wire
    in_words_of_the_wire = [
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"at": 1}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"x": 1}}}]},
    ]
    as_google_spells = json.loads(
        json.dumps(in_words_of_the_wire)
        .replace("functionCall", "function_call")
        .replace("functionResponse", "function_response")
    )
    one, other = (
        memory.count_tokens(each).tokens for each in (in_words_of_the_wire, as_google_spells)
    )
    assert one <= other <= one + 2


@pytest.mark.parametrize(
    ("spelled", "rule"),
    [
        ({"role": "user", "parts": [{"function_call": {"name": "f", "args": {}}}]}, "shape.part-role"),
        ({"role": "user", "parts": [{"function_response": {"name": "f", "response": {}}}]},
         "pair.orphan-result"),
        ({"parts": [{"text": None}]}, "shape.part"),
    ],
)  # fmt: skip
def test_the_rules_read_google_s_own_spelling_too(spelled: Message, rule: str) -> None:
    assert rule in [fault.rule for fault in check([spelled], "gemini")]


def test_late_responses_api_output_has_its_call_again() -> None:
    """The call had a placeholder in an earlier request, which stays as it was sent."""
    items = [
        {"role": "user", "content": "q"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"role": "user", "content": "and?"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "two"},
        {"type": "function_call_output", "call_id": "a", "output": "one"},
    ]
    memory = loaded(items[:3], "openai-responses")
    messages = memory.build_context("s", format="openai-responses").messages
    assert [item.get("type") for item in messages] == [
        None, "function_call", "function_call_output", None,
    ]  # fmt: skip
    memory.add_messages("s", items[3:], "openai-responses")
    later = memory.build_context("s", format="openai-responses").messages
    assert later[:4] == messages
    assert later[4:6] == items[3:5]
    assert [(item["type"], item["call_id"][:8]) for item in later[6:]] == [
        ("function_call", "a--again"), ("function_call_output", "a--again"),
    ]  # fmt: skip
    for target in TARGETS:  # the others want it next to its call
        context = memory.build_context("s", format=target)
        assert check(context.messages, target, system=context.system) == []


@pytest.mark.parametrize("form", ["gemini", "bedrock"])
def test_reasoning_is_never_shown_to_another_provider(form: str) -> None:
    thought = {
        "gemini": {"text": "secret", "thought": True},
        "bedrock": {"reasoningContent": {"reasoningText": {"text": "secret"}}},
    }[form]
    key, role = ("parts", "model") if form == "gemini" else ("content", "assistant")
    messages = [
        {"role": "user", key: [{"text": "q"}]},
        {"role": role, key: [thought, {"text": "x"}]},
    ]
    memory = loaded(messages, form)
    for target in ("openai-chat", "anthropic", "text"):
        assert "secret" not in json.dumps(memory.build_context("s", format=target).messages)


def test_bedrock_documents_get_different_names() -> None:
    def document(name: str) -> dict[str, Any]:
        return {"document": {"format": "txt", "name": name, "source": {"bytes": "aGk="}}}

    use = {"toolUse": {"toolUseId": "c", "name": "read", "input": {}}}
    result = {"toolResult": {"toolUseId": "c", "content": [document("a"), document("a (2)")]}}
    messages = [
        {"role": "user", "content": [document("a"), document("b"), {"text": "see"}]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"text": "read"}]},
        {"role": "user", "content": [document("a"), {"text": "again"}]},
    ]
    memory = MemoryManager(counter="chars4")
    memory.add_messages("s", messages, "bedrock")
    built = memory.build_context("s", format="bedrock").messages
    assert check(built, "bedrock") == []
    assert [one["document"]["name"] for one in built[0]["content"][:2]] == ["a", "b"]
    inside = [one["document"]["name"] for one in built[2]["content"][0]["toolResult"]["content"]]
    assert inside == ["a (3)", "a (2)"]
    assert built[4]["content"][0]["document"]["name"] == "a (4)"
    assert memory.build_context("s", format="bedrock").messages == built


def test_ambiguous_messages_error_names_both_formats() -> None:
    gemini = format_named("gemini")

    class Alike(type(gemini)):  # type: ignore[misc]
        name = "alike"

    content = [{"role": "user", "parts": [{"text": "hi"}]}]
    with pytest.raises(FormatError, match="these messages may be gemini or alike: name the format"):
        detect_format(content, [gemini, Alike()])


def test_plain_messages_go_to_the_first_format() -> None:
    assert detect_format([{"role": "user", "content": "hi"}]).name == "openai-chat"


def test_format_error_has_the_index_of_the_message() -> None:
    with pytest.raises(FormatError) as raised:
        format_named("openai-chat").parse([TALK[1], {"role": "user", "content": 7}])
    assert raised.value.index == 1
