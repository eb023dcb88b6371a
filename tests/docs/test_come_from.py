"""Presets behave as the memories they resemble, and as the table in "Come from another memory" states."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from memman import (
    AsyncMemoryManager,
    BudgetExceeded,
    CompressionResult,
    MemoryConfig,
    MemoryManager,
    SessionState,
    compression,
    events,
)
from memman.formats.rules import check
from memman.testing import ScriptedSummarizer
from tests.docs.pages import code, table

LANGCHAIN = {code(row["LangChain"])[0]: row for row in table("how-to/come-from.md", "LangChain")}


def _row(write: str, over: str, keeps: str) -> dict[str, str]:
    return {"write": f"`{write}`", "compresses over": over, "keeps at most": keeps}


_BUFFER = _row('strategy="buffer"', "never", "everything")
_WINDOW = _row('strategy="window"', "5 entries", "5 entries")
_TOKEN_BUFFER = _row('strategy="token_buffer"', "2,000 tokens", "2,000 tokens")
_SUMMARY_BUFFER = _row('strategy="summary_buffer"', "2,000 tokens", "1,000 tokens")
# Other systems with the same kinds of memory.
OTHERS = {
    "Synaptic ConversationBufferMemory": _BUFFER,
    "Synaptic ConversationWindowMemory(5)": _WINDOW,
    "Synaptic ConversationTokenBufferMemory(2000)": _TOKEN_BUFFER,
    "Synaptic ConversationSummaryMemory(10)": _row(
        'strategy="summary"', "20 entries", "10 entries"
    ),
    "Synaptic ConversationSummaryBufferMemory(2000)": _SUMMARY_BUFFER,
    "tinygent BufferChatMemory": _BUFFER,
    "tinygent BufferWindowChatMemory(k=5)": _WINDOW,
    "tinygent BufferSummaryChatMemory(max_token_limit=2000)": _SUMMARY_BUFFER,
    "NeuroLink conversation memory": _row(
        'strategy="summary_buffer", max_tokens=None, target_ratio=0.3, recall_ratio=0',
        "50,000 tokens",
        "15,000 tokens",
    ),
    "NeuroLink ContextCompactor": _row(
        'strategy=(ClearToolResults(protect_tokens=40_000, keep_tools=("skill",), minimum_gain=500),'
        ' fold_repeats, "summarise", drop_oldest, clip_rest), target_ratio=0.3, max_entries=None,'
        " recall_ratio=0",
        "50,000 tokens",
        "15,000 tokens",
    ),
    "AgTerm memory manager": _row(
        "max_tokens=50_000, max_entries=100", "100 entries", "50 entries"
    ),
}
ROWS = LANGCHAIN | OTHERS
S = "s"
SIZE = 100  # tokens of a message


def config_of(row: dict[str, str], **more: Any) -> MemoryConfig:
    """Return the settings in the `write` column of a row."""
    [arguments] = code(row["write"])
    config: MemoryConfig = eval(  # noqa: S307 - a page of ours
        f"MemoryConfig({arguments})", {**vars(compression), "MemoryConfig": MemoryConfig}
    )
    return config.updated(more)


def manager(row: dict[str, str], summarizer: Any = None, **more: Any) -> MemoryManager:
    return MemoryManager(counter="chars4", summarizer=summarizer, config=config_of(row, **more))


def talk(memory: MemoryManager, messages: int, size: int = SIZE) -> None:
    for number in range(messages):
        add = (memory.add_user_message, memory.add_assistant_message)[number % 2]
        add(S, "abc " * size)


def shell(memory: MemoryManager, exchanges: int, tokens: int = SIZE) -> None:
    for number in range(exchanges):
        memory.add_tool_call(S, "shell", {"n": number}, call_id=f"c{number}")
        content = f"{number:04}" + "out " * (tokens - 1)
        memory.add_tool_result(S, "shell", content, call_id=f"c{number}")


def first_compression(
    memory: MemoryManager, most: int = 600
) -> tuple[int, CompressionResult | None]:
    """Return the entries added up to the first compression, and its result."""
    heard: list[CompressionResult] = []

    def receive(_: Any, event: CompressionResult) -> None:
        heard.append(event)

    with events.compressed.connected_to(receive, sender=memory):
        for number in range(1, most + 1):
            talk(memory, 1)
            if heard:
                return number, heard[0]
    return most, None


@pytest.mark.parametrize("name", ROWS)
def test_preset_compresses_over_and_keeps_as_listed(name: str) -> None:
    row = ROWS[name]
    memory = manager(row, ScriptedSummarizer("abcd" * 50))
    entries, result = first_compression(memory)
    trigger, kept = row["compresses over"], row["keeps at most"]
    if trigger == "never":
        assert (result, kept) == (None, "everything")
        assert len(memory.get_active_entries(S)) == len(memory.get_entries(S)) == entries
        return
    assert result is not None
    over, most = amount(trigger), amount(kept)
    if trigger.endswith("entries"):
        assert entries == over + 1
        assert most - 1 <= len(memory.get_active_entries(S)) <= most
    else:
        assert over < result.tokens_before <= over + SIZE
        # As much as fits, less the room of a summary and of an outline that may be longer than these.
        assert 0.45 * most <= result.tokens_after <= most


def amount(cell: str) -> int:
    found = re.match(r"[\d,]+", cell)
    assert found, cell
    return int(found.group().replace(",", ""))


# ---------------------------------------------------------------- differences


def refuses_when_over(row: dict[str, str]) -> None:
    memory = manager(row)
    talk(memory, 20)
    with pytest.raises(BudgetExceeded):
        memory.build_context(S, budget=1_000)
    result = memory.compress(S)
    assert (result.compression_id, "never compresses" in result.reason) == (None, True)
    assert len(memory.build_context(S).messages) == 20


def answers_in_one_type(row: dict[str, str]) -> None:
    memory = manager(row)
    talk(memory, 2)
    assert type(memory.get_context_for_llm(S)) is str
    assert all(type(message) is dict for message in memory.build_context(S).messages)


def counts_entries(row: dict[str, str]) -> None:
    memory = manager(row)
    talk(memory, 10)
    assert len(memory.get_active_entries(S)) == 10  # five turns
    talk(memory, 10)
    assert len(memory.get_active_entries(S)) == 10


def keeps_exchanges_whole(row: dict[str, str]) -> None:
    memory = manager(row)
    for _ in range(7):
        shell(memory, 1)
        memory.add_assistant_message(S, "done")
        assert len(memory.get_active_entries(S)) <= 5
        assert check(memory.build_context(S).messages, "openai-chat") == []


def clips_what_is_too_large(row: dict[str, str]) -> None:
    memory = manager(row)
    entry = memory.add_user_message(S, "abc " * 5_000)
    [left] = memory.get_active_entries(S)
    assert 0 < left.token_count.tokens <= 2_000
    assert memory.get_entry(S, entry.id).text == "abc " * 5_000


def prunes_in_both_managers(row: dict[str, str]) -> None:
    clips_what_is_too_large(row)

    async def run() -> int:
        memory = AsyncMemoryManager(counter="chars4", config=config_of(row))
        for _ in range(40):
            await memory.add_user_message(S, "abc " * SIZE)
        return (await memory.get_stats(S)).active_tokens

    assert asyncio.run(run()) == 2_000


def asks_once_in_eleven(row: dict[str, str]) -> None:
    scripted = ScriptedSummarizer("abcd" * 50)
    memory = manager(row, scripted)
    talk(memory, 21 + 11 * 9)
    assert len(scripted.requests) == 10
    newest = [entry.id for entry in memory.get_entries(S)[-9:]]
    assert [entry.id for entry in memory.get_active_entries(S)[1:]] == newest


def the_summary_is_one_of_them(row: dict[str, str]) -> None:
    memory = manager(row, ScriptedSummarizer("short"))
    first_compression(memory)
    assert [entry.type for entry in memory.get_active_entries(S)] == ["summary"] + 9 * ["message"]


def asks_a_tenth_as_often(row: dict[str, str]) -> None:
    scripted = ScriptedSummarizer("abcd" * 100_000)  # never short enough
    memory = manager(row, scripted, on_failure="fallback")
    talk(memory, 400)
    assert memory.get_stats(S).active_tokens <= 2_000
    assert all(summary.token_count <= 200 for summary in memory.get_summaries(S))
    scripted = ScriptedSummarizer("abcd" * 200)
    memory = manager(row, scripted)
    talk(memory, 400)
    assert (
        len(scripted.requests) <= 40
    )  # the other one calls it after each message over the limit: 380


def the_summary_is_in_the_document(row: dict[str, str]) -> None:
    memory = manager(row, ScriptedSummarizer("what was said"))
    first_compression(memory)
    assert memory.get_stats(S).active_tokens <= 1_000
    restored = MemoryManager(counter="chars4", config=config_of(row))
    restored.import_session(SessionState.from_json(memory.export_session(S).to_json()))
    assert [summary.content for summary in restored.get_summaries(S)] == ["what was said"]


def has_no_numbered_names(row: dict[str, str]) -> None:
    keys = []
    for number in (5, 7):
        memory = manager(row, strategy=f"window({number})")
        talk(memory, 9)
        keys.append(set(memory.build_context(S).messages[0]))
    assert keys[0] == keys[1] == {"role", "content"}


def reads_add_nothing_and_clear_takes_all(row: dict[str, str]) -> None:
    memory = manager(row, ScriptedSummarizer("short"))
    first_compression(memory)
    before = memory.export_session(S)
    for _ in range(3):
        memory.build_context(S)
        memory.get_context_for_llm(S)
    assert memory.export_session(S) == before
    memory.clear_session(S)
    assert memory.get_summaries(S) == memory.build_context(S).messages == []


def the_newest_stays_however_large(row: dict[str, str]) -> None:
    memory = manager(row, ScriptedSummarizer("short"))
    talk(memory, 300)
    newest = memory.add_user_message(S, "abc " * 25_000)  # half of the limit
    assert memory.get_active_entries(S)[-1].id == newest.id
    known = MemoryManager(model="gpt-4o", config=config_of(row))
    known.add_user_message(S, "x")
    assert known.get_stats(S).max_tokens == int(0.8 * (128_000 - 16_384))


def is_stored_and_paid_once(row: dict[str, str]) -> None:
    scripted = ScriptedSummarizer("short")
    memory = manager(row, scripted, auto_compress=False)
    memory.add_tool_call(S, "skill", {}, call_id="skill")
    skill = memory.add_tool_result(S, "skill", "out " * 600, call_id="skill")
    shell(memory, 100, 500)
    memory.add_user_message(S, "I read the file. I read the file again.")
    stored = memory.compress(S, target_tokens=44_000)
    assert {item.method for item in stored.replacements} == {"stub"}
    active = memory.get_active_entries(S)
    whole = [e for e in active if e.type == "tool_result" and e.token_count.tokens == 500]
    assert 500 * len(whole) >= 40_000 - 500
    assert skill.id in {entry.id for entry in active}
    memory.compress(S, target_tokens=15_000)
    calls = len(scripted.requests)
    contexts = [memory.build_context(S) for _ in range(3)]
    assert len({context.tokens.tokens for context in contexts}) == 1
    assert len(scripted.requests) == calls >= 1  # contexts cost nothing


def summaries_count_and_fold(row: dict[str, str]) -> None:
    assert config_of(row).updated({"max_tokens": None}).max_tokens is None
    memory = manager(row, ScriptedSummarizer("abcd" * 50))
    talk(memory, 1_000)
    stats = memory.get_stats(S)
    assert (stats.summaries, stats.active_entries <= 100) == (1, True)
    defaults = MemoryManager(counter="chars4")
    defaults.add_user_message(S, "x")
    assert (defaults.get_stats(S).max_tokens, defaults.get_stats(S).max_entries) == (50_000, 100)


DIFFERENCES: dict[str, Callable[[dict[str, str]], None]] = {
    "ConversationBufferMemory": refuses_when_over,
    "ConversationBufferWindowMemory(k=5)": counts_entries,
    "ConversationTokenBufferMemory(max_token_limit=2000)": prunes_in_both_managers,
    "ConversationSummaryMemory": asks_once_in_eleven,
    "ConversationSummaryBufferMemory(max_token_limit=2000)": asks_a_tenth_as_often,
    "Synaptic ConversationBufferMemory": refuses_when_over,
    "Synaptic ConversationWindowMemory(5)": keeps_exchanges_whole,
    "Synaptic ConversationTokenBufferMemory(2000)": clips_what_is_too_large,
    "Synaptic ConversationSummaryMemory(10)": the_summary_is_one_of_them,
    "Synaptic ConversationSummaryBufferMemory(2000)": the_summary_is_in_the_document,
    "tinygent BufferChatMemory": answers_in_one_type,
    "tinygent BufferWindowChatMemory(k=5)": has_no_numbered_names,
    "tinygent BufferSummaryChatMemory(max_token_limit=2000)": reads_add_nothing_and_clear_takes_all,
    "NeuroLink conversation memory": the_newest_stays_however_large,
    "NeuroLink ContextCompactor": is_stored_and_paid_once,
    "AgTerm memory manager": summaries_count_and_fold,
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_preset_differs_as_listed(name: str) -> None:
    DIFFERENCES[name](ROWS[name])


def test_every_listed_memory_has_a_difference() -> None:
    assert set(ROWS) == set(DIFFERENCES)


def test_target_below_limit_cuts_in_batches() -> None:
    for settings in (
        {"strategy": "token_buffer", "target_ratio": 0.5},
        {"strategy": "window(10)", "max_entries": 20},
    ):
        heard: list[CompressionResult] = []

        def receive(_: Any, event: CompressionResult, heard: Any = heard) -> None:
            heard.append(event)

        memory = MemoryManager(counter="chars4", config=MemoryConfig(**settings))
        with events.compressed.connected_to(receive, sender=memory):
            talk(memory, 100)
        assert 5 <= len(heard) <= 10
