"""Values without a valid repr appear in errors by their type; the error's type stays the same."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memman import CompressionFailed, MemmanError, MemoryConfig, MemoryManager
from memman.compression import ClearToolResults, EntryFactory, Goal, View
from memman.display import format_error, safe_repr
from memman.formats import builtin_formats
from memman.protocols import SummaryReply, SummaryRequest
from memman.stores import SQLiteStore


class Silent:
    def __repr__(self) -> str:
        raise ZeroDivisionError("no words for it")


@functools.cache  # its repr takes longer than most calls
def deep(levels: int = 100_000) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


ODD: dict[str, Callable[[], Any]] = {
    "a deep list": deep,
    "a deep mapping": lambda: {"a": deep()},
    "an object without a repr": Silent,
    "a list of those": lambda: [Silent()],
    "a number too long": lambda: 10**5_000,
}
LARGE = ["x" * 1_000_000] * 1_000_000  # a terabyte as a repr
odd = pytest.mark.parametrize("kind", ODD)


@odd
def test_anything_is_shown_in_few_characters(kind: str) -> None:
    assert 0 < len(safe_repr(ODD[kind]())) <= 200
    assert len(safe_repr(ODD[kind](), 40)) <= 40


def test_large_value_is_read_only_as_far_as_shown() -> None:
    assert len(safe_repr(LARGE)) <= 200
    assert len(safe_repr({"a": LARGE})) <= 200


def test_third_party_class_named_list_is_not_a_list() -> None:
    def length(_: Any) -> int:
        raise ZeroDivisionError("no items")

    theirs = type("list", (Silent,), {"__len__": length})
    assert safe_repr(theirs()) == "<list that cannot be shown>"


@pytest.mark.parametrize(
    "value",
    [None, True, 7, -1.5, float("nan"), "it's", b"x", [1, "a"], {"b": 1, "c": [None]}, (1,)],
)
def test_what_is_short_is_shown_as_repr_shows_it(value: Any) -> None:
    assert safe_repr(value) == repr(value)


def test_object_without_a_repr_is_shown_by_its_type() -> None:
    assert safe_repr(Silent()) == "<Silent that cannot be shown>"
    assert safe_repr([1, Silent()]) == "[1, <Silent that cannot be shown>]"


TOLD: dict[str, Callable[[MemoryManager, Any], Any]] = {
    "content": lambda memory, value: memory.add_user_message("s", value),
    "part": lambda memory, value: memory.add_user_message("s", [value]),
    "id": lambda memory, value: memory.add_user_message("s", "x", id=value),
    "session_id": lambda memory, value: memory.add_user_message(value, "x"),
    "pinned": lambda memory, value: memory.add_user_message("s", "x", pinned=value),
    "compress": lambda memory, value: memory.add_user_message("s", "x", compress=value),
    "metadata": lambda memory, value: memory.add_user_message("s", "x", metadata={"a": value}),
    "key of metadata": lambda memory, value: memory.add_user_message(
        "s", "x", metadata={value if type(value) in (int, Silent) else Silent(): 1}
    ),
    "arguments": lambda memory, value: memory.add_tool_call("s", "ls", {"a": value}),
    "tool's name": lambda memory, value: memory.add_tool_call("s", value, {}),
    "is_error": lambda memory, value: memory.add_tool_result("s", "ls", "x", is_error=value),
    "source": lambda memory, value: memory.add_context("s", "x", value),
    "messages": lambda memory, value: memory.add_messages("s", [value]),
    "usage": lambda memory, value: memory.record_usage(
        "s", value if type(value) is not int else -value
    ),
    "tokens of usage": lambda memory, value: memory.record_usage("s", {"input_tokens": [value]}),
    "kinds of usage": lambda memory, value: memory.record_usage(
        "s", {"prompt_tokens": 9, "prompt_tokens_details": [value]}
    ),
    "target": lambda memory, value: memory.compress("s", target_tokens=[value]),
    "focus": lambda memory, value: memory.compress("s", focus=value),
    "budget": lambda memory, value: memory.build_context("s", budget=[value]),
    "format": lambda memory, value: memory.build_context("s", format=value),
    "model": lambda memory, value: memory.build_context("s", model=value),
    "system": lambda memory, value: memory.build_context("s", system=value),
    "tools": lambda memory, value: memory.build_context("s", tools=value),
    "a tool": lambda memory, value: memory.build_context("s", tools=[value]),
    "count": lambda memory, value: memory.count_tokens([value]),
    "entry": lambda memory, value: memory.get_entry("s", value),
    "entries": lambda memory, value: memory.delete_entries("s", [value]),
    "compression": lambda memory, value: memory.undo_compression("s", value),
    "setting": lambda memory, value: memory.update_config(max_tokens=[value]),
    "choice": lambda memory, value: memory.update_config(on_failure=value),
    "name": lambda memory, value: memory.update_config(model=value),
    "strategy": lambda memory, value: memory.update_config(strategy=[value]),
    "document": lambda memory, value: memory.import_session({"format": value}),
    "version": lambda memory, value: memory.import_session(
        {**json.loads(memory.export_session("s").to_json()), "version": value}
    ),
    "on_conflict": lambda memory, value: memory.import_session(
        memory.export_session("s"), on_conflict=value
    ),
    "cursor": lambda memory, value: next(iter(memory.follow(after=value, timeout=0))),
    "place": lambda memory, value: next(iter(memory.follow("s", after=[value], timeout=0))),
    "poll": lambda memory, value: next(iter(memory.follow(poll=value))),
    "timeout": lambda memory, value: next(iter(memory.follow(timeout=[value]))),
    "counter": lambda memory, value: MemoryManager(counter=value),
    "summarizer": lambda memory, value: MemoryManager(summarizer=value),
    "store": lambda memory, value: MemoryManager(value),
    "stage's setting": lambda memory, value: ClearToolResults(protect_tokens=[value]),
    "stage's tools": lambda memory, value: ClearToolResults(keep_tools=[value]),
    "settings": lambda memory, value: MemoryConfig().updated({Silent(): value}),
    "driver": lambda memory, value: SQLiteStore(":memory:", durability=(Silent(),)),
}


@odd
@pytest.mark.parametrize("where", TOLD)
def test_wherever_it_is_given_the_error_is_a_typed_one(where: str, kind: str) -> None:
    with MemoryManager(counter="chars4") as memory:
        memory.add_user_message("s", "x")
        before = memory.export_session("s")
        with pytest.raises(MemmanError) as caught:
            TOLD[where](memory, ODD[kind]())
        assert len(str(caught.value)) < 2_000
        assert memory.export_session("s") == before


@odd
@pytest.mark.parametrize("form", builtin_formats(), ids=lambda form: form.name)
def test_no_message_of_a_format_breaks_the_error_about_it(form: Any, kind: str) -> None:
    for message in (
        ODD[kind](),
        {"role": "user", "content": ODD[kind]()},
        {"role": "user", "content": [ODD[kind]()]},
        {"role": ODD[kind](), "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [ODD[kind]()]},
    ):
        with MemoryManager(counter="chars4") as memory:
            try:
                memory.add_messages("s", [message], format=form.name)
            except MemmanError as error:
                assert len(str(error)) < 2_000  # noqa: PT017 - some formats take some of them


# ------------------------------------------------------------  third-party errors


class Mute(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError("no words for it")


ERRORS: dict[str, Callable[[], Exception]] = {
    "a lone surrogate": lambda: OSError("no such file: a\udc80.txt"),
    "an error without words": Mute,
    "a whole conversation": lambda: ValueError("word " * 100_000),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_message_is_short_and_can_be_stored(kind: str) -> None:
    words = format_error(ERRORS[kind]())
    assert words.encode().decode() == words
    assert len(words) < 1_100


def test_error_is_shown_by_its_type_and_message() -> None:
    assert format_error(OSError("429: slower")) == "OSError: 429: slower"
    assert format_error(Mute()) == "Mute: its message cannot be shown"


def _of_a_summarizer(error: Exception) -> MemoryManager:
    def fails(_: str) -> str:
        raise error

    return MemoryManager(counter="chars4", summarizer=fails, config=SMALL)


def _of_a_prompt(error: Exception) -> MemoryManager:
    def fails(_: SummaryRequest) -> str:
        raise error

    config = SMALL.updated({"summary_prompt": fails})
    return MemoryManager(counter="chars4", summarizer=lambda _: "words", config=config)


def _of_a_counter(error: Exception) -> MemoryManager:
    def fails(_: str) -> int:
        raise error

    return MemoryManager(counter=fails, config=SMALL)


def _of_a_model(error: Exception) -> MemoryManager:
    class Named:
        def summarize(self, _: SummaryRequest) -> SummaryReply:
            return SummaryReply(text="words", model=str(error))

    return MemoryManager(counter="chars4", summarizer=Named(), config=SMALL)


SMALL = MemoryConfig(max_tokens=2_000, auto_compress=False)


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("whose", [_of_a_summarizer, _of_a_prompt, _of_a_counter, _of_a_model])
def test_any_error_of_a_plugin_leaves_a_storable_record(
    whose: Callable[[Exception], MemoryManager], kind: str, tmp_path: Path
) -> None:
    if whose is _of_a_model and kind == "an error without words":
        return
    with whose(ERRORS[kind]()) as memory:
        for number in range(20):
            memory.add_user_message("s", f"Question {number}: " + "please explain. " * 20)
        for _ in range(2):  # the second time the record has the reason of the pause
            assert memory.compress("s", target_tokens=800).compression_id is not None
            memory.undo_compression("s")
        document = memory.export_session("s").to_json()
    with MemoryManager(str(tmp_path / "kept.db")) as other:
        other.import_session(document)
        assert len(other.get_entries("s")) == 20


def _raising(view: View, goal: Goal, make_entry: EntryFactory) -> View | None:
    raise Mute


def test_a_stage_that_raises_an_error_without_words_is_named() -> None:
    config = MemoryConfig(auto_compress=False, strategy=(_raising,))
    with MemoryManager(counter="chars4", config=config) as memory:
        memory.add_user_message("s", "x " * 100)
        with pytest.raises(CompressionFailed, match="_raising raised Mute"):
            memory.compress("s", target_tokens=10)
