"""The keys that a request may have: what a log or a response adds to a message is cut in the request."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec


class Class(msgspec.Struct, frozen=True):
    """A class of an SDK's request: the values that mark it, and its keys with the classes inside.

    With `cut`, a provider takes any keys but these and those that begin with an underscore.
    """

    marks: dict[str, tuple[str, ...]] = msgspec.field(name="is")
    keys: dict[str, tuple[str, ...]]
    cut: tuple[str, ...] = ()

    def has(self, key: str) -> bool:
        """Return whether a request may have this key."""
        return key in self.keys or (bool(self.cut) and key not in self.cut and key[:1] != "_")


class _Keys(msgspec.Struct, frozen=True):
    """The classes of a format by their names, and those of its messages."""

    roots: tuple[str, ...] = ()
    classes: dict[str, Class] = {}


@cache
def _known() -> dict[str, _Keys]:
    found = Path(__file__).with_name("keys.json").read_bytes()
    return msgspec.json.decode(found, type=dict[str, _Keys])


def roots_of(form: str) -> tuple[str, ...]:
    """Return the names of the classes of a format's messages; none if the keys are not known."""
    return _known().get(form, _Keys()).roots


@cache
def item_types(form: str) -> frozenset[str]:
    """Return the types of a format's messages or items."""
    known = _known()[form].classes
    return frozenset(kind for name in roots_of(form) for kind in known[name].marks.get("type", ()))


def class_of(form: str, names: tuple[str, ...], value: Any) -> Class | None:
    """Return that of the named classes which a value is of, all in one if several fit; None without."""
    if not names or not isinstance(value, dict):
        return None
    kind, role = (value[m] if isinstance(value.get(m), str) else "" for m in ("type", "role"))
    return _class(form, names, kind, role)


@lru_cache(10_000)  # types come with messages
def _class(form: str, names: tuple[str, ...], kind: str, role: str) -> Class | None:
    classes = map(_known()[form].classes.__getitem__, names)
    marks = {"type": kind, "role": role}
    fits = [each for each in classes if all(marks[m] in known for m, known in each.marks.items())]
    inside: dict[str, tuple[str, ...]] = {}
    for each in fits:
        inside |= {key: inside.get(key, ()) + found for key, found in each.keys.items()}
    return Class({}, inside, fits[0].cut) if fits else None


def with_request_keys(form: str, message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the keys that its provider takes; a value of an unknown type as it is."""
    found: dict[str, Any] = _cut(form, roots_of(form), message)
    return found


def _cut(form: str, names: tuple[str, ...], value: Any) -> Any:
    if isinstance(value, list) and names:
        return [_cut(form, names, item) for item in value]
    known = class_of(form, names, value)
    if known is None:
        return value
    given = ((key, item) for key, item in value.items() if known.has(key))
    return {key: _cut(form, known.keys.get(key, ()), item) for key, item in given}
