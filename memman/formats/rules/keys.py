"""The keys of requests: those of the request types of the providers' SDKs, at any depth."""

from __future__ import annotations

from memman.entries import JSON
from memman.formats.rules.rulebook import Here
from memman.formats.rules.values import get, show
from memman.formats.wire.keys import class_of, roots_of


def foreign_keys(target: str, message: JSON) -> Here:
    """Yield a broken rule for each key that the provider does not take."""
    todo, seen = [(roots_of(target), message)], set[int]()  # a caller's message may contain itself
    while todo:
        names, value = todo.pop()
        if isinstance(value, list) and id(value) not in seen:
            todo += [(names, item) for item in value]
        known = class_of(target, names, value) if id(value) not in seen else None
        seen.add(id(value))
        if known is None:
            continue
        for key, item in value.items():
            todo.append((known.keys.get(key, ()), item))
            if not known.has(str(key)):
                what = show(get(value, "type") or get(value, "role"))
                yield "shape.unknown-key", f"{what} has the key {show(key)}; drop it"
