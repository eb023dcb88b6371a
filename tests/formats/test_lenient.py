"""Messages of any kind, altered or kept whole: nothing makes the reading fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import MemoryManager
from memman.entries import plain_json
from memman.formats import builtin_formats
from memman.formats.lenient import read_messages
from memman.formats.rules import check
from tests.examples import examples
from tests.formats.rich import CONVERSATIONS

TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
LEAVES: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary(max_size=4)
    | st.sampled_from([object(), "text", "user", "tool", "ai", "tool_use", "function_call", "c1"])
)  # fmt: skip
KEYS = st.sampled_from(
    ["role", "type", "content", "data", "text", "id", "tool_calls", "tool_call_id", "call_id", "parts",
     "output", "name", "function", "arguments", "input", "toolUse", "kwargs", "args", "summary"]
) | TEXTS | st.integers()  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


PATHS = st.lists(st.integers(0, 20), min_size=1, max_size=6)
FORMATS = pytest.mark.parametrize("form", builtin_formats(), ids=lambda form: form.name)


def changed(value: Any, path: list[int], new: Any) -> Any:
    """Return a copy with another value at a path of indexes; the path ends where the value does."""
    if not path or not isinstance(value, dict | list) or not value:
        return new
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[path[0] % len(keys)]
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = changed(value[key], path[1:], new)
    return copy


def keep(messages: list[Any], form: Any) -> None:
    """Add messages, read them in every way, and check the context."""
    memory = MemoryManager(format=form.name)
    for each in read_messages(messages, keep=True):
        if not isinstance(each.message, str):
            plain_json(each.message, "it")
    ids = [f"m{n}" for n in range(len(read_messages(messages, keep=True)))]
    added = memory.add_messages("s", messages, form.name, ids=ids, unknown="keep")
    assert memory.add_messages("s", messages, form.name, ids=ids, unknown="keep") == added
    if not added:
        return
    memory.get_messages("s")
    context = memory.build_context("s")
    if form.name != "text":
        broken = {fault.rule for fault in check(context.messages, form.name, system=context.system)}
        # An item of a type that is newer than the table returns to its provider as it came.
        assert broken <= {"shape.item-type"}
    assert MemoryManager().import_session(memory.export_session("s").to_json())


@FORMATS
@given(messages=st.lists(VALUES, max_size=4))
@settings(max_examples=examples(100), deadline=None)
def test_messages_of_any_kind_are_kept(form: Any, messages: list[Any]) -> None:
    keep(messages, form)


@FORMATS
@given(path=PATHS, new=VALUES)
@settings(max_examples=examples(200), deadline=None)
def test_messages_with_a_wrong_value_are_kept(form: Any, path: list[int], new: Any) -> None:
    messages = changed(CONVERSATIONS.get(form.name, ["User: hello"]), path, new)
    keep(messages if isinstance(messages, list) else [messages], form)
