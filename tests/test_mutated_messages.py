"""Messages that something has gone wrong with: taken whole or refused by name, and never half of both.

Real messages of every format are changed at random places. Whatever comes of it, what is refused leaves
nothing behind, and what is taken goes out again: as valid requests, and as a document that restores it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import BudgetExceeded, MemmanError, MemoryConfig, MemoryManager, SessionState
from memman.formats import BUILTIN_FORMATS
from memman.formats.rules import RULES, check
from tests.examples import examples
from tests.formats.rich import CONVERSATIONS

TARGETS = [form.name for form in BUILTIN_FORMATS if form.name in RULES]
NOTHING_TO_SEND = "request.empty"
JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 3.5, float("inf"), 10**30, b"raw", ("t",), {1: 2},
    "", " ", "x", "\0", "\ud800", "user", "assistant", "system", "tool", "model", "text", "{}", "[]",
    [], {}, [[]], [None], [{}], {"a": {"b": [1]}}, {"text": "x"}, {"thought": False},
    {"type": "text"}, {"type": "input_text", "text": "x"}, {"type": "image_url"},
    {"type": "tool_use", "id": "a", "name": "b", "input": {}},
    {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
    {"functionCall": {"name": "x", "args": {}}}, {"toolUse": {"toolUseId": "q", "name": "n", "input": {}}},
    "data:image/png;base64,AAAA",
)  # fmt: skip
KEYS = (
    "id", "role", "content", "type", "name", "tool_calls", "tool_call_id", "parts", "input", "text",
    "arguments", "call_id", "toolUseId", "cache_control", "thought", "thoughtSignature", "refusal",
)  # fmt: skip

Path = tuple[Any, ...]


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where something stands in JSON data."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def change(messages: list[Any], random: Random) -> None:
    """Changes one place of the messages."""
    path = random.choice(list(places(messages))[1:] or [(0,)])
    holder, key = at(messages, path[:-1]), path[-1]
    what = random.choice(("junk", "gone", "twice", "swapped", "other", "more", "text"))
    if not holder or (what == "more" and isinstance(holder, dict)):
        if isinstance(holder, dict):
            holder[random.choice(KEYS)] = copy.deepcopy(random.choice(JUNK))
    elif what == "gone":
        del holder[key]
    elif what == "twice" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(random.choice(holder)))
    elif what == "swapped" and isinstance(holder, list):
        other = random.randrange(len(holder))
        holder[key], holder[other] = holder[other], holder[key]
    elif what == "other":
        holder[key] = copy.deepcopy(at(messages, random.choice(list(places(messages)))))
    elif what == "text" and isinstance(holder[key], str):
        said = holder[key]
        holder[key] = random.choice(
            (said * 2, said[: len(said) // 2], said + "\u202e\0", "\ud83d" + said)
        )
    else:
        holder[key] = copy.deepcopy(random.choice(JUNK))


@pytest.mark.parametrize("form", CONVERSATIONS)
def test_unchanged_they_come_back_as_they_were(form: str):
    memory = MemoryManager(counter="chars4")
    memory.add_messages("s", CONVERSATIONS[form])
    assert check(CONVERSATIONS[form], form) == []
    assert memory.build_context("s", format=form).messages == CONVERSATIONS[form]


@pytest.mark.parametrize("form", CONVERSATIONS)
@settings(max_examples=examples(60))
@given(random=st.randoms(use_true_random=False), data=st.data())
def test_changed_messages_are_refused_whole_or_go_out_valid(form: str, random: Random, data: Any):
    messages = copy.deepcopy(CONVERSATIONS[form])
    for _ in range(data.draw(st.integers(1, 6))):
        change(messages, random)
    given_ = copy.deepcopy(messages)
    config = MemoryConfig(max_tokens=data.draw(st.sampled_from((300, 2_000, 100_000))))
    memory = MemoryManager(counter="chars4", config=config)
    try:
        memory.add_messages("s", messages, format=data.draw(st.sampled_from((form, "auto"))))
    except MemmanError:
        assert memory.list_sessions() == []
        return
    finally:
        assert repr(messages) == repr(given_), "what the caller gave is his"
    if not memory.list_sessions():
        assert messages == []
        return
    for target in TARGETS:
        try:
            sent = memory.build_context("s", format=target).messages
        except BudgetExceeded:
            continue
        assert {fault.rule for fault in check(sent, target)} <= {NOTHING_TO_SEND}
        json.dumps(sent).encode()
    state = memory.export_session("s")
    again = MemoryManager(counter="chars4", config=config)
    again.import_session(SessionState.from_json(state.to_json()))
    assert again.export_session("s") == state
