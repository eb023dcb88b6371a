"""The fold on the disk and the fold in memory are one: they refuse the same and show the same window."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from memman.archive.outline import Outline
from memman.errors import EntryNotFound, InvalidInput, Refused
from memman.log import History
from memman.protocols import StoredItem
from memman.records import Added, Cleared, Compressed, Deleted, Pinned, Record, Replacement, Undone
from memman.testing.stores import AT, added, summary_of
from tests.examples import examples

REFUSED = (Refused, EntryNotFound, InvalidInput)
NUMBER = st.integers(0, 11)
STEP = st.one_of(
    st.tuples(st.just("add"), st.booleans()),
    st.tuples(st.just("compress"), st.lists(st.tuples(NUMBER, st.integers(0, 4)), max_size=3)),
    st.tuples(st.just("drop"), NUMBER),
    st.tuples(st.just("undo"), NUMBER),
    st.tuples(st.just("pin"), NUMBER),
    st.tuples(st.just("unpin"), NUMBER),
    st.tuples(st.just("delete"), st.lists(NUMBER, max_size=3)),
    st.tuples(st.just("clear"), st.none()),
)


def record_of(step: tuple[str, object], name: str, history: History, known: list[str]) -> Record:
    """A record that may or may not be able to follow."""
    kind, given = step
    active = [slot.entry.id for slot in history.items] or ["nobody"]
    number = given if isinstance(given, int) else 0
    match kind:
        case "add":
            return added(name, tokens=len(known), pinned=bool(given))
        case "compress":
            runs = [active[at % len(active) :][:size] for at, size in given]  # type: ignore[attr-defined]
            return summary_of(name, *runs)
        case "drop":
            item = Replacement((active[number % len(active)],), None, "drop")
            return Compressed(
                id=name, at=AT, replacements=(item,), reason="t", tokens_before=0, tokens_after=0
            )
        case "undo":
            return Undone(id=name, at=AT, compression_id=known[number % len(known)])
        case "pin" | "unpin":
            return Pinned(id=name, at=AT, entry_id=known[number % len(known)], on=kind == "pin")
        case "delete":
            ids = tuple(known[each % len(known)] for each in given)  # type: ignore[attr-defined]
            return Deleted(id=name, at=AT, ids=ids)
    return Cleared(id=name, at=AT)


def places_after(outline: Outline, head: int) -> list[StoredItem]:
    """All of the window."""
    outline.floor = head
    return [
        StoredItem(1 - place.seq, place.index, place.position, place.pinned)
        for place in outline.places()
    ]


@settings(max_examples=examples(150))
@given(st.lists(STEP, max_size=30))
def test_both_folds_agree_on_any_log(steps: list[tuple[str, object]]) -> None:
    history, outline = History(), Outline()
    known = ["r0"]
    first = added("r0")
    history.apply(1, first)
    outline.apply(1, first)
    for number, step in enumerate(steps, 1):
        record = record_of(step, f"r{number}", history, known)
        seq = history.head + 1
        floor = outline.floor
        try:
            lost = history.lost(record.ids) if isinstance(record, Deleted) else None
            history.apply(seq, record)
        except REFUSED:
            try:
                outline.apply(seq, record)
            except REFUSED:
                break  # neither goes on from here
            raise AssertionError(f"only one of the folds refused {record}") from None
        told = outline.apply(seq, record)
        if isinstance(told, Deleted):
            assert (told.entries, told.tokens) == lost
        known.append(record.id)
        if isinstance(record, Compressed):
            known += [item.entry.id for item in record.replacements if item.entry]
        elif not isinstance(record, Added):
            assert outline.floor == seq
        floor = outline.floor
        assert places_after(outline, seq) == [slot.place() for slot in history.items]
        outline.floor = floor
    outline.close()
