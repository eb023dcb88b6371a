"""Where a text stood, what replaced it, where it still stands, and what to undo to have it back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import InvalidInput, MemoryManager
from memman.compression import drop_oldest
from memman.compression.key_facts import KEY_FACTS_HEAD
from memman.explain import Trace, trace
from tests.examples import examples
from tests.explain.conversation import ORDER, PATH, history, manager, orders, talk


def traced(memory: MemoryManager, text: str) -> Trace:
    return trace(history(memory), text)


def ids(result: Trace) -> list[str]:
    return [found.entry.id for found in result.found]


def test_an_active_entry_has_it_itself() -> None:
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


def test_a_text_is_found_whatever_its_case_and_white_space() -> None:
    memory = manager()
    memory.add_user_message("s", "The  Invoice\nis\tdue", id="m")
    [found] = traced(memory, "invoice IS due").found
    assert (found.entry.id, found.start) == ("m", 5)


def test_what_is_special_in_a_pattern_is_taken_as_it_is() -> None:
    memory = manager()
    memory.add_user_message("s", "call f(x) now", id="m")
    assert ids(traced(memory, "f(x)")) == ["m"]
    assert ids(traced(memory, "f.x.")) == []


def test_a_summary_that_says_it_has_it_and_one_that_does_not_has_not() -> None:
    for reply, where in [(f"Order {ORDER} left.", ["text"]), ("It left.", [])]:
        memory = manager(reply)
        orders(memory)
        talk(memory)
        memory.compress("s", target_tokens=700)
        result = traced(memory, ORDER)
        assert ids(result) == ["result"]
        assert [each.where for each in result.survives] == where


def test_an_exact_value_of_the_text_in_the_ledger_is_found_there() -> None:
    memory = manager(f"It left.\n{KEY_FACTS_HEAD}#4: {ORDER}; #5: {PATH}")
    orders(memory)
    talk(memory)
    summary = memory.compress("s", target_tokens=700).summary_id
    [survival] = traced(memory, f"order {ORDER} left").survives
    assert (survival.entry_id, survival.where, survival.values) == (summary, "ledger", (ORDER,))


def test_undoing_what_it_names_in_its_order_brings_the_entry_back_from_any_depth() -> None:
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
def test_any_hidden_entry_is_in_the_window_again_after_what_is_named_was_undone(
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
def test_how_often_an_entry_was_sent_is_what_the_window_had_at_each_answer(
    steps: list[tuple[str, int]],
) -> None:
    memory = manager(min_entries_to_compress=2)
    orders(memory)
    seen: Counter[str] = Counter(["head", "ask", "head", "ask", "call", "result"])
    asked = Counter(seen)
    for number, (step, size) in enumerate(steps):
        known = [entry.id for entry in memory.get_active_entries("s")]
        if step == "talk":
            memory.add_user_message("s", f"and {number}? " * 9, id=f"u{number}")
            _count(memory, seen, asked)
            memory.add_assistant_message("s", "well " * 30, id=f"a{number}")
        elif (
            step == "calls"
        ):  # one answer: a text, a call, its result, and another call of its message
            memory.add_user_message("s", "look", id=f"u{number}")
            _count(memory, seen, asked)
            for made in ("x", "y"):
                memory.add_tool_call(
                    "s", "f", {}, call_id=made, message_id=f"m{number}", id=f"{made}{number}"
                )
                memory.add_tool_result("s", "f", "found", call_id=made, id=f"r{made}{number}")
        elif step == "compress":
            memory.compress("s", target_tokens=200 + size)
        elif step == "undo" and history(memory).history.compressions:
            memory.undo_compression("s")
        # No calls: a tombstone has no message id, so it does not tell which calls were one answer.
        elif step == "delete" and (mine := [name for name in known if name[0] in "uar"]):
            memory.delete_entries("s", [mine[size % len(mine)]])
        elif step == "clear" and size < 90:
            memory.clear_session("s")
    told = history(memory)
    for name, entry in told.entries.items():
        sent = told.sent(entry)
        assert (name, sent.sent, sent.requests) == (name, seen[name], asked[name])
        assert (sent.last_at is None) == (seen[name] == 0)
        assert sent.requests_since <= sent.requests - sent.sent


def _count(memory: MemoryManager, seen: Counter[str], asked: Counter[str]) -> None:
    """Notes an answer that comes now: what the window has, and all that was added so far."""
    seen.update(entry.id for entry in memory.get_active_entries("s"))
    asked.update([*history(memory).entries])


def test_a_stub_that_was_summarised_later_tells_both() -> None:
    memory = manager()
    orders(memory)
    talk(memory, 4)
    stubbed = memory.compress("s", target_tokens=memory.get_stats("s").active_tokens - 100)
    talk(memory, 10, first=10)
    summarised = memory.compress("s", target_tokens=600)
    [found] = traced(memory, ORDER).found
    assert found.replaced_by == (stubbed.compression_id, summarised.compression_id)
    assert (found.method, found.status.state) == ("stub", "summarised")


def test_a_dropped_entry_is_found_and_nothing_stands_for_it() -> None:
    memory = manager(strategy=(drop_oldest,))
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=400)
    [found] = traced(memory, PATH).found
    assert (found.status.state, found.status.shown_by) == ("dropped", None)
    for name in found.undo:
        memory.undo_compression("s", name)
    assert "answer" in [entry.id for entry in memory.get_active_entries("s")]


def test_what_was_cleared_away_is_found_and_cannot_be_brought_back() -> None:
    memory = manager()
    orders(memory)
    memory.clear_session("s")
    [found] = traced(memory, ORDER).found
    assert (found.status.state, found.undo, found.status.retrievable) == ("cleared", (), True)
    assert ORDER in memory.get_entry("s", found.entry.id).text


def test_what_was_deleted_is_not_found() -> None:
    memory = manager()
    orders(memory)
    memory.delete_entries("s", ["result"])
    assert traced(memory, ORDER).found == ()


def test_what_only_a_summary_says_is_found_in_the_window_alone() -> None:
    memory = manager("The parcel is in Lisbon.")
    orders(memory)
    talk(memory)
    memory.compress("s", target_tokens=700)
    result = traced(memory, "Lisbon")
    assert result.found == ()
    assert [each.where for each in result.survives] == ["text"]


def test_a_text_without_spaces_is_found_in_chinese() -> None:
    memory = manager()
    memory.add_user_message("s", "订单已经离开仓库。", id="m")
    assert ids(traced(memory, "离开仓库")) == ["m"]


def test_a_text_that_never_stood_is_in_neither() -> None:
    memory = manager()
    orders(memory)
    assert traced(memory, "zebra") == Trace(text="zebra", found=(), survives=())


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_nothing_but_white_space_is_refused(text: str) -> None:
    memory = manager()
    orders(memory)
    with pytest.raises(InvalidInput, match="at least one character"):
        traced(memory, text)
