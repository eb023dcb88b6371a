"""The calls of results: of those that come late, also when they have left the window."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import msgspec

from memman.entries import Entry, note_of, noted
from memman.log import History
from memman.session.log import SessionLog
from memman.session.lookup import find_entry, place_of
from memman.window import Window, WindowItem

Known = dict[str, Entry | None]
"""Calls that were read before by their ids, None for one that was retracted or deleted."""


async def with_notes(
    entries: Sequence[Entry], log: SessionLog, known: Known, asked: bool, named: bool
) -> tuple[list[Entry], dict[str, Entry]]:
    """Return entries to be added, with memman's notes, and repeated results. Under the lock, refreshed.

    A result whose call has an equal one already is left out, unless the caller has `named` the entries, or
    the earlier one was late and has left the window. It is returned by its id, with the earlier one.

    Results get the name of their call. A late one notes the id of its call, with which it is shown, and
    which `known` gets. A reply to a request notes that if it was `asked` with text of memman's.
    """
    found, repeated = list(entries), dict[str, Entry]()
    if asked and entries and entries[0].role == "assistant":
        found[0] = noted(entries[0], prompted="again")
    if all(entry.type != "tool_result" for entry in entries):
        return found, repeated
    head = log.window.head
    batch = Window(WindowItem(entry, head + at, 0) for at, entry in enumerate(entries, 1))
    items = [item for exchange in batch.exchanges for item in exchange.items]
    answers: dict[str, Entry] = {}
    for number, item in enumerate(items):
        entry = item.entry
        if entry.type != "tool_result" or item.answers:
            continue
        call, late, answer = await _call_of(item, log, batch, answers)
        if call is not None:
            answering = msgspec.structs.replace(entry, name=entry.name or call.name)
            found[number] = noted(answering, call=call.id if late else "")
            known[call.id] = call
            first = answer or answers.get(call.id)
            if late and first is None:
                shown = (item.entry for item in log.window.items)  # the first late one answers it
                first = next((each for each in shown if note_of(each, "call") == call.id), None)
            if first is None:
                answers[call.id] = entry
            elif entry.call_id and not named and is_same_content(first, entry):
                repeated[entry.id] = first
    return [entry for entry in found if entry.id not in repeated], repeated


def is_same_content(stored: Entry, given: Entry) -> bool:
    """Return whether two entries have the same content, whatever their data besides."""
    if given.name not in (None, stored.name) and (stored.name or given.type != "tool_result"):
        return False  # a result's name may have been taken from its call
    return all(
        getattr(stored, name) == getattr(given, name)
        for name in ("type", "role", "content", "call_id", "is_error")
    )


def _answer_of(call: WindowItem | None) -> Entry | None:
    return None if call is None or call.result is None else call.result.entry


async def _call_of(
    added: WindowItem, log: SessionLog, batch: Window, taken: Container[str]
) -> tuple[Entry | None, bool, Entry | None]:
    """Return the call of a result, whether the result is late, and the result that the call has already."""
    result = added.entry
    if added.again is not None:
        answer = _answer_of(batch.find(added.again.id))
        is_answered = answer is not None or added.again.id in taken
        waiting = log.window.open_call_of(result, taken) if is_answered else None
        return (added.again, True, answer) if waiting is None else (waiting.entry, True, None)
    item, late = log.window.call_of(result, taken)
    if item is None and result.call_id is not None and log.window.head:
        await log.refresh()
        item, late = log.window.call_of(result, taken)
        if item is None and log.window.epoch:  # the window may hide it
            answer = None
            for entry in reversed(History.of(await log.era()).entries()):
                if entry.call_id == result.call_id and entry.type == "tool_call":
                    return entry, True, answer
                if entry.call_id == result.call_id and not note_of(entry, "call"):
                    answer = entry
    return (None if item is None else item.entry), late, _answer_of(item)


async def recall(known: Known, log: SessionLog) -> None:
    """Give late results their calls, which the window hides. Under the log's lock, refreshed."""
    for name in {note_of(item.entry, "call") for item in log.window.missing} - known.keys():
        call = await find_entry(name, log)
        gone = call is None or (await place_of(call, log)).state == "retracted"
        known[name] = None if gone else call
    give_calls(log.window, known)


def give_calls(window: Window, known: Mapping[str, Entry | None]) -> None:
    """Give late results of a window their calls, as far as they are known."""
    for item in window.missing:
        item.repeat(known.get(note_of(item.entry, "call")))
