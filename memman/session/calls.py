"""The calls of results: of those that come late, also when they have left the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from memman.entries import Entry, note_of, noted
from memman.log import History
from memman.session.log import SessionLog
from memman.session.lookup import find_entry, place_of
from memman.window import Window, WindowItem


async def with_notes(
    entries: Sequence[Entry], log: SessionLog, known: dict[str, Entry | None], asked: bool
) -> list[Entry]:
    """Return entries to be added, with memman's notes. Under the log's lock, refreshed.

    Results get the name of their call. A late one notes the id of its call, with which it is shown, and
    which `known` gets. A reply to a request notes that if it was `asked` with text of memman's.
    """
    found = list(entries)
    if asked and entries and entries[0].role == "assistant":
        found[0] = noted(entries[0], prompted="again")
    if all(entry.type != "tool_result" for entry in entries):
        return found
    head = log.window.head
    batch = Window(WindowItem(entry, head + at, 0) for at, entry in enumerate(entries, 1))
    items = [item for exchange in batch.exchanges for item in exchange.items]
    for number, item in enumerate(items):
        entry = item.entry
        if entry.type != "tool_result" or item.answers:
            continue
        call, late = (item.again, True) if item.again else await _call_of(entry, log)
        if call is not None:
            named = msgspec.structs.replace(entry, name=entry.name or call.name)
            found[number] = noted(named, call=call.id if late else "")
            known[call.id] = call
    return found


async def _call_of(result: Entry, log: SessionLog) -> tuple[Entry | None, bool]:
    """Return the call of a result, and whether the result is late."""
    item, late = log.window.call_of(result)
    if item is None and result.call_id is not None and log.window.head:
        await log.refresh()
        item, late = log.window.call_of(result)
        if item is None and log.window.epoch:  # the window may hide it
            for entry in reversed(History.of(await log.era()).entries()):
                if entry.type == "tool_call" and entry.call_id == result.call_id:
                    return entry, True
    return (None if item is None else item.entry), late


async def recall(known: dict[str, Entry | None], log: SessionLog) -> None:
    """Give late results their calls, which the window hides. Under the log's lock, refreshed.

    `known` has the calls that were read before, and None for one that was retracted or deleted.
    """
    for name in {note_of(item.entry, "call") for item in log.window.missing} - known.keys():
        call = await find_entry(name, log)
        gone = call is None or (await place_of(call, log)).state == "retracted"
        known[name] = None if gone else call
    give_calls(log.window, known)


def give_calls(window: Window, known: Mapping[str, Entry | None]) -> None:
    """Give late results of a window their calls, as far as they are known."""
    for item in window.missing:
        item.repeat(known.get(note_of(item.entry, "call")))
