"""Anthropic messages round-trip, and broken ones are rendered validly."""

import copy
import json
from typing import Any

import msgspec
import pytest
from anthropic.types import Message as SdkMessage
from anthropic.types import MessageParam
from anthropic.types import Usage as SdkUsage
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from memman import BudgetExceeded, Entry, MemoryConfig, MemoryManager, TextPart
from memman.formats.anthropic import AnthropicFormat
from memman.formats.rules import check
from tests.examples import examples

Message = dict[str, Any]
ACCEPTED_BY_THE_SDK = TypeAdapter(list[MessageParam])


def user(*content: Any) -> Message:
    return {"role": "user", "content": content[0] if type(content[0]) is str else list(content)}


def assistant(*content: Any) -> Message:
    return user(*content) | {"role": "assistant"}


def text(words: str, **more: Any) -> Message:
    return {"type": "text", "text": words, **more}


def use(call_id: Any = "a", name: Any = "find", arguments: Any = None, **more: Any) -> Message:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments or {}, **more}


def result(call_id: Any = "a", content: Any = "found", **more: Any) -> Message:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def thinking(words: str) -> Message:
    return {"type": "thinking", "thinking": words, "signature": f"signed {words}"}


def loaded(messages: Any) -> MemoryManager:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=10**7))
    memory.add_messages("s", messages, format="anthropic")
    return memory


def sent(messages: Any) -> list[Message]:
    return loaded(messages).build_context("s", format="anthropic").messages


Q, END = user("q"), user("end")
CACHE = {"cache_control": {"type": "ephemeral"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
ROUND_TRIPS: dict[str, list[Message]] = {
    "plain texts": [Q, assistant("x"), END],
    "blocks": [user(text("q")), assistant(text("x")), END],
    "text and a use": [Q, assistant(text("let me"), use()), user(result())],
    "a use and then text": [Q, assistant(use(), text("after")), user(result())],
    "text between uses": [
        Q, assistant(use("a"), text("mid"), use("b")), user(result("a"), result("b")),
    ],
    "parallel uses, results in another order": [
        Q, assistant(use("a"), use("b")), user(result("b"), result("a")),
    ],
    "results and text": [Q, assistant(use()), user(result(), text("and go on"))],
    "a result without content": [
        Q, assistant(use()), user({"type": "tool_result", "tool_use_id": "a"}),
    ],
    "an empty result": [Q, assistant(use()), user(result("a", ""))],
    "a result of no blocks": [Q, assistant(use()), user(result("a", []))],
    "an error": [Q, assistant(use()), user(result("a", "bad", is_error=True))],
    "is_error that is false": [Q, assistant(use()), user(result("a", "fine", is_error=False))],
    "a result of blocks": [Q, assistant(use()), user(result("a", [text("see"), IMAGE]))],
    "cache_control everywhere": [
        user(text("q", **CACHE)), assistant(use(**CACHE)), user(result(**CACHE)),
    ],
    "signed thinking": [Q, assistant(thinking("hm"), text("x"), use()), user(result())],
    "redacted thinking": [
        Q, assistant({"type": "redacted_thinking", "data": "xx"}, use()), user(result()),
    ],
    "thinking between uses": [
        Q,
        assistant(thinking("1"), use("a"), thinking("2"), use("b")),
        user(result("a"), result("b")),
    ],
    "a server's tool": [
        Q,
        assistant(
            {"type": "server_tool_use", "id": "st", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "st", "content": []},
            text("done"),
        ),
        END,
    ],
    "an image inline": [user(text("look"), IMAGE), assistant("x"), END],
    "an image by url": [
        user({"type": "image", "source": {"type": "url", "url": "http://x/y"}}), assistant("x"), END,
    ],
    "a document": [
        user(
            {
                "type": "document",
                "title": "t",
                "source": {"type": "text", "media_type": "text/plain", "data": "abc"},
            }
        ),
        assistant("x"),
        END,
    ],
    "citations": [Q, assistant(text("x", citations=None)), END],
    "unicode, bidi marks and NUL": [user("日本 🙂 \x00"), assistant("\u202e é"), END],
    "200,000 characters": [user("x" * 200_000), assistant("é" * 200_000), END],
    "arguments of every kind": [
        Q,
        assistant(use(arguments={"b": 1, "a": [1.0, -2, None, True, "é"], "": 2**70})),
        user(result()),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", ROUND_TRIPS)
def test_an_unedited_message_comes_back_equal(kind: str) -> None:
    messages = ROUND_TRIPS[kind]
    assert sent(copy.deepcopy(messages)) == messages
    assert check(messages, "anthropic") == []


@pytest.mark.parametrize("kind", ROUND_TRIPS)
def test_they_come_back_equal_after_export_and_import(kind: str) -> None:
    other = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=10**7))
    other.import_session(loaded(ROUND_TRIPS[kind]).export_session("s").to_json())
    assert other.build_context("s", format="anthropic").messages == ROUND_TRIPS[kind]


@pytest.mark.parametrize("kind", ROUND_TRIPS)
def test_sdk_types_accept_rendered_messages(kind: str) -> None:
    ACCEPTED_BY_THE_SDK.validate_python(sent(ROUND_TRIPS[kind]))


@pytest.mark.parametrize("kind", ROUND_TRIPS)
def test_rendered_as_openai_and_back_it_is_valid_both_times(kind: str) -> None:
    there = loaded(ROUND_TRIPS[kind]).build_context("s").messages
    assert check(there, "openai-chat") == []
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=10**7))
    memory.add_messages("s", there, format="openai-chat")
    back = memory.build_context("s", format="anthropic")
    assert check(back.messages, "anthropic", system=back.system) == []


BROKEN: dict[str, list[Message]] = {
    "two messages of one role": [user("a"), user("b"), assistant("x"), assistant("y"), END],
    "an id used again": [
        Q, assistant(use()), user(result()), assistant(use()), user(result("a", "2")),
    ],
    "an id twice in a message": [
        Q, assistant(use(), use()), user(result("a", "1"), result("a", "2")),
    ],
    "an id out of the alphabet": [Q, assistant(use("a.b")), user(result("a.b"))],
    "a name out of the alphabet": [Q, assistant(use(name="a b")), user(result())],
    "a name too long": [Q, assistant(use(name="x" * 129)), user(result())],
    "a use without result": [Q, assistant(use()), user("never mind")],
    "the last use without result": [Q, assistant(use())],
    "a result without use": [user(result("ghost")), assistant("x"), END],
    "a result twice": [Q, assistant(use()), user(result(), result())],
    "an error without content": [Q, assistant(use()), user(result("a", "", is_error=True))],
    "the assistant first": [assistant("x"), END],
    "the assistant last": [Q, assistant("x")],
    "empty text blocks": [user(text(""), text("q")), assistant(text(""), use()), user(result())],
    "a blank message": [Q, assistant(" "), END],
    "empty messages": [user(""), assistant(""), END],
    "no blocks": [Q, {"role": "assistant", "content": []}, END],
    "text before results": [Q, assistant(use()), user(text("before"), result())],
    "results in two messages": [
        Q, assistant(use("a"), use("b")), user(result("a")), user(result("b")),
    ],
    "input that is text": [Q, assistant(use(arguments="text")), user(result())],
    "a system message inside": [Q, {"role": "system", "content": "be brief"}, END],
    "a system message first": [{"role": "system", "content": "be brief"}, Q],
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_invalid_messages_are_rendered_validly(kind: str) -> None:
    memory = loaded(BROKEN[kind])
    for target in ("anthropic", "openai-chat"):
        context = memory.build_context("s", format=target)
        assert check(context.messages, target, system=context.system) == []


@pytest.mark.parametrize("kind", BROKEN)
def test_repaired_messages_stay_unchanged(kind: str) -> None:
    rendered = sent(BROKEN[kind])
    assert sent(rendered) == rendered


def test_ids_used_again_pair_by_order() -> None:
    rendered = sent(BROKEN["an id used again"])
    uses = [block["id"] for message in rendered[1::2] for block in message["content"]]
    answers = [
        (block["tool_use_id"], block["content"])
        for message in rendered[2::2]
        for block in message["content"]
    ]
    assert answers == list(zip(uses, ["found", "2"], strict=True))


def test_the_head_of_the_session_is_the_system_prompt() -> None:
    memory = loaded([{"role": "system", "content": "be brief"}, Q])
    context = memory.build_context("s", format="anthropic", system="You are Ada.")
    assert context.system == "You are Ada.\n\nbe brief"
    assert context.messages == [Q]


def test_a_system_message_inside_is_a_marked_user_message() -> None:
    rendered = sent(BROKEN["a system message inside"])
    [message] = rendered
    assert [block["text"] for block in message["content"]] == [
        "q",
        "[memman: a system message within the conversation]\nbe brief",
        "end",
    ]


def test_a_text_block_with_another_key_is_still_text() -> None:
    memory = loaded(ROUND_TRIPS["cache_control everywhere"])
    assert memory.get_entries("s")[0].content == (TextPart("q"),)
    assert "User: q" in memory.get_context_for_llm("s")
    assert "q" in json.dumps(memory.build_context("s").messages[0])


def test_signed_thinking_is_never_shown_to_another_provider() -> None:
    memory = loaded(ROUND_TRIPS["signed thinking"])
    assert "signed hm" not in json.dumps(memory.build_context("s").messages)
    assert "signed hm" not in memory.get_context_for_llm("s")


def test_redacting_a_use_leaves_no_copy_of_it_in_raw() -> None:
    def redact(entry: Entry) -> Entry:
        if "secret" not in entry.text:
            return entry
        return msgspec.structs.replace(entry, content=entry.text.replace("secret", "***"))

    memory = MemoryManager(counter="chars4", redact=redact)
    block = assistant(use("a", arguments={"x": "secret"}), text("mid"), use("b"))
    memory.add_messages("s", [Q, block, user(result("a"), result("b"))])
    assert "secret" not in memory.export_session("s").to_json()
    assert "secret" not in json.dumps(memory.build_context("s", format="anthropic").messages)


def test_without_format_anthropic_messages_are_recognised() -> None:
    memory = MemoryManager()
    memory.add_messages("s", ROUND_TRIPS["text and a use"])
    assert [entry.type for entry in memory.get_entries("s")] == [
        "message", "message", "tool_call", "tool_result",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("messages", "sure"),
    [
        ([], 0),
        (["text"], 0),
        ([{"role": "tool"}], 0),
        ([Q], 1),
        ([user(text("q"))], 1),
        ([Q, assistant(use())], 4),
        ([Q, {"role": "assistant", "content": None, "tool_calls": []}], 0),
    ],
)
def test_it_is_surer_of_blocks_that_only_anthropic_has(messages: Any, sure: int) -> None:
    assert AnthropicFormat().detect(messages) == sure


# ---------------------------------------------------------------- any log

TEXTS = st.sampled_from(["", "x", "hello " * 60, " ", "日本 🙂", "\x00", "[memman x]"])
IDS = st.sampled_from(["a", "b", "c.d", ""])
ANY_BLOCK = st.one_of(
    st.builds(text, TEXTS),
    st.builds(lambda words: text(words, **CACHE), TEXTS),
    st.sampled_from([IMAGE, thinking("hm"), {"type": "redacted_thinking", "data": "d"}]),
)
USES = st.builds(
    use,
    IDS,
    st.sampled_from(["f", "g h", "", "x" * 130]),
    st.sampled_from([{}, {"x": "y" * 900}, "text", [1]]),
)
RESULTS = st.one_of(
    st.builds(result, IDS, st.one_of(TEXTS, st.none(), st.lists(st.builds(text, TEXTS)))),
    st.builds(lambda call_id, words: result(call_id, words, is_error=True), IDS, TEXTS),
)


def message(role: str, blocks: list[Message]) -> Message:
    return {"role": role, "content": blocks}


ANY_MESSAGE = st.one_of(
    st.builds(lambda words: user(words), TEXTS),
    st.builds(message, st.just("user"), st.lists(st.one_of(RESULTS, ANY_BLOCK), max_size=4)),
    st.builds(message, st.just("assistant"), st.lists(st.one_of(USES, ANY_BLOCK), max_size=4)),
    st.builds(lambda words: {"role": "system", "content": words}, TEXTS),
)


@settings(max_examples=examples(150))
@given(st.lists(ANY_MESSAGE, min_size=1, max_size=7), st.sampled_from([300, 10**7]))
def test_any_log_renders_validly_within_its_budget(log: list[Message], max_tokens: int) -> None:
    memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=max_tokens))
    memory.add_messages("s", copy.deepcopy(log), format="anthropic")
    for target in ("anthropic", "openai-chat"):
        try:
            context = memory.build_context("s", format=target)
        except BudgetExceeded:
            assert max_tokens == 300
            continue
        assert context.tokens.tokens <= context.budget
        if context.messages:
            assert check(context.messages, target, system=context.system) == []
        if target == "anthropic" and max_tokens > 300 and not check(log, target):
            assert context.messages == log
    other = MemoryManager(counter="chars4")
    other.import_session(memory.export_session("s").to_json())
    assert other.export_session("s") == memory.export_session("s")


# ---------------------------------------------------------------- the SDK's own objects


def response(*content: Message, **usage: int) -> SdkMessage:
    return SdkMessage.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": list(content),
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 4} | usage,
        }
    )


def test_response_object_adds_its_message_and_cache_usage() -> None:
    memory = loaded([Q])
    read = {"cache_read_input_tokens": 500, "cache_creation_input_tokens": 30}
    entries = memory.add_messages("s", response(text("let me"), use(), **read))
    assert [entry.type for entry in entries] == ["message", "tool_call"]
    record = memory.export_session("s").log[-1]
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (540, 4, 500)  # type: ignore[union-attr]


def test_the_loop_of_the_sdk_is_accepted_by_its_types() -> None:
    memory = loaded([Q])
    memory.add_messages("s", response(thinking("hm"), text("let me"), use()))
    memory.add_messages("s", [user(result())], format="anthropic")
    context = memory.build_context("s", format="anthropic")
    assert check(context.messages, "anthropic", system=context.system) == []
    content = context.messages[1]["content"]
    assert [block["type"] for block in content] == ["thinking", "text", "tool_use"]
    assert content[0] == thinking("hm")


def test_the_request_holds_no_keys_of_the_response() -> None:
    """A message of a response carries its id, model and usage, which a request must not."""
    memory = loaded([Q])
    memory.add_messages("s", response(text("x")))
    memory.add_messages("s", [END], format="anthropic")
    rendered = memory.build_context("s", format="anthropic").messages
    assert set(rendered[1]) == {"role", "content"}


def test_a_message_object_made_without_validation_is_taken() -> None:
    made = SdkMessage.model_construct(
        id="m", type="message", role="assistant", content=[text("x")], usage=None
    )
    memory = loaded([Q])
    memory.add_messages("s", made)
    assert memory.get_entries("s")[1].text == "x"


def test_usage_objects_are_recorded() -> None:
    memory = loaded([Q])
    memory.record_usage("s", SdkUsage(input_tokens=5, output_tokens=2))
    assert memory.export_session("s").log[-1].input_tokens == 5  # type: ignore[union-attr]
