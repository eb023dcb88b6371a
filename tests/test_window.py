"""The window: pairing of calls and results, exchanges, and replacements of runs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman.entries import Entry, TokenCount
from memman.errors import Refused
from memman.log import LogState
from memman.records import Compressed, Replacement
from memman.window import Window, WindowItem

AT = datetime(2026, 1, 1, tzinfo=UTC)
PROMPTED = msgspec.Raw(b'{"memman":{"prompted":"again"}}')


def entry(own_id: str, kind: str = "message", role: str = "user", **more: Any) -> Entry:
    return Entry(
        id=own_id,
        type=kind,  # type: ignore[arg-type]
        role=role,  # type: ignore[arg-type]
        content=own_id,
        timestamp=AT,
        token_count=TokenCount(len(own_id)),
        **more,
    )


def call(name: str, call_id: str | None = None, tool: str = "find", **more: Any) -> Entry:
    return entry(name, "tool_call", "assistant", call_id=call_id, name=tool, **more)


def result(name: str, call_id: str | None = None, tool: str | None = "find", **more: Any) -> Entry:
    return entry(name, "tool_result", "tool", call_id=call_id, name=tool, **more)


def window(*entries: Entry, pinned: Sequence[str] = ()) -> Window:
    items = [
        WindowItem(one, number, one.token_count.tokens, one.id in pinned)
        for number, one in enumerate(entries, 1)
    ]
    made = Window(items, len(items))
    assert made.exchanges is not None  # pairs the items
    return made


def groups(of: Window) -> list[str]:
    """Return each exchange as the joined ids of its entries."""
    return [" ".join(item.entry.id for item in exchange.items) for exchange in of.exchanges]


def pairs(of: Window) -> dict[str, str | None]:
    """Return the result of each call, and the call of each late result: None for one without."""
    assert of.exchanges is not None  # pairs the items
    calls = {
        item.entry.id: item.result.entry.id if item.result else None
        for item in of.items
        if item.entry.type == "tool_call"
    }
    late = {
        item.entry.id: item.again.id if item.again else None
        for item in of.items
        if item.entry.type == "tool_result" and not item.answers
    }
    return calls | late


def test_each_message_is_its_own_exchange() -> None:
    assert groups(window(entry("u"), entry("a", role="assistant"), entry("v"))) == ["u", "a", "v"]


def test_call_and_its_result_are_one_exchange() -> None:
    assert groups(window(entry("u"), call("c", "1"), result("r", "1"), entry("v"))) == [
        "u", "c r", "v",
    ]  # fmt: skip


def test_text_calls_and_results_of_one_message_are_one_exchange() -> None:
    made = window(
        entry("t", role="assistant", message_id="m"),
        call("c", "1", message_id="m"),
        call("d", "2", message_id="m"),
        result("s", "2"),
        result("r", "1"),
        entry("u"),
    )
    assert groups(made) == ["t c d s r", "u"]
    assert pairs(made) == {"c": "r", "d": "s"}


def test_adjacent_calls_without_message_ids_run_in_parallel() -> None:
    made = window(call("c", tool="x"), call("d", tool="y"), result("s", tool="y"))
    assert groups(made) == ["c d s"]


def test_entries_between_call_and_result_join_the_exchange() -> None:
    made = window(call("c", "1"), entry("f", "context", "system"), result("r", "1"), entry("v"))
    assert groups(made) == ["c f r", "v"]


def test_result_behind_a_user_message_is_an_exchange() -> None:
    made = window(call("c", "1"), entry("u"), result("r", "1"), entry("v"))
    assert groups(made) == ["c", "u", "r", "v"]
    assert pairs(made) == {"c": None, "r": "c"}


def test_late_result_joins_the_exchange_around_it() -> None:
    made = window(call("c", "1", message_id="m"), entry("u"), call("d", "2", message_id="n"),
                  result("r", "1"), result("s", "2"))  # fmt: skip
    assert groups(made) == ["c", "u", "d r s"]
    assert pairs(made) == {"c": None, "r": "c", "d": "s"}


def test_result_in_a_user_message_with_text_is_in_time() -> None:
    made = window(call("c", "1"), entry("u", message_id="m"), result("r", "1", message_id="m"))
    assert pairs(made) == {"c": "r"}


def test_result_behind_the_next_reply_is_late() -> None:
    made = window(call("c", "1"), call("d", "1", metadata_json=PROMPTED),
                  result("r", "1"), result("s", "1"))  # fmt: skip
    assert groups(made) == ["c", "d r", "s"]
    assert pairs(made) == {"c": None, "d": "r", "s": "c"}


def test_repeated_ids_pair_by_order() -> None:
    made = window(
        call("c", "1", message_id="m"),
        result("r", "1"),
        call("d", "1", message_id="n"),
        result("s", "1"),
    )
    assert pairs(made) == {"c": "r", "d": "s"}
    assert [item.nth for item in made.items if item.entry.type == "tool_call"] == [0, 1]


def test_id_twice_in_a_message_pairs_by_order() -> None:
    made = window(
        call("c", "1", message_id="m"),
        call("d", "1", message_id="m"),
        result("r", "1"),
        result("s", "1"),
    )
    assert pairs(made) == {"c": "r", "d": "s"}


def test_without_ids_results_pair_by_name_and_order() -> None:
    made = window(
        call("c", tool="x"), call("d", tool="y"), call("e", tool="x"),
        result("r", tool="y"), result("s", tool="x"), result("t", tool="x"),
    )  # fmt: skip
    assert pairs(made) == {"c": "s", "d": "r", "e": "t"}


def test_results_without_ids_go_to_calls_without_ids_first() -> None:
    made = window(
        call("c", "1", tool="x"), call("d", tool="y"), call("e", tool="x"),
        result("r", tool="x"), result("s", tool="x"), result("t", tool="y"), result("u", tool="z"),
    )  # fmt: skip
    assert pairs(made) == {"c": "s", "d": "t", "e": "r", "u": None}


def test_result_without_id_and_name_answers_the_earliest_call() -> None:
    made = window(
        call("c", tool="x"), call("d", tool="y"), call("e", "1", tool="x"), call("f", tool="x"),
        *[result(name, tool=None) for name in "rstuv"],
    )  # fmt: skip
    assert pairs(made) == {"c": "r", "d": "s", "e": "u", "f": "t", "v": None}


@pytest.mark.parametrize("call_id", ["1", None])
def test_skipped_call_takes_no_result_of_a_later_call(call_id: str | None) -> None:
    made = window(
        call("c", call_id), entry("u"), call("d", call_id), result("r", call_id),
        call("e", call_id), result("s", call_id), entry("v"), call("f", call_id),
        result("t", call_id), result("late", call_id),
    )  # fmt: skip
    assert pairs(made) == {"c": None, "d": "r", "e": "s", "f": "t", "late": "c"}


@pytest.mark.parametrize("call_id", ["1", None])
def test_skipped_call_is_its_own_exchange(call_id: str | None) -> None:
    made = window(
        call("c", call_id), entry("u"), call("d", call_id), result("r", call_id),
        call("e", call_id), result("s", call_id),
    )  # fmt: skip
    assert groups(made) == ["c", "u", "d r", "e s"]


@pytest.mark.parametrize("between", [(), (entry("a", role="assistant"),)])
def test_calls_of_one_turn_are_answered_in_order(
    between: tuple[Entry, ...],
) -> None:
    made = window(
        call("c"), entry("u"), call("d"), *between, call("e"), result("r"), result("s"), result("t")
    )
    assert pairs(made) == {"c": None, "d": "r", "e": "s", "t": "c"}


def test_calls_of_two_messages_are_two_turns() -> None:
    made = window(call("c", message_id="m"), call("d", message_id="n"), result("r"))
    assert pairs(made) == {"c": None, "d": "r"}


def test_result_without_id_and_name_answers_the_newest_turn() -> None:
    made = window(
        call("c", tool="x"), entry("u"), call("d", tool="y"), call("e", tool="z"),
        *[result(name, tool=None) for name in "rst"],
    )  # fmt: skip
    assert pairs(made) == {"c": None, "d": "r", "e": "s", "t": "c"}


def test_grown_exchange_has_a_new_tuple() -> None:
    made = window(call("c", "1"), call("d", "2"))
    before = made.exchanges[-1].items
    assert made.exchanges[-1].items is before
    made.push(WindowItem(result("r", "1"), 3, 1))
    assert [item.entry.id for item in before] == ["c", "d"]
    assert groups(made) == ["c d r"]


def test_result_without_its_call_answers_none() -> None:
    made = window(call("c", "1"), result("r", "2"), result("s", "1"))
    assert pairs(made) == {"c": "s", "r": None}


def test_second_result_of_a_call_is_late() -> None:
    made = window(call("c", "1"), result("s", "1"), result("t", "1"))
    assert groups(made) == ["c s", "t"]
    assert pairs(made) == {"c": "s", "t": "c"}


def test_call_without_result_is_unanswered() -> None:
    made = window(call("c", "1"), entry("u"), call("d", "2"), result("r", "2"))
    assert [item.entry.id for item in made.items if item.unanswered] == ["c"]


def test_tokens_are_the_sum_of_the_items() -> None:
    assert window(entry("abc"), entry("de")).tokens == 5


def test_only_system_is_false_with_any_other_entry() -> None:
    assert window().only_system()
    assert window(entry("s", role="system")).only_system()
    assert not window(entry("s", role="system"), entry("u")).only_system()
    assert not window(entry("c", "context", "system")).only_system()


KINDS = st.lists(
    st.sampled_from(["u", "a", "c1", "c2", "c", "r1", "r2", "r", "r?", "m1", "m2"]), max_size=20
)


def of_kinds(kinds: Sequence[str]) -> list[Entry]:
    made = []
    for number, kind in enumerate(kinds):
        name = f"{kind}-{number}"
        match kind[0]:
            case "u":
                made.append(entry(name))
            case "a":
                made.append(entry(name, role="assistant"))
            case "c":
                made.append(call(name, kind[1:] or None))
            case "r":
                made.append(result(name, kind[1:] or None))
            case _:
                made.append(call(name, kind, message_id=kind))
    return made


@given(KINDS)
def test_exchanges_cover_the_window_and_keep_pairs(kinds: list[str]) -> None:
    made = window(*of_kinds(kinds))
    assert [item for exchange in made.exchanges for item in exchange.items] == made.items
    assert len(made.items) == len(kinds)
    where = {id(item): n for n, one in enumerate(made.exchanges) for item in one.items}
    for exchange in made.exchanges:
        items = exchange.items
        assert exchange.tokens == sum(item.tokens for item in items)
        assert exchange.unanswered == sum(item.unanswered for item in items)
        assert exchange.pinned == any(item.pinned for item in items)
    for item in made.items:
        if item.result is not None:
            assert item.result.answers
            assert where[id(item)] == where[id(item.result)]
    labels: dict[str, int] = {}
    for item in made.items:
        if item.entry.message_id is not None:
            group = labels.setdefault(item.entry.message_id, where[id(item)])
            assert group == where[id(item)]


@given(KINDS, st.booleans())
def test_items_pushed_one_by_one_form_the_same_exchanges(kinds: list[str], read: bool) -> None:
    entries = of_kinds(kinds)
    at_once, one_by_one = window(*entries), window(*entries[: len(entries) // 2])
    for number, one in enumerate(entries[len(entries) // 2 :], len(entries) // 2 + 1):
        one_by_one.push(WindowItem(one, number, one.token_count.tokens))
        if read:
            assert sum(len(exchange.items) for exchange in one_by_one.exchanges) == number
    assert groups(one_by_one) == groups(at_once)
    assert pairs(one_by_one) == pairs(at_once)
    assert one_by_one.tokens == at_once.tokens


def derived(of: Window) -> list[Any]:
    """Return everything that a window derives from its entries."""
    return [
        (
            [
                (item.entry.id, item.nth, item.answers, item.unanswered, item.again)
                for item in exchange.items
            ],
            (exchange.tokens, exchange.pinned, exchange.unanswered),
        )
        for exchange in of.exchanges
    ]


REPLACING = st.sampled_from(["summary", "stub", "drop", "odd"])


@given(KINDS, st.lists(st.tuples(st.integers(0, 19), st.integers(1, 4), REPLACING)), KINDS)
def test_replaced_items_form_the_same_exchanges(
    kinds: list[str], runs: list[tuple[int, int, str]], later: list[str]
) -> None:
    made = window(*of_kinds(kinds))
    for at, length, method in runs:
        stop = min(at + length, len(made.items)) if method in ("summary", "drop") else at + 1
        if at < len(made.items):
            old = made.items[at]
            by = {
                "summary": entry(f"s{old.entry.id}", "summary", "system"),
                "stub": msgspec.structs.replace(old.entry, id=f"x{old.entry.id}"),
                "odd": result(f"o{old.entry.id}", "1"),
            }
            replaced = [WindowItem(by[method], old.position, 1)] if method != "drop" else []
            made.replace(at, stop, replaced)
    fresh = Window(
        [WindowItem(one.entry, one.position, one.tokens, one.pinned) for one in made.items]
    )
    assert derived(made) == derived(fresh)
    assert made.tokens == fresh.tokens
    for number, one in enumerate(of_kinds(later), 30):
        one = msgspec.structs.replace(one, id=f"later-{one.id}")
        made.push(WindowItem(one, number, 1))
        fresh.push(WindowItem(one, number, 1))
    assert derived(made) == derived(fresh)
    assert pairs(made) == pairs(fresh)


# ---------------------------------------------------------------- compressions


def compressed(*replacements: Replacement) -> Compressed:
    return Compressed(
        id="k", at=AT, replacements=replacements, reason="test", tokens_before=0, tokens_after=0
    )


def compress(made: Window, record: Compressed) -> list[WindowItem]:
    LogState(made).apply(9, record)
    return made.items


def shown(items: Sequence[WindowItem]) -> list[tuple[str, int]]:
    return [(item.entry.id, item.position) for item in items]


def test_replacement_has_the_first_position_of_its_run() -> None:
    made = window(*map(entry, "abcde"))
    record = compressed(Replacement(("b", "c"), entry("s", "summary", "system"), "summary"))
    items = compress(made, record)
    assert shown(items) == [("a", 1), ("s", 2), ("d", 4), ("e", 5)]
    assert (items[1].entry.seq, items[1].compression, items[1].index) == (9, "k", 0)
    assert not items[1].pinned


def test_dropped_run_is_removed() -> None:
    items = compress(window(*map(entry, "abc")), compressed(Replacement(("a", "b"), None, "drop")))
    assert shown(items) == [("c", 3)]


def test_several_runs_are_replaced() -> None:
    record = compressed(
        Replacement(("a",), entry("x"), "stub"),
        Replacement(("c", "d"), entry("y"), "summary"),
    )
    items = compress(window(*map(entry, "abcde")), record)
    assert shown(items) == [("x", 1), ("b", 2), ("y", 3), ("e", 5)]


@pytest.mark.parametrize(
    ("ids", "named"),
    [
        (("a", "c"), "not contiguous at entry c"),
        (("b", "a"), "not contiguous at entry a"),
        (("x",), "not in the window"),
        (("p",), "entry p is pinned"),
        (("c", "p"), "entry p is pinned"),
        (("e", "f"), "beyond the window at entry f"),
        ((), "not in the window"),
    ],
)
def test_run_that_is_not_active_is_refused(ids: tuple[str, ...], named: str) -> None:
    made = window(*map(entry, "abcpe"), pinned=["p"])
    before = shown(made.items)
    with pytest.raises(Refused, match=named):
        compress(made, compressed(Replacement(ids, entry("s"), "summary")))
    assert shown(made.items) == before


def test_overlapping_runs_are_refused() -> None:
    record = compressed(
        Replacement(("a", "b"), entry("x"), "summary"),
        Replacement(("b", "c"), entry("y"), "summary"),
    )
    with pytest.raises(Refused):
        compress(window(*map(entry, "abc")), record)


def test_compression_without_replacements_is_refused() -> None:
    with pytest.raises(Refused):
        compress(window(*map(entry, "abc")), compressed())
