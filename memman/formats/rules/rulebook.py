"""The tables of a checker of rules, and functions that read arbitrary values."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from memman.entries import JSON, JSONObject


class Rule(msgspec.Struct, frozen=True):
    """A request that a provider rejects, or that memman does not send."""

    id: str
    targets: tuple[str, ...]
    statement: str
    source: str


def rules_of(table: str, *targets: str) -> tuple[Rule, ...]:
    """Return the rules of a table with rows of id | statement | source.

    "House" marks requests that a provider accepts but we do not send; the others are rejected with a 400
    in the named threads (owner/repository#number if the repository alone is ambiguous).
    """
    rows = (line.split(" | ") for line in table.strip().splitlines())
    return tuple(Rule(rule_id, targets, statement, source) for rule_id, statement, source in rows)


Here = Iterator[tuple[str, str]]  # rule id and text; the caller knows the message
There = Iterator[tuple[int, str, str]]  # the same after the index of the message


class Checker(msgspec.Struct, frozen=True):
    """The rules of one target: of its system parameter, of a message, and of the whole request.

    `roles` are those of a message; if empty, `of_message` accepts anything. `read` converts a message to
    the spelling of the rules.
    """

    roles: tuple[str, ...]
    of_system: Callable[[JSON], Here]
    of_message: Callable[[JSON], Here]
    of_request: Callable[[Sequence[JSON]], There]
    read: Callable[[JSON], JSON] = lambda message: message


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


def typed(value: JSON) -> bool:
    """Return True for a list of objects with a type."""
    return isinstance(value, list) and all(filled(get(item, "type")) for item in value)


def matches(pattern: str, value: JSON) -> bool:
    """Return True for a string that matches in full."""
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def repeated(ids: Sequence[str]) -> list[str]:
    """Return the ids that occur more than once."""
    return [call_id for call_id, times in Counter(ids).items() if times > 1]


def answers_in_place(
    messages: Sequence[JSON],
    called: Callable[[JSON], list[str]],
    answered: Callable[[JSON], tuple[bool, JSON]],
) -> There:
    """Yield broken pairs in formats in which results directly follow the message with their calls.

    `called` returns the ids of a message's calls; `answered` returns whether a message is a result, and
    the id of its call. Another rule covers a result without an id.
    """
    asked: list[str] = []
    done: list[JSON] = []
    caller = -1
    for index, message in enumerate([*messages, None]):
        is_result, call_id = answered(message)
        if not is_result:
            for waiting in dict.fromkeys(asked):
                if waiting not in done:
                    text = f"no tool message answers the call {show(waiting)}; add one"
                    yield caller, "pair.missing-result", text
            asked, done, caller = called(message), [], index
        elif call_id in done:
            text = f"the result of {show(call_id)} is there already; keep one"
            yield index, "pair.duplicate-result", text
        elif filled(call_id) and call_id not in asked:
            text = f"the result of {show(call_id)} follows no such call; send it as text"
            yield index, "pair.orphan-result", text
        if is_result:
            done.append(call_id)


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
