"""The requirements of an agent memory, R1 to R20, each by its number.

R13, R16 to R18 belong to the counters and formats and are tested with them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from memman import (
    AsyncMemoryManager,
    BudgetExceeded,
    CompressionFailed,
    IdConflict,
    MemoryConfig,
    MemoryManager,
    PluginNotFound,
    Refused,
    SessionNotFound,
    StateError,
    events,
)
from memman import config as settings_of
from memman.compression import clip_large, clip_rest, drop_oldest
from memman.config import resolve_budget
from memman.formats.rules import check
from memman.testing import FakeClock, ScriptedSummarizer, record_events
from memman.testing.formats import CONVERSATIONS
from tests.patience import PATIENCE

S = "s"


def words(text: str) -> int:
    return len(text.split())


PLAIN: dict[str, Any] = {
    "max_tokens": 100, "max_entries": None, "recent_window": 2, "min_entries_to_compress": 2,
    "compression_ratio": 0.9, "max_summary_ratio": 0.4, "summarize_timeout": None,
}  # fmt: skip


def manager(summarizer: Any = None, **settings: Any) -> MemoryManager:
    """Return a manager that counts words, with small settings by default."""
    own = {
        key: settings.pop(key) for key in ("counter", "redact", "store", "clock") if key in settings
    }
    config = MemoryConfig(**(PLAIN | settings))
    return MemoryManager(config=config, summarizer=summarizer, **({"counter": words} | own))


def fill(
    memory: MemoryManager, entries: int, size: int = 9, compress: bool | None = False
) -> list[str]:
    """Add user messages of `size + 1` words; return their ids."""
    return [
        memory.add_user_message(S, f"n{n} " + "word " * size, compress=compress).id
        for n in range(entries)
    ]


# ---------------------------------------------------------------- R1 to R4: compressing


@pytest.mark.parametrize(
    "reply",
    [OSError("429"), "", " \n", lambda request: request.prompt + " and more" * 50, TimeoutError()],
    ids=["raises", "empty", "blank", "longer than its input", "times out"],
)
@pytest.mark.parametrize("on_failure", ["keep", "raise"])
def test_r1_failed_summary_changes_nothing(reply, on_failure):
    memory = manager(ScriptedSummarizer(reply), on_failure=on_failure)
    fill(memory, 20)
    before = memory.export_session(S).to_json(), memory.get_active_entries(S)
    with record_events(memory) as emitted:
        try:
            result = memory.compress(S)
            assert on_failure == "keep"
            assert result.compression_id is None
            assert "nothing was changed" in result.reason
        except CompressionFailed:
            assert on_failure == "raise"
    assert (memory.export_session(S).to_json(), memory.get_active_entries(S)) == before
    assert [type(event) for event in emitted] == [events.CompressionFailedNotice]


def test_r1_cancelled_summary_changes_nothing():
    async def cancelled() -> None:
        requested = asyncio.Event()

        async def never(prompt: str) -> str:
            requested.set()
            await asyncio.Event().wait()
            raise AssertionError("it was cancelled")

        memory = AsyncMemoryManager(config=MemoryConfig(**PLAIN), counter=words, summarizer=never)
        for n in range(20):
            await memory.add_user_message(S, f"n{n} " + "word " * 9, compress=False)
        before = (await memory.export_session(S)).to_json()
        task = asyncio.ensure_future(memory.compress(S))
        await asyncio.wait_for(requested.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await memory.export_session(S)).to_json() == before
        await memory.set_summarize_callback(None)
        assert (await asyncio.wait_for(memory.compress(S), 10)).compression_id is not None

    asyncio.run(cancelled())


def test_r1_slow_summary_changes_nothing():
    released = threading.Event()

    def slow(prompt: str) -> str:
        released.wait(2 * PATIENCE)
        return "too late"

    memory = manager(slow, on_failure="keep", summarize_timeout=0.05)
    fill(memory, 20)
    before = memory.export_session(S).to_json()
    assert "took longer than 0.05 s" in memory.compress(S).reason
    released.set()
    assert memory.export_session(S).to_json() == before


def test_r2_adds_during_a_compression_stay_in_order():
    def adding(prompt: str) -> str:
        for n in range(3):
            memory.add_user_message(S, f"meanwhile {n}", compress=False)
        return "short"

    memory = manager(adding)
    fill(memory, 20)
    assert memory.compress(S).compression_id is not None
    assert [e.text for e in memory.get_active_entries(S)][-3:] == [
        f"meanwhile {n}" for n in range(3)
    ]
    assert len(memory.get_entries(S)) == 23


def test_r2_session_has_one_compression_at_a_time():
    running: list[int] = []
    most: list[int] = []

    def slow(prompt: str) -> str:
        running.append(1)
        most.append(len(running))
        time.sleep(0.02)
        running.pop()
        return "short"

    memory = manager(slow)
    fill(memory, 30)
    threads = [threading.Thread(target=memory.compress, args=(S,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert max(most) == 1


@pytest.mark.parametrize("verb", ["clear_session", "delete_session"])
def test_r3_late_summary_is_discarded(verb):
    def clearing(prompt: str) -> str:
        getattr(memory, verb)(S)
        memory.add_user_message(S, "a new beginning", compress=False)
        return "the old conversation"

    memory = manager(clearing)
    fill(memory, 20)
    memory.set_summarize_callback(clearing)
    result = memory.compress(S)
    assert result.compression_id is None
    assert [entry.text for entry in memory.get_active_entries(S)] == ["a new beginning"]
    again = MemoryManager()
    again.import_session(memory.export_session(S))
    assert [entry.text for entry in again.get_active_entries(S)] == ["a new beginning"]


def test_r4_compression_reaches_the_target_or_has_a_reason():
    memory = manager(ScriptedSummarizer("short"))
    ids = fill(memory, 20)
    result = memory.compress(S)
    assert result.tokens_after <= 50
    assert memory.get_stats(S).active_tokens == result.tokens_after
    for entry in memory.get_active_entries(S):
        memory.pin(S, entry.id)
    assert "every entry is recent or protected" in memory.compress(S).reason
    assert "pinned" in memory.compress(S, target_tokens=1).reason
    assert set(ids) == {entry.id for entry in memory.get_entries(S)}


def test_r4_no_second_compression_without_new_entries():
    scripted = ScriptedSummarizer("short")
    memory = manager(scripted)
    fill(memory, 20)
    memory.compress(S)
    head, calls = len(memory.export_session(S).log), len(scripted.requests)
    assert memory.compress(S).compression_id is None
    assert (len(memory.export_session(S).log), len(scripted.requests)) == (head, calls)


@pytest.mark.parametrize("size", [3, 9, 30])
def test_r4_summarizer_is_called_once_per_filled_headroom(size):
    scripted = ScriptedSummarizer("short " * 10)
    memory = manager(scripted, max_tokens=400)
    fill(memory, 4_000 // size, size, compress=None)
    added = memory.get_stats(S).total_tokens
    assert 0 < len(scripted.requests) <= 1.1 * added / (400 - 200)


# ---------------------------------------------------------------- R5 to R8: the window


def test_r5_summaries_are_counted_capped_and_folded():
    memory = manager(lambda prompt: "word " * 20, max_tokens=100)
    for _ in range(40):
        fill(memory, 10, compress=None)
        stats = memory.get_stats(S)
        summaries = memory.get_summaries(S)
        assert stats.active_tokens <= 100
        assert len(summaries) <= 2
        assert sum(summary.token_count for summary in summaries) <= 0.4 * 50
    covered = {name for summary in memory.get_summaries(S) for name in summary.original_entry_ids}
    assert covered <= {entry.id for entry in memory.get_entries(S) if entry.compressed}


def _add_drafts(memory: MemoryManager, new_entries: Any) -> None:
    for d in new_entries:
        match d.type:
            case "tool_call":
                memory.add_tool_call(S, d.name, d.content, call_id=d.call_id,
                                     message_id=d.message_id)  # fmt: skip
            case "tool_result":
                memory.add_tool_result(S, d.name, d.content, call_id=d.call_id)
            case "context":
                memory.add_context(S, d.content, d.name)
            case "message":
                add = getattr(memory, f"add_{d.role}_message")
                add(S, d.content, message_id=d.message_id)


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("form", ["openai-chat", "anthropic"])
def test_r6_contexts_pair_every_call_with_its_result(name, form):
    memory = manager(auto_compress=False)
    _add_drafts(memory, CONVERSATIONS[name])
    for budget in (None, *range(5, 100, 7)):
        try:
            context = memory.build_context(S, format=form, budget=budget)
        except BudgetExceeded:
            continue
        assert not context.messages or check(context.messages, form, system=context.system) == []


def test_r6_newest_call_may_be_unanswered():
    memory = manager()
    fill(memory, 20)
    call = memory.add_tool_call(S, "find", "{}", call_id="c1")
    memory.compress(S, target_tokens=1)
    assert memory.get_active_entries(S)[-1].id == call.id
    memory.add_tool_result(S, "find", "found", call_id="c1")
    [*_, calling, answered] = memory.build_context(S).messages
    assert (calling["tool_calls"][0]["id"], answered["tool_call_id"]) == ("c1", "c1")


def test_r7_names_and_arguments_of_calls_are_counted():
    memory = manager(counter=len)
    call = memory.add_tool_call(S, "read_file", {"path": "a/long/path.py"})
    assert call.token_count.tokens == len("read_file") + len('{"path":"a/long/path.py"}')
    result = memory.add_tool_result(S, "read_file", "text of the file")
    assert result.token_count.tokens >= len("text of the file")


def test_r7_system_prompt_and_tools_are_counted():
    memory = manager(max_tokens=1_000)
    memory.add_user_message(S, "one two three")
    tools = [{"type": "function", "function": {"name": "f", "description": "word " * 30}}]
    plain = memory.build_context(S).tokens.tokens
    with_system = memory.build_context(S, system="be very brief").tokens.tokens
    with_tools = memory.build_context(S, tools=tools).tokens.tokens
    assert with_system >= plain + 3
    assert with_tools >= plain + 30


def test_r8_returned_objects_cannot_change_a_session():
    memory = manager(max_tokens=1_000)
    metadata = {"tags": ["a"]}
    entry = memory.add_user_message(S, "hello", metadata=metadata)
    call_arguments = {"path": ["x"]}
    memory.add_tool_call(S, "f", call_arguments)
    before = memory.export_session(S)
    held = before.to_json()
    metadata["tags"].append("b")
    call_arguments["path"].append("y")
    entry.metadata["tags"].append("c")
    memory.get_active_entries(S).clear()
    memory.get_entries(S).pop()
    context = memory.build_context(S)
    context.messages[0]["content"] = "changed"
    context.messages.clear()
    context.breakdown.clear()
    before.settings["max_tokens"] = 1
    with pytest.raises(AttributeError):
        entry.content = "changed"
    assert memory.export_session(S).to_json() == held
    assert memory.build_context(S).messages[0]["content"] == "hello"


# ---------------------------------------------------------------- R9 to R12: the life of a session


def test_r9_clear_resets_the_window_with_one_event():
    memory = manager()
    fill(memory, 20)
    memory.compress(S)
    memory.add_user_message("other", "untouched")
    other = memory.export_session("other")
    with record_events(memory) as emitted:
        memory.clear_session(S)
    stats = memory.get_stats(S)
    assert (stats.total_entries, stats.total_tokens, stats.active_tokens, stats.summaries) == (
        0,
    ) * 4
    assert memory.get_summaries(S) == memory.get_entries(S) == memory.get_active_entries(S) == []
    assert memory.export_session("other") == other
    assert emitted == [events.SessionCleared(session_id=S)]


def lived() -> MemoryManager:
    """Return a session with every kind of record."""
    memory = manager(ScriptedSummarizer("short"), max_tokens=200)
    memory.add_system_message(S, "Be brief.")
    ids = fill(memory, 12)
    memory.compress(S, target_tokens=60)
    memory.undo_compression(S)
    memory.pin(S, ids[3])
    memory.compress(S, target_tokens=60)
    memory.delete_entries(S, [ids[11]])
    memory.update_config(S, max_tokens=300)
    memory.record_usage(S, 123)
    memory.add_tool_result(S, "lost", "\u4f60\u597d \x00", metadata={"a": [1, None]}, is_error=True)
    return memory


def test_r10_export_imports_to_the_same_session():
    memory = lived()
    state = memory.export_session(S)
    for given in (
        state,
        state.to_json(),
        state.to_json(indent=2).encode(),
        json.loads(state.to_json()),
    ):
        fresh = MemoryManager(counter=words)
        assert fresh.import_session(given) == S
        assert fresh.export_session(S) == state
        assert fresh.get_active_entries(S) == memory.get_active_entries(S)
        assert fresh.get_summaries(S) == memory.get_summaries(S)


def test_r10_imported_session_keeps_undo_and_pins():
    fresh = MemoryManager(counter=words)
    fresh.import_session(lived().export_session(S))
    pinned = [entry.id for entry in fresh.get_active_entries(S) if entry.pinned]
    assert len(pinned) == 2
    fresh.undo_compression(S)
    assert not any(entry.compressed for entry in fresh.get_entries(S))


def test_r10_session_read_before_can_be_imported():
    state = lived().export_session(S)
    fresh = MemoryManager(counter=words)
    with pytest.raises(SessionNotFound):
        fresh.get_stats(S)
    fresh.import_session(state)
    assert fresh.get_stats(S).total_entries == len(state.entries)


def _damaged(change: Any) -> dict[str, Any]:
    document = json.loads(lived().export_session(S).to_json())
    change(document)
    return document


def _configured(document: dict[str, Any]) -> dict[str, Any]:
    return next(r for r in document["log"] if r["kind"] == "configured")


def _bad_setting(document: dict[str, Any]) -> None:
    document["settings"]["max_tokens"] = _configured(document)["changes"]["max_tokens"] = -5


def _dangling(document: dict[str, Any]) -> None:
    record = next(r for r in document["log"] if r["kind"] == "compressed")
    record["replacements"][0]["ids"][0] = "nobody"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d.update(version=99), "99"),
        (lambda d: d.update(format="other"), "other"),
        (lambda d: d["totals"].update(tokens=1), "totals"),
        (_dangling, "nobody"),
        (lambda d: d["entries"].pop(0), "entries"),
        (lambda d: d["log"].append(d["log"][0]), "before"),
        (lambda d: d["log"].append({"kind": "invented", "id": "x"}), "invented"),
        (lambda d: d["entries"][0].update(type="shout"), "shout"),
        (lambda d: d["entries"][0].update(timestamp="2026-01-01T00:00:00"), "zone"),
        (_bad_setting, "max_tokens"),
        (lambda d: d["settings"].update(recent_window=3), "settings"),
    ],
)
def test_r10_damaged_document_is_refused(change, named):
    fresh = MemoryManager(counter=words)
    with pytest.raises(StateError, match=named):
        fresh.import_session(_damaged(change))
    assert fresh.list_sessions() == []


@pytest.mark.parametrize("tokens", [0, 1, 10**12])
def test_r10_counts_are_never_trusted(tokens):
    memory = manager(max_tokens=10_000)
    memory.add_user_message(S, "word " * 1_000)
    document = json.loads(memory.export_session(S).to_json())
    document["entries"][0]["token_count"]["tokens"] = tokens
    document["totals"] = None
    fresh = MemoryManager(counter=words)
    fresh.import_session(document)
    assert fresh.get_stats(S).active_tokens == fresh.get_stats(S).total_tokens == 1_000


def test_r10_invalid_count_is_refused():
    memory = manager(max_tokens=10_000)
    memory.add_user_message(S, "word")
    document = json.loads(memory.export_session(S).to_json())
    document["entries"][0]["token_count"]["tokens"] = -1_000_000
    with pytest.raises(StateError, match="not a number of tokens"):
        MemoryManager(counter=words).import_session(document)


def test_r10_counts_of_another_counter_are_recounted():
    memory = manager(max_tokens=10_000)
    memory.add_user_message(S, "word " * 10)
    fresh = MemoryManager(counter=len)
    fresh.import_session(memory.export_session(S))
    assert fresh.get_stats(S).active_tokens == 50


def test_r11_each_text_is_counted_once():
    counted: list[str] = []

    def counter(text: str) -> int:
        counted.append(text)
        return words(text)

    memory = manager(ScriptedSummarizer("short"), counter=counter, max_tokens=500)
    fill(memory, 400, compress=None)
    for _ in range(5):
        memory.build_context(S)
        memory.get_stats(S)
    texts = [text for text in counted if text.startswith("n")]
    assert len(texts) == len(set(texts)) == 400
    assert len(counted) <= 400 * 1.2  # with the outlines
    fresh = MemoryManager(counter=words)
    fresh.import_session(memory.export_session(S))


def test_r11_restored_session_counts_each_entry_once():
    memory = manager(max_tokens=5_000)
    fill(memory, 300)
    state = memory.export_session(S)
    counted: list[str] = []

    def other(text: str) -> int:
        counted.append(text)
        return words(text)

    fresh = MemoryManager(counter=other)
    fresh.import_session(state)
    fresh.compress(S, target_tokens=100)
    assert len(counted) <= 2.1 * 300  # one to verify the document, one if the counter differs


@pytest.mark.parametrize("budget", [0, -5, 1, 3])
def test_r12_too_small_budget_error_has_the_breakdown(budget):
    memory = manager(max_tokens=10_000)
    memory.add_system_message(S, "word " * 50)
    memory.add_user_message(S, "word " * 50)
    with pytest.raises(BudgetExceeded) as raised:
        memory.build_context(S, budget=budget)
    assert raised.value.available == budget
    assert raised.value.required > budget
    assert raised.value.culprits


def test_r12_huge_entry_is_clipped_and_retrievable():
    memory = manager(max_tokens=200)
    text = " ".join(f"w{n}" for n in range(5_000))
    entry = memory.add_user_message(S, text)
    assert memory.build_context(S).tokens.tokens <= 200
    assert memory.get_entry(S, entry.id).text == text


@pytest.mark.parametrize("form", ["openai-chat", "anthropic", "text"])
def test_r12_nearly_empty_sessions_have_defined_results(form):
    memory = manager(max_tokens=40)
    with pytest.raises(SessionNotFound):
        memory.build_context(S, format=form)
    memory.add_system_message(S, "only system")
    memory.build_context(S, format=form)
    assert memory.compress(S, target_tokens=1).compression_id is None
    for _ in range(3):
        memory.add_user_message(S, "one two three", pinned=True)
    assert memory.compress(S, target_tokens=1).compression_id is None
    assert len(memory.get_active_entries(S)) == 4
    memory.clear_session(S)
    assert memory.compress(S, target_tokens=1).compression_id is None
    assert memory.get_context_for_llm(S) == ""


# ---------------------------------------------------------------- R14, R15, R19


def test_r14_raising_receiver_does_not_affect_others(caplog):
    memory = manager()

    def broken(sender: Any, *, event: Any) -> None:
        raise RuntimeError("mine")

    events.entry_added.connect(broken, sender=memory)
    with caplog.at_level(logging.CRITICAL), record_events(memory) as emitted:
        entry = memory.add_user_message(S, "hello")
    assert [event.entry for event in emitted if isinstance(event, events.EntryAdded)] == [entry]
    assert memory.get_entry(S, entry.id) == entry


def test_r14_each_change_has_one_event_with_its_reason():
    memory = manager(ScriptedSummarizer("short"))
    with record_events(memory) as emitted:
        ids = fill(memory, 20)
        result = memory.compress(S)
        memory.undo_compression(S)
        memory.pin(S, ids[0])
        memory.pin(S, ids[0])
        memory.delete_entries(S, [ids[1]])
        memory.clear_session(S)
    assert [type(event) for event in emitted] == [
        events.SessionOpened, *[events.EntryAdded] * 20, events.CompressionResult, events.CompressionUndone,
        events.EntryPinned, events.EntriesDeleted, events.SessionCleared,
    ]  # fmt: skip
    assert emitted[21] == result
    assert result.tokens_before - result.tokens_after == result.tokens_saved > 0
    assert result.reason.startswith("by hand; ")
    assert {item.method for item in result.replacements} == {"summary"}
    assert result.summary_id == result.replacements[0].entry.id


def test_r14_add_in_a_receiver_emits_later_without_blocking():
    memory = manager(max_tokens=1_000)

    def answer(sender: Any, *, event: Any) -> None:
        if event.entry.role == "user":
            sender.add_assistant_message(S, f"answer to {event.entry.text}")

    events.entry_added.connect(answer, sender=memory)
    with record_events(memory) as emitted:
        memory.add_user_message(S, "one")
        memory.add_user_message(S, "two")
    texts = ["one", "answer to one", "two", "answer to two"]
    assert [event.entry.text for event in emitted[1:]] == texts
    assert [entry.text for entry in memory.get_entries(S)] == texts


def test_r14_concurrent_compression_request_returns():
    answers: list[Any] = []

    def nested(prompt: str) -> str:
        answers.append(memory.compress(S))
        return "short"

    memory = manager(nested)
    fill(memory, 20)
    result = memory.compress(S)
    assert result.compression_id is not None
    assert all(answer.compression_id is None for answer in answers)


def test_r15_smaller_context_changes_nothing():
    memory = manager(max_tokens=1_000)
    fill(memory, 20)
    whole = memory.build_context(S)
    before = memory.export_session(S)
    small = memory.build_context(S, budget=60)
    assert small.trimmed
    assert not whole.trimmed
    assert memory.build_context(S).messages == whole.messages
    assert memory.export_session(S) == before


def test_r19_equal_texts_are_never_merged():
    memory = manager(ScriptedSummarizer("short"), max_tokens=10_000)
    for _ in range(5):
        memory.add_user_message(S, "yes")
        memory.add_assistant_message(S, "yes")
        memory.add_tool_call(S, "f", "{}")
        memory.add_tool_result(S, "f", "the same result " * 10)
    assert len(memory.get_active_entries(S)) == 20
    texts = [m.get("content") for m in memory.build_context(S).messages if m["role"] == "user"]
    assert texts == ["yes"] * 5


# ---------------------------------------------------------------- R20: every setting does something


def _compressed_after(memory: MemoryManager, entries: int, size: int = 9) -> bool:
    fill(memory, entries, size, compress=None)
    return any(entry.compressed for entry in memory.get_entries(S))


def setting_max_tokens() -> None:
    assert not _compressed_after(manager(max_tokens=200), 20)
    assert _compressed_after(manager(max_tokens=199), 20)
    memory = manager(max_tokens=77, auto_compress=False)
    memory.add_user_message(S, "hello")
    assert memory.build_context(S).budget == memory.get_stats(S).max_tokens == 77


def setting_max_entries() -> None:
    assert not _compressed_after(manager(max_tokens=10_000, max_entries=20), 20)
    assert _compressed_after(manager(max_tokens=10_000, max_entries=19), 20)


def setting_trigger_ratio() -> None:
    limits = (100_000, 90_000, 10_000)
    budgets = [resolve_budget(MemoryConfig(trigger_ratio=r), limits).max_tokens for r in (0.8, 0.5)]
    assert budgets == [72_000, 45_000]


def setting_target_ratio() -> None:
    for ratio in (0.3, 0.6):
        memory = manager(target_ratio=ratio, recent_window=0)
        fill(memory, 20)
        result = memory.compress(S)
        assert 100 * ratio - 35 <= result.tokens_after <= 100 * ratio
    memory = manager(target_ratio=0.2, max_tokens=10_000, max_entries=20, recent_window=0)
    fill(memory, 20)
    memory.compress(S)
    assert len(memory.get_active_entries(S)) <= 4


def setting_recent_window() -> None:
    for recent in (0, 3, 6):
        memory = manager(recent_window=recent, max_tokens=400)
        ids = fill(memory, 40)
        plan = memory.plan_compression(S, target_tokens=150)
        kept = [row.entry_id for row in plan.entries if row.reason == "in the recent window"]
        assert kept == ids[-recent:-1] if recent else kept == []


def setting_min_entries_to_compress() -> None:
    for least, calls in ((30, 0), (3, 1)):
        scripted = ScriptedSummarizer("short")
        memory = manager(scripted, min_entries_to_compress=least)
        fill(memory, 20)
        memory.compress(S)
        assert len(scripted.requests) == calls


def _cap(memory: MemoryManager, scripted: ScriptedSummarizer) -> int:
    fill(memory, 20)
    memory.compress(S)
    return scripted.requests[0].target_tokens


def setting_compression_ratio() -> None:
    caps = []
    for ratio in (0.1, 0.3):
        scripted = ScriptedSummarizer("short")
        caps.append(
            _cap(
                manager(scripted, compression_ratio=ratio, max_tokens=1_000, max_entries=8),
                scripted,
            )
        )
    assert 0 < caps[0] < caps[1]


def setting_max_summary_ratio() -> None:
    for ratio in (0.4, 0.6):
        scripted = ScriptedSummarizer("short")
        cap = _cap(
            manager(scripted, max_summary_ratio=ratio, max_tokens=200, target_ratio=0.25), scripted
        )
        assert cap == int(ratio * 50)


def setting_max_entry_ratio() -> None:
    left = []
    for ratio in (0.25, 0.9):
        memory = manager(max_tokens=400, max_entry_ratio=ratio, recent_window=0,
                         strategy=(clip_large,))  # fmt: skip
        largest = memory.add_user_message(S, "word " * 300, compress=False).id
        memory.add_user_message(S, "word " * 250, compress=False)
        fill(memory, 2)
        clipped = {item.ids for item in memory.compress(S).replacements}
        left.append((largest,) in clipped)
    assert left == [True, False]


def setting_state_ratio() -> None:
    blocks = []
    for ratio in (0, 0.05, 0.3):
        scripted = ScriptedSummarizer("short")
        memory = manager(scripted, max_tokens=2_000, state_ratio=ratio, counter="chars4")
        for number in range(500):
            memory.add_tool_call(S, "read", {"path": f"src/{number}.py"}, call_id=f"c{number}")
            memory.add_tool_result(S, "read", "word " * 20, call_id=f"c{number}")
        fill(memory, 10)
        memory.compress(S)
        blocks.append(memory.build_context(S).breakdown.get("state", 0))
    assert blocks[0] == 0 < blocks[1] < blocks[2]


def _recalled(**settings: Any) -> str:
    """Return what a context recalls of a message and of a tool's result that are gone."""
    memory = manager(max_tokens=400, strategy=(drop_oldest,), state_ratio=0, **settings)
    memory.add_user_message(S, "alpha beta gamma")
    memory.add_tool_call(S, "read", {}, call_id="c1")
    memory.add_tool_result(S, "read", "alpha beta delta", call_id="c1")
    fill(memory, 60, compress=True)
    memory.add_user_message(S, "alpha beta ?")
    return "".join(text.text for text in memory.build_context(S).recalled)


def setting_recall_ratio() -> None:
    assert _recalled(recall_ratio=0) == ""
    assert "alpha beta gamma" in _recalled(recall_ratio=0.3)


def setting_recall_types() -> None:
    assert "delta" not in _recalled(recall_ratio=0.3)
    assert "alpha beta delta" in _recalled(recall_ratio=0.3, recall_types=("tool_result",))


def setting_overhead_tokens() -> None:
    assert not _compressed_after(manager(max_tokens=300), 20)
    assert _compressed_after(manager(max_tokens=300, overhead_tokens=150), 20)
    memory = manager(max_tokens=300, overhead_tokens=150)
    memory.add_user_message(S, "one two")
    assert memory.build_context(S).breakdown["reserved"] == 150


def setting_reserve_output() -> None:
    limits = (100_000, 100_000, 10_000)
    budgets = [
        resolve_budget(MemoryConfig(trigger_ratio=1.0, reserve_output=r), limits).max_tokens
        for r in (None, 0, 40_000)
    ]
    assert budgets == [90_000, 100_000, 60_000]


def setting_auto_compress() -> None:
    assert _compressed_after(manager(), 20)
    assert not _compressed_after(manager(auto_compress=False), 20)


def setting_background() -> None:
    threads: list[str] = []

    def named(prompt: str) -> str:
        threads.append(threading.current_thread().name)
        return "short"

    for background in (False, True):
        threads.clear()
        memory = manager(named, background=background)
        fill(memory, 20, compress=None)
        memory.close()
        assert threads
        assert (threading.current_thread().name in threads) is not background


def setting_cache_ttl() -> None:
    assert not _compresses_after_pause(cache_ttl=400)
    assert not _compresses_after_pause(cache_ttl=None)


def setting_compress_when_cold() -> None:
    assert _compresses_after_pause()
    assert not _compresses_after_pause(compress_when_cold=False)


def _compresses_after_pause(**settings: Any) -> bool:
    clock = FakeClock()
    config = MemoryConfig(max_tokens=8_000, **settings)
    memory = MemoryManager(counter=words, config=config, clock=clock)
    memory.add_user_message(S, "Read it.")
    memory.add_assistant_message(S, "word " * 7_500, compress=False)
    clock.advance(timedelta(minutes=6))
    memory.add_user_message(S, "And now?")
    return bool(memory.explain(S).compressions)


def setting_strategy() -> None:
    memory = manager(strategy=(clip_large, clip_rest), recent_window=0)
    fill(memory, 20)
    result = memory.compress(S, target_tokens=10)
    assert {item.method for item in result.replacements} <= {"clip"}
    memory = manager(recent_window=0, max_tokens=2_000)
    fill(memory, 80)
    assert {item.method for item in memory.compress(S).replacements} == {"outline"}


def setting_count_policy() -> None:
    pytest.importorskip("memman_tiktoken")
    counters = []
    for policy in ("local", "estimate"):
        memory = MemoryManager(config=MemoryConfig(model="gpt-4o", count_policy=policy))
        counters.append(memory.add_user_message(S, "hello").token_count.method)
    memory.update_config(count_policy="local")
    counters.append(memory.add_user_message(S, "hello again").token_count.method)
    memory.update_config(S, count_policy="estimate")
    counters.append(memory.add_user_message(S, "and again").token_count.method)
    assert counters == ["client", "estimation", "client", "estimation"]


def setting_summarize_timeout() -> None:
    gate = threading.Event()
    memory = manager(
        lambda prompt: str(gate.wait(2 * PATIENCE)), summarize_timeout=0.03, on_failure="keep"
    )
    fill(memory, 20)
    began = time.monotonic()
    assert "0.03 s" in memory.compress(S).reason
    assert time.monotonic() - began < PATIENCE
    gate.set()


def setting_on_failure() -> None:
    outcomes = []
    for on_failure in ("fallback", "keep", "raise"):
        memory = manager(ScriptedSummarizer(OSError("429")), on_failure=on_failure)
        fill(memory, 20)
        try:
            outcomes.append(memory.compress(S).compression_id is not None)
        except CompressionFailed:
            outcomes.append("raised")
    assert outcomes == [True, False, "raised"]


def setting_model() -> None:
    pytest.importorskip("memman_tiktoken")
    memory = MemoryManager(config=MemoryConfig(model="gpt-4o"))
    assert "tiktoken" in memory.add_user_message(S, "hello").token_count.counter
    assert "tiktoken" not in MemoryManager().add_user_message(S, "hello").token_count.counter


def setting_summarizer() -> None:
    with pytest.raises(PluginNotFound, match="nobody:knows-it"):
        MemoryManager(config=MemoryConfig(summarizer="nobody:knows-it"))
    memory = MemoryManager()
    memory.add_user_message(S, "hello")
    before = memory.export_session(S)
    with pytest.raises(PluginNotFound, match="nobody:knows-it"):
        memory.update_config(S, summarizer="nobody:knows-it")
    assert memory.export_session(S) == before


def setting_summarizer_window() -> None:
    calls = []
    for window in (None, 2_000):
        scripted = ScriptedSummarizer("short")
        memory = manager(scripted, summarizer_window=window, max_tokens=4_000)
        fill(memory, 300, compress=False)
        memory.compress(S, target_tokens=1_000)
        calls.append(len(scripted.requests))
    assert calls[0] == 1 < calls[1]


def setting_summary_prompt() -> None:
    scripted = ScriptedSummarizer("short")
    memory = manager(scripted, summary_prompt="Kurz, bitte: {content}")
    fill(memory, 20)
    memory.compress(S)
    assert scripted.requests[0].prompt.startswith("Kurz, bitte: [memman conversation]")


class _ScriptedGPT(ScriptedSummarizer):
    prefix_formats = ("openai-chat",)
    model = "openai/gpt-5"


def setting_summarize_on_prefix() -> None:
    for on in (True, False):
        scripted = _ScriptedGPT("short")
        memory = manager(scripted, model="gpt-5", max_tokens=20_000, summarize_on_prefix=on)
        fill(memory, 500)
        memory.build_context(S)
        memory.compress(S, target_tokens=1_000)
        assert (scripted.requests[0].prefix is not None) is on


def _live_after(**settings: Any) -> set[str]:
    """Return the sessions in memory after one was used, an hour passed, and 40 others were added."""
    clock = FakeClock()
    memory = MemoryManager(counter="chars4", config=MemoryConfig(**settings), clock=clock)
    memory.add_user_message("first", "word " * 100)
    clock.advance(timedelta(hours=1))
    for number in range(40):
        memory.add_user_message(f"s{number}", "word " * 100)
    return {session.id for session in memory._core.sessions}


def setting_max_sessions() -> None:
    assert len(_live_after(max_sessions=7)) <= 7
    assert len(_live_after(max_sessions=None)) == 41


def setting_max_live_bytes() -> None:
    assert len(_live_after(max_live_bytes=10_000)) < 20
    assert len(_live_after(max_live_bytes=None)) == 41


def setting_session_ttl() -> None:
    assert "first" not in _live_after(session_ttl=60)
    assert "first" in _live_after(session_ttl=2 * 3600)


SETTINGS = {
    name.removeprefix("setting_"): behaviour
    for name, behaviour in list(globals().items())
    if name.startswith("setting_")
}


@pytest.mark.parametrize("name", SETTINGS)
def test_r20_setting_has_its_effect(name):
    SETTINGS[name]()


def test_r20_every_setting_is_tested():
    assert set(SETTINGS) == set(settings_of.SETTINGS)


def test_r20_invalid_setting_changes_nothing():
    memory = manager()
    memory.add_user_message(S, "hello")
    before = memory.export_session(S), memory.get_stats(S)
    for bad in ({"strategy": "bogus"}, {"max_tokens": -1}, {"nonsense": 1}, {"target_ratio": 2}):
        for target in ((), (S,)):
            with pytest.raises(ValueError, match=next(iter(bad))):
                memory.update_config(*target, **bad)
    assert (memory.export_session(S), memory.get_stats(S)) == before
    memory.compress(S)


def test_deletion_reaches_summaries_and_the_store():
    memory = manager(lambda prompt: "secret" if "secret" in prompt else "short")
    secret = memory.add_user_message(S, "a secret " + "word " * 9, compress=False).id
    fill(memory, 20)
    memory.compress(S)
    assert "secret" in memory.get_summaries(S)[0].content
    memory.delete_entries(S, [secret])
    assert "secret" not in memory.export_session(S).to_json()
    with pytest.raises(LookupError):
        memory.get_entry(S, secret)


def test_undo_goes_from_the_outside_in():
    clock = FakeClock(tick=timedelta(seconds=1))
    memory = manager(ScriptedSummarizer("word " * 12), clock=clock, recent_window=0)
    fill(memory, 20)
    first = memory.compress(S, target_tokens=60).compression_id
    fill(memory, 10)
    second = memory.compress(S, target_tokens=40).compression_id
    with pytest.raises(Refused, match=str(second)):
        memory.undo_compression(S, first)
    assert memory.undo_compression(S) == second
    assert memory.undo_compression(S, first) == first
    assert not any(entry.compressed for entry in memory.get_entries(S))


def test_states_are_equal_by_value():
    memory = lived()
    first = memory.export_session(S)
    time.sleep(0.002)
    assert memory.export_session(S) == first
    assert msgspec.json.encode(memory.export_session(S)) == msgspec.json.encode(first)


def test_id_of_a_former_replacement_is_refused():
    memory = manager(ScriptedSummarizer("short"))
    fill(memory, 20)
    replacement = memory.compress(S).summary_id
    assert replacement is not None
    memory.undo_compression(S)
    with pytest.raises(IdConflict, match=replacement):
        memory.add_user_message(S, "mine", id=replacement)
    MemoryManager(counter=words).import_session(memory.export_session(S))
