"""Steps of one's own: what they may do, and that a step that is wrong is named and changes nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from memman import AsyncMemoryManager, CompressionFailed, ConfigError, MemoryConfig, MemoryManager
from memman import events as signals
from memman.compression import (
    Item,
    View,
    clear_tool_results,
    clip_large,
    clip_rest,
    drop_oldest,
    fold_repeats,
)
from memman.entries import NewEntry, TokenCount
from memman.formats.rules import check
from memman.testing import FakeClock

S = "s"
STUBBED = "[memman: this was taken out to save space; it is entry #"


def manager(*stages: Any, **settings: Any) -> MemoryManager:
    """Five rounds of a question, a call, its result and an answer; then a question and an open call."""
    config = MemoryConfig(strategy=stages, auto_compress=False, recent_window=0, **settings)
    memory = MemoryManager(counter="chars4", config=config)
    memory.add_system_message(S, "be brief", id="head")
    for n in range(5):
        memory.add_user_message(S, f"{n} " + "abc " * 50, id=f"q{n}")
        memory.add_tool_call(S, "ls", {"n": n}, call_id=f"c{n}", id=f"call{n}")
        memory.add_tool_result(S, "ls", f"{n} " + "out " * 50, call_id=f"c{n}", id=f"result{n}")
        memory.add_assistant_message(S, f"{n} " + "abc " * 20, id=f"a{n}")
    memory.add_user_message(S, "go on", id="question")
    memory.add_tool_call(S, "wait", {}, call_id="open", id="open")
    memory.add_assistant_message(S, "one moment", id="newest")
    return memory


def compressed(stage: Any) -> MemoryManager:
    memory = manager(stage)
    result = memory.compress(S, target_tokens=10)
    assert result.compression_id is not None
    assert result.tokens_after == memory.get_stats(S).active_tokens
    assert check(memory.build_context(S).messages, "openai-chat") == []
    memory.undo_compression(S)
    assert len(memory.get_active_entries(S)) == 24
    memory.compress(S, target_tokens=10)
    return memory


def ids(memory: MemoryManager) -> list[str]:
    return [entry.id for entry in memory.get_active_entries(S)]


# ---------------------------------------------------------------- what a step may do


def test_drop_takes_the_whole_exchange_of_each_entry() -> None:
    memory = compressed(lambda view, goal, make_entry: view.drop(["result1", "q0"]))
    assert ids(memory)[:3] == ["head", "call0", "result0"]
    assert not {"q0", "call1", "result1"} & set(ids(memory))


def test_stub_leaves_an_exchange_whole_and_names_the_original() -> None:
    memory = compressed(lambda view, goal, make_entry: view.stub(["result2"], make_entry))
    [stub] = [entry for entry in memory.get_active_entries(S) if entry.text.startswith(STUBBED)]
    original = memory.get_entry(S, "result2")
    assert stub.text == f"{STUBBED}{original.seq}, {original.token_count.tokens} tokens]"
    assert (stub.type, stub.call_id, stub.name) == ("tool_result", "c2", "ls")


def test_stub_takes_a_text_of_ones_own() -> None:
    memory = compressed(
        lambda view, goal, make_entry: view.stub(["q1", "a1"], make_entry, "(gone)")
    )
    assert [e.role for e in memory.get_active_entries(S) if e.text == "(gone)"] == [
        "user",
        "assistant",
    ]


def test_replace_puts_one_summary_in_place_of_exchanges_wherever_they_stand() -> None:
    wanted = ["q0", "call0", "a1", "q3"]
    memory = compressed(
        lambda view, goal, make_entry: view.replace(wanted, "They listed files.", make_entry)
    )
    [summary] = memory.get_summaries(S)
    assert summary.content == "They listed files."
    assert set(summary.original_entry_ids) == {"q0", "call0", "result0", "a1", "q3"}
    assert [entry.type for entry in memory.get_active_entries(S)][1] == "summary"
    assert "entries 3-15" in memory.build_context(S).messages[1]["content"]


def test_what_a_summary_spoke_for_goes_with_it() -> None:
    def replace(view: View, goal: Any, make_entry: Any) -> View:
        wanted = [entry.id for entry in view.shown("old")]
        return view.replace(wanted, "what was", make_entry)

    def drop(view: View, goal: Any, make_entry: Any) -> View:
        return view.drop([entry.id for entry in view.shown() if entry.type == "summary"])

    memory = manager(replace, drop)
    memory.pin(S, "a2")  # in the middle: the summary speaks for what stands after it too
    result = memory.compress(S, target_tokens=10)
    assert {item.method for item in result.replacements} == {"drop"}
    assert [item.into for item in result.replacements] == [None] * len(result.replacements)
    assert ids(memory) == ["head", "a2", "question", "open", "newest"]


def test_steps_of_ones_own_and_memmans_work_on_one_another() -> None:
    def replace(view: View, goal: Any, make_entry: Any) -> View:
        first = [entry.id for entry in view.shown("old") if entry.seq <= 9]
        return view.replace([*first, "a3"], "what was", make_entry)

    memory = manager(replace, "summarise", drop_oldest, min_entries_to_compress=1)
    memory.compress(S, target_tokens=150)
    restored = MemoryManager(counter="chars4")
    restored.import_session(memory.export_session(S))
    assert ids(restored) == ids(memory)
    assert memory.get_stats(S).active_tokens <= 150


def test_shown_says_what_may_go() -> None:
    seen: dict[str, list[str]] = {}

    def look(view: View, goal: Any, make_entry: Any) -> None:
        for standing in ("old", "recent", "newest", "fixed"):
            seen[standing] = [entry.id for entry in view.shown(standing)]
        seen["all"] = [entry.id for entry in view.shown()]

    memory = manager(look)
    memory.compress(S, target_tokens=10)
    assert seen["fixed"] == ["head", "question", "open"]
    assert (seen["newest"], seen["recent"]) == (["newest"], [])
    assert seen["all"] == ids(memory)
    assert len(seen["old"]) == 20


def test_nothing_and_the_same_view_are_no_change() -> None:
    for stage in (lambda view, goal, make_entry: None, lambda view, goal, make_entry: view):
        assert manager(stage).compress(S, target_tokens=10).compression_id is None


def test_a_dry_run_shows_what_a_step_of_ones_own_would_do() -> None:
    memory = manager(lambda view, goal, make_entry: view.drop(["q0"]))
    plan = memory.plan_compression(S, target_tokens=10)
    assert [row.entry_id for row in plan.entries if row.action == "drop"] == ["q0"]
    assert ids(memory)[1] == "q0"


# ---------------------------------------------------------------- what a step may not do


def at(view: View, number: int, group: Any) -> View:
    return view.with_groups(
        [*view.groups[:number], *([group] if group else []), *view.groups[number + 1 :]]
    )


def foreign(view: View, goal: Any, make_entry: Any) -> View:
    slot = view.groups[1].window_items[0]
    other = msgspec.structs.replace(slot, entry=msgspec.structs.replace(slot.entry, id="other"))
    return at(view, 1, view.groups[1].with_items([Item((other,), None, 0, "drop")]))


def overlapping(view: View, goal: Any, make_entry: Any) -> View:
    first, second = view.groups[1], view.groups[4]
    return at(
        view,
        4,
        second.with_items([Item((*first.window_items, *second.window_items), None, 0, "drop")]),
    )


def swapped(view: View, goal: Any, make_entry: Any) -> View:
    head, first, second, *rest = view.groups
    return view.with_groups([head, second, first, *rest]).drop(["q4"])


def orphaned(view: View, goal: Any, make_entry: Any) -> View:
    call, result = view.groups[2].items
    return at(view, 2, view.groups[2].with_items([Item(call.run, None, 0, "drop"), result]))


def torn(view: View, goal: Any, make_entry: Any) -> View:
    exchange = view.groups[2]
    parts = [
        msgspec.structs.replace(
            exchange, window_items=(slot,), tokens=slot.tokens, entries=1, results=n, made=None
        )
        for n, slot in enumerate(exchange.window_items)
    ]
    return view.with_groups([*view.groups[:2], *parts, *view.groups[3:]]).drop(["q4"])


def disguised(view: View, goal: Any, make_entry: Any) -> View:
    call, result = view.groups[2].items
    made = make_entry(NewEntry(type="message", role="user", content="x"))
    return at(view, 2, view.groups[2].with_items([call, result.replaced(made, "stub")]))


def pinned(view: View, goal: Any, make_entry: Any) -> View:
    made = make_entry(NewEntry(type="message", role="system", content=""))
    return at(view, 0, view.groups[0].with_items([view.groups[0].items[0].replaced(made, "stub")]))


def newest_gone(view: View, goal: Any, make_entry: Any) -> View:
    return at(view, len(view.groups) - 1, view.groups[-1].gone())


def freed(view: View, goal: Any, make_entry: Any) -> View:
    return at(view.drop(["q4"]), 0, msgspec.structs.replace(view.groups[0], standing="old"))


def uncounted(view: View, goal: Any, make_entry: Any) -> View:
    item = view.groups[1].items[0]
    made = msgspec.structs.replace(item.entry, id="mine", content="x", token_count=TokenCount(1))
    return at(view, 1, view.groups[1].with_items([item.replaced(made, "stub")]))


def edited(view: View, goal: Any, make_entry: Any) -> View:
    item = view.groups[1].items[0]
    made = msgspec.structs.replace(item.entry, content="x", token_count=TokenCount(1))
    return at(view, 1, view.groups[1].with_items([Item(item.run, made, 1)]))


def cheaper(view: View, goal: Any, make_entry: Any) -> View:
    item = view.groups[1].items[0]
    made = make_entry(NewEntry(type="message", role="user", content="abc " * 10))
    return at(view, 1, view.groups[1].with_items([Item(item.run, made, 1, "stub")]))


def twice(view: View, goal: Any, make_entry: Any) -> View:
    made = make_entry(NewEntry(type="message", role="user", content="x"))
    changed = view
    for number in (1, 4):
        item = view.groups[number].items[0]
        changed = at(changed, number, view.groups[number].with_items([item.replaced(made, "stub")]))
    return changed


def unsaid(view: View, goal: Any, make_entry: Any) -> View:
    item = view.groups[1].items[0]
    return at(view, 1, view.groups[1].with_items([Item(item.run, None, 0, "forget")]))  # type: ignore[arg-type]


def into_nothing(view: View, goal: Any, make_entry: Any) -> View:
    item = view.groups[1].items[0]
    return at(view, 1, view.groups[1].with_items([Item(item.run, None, 0, "digest", "nobody")]))


def wrong_sums(view: View, goal: Any, make_entry: Any) -> View:
    return msgspec.structs.replace(view.drop(["q0"]), tokens=1)


def wrong_group(view: View, goal: Any, make_entry: Any) -> View:
    changed = view.drop(["q0"])
    return at(changed, 1, msgspec.structs.replace(changed.groups[1], tokens=-5))


def surrogate(view: View, goal: Any, make_entry: Any) -> View:
    return view.stub(["q0"], make_entry, "bad \ud800")


def crafted_surrogate(view: View, goal: Any, make_entry: Any) -> View:
    item = view.groups[1].items[0]
    made = make_entry(NewEntry(type="message", role="user", content="bad \ud800"))
    return at(view, 1, view.groups[1].with_items([item.replaced(made, "stub")]))


def no_items(view: View, goal: Any, make_entry: Any) -> View:
    return at(view, 1, msgspec.structs.replace(view.groups[1], made=("x",)))


def items_of_ids(view: View, goal: Any, make_entry: Any) -> View:
    return at(view, 1, view.groups[1].with_items([Item(("q0",), None, 0, "drop")]))  # type: ignore[arg-type]


def text_shown(view: View, goal: Any, make_entry: Any) -> View:
    item = Item(tuple(view.groups[1].window_items), "x", 0, "stub")  # type: ignore[arg-type]
    return at(view, 1, view.groups[1].with_items([item]))


def instead(new_entry: NewEntry, method: Any = "digest", into: str | None = None) -> Any:
    """A step that puts an entry of this draft in place of the first exchange with a tool."""

    def step(view: View, goal: Any, make_entry: Any) -> View:
        exchange = view.groups[2]
        made = make_entry(new_entry)
        item = Item(tuple(exchange.window_items), made, made.token_count.tokens, method, into)
        return at(view, 2, exchange.with_items([item]))

    return step


def nothing(run: Any = None, method: Any = "drop", tokens: int = 0) -> Any:
    """A step that shows nothing in place of the first question, in some wrong way."""

    def step(view: View, goal: Any, make_entry: Any) -> View:
        item = Item(view.groups[1].window_items if run is None else run, None, tokens, method)
        return at(view, 1, view.groups[1].with_items([item]))

    return step


def told(**fields: Any) -> NewEntry:
    return NewEntry(**{"type": "summary", "role": "system", "content": "x"} | fields)


FAULTS: dict[str, tuple[Any, str]] = {
    "an empty run": (nothing(run=()), "no tuple of slots"),
    "nothing as a stub": (nothing(method="stub"), "shows nothing by the method 'stub'"),
    "nothing that costs": (nothing(tokens=3), "or has tokens for it"),
    "a result alone": (
        instead(told(type="tool_result", role="tool", call_id="c0")),
        "where it cannot stand",
    ),
    "a call alone": (
        instead(told(type="tool_call", role="assistant", name="ls")),
        "where it cannot stand",
    ),
    "a part of a message": (instead(told(message_id="m")), "where it cannot stand"),
    "a drop that shows": (instead(told(), "drop"), "where it cannot stand"),
    "two places": (instead(told(), "digest", "q4"), "where it cannot stand"),
    "a kind that is none": (instead(told(type="note")), "cannot be a 'note'"),
    "a role that is none": (instead(told(role="critic")), "of the role 'critic'"),
    "a raw": (instead(told(raw_json=msgspec.Raw(b"{}"))), "has no raw"),
    "metadata": (
        instead(told(type="message", metadata_json=msgspec.Raw(b"{}"))),
        "has no metadata",
    ),
    "a summary of what": (
        instead(told(metadata_json=msgspec.Raw(b'{"first": 1}'))),
        "raised ValidationError",
    ),
    "a list": (lambda v, g, c: list(v.groups), "returned list, not a View"),
    "ids": (lambda v, g, c: ("q0",), "returned tuple, not a View"),
    "true": (lambda v, g, c: True, "returned bool, not a View"),
    "raises": (lambda v, g, c: 1 / 0, "raised ZeroDivisionError"),
    "no arguments": (lambda: None, "raised TypeError"),
    "other groups": (lambda v, g, c: View(("x",), 0, 0), "has str where a Group belongs"),
    "no groups": (lambda v, g, c: View(None, 0, 0), "has NoneType where a Group belongs"),
    "other items": (no_items, "where an Item belongs"),
    "a run of ids": (items_of_ids, "no tuple of slots"),
    "text for an entry": (text_shown, "shows str where an Entry belongs"),
    "a lost entry": (lambda v, g, c: at(v, 1, None), "lost the entry 'q0'"),
    "a foreign entry": (foreign, "'other', which is not of this window"),
    "an overlap": (overlapping, "stands for the entry 'q0' twice"),
    "another order": (swapped, "changed the order"),
    "an orphan": (orphaned, "split the exchange of the entry 'call0'"),
    "an exchange in two": (torn, "the exchange of the entry 'call0'"),
    "a result that is none": (disguised, "split the exchange of the entry 'call0'"),
    "a pinned entry": (pinned, "'head', which is fixed"),
    "the newest": (newest_gone, "'newest', whose exchange is newest"),
    "a standing": (freed, "changed how the exchange of the entry 'head' stands"),
    "an entry of its own": (uncounted, "`craft` did not make: 'mine'"),
    "an edited entry": (edited, "without saying by which method"),
    "a price of its own": (cheaper, "other tokens than it has"),
    "an entry twice": (twice, "twice"),
    "an unknown method": (unsaid, "names the method 'forget'"),
    "a missing summary": (into_nothing, "goes into 'nobody'"),
    "wrong totals": (wrong_sums, "has wrong totals"),
    "a group's totals": (wrong_group, "a group with wrong totals"),
    "more than before": (lambda v, g, c: v.replace(["a4"], "abc " * 500, c), "more than the"),
    "an unknown id": (lambda v, g, c: v.drop(["nope"]), "'nope' is not shown in this view"),
    "a fixed id": (lambda v, g, c: v.drop(["head"]), "'head' may not go: its exchange is fixed"),
    "an open call": (lambda v, g, c: v.stub(["open"], c), "'open' may not go"),
    "the newest id": (lambda v, g, c: v.replace(["newest"], "x", c), "'newest' may not go"),
    "a call's arguments": (lambda v, g, c: v.stub(["call1"], c), "'call1' is a tool call"),
    "a lone surrogate": (surrogate, "lone surrogate"),
    "a crafted surrogate": (crafted_surrogate, "lone surrogate"),
    "a draft that is none": (lambda v, g, c: c("text"), "craft takes a Draft, not str"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_step_that_is_wrong_is_named_and_changes_nothing(name: str) -> None:
    stage, problem = FAULTS[name]

    def my_stage(*given: Any) -> Any:
        return stage(*given)

    memory = manager(my_stage, drop_oldest)
    before = memory.export_session(S)
    for act in (memory.compress, memory.plan_compression):
        with pytest.raises(CompressionFailed, match="the stage my_stage") as failed:
            act(S, target_tokens=10)
        assert problem in str(failed.value)
    assert memory.export_session(S) == before


def test_a_view_of_another_session_is_refused() -> None:
    views: list[View] = []

    def keep(view: View, goal: Any, make_entry: Any) -> View:
        views.append(view)
        return views[0].drop(["q0"])

    manager(keep).compress(S, target_tokens=10)
    with pytest.raises(CompressionFailed, match="not of this window"):
        manager(keep).compress(S, target_tokens=10)


def test_a_step_without_a_name_is_shown_as_it_is() -> None:
    class Broken:
        def __repr__(self) -> str:
            return "Broken(7)"

        def __call__(self, view: View, goal: Any, make_entry: Any) -> Any:
            return 7

    with pytest.raises(CompressionFailed, match=r"the stage Broken\(7\) returned int"):
        manager(Broken()).compress(S, target_tokens=10)


def test_an_async_step_is_refused_with_the_settings() -> None:
    async def waits(view: View, goal: Any, make_entry: Any) -> None:
        """Never called."""

    for make in (MemoryManager, AsyncMemoryManager):
        with pytest.raises(ConfigError, match="a stage is a plain function"):
            make(config=MemoryConfig(strategy=(waits,)))


def test_an_add_goes_on_when_a_step_is_wrong_and_tells_of_it() -> None:
    heard: list[str] = []

    def receive(_: Any, event: Any) -> None:
        heard.append(event.reason)

    memory = manager(lambda view, goal, make_entry: 7)
    memory.update_config(auto_compress=True, max_tokens=200)
    with signals.compression_failed.connected_to(receive, sender=memory):
        entry = memory.add_user_message(S, "and then?")
    assert "returned int, not a View" in heard[0]
    assert memory.get_entries(S)[-1].id == entry.id
    assert memory.build_context(S).tokens.tokens <= 200


def failing(clock: FakeClock, **settings: Any) -> tuple[MemoryManager, list[None], list[Any]]:
    """A session over its limit whose only step raises; its runs, and what was told of it."""
    runs: list[None] = []
    told: list[Any] = []

    def broken(view: View, goal: Any, make_entry: Any) -> None:
        runs.append(None)
        raise KeyError("no such thing")

    memory = MemoryManager(
        counter="chars4",
        clock=clock,
        config=MemoryConfig(strategy=(broken,), max_tokens=1_000, max_entries=None, **settings),
    )
    signals.compression_failed.connect(
        lambda _, event: told.append(event), sender=memory, weak=False
    )
    memory.add_user_message(S, "abc " * 1_001)
    return memory, runs, told


def test_a_strategy_that_fails_is_run_by_adds_after_a_pause_that_grows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    memory, runs, told = failing(clock)
    pauses = []
    for failures in range(1, 7):
        assert len(runs) == len(told) == len(caplog.records) == failures
        assert told[-1].failures == failures
        assert "KeyError" in told[-1].reason
        pauses.append((told[-1].retry_at - clock()).total_seconds())
        for _ in range(10):
            memory.add_user_message(S, "a little more")
        clock.advance(timedelta(seconds=pauses[-1]))
        memory.add_user_message(S, "after the pause")
    assert pauses == [15, 30, 60, 120, 240, 300]


def test_much_that_is_new_ends_the_first_two_pauses_of_a_strategy_and_no_later_one() -> None:
    memory, runs, _ = failing(FakeClock())
    for _ in range(30):
        memory.add_user_message(S, "abc " * 200)
    assert len(runs) == 3


def test_by_hand_and_with_other_steps_a_strategy_is_run_at_once() -> None:
    memory, runs, told = failing(FakeClock())
    for _ in range(4):
        with pytest.raises(CompressionFailed, match="KeyError"):
            memory.compress(S)
    memory.add_user_message(S, "and more")
    assert len(runs) == 5
    memory.update_config(strategy=(drop_oldest,))
    memory.add_user_message(S, "abc " * 500)
    assert len(memory.get_active_entries(S)) < 3
    assert len(told) == 1


def test_a_step_that_works_again_ends_what_was_noted() -> None:
    clock = FakeClock()
    answers: list[Any] = [7, 7, None, 7]
    told: list[Any] = []
    config = MemoryConfig(
        strategy=(lambda view, goal, make_entry: answers.pop(0),),
        max_tokens=1_000,
        max_entries=None,
    )
    memory = MemoryManager(counter="chars4", clock=clock, config=config)
    with signals.compression_failed.connected_to(
        lambda _, event: told.append(event.failures), sender=memory
    ):
        for _ in range(4):
            memory.add_user_message(S, "abc " * 1_001)
            clock.advance(timedelta(seconds=60))
    assert told == [1, 2, 1]


def test_the_async_manager_checks_steps_too() -> None:
    async def run() -> None:
        config = MemoryConfig(strategy=(lambda view, goal, make_entry: 7,))
        memory = AsyncMemoryManager(counter="chars4", config=config)
        await memory.add_user_message(S, "abc " * 50)
        await memory.add_user_message(S, "abc")
        with pytest.raises(CompressionFailed, match="not a View"):
            await memory.compress(S, target_tokens=1)

    asyncio.run(run())


def test_memmans_own_steps_may_be_called_by_ones_own() -> None:
    def own(view: View, goal: Any, make_entry: Any) -> View:
        for stage in (clear_tool_results, fold_repeats, drop_oldest, clip_large, clip_rest):
            view = stage(view, goal, make_entry) or view
        return view

    memory = manager(own, max_tokens=300)
    memory.add_tool_call(S, "wait", {"for": "abc " * 500}, call_id="long")
    memory.compress(S, target_tokens=40)
    assert memory.get_stats(S).active_tokens <= 300


def test_memmans_own_steps_are_not_checked_when_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> str:
        raise AssertionError("checked")

    monkeypatch.setattr("memman.compression.plan.fault_of", never)
    memory = manager(fold_repeats, drop_oldest)
    assert memory.compress(S, target_tokens=10).compression_id is not None


def test_a_step_may_put_an_entry_of_its_own_making_in_place_of_an_exchange() -> None:
    for new_entry in (
        told(),
        told(type="message", role="assistant"),
        told(type="context", name="x"),
    ):
        memory = compressed(instead(new_entry))
        assert memory.get_active_entries(S)[2].text == "x"
        restored = MemoryManager(counter="chars4")
        restored.import_session(memory.export_session(S))
        assert ids(restored) == ids(memory)
        result = memory.compress(S, target_tokens=10)  # and what it made may be replaced again
        assert result.tokens_after <= result.tokens_before
