"""Calls and results in the messages of providers: their entries, and their order among the texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from memman.display import shape_of
from memman.entries import JSON, Content, Entry, JSONObject, NewEntry, encode_json
from memman.errors import FormatError
from memman.formats.parts import Kept, arguments_of, is_half, keeping, typed_entry
from memman.formats.wire.reading import kind_of
from memman.formats.wire.tables import KEYED, type_of
from memman.protocols import Call, Turn

_ODD_ARGUMENTS = "memman_arguments"

Tool: TypeAlias = tuple[NewEntry, Kept]  # a call or a result, and its kept keys
Reader: TypeAlias = Callable[[JSONObject, str, dict[str, str]], Tool]


# ---------------------------------------------------------------- parsing


def call_entry(
    arguments: str, call_id: str | None, name: str | None, label: str | None
) -> NewEntry:
    """Return the entry of a call; `label` takes the place of a message id until one is made."""
    return NewEntry(
        type="tool_call",
        role="assistant",
        content=arguments,
        call_id=call_id or None,
        name=name,
        message_id=label,
    )


def use_entry(
    body: JSONObject, id_key: str, kind: str, label: str, names: dict[str, str]
) -> NewEntry:
    """Return the entry of a call in a block of this kind, and add its name to the `names` of tools.

    Raises `FormatError` without an id and a name.
    """
    call_id, name, given = body.get(id_key), body.get("name"), body.get("input")
    if not isinstance(call_id, str) or not isinstance(name, str):
        raise FormatError(f"a {kind} needs {id_key!r} and a name: {shape_of(body)}")
    names[call_id] = name
    text = given if isinstance(given, str) else encoded(given, f"the input of a {kind}")
    return call_entry(text, call_id, name, label)


def result_entry(
    content: Content,
    call_id: str | None,
    name: str | None,
    label: str | None = None,
    *,
    is_error: bool = False,
) -> NewEntry:
    """Return the entry of a result in a message of its own."""
    return NewEntry(
        type="tool_result",
        role="tool",
        content=content,
        call_id=call_id or None,
        name=name,
        message_id=label,
        is_error=is_error,
    )


def encoded(value: JSON, what: str) -> str:
    """Return arguments or a result as JSON. Raises `InvalidInput` if they are not plain data."""
    return bytes(encode_json(value, what)).decode() or "{}"


def read_tools(
    form: str,
    role: str,
    blocks: Iterable[JSON],
    label: str,
    names: dict[str, str],
    readers: Mapping[str, Reader],
) -> tuple[list[Tool], list[JSON], str]:
    """Return the calls and results among a message's blocks, the other blocks, and the order of all.

    Args:
        form: the name of a format with `results_beside`.
        role: of the message.
        blocks: the blocks.
        label: takes the place of a message id until one is made.
        names: the names of tools by the ids of their calls.
        readers: functions that read the blocks of any other call or result, by their types.

    The order has a letter for each block: "u" for a call, "r" for a result that stands beside its call,
    "a" for any other, and "t" for another block.
    """
    tools: list[Tool] = []
    rest: list[JSON] = []
    order = ""
    for block in blocks:
        row = kind_of(form, block) if role == "assistant" and isinstance(block, dict) else None
        if row is not None and row.beside and is_half(form, block, row):
            found: Tool = (typed_entry(form, block, row, label, names), Kept(own=block))
        elif (read := _reader(form, block, readers)) is not None:
            found = read(block, label, names)
        else:
            rest.append(block)
            order += "t"
            continue
        tools.append(found)
        order += "u" if found[0].type == "tool_call" else "r" if found[1].own else "a"
    return tools, rest, order


def _reader(form: str, block: JSON, readers: Mapping[str, Reader]) -> Reader | None:
    if not isinstance(block, dict):
        return None
    kinds = block if form in KEYED else (type_of(form, block),)
    return next((readers[kind] for kind in kinds if kind in readers), None)


def message_entries(
    form: str,
    role: JSON,
    content: Content,
    kept: Kept,
    tools: Sequence[Tool],
    label: str,
    order: str = "",
    name: str | None = None,
    **of_message: Any,
) -> list[NewEntry]:
    """Return the entries of one message: its text, if it has one, and its calls and results.

    They are in the order in which such a message is rendered: results first, or text before calls.

    Args:
        form: the name of the format.
        role: of the message.
        content: of its text.
        kept: the kept keys of the text.
        tools: the calls and results.
        label: takes the place of a message id until one is made.
        order: as `read_tools` returns it.
        name: of the speaker.
        of_message: fields of `Kept` for the first entry.
    """
    own_id = label if tools else None
    text = NewEntry(type="message", role=role, content=content, name=name, message_id=own_id)
    texts = [(text, kept)] if content or not tools else []
    found = [*texts, *tools] if role == "assistant" else [*tools, *texts]
    if role == "assistant" and ("r" in order or (content and "ut" in order)):
        of_message["order"] = order.replace("a", "")
    first, kept = found[0]
    found[0] = first, msgspec.structs.replace(kept, **of_message)
    return [keeping(new_entry, form, each) for new_entry, each in found]


# ---------------------------------------------------------------- rendering


def arguments_object(entry: Entry, extras: list[str]) -> JSONObject:
    """Return a call's arguments as an object; others are its only value, whose key is an extra."""
    found = arguments_of(entry)
    if isinstance(found, dict) or not entry.text:
        return found or {}
    extras.append(_ODD_ARGUMENTS)
    return {_ODD_ARGUMENTS: entry.text}


def spoken_of(turn: Turn) -> tuple[Entry, ...]:
    """Return the entries of an assistant's message."""
    beside = (call.result for call in turn.beside if call.result is not None)
    return (*turn.entries, *(call.entry for call in turn.calls), *beside)


def results_of(calls: Iterable[Call]) -> list[tuple[Entry, ...]]:
    """Return the result of each call, alone; nothing for a call without one."""
    return [() if call.result is None else (call.result,) for call in calls]
