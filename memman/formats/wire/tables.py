"""The tables of all formats, each loaded on first use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from memman.formats.wire.kinds import FREE, Kind

FILES: Final = {
    **{form: (form,) for form in ("anthropic", "gemini", "bedrock", "mistral", "memman")},
    "openai-responses": ("responses",),
    "openai-chat": ("chat",),
    # LangChain's messages contain the blocks of the provider that made them.
    "langchain": ("chat", "responses", "anthropic"),
}
KEYED: Final = ("gemini", "bedrock")  # the key of a part names it


@cache
def kinds_of(form: str) -> Mapping[str, Kind]:
    """Return the rows of a format by their types, those of parts included; none for a foreign format."""
    found: dict[str, Kind] = {}
    for name in FILES.get(form, ()):
        rows = Path(__file__).with_name(f"{name}.toml").read_bytes()
        found |= {
            name: msgspec.structs.replace(kind, type=name)
            for name, kind in msgspec.toml.decode(rows, type=dict[str, Kind]).items()
        }
    return found


@cache
def private_names(keyed: bool) -> frozenset[str]:
    """Return the types of private blocks in all formats, or the keys that name such parts."""
    forms = (form for form in FILES if (form in KEYED) is keyed)
    rows = (kind for form in forms for kind in kinds_of(form).values())
    return frozenset(kind.type for kind in rows if kind.private)


def needs_of(form: str) -> dict[str, Any]:
    """Return what a request in a format needs so that its provider leaves out bound parts itself."""
    rows = Path(__file__).with_name("needs.toml").read_bytes()
    needs = msgspec.toml.decode(rows, type=dict[str, dict[str, Any]])
    return needs.get(form, needs["anthropic"])


def type_of(form: str, block: Mapping[str, Any]) -> str:
    """Return the type of a block, or the key that names it; "" if it has neither."""
    if form in KEYED:
        known = kinds_of(form)
        named = (key for key in block if key in known and known[key].prices != FREE)
        key = next(named, next(iter(block), ""))
        typed = f"{key}.type"  # the row of those that have a type inside
        inner = block.get(key)
        return typed if typed in known and isinstance(inner, dict) and inner.get("type") else key
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def key_of(form: str, block: Mapping[str, Any]) -> str:
    """Return the key of a block's body in a format whose blocks are named by their key."""
    return type_of(form, block).partition(".")[0]


def body_of(form: str, block: Mapping[str, Any]) -> Any:
    """Return the value that the paths of a block's row begin in."""
    return block.get(key_of(form, block)) if form in KEYED else block
