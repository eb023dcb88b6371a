"""The history of a log: undo at any depth, replacements, eras and deletions."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import Entry, EntryNotFound, MemoryConfig, MemoryManager, Refused
from memman.archive.validation import LogChecker
from memman.errors import InvalidInput
from memman.log import History
from memman.records import Added, Cleared, Compressed, Deleted, Pinned, Record, Replacement, Undone
from memman.testing.stores import AT, added, retraction, summary_of
from tests.examples import examples
from tests.oracle import Oracle

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def manager(summarizer: Any = None, **settings: Any) -> MemoryManager:
    config = MemoryConfig(auto_compress=False, **settings)
    return MemoryManager(counter="chars4", config=config, summarizer=summarizer)


def told(prompt: str) -> str:
    return "They talked."


def fill(memory: MemoryManager, entries: int = 20) -> list[str]:
    return [memory.add_user_message("s", f"{n} " + "abc " * 100).id for n in range(entries)]


def compress(memory: MemoryManager, target: int = 800) -> str:
    result = memory.compress("s", target_tokens=target)
    assert result.compression_id is not None
    return result.compression_id


def active(memory: MemoryManager) -> list[str]:
    return [entry.id for entry in memory.get_active_entries("s")]


# ---------------------------------------------------------------- undo


def test_undo_restores_the_window() -> None:
    memory = manager()
    fill(memory)
    before = memory.get_active_entries("s")
    name = compress(memory)
    assert memory.undo_compression("s") == name
    assert memory.get_active_entries("s") == before
    assert memory.get_summaries("s") == []


def test_undo_keeps_later_entries() -> None:
    memory = manager()
    ids = fill(memory)
    compress(memory)
    later = memory.add_user_message("s", "later").id
    memory.undo_compression("s")
    assert active(memory) == [*ids, later]


def test_undo_works_at_any_depth_outermost_first() -> None:
    memory = manager()
    windows, names = [], []
    for _ in range(4):
        fill(memory, 10)
        windows.append(active(memory))
        names.append(compress(memory))
    for window, name in zip(reversed(windows), reversed(names), strict=True):
        assert memory.undo_compression("s") == name
        assert active(memory)[: len(window)] == window


def test_undo_of_inner_compression_names_the_outermost() -> None:
    memory = manager()
    fill(memory)
    inner = compress(memory)
    fill(memory)
    middle = compress(memory)
    fill(memory)
    outer = compress(memory)
    for name in (inner, middle):
        with pytest.raises(Refused, match=f"undo {outer} first"):
            memory.undo_compression("s", name)
    assert memory.undo_compression("s", outer) == outer


def test_compression_is_undone_only_once() -> None:
    memory = manager()
    fill(memory)
    first = compress(memory)
    memory.undo_compression("s", first)
    with pytest.raises(EntryNotFound, match="was undone"):
        memory.undo_compression("s", first)
    second = compress(memory)
    assert second != first
    assert memory.undo_compression("s") == second


def test_pinned_replacement_refuses_the_undo() -> None:
    memory = manager(told)
    fill(memory)
    name = compress(memory)
    [summary] = memory.get_summaries("s")
    memory.pin("s", summary.id)
    with pytest.raises(Refused, match=f"{summary.id} is pinned"):
        memory.undo_compression("s", name)
    memory.unpin("s", summary.id)
    assert memory.undo_compression("s") == name


def test_cleared_compressions_cannot_be_undone() -> None:
    memory = manager()
    fill(memory)
    name = compress(memory)
    memory.clear_session("s")
    with pytest.raises(EntryNotFound, match="cleared away"):
        memory.undo_compression("s", name)
    with pytest.raises(EntryNotFound, match="no compression to undo"):
        memory.undo_compression("s")


def test_second_undo_error_names_the_newest_compression() -> None:
    memory = manager()
    fill(memory)
    inner = compress(memory)
    fill(memory)
    outer = compress(memory)
    memory.undo_compression("s", outer)
    undone_by = len(memory.export_session("s").log)
    with pytest.raises(
        EntryNotFound,
        match=f"undone already, by record {undone_by}: the newest in force is {inner}",
    ):
        memory.undo_compression("s", outer)
    memory.undo_compression("s", inner)
    with pytest.raises(EntryNotFound, match="none is in force"):
        memory.undo_compression("s", inner)


def test_undo_of_a_summary_id_names_its_compression() -> None:
    memory = manager(told)
    fill(memory)
    name = compress(memory)
    [summary] = memory.get_summaries("s")
    with pytest.raises(EntryNotFound, match=f"a compression made: undo that one, {name}"):
        memory.undo_compression("s", summary.id)


def test_undo_of_an_outline_id_undoes_its_compression() -> None:
    memory = manager()
    ids = fill(memory)
    name = compress(memory)
    [outline] = memory.get_summaries("s")
    assert memory.undo_compression("s", outline.id) == name
    assert active(memory) == ids


def test_failed_undo_changes_nothing() -> None:
    memory = manager()
    fill(memory)
    inner = compress(memory)
    fill(memory)
    compress(memory)
    before = memory.export_session("s")
    for name in (inner, "nobody"):
        with pytest.raises((EntryNotFound, Refused)):
            memory.undo_compression("s", name)
    assert memory.export_session("s") == before


def test_undo_restores_a_folded_summary() -> None:
    memory = manager(told)
    fill(memory)
    compress(memory)
    [first] = memory.get_summaries("s")
    fill(memory)
    outer = compress(memory)
    assert memory.get_summaries("s") != [first]
    memory.undo_compression("s", outer)
    assert memory.get_summaries("s") == [first]


def test_undo_restores_the_outline_before() -> None:
    memory = manager()
    fill(memory)
    compress(memory)
    [first] = memory.get_summaries("s")
    fill(memory)
    outer = compress(memory)
    [second] = memory.get_summaries("s")
    assert (second.id, second.content) != (first.id, first.content)
    memory.undo_compression("s", outer)
    [again] = memory.get_summaries("s")
    assert msgspec.structs.replace(again, created_at=first.created_at) == first


@settings(max_examples=examples(60))
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 12)),
            st.tuples(st.just("results"), st.integers(1, 4)),
            st.tuples(st.just("compress"), st.sampled_from([300, 600, 1_200])),
            st.tuples(st.just("undo"), st.integers(0, 10)),
        ),
        min_size=3,
        max_size=25,
    )
)
def test_any_order_of_compress_and_undo_keeps_originals(
    steps: list[tuple[str, int]],
) -> None:
    memory = manager(max_entries=None, recent_window=2, min_entries_to_compress=2)
    memory.add_system_message("s", "be brief")
    made: list[str] = []
    for step, size in steps:
        if step == "add":
            fill(memory, size)
        elif step == "results":
            for number in range(size):
                memory.add_tool_call("s", "shell", {"n": number}, call_id=f"c{number}")
                memory.add_tool_result("s", "shell", "out " * 150, call_id=f"c{number}")
        elif step == "compress":
            name = memory.compress("s", target_tokens=size).compression_id
            made += [name] if name else []
        elif made:
            undo_in_order(memory, made, made[size % len(made)])
    while made:
        undo_in_order(memory, made, made[0])
    added = [entry.id for entry in memory.get_entries("s")]
    assert active(memory) == added
    assert not any(entry.compressed for entry in memory.get_entries("s"))


def test_history_handles_1_100_levels_of_summaries() -> None:
    deep = 1_100  # more than the recursion limit
    added = [
        Entry(id=f"e{number}", type="message", role="user", content="x", timestamp=BEGIN)
        for number in range(deep)
    ]
    records: list[Record] = [Added(added[0])]
    for number in range(1, deep):
        before = f"s{number - 1}" if number > 1 else "e0"
        summary = Entry(
            id=f"s{number}", type="summary", role="system", content="x", timestamp=BEGIN
        )
        run = Replacement((before, f"e{number}"), summary, "summary")
        records += [
            Added(added[number]),
            Compressed(id=f"c{number}", at=BEGIN, replacements=(run,), reason="", tokens_before=0,
                       tokens_after=0),
        ]  # fmt: skip
    history = History.of(enumerate(records, 1))
    assert [entry.id for entry in history.originals([f"s{deep - 1}"])] == [
        entry.id for entry in added
    ]
    assert {entry.summary_id for entry in history.entries()} == {f"s{deep - 1}"}
    assert history.outermost("e0") == f"c{deep - 1}"
    assert history.undo_order("c1") == [f"c{number}" for number in range(deep - 1, 0, -1)]
    history.apply(len(records) + 1, Deleted(id="d", at=BEGIN, ids=("e0",)))
    assert [item.entry.id for item in history.items] == [entry.id for entry in added[1:]]


def undo_in_order(memory: MemoryManager, made: list[str], wanted: str) -> None:
    """Undo a compression after the ones that its refusals name."""
    due = [wanted]
    while due:
        before = active(memory)
        try:
            memory.undo_compression("s", due[-1])
        except Refused as refusal:
            [first] = [name for name in made if f"undo {name} first" in str(refusal)]
            assert first not in due
            assert active(memory) == before
            due.append(first)
        else:
            made.remove(due.pop())


# ---------------------------------------------------------------- replacements


@pytest.mark.parametrize("summarizer", [None, told])
def test_originals_are_found_through_any_depth_of_summaries(summarizer: Any) -> None:
    memory = manager(summarizer)
    for _ in range(3):
        fill(memory)
        memory.compress("s")  # without a target, so that nothing is clipped
    summary, *_ = memory.get_summaries("s")
    hidden = [entry for entry in memory.get_entries("s") if entry.compressed]
    assert summary.original_entry_ids == tuple(entry.id for entry in hidden)
    assert {entry.summary_id for entry in hidden} == {summary.id}
    assert summary.original_token_count == sum(entry.token_count.tokens for entry in hidden)


def test_cleared_result_is_represented_by_its_stub() -> None:
    memory = manager(max_entries=None)
    for number in range(10):
        memory.add_tool_call("s", "shell", {}, call_id=str(number))
        memory.add_tool_result("s", "shell", "out " * 200, call_id=str(number))
    result = memory.compress("s", target_tokens=1_500)
    stubs = {item.ids[0]: item.entry for item in result.replacements if item.method == "stub"}
    assert stubs
    for original, stub in stubs.items():
        assert stub is not None
        entry = memory.get_entry("s", original)
        assert (entry.compressed, entry.summary_id) == (True, stub.id)
        assert entry.text == "out " * 200
        assert memory.get_entry("s", stub.id).text == stub.text


def test_dropped_entry_is_compressed_without_a_summary() -> None:
    memory = manager(strategy="token_buffer")
    ids = fill(memory)
    compress(memory)
    entry = memory.get_entry("s", ids[0])
    assert (entry.compressed, entry.summary_id) == (True, None)


def test_folded_summary_can_be_read() -> None:
    memory = manager(told)
    fill(memory)
    compress(memory)
    [first] = memory.get_summaries("s")
    fill(memory)
    compress(memory)
    [second] = memory.get_summaries("s")
    old = memory.get_entry("s", first.id)
    assert (old.text, old.compressed, old.summary_id) == (first.content, True, second.id)


def test_earlier_outline_can_be_read_by_its_compression() -> None:
    memory = manager()
    fill(memory)
    name = compress(memory)
    [first] = memory.get_summaries("s")
    fill(memory)
    compress(memory)
    assert memory.get_summaries("s") != [first]
    assert first.id == name
    assert memory.get_entry("s", name).text == first.content


def test_one_summary_represents_both_sides_of_a_pinned_entry() -> None:
    memory = manager()
    ids = fill(memory)
    memory.pin("s", ids[3])
    compress(memory)
    [summary] = memory.get_summaries("s")
    assert ids[3] not in summary.original_entry_ids
    assert set(ids[:3]) <= set(summary.original_entry_ids)
    assert ids[4] in summary.original_entry_ids
    assert active(memory)[:2] == [summary.id, ids[3]]
    memory.undo_compression("s")
    assert active(memory) == ids


# ---------------------------------------------------------------- eras


def test_clear_begins_an_era_and_keeps_the_log() -> None:
    memory = manager()
    ids = fill(memory, 3)
    memory.clear_session("s")
    later = memory.add_user_message("s", "later").id
    assert [entry.id for entry in memory.get_entries("s")] == [later]
    assert memory.get_entry("s", ids[0]).id == ids[0]
    assert len(memory.export_session("s").log) == 6


def test_system_messages_are_pinned_only_at_the_start_of_an_era() -> None:
    memory = manager()
    first = memory.add_system_message("s", "be brief")
    second = memory.add_system_message("s", "be kind")
    memory.add_user_message("s", "x")
    late = memory.add_system_message("s", "now be long")
    assert (first.pinned, second.pinned, late.pinned) == (True, True, False)
    memory.clear_session("s")
    assert memory.add_system_message("s", "again").pinned


# ---------------------------------------------------------------- deletion


def test_deletion_dissolves_every_summary_of_the_entry() -> None:
    memory = manager()
    secret = memory.add_user_message("s", "the secret is swordfish").id
    ids = fill(memory)
    compress(memory)
    fill(memory)
    compress(memory)
    [summary] = memory.get_summaries("s")
    assert "swordfish" in summary.content
    memory.delete_entries("s", [secret])
    assert memory.get_summaries("s") == []
    assert "swordfish" not in memory.export_session("s").to_json()
    assert ids[0] in active(memory)
    assert secret not in [entry.id for entry in memory.get_entries("s")]


def test_deletion_keeps_compressions_of_other_entries() -> None:
    memory = manager()
    fill(memory)
    compress(memory)
    [summary] = memory.get_summaries("s")
    later = memory.add_user_message("s", "later").id
    memory.delete_entries("s", [later])
    assert [one.id for one in memory.get_summaries("s")] == [summary.id]


def test_totals_lose_deleted_entries() -> None:
    memory = manager()
    ids = fill(memory, 5)
    before = memory.get_stats("s")
    memory.delete_entries("s", [ids[0], ids[3], ids[0]])
    stats = memory.get_stats("s")
    assert stats.total_entries == before.total_entries - 2
    assert stats.total_tokens == before.total_tokens - 2 * 101
    assert memory.export_session("s").totals.tokens == stats.total_tokens  # type: ignore[union-attr]


def test_second_deletion_changes_nothing() -> None:
    memory = manager()
    ids = fill(memory, 5)
    memory.delete_entries("s", [ids[0]])
    before = memory.export_session("s")
    memory.delete_entries("s", [ids[0]])
    memory.delete_entries("s", ids[0])
    assert memory.export_session("s") == before


def test_deleted_entry_cannot_be_read() -> None:
    memory = manager()
    ids = fill(memory, 5)
    memory.delete_entries("s", [ids[0]])
    with pytest.raises(EntryNotFound):
        memory.get_entry("s", ids[0])


def test_deletion_of_a_summary_is_refused() -> None:
    memory = manager()
    fill(memory)
    compress(memory)
    [summary] = memory.get_summaries("s")
    with pytest.raises(EntryNotFound, match="undo_compression"):
        memory.delete_entries("s", [summary.id])


def test_entry_of_an_earlier_era_can_be_deleted() -> None:
    memory = manager()
    old = memory.add_user_message("s", "the secret is swordfish").id
    memory.clear_session("s")
    memory.add_user_message("s", "new")
    memory.delete_entries("s", [old])
    assert "swordfish" not in memory.export_session("s").to_json()
    assert memory.get_stats("s").total_entries == 1


# ---------------------------------------------------------------- any log


NUMBER = st.integers(0, 11)
STEP = st.one_of(
    st.tuples(st.just("add"), st.booleans()),
    st.tuples(st.just("compress"), st.lists(st.tuples(NUMBER, st.integers(0, 4)), max_size=3)),
    st.tuples(st.just("drop"), NUMBER),
    st.tuples(st.just("undo"), NUMBER),
    st.tuples(st.just("pin"), NUMBER),
    st.tuples(st.just("unpin"), NUMBER),
    st.tuples(st.just("delete"), st.lists(NUMBER, max_size=3)),
    st.tuples(st.just("retract"), st.lists(NUMBER, min_size=1, max_size=3)),
    st.tuples(st.just("add again"), NUMBER),
    st.tuples(st.just("clear"), st.none()),
)


def record_of(step: tuple[str, object], name: str, history: History, known: list[str]) -> Record:
    """Return a record, valid or not."""
    kind, given = step
    active = [item.entry.id for item in history.items] or ["unknown"]
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
        case "retract":
            return retraction_of(name, history, *[known[each % len(known)] for each in given])  # type: ignore[attr-defined]
        case "add again":
            free = [each for each in known if history.is_retracted(each)] or [name]
            return added(free[number % len(free)], tokens=number)
    return Cleared(id=name, at=AT)


def retraction_of(name: str, history: History, *ids: str) -> Compressed:
    """Return a retraction that names the compressions that cover an entry."""
    record = retraction(name, *ids)
    return msgspec.structs.replace(record, unfolds=tuple(history.unfolded_by(record)))


@settings(max_examples=examples(300))
@given(st.lists(STEP, max_size=30))
def test_fold_of_any_log_agrees_with_the_oracle(steps: list[tuple[str, object]]) -> None:
    history, oracle, checker = History(), Oracle(), LogChecker()
    known = ["r0"]
    for number, step in enumerate([("add", False), *steps]):
        record = record_of(step, f"r{number}", history, known)
        seq = history.head + 1
        try:
            record = history.completed(record)
            history.apply(seq, record)
        except (Refused, EntryNotFound, InvalidInput):
            with pytest.raises((Refused, EntryNotFound, InvalidInput)):
                checker.take(seq, record)
            return
        checker.take(seq, record)
        oracle.apply(seq, record)
        assert [item.entry.id for item in history.items] == oracle.window()
        assert list(history.added) == oracle.era
        assert set(history.compressions) == {*oracle.compressions, *oracle.retractions}
        assert history.totals.entries == len(oracle.era)
        assert history.totals.tokens == sum(each.token_count.tokens for each in history.entries())
        known.append(record.id)
        if isinstance(record, Compressed):
            known += [item.entry.id for item in record.replacements if item.entry]
