"""Comparison of originals with their replacements and their exact values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from memman_cli.explain import Comparison, compare

from memman import MemoryManager
from memman.compression import clear_tool_results, drop_oldest
from memman.compression.words import exact_values, stands_alone
from tests.explain.conversation import ORDER, PATH, history, manager, orders, talk


def compared(memory: MemoryManager, compression_id: str | None = None) -> Comparison:
    read = history(memory)
    return compare(read, compression_id or read.history.latest())


def kept(comparison: Comparison) -> dict[str, str | None]:
    return {each.value: each.kept for item in comparison.replacements for each in item.values}


def test_summary_is_compared_with_all_its_originals() -> None:
    memory = manager("The order left the hub.", state_ratio=0)
    orders(memory)
    talk(memory)
    done = memory.compress("s", target_tokens=700)
    [item] = compared(memory).replacements
    hidden = [entry for entry in memory.get_entries("s") if entry.compressed]
    assert [entry.id for entry in item.originals] == [entry.id for entry in hidden]
    assert [entry.text for entry in item.originals] == [entry.text for entry in hidden]
    assert item.entry is not None
    assert (item.method, item.entry.id) == ("summary", done.summary_id)
    assert item.entry.text == "The order left the hub."
    assert item.tokens_before - item.tokens_after == done.tokens_saved


def test_value_is_kept_only_if_the_summary_contains_it() -> None:
    for reply, where in [(f"Order {ORDER} left.", "replacement"), ("It left.", None)]:
        memory = manager(reply, state_ratio=0)
        orders(memory)
        talk(memory)
        memory.compress("s", target_tokens=700)
        found = kept(compared(memory))
        assert found[ORDER] == where
        assert found[PATH] is None


def test_value_in_the_outline_is_kept_there() -> None:
    memory = manager(f"Order {ORDER} left.")
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=700)
    assert kept(compared(memory)) == {ORDER: "replacement", PATH: "state"}


def test_outline_keeps_both_values() -> None:
    memory = manager()
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=700)
    assert set(kept(compared(memory)).values()) <= {"replacement", "state"}
    assert compared(memory).survival == 1.0


def test_value_in_another_entry_is_kept_elsewhere() -> None:
    memory = manager(strategy=(clear_tool_results,))
    orders(memory)
    memory.pin("s", memory.add_user_message("s", f"So {ORDER} it is.").id)
    talk(memory, 3)
    memory.compress("s")
    comparison = compared(memory)
    assert [item.method for item in comparison.replacements] == ["stub"]
    assert kept(comparison) == {ORDER: "elsewhere"}
    assert comparison.survival == 1.0


def test_survival_counts_each_value_once() -> None:
    memory = manager(f"Order {ORDER} left.", state_ratio=0)
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=700)
    comparison = compared(memory)
    assert (comparison.values, comparison.values_kept, comparison.survival) == (2, 1, 0.5)


def test_survival_is_1_without_values() -> None:
    memory = manager("Talk.")
    talk(memory)
    memory.compress("s", target_tokens=400)
    comparison = compared(memory)
    assert (comparison.values, comparison.survival) == (0, 1.0)


def test_summary_of_summaries_is_compared_with_first_originals() -> None:
    memory = manager(f"Order {ORDER} left.", "It all went on.", state_ratio=0)
    orders(memory)
    talk(memory)
    first = memory.compress("s", target_tokens=700).compression_id
    talk(memory, first=10)
    memory.compress("s", target_tokens=700)
    outer = compared(memory)
    assert outer.replacements[0].originals[0].id == "ask"
    assert kept(outer)[ORDER] is None
    inner = compared(memory, first)
    assert (inner.state, kept(inner)[ORDER]) == ("folded", "replacement")


def test_dropped_entries_have_no_replacement() -> None:
    memory = manager(strategy=(drop_oldest,))
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=400)
    gone = [item for item in compared(memory).replacements if item.method == "drop"]
    assert gone
    assert all(item.entry is None and item.tokens_after == 0 for item in gone)


def test_summary_around_a_pinned_entry_is_one_replacement() -> None:
    memory = manager()
    talk(memory)
    memory.pin("s", "q3")
    memory.compress("s", target_tokens=600)
    [item] = compared(memory).replacements
    ids = [entry.id for entry in item.originals]
    assert ids[:4] == ["q0", "a0", "q1", "a1"]
    assert "q3" not in ids
    assert "a3" in ids


def test_undone_compression_can_be_compared() -> None:
    memory = manager("It left.")
    orders(memory)
    talk(memory)
    name = memory.compress("s", target_tokens=700).compression_id
    before = compared(memory)
    memory.undo_compression("s")
    after = compared(memory, name)
    assert after.state == "undone"
    assert after.replacements == before.replacements


def test_deleted_originals_have_no_text() -> None:
    memory = manager("It left.")
    orders(memory)
    talk(memory)
    name = memory.compress("s", target_tokens=700).compression_id
    memory.delete_entries("s", ["result"])
    comparison = compared(memory, name)
    assert comparison.state == "unfolded"
    texts = [entry.text for item in comparison.replacements for entry in item.originals]
    assert not any(ORDER in text for text in texts)


def test_part_of_a_longer_number_is_not_the_value() -> None:
    assert stands_alone("1234", "no 1234.")
    assert not stands_alone("1234", "no 12345")
    assert not stands_alone("1234", "no A1234")
    assert stands_alone("1234", "12345 and (1234)")


@given(
    st.lists(st.from_regex(r"[A-Z]{3}-[0-9]{4}", fullmatch=True), max_size=6), st.text(max_size=40)
)
def test_every_exact_value_is_between_spaces(values: list[str], text: str) -> None:
    repeated = f"{text} {' '.join(values)} {text}"
    assert all(stands_alone(value, repeated) for value in values)
    assert set(values) <= set(exact_values(f" {' '.join(values)} "))


def test_retraction_is_compared_with_nothing() -> None:
    memory = manager("The order left the hub.")
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=700)
    retraction = memory.retract("s", ["answer", "result"])
    memory.add_user_message("s", "another", id="answer")
    found = compared(memory, retraction)
    assert [entry.id for item in found.replacements for entry in item.originals] == [
        "result",
        "answer",
    ]
    assert [item.entry for item in found.replacements] == [None, None]
    assert kept(found)[PATH] is None
