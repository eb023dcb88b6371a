"""Functions that read arbitrary values: they expect no shape, and raise nothing."""

from collections import Counter
from collections.abc import Iterator, Sequence

from memman.entries import JSON, JSONObject


def show(value: JSON) -> str:
    """Return a value as an error message shows it."""
    # Only strings are shown: a value may be huge, and the repr of a very long int raises.
    if isinstance(value, str):
        return repr(value if len(value) <= 80 else f"{value[:77]}...")
    return "null" if value is None else f"of type {type(value).__name__}"


def get(value: JSON, key: str) -> JSON:
    """Return the value of a key, None if this is not an object."""
    return value.get(key) if isinstance(value, dict) else None


def dicts(value: JSON) -> list[JSONObject]:
    """Return the objects of a list, none if this is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def filled(value: JSON) -> bool:
    """Return True for a string that is not empty."""
    return isinstance(value, str) and value != ""


def says(value: JSON) -> bool:
    """Return True for a string that is not blank."""
    return isinstance(value, str) and value.strip() != ""


def typed(value: JSON) -> bool:
    """Return True for a list of objects with a type."""
    return isinstance(value, list) and all(filled(get(item, "type")) for item in value)


def ids_in(objects: Sequence[JSONObject], key: str = "id") -> list[str]:
    """Return the ids of those objects that have one."""
    return [each[key] for each in objects if filled(each.get(key))]


def chat_ids(message: JSON) -> list[str]:
    """Return the ids of the calls of a chat message."""
    calls = get(message, "tool_calls") if get(message, "role") == "assistant" else None
    return ids_in(dicts(calls))


def repeated(ids: Sequence[str]) -> list[str]:
    """Return the ids that occur more than once."""
    return [call_id for call_id, times in Counter(ids).items() if times > 1]


def strings(value: JSON) -> Iterator[str]:
    """Yield every string in a value, including keys."""
    # With a stack instead of recursion, and each container once: nesting may be deep, or a cycle.
    stack, seen = [value], set()
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict | list | tuple) and id(item) not in seen:
            seen.add(id(item))
            stack += [*item, *item.values()] if isinstance(item, dict) else item
