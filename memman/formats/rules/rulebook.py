"""The tables of a checker of rules, and the patterns in them."""

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from memman.entries import JSON


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


def matches(pattern: str, value: JSON) -> bool:
    """Return True for a string that matches in full."""
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None
