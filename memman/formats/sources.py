"""The entries behind each message of a request, and whether a message is as it was added.

All of this is computed when `Context.sources` is read, and costs nothing otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import is_

import msgspec

from memman.entries import Entry, JSONObject, NewEntry, decode_json, note_of
from memman.formats.calls import results_of, spoken_of
from memman.formats.lenient import PlainMessage, parsed_messages
from memman.protocols import Format, Rendered, Turn
from memman.results import Source

_TAG = "\ue000memman-source"
Entries = tuple[Entry, ...]
Messages = Sequence[JSONObject]
Behind = Sequence[Entries]
"""The entries behind each message."""


def entries_behind(turn: Turn, rendered: Rendered) -> Behind:
    """Return the entries behind each message of a rendered turn."""
    if turn.kind == "state":
        return [()] * len(rendered.messages)
    if rendered.sources:
        return rendered.sources
    if turn.kind != "assistant":
        return [turn.entries, *[()] * (len(rendered.messages) - 1)][: len(rendered.messages)]
    spoken, results = spoken_of(turn), results_of(turn.answers)
    every = tuple(chain.from_iterable(results))
    match len(rendered.messages):
        case 0:
            return []
        case 1:
            return [(*spoken, *every)]
        case count if count == 1 + len(results):
            return [spoken, *results]
        case count:
            return [spoken, every, *[()] * (count - 2)]


def framed_from(form: Format, joined: Messages, framed: Messages) -> list[tuple[int, ...]]:
    """Return the indexes of the messages behind each message of `frame`; none for one that it added."""
    index_of = {id(message): index for index, message in enumerate(joined)}
    same = [index_of.get(id(message)) for message in framed]
    if len(same) - same.count(None) == len(joined):  # nothing but added messages
        return [() if index is None else (index,) for index in same]
    # Frame them again, with tags. A message that `frame` rewrites loses its tag. It comes after those that
    # are added before it.
    framed = form.frame([{**message, _TAG: index} for index, message in enumerate(joined)])
    found: list[tuple[int, ...]] = []
    expected = 0  # the next message that has not come yet
    for tag, run in groupby(framed, key=lambda message: message.get(_TAG)):
        count = len(list(run))
        if tag is None:
            rest = framed[len(found) + count :]
            following = next((m[_TAG] for m in rest if _TAG in m), len(joined))
            found += _rewritten(range(expected, following), count)
            expected = following
        else:
            found.append((tag,))
            expected = tag + 1
    return found


def _rewritten(indexes: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Return the indexes behind `count` messages without tags; added ones come first."""
    added = max(0, count - len(indexes))
    found: list[tuple[int, ...]] = [()] * added
    found += [(index,) for index in indexes[: count - added]]
    if rest := tuple(indexes[count - added :]):
        found[-1] += rest
    return found


# ---------------------------------------------------------------- as added


class Comparisons:
    """Whether messages are as they were added. A message is read again only if it is new or changed."""

    def __init__(self, form: Format) -> None:
        self._form = form
        self._known: dict[tuple[str, ...], tuple[JSONObject, Entries, bool]] = {}

    def sources(
        self, messages: Messages, behind: Behind, window: Sequence[Entry], torn: frozenset[str]
    ) -> tuple[Source, ...]:
        """Return the sources of messages; `window` are all entries of the context.

        `torn` are the ids of messages that have lost some of their entries.
        """
        names = [tuple(entry.id for entry in entries) for entries in behind]
        same = self._compared(messages, behind, names)
        sizes = Counter(map(_message_of, window))
        for message_id in torn:
            sizes["message", message_id] += 1
        itemized = getattr(self._form, "results_anywhere", False)
        return tuple(
            Source(ids, as_added and _are_whole(entries, sizes, itemized))
            for ids, entries, as_added in zip(names, behind, same, strict=True)
        )

    def _compared(
        self, messages: Messages, behind: Behind, names: Sequence[tuple[str, ...]]
    ) -> list[bool]:
        """Return whether each message has the same entries if it is read again."""
        if self._form.name == "text":  # one message of many entries
            return [False] * len(messages)
        known, found = self._known, list[bool | None]()
        for ids, message, entries in zip(names, messages, behind, strict=True):
            was, made_of, as_added = known.get(ids, (None, (), False))
            if all(map(is_, made_of, entries)) and (was is message or was == message):
                found.append(as_added)
            else:
                found.append(None if entries else False)
        for group in _answers(behind):
            if None in found[group.start : group.stop]:
                parsed = self._parsed(messages[group.start : group.stop])
                for index in group:
                    entries, again = behind[index], parsed.get(index - group.start, ())
                    found[index] = len(entries) == len(again) and all(map(_is_same, entries, again))
        same = list(map(bool, found))
        # In one step: another thread may do the same.
        self._known = dict(zip(names, zip(messages, behind, same, strict=True), strict=True))
        return same

    def _parsed(self, messages: Messages) -> dict[int, list[NewEntry]]:
        """Return the entries of messages that are read again, by the message's index."""
        parsed: dict[int, list[NewEntry]] = {}
        for new_entry in parsed_messages(self._form, list(map(PlainMessage, messages)), keep=True):
            parsed.setdefault(new_entry.message_index, []).append(new_entry)
        return parsed


def _answers(behind: Behind) -> Iterator[range]:
    """Yield the indexes of adjacent messages that are items of one answer of the model."""
    start = 0
    for index in range(1, len(behind) + 1):
        if index < len(behind) and behind[index - 1] and behind[index]:
            message_id = behind[index][0].message_id
            if message_id is not None and behind[index - 1][-1].message_id == message_id:
                continue
        yield range(start, index)
        start = index


def _are_whole(entries: Entries, sizes: Mapping[tuple[str, str], int], itemized: bool) -> bool:
    """Return whether entries are all those of one or more messages, as they were given."""
    added = (e.seq > 0 and not e.replacement and not note_of(e, "altered") for e in entries)
    if not entries or not all(added):
        return False
    return itemized or sum(sizes[key] for key in set(map(_message_of, entries))) == len(entries)


def _message_of(entry: Entry) -> tuple[str, str]:
    """Return the key of the message that an entry was added with."""
    if entry.message_id is None:
        return "entry", entry.id
    return "message", entry.message_id


def _is_same(entry: Entry, parsed: NewEntry) -> bool:
    # A result may have its name from its call alone.
    unnamed = entry.type == "tool_result" and None in (parsed.name, entry.name)
    return (
        (unnamed or parsed.name == entry.name)
        and (entry.type, entry.role) == (parsed.type, parsed.role)
        and (entry.call_id, entry.is_error) == (parsed.call_id, parsed.is_error)
        and (entry.content == parsed.content or _same_arguments(entry, parsed))
        and entry.raw == decode_json(parsed.raw_json)
    )


def _same_arguments(entry: Entry, parsed: NewEntry) -> bool:
    """Return whether two calls have the same JSON; some formats have it decoded."""
    if entry.type != "tool_call" or not isinstance(parsed.content, str):
        return False
    try:
        return bool(msgspec.json.decode(entry.text) == msgspec.json.decode(parsed.content))
    except msgspec.DecodeError:
        return False
