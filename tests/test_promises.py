"""The promises in their hardest cases: one request, one result, one failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memman import AsyncMemoryManager, MemoryConfig, MemoryManager, StateError, events
from memman.protocols import Appended
from memman.stores import MemoryStore


def words(text: str) -> int:
    return len(text.split())


def manager(summarizer: Any = None, **settings: Any) -> MemoryManager:
    return MemoryManager(
        counter=words,
        summarizer=summarizer,
        config=MemoryConfig(**{"max_entries": None, **settings}),
    )


def talk(memory: MemoryManager, rounds: int, size: int = 10) -> None:
    for number in range(rounds):
        memory.add_user_message("s", f"question {number} " + "q " * size)
        memory.add_assistant_message("s", f"answer {number} " + "a " * size)


def active(memory: MemoryManager) -> list[str]:
    return [entry.text for entry in memory.get_active_entries("s")]


def test_large_request_does_not_lower_the_target() -> None:
    memory = manager(max_tokens=1_000)
    talk(memory, 8)
    memory.build_context("s", budget=400_000, system="s " * 60_000)
    memory.record_usage("s", 60_000)
    memory.add_user_message("s", "next")
    assert len(active(memory)) == 17
    assert memory.get_stats("s").overhead_tokens <= 500


def test_a_report_about_a_trimmed_context_teaches_nothing() -> None:
    memory = manager(max_tokens=1_000)
    talk(memory, 8)
    memory.build_context("s", budget=150)
    memory.record_usage("s", 900)
    assert memory.get_stats("s").overhead_tokens < 200


def test_huge_newest_result_keeps_the_small_ones() -> None:
    memory = manager(max_tokens=2_000)
    memory.add_user_message("s", "TASK fix the parser")
    memory.add_user_message("s", "RULE never touch the lexer")
    memory.add_tool_call("s", "read", {"path": "x"}, call_id="c")
    memory.add_tool_result("s", "read", "line " * 10_000, call_id="c")
    kept = active(memory)
    assert kept[:2] == ["TASK fix the parser", "RULE never touch the lexer"]
    assert memory.get_stats("s").active_tokens <= 2_000
    context = memory.build_context("s", budget=500)
    assert "TASK fix the parser" in [message["content"] for message in context.messages]


@pytest.mark.parametrize("on_failure", ["keep", "raise"])
def test_failing_required_summarizer_loses_no_entry(on_failure: str) -> None:
    def broken(prompt: str) -> str:
        raise OSError("no network")

    memory = manager(broken, max_tokens=400, on_failure=on_failure)
    talk(memory, 60)
    assert len(active(memory)) == 120
    assert memory.build_context("s").tokens.tokens <= 400


def test_summarizer_receives_cleared_results() -> None:
    prompts: list[str] = []

    def summarize(prompt: str) -> str:
        prompts.append(prompt)
        return "short"

    memory = manager(summarize, max_tokens=600)
    for number in range(40):
        memory.add_user_message("s", f"step {number} " + "q " * 10)
        memory.add_tool_call("s", "run", {"n": number}, call_id=f"c{number}")
        memory.add_tool_result("s", "run", f"outcome-{number} " + "r " * 60, call_id=f"c{number}")
    assert prompts
    found = [number for number in range(40) if f"outcome-{number} " in " ".join(prompts)]
    assert found[:5] == [0, 1, 2, 3, 4]


def test_every_earlier_summary_is_carried_on() -> None:
    texts = iter(["fact-one", "fact-two", "both"])
    prompts: list[str] = []

    def summarize(prompt: str) -> str:
        prompts.append(prompt)
        return next(texts)

    memory = manager(summarize, max_tokens=100_000, recent_window=0, auto_compress=False)
    talk(memory, 5)
    memory.compress("s", target_tokens=100)
    [first] = memory.get_summaries("s")
    memory.pin("s", first.id)
    talk(memory, 5)
    memory.compress("s", target_tokens=100)
    memory.unpin("s", first.id)
    talk(memory, 5)
    memory.compress("s", target_tokens=100)
    assert "fact-one" in prompts[2]
    assert "fact-two" in prompts[2]


class _Unforgetting(MemoryStore):
    """A store that never overwrites."""

    def erase(self, *given: Any) -> Appended:
        return super().erase(*given[:-1], frozenset())


def test_export_has_no_deleted_text_that_a_store_kept() -> None:
    store = _Unforgetting()
    memory = MemoryManager(store, exclusive=True)
    secret = memory.add_user_message("s", "swordfish").id
    memory.add_user_message("s", "other")
    memory.delete_entries("s", [secret])
    assert "swordfish" in str(store.read("s"))
    assert "swordfish" not in memory.export_session("s").to_json()


def test_a_response_with_unreadable_usage_is_added_once() -> None:
    memory = MemoryManager()
    message = {"role": "assistant", "content": "hello"}
    response = {"choices": [{"message": message}], "usage": {"prompt_tokens": None}}
    memory.add_messages("s", response)
    assert active(memory) == ["hello"]


def test_an_import_redacts_too() -> None:
    import msgspec

    plain = MemoryManager()
    plain.add_user_message("s", "the password is swordfish")
    careful = MemoryManager(
        redact=lambda entry: msgspec.structs.replace(
            entry, content=entry.text.replace("swordfish", "***")
        )
    )
    careful.import_session(plain.export_session("s"))
    assert active(careful) == ["the password is ***"]


def test_settings_that_do_not_work_here_are_refused_at_import() -> None:
    memory = MemoryManager()
    memory.add_user_message("s", "x")
    memory.update_config("s", target_ratio=0.8)
    document = memory.export_session("s")
    with pytest.raises(StateError, match="settings"):
        MemoryManager(config=MemoryConfig(max_summary_ratio=0.3)).import_session(document)


def test_contradictory_settings_change_nothing() -> None:
    memory = MemoryManager()
    memory.add_user_message("s", "x")
    memory.update_config("s", target_ratio=0.8)
    with pytest.raises(ValueError, match="max_summary_ratio"):
        memory.update_config(max_summary_ratio=0.5)
    assert memory.get_entries("s")


def test_counted_messages_cost_as_much_as_their_context() -> None:
    memory = manager(max_tokens=10_000)
    talk(memory, 3)
    memory.add_tool_call("s", "run", {"n": 1}, call_id="c")
    memory.add_tool_result("s", "run", "done", call_id="c")
    for form in ("openai-chat", "anthropic"):
        context = memory.build_context("s", format=form)
        counted = memory.count_tokens(context.messages).tokens
        assert abs(counted - context.tokens.tokens) <= 20


def test_hung_summarizers_do_not_use_up_the_event_loops_workers() -> None:
    from threading import Event

    hold = Event()

    async def scenario() -> None:
        memory = AsyncMemoryManager(
            counter=words,
            summarizer=lambda prompt: str(hold.wait(20)),
            config=MemoryConfig(max_tokens=400, max_entries=None, summarize_timeout=0.02),
        )
        for number in range(400):
            await memory.add_user_message("s", f"question {number} " + "q " * 10)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), 2) == 1

    asyncio.run(scenario())
    hold.set()


def test_count_fallback_is_emitted_at_once_for_its_session() -> None:
    def moody(text: str) -> int:
        if "bad" in text:
            raise ValueError("no")
        return 1

    memory = MemoryManager(counter=moody)
    seen: list[str] = []

    def receive(sender: Any, event: Any) -> None:
        seen.append(event.session_id)

    with events.count_fell_back.connected_to(receive, sender=memory):
        memory.add_user_message("alice", "good")
        memory.add_user_message("bob", "good")
        memory.add_user_message("bob", "bad")
        assert seen == ["bob"]
        memory.add_user_message("alice", "good")
    assert seen == ["bob"]


def test_an_entry_shows_itself_in_a_line() -> None:
    entry = MemoryManager(counter=words).add_user_message("s", "hello there")
    assert repr(entry) == "<Entry #2 user message, 2 tokens: 'hello there'>"


def test_unchanged_prefix_counts_messages_sent_before() -> None:
    memory = manager(max_tokens=10_000)
    talk(memory, 2)
    sent: list[dict[str, Any]] = []
    for settings in (
        {},
        {"system": "be brief"},
        {"system": "be brief"},
        {},
        {"budget": 40},
        {},
        {},
    ):
        context = memory.build_context("s", **settings)
        same = 0
        while same < min(len(sent), len(context)) and sent[same] == context.messages[same]:
            same += 1
        assert context.unchanged_prefix == same, settings
        sent = context.messages
        memory.add_user_message("s", "and now?")


def test_recreated_session_is_reloaded() -> None:
    store = MemoryStore()
    here, there = MemoryManager(store), MemoryManager(store)
    for number in range(3):
        here.add_user_message("s", f"secret {number}")
    there.delete_session("s")
    for number in range(3):
        there.add_user_message("s", f"new {number}")
    assert active(here) == ["new 0", "new 1", "new 2"]
