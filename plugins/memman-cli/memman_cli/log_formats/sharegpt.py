"""ShareGPT conversations: `{"conversations": [{"from": "human", "value": ...}]}`, one or many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from memman.display import safe_repr, shape_of
from memman.entries import JSON, NewEntry
from memman.errors import FormatError
from memman.formats.parts import other_keys
from memman_cli.log_formats.common import text_at, with_log_keys
from memman_cli.log_formats.protocol import ReadEntry, ReadItem

_NAME = "sharegpt"
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant",
          "chatgpt": "assistant", "bing": "assistant", "bard": "assistant", "system": "system"}  # fmt: skip
_CALLS = ("function_call", "tool_call")
_RESULTS = ("observation", "tool", "function_response", "tool_response")
_OURS = frozenset(("from", "value"))


class ShareGPT:
    """Turns with the keys `from` and `value`."""

    name = _NAME

    def detect(self, items: Sequence[JSON]) -> int:
        """Return the highest certainty for its turns, bare or under `conversations`."""
        if not items:
            return 0
        turns = [turn for item in items for turn in _turns(item)]
        known = all(isinstance(turn, dict) and turn.keys() >= _OURS for turn in turns)
        return 8 if turns and known else 0

    def conversations(self, items: Iterable[JSON]) -> Iterator[tuple[str, Iterable[JSON]]]:
        """Yield each element with `conversations`, or all bare turns as one conversation."""
        whole = False
        for item in items:
            if isinstance(item, dict) and "conversations" in item:
                whole = True
                yield str(item.get("id") or ""), _turns(item)
            elif not whole:
                yield "", items
                return

    def parse(self, items: Iterable[JSON]) -> Iterator[ReadItem]:
        """Yield the turns in order; a tool's answer belongs to the call before it."""
        for index, turn in enumerate(items):
            yield ReadEntry(_draft(index, turn))


def _turns(item: JSON) -> list[JSON]:
    turns = item.get("conversations") if isinstance(item, dict) else None
    return turns if isinstance(turns, list) else [item]


def _draft(index: int, turn: JSON) -> NewEntry:
    who = turn.get("from") if isinstance(turn, dict) else None
    if not isinstance(who, str):
        raise FormatError(f"turn {index} has no 'from': {shape_of(turn)}", index)
    text = text_at(f"turn {index}", turn.get("value"))
    role: JSON = _ROLES.get(who.lower())
    if who.lower() in _CALLS:
        new_entry = NewEntry(type="tool_call", role="assistant", content=text, name="function")
    elif who.lower() in _RESULTS:
        new_entry = NewEntry(type="tool_result", role="tool", content=text, name="function")
    elif role is not None:
        new_entry = NewEntry(type="message", role=role, content=text)
    else:
        known = ", ".join([*_ROLES, *_CALLS, *_RESULTS])
        raise FormatError(f"turn {index} is from {safe_repr(who, 60)}; known are {known}", index)
    return with_log_keys(new_entry, _NAME, other_keys(turn, _OURS))
