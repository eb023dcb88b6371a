"""Third-party stages: their operations; a faulty stage is named and changes nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from memman import AsyncMemoryManager, CompressionFailed, ConfigError, MemoryConfig, MemoryManager
from memman import events as signals
from memman.compression import Item, View, clip_large, clip_rest, drop_oldest, fold_repeats
from memman.compression.stages import clear_tool_results
from memman.entries import NewEntry
from memman.formats.rules import check
from memman.testing import FakeClock

S = "s"
STUBBED = "[memman: this was taken out to save space; it is entry #"


def manager(*stages: Any, **settings: Any) -> MemoryManager:
    """Return five rounds of question, call, result and answer; then a question and an open call."""
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


# ---------------------------------------------------------------- allowed operations


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


def test_stub_accepts_a_text() -> None:
    memory = compressed(
        lambda view, goal, make_entry: view.stub(["q1", "a1"], make_entry, "(gone)")
    )
    assert [e.role for e in memory.get_active_entries(S) if e.text == "(gone)"] == [
        "user",
        "assistant",
    ]


def test_replace_puts_one_summary_in_place_of_separate_exchanges() -> None:
    wanted = ["q0", "call0", "a1", "q3"]
    memory = compressed(
        lambda view, goal, make_entry: view.replace(wanted, "They listed files.", make_entry)
    )
    [summary] = memory.get_summaries(S)
    assert summary.content == "They listed files."
    assert set(summary.original_entry_ids) == {"q0", "call0", "result0", "a1", "q3"}
    assert [entry.type for entry in memory.get_active_entries(S)][1] == "summary"
    assert "entries 3-15" in memory.build_context(S).messages[1]["content"]


def test_dropping_a_summary_drops_the_pieces_it_covers() -> None:
    def replace(view: View, goal: Any, make_entry: Any) -> View:
        wanted = [entry.id for entry in view.shown("old")]
        return view.replace(wanted, "what was", make_entry)

    def drop(view: View, goal: Any, make_entry: Any) -> View:
        return view.drop([entry.id for entry in view.shown() if entry.type == "summary"])

    memory = manager(replace, drop)
    memory.pin(S, "a2")  # in the middle: the summary covers the following run too
    result = memory.compress(S, target_tokens=10)
    assert {item.method for item in result.replacements} == {"drop"}
    assert [item.into for item in result.replacements] == [None] * len(result.replacements)
    assert ids(memory) == ["head", "a2", "question", "open", "newest"]


def test_third_party_and_built_in_stages_can_be_combined() -> None:
    def replace(view: View, goal: Any, make_entry: Any) -> View:
        first = [entry.id for entry in view.shown("old") if entry.seq <= 9]
        return view.replace([*first, "a3"], "what was", make_entry)

    memory = manager(replace, "summarise", drop_oldest, min_entries_to_compress=1)
    memory.compress(S, target_tokens=150)
    restored = MemoryManager(counter="chars4")
    restored.import_session(memory.export_session(S))
    assert ids(restored) == ids(memory)
    assert memory.get_stats(S).active_tokens <= 150


def test_shown_filters_by_status() -> None:
    seen: dict[str, list[str]] = {}

    def look(view: View, goal: Any, make_entry: Any) -> None:
        for status in ("old", "recent", "newest", "protected"):
            seen[status] = [entry.id for entry in view.shown(status)]
        seen["all"] = [entry.id for entry in view.shown()]

    memory = manager(look)
    memory.compress(S, target_tokens=10)
    assert seen["protected"] == ["head", "question", "open"]
    assert (seen["newest"], seen["recent"]) == (["newest"], [])
    assert seen["all"] == ids(memory)
    assert len(seen["old"]) == 20


def test_none_and_the_same_view_change_nothing() -> None:
    for stage in (lambda view, goal, make_entry: None, lambda view, goal, make_entry: view):
        assert manager(stage).compress(S, target_tokens=10).compression_id is None


def test_plan_shows_what_a_third_party_stage_would_do() -> None:
    memory = manager(lambda view, goal, make_entry: view.drop(["q0"]))
    plan = memory.plan_compression(S, target_tokens=10)
    assert [row.entry_id for row in plan.entries if row.action == "drop"] == ["q0"]
    assert ids(memory)[1] == "q0"


# ---------------------------------------------------------------- refused operations


def at(view: View, number: int, group: Any) -> View:
    return View.of([*view.groups[:number], *([group] if group else []), *view.groups[number + 1 :]])


def foreign(view: View, goal: Any, make_entry: Any) -> View:
    item = view.groups[1].window_items[0]
    other = msgspec.structs.replace(item, entry=msgspec.structs.replace(item.entry, id="other"))
    return at(view, 1, view.groups[1].with_items([Item((other,), None, 0, "drop")]))


def overlapping(view: View, goal: Any, make_entry: Any) -> View:
    first, second = view.groups[1], view.groups[4]
    both = (*first.window_items, *second.window_items)
    return at(view, 4, second.with_items([Item(both, None, 0, "drop")]))


def swapped(view: View, goal: Any, make_entry: Any) -> View:
    head, first, second, *rest = view.groups
    return View.of([head, second, first, *rest]).drop(["q4"])


def orphaned(view: View, goal: Any, make_entry: Any) -> View:
    call, result = view.groups[2].items
    return at(view, 2, view.groups[2].with_items([Item(call.run, None, 0, "drop"), result]))


def torn(view: View, goal: Any, make_entry: Any) -> View:
    exchange = view.groups[2]
    parts = [exchange.with_items([item]) for item in exchange.items]
    return View.of([*view.groups[:2], *parts, *view.groups[3:]]).drop(["q4"])


def disguised(view: View, goal: Any, make_entry: Any) -> View:
    call, result = view.groups[2].items
    made = make_entry(NewEntry(type="message", role="user", content="x"))
    return at(view, 2, view.groups[2].with_items([call, result.replaced(made, "stub")]))


def pinned(view: View, goal: Any, make_entry: Any) -> View:
    made = make_entry(NewEntry(type="message", role="system", content=""))
    return at(view, 0, view.groups[0].with_items([view.groups[0].items[0].replaced(made, "stub")]))


def newest_removed(view: View, goal: Any, make_entry: Any) -> View:
    return at(view, len(view.groups) - 1, view.groups[-1].removed("drop"))


def freed(view: View, goal: Any, make_entry: Any) -> View:
    return at(view.drop(["q4"]), 0, msgspec.structs.replace(view.groups[0], status="old"))


def surrogate(view: View, goal: Any, make_entry: Any) -> View:
    return view.stub(["q0"], make_entry, "bad \ud800")


FAULTS: dict[str, tuple[Any, str]] = {
    "a list": (lambda v, g, m: list(v.groups), "returned list, not a View"),
    "true": (lambda v, g, m: True, "returned bool, not a View"),
    "raises": (lambda v, g, m: 1 / 0, "raised ZeroDivisionError"),
    "no arguments": (lambda: None, "raised TypeError"),
    "no groups": (lambda v, g, m: View(("x",), 0, 0), "raised AttributeError"),
    "a lost entry": (lambda v, g, m: at(v, 1, None), "lost, repeated or moved the entry 'q0'"),
    "a foreign entry": (foreign, "lost, repeated or moved the entry 'q0'"),
    "an overlap": (overlapping, "lost, repeated or moved the entry 'q1'"),
    "another order": (swapped, "lost, repeated or moved the entry 'q0'"),
    "an orphan": (orphaned, "removed the exchange of the entry 'call0', which is old, or a part"),
    "an exchange in two": (torn, "split or joined the exchange of the entry 'call0'"),
    "not a result": (disguised, "removed the exchange of the entry 'call0'"),
    "a pinned entry": (pinned, "replaced an entry in the exchange of the entry 'head'"),
    "the newest": (newest_removed, "removed the exchange of the entry 'newest', which is newest"),
    "a status": (freed, "the exchange of the entry 'head', or changed its status"),
    "more than before": (lambda v, g, m: v.replace(["a4"], "abc " * 500, m), "more than the"),
    "an unknown id": (lambda v, g, m: v.drop(["nope"]), "'nope' is not shown in this view"),
    "a protected id": (
        lambda v, g, m: v.drop(["head"]),
        "'head' cannot be removed: its exchange is protected",
    ),
    "an open call": (lambda v, g, m: v.stub(["open"], m), "'open' cannot be removed"),
    "the newest id": (lambda v, g, m: v.replace(["newest"], "x", m), "'newest' cannot be removed"),
    "a call's arguments": (lambda v, g, m: v.stub(["call1"], m), "'call1' is a tool call"),
    "a lone surrogate": (surrogate, "lone surrogate"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faulty_stage_is_named_and_changes_nothing(name: str) -> None:
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


def test_view_of_another_session_is_rejected() -> None:
    views: list[View] = []

    def keep(view: View, goal: Any, make_entry: Any) -> View:
        views.append(view)
        return views[0].drop(["q0"])

    manager(keep).compress(S, target_tokens=10)
    with pytest.raises(CompressionFailed, match="lost, repeated or moved"):
        manager(keep).compress(S, target_tokens=10)


def test_nameless_faulty_stage_is_shown_by_its_repr() -> None:
    class Broken:
        def __repr__(self) -> str:
            return "Broken(7)"

        def __call__(self, view: View, goal: Any, make_entry: Any) -> Any:
            return 7

    with pytest.raises(CompressionFailed, match=r"the stage Broken\(7\) returned int"):
        manager(Broken()).compress(S, target_tokens=10)


def test_async_stage_is_rejected_with_the_settings() -> None:
    async def waits(view: View, goal: Any, make_entry: Any) -> None:
        """Fail: this stage is never called."""

    for make in (MemoryManager, AsyncMemoryManager):
        with pytest.raises(ConfigError, match="a stage is a plain function"):
            make(config=MemoryConfig(strategy=(waits,)))


def test_add_succeeds_and_emits_event_when_stage_is_faulty() -> None:
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
    """Return a session over its limit whose only stage raises, its runs and its events."""
    runs: list[None] = []
    emitted: list[Any] = []

    def broken(view: View, goal: Any, make_entry: Any) -> None:
        runs.append(None)
        raise KeyError("no such thing")

    memory = MemoryManager(
        counter="chars4",
        clock=clock,
        config=MemoryConfig(strategy=(broken,), max_tokens=1_000, max_entries=None, **settings),
    )
    signals.compression_failed.connect(
        lambda _, event: emitted.append(event), sender=memory, weak=False
    )
    memory.add_user_message(S, "abc " * 1_001)
    return memory, runs, emitted


def test_failing_strategy_is_retried_after_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    memory, runs, emitted = failing(clock)
    pauses = []
    for failures in range(1, 7):
        assert len(runs) == len(emitted) == len(caplog.records) == failures
        assert emitted[-1].failures == failures
        assert "KeyError" in emitted[-1].reason
        pauses.append((emitted[-1].retry_at - clock()).total_seconds())
        for _ in range(10):
            memory.add_user_message(S, "a little more")
        clock.advance(timedelta(seconds=pauses[-1]))
        memory.add_user_message(S, "after the pause")
    assert pauses == [15, 30, 60, 120, 240, 300]


def test_many_new_tokens_end_only_the_first_two_pauses() -> None:
    memory, runs, _ = failing(FakeClock())
    for _ in range(30):
        memory.add_user_message(S, "abc " * 200)
    assert len(runs) == 3


def test_manual_compression_and_new_strategy_ignore_the_pause() -> None:
    memory, runs, emitted = failing(FakeClock())
    for _ in range(4):
        with pytest.raises(CompressionFailed, match="KeyError"):
            memory.compress(S)
    memory.add_user_message(S, "and more")
    assert len(runs) == 5
    memory.update_config(strategy=(drop_oldest,))
    memory.add_user_message(S, "abc " * 500)
    assert len(memory.get_active_entries(S)) < 3
    assert len(emitted) == 1


def test_successful_stage_resets_the_failure_count() -> None:
    clock = FakeClock()
    answers: list[Any] = [7, 7, None, 7]
    emitted: list[Any] = []
    config = MemoryConfig(
        strategy=(lambda view, goal, make_entry: answers.pop(0),),
        max_tokens=1_000,
        max_entries=None,
    )
    memory = MemoryManager(counter="chars4", clock=clock, config=config)
    with signals.compression_failed.connected_to(
        lambda _, event: emitted.append(event.failures), sender=memory
    ):
        for _ in range(4):
            memory.add_user_message(S, "abc " * 1_001)
            clock.advance(timedelta(seconds=60))
    assert emitted == [1, 2, 1]


def test_async_manager_validates_stages() -> None:
    async def run() -> None:
        config = MemoryConfig(strategy=(lambda view, goal, make_entry: 7,))
        memory = AsyncMemoryManager(counter="chars4", config=config)
        await memory.add_user_message(S, "abc " * 50)
        await memory.add_user_message(S, "abc")
        with pytest.raises(CompressionFailed, match="not a View"):
            await memory.compress(S, target_tokens=1)

    asyncio.run(run())


def test_built_in_stages_can_be_called_by_a_third_party_stage() -> None:
    def own(view: View, goal: Any, make_entry: Any) -> View:
        for stage in (clear_tool_results, fold_repeats, drop_oldest, clip_large, clip_rest):
            view = stage(view, goal, make_entry) or view
        return view

    memory = manager(own, max_tokens=300)
    memory.add_tool_call(S, "wait", {"for": "abc " * 500}, call_id="long")
    memory.compress(S, target_tokens=40)
    assert memory.get_stats(S).active_tokens <= 300
