"""Inputs that grow without bound, and large ones, are refused at once by a typed error."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from memman import InvalidInput, MemoryManager, StateError, TextPart
from memman.entries import (
    MAX_ENTRY_BYTES,
    MAX_NAME_CHARACTERS,
    MAX_SOURCE_CHARACTERS,
    FilePart,
    OpaquePart,
)
from memman.extents import MAX_VALUES


def aliased(levels: int, kind: Callable[[Any], Any]) -> Any:
    """Return a container that is small in memory and has 2**levels values as JSON."""
    inner: Any = kind(("x", "y"))
    for _ in range(levels):
        inner = kind((inner, inner))
    return inner


def as_dict(items: tuple[Any, Any]) -> dict[str, Any]:
    return dict(zip("ab", items, strict=True))


def document() -> dict[str, Any]:
    memory = MemoryManager()
    memory.add_user_message("s", "hi", metadata={"k": 1})
    found: dict[str, Any] = json.loads(memory.export_session("s").to_json())
    return found


USES: dict[str, Callable[[MemoryManager, Any], object]] = {
    "metadata": lambda m, x: m.add_user_message("s", "y", metadata={"x": x}),
    "arguments": lambda m, x: m.add_tool_call("s", "f", {"x": x}),
    "messages": lambda m, x: m.add_messages("s", [{"role": "user", "content": "x", "more": x}]),
    "parts": lambda m, x: m.add_messages("s", [{"role": "user", "content": [x]}]),
    "tools": lambda m, x: m.build_context("s", tools=[{"x": x}]),
}


@pytest.mark.parametrize("kind", [list, tuple, as_dict], ids=["list", "tuple", "dict"])
@pytest.mark.parametrize("levels", [20, 40])
@pytest.mark.parametrize("use", USES)
def test_aliased_data_is_refused_at_once(use: str, levels: int, kind: Any) -> None:
    memory = MemoryManager()
    memory.add_user_message("s", "hi")
    bomb = aliased(levels, kind)
    began = process_time()
    with pytest.raises(InvalidInput, match=f": more than {MAX_VALUES:,} values"):
        USES[use](memory, bomb)
    assert process_time() - began < 1
    assert len(memory.get_entries("s")) == 1


@pytest.mark.parametrize("place", ["log", "metadata"])
def test_aliased_document_is_refused_at_once(place: str) -> None:
    given = document()
    bomb = aliased(30, list)
    if place == "log":
        given["log"][0] = bomb
    else:
        given["entries"][0]["metadata"] = {"x": bomb}
    began = process_time()
    with pytest.raises(StateError, match="the document: more than 50,000,000 values"):
        MemoryManager().import_session(given)
    assert process_time() - began < 1


def test_repeated_long_text_is_refused_at_once() -> None:
    text = "x" * 1_000_000
    with pytest.raises(InvalidInput, match="metadata: more than 67,108,864 characters"):
        MemoryManager().add_user_message("s", "y", metadata={"x": [text] * 100_000})


def test_data_below_the_limits_is_accepted() -> None:
    memory = MemoryManager()
    metadata = {"x": [0] * (MAX_VALUES // 2), "y": aliased(10, list)}
    entry = memory.add_user_message("s", "y", metadata=metadata)
    assert entry.metadata == metadata


def test_entry_over_the_byte_limit_error_has_its_size(tmp_path: Path) -> None:
    memory = MemoryManager(tmp_path / "chat.db")
    data = "A" * (MAX_ENTRY_BYTES // 2)
    large: list[Any] = [
        "x" * (MAX_ENTRY_BYTES + 1),
        "é" * (MAX_ENTRY_BYTES // 2 + 1),
        (TextPart("x"), FilePart(data=data), FilePart(data=data)),
    ]
    for content in large:
        with pytest.raises(InvalidInput, match=r"an entry of 67,108,86[5-9] bytes is too large"):
            memory.add_user_message("s", content)
    assert memory.list_sessions() == []


def test_long_tool_name_is_refused() -> None:
    memory = MemoryManager()
    name = "x" * (MAX_NAME_CHARACTERS + 1)
    words = "a tool's name has 1,001 characters; at most 1,000 are taken"
    with pytest.raises(InvalidInput, match=words):
        memory.add_tool_call("s", name, {})
    with pytest.raises(InvalidInput, match=words):
        memory.add_tool_result("s", name, "x")
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}}
    with pytest.raises(InvalidInput, match=f"message 0: {words}"):
        memory.add_messages("s", [{"role": "assistant", "content": "", "tool_calls": [call]}])
    memory.add_tool_call("s", name[:-1], {})


def test_long_source_is_refused() -> None:
    memory = MemoryManager()
    source = "/" * (MAX_SOURCE_CHARACTERS + 1)
    with pytest.raises(InvalidInput, match="a context's source has 4,097 characters"):
        memory.add_context("s", "x", source)
    memory.add_context("s", "x", source[:-1])


@pytest.mark.parametrize("part", [TextPart(None), OpaquePart(None, b"{}")], ids=["text", "opaque"])  # type: ignore[arg-type]
def test_part_without_its_text_is_refused(part: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a string, not NoneType"):
        MemoryManager().add_user_message("s", (part,))


class Tokens(int):
    """A library's own subclass of int."""


class Level(enum.IntEnum):
    """Another subclass of int."""

    SOME = 5


@pytest.mark.parametrize(
    "usage", [Tokens(5), Level.SOME, {"input_tokens": Tokens(5), "output_tokens": Level.SOME}]
)
@pytest.mark.parametrize("store", [None, "chat.db"])
def test_usage_of_another_int_type_is_stored_as_int(
    store: str | None, usage: Any, tmp_path: Path
) -> None:
    memory = MemoryManager(store and tmp_path / store)
    memory.add_user_message("s", "hi")
    memory.record_usage("s", usage)
    reported = json.loads(memory.export_session("s").to_json())["log"][-1]
    assert reported["input_tokens"] == 5
    assert memory.get_stats("s").drift is not None
