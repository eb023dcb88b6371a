"""Bad input raises a typed error that names it, and changes nothing."""

import asyncio
import copy
import errno
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memman import (
    AsyncMemoryManager,
    AsyncPortRefused,
    BudgetExceeded,
    CompressionFailed,
    ConfigError,
    EntryNotFound,
    FileError,
    FormatError,
    IdConflict,
    ImagePart,
    InvalidInput,
    MemmanError,
    MemoryConfig,
    MemoryManager,
    PluginNotFound,
    SessionExists,
    SessionNotFound,
    SessionState,
    StateError,
    StoreError,
    SummaryReply,
    TextPart,
)
from memman.formats.rules import check
from memman.stores import MemoryStore

LONE = "\ud800"


def manager(**given: Any) -> MemoryManager:
    return MemoryManager(counter="chars4", **given)


def conversation(**given: Any) -> MemoryManager:
    """Fill a session with a message, a pinned one, a call and its result, and a compression."""
    memory = manager(**given)
    memory.add_user_message("s", "begin", pinned=True, id="pinned")
    for number in range(20):
        memory.add_user_message("s", f"{number} " + "abc " * 50)
    memory.compress("s", target_tokens=600)
    memory.add_tool_call("s", "shell", {"cmd": "ls"}, call_id="c1", id="call")
    memory.add_tool_result("s", "shell", "a b", call_id="c1", id="result")
    return memory


def refused(
    error: type[Exception],
    named: str,
    act: Callable[[MemoryManager], Any],
    memory: MemoryManager | None = None,
) -> None:
    """Assert that the call raises `error`, its message has `named`, and every session is unchanged."""
    memory = memory or conversation()
    before = [memory.export_session(info.session_id) for info in memory.list_sessions()]
    with pytest.raises(error) as raised:
        act(memory)
    assert named in str(raised.value)
    assert [memory.export_session(info.session_id) for info in memory.list_sessions()] == before
    assert memory.build_context("s").messages  # the live session still works


class FirstWords:
    def summarize(self, request: Any) -> SummaryReply:
        return SummaryReply(text=request.prompt[:40])


# ---------------------------------------------------------------- missing sessions and entries

READING: dict[str, Callable[[MemoryManager, Any], Any]] = {
    "build_context": lambda memory, name: memory.build_context(name),
    "clear_session": lambda memory, name: memory.clear_session(name),
    "compress": lambda memory, name: memory.compress(name),
    "delete_entries": lambda memory, name: memory.delete_entries(name, ["call"]),
    "delete_session": lambda memory, name: memory.delete_session(name),
    "export_session": lambda memory, name: memory.export_session(name),
    "get_active_entries": lambda memory, name: memory.get_active_entries(name),
    "get_context_for_llm": lambda memory, name: memory.get_context_for_llm(name),
    "get_entries": lambda memory, name: memory.get_entries(name),
    "get_entry": lambda memory, name: memory.get_entry(name, "call"),
    "get_messages": lambda memory, name: memory.get_messages(name),
    "get_stats": lambda memory, name: memory.get_stats(name),
    "get_summaries": lambda memory, name: memory.get_summaries(name),
    "pin": lambda memory, name: memory.pin(name, "call"),
    "plan_compression": lambda memory, name: memory.plan_compression(name),
    "record_usage": lambda memory, name: memory.record_usage(name, 12),
    "undo_compression": lambda memory, name: memory.undo_compression(name),
    "unpin": lambda memory, name: memory.unpin(name, "call"),
}
WRITING: dict[str, Callable[[MemoryManager, Any], Any]] = {
    "add_user_message": lambda memory, name: memory.add_user_message(name, "x"),
    "add_messages": lambda memory, name: memory.add_messages(
        name, [{"role": "user", "content": "x"}]
    ),
}


@pytest.mark.parametrize("verb", READING)
def test_a_session_that_does_not_exist_is_named_and_not_created(verb: str) -> None:
    refused(SessionNotFound, "'nowhere'", lambda memory: READING[verb](memory, "nowhere"))


def test_settings_of_a_session_may_come_before_its_first_entry() -> None:
    memory = MemoryManager()
    memory.update_config("later", max_tokens=5)
    assert memory.get_stats("later").max_tokens == 5


@pytest.mark.parametrize(
    "act",
    [
        lambda memory: memory.get_entry("s", "nothing"),
        lambda memory: memory.pin("s", "nothing"),
        lambda memory: memory.unpin("s", "nothing"),
        lambda memory: memory.delete_entries("s", ["call", "nothing"]),
        lambda memory: memory.undo_compression("s", "nothing"),
    ],
    ids=["get_entry", "pin", "unpin", "delete_entries", "undo_compression"],
)
def test_an_entry_that_does_not_exist_is_named(act: Any) -> None:
    refused(EntryNotFound, "'nothing'", act)


def test_undo_without_a_compression_has_a_reason() -> None:
    memory = manager()
    memory.add_user_message("s", "x")
    refused(EntryNotFound, "no compression", lambda m: m.undo_compression("s"), memory)


def test_pin_of_a_compressed_entry_error_names_the_way_out() -> None:
    memory = conversation()
    hidden = next(entry.id for entry in memory.get_entries("s") if entry.compressed)
    refused(EntryNotFound, "undo its compression", lambda m: m.pin("s", hidden), memory)


# ---------------------------------------------------------------- wrong types and ranges

BAD_IDS: dict[str, Any] = {
    "None": None,
    "number": 7,
    "bytes": b"s",
    "list": ["s"],
    "empty": "",
    "256 bytes": "a" * 256,
    "256 bytes of two each": "é" * 128,
    "newline": "a\nb",
    "NUL": "a\x00b",
    "delete": "a\x7fb",
    "zero width": "a\u200bb",
    "lone surrogate": LONE,
}


@pytest.mark.parametrize("kind", BAD_IDS)
@pytest.mark.parametrize("verb", READING | WRITING)
def test_bad_session_id_is_refused_by_every_method(verb: str, kind: str) -> None:
    memory = manager()
    with pytest.raises(InvalidInput, match="session_id"):
        (READING | WRITING)[verb](memory, BAD_IDS[kind])
    assert memory.list_sessions() == []


@pytest.mark.parametrize("kind", [kind for kind in BAD_IDS if kind != "None"])
@pytest.mark.parametrize("argument", ["id", "call_id", "message_id"])
def test_a_bad_id_of_an_entry_is_refused_at_add(argument: str, kind: str) -> None:
    long = argument == "call_id" and kind.startswith("256")
    given = {argument: BAD_IDS[kind] * (65 if long else 1)}
    refused(InvalidInput, argument, lambda memory: memory.add_tool_call("s", "shell", {}, **given))


def test_ids_of_255_bytes_and_any_script_are_taken() -> None:
    memory = manager()
    for name in ("a" * 255, "日本" * 42, "emoji 🙂 and spaces", "../../etc"):
        memory.add_user_message(name, "x", id=name)
        assert memory.get_entry(name, name).text == "x"


def test_call_id_with_a_signature_is_taken() -> None:
    memory = manager()
    call_id = "call_1__thought__" + "c2ln" * 2_000
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": call_id, "content": "ok"},
    ]  # fmt: skip
    memory.add_messages("s", messages)
    assert memory.build_context("s").messages == messages
    other = manager()
    other.import_session(memory.export_session("s").to_json())
    assert other.get_messages("s") == messages


class Text(str):
    """A library's own subclass of str, as in documents and templates."""

    __slots__ = ()

    def __str__(self) -> str:
        return "not what it says"


class Name(StrEnum):
    """Enum members for names, as applications define them."""

    USER = "user"
    MODEL = "gpt-4o"
    SAID = "two words"


@pytest.mark.parametrize("text", [Text("two words"), Name.SAID], ids=["subclass", "enum"])
@pytest.mark.parametrize("durable", [False, True], ids=["memory", "file"])
def test_subclass_of_str_is_stored_as_str(tmp_path: Path, text: str, durable: bool) -> None:
    memory = manager(store=tmp_path / "chat.db" if durable else None)
    plain, own = manager(), {"id": text, "message_id": text, "metadata": {text: [text]}}
    for each, text_messagee, more in (
        (memory, text, own | {"session_id": text}),
        (plain, "two words", {key: json.loads(json.dumps(own[key])) for key in own}),
    ):
        session = more.pop("session_id", "two words")
        each.add_user_message(session, text_messagee, **more)
        each.add_tool_call(session, text_messagee, text_messagee, call_id=text_messagee)
        each.add_tool_result(
            session, text_messagee, (TextPart(text_messagee),), call_id=text_messagee
        )
        each.add_context(session, text_messagee, text_messagee)
        each.add_messages(session, [{"role": "user", "content": text_messagee}])
    shown = [
        [(entry.text, entry.name, entry.call_id, entry.metadata, entry.token_count.tokens)
         for entry in each.get_entries("two words")]
        for each in (memory, plain)
    ]  # fmt: skip
    assert shown[0] == shown[1]
    assert [info.session_id for info in memory.list_sessions()] == ["two words"]
    assert memory.get_entry(text, text).text == "two words"
    state = memory.export_session(text)
    assert manager().import_session(Text(state.to_json())) == "two words"
    memory.close()


def test_enums_name_roles_and_models() -> None:
    memory = manager()
    memory.add_messages("s", [{"role": Name.USER, "content": "x"}])
    memory.update_config("s", model=Text(Name.MODEL))
    assert memory.build_context("s", model=Name.MODEL, system=Text("Be brief.")).messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "x"},
    ]
    assert manager().import_session(memory.export_session("s").to_json()) == "s"


BAD_CONTENT: dict[str, Any] = {
    "None": None,
    "number": 7,
    "bytes": b"x",
    "list": ["x"],
    "tuple of text": ("x",),
    "dict": {"text": "x"},
    "lone surrogate": LONE,
    "lone surrogate in a part": (TextPart(f"a{LONE}"),),
    "number in a part": (TextPart(7),),  # type: ignore[arg-type]
    "lone surrogate in an image": (ImagePart(url=LONE),),
    "number in an image": (ImagePart(url=7),),  # type: ignore[arg-type]
}
WITH_CONTENT: dict[str, Callable[[MemoryManager, Any], Any]] = {
    "user": lambda memory, content: memory.add_user_message("s", content),
    "assistant": lambda memory, content: memory.add_assistant_message("s", content),
    "system": lambda memory, content: memory.add_system_message("s", content),
    "tool_result": lambda memory, content: memory.add_tool_result("s", "shell", content),
    "context": lambda memory, content: memory.add_context("s", content, "file"),
}


@pytest.mark.parametrize("kind", BAD_CONTENT)
@pytest.mark.parametrize("verb", WITH_CONTENT)
def test_content_must_be_text_or_parts(verb: str, kind: str) -> None:
    refused(InvalidInput, "content", lambda memory: WITH_CONTENT[verb](memory, BAD_CONTENT[kind]))


NAMED: dict[str, Callable[[MemoryManager, Any], Any]] = {
    "a tool's name of a call": lambda memory, name: memory.add_tool_call("s", name, {}),
    "a tool's name of a result": lambda memory, name: memory.add_tool_result("s", name, ""),
    "a context's source": lambda memory, name: memory.add_context("s", "x", name),
}


@pytest.mark.parametrize("name", [None, 7, b"x", LONE, ["x"]], ids=repr)
@pytest.mark.parametrize("what", NAMED)
def test_name_must_be_text(what: str, name: Any) -> None:
    refused(InvalidInput, what.split(" of ")[0], lambda memory: NAMED[what](memory, name))


@pytest.mark.parametrize("arguments", [None, 7, b"{}", ["x"], LONE], ids=repr)
def test_a_calls_arguments_are_a_mapping_or_text(arguments: Any) -> None:
    refused(InvalidInput, "tool", lambda memory: memory.add_tool_call("s", "shell", arguments))


@pytest.mark.parametrize("argument", ["pinned", "is_error", "compress"])
@pytest.mark.parametrize("value", ["yes", 1, []], ids=repr)
def test_switch_must_be_a_bool(argument: str, value: Any) -> None:
    given = {argument: value}
    refused(
        InvalidInput, argument, lambda memory: memory.add_tool_result("s", "shell", "x", **given)
    )


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(levels):
        inner = {"a": inner}
    return inner


def cycle() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["a"] = loop
    return loop


BAD_JSON: dict[str, tuple[Any, str]] = {
    "NaN": ({"a": [1, float("nan")]}, "$.a[1]"),
    "infinity": ({"a": {"b": float("inf")}}, "$.a.b"),
    "a number as key": ({"a": {1: 2}}, "the key 1 at $.a"),
    "None as key": ({None: 2}, "the key None at $"),
    "tuple": ({"a": (1, 2)}, "$.a is of type tuple"),
    "set": ({"a": {1}}, "$.a is of type set"),
    "bytes": ({"a": b"x"}, "$.a is of type bytes"),
    "object": ({"a": [object()]}, "$.a[0] is of type object"),
    "lone surrogate": ({"a": [LONE]}, "$.a[0] holds a lone surrogate"),
    "lone surrogate as key": ({"a": {LONE: 1}}, "at $.a holds a lone surrogate"),
    "65 levels": (nested(64), "nested deeper than 64 levels"),
    "1,100 levels": (nested(1_100), "nested deeper than 64 levels"),
    "a cycle": (cycle(), "nested deeper"),
}


@pytest.mark.parametrize("kind", BAD_JSON)
def test_metadata_that_json_changes_is_refused_with_its_place(kind: str) -> None:
    value, named = BAD_JSON[kind]
    refused(InvalidInput, named, lambda memory: memory.add_user_message("s", "x", metadata=value))


@pytest.mark.parametrize("kind", BAD_JSON)
def test_arguments_that_json_changes_are_refused(kind: str) -> None:
    value, named = BAD_JSON[kind]
    refused(InvalidInput, named, lambda memory: memory.add_tool_call("s", "shell", value))


@pytest.mark.parametrize("metadata", ["x", 7, ["x"], [("a", 1)]], ids=repr)
def test_metadata_must_be_a_mapping(metadata: Any) -> None:
    given = {"metadata": metadata}
    refused(InvalidInput, "metadata", lambda memory: memory.add_user_message("s", "x", **given))


def test_metadata_at_the_edge_of_json_survives_unchanged() -> None:
    value = {"int": 2**63, "float": 1.0, "zero": -0.0, "deep": nested(62), "": None, "日": ["\x00"]}
    memory = manager()
    memory.add_user_message("s", "x", metadata=value)
    restored = manager()
    restored.import_session(memory.export_session("s").to_json())
    assert restored.get_entries("s")[0].metadata == value


@pytest.mark.parametrize("tokens", ["3", 3.5, True, -1, 0, float("nan")], ids=repr)
def test_target_tokens_must_be_a_number_of_tokens(tokens: Any) -> None:
    refused(InvalidInput, "target_tokens", lambda m: m.compress("s", target_tokens=tokens))
    refused(InvalidInput, "target_tokens", lambda m: m.plan_compression("s", target_tokens=tokens))


@pytest.mark.parametrize("budget", ["3", 3.5, True, float("nan")], ids=repr)
def test_a_budget_must_be_a_number_of_tokens(budget: Any) -> None:
    refused(InvalidInput, "budget", lambda memory: memory.build_context("s", budget=budget))


@pytest.mark.parametrize("focus", [7, ["x"], LONE, "", " \n"], ids=repr)
def test_focus_must_be_text_that_is_not_blank(focus: Any) -> None:
    refused(InvalidInput, "focus", lambda memory: memory.compress("s", focus=focus))
    refused(InvalidInput, "focus", lambda memory: memory.plan_compression("s", focus=focus))


@pytest.mark.parametrize("system", [7, b"x", [7], LONE], ids=repr)
def test_a_system_prompt_must_be_text(system: Any) -> None:
    refused(InvalidInput, "system", lambda memory: memory.build_context("s", system=system))


@pytest.mark.parametrize("tools", [7, "x", {"a": 1}, [1], [{"a": float("nan")}]], ids=repr)
def test_tools_must_be_a_list_of_definitions(tools: Any) -> None:
    refused(InvalidInput, "tools", lambda memory: memory.build_context("s", tools=tools))


@pytest.mark.parametrize("model", [7, ["x"], b"gpt-5"], ids=repr)
def test_a_model_must_be_a_name(model: Any) -> None:
    refused(InvalidInput, "model", lambda memory: memory.build_context("s", model=model))
    refused(InvalidInput, "model", lambda memory: memory.count_tokens("x", model=model))
    refused(InvalidInput, "model", lambda memory: memory.record_usage("s", 3, model=model))


@pytest.mark.parametrize("name", [7, "nope"], ids=repr)
def test_unknown_format_error_lists_the_known_ones(name: Any) -> None:
    refused(MemmanError, repr(name), lambda memory: memory.build_context("s", format=name))
    messages = [{"role": "user", "content": "x"}]
    refused(MemmanError, repr(name), lambda m: m.add_messages("s", messages, format=name))
    refused(PluginNotFound, "openai-chat", lambda m: m.build_context("s", format="nope"))


def test_a_format_that_is_a_list_is_a_typed_error() -> None:
    refused(MemmanError, "format", lambda memory: memory.build_context("s", format=["text"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [None, 7, [["x"]], [7]], ids=repr)
def test_ids_to_delete_must_be_ids(ids: Any) -> None:
    refused(MemmanError, "", lambda memory: memory.delete_entries("s", ids))


@pytest.mark.parametrize("verb", ["get_entry", "pin", "unpin", "undo_compression"])
def test_entry_id_must_be_text(verb: str) -> None:
    refused(MemmanError, "", lambda memory: getattr(memory, verb)("s", ["x"]))


BAD_USAGE: dict[str, Any] = {
    "None": None,
    "negative": -1,
    "bool": True,
    "float": 3.5,
    "text": "12",
    "object": object(),
    "empty": {},
    "negative total": {"prompt_tokens": -4},
    "text as number": {"prompt_tokens": "4"},
    "null": {"input_tokens": None},
    "negative output": {"input_tokens": 2, "output_tokens": -1},
    "bool as number": {"inputTokens": True},
}


@pytest.mark.parametrize("kind", BAD_USAGE)
def test_usage_without_a_number_of_input_tokens_is_refused(kind: str) -> None:
    refused(InvalidInput, "usage", lambda memory: memory.record_usage("s", BAD_USAGE[kind]))


# ---------------------------------------------------------------- settings

BAD_SETTINGS: list[dict[str, Any]] = [
    {"max_tokens": 0},
    {"max_tokens": -1},
    {"max_tokens": 1.5},
    {"max_tokens": True},
    {"max_tokens": "8000"},
    {"max_entries": 0},
    {"max_entries": -5},
    {"trigger_ratio": 0},
    {"trigger_ratio": 1.1},
    {"trigger_ratio": float("nan")},
    {"target_ratio": 0.0},
    {"target_ratio": 1.0},
    {"target_ratio": None},
    {"recent_window": -1},
    {"recent_window": 2.0},
    {"min_entries_to_compress": 0},
    {"compression_ratio": -0.3},
    {"compression_ratio": 1.01},
    {"max_summary_ratio": 0},
    {"max_entry_ratio": 2},
    {"overhead_tokens": -1},
    {"reserve_output": -1},
    {"auto_compress": 1},
    {"background": "yes"},
    {"cache_ttl": 0},
    {"compress_when_cold": None},
    {"summarize_on_prefix": 1},
    {"strategy": "nope"},
    {"count_policy": "guess"},
    {"summarize_timeout": 0},
    {"summarize_timeout": -3.0},
    {"on_failure": "ignore"},
    {"model": 7},
    {"summarizer": 7},
]


@pytest.mark.parametrize("settings", BAD_SETTINGS, ids=repr)
def test_a_bad_setting_is_named_wherever_it_is_given(settings: dict[str, Any]) -> None:
    [name] = settings
    refused(ConfigError, name, lambda memory: memory.update_config(**settings))
    refused(ConfigError, name, lambda memory: memory.update_config("s", **settings))
    refused(
        ConfigError,
        name,
        lambda memory: MemoryManager(config=MemoryConfig(**settings)).add_user_message("s", "x"),
    )


def test_unknown_setting_error_lists_the_known_ones() -> None:
    for act in (
        lambda memory: memory.update_config(max_token=5),
        lambda memory: memory.update_config("s", max_token=5),
    ):
        message_message = (
            "unknown setting 'max_token', did you mean 'max_tokens'? known are max_tokens"
        )
        refused(ConfigError, message_message, act)


def test_unknown_setting_without_suggestion_lists_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match="unknown setting 'zzz'; known are max_tokens, max_entries"
    ):
        MemoryConfig().updated({"zzz": 1})


def test_contradictory_settings_name_each_other() -> None:
    for act in (
        lambda memory: memory.update_config(target_ratio=0.9, max_summary_ratio=0.5),
        lambda memory: memory.update_config("s", target_ratio=0.9),
    ):
        refused(ConfigError, "max_summary_ratio", act)


def test_session_settings_that_contradict_the_manager_fail() -> None:
    memory = conversation(config=MemoryConfig(max_summary_ratio=0.9))
    refused(ConfigError, "target_ratio", lambda m: m.update_config("s", target_ratio=0.6), memory)


def test_a_strategy_that_is_neither_a_name_nor_stages_is_named() -> None:
    for strategy in (7, ("summarise", 7), [None]):
        refused(ConfigError, "strategy", lambda m, s=strategy: m.update_config(strategy=s))
        refused(InvalidInput, "strategy", lambda m, s=strategy: m.update_config("s", strategy=s))


def test_session_strategy_of_functions_is_refused() -> None:
    refused(
        InvalidInput, "strategy", lambda m: m.update_config("s", strategy=(lambda v, g, c: None,))
    )


def test_a_config_that_is_a_dict_is_refused() -> None:
    with pytest.raises(InvalidInput, match="MemoryConfig"):
        MemoryManager(config={"max_tokens": 5})  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", ["compress", "plan_compression"])
def test_target_above_the_trigger_error_names_both(verb: str) -> None:
    memory = conversation(config=MemoryConfig(max_tokens=9_000))
    refused(
        InvalidInput,
        "target_tokens=9001 is above the trigger, max_tokens=9000",
        lambda m: getattr(m, verb)("s", target_tokens=9_001),
        memory,
    )
    getattr(memory, verb)("s", target_tokens=9_000)


# ---------------------------------------------------------------- budgets


def test_too_small_budget_error_names_the_protected_entries() -> None:
    memory = manager()
    memory.add_system_message("s", "rule " * 200, id="head")
    memory.add_user_message("s", "keep " * 400, pinned=True, id="keep")
    memory.add_user_message("s", "hello")
    before = memory.export_session("s")
    with pytest.raises(BudgetExceeded) as raised:
        memory.build_context("s", budget=300)
    error = raised.value
    assert error.available == 300
    assert error.required >= 750
    head, keep = (memory.get_entry("s", name).address for name in ("head", "keep"))
    assert error.culprits[0] == (f"pinned {keep} user message", 500)
    assert error.culprits[1] == (f"pinned {head} system message", 250)
    assert f"pinned {keep} user message (500)" in str(error)
    assert "unpin entries" in str(error)
    assert memory.export_session("s") == before
    # The amount in the message is enough.
    assert memory.build_context("s", budget=error.required).tokens.tokens <= error.required


@pytest.mark.parametrize("format", ["openai-chat", "openai-responses"])
def test_a_context_is_never_trimmed_to_nothing(format: str) -> None:
    memory = manager()
    memory.add_user_message("s", "big " * 1000)
    memory.add_assistant_message("s", ())  # the newest, which stays, and which no provider receives
    with pytest.raises(BudgetExceeded) as raised:
        memory.build_context("s", budget=30, format=format)
    assert memory.build_context("s", budget=raised.value.required, format=format).messages


@pytest.mark.parametrize("budget", [0, -5, 1])
def test_budget_below_the_framing_is_budget_exceeded(budget: int) -> None:
    memory = manager()
    memory.add_user_message("s", "hello")
    with pytest.raises(BudgetExceeded) as raised:
        memory.build_context("s", budget=budget)
    assert raised.value.required > budget


def test_a_system_prompt_over_the_budget_is_named_as_the_culprit() -> None:
    memory = manager()
    memory.add_user_message("s", "hello")
    with pytest.raises(BudgetExceeded, match="system prompt, tools and overhead"):
        memory.build_context("s", budget=100, system="long " * 400)


# ---------------------------------------------------------------- async ports in the sync manager


class AsyncStore(MemoryStore):
    async def append(self, *args: Any, **kw: Any) -> Any:  # type: ignore[override]
        return super().append(*args, **kw)


class AsyncCounter:
    fingerprint = "async"

    async def count_texts(self, texts: Sequence[str]) -> list[int]:
        return [1 for _ in texts]


class AsyncSummarizer:
    async def summarize(self, request: Any) -> SummaryReply:
        return SummaryReply(text="x")


class AsyncCallable:
    async def __call__(self, prompt: str) -> str:
        return "x"


async def async_function(text: str) -> Any:
    return "x"


@pytest.mark.parametrize(
    "given",
    [
        {"store": AsyncStore()},
        {"counter": AsyncCounter()},
        {"counter": async_function},
        {"summarizer": AsyncSummarizer()},
        {"summarizer": AsyncCallable()},
        {"summarizer": async_function},
    ],
    ids=lambda given: f"{next(iter(given))} {type(next(iter(given.values()))).__name__}",
)
def test_sync_manager_refuses_an_async_port(given: Any) -> None:
    with pytest.raises(AsyncPortRefused):
        MemoryManager(**given)


def test_an_async_callback_is_refused_and_the_one_before_stays() -> None:
    memory = manager(summarizer=lambda prompt: "the first")
    with pytest.raises(AsyncPortRefused, match="AsyncMemoryManager"):
        memory.set_summarize_callback(async_function)
    for number in range(20):
        memory.add_user_message("s", f"{number} " + "abc " * 50)
    memory.compress("s", target_tokens=600)
    assert memory.get_summaries("s")[0].content == "the first"


@pytest.mark.parametrize("seconds", [None, 5.0], ids=["inline", "on a thread"])
def test_summarizer_that_returns_a_coroutine_falls_back(
    seconds: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    memory = manager(
        summarizer=lambda prompt: async_function(prompt),
        config=MemoryConfig(summarize_timeout=seconds),
    )
    for number in range(20):
        memory.add_user_message("s", f"{number} " + "abc " * 50)
    result = memory.compress("s", target_tokens=600)
    assert {item.method for item in result.replacements} == {"outline"}
    assert "AsyncPortRefused" in caplog.text


@pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited:RuntimeWarning",  # the caller awaits or closes it
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
def test_counter_that_returns_a_coroutine_falls_back() -> None:
    memory = MemoryManager(counter=lambda text: async_function(text))
    entry = memory.add_user_message("s", "abcdefgh")
    assert (entry.token_count.tokens, entry.token_count.method) == (2, "estimation")


class OnlyLooksSync(MemoryStore):
    def append(self, *args: Any, **kw: Any) -> Any:  # type: ignore[override]
        async def later() -> Any:
            await asyncio.sleep(0)

        return later()


@pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited:RuntimeWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
def test_a_store_that_only_looks_sync_is_a_typed_error() -> None:
    memory = MemoryManager(OnlyLooksSync())
    with pytest.raises(AsyncPortRefused, match="AsyncMemoryManager"):
        memory.add_user_message("s", "x")


def test_an_async_counter_is_refused_by_the_async_manager_too() -> None:
    """`add` never waits for a count."""
    for counter in (AsyncCounter(), async_function):
        with pytest.raises(AsyncPortRefused, match="async"):
            AsyncMemoryManager(counter=counter)


# ---------------------------------------------------------------- objects without the methods of a protocol


@pytest.mark.parametrize(
    "argument", ["store", "counter", "summarizer", "redact", "clock", "new_id"]
)
def test_invalid_port_is_refused_by_the_constructor(argument: str) -> None:
    with pytest.raises(InvalidInput, match=argument):
        MemoryManager(**{argument: 7})


def test_a_model_given_as_the_store_is_refused_and_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=r"'gpt-4\.1' is a model, .* write model='gpt-4\.1'"):
        MemoryManager("gpt-4.1")
    assert list(tmp_path.iterdir()) == []
    for named in ("./gpt-4.1", "chat", "gpt-5.db"):  # a file, and a name that is not a model's
        MemoryManager(named).close()
    MemoryManager("gpt-4.1").close()  # by now it is the file


def test_a_config_given_as_the_store_is_refused_with_its_name() -> None:
    with pytest.raises(InvalidInput, match=r"write config=MemoryConfig\(\.\.\.\)"):
        MemoryManager(MemoryConfig(max_tokens=8_000))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [{"store": MemoryStore}, {"counter": dict}, {"summarizer": FirstWords}],
    ids=["store", "counter", "summarizer"],
)
def test_class_instead_of_instance_is_named(given: dict[str, type]) -> None:
    [kind] = given.values()
    message_message = f"{kind.__name__} is a class: pass {kind.__name__}\\(...\\)"
    with pytest.raises(InvalidInput, match=message_message):
        MemoryManager(**given)


@pytest.mark.parametrize("argument", ["redact", "clock", "new_id"])
@pytest.mark.parametrize("api", [MemoryManager, AsyncMemoryManager])
def test_a_function_that_is_never_awaited_may_not_be_async(api: type, argument: str) -> None:
    async def later(*given: Any) -> Any:
        raise AssertionError(given)

    with pytest.raises(
        AsyncPortRefused, match=f"{argument} is async, and must be a plain function"
    ):
        api(**{argument: later})


def test_exclusive_is_a_switch() -> None:
    with pytest.raises(InvalidInput, match="exclusive must be True or False, not 'yes'"):
        MemoryManager(exclusive="yes")


@pytest.mark.parametrize("settings", [{"max_tokens": 5}, MemoryConfig(max_tokens=5)], ids=repr)
def test_settings_in_one_object_error_has_the_right_call(settings: Any) -> None:
    refused(InvalidInput, "are given by name", lambda memory: memory.update_config(settings))


@pytest.mark.parametrize(
    ("content", "hint"),
    [({"rows": 3}, "json.dumps"), ([{"type": "tool_use", "id": "c"}], "add_messages")],
    ids=repr,
)
def test_misplaced_content_error_names_its_place(content: Any, hint: str) -> None:
    refused(InvalidInput, hint, lambda memory: memory.add_tool_result("s", "shell", content))


def test_a_call_of_no_tool_is_refused() -> None:
    refused(InvalidInput, "must not be empty", lambda memory: memory.add_tool_call("s", "", {}))


@pytest.mark.parametrize("path", ["session.json", Path("session.json")], ids=repr)
def test_path_instead_of_document_is_named(path: Any) -> None:
    refused(StateError, "path.read_text()", lambda memory: memory.import_session(path))


def test_an_archive_for_a_missing_folder_names_the_folder(tmp_path: Path) -> None:
    refused(
        FileError,
        str(tmp_path / "none"),
        lambda memory: memory.export_archive("s", tmp_path / "none" / "s.gz"),
    )
    with pytest.raises(FileError) as raised:
        conversation().export_archive("s", tmp_path / "none" / "s.gz")
    assert ".part" not in str(raised.value)


def test_one_piece_of_a_stream_is_no_completion() -> None:
    piece = {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"content": "Hi"}}],
    }
    refused(FormatError, "collect the pieces", lambda memory: memory.add_messages("s", piece))


def test_a_store_url_that_no_plugin_opens_is_named() -> None:
    with pytest.raises(PluginNotFound, match="scheme 'nowhere'"):
        MemoryManager("nowhere://x")


def test_unknown_counter_error_lists_the_known_ones() -> None:
    with pytest.raises(PluginNotFound, match=r"'nope'; known are .*chars4"):
        MemoryManager(counter="nope").add_user_message("s", "x")


def test_an_unknown_summarizer_is_named_wherever_it_is_given() -> None:
    with pytest.raises(PluginNotFound, match="'nope'"):
        MemoryManager(summarizer="nope")
    with pytest.raises(PluginNotFound, match="'nope'"):
        MemoryManager(config=MemoryConfig(summarizer="nope"))
    refused(PluginNotFound, "'nope'", lambda memory: memory.set_summarize_callback("nope"))
    refused(PluginNotFound, "'nope'", lambda memory: memory.update_config(summarizer="nope"))


# ---------------------------------------------------------------- ids


def test_the_same_id_with_the_same_content_is_a_no_op() -> None:
    memory = manager()
    first = memory.add_user_message("s", "hello", id="a", metadata={"n": 1})
    before = memory.export_session("s")
    assert memory.add_user_message("s", "hello", id="a", metadata={"n": 1}) == first
    assert memory.export_session("s") == before


@pytest.mark.parametrize(
    "again",
    [
        lambda memory: memory.add_user_message("s", "other", id="a"),
        lambda memory: memory.add_assistant_message("s", "hello", id="a"),
        lambda memory: memory.add_user_message("s", "hello", id="a", metadata={"n": 1}),
        lambda memory: memory.add_user_message("s", "hello", id="a", message_id="m"),
        lambda memory: memory.add_context("s", "hello", "file", id="a"),
    ],
    ids=["content", "role", "metadata", "message_id", "type"],
)
def test_the_same_id_with_anything_else_is_a_conflict(again: Any) -> None:
    memory = manager()
    memory.add_user_message("s", "hello", id="a")
    refused(IdConflict, "'a'", again, memory)


def test_same_call_id_with_another_tool_is_a_conflict() -> None:
    refused(
        IdConflict,
        "'call'",
        lambda memory: memory.add_tool_call("s", "other", {"cmd": "ls"}, call_id="c1", id="call"),
    )


@pytest.mark.parametrize("text", ["", "a secret"])
@pytest.mark.parametrize("compressed", [False, True])
def test_id_of_a_deleted_entry_is_reported_as_deleted(text: str, compressed: bool) -> None:
    memory = manager()
    memory.add_user_message("s", text, id="mine")
    if compressed:
        for number in range(20):
            memory.add_user_message("s", f"message {number}: " + "word " * 200)
        memory.compress("s", target_tokens=600)
        assert memory.get_entry("s", "mine").compressed
    once_more = memory.add_user_message("s", text, id="mine")
    assert (once_more.content, memory.get_entry("s", "mine").content) == (text, text)
    memory.delete_entries("s", ["mine"])
    for again in ("", "a secret", "another"):
        with pytest.raises(IdConflict, match="the id 'mine' was deleted; nothing was changed"):
            memory.add_user_message("s", again, id="mine")


def test_the_id_of_a_compressed_entry_is_still_taken() -> None:
    memory = manager()
    for number in range(20):
        memory.add_user_message("s", f"{number} " + "abc " * 50, id=f"e{number}")
    memory.compress("s", target_tokens=600)
    refused(IdConflict, "'e0'", lambda m: m.add_user_message("s", "new", id="e0"), memory)


def test_the_id_of_a_replacement_is_taken() -> None:
    memory = conversation()
    summary = memory.get_summaries("s")[0].id
    refused(IdConflict, summary, lambda m: m.add_user_message("s", "new", id=summary), memory)


# ---------------------------------------------------------------- results without a call


@pytest.mark.parametrize("call_id", ["ghost", None])
def test_result_of_an_unknown_call_is_kept_and_rendered(call_id: Any) -> None:
    memory = manager()
    memory.add_user_message("s", "go")
    entry = memory.add_tool_result("s", "shell", "from nowhere", call_id=call_id)
    memory.add_assistant_message("s", "odd")
    assert memory.get_entries("s")[1] == entry
    for target in ("openai-chat", "anthropic"):
        context = memory.build_context("s", format=target)
        assert check(context.messages, target, system=context.system) == []
        rendered_message = json.dumps(context.messages)
        assert "from nowhere" in rendered_message
        assert "whose call is not in this context" in rendered_message
    assert "from nowhere" in memory.get_context_for_llm("s")


def test_a_second_result_for_one_call_is_kept_as_a_note() -> None:
    memory = conversation()
    memory.add_tool_result("s", "shell", "once more", call_id="c1")
    for target in ("openai-chat", "anthropic"):
        context = memory.build_context("s", format=target)
        assert check(context.messages, target, system=context.system) == []
        assert "once more" in json.dumps(context.messages)


# ---------------------------------------------------------------- messages


@pytest.mark.parametrize(
    "log",
    [
        [{"role": "wizard", "content": "x"}],
        [{"content": "x"}],
        [{"a": 1}],
        "a text without any of our headings",
        "",
        [""],
        [None],
        [7],
        [["role", "user"]],
        object(),
        7,
        None,
        b"bytes",
        {"choices": [{"text": "Once"}]},
        {"choices": 7},
    ],
    ids=lambda log: "an object" if type(log) is object else repr(log),
)
def test_a_log_in_no_known_format_is_refused(log: Any) -> None:
    refused(FormatError, "", lambda memory: memory.add_messages("s", log))
    memory = manager()
    with pytest.raises(FormatError):
        memory.add_messages("new", log)
    assert memory.list_sessions() == []


def a_call(**changes: Any) -> dict[str, Any]:
    made = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [made | changes]}


def a_block(**block: Any) -> dict[str, Any]:
    role = "assistant" if block.get("type") in ("tool_use", "thinking") else "user"
    return {"role": role, "content": [block]}


def message_of(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


BROKEN_OPENAI: dict[str, Any] = {
    "no role": {"content": "x"},
    "an unknown role": {"role": "wizard", "content": "x"},
    "not a dict": 7,
    "None": None,
    "content a number": message_of(7),
    "content a dict": message_of({"text": "x"}),
    "a part that is text": message_of(["x"]),
    "a part that is an object": message_of([object()]),
    "tool_calls text": {"role": "assistant", "content": None, "tool_calls": "x"},
    "a call without function": {"role": "assistant", "content": None, "tool_calls": [{}]},
    "a call's id a number": a_call(id=7),
    "a call's id a surrogate": a_call(id=LONE),
    "a call's name a number": a_call(function={"name": 7, "arguments": "{}"}),
    "a call's name a surrogate": a_call(function={"name": LONE, "arguments": "{}"}),
    "arguments with a surrogate": a_call(function={"name": "f", "arguments": LONE}),
    "arguments with NaN": a_call(function={"name": "f", "arguments": {"a": float("nan")}}),
    "a surrogate in arguments": a_call(function={"name": "f", "arguments": {"a": LONE}}),
    "tool_call_id a number": {"role": "tool", "content": "x", "tool_call_id": 7},
    "tool_call_id a surrogate": {"role": "tool", "content": "x", "tool_call_id": LONE},
    "text a surrogate": message_of(LONE),
    "a part's text a surrogate": message_of([{"type": "text", "text": LONE}]),
    "an image's url a surrogate": message_of([{"type": "image_url", "image_url": {"url": LONE}}]),
    "an unknown part with a surrogate": message_of([{"type": "new", "x": LONE}]),
    "an unknown part with NaN": message_of([{"type": "new", "x": float("nan")}]),
    "an unknown part too deep": message_of([{"type": "new", "x": nested(1_100)}]),
    "another key with a surrogate": message_of("x", name=LONE),
    "another key with a tuple": message_of("x", extra=(1,)),
    "a key that is a number": message_of("x") | {3: 4},
}
BROKEN_ANTHROPIC: dict[str, Any] = {
    "an unknown role": {"role": "tool", "content": "x"},
    "no content": {"role": "user"},
    "content None": message_of(None),
    "a block that is a number": message_of([7]),
    "a block without type": message_of([{"text": "x"}]),
    "a use without id": a_block(type="tool_use", name="f", input={}),
    "a use without name": a_block(type="tool_use", id="a", input={}),
    "a use's id a surrogate": a_block(type="tool_use", id=LONE, name="f", input={}),
    "a use's input a surrogate": a_block(type="tool_use", id="a", name="f", input={"a": LONE}),
    "a use's input NaN": a_block(type="tool_use", id="a", name="f", input={"a": float("nan")}),
    "a result without id": a_block(type="tool_result", content="x"),
    "a result of numbers": a_block(type="tool_result", tool_use_id="a", content=[7]),
    "thinking with a surrogate": a_block(type="thinking", thinking=LONE),
    "an image's url a surrogate": a_block(type="image", source={"type": "url", "url": LONE}),
    "text a surrogate": message_of(LONE),
    "a block's text a surrogate": a_block(type="text", text=LONE),
    "another key with a surrogate": message_of("x", extra=LONE),
}


@pytest.mark.parametrize("kind", BROKEN_OPENAI)
def test_broken_openai_message_is_named_and_none_is_added(kind: str) -> None:
    messages = [
        message_of("fine"),
        message_of("also fine"),
        BROKEN_OPENAI[kind],
        message_of("never seen"),
    ]
    refused(
        FormatError,
        "message 2",
        lambda memory: memory.add_messages("s", messages, format="openai-chat"),
    )


@pytest.mark.parametrize("kind", BROKEN_ANTHROPIC)
def test_broken_anthropic_message_is_named_and_none_is_added(kind: str) -> None:
    messages = [
        message_of("fine"),
        message_of("also fine"),
        BROKEN_ANTHROPIC[kind],
        message_of("never seen"),
    ]
    refused(
        FormatError,
        "message 2",
        lambda memory: memory.add_messages("s", messages, format="anthropic"),
    )


def test_no_messages_add_nothing_and_create_no_session() -> None:
    memory = manager()
    assert memory.add_messages("s", []) == []
    assert memory.list_sessions() == []


def test_the_callers_messages_are_not_changed_by_adding_them() -> None:
    given = [message_of("hi"), a_call(), {"role": "tool", "tool_call_id": "c", "content": ""}]
    kept = copy.deepcopy(given)
    manager().add_messages("s", given)
    assert given == kept


# ---------------------------------------------------------------- session documents


def document() -> dict[str, Any]:
    memory = conversation(summarizer=lambda prompt: "They talked.")
    return dict(json.loads(memory.export_session("s").to_json()))


def imported(state: Any, problem: str) -> None:
    """Assert that the import raises a `StateError` that names the problem, and adds no session."""
    memory = manager()
    with pytest.raises(StateError) as raised:
        memory.import_session(state)
    assert any(problem in one for one in raised.value.problems), raised.value.problems
    assert memory.list_sessions() == []


def test_a_sound_document_is_taken() -> None:
    state, memory = document(), manager()
    memory.import_session(state)
    assert memory.export_session("s") == SessionState.from_json(state)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_truncated_json_is_refused(share: float) -> None:
    text = conversation().export_session("s").to_json()
    imported(text[: int(share * len(text))], "it is not JSON")
    imported(text.encode()[: int(share * len(text))], "it is not JSON")


@pytest.mark.parametrize("state", [None, 7, [], "null", "[]", b"7"], ids=repr)
def test_invalid_document_is_refused(state: Any) -> None:
    imported(state, "not a session document")


def test_bytes_that_are_no_text_are_refused() -> None:
    imported(b"\xff\xfe", "it is not JSON")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"log":' * 100_000], ids=["lists", "objects"])
def test_a_document_that_is_nested_too_deep_is_refused(text: str) -> None:
    imported(text, "it is nested too deeply")
    imported(text.encode(), "it is nested too deeply")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": "other"}, "its format is 'other'"),
        ({"format": None}, "its format is None"),
        ({"version": 2}, "its version is 2"),
        ({"version": "1"}, "its version is '1'"),
        ({"version": None}, "its version is None"),
        ({"session_id": 7}, "session_id"),
        ({"session_id": "a\nb"}, "control characters"),
        ({"session_id": "x" * 256}, "255 bytes"),
        ({"session_id": ""}, "255 bytes"),
        ({"log": 7}, "log"),
        ({"log": []}, "empty"),
        ({"entries": []}, "entries has no entry"),
        ({"entries": 7}, "entries"),
        ({"settings": {"max_tokens": 5}}, "settings"),
    ],
    ids=repr,
)
def test_a_document_with_another_value_is_refused(change: dict[str, Any], problem: str) -> None:
    state = document() | change
    if change == {"log": []}:
        state |= {"entries": [], "summaries": [], "totals": None}
    imported(state, problem)


def edited(edit: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    state = document()
    edit(state)
    return state


def record(state: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(dict_ for dict_ in state["log"] if dict_["kind"] == kind)


EDITS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "an unknown kind of record": (lambda s: s["log"][0].update(kind="magic"), "magic"),
    "an unknown type of entry": (lambda s: s["entries"][0].update(type="magic"), "magic"),
    "an unknown role": (lambda s: s["entries"][0].update(role="wizard"), "wizard"),
    "a dangling entry": (lambda s: s["entries"].pop(3), "entries has no entry"),
    "a dangling replacement": (
        lambda s: record(s, "compressed")["replacements"][0]["ids"].append("ghost"),
        "not contiguous",
    ),
    "a replacement of nothing": (
        lambda s: record(s, "compressed")["replacements"][0].update(ids=[]),
        "not in the window",
    ),
    "a record twice": (lambda s: s["log"].append(s["log"][0]), "was there before"),
    "an entry twice": (lambda s: s["entries"].append(s["entries"][0]), "entries"),
    "a compression twice": (
        lambda s: s["log"].append(record(s, "compressed")),
        "was there before",
    ),
    "a pinned entry in a run": (
        lambda s: record(s, "compressed")["replacements"][0]["ids"].insert(0, "pinned"),
        "",
    ),
    "wrong total of entries": (lambda s: s["totals"].update(entries=1), "totals"),
    "wrong total of tokens": (lambda s: s["totals"].update(tokens=1), "totals"),
    "wrong total of the window": (lambda s: s["totals"].update(active_tokens=1), "totals"),
    "a wrong link": (lambda s: s["entries"][2].update(summary_id="ghost"), "entries"),
    "a wrong mark": (lambda s: s["entries"][0].update(compressed=True), "entries"),
    "a wrong pin": (lambda s: s["entries"][4].update(pinned=True), "entries"),
    "a wrong seq": (lambda s: s["entries"][4].update(seq=99), "entries"),
    "a summary of other entries": (
        lambda s: s["summaries"][0].update(original_entry_ids=["ghost"]),
        "summaries",
    ),
    "a summary's wrong ratio": (lambda s: s["summaries"][0].update(ratio=99.0), "summaries"),
    "a missing summary": (
        lambda s: s["summaries"].append(dict(s["summaries"][0], id="two")),
        "summaries",
    ),
    "a time without zone": (
        lambda s: s["entries"][0].update(timestamp="2026-01-01T00:00:00"),
        "zone",
    ),
    "a time that is none": (lambda s: s["entries"][0].update(timestamp="yesterday"), "timestamp"),
    "content a number": (lambda s: s["entries"][0].update(content=7), "content"),
    "a negative count": (
        lambda s: s["entries"][0]["token_count"].update(tokens=-5),
        "tokens",
    ),
    "metadata that is no object": (lambda s: s["entries"][0].update(metadata="x"), "metadata"),
    "a summary's metadata that is no object": (
        lambda s: record(s, "compressed")["replacements"][0]["entry"].update(metadata=7),
        "metadata",
    ),
    "an id with control characters": (
        lambda s: s["log"][1].update(id="a\nb"),
        "entries has no entry",
    ),
}


@pytest.mark.parametrize("kind", EDITS)
def test_contradictory_document_error_names_the_fault(kind: str) -> None:
    edit, problem = EDITS[kind]
    imported(edited(edit), problem)


def test_every_fault_of_a_document_is_listed() -> None:
    def edit(state: dict[str, Any]) -> None:
        state["totals"]["tokens"] += 1
        state["entries"][2]["summary_id"] = "ghost"
        state["summaries"][0]["ratio"] = 99.0

    with pytest.raises(StateError) as raised:
        manager().import_session(edited(edit))
    assert len(raised.value.problems) == 3


def test_importing_over_a_session_is_refused_and_changes_nothing() -> None:
    refused(SessionExists, "'s' exists", lambda memory: memory.import_session(document()))
    refused(InvalidInput, "on_conflict", lambda m: m.import_session(document(), "overwrite"))  # type: ignore[arg-type]


# ---------------------------------------------------------------- redact


def raising(entry: Any) -> Any:
    raise KeyError("a third party's own fault")


@pytest.mark.parametrize(
    "redact",
    [
        raising,
        lambda entry: None,
        lambda entry: "clean",
        lambda entry: {"content": "clean"},
        lambda entry: msgspec.structs.replace(entry, id="other"),
        lambda entry: msgspec.structs.replace(entry, type="context"),
        lambda entry: msgspec.structs.replace(entry, role="tool"),
        lambda entry: msgspec.structs.replace(entry, timestamp=None),
        lambda entry: msgspec.structs.replace(entry, metadata_json=msgspec.Raw(b"[1")),
    ],
    ids=[
        "raises",
        "None",
        "text",
        "dict",
        "another id",
        "another type",
        "another role",
        "no time",
        "broken metadata",
    ],
)
def test_broken_redact_stops_the_add(redact: Any) -> None:
    memory = manager(redact=redact)
    with pytest.raises(InvalidInput, match="redact"):
        memory.add_user_message("s", "secret")
    with pytest.raises(InvalidInput, match="redact"):
        memory.add_messages("s", [message_of("secret")])
    assert memory.list_sessions() == []


def test_a_redact_that_returns_unstorable_content_stops_the_add() -> None:
    for content in (7, LONE, None, ["x"]):
        memory = manager(redact=lambda e, c=content: msgspec.structs.replace(e, content=c))
        with pytest.raises(InvalidInput, match="redact"):
            memory.add_user_message("s", "secret")
        assert memory.list_sessions() == []


# ---------------------------------------------------------------- failing summaries


def test_on_failure_raise_is_a_typed_error_and_changes_nothing() -> None:
    memory = manager(
        summarizer=lambda prompt: "", config=MemoryConfig(on_failure="raise", auto_compress=False)
    )
    for number in range(20):
        memory.add_user_message("s", f"{number} " + "abc " * 50)
    refused(CompressionFailed, "empty", lambda m: m.compress("s", target_tokens=600), memory)


# ---------------------------------------------------------------- both managers


def test_the_async_manager_refuses_with_the_same_words() -> None:
    def words(act: Callable[[], Any]) -> tuple[type, str]:
        with pytest.raises(MemmanError) as raised:
            act()
        return type(raised.value), str(raised.value)

    verbs: list[Callable[[Any], Any]] = [
        lambda memory: memory.add_user_message("s", 7),
        lambda memory: memory.add_user_message("s", "x", metadata={"a": float("nan")}),
        lambda memory: memory.get_stats("nowhere"),
        lambda memory: memory.import_session("{"),
        lambda memory: memory.update_config(max_token=3),
        lambda memory: memory.add_messages("s", [{"role": "wizard"}]),
    ]
    for verb in verbs:
        sync = words(lambda verb=verb: verb(MemoryManager()))
        asynchronous = words(lambda verb=verb: asyncio.run(verb(AsyncMemoryManager())))
        assert sync == asynchronous


def test_reading_a_missing_session_creates_nothing() -> None:
    memory = manager()
    for number in range(50):
        with pytest.raises(SessionNotFound):
            memory.get_stats(f"nowhere {number}")
    assert list(memory._core.sessions) == []


def test_faults_of_messages_quote_no_content() -> None:
    for form in ("openai-chat", "anthropic", "gemini", "bedrock", "langchain", "openai-responses"):
        with pytest.raises(FormatError) as caught:
            manager().add_messages("s", [{"role": "usr", "content": "secret"}], format=form)
        assert "{'role': 'usr', 'content': ...}" in str(caught.value)
        assert "secret" not in str(caught.value)


def test_ids_that_a_generator_repeats_lose_no_entry() -> None:
    memory = manager(new_id=chain(["opening"], repeat("same")).__next__)
    memory.add_user_message("s", "one")
    with pytest.raises(IdConflict, match="'same'"):
        memory.add_user_message("s", "two")
    assert [entry.text for entry in memory.get_entries("s")] == ["one"]


@pytest.mark.parametrize(
    "given", [{"new_id": lambda: 7}, {"clock": lambda: 7}], ids=["new_id", "clock"]
)
def test_generated_ids_are_checked_before_they_are_stored(given: Any) -> None:
    memory = manager(**given)
    with pytest.raises(InvalidInput, match=next(iter(given))):
        memory.add_user_message("s", "one")
    assert memory.list_sessions() == []


def test_a_clock_without_zone_is_refused() -> None:
    memory = manager(clock=lambda: datetime(2026, 1, 1))  # noqa: DTZ001 - that is the fault
    with pytest.raises(InvalidInput, match="clock"):
        memory.add_user_message("s", "one")
    assert memory.list_sessions() == []


@pytest.mark.parametrize(
    "stage", [lambda view, goal, make_entry: 7, lambda: None], ids=["7", "arguments"]
)
def test_broken_stage_is_a_typed_error_of_compress(
    stage: Any,
) -> None:
    memory = manager(config=MemoryConfig(strategy=(stage,), auto_compress=False))
    for number in range(20):
        memory.add_user_message("s", f"{number} " + "abc " * 50)
    refused(MemmanError, "stage", lambda m: m.compress("s", target_tokens=300), memory)


@pytest.mark.parametrize(
    "usage", [2**53 + 1, {"input_tokens": 2**53, "cache_read_input_tokens": 1}]
)
def test_more_tokens_than_an_import_takes_are_no_report(usage: Any) -> None:
    refused(InvalidInput, str(2**53 + 1), lambda memory: memory.record_usage("s", usage))


def test_count_above_the_import_limit_is_ignored() -> None:
    memory = MemoryManager(counter=lambda _: 10**30)
    assert memory.add_user_message("s", "hello").token_count.method == "estimation"
    assert manager().import_session(memory.export_session("s").to_json()) == "s"


@pytest.mark.parametrize("path", ["", "a\0b", LONE], ids=["empty", "NUL", "lone surrogate"])
def test_invalid_file_path_is_named(path: str) -> None:
    refused(InvalidInput, "not the path of a file", lambda memory: memory.export_archive("s", path))
    refused(InvalidInput, "not the path of a file", lambda memory: memory.import_archive(path))
    with pytest.raises(StoreError, match="is not a path"):
        MemoryManager(path)


def test_a_session_s_setting_that_cannot_be_stored_is_named() -> None:
    refused(ConfigError, "model has a lone", lambda memory: memory.update_config("s", model=LONE))


@pytest.mark.parametrize(
    "given", [b'[{"role": "user"}]', bytearray(b"x")], ids=["bytes", "bytearray"]
)
def test_bytes_are_no_messages_and_are_named(given: Any) -> None:
    named = f"not {type(given).__name__}"
    refused(FormatError, named, lambda memory: memory.add_messages("s", given))
    refused(FormatError, named, lambda memory: memory.count_tokens(given))


def test_invalid_id_is_refused_at_every_add() -> None:
    ids = iter(["a", "opened", 5, "b"])
    memory = manager(new_id=lambda: next(ids))
    memory.add_user_message("s", "x")
    refused(InvalidInput, "new_id", lambda memory: memory.add_user_message("s", "y"), memory)


def test_time_without_a_zone_is_refused_at_every_add() -> None:
    times = iter(datetime(2026, 1, 1, tzinfo=zone) for zone in (UTC, None, UTC))
    memory = manager(clock=lambda: next(times))
    memory.add_user_message("s", "x")
    refused(InvalidInput, "clock", lambda memory: memory.add_user_message("s", "y"), memory)


@pytest.mark.parametrize("port", ["clock", "new_id"])
def test_clock_or_new_id_that_raises_is_a_typed_error(port: str) -> None:
    def broken() -> Any:
        raise ZeroDivisionError("its own fault")

    memory = manager(**{port: broken})
    with pytest.raises(InvalidInput, match=f"{port} raised ZeroDivisionError"):
        memory.add_user_message("s", "x")
    assert memory.list_sessions() == []


def test_new_id_that_repeats_the_opening_is_a_conflict(tmp_path: Path) -> None:
    for store in (None, tmp_path / "chat.db"):
        with (
            MemoryManager(store, new_id=lambda: "same") as memory,
            pytest.raises(IdConflict, match="new_id gave 'same' twice"),
        ):
            memory.add_user_message("s", "x")


def test_archive_path_that_cannot_be_opened_is_a_typed_error(tmp_path: Path) -> None:
    memory = manager()
    memory.add_user_message("s", "x")
    nowhere = tmp_path / "nowhere" / "s.jsonl"
    for work in (
        lambda: memory.import_archive(nowhere),
        lambda: memory.import_archive(tmp_path),
        lambda: memory.export_archive("s", nowhere),
    ):
        with pytest.raises(FileError, match=str(tmp_path)) as raised:
            work()
        assert isinstance(raised.value, MemmanError)
        assert raised.value.errno in (errno.ENOENT, errno.EISDIR)


@pytest.mark.parametrize("setting", ["model", "summary_prompt"])
def test_setting_with_a_lone_surrogate_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="lone surrogate"):
        MemoryConfig(**{setting: f"{{content}}{LONE}"})


def test_plugins_that_are_no_list_are_refused() -> None:
    with pytest.raises(InvalidInput, match="plugins must be a list"):
        MemoryManager(plugins=5)  # type: ignore[arg-type]


def test_follow_on_a_closed_manager_raises() -> None:
    memory = MemoryManager()
    memory.add_user_message("s", "x")
    memory.close()
    with pytest.raises(StoreError, match="closed"):
        list(memory.follow("s", timeout=0))


def test_late_result_leaves_the_rest_to_be_trimmed() -> None:
    memory = manager(config=MemoryConfig(auto_compress=False))
    memory.add_user_message("s", "Run the tests.")
    memory.add_tool_call("s", "run", {}, call_id="late")
    for number in range(30):
        memory.add_user_message("s", f"question {number} " + "word " * 20)
        memory.add_assistant_message("s", "answer " * 20)
    memory.add_tool_result("s", "run", "all green", call_id="late", id="result")
    context = memory.build_context("s", budget=400)
    assert context.tokens.tokens <= 400
    assert check(context.messages, "openai-chat") == []
    assert "all green" in context.text
    assert context.sources[-1].entries == ("result",)
    tied = memory.build_context("s", budget=50_000)
    late = tied.messages[-1]
    assert late == {"role": "tool", "tool_call_id": "late--again-64", "content": "all green"}
