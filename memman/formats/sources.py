"""The entries behind each message of a request, and whether a message is as it was added.

All of this is computed when `Context.sources` is read, and costs nothing otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from memman.entries import Entry, JSONObject, NewEntry, decode_json
from memman.formats.lenient import PlainMessage, parsed_messages
from memman.protocols import Format, Rendered, Turn
from memman.results import Source

_TAG = "\ue000memman-source"
Entries = tuple[Entry, ...]


def entries_behind(turn: Turn, rendered: Rendered) -> Sequence[Entries]:
    """Return the entries behind each message of a rendered turn."""
    if rendered.sources:
        return rendered.sources
    if turn.kind != "assistant":
        return [turn.entries, *[()] * (len(rendered.messages) - 1)][: len(rendered.messages)]
    spoken = (*turn.entries, *(call.entry for call in turn.calls))
    results = [() if call.result is None else (call.result,) for call in turn.answers]
    match len(rendered.messages):
        case 0:
            return []
        case 1:
            return [(*spoken, *_flat(results))]
        case count if count == 1 + len(results):
            return [spoken, *results]
        case count:
            return [spoken, _flat(results), *[()] * (count - 2)]


def _flat(groups: Sequence[Entries]) -> Entries:
    return tuple(entry for group in groups for entry in group)


def framed_from(form: Format, joined: Sequence[JSONObject]) -> list[tuple[int, ...]]:
    """Return the indexes of the messages behind each message of `frame`; none for one that it adds.

    `frame` also rewrites and joins messages. A rewritten one has lost its tag, and comes after those that
    are added before it.
    """
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


def sources_of(
    form: Format,
    messages: Sequence[JSONObject],
    sources: Sequence[Entries],
    window: Sequence[Entry],
) -> Iterator[Source]:
    """Yield the source of each message; `window` are all entries of the context."""
    sizes = Counter(map(_message_of, window))
    itemized = getattr(form, "results_anywhere", False)
    parsed: dict[int, list[NewEntry]] = {}
    if form.name != "text":  # a text is one message of many entries
        plain = [PlainMessage(message) for message in messages]
        for new_entry in parsed_messages(form, plain, keep=True):
            parsed.setdefault(new_entry.message_index, []).append(new_entry)
    for index, entries in enumerate(sources):
        whole = bool(entries) and all(map(_is_original, entries))
        if whole and not itemized:
            whole = sum(sizes[made] for made in set(map(_message_of, entries))) == len(entries)
        same = whole and _are_same(entries, parsed.get(index, ()))
        yield Source(tuple(entry.id for entry in entries), same)


def _message_of(entry: Entry) -> tuple[str, str]:
    """Return the key of the message that an entry was added with."""
    if entry.message_id is None:
        return "entry", entry.id
    return "message", entry.message_id


def _is_original(entry: Entry) -> bool:
    """Return whether an entry is one that was added, as it was given."""
    return entry.seq > 0 and not entry.replacement and not _is_altered(entry)


def _is_altered(entry: Entry) -> bool:
    """Return whether the entry was altered when it was stored."""
    own = entry.metadata.get("memman")
    return isinstance(own, dict) and "altered" in own


def _are_same(entries: Sequence[Entry], parsed: Sequence[NewEntry]) -> bool:
    """Return whether a message that is read again has the same entries."""
    return len(entries) == len(parsed) and all(map(_is_same, entries, parsed))


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
