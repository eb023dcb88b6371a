"""OpenAI chat messages round-trip, and broken ones are rendered validly."""

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionMessage, ChatCompletionMessageParam
from pydantic import TypeAdapter

from memman import BudgetExceeded, Entry, MemoryConfig, MemoryManager, TextPart
from memman.formats.openai_chat import OpenAIChatFormat
from memman.formats.rules import check
from tests.examples import examples

Message = dict[str, Any]
ACCEPTED_BY_THE_SDK = TypeAdapter(list[ChatCompletionMessageParam])


def user(content: Any, **more: Any) -> Message:
    return {"role": "user", "content": content, **more}


def assistant(content: Any = None, *calls: Message, **more: Any) -> Message:
    made = {"role": "assistant", "content": content, **more}
    return made | {"tool_calls": list(calls)} if calls else made


def call(call_id: Any = "a", name: Any = "find", arguments: Any = "{}", **more: Any) -> Message:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, **more}


def tool(call_id: Any = "a", content: Any = "found", **more: Any) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def loaded(messages: Any, **settings: Any) -> MemoryManager:
    memory = MemoryManager(
        counter="chars4", config=MemoryConfig(**{"max_tokens": 10**7} | settings)
    )
    memory.add_messages("s", messages, format="openai-chat")
    return memory


def sent(messages: Any) -> list[Message]:
    return loaded(messages).build_context("s").messages


def shapes(entries: list[Entry]) -> list[tuple[str, str, str]]:
    return [(entry.type, entry.role, entry.text) for entry in entries]


Q = user("q")
TEXT = {"type": "text", "text": "look"}
ROUND_TRIPS: dict[str, list[Message]] = {
    "a plain conversation": [{"role": "system", "content": "be brief"}, Q, assistant("x")],
    "null content with calls": [Q, assistant(None, call()), tool()],
    "empty content with calls": [Q, assistant("", call()), tool()],
    "no content key with calls": [Q, {"role": "assistant", "tool_calls": [call()]}, tool()],
    "text with calls": [Q, assistant("let me see", call("a"), call("b")), tool("a"), tool("b")],
    "parts with calls": [Q, assistant([TEXT], call()), tool()],
    "an empty result": [Q, assistant(None, call()), tool("a", "")],
    "a result of parts": [Q, assistant(None, call()), tool("a", [TEXT])],
    "a name of the user": [user("q", name="bob"), assistant("x", name="al")],
    "a name of a result": [Q, assistant(None, call()), tool(name="find")],
    "a refusal": [Q, assistant(None, refusal="no")],
    "a refusal that is null": [Q, assistant("x", refusal=None, annotations=[])],
    "an audio reply": [Q, assistant(None, audio={"id": "audio_1"})],
    "an image by url": [
        user([TEXT, {"type": "image_url", "image_url": {"url": "http://x/y.png", "detail": "low"}}])
    ],
    "an image inline": [user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}])],
    "sound": [user([{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}])],
    "a file": [user([TEXT, {"type": "file", "file": {"file_id": "f1"}}])],
    "cache_control": [user([TEXT | {"cache_control": {"type": "ephemeral"}}]), assistant("x")],
    "two messages of one role": [user("a"), user("b"), assistant("c"), assistant("d")],
    "ids repeated in later turns": [
        Q, assistant(None, call("a")), tool("a", "1"), assistant(None, call("a")), tool("a", "2"),
    ],
    "results out of order": [
        Q, assistant(None, call("a"), call("b"), call("c")), tool("c"), tool("a"), tool("b"),
    ],
    "the legacy function role": [
        Q,
        assistant(None, function_call={"name": "find", "arguments": "{}"}),
        {"role": "function", "name": "find", "content": "found"},
    ],
    "a developer message": [{"role": "developer", "content": "be brief"}, Q],
    "a system message later on": [Q, {"role": "system", "content": "be brief"}, user("z")],
    "unicode, bidi marks and NUL": [user("日本 🙂 \u202e é"), assistant("\x00nul\x00")],
    "200,000 characters": [user("x" * 200_000), assistant("é" * 200_000)],
    "blank texts": [user(" "), assistant("\n"), user("\t")],
    "arguments that are no JSON": [Q, assistant(None, call(arguments="{bad")), tool()],
    "arguments that are empty": [Q, assistant(None, call(arguments="")), tool()],
    "arguments with blanks": [Q, assistant(None, call(arguments='{ "a" : 1.0 }')), tool()],
    "an index of a call": [Q, assistant(None, call(index=0)), tool()],
    "a custom call": [
        Q,
        assistant(None, {"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}),
        tool(),
    ],
    "a gateway's reasoning": [Q, assistant("x", reasoning_content="so it is")],
    "tool_calls that are null": [Q, {"role": "assistant", "content": "x", "tool_calls": None}],
    "a parsed call as the SDK writes it down": [
        Q,
        assistant(None, {"id": "a", "type": "function", "index": 0, "function": {
            "name": "f", "arguments": "{}", "parsed_arguments": None}},
            refusal=None, function_call=None, parsed=None),
        tool(),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", ROUND_TRIPS)
def test_an_unedited_message_comes_back_equal(kind: str) -> None:
    messages = ROUND_TRIPS[kind]
    assert sent(copy.deepcopy(messages)) == messages
    assert check(messages, "openai-chat") == []


@pytest.mark.parametrize("kind", ROUND_TRIPS)
def test_they_come_back_equal_after_export_and_import(kind: str) -> None:
    memory = loaded(ROUND_TRIPS[kind])
    other = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=10**7))
    other.import_session(memory.export_session("s").to_json())
    assert other.build_context("s").messages == ROUND_TRIPS[kind]


SDK_KNOWS = [
    kind
    for kind in ROUND_TRIPS
    # Some logs have a null list of calls; the SDK's types know only a list.
    if kind != "tool_calls that are null"
]


@pytest.mark.parametrize("kind", SDK_KNOWS)
def test_sdk_types_accept_rendered_messages(kind: str) -> None:
    ACCEPTED_BY_THE_SDK.validate_python(sent(ROUND_TRIPS[kind]))


BROKEN: dict[str, list[Message]] = {
    "a call without result": [Q, assistant(None, call()), user("never mind")],
    "the last call without result": [Q, assistant(None, call())],
    "one of two without result": [Q, assistant(None, call("a"), call("b")), tool("b")],
    "a result without call": [Q, tool("ghost"), assistant("x")],
    "a result twice": [Q, assistant(None, call()), tool(), tool()],
    "ids repeated within a message": [
        Q, assistant(None, call("a"), call("a", "list")), tool("a", "1"), tool("a", "2"),
    ],
    "a user in between": [Q, assistant(None, call()), user("meanwhile"), tool()],
    "two turns interleaved": [
        Q, assistant(None, call("a")), assistant(None, call("b")), tool("b"), tool("a"),
    ],
    "arguments that are a dict": [Q, assistant(None, call(arguments={"x": 1})), tool()],
    "a name out of the alphabet": [Q, assistant(None, call(name="a b.c")), tool()],
    "an empty name": [Q, assistant(None, call(name="")), tool()],
    "a name too long": [Q, assistant(None, call(name="x" * 65)), tool()],
    "an id that is null": [Q, assistant(None, call(None)), tool(None)],
    "an id that is empty": [Q, assistant(None, call("")), tool("")],
    "an empty list of calls": [Q, {"role": "assistant", "content": "x", "tool_calls": []}],
    "an assistant message of nothing": [Q, assistant(None), user("z")],
    "a result that is null": [Q, assistant(None, call()), tool("a", None)],
    "a result without content": [Q, assistant(None, call()), {"role": "tool", "tool_call_id": "a"}],
    "an empty list of parts": [Q, user([]), assistant([])],
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_invalid_messages_are_rendered_validly(kind: str) -> None:
    memory = loaded(BROKEN[kind])
    for target in ("openai-chat", "anthropic"):
        context = memory.build_context("s", format=target)
        assert check(context.messages, target, system=context.system) == []


@pytest.mark.parametrize("kind", BROKEN)
def test_repaired_messages_stay_unchanged(kind: str) -> None:
    rendered = sent(BROKEN[kind])
    assert sent(rendered) == rendered


@pytest.mark.parametrize("ids", [("", ""), (None, None)], ids=repr)
def test_calls_and_results_without_ids_pair_by_order(ids: tuple[Any, Any]) -> None:
    first, second = ids
    messages = [
        Q,
        assistant(None, call(first, "one"), call(second, "two")),
        tool(first, "of one"),
        tool(second, "of two"),
    ]
    _, calling, *answers = sent(messages)
    results = {answer["tool_call_id"]: answer["content"] for answer in answers}
    assert [results.get(one["id"]) for one in calling["tool_calls"]] == ["of one", "of two"]


def test_repeated_ids_within_a_message_pair_by_order() -> None:
    _, calling, *answers = sent(BROKEN["ids repeated within a message"])
    results = {answer["tool_call_id"]: answer["content"] for answer in answers}
    assert [results[one["id"]] for one in calling["tool_calls"]] == ["1", "2"]


def test_a_call_without_result_gets_a_marked_placeholder() -> None:
    *_, placeholder, last = sent(BROKEN["a call without result"])
    assert placeholder == tool("a", "[memman: no result of this call is known]")
    assert last == user("never mind")


def test_message_becomes_entries_for_text_and_calls() -> None:
    memory = loaded(ROUND_TRIPS["text with calls"])
    entries = memory.get_entries("s")
    assert shapes(entries) == [
        ("message", "user", "q"),
        ("message", "assistant", "let me see"),
        ("tool_call", "assistant", "{}"),
        ("tool_call", "assistant", "{}"),
        ("tool_result", "tool", "found"),
        ("tool_result", "tool", "found"),
    ]
    assert len({entry.message_id for entry in entries[1:4]}) == 1
    assert entries[1].message_id is not None
    assert [entry.name for entry in entries[2:]] == ["find"] * 4


def test_a_text_part_with_another_key_is_still_text() -> None:
    memory = loaded(ROUND_TRIPS["cache_control"])
    assert memory.get_entries("s")[0].content == (TextPart("look"),)
    assert "look" in memory.get_context_for_llm("s")
    assert "look" in json.dumps(memory.build_context("s", format="anthropic").messages)


def test_raw_is_empty_if_rendering_reproduces_the_message() -> None:
    memory = loaded(ROUND_TRIPS["text with calls"])
    assert [entry.raw for entry in memory.get_entries("s")] == [None] * 6


def test_redacting_a_call_leaves_no_copy_of_it_in_raw() -> None:
    def redact(entry: Entry) -> Entry:
        return msgspec.structs.replace(entry, content=entry.text.replace("secret", "***"))

    memory = MemoryManager(counter="chars4", redact=redact)
    memory.add_messages("s", [Q, assistant("hello", call(arguments={"x": "secret"}), name="al")])
    assert "secret" not in memory.export_session("s").to_json()
    assert "secret" not in json.dumps(memory.build_context("s").messages)


def test_a_rendered_message_cannot_be_used_to_change_the_session() -> None:
    memory = loaded(ROUND_TRIPS["text with calls"])
    context = memory.build_context("s")
    context.messages[1]["tool_calls"].clear()
    context.messages[0]["content"] = "changed"
    assert context.messages == ROUND_TRIPS["text with calls"]
    assert memory.build_context("s").messages == ROUND_TRIPS["text with calls"]


# ---------------------------------------------------------------- any log

TEXTS = st.sampled_from(
    ["", "x", "hello " * 60, " ", "\n", "日本 🙂", "\x00", "[memman x]", '{"a":1}', "{bad"]
)
PARTS = st.sampled_from(
    [
        TEXT,
        TEXT | {"cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": ""},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "weird", "x": 1},
    ]
)
CONTENT = st.one_of(TEXTS, st.none(), st.lists(PARTS, max_size=3))
IDS = st.sampled_from(["a", "b", "c.d", "", None])
CALLS = st.builds(
    call,
    IDS,
    st.sampled_from(["f", "g h", "", "x" * 70]),
    st.sampled_from(["{}", "", "{bad", '{"x":1}', {"x": 1}, None, "[1]"]),
)
ANY_MESSAGE = st.one_of(
    st.builds(user, CONTENT),
    st.builds(lambda content: user(content) | {"role": "system"}, CONTENT),
    st.builds(
        lambda content, calls: assistant(content, *calls), CONTENT, st.lists(CALLS, max_size=3)
    ),
    st.builds(
        lambda content, calls: assistant(content, tool_calls=calls), CONTENT, st.lists(CALLS)
    ),
    st.builds(tool, IDS, CONTENT),
    st.builds(lambda text: {"role": "function", "name": "f", "content": text}, TEXTS),
)


@settings(max_examples=examples(150))
@given(st.lists(ANY_MESSAGE, min_size=1, max_size=7), st.sampled_from([300, 10**7]))
def test_any_log_renders_validly_within_its_budget(log: list[Message], max_tokens: int) -> None:
    memory = loaded(copy.deepcopy(log), max_tokens=max_tokens)
    for target in ("openai-chat", "anthropic"):
        try:
            context = memory.build_context("s", format=target)
        except BudgetExceeded:
            assert max_tokens == 300
            continue
        assert context.tokens.tokens <= context.budget
        if context.messages:
            assert check(context.messages, target, system=context.system) == []
    other = MemoryManager(counter="chars4")
    other.import_session(memory.export_session("s").to_json())
    assert other.export_session("s") == memory.export_session("s")


# ---------------------------------------------------------------- to Anthropic and back


@pytest.mark.parametrize("kind", [kind for kind in ROUND_TRIPS if kind != "blank texts"])
def test_rendered_as_anthropic_and_back_it_is_valid_both_times(kind: str) -> None:
    context = loaded(ROUND_TRIPS[kind]).build_context("s", format="anthropic")
    assert context.messages
    assert check(context.messages, "anthropic", system=context.system) == []
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=10**7))
    memory.add_messages("s", context.messages, format="anthropic")
    assert check(memory.build_context("s").messages, "openai-chat") == []


def test_note_keeps_an_empty_anthropic_request_valid() -> None:
    [note] = loaded(ROUND_TRIPS["blank texts"]).build_context("s", format="anthropic").messages
    assert note == {"role": "user", "content": "[memman: the conversation goes on]"}


def test_calls_and_results_survive_anthropic_and_back() -> None:
    messages = [
        Q,
        assistant("let me see", call("a", arguments='{"x":1}'), call("b", "list")),
        tool("a", "1"),
        tool("b", "2"),
        assistant("done"),
        user("thanks"),
    ]
    there = loaded(messages).build_context("s", format="anthropic").messages
    memory = MemoryManager(counter="chars4")
    memory.add_messages("s", there, format="anthropic")
    back = memory.build_context("s").messages
    texts = [TEXT | {"text": "let me see"}]
    assert back == [messages[0], messages[1] | {"content": texts}, *messages[2:]]


def test_without_format_openai_messages_are_recognised() -> None:
    memory = MemoryManager()
    memory.add_messages("s", ROUND_TRIPS["text with calls"])
    assert memory.build_context("s").messages == ROUND_TRIPS["text with calls"]


@pytest.mark.parametrize(
    ("messages", "sure"),
    [
        ([], 0),
        (["text"], 0),
        ([{"role": "wizard"}], 0),
        ([user("x")], 1),
        ([user("x"), tool()], 3),
        ([user("x"), assistant(None, call())], 3),
    ],
)
def test_it_is_surer_of_messages_that_only_openai_has(messages: Any, sure: int) -> None:
    assert OpenAIChatFormat().detect(messages) == sure


# ---------------------------------------------------------------- the SDK's own objects


def completion(message: Message, usage: Any = None) -> ChatCompletion:
    return ChatCompletion.model_validate(
        {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4o",
            "choices": [
                {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
            ],
            "usage": usage,
        }
    )


def test_response_object_adds_its_message_and_usage() -> None:
    memory = loaded([Q])
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 7,
        "total_tokens": 127,
        "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
    }
    response = completion({"role": "assistant", "content": "x", "tool_calls": [call()]}, usage)
    entries = memory.add_messages("s", response)
    assert shapes(entries) == [("message", "assistant", "x"), ("tool_call", "assistant", "{}")]
    state = memory.export_session("s")
    record = state.log[-1]
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (120, 7, 64)  # type: ignore[union-attr]


def test_a_response_as_a_dict_does_the_same() -> None:
    response = completion(
        assistant("x"), {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
    )
    memory = loaded([Q])
    memory.add_messages("s", response.model_dump())
    assert memory.build_context("s").messages[1]["content"] == "x"
    assert memory.export_session("s").log[-1].input_tokens == 9  # type: ignore[union-attr]


def test_sdk_loop_continues_with_added_messages() -> None:
    """Most code appends `response.choices[0].message` to a list of dicts."""
    message = (
        completion({"role": "assistant", "content": None, "tool_calls": [call()]})
        .choices[0]
        .message
    )
    rendered = sent([Q, message, tool()])
    assert rendered == [Q, assistant(None, call()), tool()] or rendered == [
        Q, {"role": "assistant", "tool_calls": [call()]}, tool(),
    ]  # fmt: skip
    ACCEPTED_BY_THE_SDK.validate_python(rendered)


def test_a_message_object_made_without_validation_is_taken() -> None:
    message = ChatCompletionMessage.model_construct(role="assistant", content="x", refusal=None)
    assert sent([Q, message]) == [Q, assistant("x")]


def test_usage_objects_are_recorded() -> None:
    memory = loaded([Q])
    memory.record_usage("s", CompletionUsage(prompt_tokens=5, completion_tokens=2, total_tokens=7))
    assert memory.export_session("s").log[-1].input_tokens == 5  # type: ignore[union-attr]


# ---------------------------------------------------------------- an assistant's images

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def test_foreign_model_image_becomes_a_placeholder() -> None:
    """An assistant of this API sends texts and refusals; the API rejects an image of its own."""
    inline = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    memory = MemoryManager(counter="chars4")
    made = [{"role": "user", "parts": [{"text": "draw"}]}, {"role": "model", "parts": [inline]}]
    memory.add_messages("s", made, format="gemini")
    messages = memory.build_context("s").messages
    ACCEPTED_BY_THE_SDK.validate_python(messages)
    [part] = messages[1]["content"]
    assert part == {"type": "text", "text": "[memman: content that this format cannot carry]"}


def test_an_image_that_a_compatible_server_gave_goes_back_to_it() -> None:
    drawn = {"role": "assistant", "content": [{"type": "text", "text": "here"}, PICTURE]}
    assert sent([Q, drawn, Q]) == [Q, drawn, Q]


@pytest.mark.parametrize("more", [{}, {"reasoning_content": "hm"}, {"name": "bob"}])
@pytest.mark.parametrize("content", ["", None])
def test_reply_without_words_and_calls_is_left_out(content: Any, more: Any) -> None:
    messages = [Q, assistant(content, **more), user("and?")]
    memory = loaded(messages)
    assert memory.build_context("s").messages == [Q, user("and?")]
    assert memory.get_messages("s") == messages
