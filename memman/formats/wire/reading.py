"""Reading of blocks by their rows: their text, their arguments, and whether they are complete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from memman.entries import strings_in
from memman.formats.wire.kinds import Kind
from memman.formats.wire.tables import body_of, kinds_of, type_of

_RESULT: Final = re.compile(r"(.+?)(?:_tool)?(?:_call)?_(?:output|result|response)$")
_CALL: Final = re.compile(r"(.+?)(?:_tool)?_(?:call|use|request)$")
_TIES: Final = ("call_id", "tool_use_id", "approval_request_id")  # the ids of a result
_ARGUMENTS: Final = ("input", "arguments", "args", "action")
_NO_TEXT: Final = re.compile(
    r"(?:^|_)(?:id|ids|type|status|signature|data|encrypted\w*|role|format|mime_?type|phase|caller)$",
    re.IGNORECASE,
)
# A data URL, or base64 of a file: long, with no other characters. JSON, prose and names of files have some.
_DATA: Final = re.compile(r"data:[\w.+-]+/[^\s,]*,|[\w+/=-]{400}", re.ASCII)
_encoder: Final = msgspec.json.Encoder()


def kind_of(form: str, block: Mapping[str, Any]) -> Kind | None:
    """Return the row of a block, or one made of its type's name; None for a foreign format or no type."""
    known = kinds_of(form)
    name = type_of(form, block)
    if not known or not name:
        return None
    row = known.get(name)
    if row is not None and (row.half, row.id) != ("result", "id"):
        return row
    tie = next((key for key in _TIES if isinstance(block.get(key), str)), "")
    if row is not None:
        # A local shell's output names its call by `id` in OpenAI's types, by `call_id` in its own SDKs.
        return replace(row, id=tie) if tie else row
    args = next((key for key in _ARGUMENTS if key in block), "**")
    return _by_name(name, tie or ("id" if isinstance(block.get("id"), str) else ""), args)


@lru_cache(1_000)  # names come with messages
def _by_name(name: str, tie: str, args: str) -> Kind:
    """Return the row of a type without one: `X_call` or `X_use` is answered by `X_output` or `X_result`.

    A call or a result without an id is neither.
    """
    row = Kind(type=name, id=tie, text=("**",), exact=True, guess="made of its name")
    # Anthropic's server tools have their results beside.
    beside = tie == "tool_use_id" or name.endswith("_use")
    if tie in _TIES and (found := _RESULT.match(name)):
        return replace(row, half="result", tool=found[1], beside=beside)
    if tie and (found := _CALL.match(name)):
        return replace(row, half="call", role="assistant", tool=found[1], beside=beside, args=args)
    return row


def values_at(value: Any, path: str) -> list[Any]:
    """Return the values at a path, none for a missing one."""
    if path == "**":  # of an unknown type: no ids, types, ciphers and data
        return [text for key, text in strings_in(value) if not _NO_TEXT.search(key)]
    found = [value]
    for key in path.split(".") if path else ():
        if key == "*":
            found = [item for each in found if isinstance(each, list) for item in each]
        else:
            found = [each.get(key) for each in found if isinstance(each, dict)]
    return [each for each in found if each is not None]


def reading(form: str, block: Mapping[str, Any]) -> str:
    """Return what a person or another model reads of a block; the arguments of a call."""
    kind = kind_of(form, block)
    if kind is None or block.get("thought") is True:  # Gemini's flag beside a text: it is a thought
        return ""
    if kind.half == "call":
        return arguments(form, block)
    body = body_of(form, block)
    found = (_as_text(value, path) for path in kind.text for value in values_at(body, path))
    return "\n".join(dict.fromkeys(text for text in found if text))


def _as_text(value: Any, path: str) -> str:
    if isinstance(value, str):
        return "" if is_data(value) else value
    if isinstance(value, bool):
        return f"{path.rpartition('.')[2]}: {'yes' if value else 'no'}"
    return as_json(value) if isinstance(value, dict) else ""


def is_data(text: str) -> bool:
    """Return whether a text is a file in base64."""
    return _DATA.match(text) is not None


def arguments(form: str, block: Mapping[str, Any]) -> str:
    """Return the arguments of a call or of a hosted tool: a text as it is, anything else as JSON."""
    kind = kind_of(form, block)
    found = values_at(body_of(form, block), kind.args) if kind is not None and kind.args else []
    value = found[0] if len(found) == 1 else found
    return value if isinstance(value, str) else as_json(value) if found else ""


def as_json(value: Any) -> str:
    """Return a value as compact JSON text."""
    return _encoder.encode(value).decode()


def is_complete(form: str, block: Mapping[str, Any]) -> bool:
    """Return whether a block has what its provider requires: a signature, a text."""
    kind = kind_of(form, block)
    if kind is None or not kind.needs:
        return True
    found = (value for path in kind.needs for value in values_at(body_of(form, block), path))
    return any(isinstance(value, str) and value for value in found)


def is_compaction(form: str, block: Mapping[str, Any]) -> bool:
    """Return whether a block stands for everything before it, and has what its provider requires."""
    kind = kind_of(form, block)
    return kind is not None and kind.stands_for == "before" and is_complete(form, block)


def is_unbound(form: str, block: Mapping[str, Any]) -> bool:
    """Return whether a block is valid behind another prefix than the one that it was made behind.

    A format without a table has thoughts under the type that Anthropic gives them.
    """
    kind = kind_of(form, block) or kinds_of("anthropic").get(type_of(form, block))
    return kind is None or not kind.bound


def wrapped(kind: Kind, text: str) -> Any:
    """Return the value at `kind.said` with a text in it."""
    return text if kind.wrap is None else _filled(kind.wrap, text)


def _filled(value: Any, text: str) -> Any:
    if isinstance(value, list):
        return [_filled(item, text) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, text) for key, item in value.items()}
    return text if value == "%" else value
