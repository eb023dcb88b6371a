"""Where a long conversation may be cut, so that it can be parsed a piece at a time."""

from __future__ import annotations

from typing import Any

_SIZE = 256
_MOST = 4_096  # where the model never stops speaking: a cut may part what belongs together
_OF_MODEL = ("assistant", "model", "ai", "AIMessage")


def may_cut(before: Any, after: Any, size: int) -> bool:
    """Whether `size` messages that end in `before` are a piece, and `after` begins the next.

    That is where the model begins to speak after it was spoken to: all results of its calls are there,
    and what it says in several items is not parted.
    """
    if size < _SIZE:
        return False
    return size >= _MOST or (_is_given(before) and not _is_given(after))


def _is_given(item: Any) -> bool:
    """Whether a message is one that the model is given: a user's, a tool's, instructions."""
    if not isinstance(item, dict):
        return True
    if "role" in item:
        return item["role"] not in _OF_MODEL
    return str(item.get("type")).endswith("_output")
