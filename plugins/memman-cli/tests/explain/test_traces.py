"""Search for a text: the entries that contain it, their replacements, and the undos that restore them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memman_cli.explain import Trace, trace

from memman import InvalidInput, MemoryManager
from memman.compression import drop_oldest
from tests.examples import examples
from tests.explain.conversation import ORDER, PATH, history, manager, orders, talk


def traced(memory: MemoryManager, text: str) -> Trace:
    return trace(history(memory), text)


def ids(result: Trace) -> list[str]:
    return [found.entry.id for found in result.found]


def test_text_is_found_in_an_active_entry() -> None:
    memory = manager()
    orders(memory)
    result = traced(memory, ORDER)
    assert ids(result) == [each.entry_id for each in result.survives] == ["result"]
    [found] = result.found
    assert (found.status.state, found.method, found.replaced_by, found.undo) == (
        "active",
        None,
        (),
        (),
    )


def test_case_and_white_space_are_ignored() -> None:
    memory = manager()
    memory.add_user_message("s", "The  Invoice\nis\tdue", id="m")
    [found] = traced(memory, "invoice IS due").found
    assert (found.entry.id, found.start) == ("m", 5)


def test_pattern_characters_are_literal() -> None:
    memory = manager()
    memory.add_user_message("s", "call f(x) now", id="m")
    assert ids(traced(memory, "f(x)")) == ["m"]
    assert ids(traced(memory, "f.x.")) == []


def test_text_remains_only_in_a_summary_that_contains_it() -> None:
    for reply, where in [(f"Order {ORDER} left.", ["text"]), ("It left.", [])]:
        memory = manager(reply, state_ratio=0)
        orders(memory)
        talk(memory)
        memory.compress("s", target_tokens=700)
        result = traced(memory, ORDER)
        assert ids(result) == ["result"]
        assert [each.where for each in result.survives] == where


def test_text_in_the_outline_has_its_first_record() -> None:
    memory = manager("It left.", "It left long ago.")
    orders(memory)
    for number in range(2):
        talk(memory, first=10 * number)
        memory.compress("s", target_tokens=700)
    first = memory.explain("s").compressions[0].seq
    [kept] = traced(memory, ORDER).survives
    assert (kept.where, kept.type, kept.since) == ("state", "state", first)
    memory.delete_entries("s", ["result"])
    assert traced(memory, ORDER).survives == ()


def test_outline_has_values_of_a_longer_text() -> None:
    memory = manager("It left.")
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=700)
    [kept] = traced(memory, f"the order {ORDER} in transit").survives
    assert (kept.where, kept.values) == ("state", (ORDER,))


def test_address_has_what_the_outline_keeps_of_it() -> None:
    memory = manager("It left.")
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=700)
    [kept] = traced(memory, memory.get_entry("s", "result").address).survives
    assert (kept.where, kept.values) == ("state", (ORDER,))


def test_undo_order_restores_an_entry_from_any_depth() -> None:
    memory = manager("one", "two", "three")
    orders(memory)
    for number in range(3):
        talk(memory, first=10 * number)
        memory.compress("s", target_tokens=700)
    [found] = traced(memory, ORDER).found
    assert len(found.undo) == len(found.replaced_by) == 3
    assert found.undo == tuple(reversed(found.replaced_by))
    for name in found.undo:
        memory.undo_compression("s", name)
    assert "result" in [entry.id for entry in memory.get_active_entries("s")]


@settings(max_examples=examples(40))
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("talk"), st.integers(1, 6)),
            st.tuples(st.just("compress"), st.sampled_from([250, 500, 900])),
            st.tuples(st.just("undo"), st.just(0)),
        ),
        min_size=2,
        max_size=16,
    ),
    data=st.data(),
)
def test_undo_order_restores_any_hidden_entry(
    steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    memory = manager(min_entries_to_compress=2)
    orders(memory)
    for number, (step, size) in enumerate(steps):
        if step == "talk":
            talk(memory, size, first=10 * number)
        elif step == "compress":
            memory.compress("s", target_tokens=size)
        elif history(memory).history.compressions:
            memory.undo_compression("s")
    wanted = data.draw(st.sampled_from([entry.id for entry in memory.get_entries("s")]))
    text = memory.get_entry("s", wanted).text
    [found] = [found for found in traced(memory, text).found if found.entry.id == wanted]
    for name in found.undo:
        memory.undo_compression("s", name)
    assert wanted in [entry.id for entry in memory.get_active_entries("s")]


@settings(max_examples=examples(60))
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["talk", "talk", "calls", "compress", "undo", "delete", "clear"]),
            st.integers(0, 900),
        ),
        min_size=2,
        max_size=20,
    )
)
def test_sent_counts_answers_with_the_entry_in_the_window(
    steps: list[tuple[str, int]],
) -> None:
    memory = manager(min_entries_to_compress=2)
    orders(memory)
    seen: Counter[str] = Counter(["head", "ask", "head", "ask", "call", "result"])
    calls = Counter(seen)
    for number, (step, size) in enumerate(steps):
        known = [entry.id for entry in memory.get_active_entries("s")]
        if step == "talk":
            memory.add_user_message("s", f"and {number}? " * 9, id=f"u{number}")
            _count(memory, seen, calls)
            memory.add_assistant_message("s", "well " * 30, id=f"a{number}")
        elif (
            step == "calls"
        ):  # one answer: a text, a call, its result, and another call of its message
            memory.add_user_message("s", "look", id=f"u{number}")
            _count(memory, seen, calls)
            for made in ("x", "y"):
                memory.add_tool_call(
                    "s", "f", {}, call_id=made, message_id=f"m{number}", id=f"{made}{number}"
                )
                memory.add_tool_result("s", "f", "found", call_id=made, id=f"r{made}{number}")
        elif step == "compress":
            memory.compress("s", target_tokens=200 + size)
        elif step == "undo" and history(memory).history.compressions:
            memory.undo_compression("s")
        # No calls: a tombstone has no message id, which shows the calls of one answer.
        elif step == "delete" and (mine := [name for name in known if name[0] in "uar"]):
            memory.delete_entries("s", [mine[size % len(mine)]])
        elif step == "clear" and size < 90:
            memory.clear_session("s")
    records = history(memory)
    for name, entry in records.entries.items():
        sent = records.sent(entry)
        assert (name, sent.sent, sent.requests) == (name, seen[name], calls[name])
        assert (sent.last_at is None) == (seen[name] == 0)
        assert sent.requests_since <= sent.requests - sent.sent


def _count(memory: MemoryManager, seen: Counter[str], calls: Counter[str]) -> None:
    """Record an answer: the window and the added entries at this moment."""
    seen.update(entry.id for entry in memory.get_active_entries("s"))
    calls.update([*history(memory).entries])


def test_summarised_clip_has_both_compressions() -> None:
    memory = manager()
    orders(memory)
    talk(memory, 4)
    clipped = memory.compress("s", target_tokens=memory.get_stats("s").active_tokens - 100)
    talk(memory, 10, first=10)
    summarised = memory.compress("s", target_tokens=600)
    [found] = traced(memory, ORDER).found
    assert found.replaced_by == (clipped.compression_id, summarised.compression_id)
    assert (found.method, found.status.state) == ("clip", "summarised")


def test_dropped_entry_is_found_without_a_remnant() -> None:
    memory = manager(strategy=(drop_oldest,))
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=400)
    [found] = traced(memory, PATH).found
    assert (found.status.state, found.status.shown_by) == ("dropped", None)
    for name in found.undo:
        memory.undo_compression("s", name)
    assert "answer" in [entry.id for entry in memory.get_active_entries("s")]


def test_cleared_entry_is_found_without_undo() -> None:
    memory = manager()
    orders(memory)
    memory.clear_session("s")
    [found] = traced(memory, ORDER).found
    assert (found.status.state, found.undo, found.status.retrievable) == ("cleared", (), True)
    assert ORDER in memory.get_entry("s", found.entry.id).text


def test_deleted_entry_is_not_found() -> None:
    memory = manager()
    orders(memory)
    memory.delete_entries("s", ["result"])
    assert traced(memory, ORDER).found == ()


def test_text_of_a_summary_alone_is_only_a_remnant() -> None:
    memory = manager("The parcel is in Lisbon.")
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=700)
    result = traced(memory, "Lisbon")
    assert result.found == ()
    assert [each.where for each in result.survives] == ["text"]


def test_chinese_text_is_found() -> None:
    memory = manager()
    memory.add_user_message("s", "订单已经离开仓库。", id="m")
    assert ids(traced(memory, "离开仓库")) == ["m"]


def test_unknown_text_is_found_nowhere() -> None:
    memory = manager()
    orders(memory)
    assert traced(memory, "zebra") == Trace(text="zebra", found=(), survives=())


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_blank_text_is_refused(text: str) -> None:
    memory = manager()
    orders(memory)
    with pytest.raises(InvalidInput, match="at least one character"):
        traced(memory, text)


def test_retracted_entry_has_the_undo_that_restores_it() -> None:
    memory = manager()
    orders(memory)
    retraction = memory.retract("s", ["result"])
    result = traced(memory, ORDER)
    [found] = result.found
    assert (found.status.state, found.method) == ("retracted", "retract")
    assert found.replaced_by == found.undo == (retraction,)
    assert (found.sent.requests, found.sent.requests_since, result.survives) == (1, 0, ())


def test_requests_are_counted_for_the_entry_added_again() -> None:
    memory = manager()
    memory.add_user_message("s", "where?", id="m")
    memory.add_assistant_message("s", "here")
    memory.retract("s", ["m"])
    memory.add_user_message("s", "where now?", id="m")
    memory.add_assistant_message("s", "there")
    [found] = traced(memory, "where").found
    assert (found.sent.requests, found.sent.sent) == (1, 1)
