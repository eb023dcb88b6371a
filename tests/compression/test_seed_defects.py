"""Known defects of other memories, each with a test that memman does not have it.

`_LIST` has for each defect the name of its test, here or in the file of that promise.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from memman import (
    AsyncMemoryManager,
    BudgetExceeded,
    ConfigError,
    MemoryConfig,
    MemoryManager,
    StoreError,
    SummaryRequest,
    events,
)
from memman.compression import drop_oldest, fold_repeats
from memman.compression.strategies import PRESETS
from memman.formats.rules import check
from memman.stores import MemoryStore
from memman.testing import ScriptedSummarizer, record_events

S = "s"
TESTS = Path(__file__).parents[1]

_LIST = """
Synaptic
  a message that comes during a summary is deleted
    test_requirements.py::test_r2_adds_during_a_compression_stay_in_order
  of twelve concurrent appends two are left
    test_synaptic_concurrent_appends_stay_distinct
  a crash between clearing and writing back loses the recent messages
    test_synaptic_crash_during_the_commit_loses_nothing
  the summary is lost with the process
    test_synaptic_the_summary_lives_in_the_store
  the summary is neither counted nor bounded
    test_requirements.py::test_r5_summaries_are_counted_capped_and_folded
  one message over half the limit makes each append ask the model
    test_synaptic_large_message_adds_no_summarizer_calls
  a model's error fails an append that was stored
    test_synaptic_model_error_does_not_fail_an_append
  every append loads and counts everything
    test_requirements.py::test_r11_each_text_is_counted_once
  tool calls, names and ids cost nothing
    test_requirements.py::test_r7_names_and_arguments_of_calls_are_counted
  every kind of memory can split a call from its result
    test_synaptic_no_preset_splits_a_call_from_its_result
  the estimator is not what its page says
    counting/test_counting.py::test_a_rule_of_thumb_is_a_quarter_rounded_up
  reserved tokens have no effect
    test_config.py::test_overhead_counts_for_the_trigger_and_the_context
  what does not fit is dropped whole
    test_requirements.py::test_r12_huge_entry_is_clipped_and_retrievable
  a history that could not be written is named as if it were
    test_synaptic_unstored_compression_emits_no_event
  a repeated turn is stored twice
    test_bad_input.py::test_the_same_id_with_the_same_content_is_a_no_op
NeuroLink
  repair by neighbourhood corrupts parallel calls
    test_neurolink_parallel_calls_keep_one_result_each
  a call's arguments are not counted
    test_requirements.py::test_r7_names_and_arguments_of_calls_are_counted
  the target leaves out what stands around the history
    test_neurolink_overhead_counts_toward_the_target
  prose about reading is taken for a read
    test_neurolink_prose_about_reading_is_not_a_read
  the first messages are kept and a call in them loses its result
    test_neurolink_first_call_keeps_its_result
  a cut of a short conversation is reported as none
    test_neurolink_cut_of_a_short_conversation_is_reported
  every lower target removes the same
    test_neurolink_each_lower_target_removes_more
  a quota error is taken for an overflow
    counting/test_overflow.py::test_a_refusal_for_another_reason_is_no_overflow
  a preview cuts a character in two
    compression/test_clips.py::test_repeated_clips_leave_head_notice_and_tail
  what was compacted is not stored and paid for again
    test_neurolink_compression_is_stored_and_requested_once
  asking whether it is needed always answers no
    test_neurolink_plan_is_the_same_in_both_managers
  the old summary is summarised twice
    test_neurolink_the_old_summary_goes_in_once
  rewinding exists and is called nowhere
    test_requirements.py::test_undo_goes_from_the_outside_in
  the provider's own count is stored and not used
    test_usage.py::test_provider_difference_counts_towards_the_trigger
  the split falls between a call and its result
    test_synaptic_no_preset_splits_a_call_from_its_result
  a large last message makes everything summarised
    test_neurolink_a_large_newest_message_is_not_summarised
  reading hands out the live list
    test_requirements.py::test_r8_returned_objects_cannot_change_a_session
  a lost pointer loses the summary in silence
    test_requirements.py::test_r10_damaged_document_is_refused
  a summary may be of any length
    test_requirements.py::test_r5_summaries_are_counted_capped_and_folded
  what a summarizer is given may be of any length
    compression/test_pieces.py::test_long_run_is_summarized_in_pieces_and_merged
  each call writes the conversation into the log
    test_neurolink_no_conversation_is_written_into_a_log
  one session's compaction holds up another's
    test_neurolink_sessions_are_compressed_each_for_itself
  an insufficient compaction is told twice and with the budget for its size
    test_neurolink_over_budget_is_reported_once_with_its_size
tinygent
  reading puts the summary into the history
    test_tinygent_reading_three_times_adds_nothing
  clearing keeps the summary
    test_requirements.py::test_r9_clear_resets_the_window_with_one_event
  a failing summarizer loses messages
    test_langchain_a_failing_summarizer_loses_no_message
  with a filter every message vanishes
    test_requirements.py::test_r15_smaller_context_changes_nothing
  the model is asked for nearly every message
    test_langchain_stream_needs_a_fifth_of_the_calls
  the summary is neither counted nor bounded
    test_langchain_the_limit_holds_with_the_summary
  sync and async fill different histories
    test_tinygent_both_managers_do_the_same
  a negative limit is an IndexError
    test_tinygent_a_limit_that_cannot_be_is_refused
  the type of an answer depends on a flag
    test_tinygent_answers_have_one_type
LangChain
  messages are taken out before the summary is there
    test_langchain_a_failing_summarizer_loses_no_message
  the summary is left out of the limit
    test_langchain_the_limit_holds_with_the_summary
  a history in a database is never pruned
    test_langchain_stored_history_is_summarized_once
  the summary is not kept with the history
    test_synaptic_the_summary_lives_in_the_store
  pruning a restored history counts quadratically
    test_requirements.py::test_r11_restored_session_counts_each_entry_once
  the model is asked for nearly every message
    test_langchain_stream_needs_a_fifth_of_the_calls
  what is left begins with a result without its call
    test_synaptic_no_preset_splits_a_call_from_its_result
  one large turn empties the buffer
    test_langchain_one_large_turn_stays_clipped
  a limit below the counter's own overhead is an IndexError
    test_bad_input.py::test_budget_below_the_framing_is_budget_exceeded
  tool calls cannot be stored
    test_parity_reference.py::test_each_method_adds_an_entry_of_its_type_and_role
  loading k messages asks the model k/2 times
    test_langchain_loading_a_history_takes_one_call
  the async buffer is never pruned
    test_tinygent_both_managers_do_the_same
"""


def _defects() -> dict[str, list[tuple[str, str]]]:
    """Return the defects by system, each with its test."""
    listed: dict[str, list[tuple[str, str]]] = {}
    system = defect = ""
    for line in _LIST.strip().splitlines():
        match len(line) - len(line.lstrip()):
            case 0:
                system = line
                listed[system] = []
            case 2:
                defect = line.strip()
            case _:
                listed[system].append((defect, line.strip()))
    return listed


DEFECTS = _defects()


@pytest.mark.parametrize("system", DEFECTS)
def test_each_defect_has_a_test(system: str) -> None:
    assert len(DEFECTS[system]) >= 9
    for defect, name in DEFECTS[system]:
        page, _, test = name.rpartition("::")
        source = (TESTS / page if page else Path(__file__)).read_text(encoding="utf-8")
        assert f"def {test}(" in source, f"{defect}: {name}"


def test_each_test_here_is_of_a_defect() -> None:
    listed = {name for defects in DEFECTS.values() for _, name in defects}
    systems = tuple(f"test_{system.lower()}_" for system in DEFECTS)
    assert {name for name in globals() if name.startswith(systems)} <= listed


def manager(summarizer: Any = None, store: Any = None, **settings: Any) -> MemoryManager:
    config = MemoryConfig(**{"summarize_timeout": None} | settings)
    return MemoryManager(store, counter="chars4", summarizer=summarizer, config=config)


def talk(memory: MemoryManager, messages: int, tokens: int = 100, session: str = S) -> None:
    for number in range(messages):
        add = (memory.add_user_message, memory.add_assistant_message)[number % 2]
        add(session, f"{number:04}" + "abc " * (tokens - 1))


def round_of(memory: MemoryManager, number: int, tokens: int = 50) -> None:
    """Return a question, two parallel calls, their results and an answer."""
    memory.add_user_message(S, f"{number:04}" + "abc " * tokens)
    for call in "ab":
        memory.add_tool_call(S, "shell", {"n": number}, call_id=f"{number}{call}")
    for call in "ab":
        memory.add_tool_result(
            S, "shell", f"{number}{call}" + "out " * tokens, call_id=f"{number}{call}"
        )
    memory.add_assistant_message(S, f"{number:04}" + "abc " * tokens)


# ---------------------------------------------------------------- Synaptic


def test_synaptic_concurrent_appends_stay_distinct() -> None:
    async def run() -> None:
        async def slowly(prompt: str) -> str:
            await asyncio.sleep(0.005)
            return "short"

        config = MemoryConfig(max_tokens=1_000)
        memory = AsyncMemoryManager(counter="chars4", summarizer=slowly, config=config)
        await asyncio.gather(
            *(memory.add_user_message(S, f"{n} " + "abc " * 99) for n in range(12))
        )
        texts = {entry.text.split()[0] for entry in await memory.get_entries(S)}
        assert texts == {str(n) for n in range(12)}
        assert len(await memory.get_entries(S)) == 12

    asyncio.run(run())


class Failing(MemoryStore):
    """A store whose commits fail if `broken`."""

    broken = False

    def commit(self, *given: Any, **named: Any) -> Any:
        if self.broken:
            raise StoreError("the disk is full")
        return super().commit(*given, **named)


def test_synaptic_crash_during_the_commit_loses_nothing() -> None:
    store = Failing()
    memory = manager(ScriptedSummarizer("short"), store, auto_compress=False)
    talk(memory, 30)
    before = [entry.id for entry in memory.get_active_entries(S)]
    store.broken = True
    with pytest.raises(StoreError, match="disk is full"):
        memory.compress(S, target_tokens=800)
    store.broken = False
    again = manager(store=store)
    assert [entry.id for entry in again.get_active_entries(S)] == before
    assert [entry.id for entry in memory.get_active_entries(S)] == before


def test_synaptic_the_summary_lives_in_the_store() -> None:
    store = MemoryStore()
    memory = manager(ScriptedSummarizer("what was said"), store, auto_compress=False)
    talk(memory, 30)
    memory.compress(S, target_tokens=800)
    again = manager(store=store)
    summary, _outline = again.get_summaries(S)
    assert summary.content.startswith("what was said")
    assert "what was said" in again.get_context_for_llm(S)


def test_synaptic_large_message_adds_no_summarizer_calls() -> None:
    scripted = ScriptedSummarizer("short")
    memory = manager(scripted, strategy="summary_buffer", max_tokens=1_000)
    memory.add_user_message(S, "abc " * 700, pinned=True)
    for number in range(60):
        memory.add_user_message(S, f"{number:02}" + "abc " * 10)
    added = memory.get_stats(S).total_tokens
    assert len(scripted.requests) <= 1 + 1.25 * added / 500
    assert memory.get_stats(S).active_tokens <= 1_000


def test_synaptic_model_error_does_not_fail_an_append() -> None:
    memory = manager(ScriptedSummarizer(OSError("429")), max_tokens=500, on_failure="keep")
    for number in range(20):
        for _ in range(2):  # a caller's retry
            memory.add_user_message(S, f"{number} " + "abc " * 50, id=f"e{number}")
    assert [entry.id for entry in memory.get_entries(S)] == [f"e{n}" for n in range(20)]


@pytest.mark.parametrize("strategy", PRESETS)
@pytest.mark.parametrize("summarizer", [None, ScriptedSummarizer("short")], ids=["none", "one"])
def test_synaptic_no_preset_splits_a_call_from_its_result(strategy: str, summarizer: Any) -> None:
    memory = manager(summarizer, strategy=strategy, max_tokens=900)
    for number in range(25):
        round_of(memory, number)
        active = memory.get_active_entries(S)
        calls = [entry.call_id for entry in active if entry.type == "tool_call"]
        assert calls == [entry.call_id for entry in active if entry.type == "tool_result"]
        if strategy != "buffer":
            assert check(memory.build_context(S).messages, "openai-chat") == []
    assert check(memory.build_context(S, budget=10_000).messages, "openai-chat") == []


def test_synaptic_unstored_compression_emits_no_event() -> None:
    store = Failing()
    memory = manager(store=store, max_tokens=500)
    with record_events(memory, [events.CompressionResult]) as emitted:
        store.broken = True
        talk(memory, 20)
        assert emitted == []
        store.broken = False
        talk(memory, 1)
    assert len(emitted) == 1


# ---------------------------------------------------------------- NeuroLink


def test_neurolink_parallel_calls_keep_one_result_each() -> None:
    memory = manager()
    round_of(memory, 0)
    messages = memory.build_context(S).messages
    [call_message] = [message for message in messages if message.get("tool_calls")]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert [call["id"] for call in call_message["tool_calls"]] == results == ["0a", "0b"]


def test_neurolink_overhead_counts_toward_the_target() -> None:
    memory = manager(max_tokens=2_000, max_entries=None)
    system, tools = (
        "be brief " * 100,
        [{"type": "function", "function": {"name": "f", "description": "abc " * 300}}],
    )
    for number in range(40):
        memory.add_user_message(S, f"{number:04}" + "abc " * 50)
        context = memory.build_context(S, system=system, tools=tools)
        assert context.tokens.tokens <= 2_000
        assert not context.trimmed  # only the compressions have kept it
    assert memory.get_stats(S).summaries == 1


def test_neurolink_prose_about_reading_is_not_a_read() -> None:
    memory = manager(strategy=(fold_repeats,), auto_compress=False, recent_window=0)
    memory.add_assistant_message(S, "I have read the requirements. " * 20)
    memory.add_assistant_message(S, "I read the code. " * 20)
    memory.add_assistant_message(S, "I read the code. " * 20)
    memory.add_user_message(S, "go on")
    assert memory.compress(S, target_tokens=1).compression_id is None


def test_neurolink_first_call_keeps_its_result() -> None:
    memory = manager(strategy=(drop_oldest,), auto_compress=False, recent_window=0)
    memory.add_tool_call(S, "shell", {}, call_id="first")
    memory.add_tool_result(S, "shell", "out " * 50, call_id="first")
    talk(memory, 20)
    for target in range(2_000, 50, -150):
        memory.compress(S, target_tokens=target)
        assert check(memory.build_context(S).messages, "openai-chat") == []


def test_neurolink_cut_of_a_short_conversation_is_reported() -> None:
    memory = manager(auto_compress=False)
    talk(memory, 4, 8_000)
    result = memory.compress(S, target_tokens=500)
    assert result.compression_id is not None
    assert result.tokens_after < result.tokens_before == 32_000
    assert result.tokens_after == memory.get_stats(S).active_tokens
    context = memory.build_context(S, budget=600)
    assert context.trimmed
    assert context.tokens.tokens <= 600


def test_neurolink_each_lower_target_removes_more() -> None:
    memory = manager(auto_compress=False, recent_window=0)
    talk(memory, 38)
    left = []
    for share in (0.8, 0.5, 0.25, 0.1):
        memory.compress(S, target_tokens=int(share * 3_800))
        left.append(memory.get_stats(S).active_tokens)
        memory.undo_compression(S)
    assert left == sorted(set(left), reverse=True)


def test_neurolink_compression_is_stored_and_requested_once() -> None:
    scripted = ScriptedSummarizer("short")
    memory = manager(scripted, max_tokens=2_000)
    talk(memory, 25)
    calls = len(scripted.requests)
    first = memory.build_context(S)
    for _ in range(5):
        assert memory.build_context(S).messages == first.messages
    assert len(scripted.requests) == calls == 1
    assert len(memory.get_active_entries(S)) == len(first.messages)  # with summary and outline


def test_neurolink_plan_is_the_same_in_both_managers() -> None:
    sync = manager(auto_compress=False)
    talk(sync, 30)

    async def run() -> Any:
        memory = AsyncMemoryManager(counter="chars4", config=MemoryConfig(auto_compress=False))
        await memory.import_session(sync.export_session(S))
        return await memory.plan_compression(S, target_tokens=1_000)

    plan = sync.plan_compression(S, target_tokens=1_000)
    other = asyncio.run(run())
    assert plan.tokens_after <= 1_000 < plan.tokens_before
    assert [row.action for row in other.entries] == [row.action for row in plan.entries]


def test_neurolink_the_old_summary_goes_in_once() -> None:
    scripted = ScriptedSummarizer("The FIRST summary.", "The second.")
    memory = manager(scripted, max_tokens=2_000)
    talk(memory, 60)
    second: SummaryRequest = scripted.requests[1]
    assert second.prompt.count("The FIRST summary.") == 1
    assert second.previous_summary is not None
    assert "The FIRST summary." in second.previous_summary


def test_neurolink_a_large_newest_message_is_not_summarised() -> None:
    memory = manager(ScriptedSummarizer("short"), strategy="summary_buffer", target_ratio=0.3)
    talk(memory, 12)
    newest = memory.add_user_message(S, "abc " * 1_500)
    assert memory.get_active_entries(S)[-1].text == newest.text
    assert memory.get_summaries(S)


def test_neurolink_no_conversation_is_written_into_a_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        memory = manager(ScriptedSummarizer("short"), max_tokens=500)
        for number in range(30):
            memory.add_user_message(S, f"{number} my secret " + "abc " * 40)
            memory.build_context(S)
    assert "my secret" not in caplog.text


def test_neurolink_sessions_are_compressed_each_for_itself() -> None:
    scripted = ScriptedSummarizer("short")
    memory = manager(scripted, max_tokens=2_000)
    for session in ("a", "b", "c"):
        talk(memory, 25, session=session)
    assert len(scripted.requests) == 3
    assert all(memory.get_summaries(session) for session in "abc")


def test_neurolink_over_budget_is_reported_once_with_its_size() -> None:
    memory = manager(max_tokens=500, auto_compress=False)
    memory.add_user_message(S, "abc " * 900, pinned=True)
    memory.add_user_message(S, "and now?")
    with record_events(memory, [events.OverBudget]) as emitted:
        memory.compress(S)
    [over] = emitted
    assert isinstance(over, events.OverBudget)
    stats = memory.get_stats(S)
    assert over.tokens == stats.active_tokens
    assert 500 - stats.overhead_tokens <= over.max_tokens <= 500
    with pytest.raises(BudgetExceeded):
        memory.build_context(S)


# ---------------------------------------------------------------- tinygent


def test_tinygent_reading_three_times_adds_nothing() -> None:
    memory = manager(ScriptedSummarizer("short"), strategy="summary_buffer")
    talk(memory, 25)
    before = memory.get_active_entries(S)
    for _ in range(3):
        memory.build_context(S)
        memory.get_context_for_llm(S)
        memory.get_summaries(S)
    assert memory.get_active_entries(S) == before
    assert [entry.type for entry in before].count("summary") == 2  # the model's, and the outline


def test_tinygent_both_managers_do_the_same() -> None:
    for strategy in PRESETS:
        sync = manager(strategy=strategy, max_tokens=2_000)
        talk(sync, 60)

        async def run(strategy: str = strategy) -> list[tuple[str, str]]:
            config = MemoryConfig(strategy=strategy, max_tokens=2_000)
            memory = AsyncMemoryManager(counter="chars4", config=config)
            for number in range(60):
                add = (memory.add_user_message, memory.add_assistant_message)[number % 2]
                await add(S, f"{number:04}" + "abc " * 99)
            return [(entry.type, entry.text) for entry in await memory.get_active_entries(S)]

        shown = [(entry.type, entry.text) for entry in sync.get_active_entries(S)]
        assert asyncio.run(run()) == shown
        assert (len(shown) == 60) == (strategy == "buffer")


@pytest.mark.parametrize("tokens", [-1, 0])
@pytest.mark.parametrize("strategy", PRESETS)
def test_tinygent_a_limit_that_cannot_be_is_refused(strategy: str, tokens: int) -> None:
    with pytest.raises(ConfigError, match="max_tokens"):
        MemoryConfig(strategy=strategy, max_tokens=tokens)


def test_tinygent_answers_have_one_type() -> None:
    for messages in (1, 100):
        memory = manager(strategy="summary_buffer")
        talk(memory, messages)
        assert type(memory.get_context_for_llm(S)) is str
        context = memory.build_context(S)
        assert all(isinstance(message["content"], str) for message in context.messages)


# ---------------------------------------------------------------- LangChain


@pytest.mark.parametrize("strategy", ["summary", "summary_buffer", "default"])
def test_langchain_a_failing_summarizer_loses_no_message(strategy: str) -> None:
    failing = ScriptedSummarizer(OSError("429"))
    memory = manager(failing, strategy=strategy, max_tokens=1_500, on_failure="keep")
    talk(memory, 30)
    assert len(memory.get_entries(S)) == len(memory.get_active_entries(S)) == 30
    assert memory.get_summaries(S) == []
    memory.set_summarize_callback(lambda prompt: "short")
    memory.compress(S)
    summary, outline = memory.get_summaries(S)
    assert summary.content.startswith("short")
    assert "#2 user: 0000abc" in outline.content or "user: 00" in outline.content


def test_langchain_the_limit_holds_with_the_summary() -> None:
    memory = manager(lambda prompt: "abcd" * 5_000, strategy="summary_buffer", max_tokens=500)
    for _ in range(100):
        talk(memory, 1, 40)
        assert memory.get_stats(S).active_tokens <= 500
        assert memory.build_context(S).tokens.tokens <= 500


def test_langchain_stored_history_is_summarized_once() -> None:
    scripted = ScriptedSummarizer("abcd" * 20)
    store = MemoryStore()
    for turn in range(50):  # a manager per request, as a web application has it
        memory = manager(scripted, store, strategy="summary_buffer", max_tokens=500)
        memory.add_user_message(S, f"{turn:04}" + "abc " * 39)
        memory.add_assistant_message(S, f"{turn:04}" + "abc " * 39)
        assert memory.get_stats(S).active_tokens <= 500
    read = sum(len(request.prompt) // 4 for request in scripted.requests)
    assert len(scripted.requests) <= 1.25 * 4_000 / 250
    assert read <= 15_000


@pytest.mark.parametrize(("strategy", "most"), [("summary_buffer", 40), ("default", 40)])
def test_langchain_stream_needs_a_fifth_of_the_calls(strategy: str, most: int) -> None:
    scripted = ScriptedSummarizer("abcd" * 200)
    memory = manager(scripted, strategy=strategy, max_tokens=2_000, max_entries=None)
    talk(memory, 400)
    assert 0 < len(scripted.requests) <= most  # the others: 191 and 381


@pytest.mark.parametrize("strategy", [name for name in PRESETS if name != "buffer"])
def test_langchain_one_large_turn_stays_clipped(strategy: str) -> None:
    memory = manager(ScriptedSummarizer("short"), strategy=strategy, max_tokens=1_000)
    talk(memory, 5)
    large = memory.add_user_message(S, "abc " * 9_000)
    last = memory.get_active_entries(S)[-1]
    assert last.role == "user"
    assert f"the original is entry #{large.seq}]" in last.text
    assert memory.get_stats(S).active_tokens <= 1_000


def test_langchain_loading_a_history_takes_one_call() -> None:
    scripted = ScriptedSummarizer("short")
    memory = manager(scripted, strategy="summary_buffer")
    roles = ("user", "assistant")
    history = [{"role": roles[n % 2], "content": f"{n} " + "abc " * 50} for n in range(200)]
    memory.add_messages(S, history)
    assert len(scripted.requests) == 1
    assert len(memory.get_entries(S)) == 200
    assert memory.get_stats(S).active_tokens <= 1_000
