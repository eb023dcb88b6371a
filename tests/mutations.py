"""JSON data with random changes, like those of a bug, a proxy or a hand-written fixture."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

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
    """A path in JSON data."""
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
    """Change one place of the messages."""
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
        before = holder[key]
        holder[key] = random.choice(
            (before * 2, before[: len(before) // 2], before + "\u202e\0", "\ud83d" + before)
        )
    else:
        holder[key] = copy.deepcopy(random.choice(JUNK))
