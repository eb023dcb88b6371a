"""The messages of a log as they were added: no budget, no repair, no placeholders.

Entries of one message are adjacent and share a `message_id`; each item of a format with `results_anywhere`
is a message of its own. The ids of calls are the original ones; a call without an id gets one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Literal

import msgspec

from memman.entries import JSON, Entry, JSONObject, TextPart
from memman.formats.lenient import whole_message
from memman.formats.parts import is_beside
from memman.protocols import Call, Format, SupportsRestore, Turn
from memman.window import Window

_Kind = Literal["system", "user", "assistant", "context", "summary", "result"]

_EMPTY = "\ue000memman-empty\ue000"  # in place of a content without parts


def original_messages(
    form: Format, entries: Sequence[Entry], nonce: str = ""
) -> list[list[JSONObject]]:
    """Return the messages of stored entries in order, those of each added message together.

    Contexts and summaries, which are messages of no provider, are delimited with `nonce` as in a context.
    """
    window = Window()
    for entry in entries:
        window.add(entry, 0)
    called: dict[str, Entry] = {}
    for item in chain.from_iterable(exchange.items for exchange in window.exchanges):
        if item.result is not None:
            called[item.result.entry.id] = item.entry
        elif item.again is not None:
            called[item.entry.id] = item.again
    beside = form.name if getattr(form, "results_beside", False) else ""
    return [
        _joined(form, list(chain.from_iterable(_restored(form, turn) for turn in turns)))
        for group in message_groups(entries, getattr(form, "results_anywhere", False))
        if (turns := list(_turns(group, called, nonce, beside)))
    ]


def message_groups(entries: Sequence[Entry], itemized: bool = False) -> Iterator[list[Entry]]:
    """Yield the entries of each message; adjacent calls without a message id are one message."""
    group: list[Entry] = []
    for entry in entries:
        if group and (itemized or not _together(group[-1], entry)):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def _together(before: Entry, entry: Entry) -> bool:
    if before.message_id != entry.message_id:
        return False
    return entry.message_id is not None or before.type == entry.type == "tool_call"


def _kind(entry: Entry, form: str) -> _Kind:
    if entry.type == "tool_call" or (entry.type == "tool_result" and is_beside(entry, form)):
        return "assistant"
    if entry.type == "message":
        return "user" if entry.role == "tool" else entry.role
    return "result" if entry.type == "tool_result" else entry.type


def _turns(
    group: Sequence[Entry], called: Mapping[str, Entry], nonce: str, form: str
) -> Iterator[Turn]:
    """Yield the turns of one message; a result is tied to its call, or to an empty one of its name."""
    for kind, run in groupby(group, lambda entry: _kind(entry, form)):
        entries = tuple(run)
        if kind == "assistant":
            texts = tuple(entry for entry in entries if entry.type == "message")
            made = (entry for entry in entries if entry.type == "tool_call")
            calls = tuple(_call(entry, beside=is_beside(entry, form)) for entry in made)
            results = (entry for entry in entries if entry.type == "tool_result")
            beside = tuple(_answered(entry, called.get(entry.id)) for entry in results)
            yield Turn("assistant", texts, calls, (), "", beside)
        elif kind == "result":
            answers = tuple(_answered(entry, called.get(entry.id)) for entry in entries)
            yield Turn("result", entries, answers, answers)
        else:
            for entry in entries:
                yield Turn(kind, (entry,), nonce=nonce)


def _call(entry: Entry, result: Entry | None = None, beside: bool = False) -> Call:
    call_id = entry.call_id or f"memman-call-{entry.seq}"
    return Call(entry, call_id, call_id, result, beside)


def _answered(result: Entry, call: Entry | None) -> Call:
    """Return the call of a result."""
    if call is None:  # the result's own spelling is that of its call
        call = msgspec.structs.replace(result, type="tool_call", role="assistant", content="{}")
    return _call(call, result)


def _restored(form: Format, turn: Turn) -> Sequence[JSONObject]:
    """Return the messages of a turn as they were added."""
    if (kept := whole_message(turn, form.name)) is not None:
        return [kept]
    if isinstance(form, SupportsRestore) and (found := form.restore(turn)) is not None:
        return found
    blanks = _Blanks()
    return [blanks.unmarked(message) for message in _rendered(form, blanks.in_turn(turn))]


def _rendered(form: Format, turn: Turn) -> Sequence[JSONObject]:
    """Render a turn alone: a call without its result, and a result without its call."""
    if turn.kind == "assistant":
        return form.render(turn).messages[:1]
    if turn.kind == "result":
        return form.render(Turn("assistant", (), turn.calls, turn.answers)).messages[1:]
    if turn.kind == "system" and not form.inline_system:
        said = form.render(Turn("user", turn.entries)).messages
        return [{**message, "role": "system"} for message in said]
    return form.render(turn).messages


class _Blanks:
    """Marks in place of blank texts, which providers reject and formats leave out."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def in_turn(self, turn: Turn) -> Turn:
        """Return the turn with a mark in place of each blank text."""
        answers = tuple(
            msgspec.structs.replace(call, result=self._in_entry(call.result))
            for call in turn.answers
            if call.result is not None
        )
        return msgspec.structs.replace(
            turn, entries=tuple(map(self._in_entry, turn.entries)), answers=answers
        )

    def _in_entry(self, entry: Entry) -> Entry:
        content = entry.content
        if not content or isinstance(content, str):
            mark = _EMPTY if content == () else self._mark(entry.text)
            return msgspec.structs.replace(entry, content=mark)
        parts = tuple(
            TextPart(self._mark(part.text)) if isinstance(part, TextPart) else part
            for part in content
        )
        return msgspec.structs.replace(entry, content=parts)

    def _mark(self, text: str) -> str:
        if text.strip():
            return text
        mark = f"\ue000memman-blank-{len(self._texts)}\ue000"
        self._texts[mark] = text
        return mark

    def unmarked(self, value: JSON) -> JSON:
        """Return rendered data with the blank texts in place of their marks."""
        if isinstance(value, str):
            return [] if value == _EMPTY else self._texts.get(value, value)
        if isinstance(value, dict):
            return {key: self.unmarked(item) for key, item in value.items()}
        if isinstance(value, list):
            kept = (x for x in value if not (isinstance(x, dict) and x.get("text") == _EMPTY))
            return [self.unmarked(item) for item in kept]
        return value


def _joined(form: Format, pieces: list[JSONObject]) -> list[JSONObject]:
    """Join the pieces of one message as the format joins adjacent messages."""
    join = getattr(form, "rejoin", form.join)
    found: list[JSONObject] = []
    for piece in pieces:
        both = join(found[-1], piece) if found else None
        if both is None:
            found.append(piece)
        else:
            found[-1] = both
    return found
